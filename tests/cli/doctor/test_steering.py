"""What `kinema doctor` says about the admission policy that steers new pods."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.rescheduler.sim_world import SimWorld, sim_world

from kinema_cli.admin.setup import Steering, steer
from kinema_cli.doctor.checks import Finding
from kinema_cli.doctor.examine import Subject, examine
from kinema_cli.local.up import UpOptions, _is_well, _pipeline_options
from kinema_rescheduler.names import LANDING_NAME, STEERING_NAME
from kinema_sim.front.kube import KubeFront
from kinema_sim.scenarios.registry import SCENARIOS

GROUP = "/apis/admissionregistration.k8s.io"
CREATED = (
    "placement policy: installed; if one was removed after the API server started, it has no effect until the API "
    "server restarts; plans run with more pods elsewhere"
)


class Policies:
    """The part of an API server that has mutating admission policies, in one version."""

    def __init__(self) -> None:
        self.version = "v1"
        self.mutating = True
        self.denied = ""
        self.objects: dict[str, Any] = {}

    async def answer(self, request: web.Request) -> web.Response:
        """Discovery, and single objects."""
        path = request.path
        if self.denied and self.denied in path:
            return web.json_response({"kind": "Status", "message": "may not", "reason": "Forbidden"}, status=403)
        if path == f"{GROUP}/{self.version}":
            mutating = ("mutatingadmissionpolicies", "mutatingadmissionpolicybindings") if self.mutating else ()
            names = ("validatingadmissionpolicies", *mutating)
            return web.json_response({"resources": [{"name": name} for name in names]})
        if path == f"{GROUP}/v1":
            return web.json_response({"resources": [{"name": "validatingadmissionpolicies"}]})
        if request.method == "PATCH" and path.startswith((f"{GROUP}/{self.version}/", f"{GROUP}/v1/")):
            self.objects[path] = await request.json()
        if path not in self.objects:
            return web.json_response({"kind": "Status", "reason": "NotFound"}, status=404)
        return web.json_response(self.objects[path])


@pytest.fixture
def policies(monkeypatch: pytest.MonkeyPatch) -> Policies:
    """A simulated server knows them."""
    known, handle = Policies(), KubeFront.handle

    async def answer(front: KubeFront, request: web.Request) -> web.StreamResponse:
        if request.path == "/apis":
            versions = [{"groupVersion": f"{GROUP.removeprefix('/apis/')}/{one}"} for one in {"v1", known.version}]
            return web.json_response({"groups": [{"versions": versions}]})
        return await (known.answer(request) if request.path.startswith(GROUP) else handle(front, request))

    monkeypatch.setattr(KubeFront, "handle", answer)
    return known


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[SimWorld]:
    """A simulated cluster."""
    async with sim_world(SCENARIOS["tiny"](0), tmp_path) as made:
        yield made


async def told(world: SimWorld, *, context: str = "kinema-sim") -> Finding:
    """The one line about steering."""
    found = await examine(Subject(kubeconfig=str(world.kubeconfig), context=context))
    (finding,) = (finding for finding in found if finding.check == "placement policy")
    return finding


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
async def test_what_setup_installs_is_found(version: str, policies: Policies, world: SimWorld) -> None:
    """Before, a warning with what it means and the command for just this cluster; after that command all is well."""
    policies.version = version
    before = await told(world)
    assert before.level == "warn"
    assert before.message == (
        "not installed: MutatingAdmissionPolicy kinema-steering, MutatingAdmissionPolicyBinding kinema-steering, "
        "ValidatingAdmissionPolicy kinema-landing, ValidatingAdmissionPolicyBinding kinema-landing; more new pods land "
        "elsewhere than planned"
    )
    assert before.remediation == f"kinema setup --kubeconfig {world.kubeconfig} --context kinema-sim"
    assert await steer(Steering(world.kubeconfig, on=True)) == CREATED
    assert await steer(Steering(world.kubeconfig, on=True)) == "placement policy: installed"
    after = await told(world)
    assert (after.level, after.message, after.remediation) == (
        "ok",
        "installed: MutatingAdmissionPolicy kinema-steering, MutatingAdmissionPolicyBinding kinema-steering, "
        "ValidatingAdmissionPolicy kinema-landing, ValidatingAdmissionPolicyBinding kinema-landing",
        "",
    )


async def test_a_server_that_only_refuses(policies: Policies, world: SimWorld) -> None:
    """Kubernetes 1.34 serves the policy on bindings alone: it is installed, and nothing is missing."""
    policies.mutating = False
    assert await steer(Steering(world.kubeconfig, on=True)) == CREATED
    assert await steer(Steering(world.kubeconfig, on=True)) == "placement policy: installed"
    found = await told(world)
    assert found.level == "ok"
    assert "ValidatingAdmissionPolicy kinema-landing" in found.message
    assert "Mutating" not in found.message


@pytest.mark.parametrize("name", [STEERING_NAME, LANDING_NAME])
async def test_a_policy_that_comes_back_may_be_idle(name: str, policies: Policies, world: SimWorld) -> None:
    """Who removed one of its objects has ended steering until a restart, whether a Kinema ever steered or not."""
    await steer(Steering(world.kubeconfig, on=True))
    for path in [path for path in policies.objects if path.endswith(f"/{name}")]:
        del policies.objects[path]
    assert await steer(Steering(world.kubeconfig, on=True)) == CREATED
    assert await steer(Steering(world.kubeconfig, on=True)) == "placement policy: installed"


async def test_a_policy_that_nothing_puts_into_force(policies: Policies, world: SimWorld) -> None:
    """Without its binding it steers nothing."""
    await steer(Steering(world.kubeconfig, on=True))
    for binding in [path for path in policies.objects if "bindings" in path]:
        del policies.objects[binding]
    found = await told(world, context="")
    assert (found.level, found.remediation) == ("warn", f"kinema setup --kubeconfig {world.kubeconfig}")
    missing = "MutatingAdmissionPolicyBinding kinema-steering, ValidatingAdmissionPolicyBinding kinema-landing"
    assert found.message.startswith(f"not installed: {missing}; ")


async def test_a_server_without_such_policies(world: SimWorld) -> None:
    """Nothing can be installed there, and nothing is advised."""
    found = await told(world)
    assert (found.level, found.remediation) == ("ok", "")
    assert found.message.startswith("this Kubernetes has no admission policies")


async def test_who_may_not_look_is_told_the_right(policies: Policies, world: SimWorld) -> None:
    """It is neither said to be there nor to be missing."""
    policies.denied = "kinema-steering"
    found = await told(world)
    assert found.level == "warn"
    assert found.message.startswith("it is unknown whether the admission policy is installed: ")
    for plural in ("mutatingadmissionpolicies", "mutatingadmissionpolicybindings"):
        assert f"get {plural}.admissionregistration.k8s.io kinema-steering" in found.remediation


@pytest.mark.usefixtures("policies")
async def test_up_does_not_ask_for_what_it_installs_itself(
    world: SimWorld, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nor where it is told to steer nothing."""
    asked = UpOptions(kubeconfig=world.kubeconfig, provider=f"sim={world.url}", cluster="c1", out=tmp_path / "up")
    assert await _is_well(_pipeline_options(asked))
    assert "steering" not in capsys.readouterr().err
