"""Which moves wait for which: a later wave's only for those that matter where they go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from msgspec import structs
from tests.rescheduler.harness import World
from tests.rescheduler.memory_cluster import Pace
from tests.rescheduler.plan.test_closing import Watching
from tests.support.builders import NOW, cluster, deployed, node, offers, pod, selector, stateful
from tests.support.plans import plan_for

from kinema_core.events import NO_RULES, ClusterObject, PlacementRules, Plan, PlanStep, PodTerm, Spread
from kinema_core.model.checker.check import check_plan
from kinema_core.model.cluster import Cluster
from kinema_core.model.sequencing.waves import order_transition, with_steps
from kinema_rescheduler.kubernetes.cluster import Made, Order
from kinema_rescheduler.plan.limits import Limits

OLD = tuple(f"old-{n}" for n in range(4))
ZONE, HOSTNAME = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
EVEN = Spread(topology_key=ZONE, max_skew=1, when_unsatisfiable="DoNotSchedule", selector=selector(app="late0"))
APART = PodTerm(topology_key=HOSTNAME, selector=selector(app="other"))


def making_room(rules: PlacementRules = NO_RULES, *, evicted: bool = False, hostname: str = "") -> tuple[Cluster, Plan]:
    """Of each of four nodes one pod goes to a node with room, and one where two others have to make room before.

    The pods that wait for it have these rules, and may be evicted. All nodes may have one hostname.
    """
    names = {HOSTNAME: hostname} if hostname else {}
    late = stateful if evicted else deployed
    before = cluster(
        [node(name, labels=names) for name in (*OLD, "full", "home", "kept", "third")],
        deployed("big", ["full"], cpu=2000),
        deployed("bulky", ["full"], cpu=1500),
        [item for n, name in enumerate(OLD) for item in deployed(f"early{n}", [name], cpu=500)],
        [item for n, name in enumerate(OLD) for item in late(f"late{n}", [name, "kept"], cpu=600, rules=rules)],
    )
    to = {"shop/big-0": "third", "shop/bulky-0": "third"}
    for n in range(4):
        to |= {f"shop/early{n}-0": "home", f"shop/late{n}-0": "full"}
    plan = plan_for(before, offers(), to=to, delete=OLD)
    plan = with_steps(plan, order_transition(plan, before, offers(), now=NOW))
    assert check_plan(plan, before, offers(), NOW, ordered=True) == ()
    assert {step.wave for step in plan.steps if step.action == "move"} == {1, 2}
    return before, plan


@pytest.mark.parametrize("rules", [NO_RULES, PlacementRules(anti_affinity=(APART,))])
async def test_a_later_wave_waits_only_for_those_who_make_room_for_it(rules: PlacementRules) -> None:
    """Who makes room goes first, and each node is gone before too many others are closed."""
    world = Watching(*making_room(rules), limits=Limits(max_closed_nodes=2, max_parallel_moves=1))
    world.watch()
    await world.completes("full", "home", "kept", "third")
    moved = [body.step.target for body in world.intents("prefer-nodes")]
    assert moved[:2] == ["Deployment/shop/big", "Deployment/shop/bulky"]
    assert max(world.closed) == 2


@pytest.mark.parametrize(
    ("rules", "hostname"),
    [
        (PlacementRules(affinity=(PodTerm(topology_key=ZONE, selector=selector(app="big")),)), ""),
        (PlacementRules(anti_affinity=(structs.replace(APART, topology_key=ZONE),)), ""),
        (PlacementRules(anti_affinity=(APART,)), "the same for all"),
        (PlacementRules(spread=(EVEN,)), ""),
        (None, ""),
    ],
)
async def test_who_is_tied_to_other_nodes_waits_for_the_whole_wave(rules: PlacementRules | None, hostname: str) -> None:
    """So it is with rules between pods that reach beyond a node, and with evictions, which a budget counts."""
    planned = making_room(rules or NO_RULES, evicted=rules is None, hostname=hostname)
    world = World(*planned, limits=Limits(max_closed_nodes=2))
    await world.completes("full", "home", "kept", "third")
    moved = [body.step.target for body in world.intents("prefer-nodes")]
    assert all("late" in target for target in moved[6:])
    assert len(moved) == 10


async def test_pods_that_others_ties_reach_wait_as_well() -> None:
    """A pod of the earlier wave wants those of the later one in its zone: they are counted where they are."""
    before, plan = making_room()
    reaching = PlacementRules(affinity=(PodTerm(topology_key=ZONE, selector=selector(app="late0")),))
    pods = [structs.replace(one, rules=reaching) if one.name == "early3-0" else one for one in before.pods]
    world = World(cluster(before.nodes, before.workloads, pods), plan, limits=Limits(max_closed_nodes=2))
    await world.completes("full", "home", "kept", "third")
    moved = [body.step.target for body in world.intents("prefer-nodes")]
    assert moved.index("Deployment/shop/late0") > moved.index("Deployment/shop/early3")


async def test_nobody_takes_the_room_of_who_comes_in_an_earlier_wave() -> None:
    """There is room for one of them, and both their nodes are closed."""
    before = cluster(
        [node("dear", machine="m8"), node("old"), node("full"), node("third")],
        deployed("big", ["full"], cpu=3000),
        deployed("late", ["dear"], cpu=800),
        deployed("early", ["old"], cpu=900),
        deployed("other", ["dear"], cpu=100),
    )
    to = {"shop/big-0": "third", "shop/late-0": "full", "shop/early-0": "full", "shop/other-0": "third"}
    plan = plan_for(before, offers(), to=to, delete=["dear", "old"])
    steps = [PlanStep(wave=1 + (key == "shop/late-0"), action="move", pod=key, node=name) for key, name in to.items()]
    world = World(before, structs.replace(plan, steps=tuple(steps)), limits=Limits(max_closed_nodes=2))
    await world.completes("full", "third")
    moved = [body.step.target for body in world.intents("prefer-nodes")]
    assert moved.index("Deployment/shop/late") > moved.index("Deployment/shop/early")


async def test_nodes_whose_pods_may_all_leave_are_closed_first() -> None:
    """One that would hold its place until a later wave comes after them, and if it saves more."""
    rules = PlacementRules(anti_affinity=(structs.replace(APART, topology_key=ZONE),))
    before, plan = making_room(rules)
    places = tuple(one for one in plan.placements if one.pod not in {"shop/late2-0", "shop/late3-0"})
    steps = tuple(step for step in plan.steps if step.pod not in {"shop/late2-0", "shop/late3-0"})
    without = cluster(
        before.nodes,
        [one for one in before.workloads if one.name not in {"late2", "late3"}],
        [one for one in before.pods if one.name not in {"late2-0", "late3-0"}],
    )
    nodes = [structs.replace(one, usd_per_hour=9.0) if one.name in OLD[:2] else one for one in plan.nodes]
    plan = structs.replace(plan, placements=places, steps=steps, nodes=tuple(nodes))
    world = World(without, plan, limits=Limits(max_closed_nodes=2))
    await world.completes("full", "home", "kept", "third")
    assert [body.step.target for body in world.intents("taint")][:2] == ["old-2", "old-3"]


async def test_a_node_whose_first_pod_is_gone_holds_up_no_other() -> None:
    """The one that is to be closed first has only a pod of the second wave left; the first needs a machine."""
    before = cluster(
        [node("dear", machine="m8"), node("old"), node("full"), node("third", machine="m8", cpu=8000)],
        deployed("a", ["dear"], cpu=100),
        stateful("b", ["dear", "third"], cpu=3000),
        deployed("big", ["full"], cpu=3000),
        deployed("c", ["old"], cpu=1500),
    )
    to = {"shop/a-0": "third", "shop/b-0": "full", "shop/big-0": "third", "shop/c-0": "new"}
    plan = plan_for(before, offers(), to=to, boot={"new": "m2/a/on-demand"}, delete=["dear", "old"])
    waves = {"shop/a-0": 1, "shop/b-0": 2, "shop/big-0": 1, "shop/c-0": 1}
    steps = [PlanStep(wave=0, action="boot", node="new")]
    steps += [PlanStep(wave=wave, action="move", pod=key, node=to[key]) for key, wave in waves.items()]
    world = World(before, structs.replace(plan, steps=tuple(steps)), limits=Limits(max_closed_nodes=1))
    gone = world.memory.pods.pop("shop/a-0")
    world.memory.pods[gone.key] = structs.replace(gone, uid="uid-since", node="third")
    await world.completes("full", "new", "third")


def in_two_waves(before: Cluster, to: dict[str, str], later: set[str], delete: tuple[str, ...]) -> Plan:
    """A plan by which these pods move, some of them in the second wave."""
    plan = plan_for(before, offers(), to=to, delete=delete)
    steps = [PlanStep(wave=1 + (key in later), action="move", pod=key, node=name) for key, name in to.items()]
    steps += [PlanStep(wave=3, action="delete", node=name) for name in delete]
    plan = structs.replace(plan, steps=tuple(sorted(steps, key=lambda step: step.wave)))
    assert check_plan(plan, before, offers(), NOW, ordered=True) == ()
    return plan


@pytest.mark.parametrize(("first", "to"), [(deployed, "full"), (stateful, "full"), (stateful, "third")])
async def test_who_makes_room_has_ended_and_is_back_before_others_come(
    first: Callable[..., tuple[ClusterObject, ...]], to: str
) -> None:
    """Where it leaves and where it goes: it may hold a port, or need what another would take."""
    before = cluster(
        [node("old"), node("old-2"), node("full"), node("home"), node("third")],
        first("db", ["full", "home"], cpu=500),
        stateful("slow", ["old-2", "home"], cpu=500),
        deployed("late", ["old"], cpu=500),
    )
    moves = {"shop/db-0": "third", "shop/slow-0": "home", "shop/late-0": to}
    plan = in_two_waves(before, moves, {"shop/late-0"}, ("old", "old-2"))
    world = World(before, plan, pace=Pace(pod_end=60), limits=Limits(max_closed_nodes=2))
    when_begun: list[tuple[bool, list[str]]] = []

    def look() -> None:
        pods = [one for one in world.memory.pods.values() if one.name.startswith("db")]
        if not when_begun and any("late" in body.step.target for body in world.intents("surge-up")):
            when_begun.append((all(one.ready for one in pods), sorted(one.node or "" for one in pods)))

    world.on_second = look
    await world.completes("full", "home", "third")
    assert when_begun == [(True, ["home", "third"])]


async def test_a_later_move_that_finds_no_room_keeps_no_node_from_being_closed() -> None:
    """A stranger took its place: it goes elsewhere, as all nodes of the first wave are gone."""
    old = OLD[:3]
    before = cluster(
        [node(name) for name in ("first", *old, "full", "home", "third")],
        deployed("big", ["full"], cpu=3500),
        deployed("late", ["first"], cpu=2000),
        [item for n in range(3) for item in deployed(f"early{n}", [f"old-{n}"], cpu=300)],
        [item for n in range(3) for item in stateful(f"db{n}", [f"old-{n}", "home"], cpu=300)],
    )
    late = {"shop/late-0": "full", **{f"shop/db{n}-0": "full" for n in range(3)}}
    to = {"shop/big-0": "third", **{f"shop/early{n}-0": "home" for n in range(3)}, **late}
    plan = in_two_waves(before, to, set(late), ("first", *old))
    world = World(before, plan, limits=Limits(max_closed_nodes=1))
    stranger = pod("stranger", node="full", cpu=2200, created=NOW)
    world.once(
        lambda: "shop/big-0" not in world.memory.pods, lambda: world.memory.pods.update({stranger.key: stranger})
    )
    end = await world.completes("full", "home", "third")
    assert end.replan == ""


async def test_a_node_that_is_being_closed_counts_for_its_wave() -> None:
    """A pod that wants another one in its company comes after it, however long the taint of that one's node takes."""
    company = PlacementRules(affinity=(PodTerm(topology_key=HOSTNAME, selector=selector(app="a")),))
    before = cluster(
        [node("old"), node("kept"), node("home")],
        deployed("a", ["old"]),
        deployed("a2", ["kept"], labels={"app": "a"}),
        deployed("c", ["kept"], rules=company),
    )
    plan = in_two_waves(before, {"shop/a-0": "home", "shop/c-0": "home"}, {"shop/c-0"}, ("old",))
    world = World(before, plan)
    perform = world.writer.perform

    async def slow(order: Order) -> Made:
        for _ in range(100 if order.step.kind == "taint" else 0):  # some seconds
            await asyncio.sleep(0)
        return await perform(order)

    world.writer.perform = slow  # type: ignore[method-assign]
    await world.completes("home", "kept")
    assert [body.step.target for body in world.intents("prefer-nodes")] == ["Deployment/shop/a", "Deployment/shop/c"]
