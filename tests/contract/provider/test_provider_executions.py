"""Whole executions over every provider: what goes wrong ends in events with a reason, and nothing is left."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from tests.contract.provider.rooms import BOOTING, ZONE, DelegateRoom, Room
from tests.contract.provider.test_provider_contract import until
from tests.support.plans import plan_for

from kinema_core.events import ExecutionAborted, ExecutionCompleted, Offer, Plan
from kinema_core.model.cluster import Cluster
from kinema_rescheduler.plan.limits import Limits
from kinema_rescheduler.providers.base import Operation, Provider
from kinema_sim.engine.kinds import CONFIG_MAP, NODE

booting = pytest.mark.parametrize("room", BOOTING, indirect=True)

LIMITS = Limits(node_ready_seconds=90, boot_seconds=120, retry_seconds=2)
FLOORS = {"Deployment/shop/api": 2, "Deployment/shop/web": 3}


def onto_a_new_node(cluster: Cluster, offers: tuple[Offer, ...]) -> Plan:
    """Everything on a new node; one of the old ones goes."""
    offer = next(item for item in offers if (item.machine_type, item.zone) == ("e2-standard-2", ZONE))
    to = {pod.key: "kinema-1" for pod in cluster.pods if pod.node == "tiny-2"}
    return plan_for(cluster, offers, to=to, boot={"kinema-1": offer.name}, delete=["tiny-2"])


async def carry_out(room: Room, **more: Any) -> ExecutionCompleted | ExecutionAborted:
    """A rescheduler with the room's provider carries the plan out."""
    return await room.world.carry_out(onto_a_new_node, limits=LIMITS, provided=room.provider, **more)


def told(room: Room) -> str:
    """What went wrong, for a failing test."""
    return "\n".join(room.world.failures())


def ledger(room: Room) -> dict[str, str]:
    """What providers still remember of nodes that are not there."""
    entries: dict[str, str] = {}
    for name in ("kinema-kwok", "kinema-machines", "kinema-gke"):
        found = room.world.sim.store.get(CONFIG_MAP, "kube-system", name) or {}
        entries |= found.get("data") or {}
    return {key: text for key, text in entries.items() if room.world.sim.store.get(NODE, "", key) is None}


def untouched(room: Room) -> None:
    """The cluster is as it was before, and nothing is paid for."""
    nodes = [node["metadata"]["name"] for node in room.world.sim.store.sorted(NODE)]
    assert nodes == ["tiny-1", "tiny-2", "tiny-3"]
    assert room.world.marks_left() == []
    assert room.world.least_ready.items() <= FLOORS.items()
    assert room.paid() == []
    assert ledger(room) == {}


@pytest.mark.slow
@booting
async def test_boot_and_move(room: Room) -> None:
    """Pods move to the node that was booted, under whichever name it registered; the plan's name is nobody's then."""
    # The old nodes are the simulated cloud's: here others boot, and nobody deletes them.
    end = await carry_out(room)
    assert len(room.paid()) == 1, told(room)
    moved = [pod.key for pod in room.world.cluster().pods if pod.node == room.paid()[0]]
    assert moved
    assert end.figures["booted"] == 1
    assert end.figures["placement_misses"] == 0
    assert room.world.least_ready == FLOORS
    assert room.world.marks_left() == []
    assert ledger(room) == {}


class LateName:
    """A provider that knows the name of a node only when its boot is done, as Karpenter's NodeClaims do."""

    def __init__(self, provider: Provider) -> None:
        self.provider = provider

    def __getattr__(self, name: str) -> Any:
        """All else is the provider's."""
        return getattr(self.provider, name)

    async def boot(self, name: str, offer: Offer, operation: str) -> Operation:
        """The order, under the name that was asked for."""
        return replace(await self.provider.boot(name, offer, operation), node=name, state="running")

    async def operation(self, id_: str) -> Operation:
        """The operation; its node is named once it is done."""
        found = await self.provider.operation(id_)
        return found if found.state == "done" else replace(found, node="")


@pytest.mark.slow
@pytest.mark.parametrize("room", ["static"], indirect=True)
async def test_a_name_that_is_known_when_the_boot_is_done(room: Room) -> None:
    """Pods move to the node under the name that its machine has in the end."""
    end = await room.world.carry_out(onto_a_new_node, limits=LIMITS, provided=lambda api: LateName(room.provider(api)))
    assert end.figures["booted"] == 1, told(room)
    assert end.figures["placement_misses"] == 0
    assert [pod for pod in room.world.cluster().pods if pod.node == room.paid()[0]]


@booting
async def test_sold_out_ends_the_plan_before_anything_moved(room: Room) -> None:
    """A stock-out aborts the plan under that reason."""
    await room.sell_out()
    end = await carry_out(room)
    assert isinstance(end, ExecutionAborted)
    assert end.reason == "stock-out", told(room)
    assert [pod.node for pod in room.world.cluster().pods if pod.node and not pod.node.startswith("tiny-")] == []
    assert room.world.marks_left() == []


@pytest.mark.slow
@booting
@pytest.mark.parametrize(("trouble", "reasons"), [("limit", {"quota"}), ("deny", {"permission", "denied"})])
async def test_refusals_end_the_plan(room: Room, trouble: str, reasons: set[str]) -> None:
    """Quota and missing rights abort the plan under their reason; the cluster stays as it was."""
    await getattr(room, trouble)()
    end = await carry_out(room)
    assert isinstance(end, ExecutionAborted)
    assert end.reason in reasons, told(room)
    untouched(room)


@pytest.mark.slow
@booting
@pytest.mark.parametrize("trouble", ["fail_once", "lose_reply"])
async def test_passing_trouble_costs_a_try(room: Room, trouble: str) -> None:
    """A failure that passes and a lost answer are told as failed steps, tried again, and buy one machine."""
    await getattr(room, trouble)()
    end = await carry_out(room)
    assert len(room.paid()) == 1, told(room)
    assert end.figures["booted"] == 1


@pytest.mark.slow
@booting
@pytest.mark.parametrize(("held", "reason"), [("never", "node-never-ready"), ("less", "less-allocatable")])
async def test_a_node_that_is_no_use_is_given_back(room: Room, held: str, reason: str) -> None:
    """A node that never gets Ready, or has less than was promised, ends the plan and is paid for no longer."""
    room.held.add(held)
    end = await carry_out(room)
    assert isinstance(end, ExecutionAborted)
    assert end.reason == reason, told(room)
    assert end.leftovers == ()
    await until(lambda: room.paid() == [])
    untouched(room)


@pytest.mark.slow
@booting
@pytest.mark.parametrize("place", ["intended", "effected", "done"])
async def test_killed_while_booting_buys_one_machine(room: Room, place: str) -> None:
    """Killed before or after the boot's effect, the next process, with a provider of its own, ends with one machine."""
    end = await carry_out(room, crash_at=f"rescheduler.boot.{place}")
    assert room.world.crashes == 1
    assert end.figures["booted"] == 1, told(room)
    assert len(room.paid()) == 1
    assert room.world.least_ready == FLOORS


@pytest.mark.slow
@pytest.mark.parametrize("room", ["sim", "gke"], indirect=True)
@pytest.mark.parametrize("place", ["intended", "effected", "done"])
async def test_killed_while_deleting_ends_the_planned_machine_alone(room: Room, place: str) -> None:
    """Killed around the deletion, the next process ends it: what is paid for is what the plan keeps and buys."""
    end = await carry_out(room, crash_at=f"rescheduler.delete.{place}")
    assert room.world.crashes == 1
    assert isinstance(end, ExecutionCompleted), told(room)
    await until(lambda: sorted(room.world.sim.cloud.machines) == ["kinema-1", "tiny-1", "tiny-3"])
    assert [node["metadata"]["name"] for node in room.world.sim.store.sorted(NODE)] == ["kinema-1", "tiny-1", "tiny-3"]
    assert room.world.least_ready == FLOORS
    assert ledger(room) == {}


def emptied(cluster: Cluster, offers: tuple[Offer, ...]) -> Plan:
    """Everything on the first node."""
    to = {pod.key: "tiny-1" for pod in cluster.pods}
    return plan_for(cluster, offers, to=to, delete=["tiny-2", "tiny-3"])


@pytest.mark.slow
@pytest.mark.parametrize("room", ["delegate"], indirect=True)
async def test_emptied_nodes_are_left_to_the_autoscaler(room: Room) -> None:
    """Nodes are closed and emptied; the plan ends when the autoscaler has deleted them."""
    assert isinstance(room, DelegateRoom)
    loop, store = room.world.sim.loop, room.world.sim.store
    due: set[str] = set()

    def autoscale() -> None:
        used = {pod.node for pod in room.world.cluster().pods}
        for node in store.sorted(NODE):
            name = node["metadata"]["name"]
            if name not in used and name not in due:
                due.add(name)
                loop.after(60_000, partial(room.scale_down, name))

    loop.every(10_000, autoscale)
    end = await room.world.carry_out(emptied, limits=LIMITS, provided=room.provider)
    assert isinstance(end, ExecutionCompleted), told(room)
    assert [node["metadata"]["name"] for node in store.sorted(NODE)] == ["tiny-1"]
    assert end.figures["deleted"] == 2
    assert room.world.least_ready == FLOORS
    assert room.world.marks_left() == []


@pytest.mark.parametrize("room", ["delegate"], indirect=True)
async def test_an_autoscaler_that_does_nothing_costs_nothing(room: Room) -> None:
    """Nodes that nobody deletes in time are opened again: nothing of ours stays on them."""
    limits = Limits(delete_seconds=20, attempts=1)
    end = await room.world.carry_out(emptied, limits=limits, provided=room.provider)
    assert "nodes_kept" in end.figures
    assert end.figures["nodes_kept"] == 2, told(room)
    assert room.world.marks_left() == []


@pytest.mark.parametrize("room", ["delegate"], indirect=True)
async def test_a_boot_that_was_planned_all_the_same_is_refused(room: Room) -> None:
    """A plan with new nodes ends with `permission`, and nothing has happened."""
    end = await carry_out(room)
    assert isinstance(end, ExecutionAborted)
    assert end.reason == "permission"
    untouched(room)
