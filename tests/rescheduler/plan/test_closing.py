"""Nodes are closed a few at a time, in the order of what they save."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.rescheduler.harness import WEB, World
from tests.rescheduler.plans_in_memory import chain_plan, fragmented_plan, rolling_plan, swap_plan, two_rolls_plan
from tests.support.builders import cluster, deployed, node, offers, pod, stateful
from tests.support.plans import plan_for

from kinema_core.events import Plan
from kinema_core.model.cluster import Cluster, all_objects
from kinema_rescheduler.plan.closing import closings_of, most_closed
from kinema_rescheduler.plan.limits import Limits
from kinema_rescheduler.plan.route import route_of


def wide_plan() -> tuple[Cluster, Plan]:
    """Twenty nodes with a pod each; those of twelve go to the other eight."""
    nodes = [f"n{n:02}" for n in range(20)]
    before = cluster([node(name) for name in nodes], deployed("web", nodes, cpu=400))
    to = {f"shop/web-{n}": f"n{n % 8:02}" for n in range(8, 20)}
    return before, plan_for(before, offers(), to=to, delete=nodes[8:])


class Watching(World):
    """Notes how many nodes are closed, and how many are paid for, at every second."""

    def watch(self) -> None:
        """Begin to look."""
        self.closed: list[int] = []
        self.paid: list[int] = []
        self.on_second = self.note

    def note(self) -> None:
        """Look once."""
        self.closed.append(sum(self.disrupted(name) for name in self.memory.nodes))
        self.paid.append(len(self.memory.nodes))


@pytest.mark.parametrize(("limit", "most"), [("10%", 2), (3, 3), ("100%", 12), (1, 1)])
async def test_no_more_nodes_are_closed_at_a_time_than_allowed(limit: int | str, most: int) -> None:
    """The others stay open until their turn comes; the plan reaches its end all the same."""
    before, plan = wide_plan()
    world = Watching(before, plan, limits=Limits(max_closed_nodes=limit))
    world.watch()
    await world.completes(*(f"n{n:02}" for n in range(8)), seconds=4000)
    assert max(world.closed) == most


async def test_a_quarter_of_the_saving_is_real_before_a_third_of_the_time() -> None:
    """Nodes go one after another and not all in the end."""
    world = Watching(*wide_plan())
    world.watch()
    await world.completes(seconds=4000)
    third = world.paid[len(world.paid) // 3]
    assert 20 - third >= (20 - 8) / 4


async def test_a_pod_that_only_a_roll_could_move_closes_no_further_node() -> None:
    """It came since the plan, which rolls no workload: its node is kept, and the others go one after another."""
    before, plan = wide_plan()
    late = deployed("late", ["n00", "n01"], annotations={"kinema.io/strategy": "rolling"})
    before = cluster(all_objects(before), late)
    world = Watching(before, plan, limits=Limits(max_closed_nodes=1))
    world.watch()
    here = world.memory.pods["shop/late-1"]

    def second() -> None:
        world.note()
        if world.memory.pods.get(here.key) is here and world.disrupted("n08"):
            world.memory.pods[here.key] = replace(here, uid="uid-since", node="n08")

    world.on_second = second
    await world.completes(*(f"n{n:02}" for n in range(9)), seconds=4000)
    assert max(world.closed) == 1


@pytest.mark.parametrize("planned", [swap_plan, chain_plan, rolling_plan, two_rolls_plan, fragmented_plan])
async def test_one_node_at_a_time_is_enough_for_every_kind_of_plan(planned: object) -> None:
    """Moves that wait for each other, temporary nodes and rolling updates come to their ends."""
    world = World(*planned(), limits=Limits(max_closed_nodes=1))  # type: ignore[operator]
    await world.completes(seconds=4000)


def test_nodes_are_closed_in_the_order_of_their_saving() -> None:
    """First the empty and the dear, last those for whose pods a node has to be booted."""
    before = cluster(
        [node("a"), node("big", machine="m8"), node("empty"), node("x"), node("y"), node("home")],
        deployed("web", ["a", "big"], cpu=100),
        stateful("db", ["x", "y"], cpu=100),
    )
    to = {"shop/web-0": "home", "shop/web-1": "home", "shop/db-0": "new", "shop/db-1": "new"}
    delete = ["a", "big", "empty", "x", "y"]
    plan = plan_for(before, offers(), to=to, boot={"new": "m2/a/on-demand"}, delete=delete)
    order = closings_of(plan, route_of(plan))
    assert [one.node for one in order] == ["empty", "big", "a", "x", "y"]
    assert [sorted(one.boots) for one in order] == [[], [], [], ["new"], ["new"]]


def test_of_nodes_that_save_alike_the_one_with_fewest_pods_is_first() -> None:
    """Its workloads move side by side, and still each move takes its part of the time."""
    before = cluster(
        [node("a"), node("b"), node("c"), node("home")],
        deployed("web", ["a", "b", "c"], cpu=100),
        deployed("api", ["a", "c"], cpu=100),
        deployed("db", ["a"], cpu=100),
    )
    to = {pod.key: "home" for pod in before.pods}
    plan = plan_for(before, offers(), to=to, delete=["a", "b", "c"])
    assert [one.node for one in closings_of(plan, route_of(plan))] == ["b", "c", "a"]


async def test_a_node_is_booted_only_when_those_that_need_it_are_next() -> None:
    """While the first nodes are emptied into room that is there, no machine is paid for that is needed later."""
    names = [f"n{n}" for n in range(4)]
    before = cluster([node(name) for name in [*names, "home"]], deployed("web", names, cpu=1500))
    to = {"shop/web-0": "home", "shop/web-1": "home", "shop/web-2": "new", "shop/web-3": "new"}
    plan = plan_for(before, offers(), to=to, boot={"new": "m4/a/on-demand"}, delete=names)
    world = World(before, plan, limits=Limits(max_closed_nodes=1))
    await world.completes("home", "new", seconds=4000)
    told = world.told()
    booted = next(n for n, line in enumerate(told) if "intend boot/new" in line)
    assert any("intend taint/n0" in line for line in told[:booted])


async def test_no_node_is_booted_for_pods_that_are_left_alone() -> None:
    """Another client scales the workload while its first pod moves: nothing would ever come to the new node."""
    names = [f"n{n}" for n in range(4)]
    before = cluster([node(name) for name in [*names, "home"]], deployed("web", names, cpu=1500))
    to = {"shop/web-0": "home", "shop/web-1": "home", "shop/web-2": "new", "shop/web-3": "new"}
    plan = plan_for(before, offers(), to=to, boot={"new": "m4/a/on-demand"}, delete=names)
    world = World(before, plan, limits=Limits(max_closed_nodes=1))
    world.once(lambda: world.memory.workloads[WEB].replicas == 5, lambda: world.memory.set_replicas(WEB, 7))
    await world.completes(seconds=4000)
    told = world.told()
    assert any(f"skip/{WEB} changed" in line for line in told)
    assert not any("boot/new" in line for line in told)


async def test_a_node_that_is_kept_is_opened_while_others_are_emptied() -> None:
    """It makes way for the next one at once, and takes pods again."""
    world = World(*wide_plan(), limits=Limits(max_closed_nodes=1))
    guest = pod("guest", node="n08", cpu=100)  # belongs to no controller: it cannot move
    world.once(lambda: world.disrupted("n08"), lambda: world.memory.pods.update({guest.key: guest}))
    await world.completes("n08", *(f"n{n:02}" for n in range(8)), seconds=4000)
    told = world.told()
    opened = next(n for n, line in enumerate(told) if "done   untaint/n08" in line)
    assert any("intend taint/n19" in line for line in told[opened:])


@pytest.mark.parametrize(("limit", "nodes", "most"), [("10%", 7, 1), ("10%", 100, 10), ("25%", 10, 2), (5, 3, 5)])
def test_the_limit_is_a_number_or_a_share_and_never_below_one(limit: int | str, nodes: int, most: int) -> None:
    """Ten percent of seven nodes are one."""
    assert most_closed(limit, nodes) == most


@pytest.mark.parametrize("limit", [0, -1, "0%", "101%", "ten"])
def test_a_limit_that_means_nothing_is_refused(limit: int | str) -> None:
    """The error names the setting."""
    with pytest.raises(ValueError, match=r"limits\.max_closed_nodes"):
        Limits(max_closed_nodes=limit)
