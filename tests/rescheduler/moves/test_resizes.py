"""Resizes in place: when they are tried, and what follows where a kubelet does not do what it is asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from tests.rescheduler.harness import WEB, World
from tests.rescheduler.plan.test_crashes import at_pass, check_once
from tests.support.builders import cluster, deployed, node, offers
from tests.support.plans import plan_for

from kinema_core.model.cluster import Cluster
from kinema_rescheduler.plan.limits import Limits

BOTH = ("cpu", "memory")


def shop(resizable: Sequence[str] = BOTH) -> Cluster:
    """Three pods on two nodes with room."""
    web = deployed("web", ["n1", "n1", "n2"], cpu=500, resizable=tuple(resizable))
    return cluster([node("n1", price="0.1"), node("n2", price="0.1")], web)


def world_of(state: Cluster, *, to: Mapping[str, str] | None = None, limits: Limits | None = None) -> World:
    """A plan with less CPU for each pod."""
    return World(state, plan_for(state, offers(), to=to, resizes={WEB: {"cpu": 300}}), limits=limits)


def alive(world: World) -> set[str]:
    """Keys of the pods that stay."""
    return {key for key, pod in world.memory.pods.items() if not pod.terminating}


def sizes(world: World) -> set[int]:
    """CPU that they request."""
    return {world.memory.pods[key].requests["cpu"] for key in alive(world)}


async def test_pods_that_stay_are_resized_where_they_are() -> None:
    """No pod is replaced, and the template has the new requests."""
    world = world_of(shop())
    before = alive(world)
    await world.completes()
    assert world.intended_kinds() == {"resize"}
    assert alive(world) == before
    assert sizes(world) == {300}
    assert world.memory.workloads[WEB].template_requests["cpu"] == 300
    assert world.verdicts() == {}


@pytest.mark.parametrize(
    ("state", "to", "limits"),
    [
        (shop(()), {}, Limits()),
        (shop(("memory",)), {}, Limits()),
        (shop(), {"shop/web-0": "n2"}, Limits()),
        (shop(), {}, Limits(resize_in_place=False)),
    ],
    ids=["no kubelet resizes", "cpu restarts", "a pod moves", "turned off"],
)
async def test_else_a_rolling_update_replaces_them(state: Cluster, to: Mapping[str, str], limits: Limits) -> None:
    """Where one pod may not be resized or has to move, or the operator does not want it, no resize is tried."""
    world = world_of(state, to=to, limits=limits)
    await world.completes()
    assert "resize" not in world.intended_kinds()
    assert "roll" in world.intended_kinds()
    assert sizes(world) == {300}


async def test_a_resize_that_fails_is_followed_by_a_rolling_update() -> None:
    """Infeasible on its node: new pods get the new requests, and nothing of the plan is left out."""
    world = world_of(shop())
    world.writer.resizes = False
    before = alive(world)
    await world.completes()
    assert {"resize", "roll"} <= world.intended_kinds()
    assert not before & alive(world)
    assert sizes(world) == {300}
    assert world.verdicts() == {}


@pytest.mark.parametrize(("most", "rolled"), [(0.0, 0), (0.25, 1), (1.0, 2)])
async def test_pods_whose_resize_fails_restart_within_the_limit(most: float, rolled: int) -> None:
    """No pod is counted as restarted by the plan; of two Deployments of six, ten pods let one be rolled after all."""
    pods = [deployed(name, ["n1"] * 3 + ["n2"] * 3, cpu=200, resizable=BOTH) for name in ("api", "web")]
    state = cluster([node("n1", price="0.1"), node("n2", price="0.1")], *pods)
    plan = plan_for(state, offers(), resizes={"Deployment/shop/api": {"cpu": 100}, WEB: {"cpu": 100}})
    assert plan.restarts == 0
    world = World(state, plan, limits=Limits(max_moves_fraction=most))
    world.writer.resizes = False
    await world.completes()
    assert [one.requests["cpu"] for one in world.memory.pods.values() if not one.terminating].count(100) == 6 * rolled
    assert list(world.verdicts().values()) == ["limit"] * (2 - rolled)


@pytest.mark.parametrize("place", ["before", "intended", "effected", "done"])
async def test_killed_while_pods_are_resized(place: str) -> None:
    """Killed anywhere: the next process finds what was done and does nothing twice."""
    world = world_of(shop())
    world.crash_at = at_pass(f"rescheduler.resize.{place}")
    await world.completes()
    assert world.crashes == 1
    assert sizes(world) == {300}
    check_once(world)


async def test_pods_that_the_plan_does_not_know_are_resized_with_their_workload() -> None:
    """All pods that it knew are gone when it begins, and no other node concerns it."""
    world = world_of(cluster(node("n1"), deployed("web", ["n1"], cpu=500, resizable=BOTH)))
    world.alter("shop/web-0", uid="another")
    await world.completes()
    assert sizes(world) == {300}


async def test_a_workload_whose_pods_are_all_gone_is_not_resized() -> None:
    """Its owner wants none any more, and the last one is ending on a node that is closed."""
    state = cluster(node("n1"), node("n2"), deployed("web", ["n1"], cpu=500))
    plan = plan_for(state, offers(), to={"shop/web-0": "n2"}, delete=["n1"], resizes={WEB: {"cpu": 300}})
    world = World(state, plan)
    world.floors.clear()
    world.once(lambda: world.disrupted("n1"), lambda: world.memory.set_replicas(WEB, 0))
    await world.completes("n2")
    assert world.intended_kinds() <= {"taint", "delete"}
