"""The observer's adapters against a real API server: all kinds, exact deltas under churn, and all that may break."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final
from zlib import crc32

import pytest
from tests.controlplane.access import Access, RefusedError
from tests.controlplane.nodes import node, nodes_for_a_while
from tests.controlplane.plane import ControlPlane
from tests.observer.one_of_each import (
    CSI_NODES,
    JSON,
    MERGE,
    change,
    csi_node,
    objects,
    vertical,
    vertical_definition,
)
from tests.observer.real_cluster import QUICK, Observed, observing, ticking
from tests.observer.scripted_source import folded
from tests.support.waiting import eventually, until

from kinema_core.events import UsageSampled
from kinema_core.runtime.clock import SystemClock
from kinema_core.runtime.settings import RuntimeSettings
from kinema_kubernetes import watch
from kinema_kubernetes.client import Answer, Client
from kinema_kubernetes.errors import ExpiredError
from kinema_kubernetes.rights import as_written
from kinema_observer.adapters.metrics import MetricsApi
from kinema_observer.rights import RULES
from kinema_observer.sampling import MeteredUsage, UsageSampler
from kinema_observer.settings import Settings

pytestmark = pytest.mark.cluster

NODE: Final = "observed-0"
_VERTICALS = "/apis/autoscaling.k8s.io/v1/namespaces/{}/verticalpodautoscalers"


@pytest.fixture(scope="module")
def access(control_plane: ControlPlane) -> Iterator[Access]:
    """The observer's account, and two nodes."""
    admin = control_plane.admin
    with nodes_for_a_while(admin, node(NODE), node("observed-1", zone="zone-b")):
        yield admin.account("kinema", "observer", list(map(as_written, RULES)))


@pytest.fixture
def namespace(request: pytest.FixtureRequest, control_plane: ControlPlane) -> Iterator[str]:
    """One object of each kind, in a namespace of the test."""
    name = f"real-{crc32(request.node.name.encode()):x}"
    made = []
    for path, body in objects(name):
        control_plane.admin.request("POST", path, body)
        made.append(f"{path}/{body['metadata']['name']}")
    yield name
    for path in (path for path in reversed(made) if f"/{name}/" not in path):
        control_plane.admin.request("DELETE", path)
    with suppress(RefusedError):  # a churn may have left it
        control_plane.admin.request("DELETE", f"{CSI_NODES}/{NODE}")


@pytest.fixture
async def observed(
    control_plane: ControlPlane, access: Access, namespace: str, tmp_path: Path
) -> AsyncIterator[Observed]:
    """An observer that has read the cluster once."""
    async with observing(control_plane, access, tmp_path) as each:
        await until(each.source.listed)
        yield each


async def test_all_kinds_are_read_with_the_rights_of_the_observer(observed: Observed, namespace: str) -> None:
    """With list and watch on its kinds alone, the observer's state equals a full list and holds an object of each."""

    def complete() -> bool:
        return any(one.type == "ReplicaSet" and one.namespace == namespace for one in folded(observed.bus).workloads)

    async with ticking(observed):
        await until(complete)  # a controller makes it from the Deployment, when it comes to that
        await observed.converged()
    state = folded(observed.bus)
    assert state.quarantined == ()
    read = {item.resource.kind for item in observed.source.reflectors if not item.off}
    assert read == {item.resource.kind for item in observed.source.reflectors} - {"VerticalPodAutoscaler"}
    ours = [workload for workload in state.workloads if workload.namespace == namespace]
    kinds = ["DaemonSet", "Deployment", "Job", "ReplicaSet", "ReplicationController", "StatefulSet"]
    assert sorted(workload.type for workload in ours) == kinds


async def test_usage_comes_from_the_metrics_api(observed: Observed, namespace: str) -> None:
    """Readings of `metrics.k8s.io` name the pods of the state.

    It comes before the tests that end the API server: kube-scheduler, which is refused while the server loads its
    roles, then waits longer and longer before it watches again.
    """
    async with ticking(observed):
        await observed.converged()
        sampler = UsageSampler(
            bus=observed.bus,
            source=MeteredUsage(MetricsApi(observed.api), 300.0),
            clock=SystemClock(),
            observer=observed.observer,
            settings=Settings(runtime=RuntimeSettings(cluster="c1")),
        )

        def readings() -> list[list[str]]:
            bodies = (event.body for event in observed.bus.events("STATE"))
            return [[pod.pod for pod in body.pods] for body in bodies if isinstance(body, UsageSampled)]

        async def sampled() -> bool:
            await sampler.sample()
            return any(pod.startswith(f"{namespace}/web") for reading in readings() for pod in reading)

        try:
            await eventually(sampled)
        except TimeoutError:
            pods = {pod.key: (pod.phase, pod.node) for pod in folded(observed.bus).pods if pod.namespace == namespace}
            served = await observed.do("GET", "/apis/metrics.k8s.io/v1beta1/nodes")
            pytest.fail(f"no reading names {pods}; readings: {readings()}; nodes: {served['items']}")


async def test_folded_deltas_equal_a_list_of_that_very_version(observed: Observed, namespace: str) -> None:
    """At every tick amid churn, what readers have folded is what the API server lists at the versions seen by then."""
    busy = asyncio.create_task(_churn(observed, namespace, 150))
    compared = 0
    while not busy.done():
        await observed.observer.tick()
        state, versions = folded(observed.bus), dict(observed.source.versions)
        assert state.objects == (await observed.truth(versions)).objects
        compared += 1
    await busy
    assert compared >= 5
    async with ticking(observed):
        await observed.converged()


async def test_faults_of_the_connection_lose_and_invent_nothing(observed: Observed, namespace: str) -> None:
    """Watches cut and refused, lists refused and answered in vain, amid churn: in the end the state equals a list."""
    proxy = observed.proxy
    async with ticking(observed):
        busy = asyncio.create_task(_churn(observed, namespace, 100))
        for _ in range(4):
            proxy.cut("watch=true")
            proxy.refuse("watch=true", 410, count=3)
            proxy.refuse("pods", 429, count=2)
            proxy.refuse("limit=", 503, count=3)
            proxy.lose_reply("limit=", count=2)
            await asyncio.sleep(0.5)
        await busy
        await observed.converged()


async def test_a_silent_watch_is_noticed(
    control_plane: ControlPlane, access: Access, namespace: str, tmp_path: Path
) -> None:
    """A watch that says nothing for two bookmark periods is given up, and what it kept back is seen."""
    impatient = replace(QUICK, bookmark=1.5)
    async with observing(control_plane, access, tmp_path, patience=impatient) as observed:
        await until(observed.source.listed)
        async with ticking(observed):
            await observed.converged()
            assert observed.proxy.silence("pods|deployments") >= 2
            await observed.do("PATCH", _scale(namespace), {"spec": {"replicas": 4}}, content_type=MERGE)
            await observed.converged()


async def test_after_a_restart_of_the_api_server_forgotten_changes_are_seen(observed: Observed, namespace: str) -> None:
    """Blind amid changes, then an API server that has forgotten those versions (410): a list brings them all."""
    api = observed.plane.servers["kube-apiserver"]
    async with ticking(observed):
        await observed.converged()
        observed.proxy.refuse(".", 503, count=1_000_000)
        observed.proxy.cut(".")
        await _churn(observed, namespace, 20)
        await observed.do("PATCH", _scale(namespace), {"spec": {"replicas": 3}}, content_type=MERGE)
        await asyncio.to_thread(observed.plane.compact)
        api.kill()
        try:
            await until(observed.source.missing)
        finally:
            await asyncio.to_thread(api.start)
        observed.proxy.faults.clear()
        await observed.converged()


async def test_a_list_whose_pages_are_forgotten_half_way_begins_again(
    control_plane: ControlPlane, access: Access, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An expired continue token (410) never gives half a list."""
    monkeypatch.setattr(watch, "PAGE", 2)
    server = control_plane.servers["kube-apiserver"]

    class Forgetful(Client):
        """Lets the server forget its history before the third page of pods, once."""

        pages = 0
        expired = False

        def __init__(self, inner: Client) -> None:
            self.__dict__.update(inner.__dict__)  # the same connection

        async def read(self, path: str, **query: str) -> Answer:
            """As usual, a little later."""
            is_more = path.endswith("/pods") and "continue" in query
            self.pages += is_more
            if is_more and self.pages == 2:
                # A compaction leaves the newest version: there must be a newer one than the list's.
                mark = {"metadata": {"labels": {"newer": "yes"}}}
                control_plane.admin.request("PATCH", f"/api/v1/nodes/{NODE}", mark, content_type=MERGE)
                control_plane.compact()
                # The API server's own copy would still have the pages.
                server.kill()
                await asyncio.to_thread(server.start)
            try:
                return await super().read(path, **query)
            except ExpiredError:
                self.expired = True
                raise

    async with observing(control_plane, access, tmp_path, as_client=Forgetful) as observed, ticking(observed):
        await observed.converged()
        assert isinstance(observed.api, Forgetful)
        assert observed.api.expired


async def test_a_kind_whose_definition_comes_later_is_followed(observed: Observed, namespace: str) -> None:
    """VerticalPodAutoscalers: left out while there is no such kind, read once there is, forgotten when it goes."""
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    path = _VERTICALS.format(namespace)
    async with ticking(observed):
        await observed.converged()
        assert folded(observed.bus).recommendations == ()
        await observed.do("POST", definitions, vertical_definition())
        try:
            await eventually(lambda: _succeeds(observed, "POST", path, vertical("100m")))
            await until(lambda: folded(observed.bus).recommendations, 30)
            await observed.converged()
        finally:
            await observed.do("DELETE", f"{definitions}/verticalpodautoscalers.autoscaling.k8s.io")
        await until(lambda: not folded(observed.bus).recommendations, 30)


async def test_limits_of_drivers_are_those_of_their_node(observed: Observed) -> None:
    """A CSINode that comes after its node gives it a limit, one that goes takes it away; no count is no limit."""
    disks = "attachable-volumes-csi-disk.example.com"

    def limit() -> int | None:
        known = folded(observed.bus).node(NODE)
        return None if known is None else known.allocatable.get(disks)

    async with ticking(observed):
        await observed.converged()
        assert limit() is None
        for count in (3, 0):
            await observed.do("POST", CSI_NODES, csi_node(NODE, count))
            await until(lambda: limit() == count, 30)  # noqa: B023 - waited for within the round
            await observed.converged()
            await observed.do("DELETE", f"{CSI_NODES}/{NODE}")
            await until(lambda: limit() is None, 30)
        await observed.do("POST", CSI_NODES, csi_node(NODE, None))
        await observed.converged()
        assert limit() is None
        await observed.do("DELETE", f"{CSI_NODES}/{NODE}")


def _scale(namespace: str) -> str:
    return f"/apis/apps/v1/namespaces/{namespace}/deployments/web/scale"


async def _churn(observed: Observed, namespace: str, changes: int) -> None:
    chance = random.Random(7)
    for count in range(changes):
        await _succeeds(observed, *change(namespace, NODE, chance, count))


async def _succeeds(observed: Observed, method: str, path: str, body: JSON) -> bool:
    """Whether a request succeeds: a churn also deletes what is not there."""
    try:
        await observed.do(method, path, body, content_type=MERGE if method == "PATCH" else "application/json")
    except RefusedError as error:
        if error.status not in (404, 409):
            raise
        return False
    return True
