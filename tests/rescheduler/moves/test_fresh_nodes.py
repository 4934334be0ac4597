"""Nodes that are Ready and not yet open: Kubernetes, or an agent of theirs, takes a taint off some time later."""

from __future__ import annotations

import dataclasses
from datetime import timedelta

from msgspec.structs import replace
from tests.rescheduler.harness import World
from tests.support.builders import cluster, deployed, node, offers, taint
from tests.support.plans import plan_for

from kinema_core.events import Plan
from kinema_core.model.cluster import Cluster
from kinema_rescheduler.providers.base import Operation

STARTING = "agent.example.com/starting:NoSchedule"


def fresh_node_plan() -> tuple[Cluster, Plan]:
    """Two pods leave a node for one that is booted, although the third one's has room as well."""
    before = cluster(node("n1"), node("n2"), deployed("web", ["n1", "n2", "n2"], cpu=500))
    to = {"shop/web-1": "kinema-1", "shop/web-2": "kinema-1"}
    return before, plan_for(before, offers(), to=to, boot={"kinema-1": "m2/a/on-demand"}, delete=["n2"])


def tainted(world: World, *texts: str) -> None:
    """Give the booted node these taints and no others, if it is there."""
    found = world.memory.nodes.get("kinema-1")
    if found is not None:
        world.memory.nodes["kinema-1"] = replace(found, taints=tuple(taint(text) for text in texts))


async def test_pods_go_to_a_node_that_takes_a_while_to_admit_them() -> None:
    """A taint that goes some time after the node is Ready is waited for: nobody is sent elsewhere meanwhile."""
    world = World(*fresh_node_plan())
    opens = world.clock.now() + timedelta(minutes=5)
    world.on_second = lambda: tainted(world, *([STARTING] if world.clock.now() < opens else []))
    end = await world.completes()
    assert end.figures["placement_misses"] == 0
    assert sorted(pod.node or "" for pod in world.memory.pods.values()) == ["kinema-1", "kinema-1", "n1"]


async def test_node_that_never_admits_its_pods_is_deleted_and_ends_the_plan() -> None:
    """A taint that nobody takes off is as bad as a node that is never Ready; the end names it."""
    world = World(*fresh_node_plan())
    world.on_second = lambda: tainted(world, STARTING)
    end = await world.aborts("node-never-ready", "n1", "n2")
    assert f"does not admit shop/web-1 (taint {STARTING})" in end.detail
    assert "surge-up" not in world.intended_kinds()


async def test_no_node_is_closed_for_one_whose_boot_is_not_known_to_be_done() -> None:
    """A node may be Ready before its boot is told done, as after a restart: that it is ours is not known until then."""
    world = World(*fresh_node_plan())
    ask, told = world.provider.operation, world.clock.now() + timedelta(minutes=5)

    async def late(id_: str) -> Operation:
        found = await ask(id_)
        return found if world.clock.now() >= told else dataclasses.replace(found, state="running")

    world.provider.operation = late  # type: ignore[method-assign]  # a cloud that is slow to tell
    early: list[bool] = []
    world.on_second = lambda: early.append("kinema-1" in world.memory.nodes and world.memory.nodes["kinema-1"].ready)
    await world.completes("kinema-1", "n1")
    assert early.index(True) < 200
    steps = [line for line in world.told() if "done   boot/kinema-1" in line or "intend taint/n2" in line]
    assert "boot" in steps[0]


async def test_a_cordon_is_not_waited_for() -> None:
    """Whoever cordons the booted node means it: the plan goes on without the node."""
    world = World(*fresh_node_plan())

    def operator() -> None:
        found = world.memory.nodes.get("kinema-1")
        if found is not None:
            closed = (taint("node.kubernetes.io/unschedulable:NoSchedule"),)
            world.memory.nodes["kinema-1"] = replace(found, unschedulable=True, taints=closed)

    world.on_second = operator
    await world.completes()
    assert {pod.node for pod in world.memory.pods.values()} == {"n1"}
