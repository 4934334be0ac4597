"""What the policy on bindings refuses, and for how long, on a real API server with nothing beside it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.controlplane.build import VERSIONS
from tests.controlplane.plane import ControlPlane, Options, running

from kinema_cli.admin.steering_policy import install
from kinema_core.events import Step
from kinema_core.runtime.clock import Clock, SystemClock
from kinema_kubernetes.objects import uid
from kinema_rescheduler.errors import EffectError
from kinema_rescheduler.kubernetes.fenced import FencedClient, connect
from kinema_rescheduler.kubernetes.landing import LandingKeeper
from kinema_rescheduler.names import ANYWHERE, LANDING_NAME, LANDING_SECONDS, RENEWED

pytestmark = [pytest.mark.cluster]

PODS = "/api/v1/namespaces/default/pods"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
CONFIG_MAPS = "/api/v1/namespaces/kube-system/configmaps"
LANDING = f"{CONFIG_MAPS}/{LANDING_NAME}"
ENTRIES = {
    "default.web-5d8f9c7b66-": "n1,n2",
    "default.web-5d8f9c7b66-freed": ANYWHERE,
    "Deployment.default.rolled": "n1",
    "default.db-0": "n1",
    f"default.{'x' * 58}": "n1",
}


class Apart(SystemClock):
    """A clock that is not the API server's."""

    def now(self) -> datetime:
        """A minute and a half late."""
        return super().now() - timedelta(seconds=90)


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """An API server of its own: one that has lost the policy once follows it no longer."""
    options = Options(minor=os.environ.get("KINEMA_KUBERNETES", VERSIONS[0]), only=("etcd", "kube-apiserver"))
    with running(tmp_path_factory.mktemp("plane") / "plane", options) as made:
        yield made


@pytest.fixture
async def api(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[FencedClient]:
    """The policy is in force, and follows the ConfigMap."""
    made = await connect(str(plane.admin.write_kubeconfig(tmp_path_factory.mktemp("access") / "kubeconfig")))
    for path, body in (
        ("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}}),
        (CONFIG_MAPS, {"metadata": {"name": LANDING_NAME}, "data": {RENEWED: ""}}),
    ):
        try:
            await made.create(path, body)
        except EffectError:
            break  # an earlier test made both
    await install(made.client)
    async with asyncio.timeout(60):
        while True:
            await write(made, {"default.probe-": "n1"})
            if await bound(made, f"probe-{await fresh(made)}", "n9"):
                continue
            break
    yield made
    await made.close()


async def fresh(api: FencedClient) -> str:
    """Five characters that no pod has yet."""
    return f"{len(await api.items(PODS)):05}"


async def write(api: FencedClient, entries: dict[str, str], age: float = 0) -> None:
    """Write the ConfigMap as of so many seconds ago."""
    renewed = (SystemClock().now() - timedelta(seconds=age)).isoformat()
    old = (await api.get(LANDING)).get("data") or {}
    await api.patch(LANDING, {"data": {**dict.fromkeys(old), **entries, RENEWED: renewed}})
    await asyncio.sleep(0.2)  # the API server follows it by a watch


async def bound(api: FencedClient, name: str, node: str, metadata: dict[str, Any] | None = None) -> bool:
    """Whether a scheduler may bind a new pod of that name to the node."""
    spec = {"containers": [{"name": "c", "image": "example/none:1"}], "schedulerName": "none"}
    await api.create(PODS, {"metadata": {"name": name, **(metadata or {})}, "spec": spec})
    return await rebound(api, name, node)


async def rebound(api: FencedClient, name: str, node: str) -> bool:
    """Whether a scheduler may bind a pod to the node."""
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}}
    try:
        await api.create(f"{PODS}/{name}/binding", {**binding, "target": {"kind": "Node", "name": node}})
    except EffectError as error:
        if "Kinema moves this pod to n1" not in error.detail:
            raise
        return False
    return True


@pytest.mark.parametrize(
    ("name", "node", "allowed"),
    [
        ("web-5d8f9c7b66-aaaaa", "n2", True),
        ("web-5d8f9c7b66-bbbbb", "n9", False),
        ("web-5d8f9c7b66-freed", "n9", True),
        ("web-7c8f9d7b55-aaaaa", "n9", True),
        ("rolled-7c8f9d7b55-aaaaa", "n9", False),
        ("rolled-7c8f9d7b55-bbbbb", "n1", True),
        ("rolled-agent-aaaaa", "n9", True),
        ("db-0", "n9", False),
        ("db-1", "n9", True),
        ("x" * 58 + "aaaaa", "n9", False),
        ("x", "n9", True),
    ],
)
async def test_pods_of_a_move_are_bound_to_planned_nodes_only(
    api: FencedClient, name: str, node: str, allowed: bool
) -> None:
    """By the names of a set's pods, of a Deployment's, of one pod; others, and pods that are free, go anywhere."""
    await write(api, ENTRIES)
    assert await bound(api, name, node) is allowed
    await api.client.request("DELETE", f"{PODS}/{name}", query={"gracePeriodSeconds": "0"})


@pytest.mark.parametrize("age", [LANDING_SECONDS + 1, -LANDING_SECONDS - 1])
async def test_what_is_not_renewed_refuses_nothing(api: FencedClient, age: float) -> None:
    """Some seconds after the last renewal every pod may be bound anywhere; so where a clock is far ahead."""
    await write(api, {"default.late-": "n1"})
    name = f"late-{await fresh(api)}"
    assert not await bound(api, name, "n9")
    await write(api, {"default.late-": "n1"}, age)
    assert await rebound(api, name, "n9")


@pytest.mark.parametrize("text", ["", "soon", "2026-03-02"])
async def test_a_renewal_that_cannot_be_read_refuses_nothing(api: FencedClient, text: str) -> None:
    """The policy fails open."""
    await write(api, {"default.odd-": "n1"})
    await api.patch(LANDING, {"data": {RENEWED: text}})
    await asyncio.sleep(0.2)
    assert await bound(api, f"odd-{await fresh(api)}", "n9")


@pytest.mark.parametrize("clock", [SystemClock(), Apart()], ids=["exact", "apart"])
async def test_the_keeper_renews_by_the_servers_clock(api: FencedClient, clock: Clock) -> None:
    """A clock of Kinema's that is 90 seconds late refuses as well as an exact one."""
    name, labels = f"kept-{await fresh(api)}", {"app": f"kept-{await fresh(api)}"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "example/none:1"}]}}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    await api.create(DEPLOYMENTS, {"metadata": {"name": name}, "spec": spec})
    await api.delete(LANDING, uid(await api.get(LANDING)))
    keeper = LandingKeeper(api, clock=clock, patience_seconds=10)
    step = Step(id=f"prefer-nodes/{name}/1", kind="prefer-nodes", target=f"Deployment/default/{name}", nodes=("n1",))
    for _ in range(2):
        await keeper.keep([step])
    pod = f"{name}-7c8f9d7b55-{await fresh(api)}"
    await asyncio.sleep(0.2)
    assert not await bound(api, pod, "n9", {"labels": labels})
    await keeper.keep([step])
    assert "nominatedNodeName" not in (await api.get(f"{PODS}/{pod}"))["status"], "the scheduler is still at it"
    refused = {"type": "PodScheduled", "status": "False", "reason": "SchedulerError"}
    await api.patch(f"{PODS}/{pod}/status", {"status": {"conditions": [refused]}})
    await keeper.keep([step])
    assert (await api.get(f"{PODS}/{pod}"))["status"]["nominatedNodeName"] == "n1"
    assert await rebound(api, pod, "n1")
    found = await api.get(f"{PODS}/{pod}")
    assert "affinity" not in found["spec"]
    assert "annotations" not in found["metadata"]
    await keeper.keep([step])
    assert not (await api.get(LANDING)).get("data"), "its place is taken: nothing is kept from any node"
