"""The images on a real engine, with a simulated cluster and a real control plane: `make containers` builds them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from tests.controlplane.access import Access, RefusedError
from tests.controlplane.plane import Options, running
from tests.e2e.pipeline_run import SETTINGS, catalog
from tests.e2e.small import OLD_NODES, small_cluster
from tests.support.engine import ROOT, SECONDS, docker, network, require

SERVICES = ("observer", "predictor", "optimizer", "decider", "rescheduler")

pytestmark = [pytest.mark.slow, pytest.mark.containers]


@dataclass(frozen=True)
class Project:
    """A project of these tests, with volumes and networks of its own."""

    profile: str
    environment: Mapping[str, str] = field(default_factory=dict)
    name: str = field(default_factory=lambda: f"kinema-test-{os.getpid()}")

    def compose(self, *arguments: str, check: bool = True) -> str:
        """Run docker compose with the project's profile; gives what it prints."""
        own = ("compose", "--progress", "quiet", "--project-name", self.name, "--profile", self.profile)
        return docker(*own, *arguments, check=check, environment=self.environment)

    def kinema(self, *arguments: str, check: bool = True) -> str:
        """Run a command of the operator."""
        return self.compose("run", "--rm", "--no-TTY", "kinema", *arguments, check=check)

    def kill(self, service: str) -> None:
        """Kill a container and start it again."""
        self.compose("kill", "--signal", "SIGKILL", service)
        self.compose("start", service)

    def await_first_step(self) -> None:
        """Wait until a plan is being carried out."""
        await_that(lambda: "step-started" in self.compose("logs", "rescheduler"), self)


def await_that(holds: Callable[[], bool], project: Project) -> None:
    """Wait until something holds, for ten minutes."""
    deadline = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < deadline, project.compose("ps", "--all")
        time.sleep(0.5)


@pytest.fixture(scope="module")
def engine() -> None:
    """Skip where images cannot be run."""
    require(())
    said = docker("compose", "version", check=False)
    if "not a docker command" in said:
        pytest.skip(f"docker compose version: {said.strip().splitlines()[-1]}")
    require(docker("compose", "--profile", "demo", "config", "--images").split())


@pytest.fixture
def demo(engine: None) -> Iterator[Project]:
    """The demo, taken down with its volumes."""
    project = Project("demo")
    yield project
    project.compose("down", "--volumes")


@pytest.mark.parametrize(
    ("before", "within"),
    [
        pytest.param((), ("rescheduler", "nats"), id="two"),
        pytest.param(
            ("predictor", "optimizer", "decider"),
            ("rescheduler", "nats", "observer", "rescheduler", "nats"),
            id="each",
            marks=pytest.mark.long,
        ),
    ],
)
def test_the_demo_ends_well_although_containers_are_killed(
    demo: Project, before: Sequence[str], within: Sequence[str]
) -> None:
    """Services and the broker are killed, some before the plan, others while it is carried out."""
    demo.compose("up", "--no-build", "--detach")
    for service in SERVICES:
        (found,) = json.loads(docker("inspect", *demo.compose("ps", "--quiet", service).split()))
        assert found["Config"]["User"] == "65532:65532"
        assert found["HostConfig"]["ReadonlyRootfs"]
    for service in before:
        demo.kill(service)
    demo.await_first_step()
    for service in within:
        demo.kill(service)
    ends_well(demo)


@pytest.mark.long
def test_all_but_the_simulated_cluster_may_go_and_come_back(demo: Project) -> None:
    """Every container but the cluster's is removed while a plan is carried out: the next `up` goes on with it."""
    demo.compose("up", "--no-build", "--detach")
    demo.await_first_step()
    demo.compose("rm", "--stop", "--force", "nats", "prepare-demo", "setup", "demo", *SERVICES)
    demo.compose("up", "--no-build", "--detach")
    ends_well(demo)


def ends_well(demo: Project) -> None:
    """Wait for the demo's end, which it calls a good one."""
    (container,) = demo.compose("ps", "--all", "--quiet", "demo").split()
    assert docker("wait", container).strip() == "0", demo.compose("logs", "demo")
    assert "no workload fell below its floor" in demo.compose("logs", "demo")


@pytest.fixture(scope="module")
def installed(engine: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Project, Access]]:
    """Kinema in containers on a real control plane, each service with rights of its own, and an owner's access."""
    folder = tmp_path_factory.mktemp("compose")
    with ExitStack() as stack:
        address = stack.enter_context(network(f"kinema-test-{os.getpid()}-host"))
        plane = stack.enter_context(running(folder / "plane", Options(addresses=(address,))))
        stack.enter_context(small_cluster(plane.admin))
        owner = stack.enter_context(plane.reached_at(address))
        given = owner.write_kubeconfig(folder / "owner")
        given.chmod(0o644)
        environment = {
            "KUBECONFIG": str(given),
            "KINEMA": str(Path(sys.executable).with_name("kinema")),
            "PATH": f"{plane.programs['kubectl'].parent}:{os.environ['PATH']}",
        }
        script = [str(ROOT / "deploy/compose/kubeconfigs.sh"), str(folder / "kubeconfigs"), "kwok"]
        subprocess.run(script, env={**os.environ, **environment}, check=True, timeout=SECONDS)
        catalog(folder / "settings").rename(folder / "settings" / "prices.csv")
        for service, settings in {
            **SETTINGS,
            "decider": {"limits": {"approval": "required"}},
            "rescheduler": {"provider": {"kind": "kwok", "catalog": "/etc/kinema/prices.csv"}},
        }.items():
            (folder / "settings" / f"{service}.json").write_text(json.dumps(settings))
        project = Project(
            "cluster",
            {
                "KINEMA_KUBECONFIG": str(folder / "kubeconfigs"),
                "KINEMA_SETTINGS_DIR": str(folder / "settings"),
                "KINEMA_CLUSTER": "kwok",
            },
            f"kinema-test-{os.getpid()}-kwok",
        )
        mounted = ("--volume", f"{given}:/owner:ro", "kinema", "setup", "--kubeconfig", "/owner")
        try:
            assert "installed" in project.compose("run", "--rm", "--no-TTY", *mounted)
            project.compose("up", "--no-build", "--detach", "--wait")
            yield project, owner
        finally:
            project.compose("--profile", "demo", "--profile", "all-in-one", "down", "--volumes")


@pytest.mark.long
@pytest.mark.cluster
@pytest.mark.parametrize("service", ["observer", "rescheduler"])
def test_a_service_reaches_the_cluster_with_its_own_rights(installed: tuple[Project, Access], service: str) -> None:
    """The kubeconfig of a service has the token of its account alone, which may read nodes and make no namespace."""
    project, owner = installed
    text = (Path(project.environment["KINEMA_KUBECONFIG"]) / service).read_text()
    token = json.loads(text)["users"][0]["user"]["token"]
    assert owner.token not in text
    own = replace(owner, token=token)
    assert own.answers("/api/v1/nodes")
    with pytest.raises(RefusedError) as refused:
        own.request("POST", "/api/v1/namespaces", {"metadata": {"name": "more"}})
    assert refused.value.status == 403
    if service == "observer":
        with pytest.raises(RefusedError):
            own.request("DELETE", "/api/v1/nodes/old-0?dryRun=All")


@pytest.mark.long
@pytest.mark.cluster
def test_a_demo_does_not_take_over_what_acts_on_a_cluster(installed: tuple[Project, Access]) -> None:
    """The demo of the same project refuses, with the command that starts one beside, and starts and ends no service."""
    project, _ = installed
    before = _started(project)
    demo = replace(project, profile="demo")
    demo.compose("up", "--no-build", "--detach", check=False)
    assert "acts on cluster kwok: run the demo as a project of its own" in demo.compose("logs", "prepare-demo")
    assert _started(project) == before
    project.compose("down")
    demo.compose("up", "--no-build", "--detach", check=False)
    assert not project.compose("ps", "--quiet", *SERVICES).strip()
    project.compose("up", "--no-build", "--detach", "--wait")


def _started(project: Project) -> Mapping[str, str]:
    containers = project.compose("ps", "--quiet", *SERVICES, "nats").split()
    return {each["Id"]: each["State"]["StartedAt"] for each in json.loads(docker("inspect", *containers))}


@pytest.mark.long
@pytest.mark.cluster
def test_an_approved_plan_outlives_the_project(installed: tuple[Project, Access]) -> None:
    """`down` while a plan is carried out on a real cluster keeps it: the next `up` carries it to its end."""
    project, owner = installed
    await_that(lambda: "approved by" in project.kinema("approve", "latest", check=False), project)
    (plan,) = (each for each in plans(project) if each["phase"] == "Running")
    assert plan["usd_per_hour_after"] < plan["usd_per_hour_before"]
    project.await_first_step()
    project.compose("down")
    assert not project.compose("ps", "--all", "--quiet")
    project.compose("up", "--no-build", "--detach", "--wait")
    await_that(lambda: (plan["id"], "Completed") in {(each["id"], each["phase"]) for each in plans(project)}, project)
    names = {each["metadata"]["name"] for each in owner.request("GET", "/api/v1/nodes")["items"]}
    assert len(names) < OLD_NODES


@pytest.mark.long
@pytest.mark.cluster
def test_one_container_takes_the_streams_over_and_gives_them_back(installed: tuple[Project, Access]) -> None:
    """The profile all-in-one goes on with the plans of the services one by one, and they with its own."""
    project, _ = installed
    await_that(lambda: bool(plans(project)), project)
    before = {each["id"] for each in plans(project)}
    project.compose("down")
    owner = str(Path(project.environment["KINEMA_KUBECONFIG"]).with_name("owner"))
    given = {"KINEMA_KUBECONFIG": owner, "KINEMA_PROVIDER": "kwok=/etc/kinema/prices.csv"}
    one = replace(project, profile="all-in-one", environment={**project.environment, **given})
    one.compose("up", "--no-build", "--detach", "--wait")
    asked = ("exec", "--no-TTY", "all-in-one", "sh", "-c", ". /state/operator.env && kinema plans -o json")
    within = {each["id"] for each in json.loads(one.compose(*asked))["plans"]}
    assert before <= within
    one.compose("down")
    project.compose("up", "--no-build", "--detach", "--wait")
    assert within <= {each["id"] for each in plans(project)}


def plans(project: Project) -> Sequence[Mapping[str, Any]]:
    """Return the newest plans as the operator sees them."""
    found: Sequence[Mapping[str, Any]] = json.loads(project.kinema("plans", "-o", "json"))["plans"]
    return found
