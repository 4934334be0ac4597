"""Of two Kinemas on one cluster, each with a broker of its own, one acts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path

import pytest
from tests.controlplane.plane import ControlPlane
from tests.rescheduler.sim_world import sim_world
from tests.support.plans import plan_for

from kinema_core.events import ExecutionAborted, Offer, Plan
from kinema_core.model.cluster import Cluster
from kinema_core.runtime.clock import SystemClock
from kinema_core.runtime.health import Health
from kinema_core.runtime.settings import RuntimeSettings
from kinema_kubernetes.claim import PATH, ClaimedError, ClusterClaim
from kinema_kubernetes.client import Client, connect
from kinema_kubernetes.errors import KubernetesError, NotFoundError, UnavailableError
from kinema_rescheduler.errors import PermanentError
from kinema_rescheduler.leadership.fence import Fence
from kinema_rescheduler.service import Dependencies, Rescheduler
from kinema_rescheduler.settings import Settings, SimSettings
from kinema_sim.engine.kinds import LEASE
from kinema_sim.memory_bus import MemoryBus
from kinema_sim.scenarios.registry import SCENARIOS

SECONDS = 3.0


@pytest.fixture(params=["simulated", pytest.param("real", marks=pytest.mark.cluster)])
async def api(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Client]:
    """Each API server in turn; nobody has claimed it."""
    if request.param == "real":
        plane: ControlPlane = request.getfixturevalue("control_plane")
        found = await connect(str(plane.admin.write_kubeconfig(tmp_path / "kubeconfig")))
        with suppress(NotFoundError):
            await found.request("DELETE", PATH)
        yield found
        with suppress(NotFoundError):
            await found.request("DELETE", PATH)
        await found.close()
        return
    async with sim_world(SCENARIOS["tiny"](0), tmp_path) as world:
        found = await connect(str(world.kubeconfig))
        yield found
        await found.close()


def claim(api: Client, holder: str) -> ClusterClaim:
    """The claim of a Kinema, as one process sees it."""
    return ClusterClaim(api, holder, process=f"{holder}-1", seconds=SECONDS)


def refusal(of: ClusterClaim) -> KubernetesError | None:
    """Why nothing may be written; None where it may."""
    try:
        of.check()
    except KubernetesError as error:
        return error
    return None


async def test_the_second_is_told_who_acts(api: Client) -> None:
    """While the first one renews its claim, the second one's writes are refused for good, with the other's name."""
    first, second = claim(api, "first"), claim(api, "second")
    assert isinstance(refusal(first), UnavailableError)
    await first.take()
    assert refusal(first) is None
    keeping = asyncio.create_task(first.keep(lambda _: None))
    with pytest.raises(ClaimedError, match="another Kinema acts on this cluster: first-1, as Lease"):
        await second.take()
    assert isinstance(refusal(second), ClaimedError)
    assert refusal(first) is None
    keeping.cancel()


async def test_a_process_of_the_same_kinema_goes_on_at_once(api: Client) -> None:
    """After a crash the next process need not wait: the name is the broker's, not the process's."""
    await claim(api, "first").take()
    heir = claim(api, "first")
    await heir._turn()
    assert refusal(heir) is None


@pytest.mark.slow
async def test_a_silent_holder_is_outlived(api: Client) -> None:
    """A crashed holder's claim ends when its time has passed under our eyes; woken up, it writes nothing more."""
    first, second = claim(api, "first"), claim(api, "second")
    await first.take()
    await second.take()
    assert refusal(second) is None
    assert isinstance(refusal(first), UnavailableError)
    keeping = asyncio.create_task(second.keep(lambda _: None))
    with pytest.raises(ClaimedError, match="another Kinema acts"):
        await claim(api, "first").take()
    keeping.cancel()


async def test_a_released_claim_is_free(api: Client) -> None:
    """Who ends in order leaves nobody waiting, and gives up nothing of another's."""
    first, second = claim(api, "first"), claim(api, "second")
    await first.take()
    await second.release()
    assert (await api.get(PATH))["spec"]["holderIdentity"] == "first"
    await first.release()
    await second._turn()
    assert refusal(second) is None
    assert isinstance(refusal(first), UnavailableError)


class Broken(ClusterClaim):
    """A claim that cannot be kept for a reason that nobody thought of."""

    def __init__(self) -> None:
        """It needs no API server."""

    async def keep(self, report: Callable[[str | None], None]) -> None:
        """Fail."""
        raise KeyError("spec")

    async def release(self) -> None:
        """There is nothing to give up."""


async def test_a_bug_in_the_claim_ends_the_service() -> None:
    """It is started again and tells of it, instead of writing nothing for ever without a word."""
    service = Rescheduler(
        settings=Settings(runtime=RuntimeSettings(cluster="c"), provider=SimSettings(url="http://127.0.0.1:8001")),
        bus=MemoryBus(),
        clock=SystemClock(),
        health=Health("rescheduler", "c"),
        writer=NotImplemented,
        provider=NotImplemented,
        dependencies=Dependencies(claim=Broken()),
    )
    with pytest.raises(KeyError, match="spec"):
        await asyncio.wait_for(service.run(), 20)


def test_the_fence_asks_the_claim() -> None:
    """A write waits for the claim even under a lease that runs."""

    def refuse() -> None:
        raise ClaimedError("GET /", "another Kinema acts")

    with pytest.raises(PermanentError, match="claimed"):
        Fence(refuse).check()


def emptied(cluster: Cluster, offers: tuple[Offer, ...]) -> Plan:
    """Empty the last node onto the others and delete it; nothing is booted."""
    to = {pod.key: "tiny-1" for pod in cluster.pods if pod.node == "tiny-3"}
    return plan_for(cluster, offers, to=to, delete=["tiny-3"])


async def test_a_plan_on_somebody_elses_cluster_is_given_up(tmp_path: Path) -> None:
    """An accepted plan ends with the reason and nothing left behind, as nothing was written."""
    async with sim_world(SCENARIOS["tiny"](0), tmp_path) as world:
        api = await connect(str(world.kubeconfig))
        other = claim(api, "other")
        await other.take()
        keeping = asyncio.create_task(other.keep(lambda _: None))
        world.claim = claim(api, "ours")
        before = {kind: item for kind, item in world.objects() if kind in {"Node", "Deployment"}}
        end = await world.carry_out(emptied)
        keeping.cancel()
        await api.close()
        assert isinstance(end, ExecutionAborted)
        assert (end.reason, end.leftovers) == ("claimed", ())
        assert "another Kinema acts on this cluster: other-1, as Lease" in end.detail
        assert {kind: item for kind, item in world.objects() if kind in {"Node", "Deployment"}} == before
        assert [item["spec"]["holderIdentity"] for item in world.sim.store.sorted(LEASE)] == ["other"]


async def test_a_plan_on_our_cluster_is_carried_out_under_the_claim(tmp_path: Path) -> None:
    """The claim is taken before the first write, and free again once the service has ended."""
    async with sim_world(SCENARIOS["tiny"](0), tmp_path) as world:
        api = await connect(str(world.kubeconfig))
        world.claim = claim(api, "ours")
        end = await world.carry_out(emptied)
        assert end.figures["deleted"] == 1, world.failures()
        (left,) = world.sim.store.sorted(LEASE)
        assert left["spec"].get("holderIdentity") is None
        await api.close()
