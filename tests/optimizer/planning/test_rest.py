"""The rest of a plan goes on where it ended, unless the solvers know better."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import pytest
from tests.optimizer.planned import Unpriced, planned
from tests.support.builders import NOW, cluster, deployed, node, offers, pod
from tests.support.planning import unguarded
from tests.support.plans import plan_for as handmade

from kinema_core.events import (
    AnyBody,
    CatalogPublished,
    Event,
    FrozenMap,
    IterationStarted,
    Plan,
    Seats,
    StepSucceeded,
)
from kinema_core.events.plan import PlanNode
from kinema_core.model.cluster import Cluster, all_objects, from_objects
from kinema_core.runtime.envelope import origin
from kinema_core.runtime.settings import RuntimeSettings
from kinema_core.runtime.stage import Moment
from kinema_optimizer.planning.planner import REST
from kinema_optimizer.request.goal import Goal, Goals, goal_of
from kinema_optimizer.service import Optimizer
from kinema_optimizer.settings import Settings

NAMES = ("a", "b", "c", "d")
WEB = "Deployment/shop/web"


def halves() -> Cluster:
    """Four nodes that cost the same, each half full: any two of them go."""
    return cluster([node(name, cpu=1000, price="0.1") for name in NAMES], deployed("web", NAMES, cpu=500))


def moved(state: Cluster, was: str, to: str) -> Cluster:
    """The cluster with a pod replaced on another node, under another name."""
    old = state.pods_by_key[was]
    new = msgspec.structs.replace(old, name=f"{old.name}-new", uid=f"{old.uid}-new", node=to)
    return from_objects([new if item is old else item for item in all_objects(state)], state.version + 1)


def towards(**seats: int) -> Goal:
    """The goal of a plan that leaves so many pods on each node, and deletes the others."""
    unmoved = frozenset({"shop/web-0", "shop/web-1", "shop/web-2", "shop/web-3"})
    return Goal({}, frozenset(set(NAMES) - seats.keys()), {WEB: seats}, unmoved)


def deleted(plan: Plan) -> set[str]:
    """Names of the nodes that go."""
    return {one.name for one in plan.nodes if one.action == "delete"}


@pytest.mark.parametrize("kept", ["b", "d"])
def test_what_is_left_leads_where_the_plan_led(kept: str) -> None:
    """One of two moves is made. Two nodes are left of which either may go: the one goes that the plan deletes."""
    state = moved(halves(), "shop/web-0", "c")
    found = planned(state, (), goal=towards(c=2, **{kept: 2}))
    assert deleted(found) == {"a", "b", "d"} - {kept}
    assert (found.moves, found.solve.method) == (1, REST)


class Watched(Unpriced):
    """Notes whether the solve was to be punctual, and patient before that."""

    asked = 0
    patience = 0

    @contextmanager
    def punctual(self) -> Iterator[None]:
        """See `StopRule`."""
        self.asked += 1
        yield

    @contextmanager
    def patient(self) -> Iterator[None]:
        """See `StopRule`."""
        self.patience += 1
        yield


@pytest.mark.parametrize(
    ("goal", "asked"),
    [(towards(c=2, d=2), 1), (Goal({"new": "gone"}, frozenset(NAMES), {WEB: {"new": 4}}, frozenset()), 0)],
)
def test_the_solvers_may_be_late_only_where_nothing_is_left_of_the_plan(goal: Goal, asked: int) -> None:
    """The machine of the second plan is sold out: without the solvers there is no plan."""
    stop = Watched(40)
    planned(halves(), (), goal=goal, stop=stop)
    assert (stop.asked, stop.patience) == (asked, 1)


@pytest.mark.parametrize("kept", ["b", "d"])
async def test_the_service_goes_on_with_the_plan_that_the_log_has(kept: str) -> None:
    """The iteration names the plan, which was proposed before: a service that starts in between knows it, too."""
    goal = towards(c=2, **{kept: 2})
    proposed = handmade(halves(), to={"shop/web-0": "c"}, delete=goal.deleted)
    proposed = msgspec.structs.replace(proposed, seats=(Seats(workload=WEB, pods=FrozenMap(goal.seats[WEB])),))
    stage = Optimizer(Settings(runtime=RuntimeSettings(cluster="test"), planning=unguarded()))
    stage.recall(logged(CatalogPublished(source="test", priced=NOW, offers=()), 0))
    stage.recall(logged(proposed, 1))
    asked = logged(IterationStarted(mode="reschedule", version=2, reason="rest-after-misplaced", continues="e1"), 2)
    [found] = await stage.handle(asked, moved(halves(), "shop/web-0", "c"), Moment(NOW))
    assert isinstance(found, Plan)
    assert deleted(found) == goal.deleted
    [again] = await stage.handle(asked, moved(halves(), "shop/web-0", "c"), Moment(NOW, found))
    assert again == found


def test_a_pod_that_landed_elsewhere_stays_where_it_may() -> None:
    """It fills a node that the plan keeps: the one that was to come there goes to its place instead."""
    state = moved(halves(), "shop/web-0", "d")
    found = planned(state, (), goal=towards(c=2, d=2))
    assert deleted(found) == {"a", "b"}
    assert {one.pod: one.to for one in found.placements if one.to != one.source} == {"shop/web-1": "c"}


def test_the_solvers_plan_is_taken_where_it_has_fewer_moves() -> None:
    """The first pod landed on a node that was to go: to keep that one takes a move, to delete it two."""
    state = moved(halves(), "shop/web-0", "b")
    found = planned(state, (), goal=towards(c=2, d=2))
    assert found.moves == 1
    assert "b" not in deleted(found)
    assert found.solve.method != REST


def test_a_node_is_kept_for_a_pod_that_the_plan_did_not_know() -> None:
    """A stranger has come to a node that was to go, and no other has room for it."""
    before = halves()
    state = cluster(*all_objects(moved(before, "shop/web-0", "c")), pod("stranger", node="b", cpu=500), version=3)
    found = planned(state, (), goal=towards(c=2, d=2))
    assert deleted(found) == {"a"}
    assert (found.moves, found.solve.method) == (0, REST)


@pytest.mark.parametrize("places", ["ccdd", "cddd"])
def test_no_workload_is_rolled_whose_pods_have_no_better_place(places: str) -> None:
    """It moves by rolling updates only. Its owner scaled it, or a new pod landed elsewhere: nothing is to be saved."""
    roll = {"kinema.io/strategy": "rolling"}
    nodes = [node(name, cpu=1000, price="0.1") for name in "cd"]
    state = cluster(nodes, deployed("web", list(places), cpu=250, annotations=roll))
    found = planned(state, (), goal=Goal({}, frozenset("ab"), {WEB: {"c": 2, "d": 1}}, frozenset({"shop/web-old"})))
    assert (found.moves, found.restarts) == (0, 0)


def test_a_machine_that_is_sold_out_is_no_part_of_the_rest() -> None:
    """The plan boots a machine that is no longer on sale, so the solvers' plan is taken."""
    goal = Goal({"new": "gone/zone/on-demand"}, frozenset(NAMES), {WEB: {"new": 4}}, frozenset())
    found = planned(halves(), (), goal=goal)
    assert len(deleted(found)) == 2
    assert found.solve.method != REST


def test_a_machine_that_is_yet_to_come_is_booted() -> None:
    """Its boot was not begun when the plan ended: one machine for all is cheaper than what there is."""
    first = planned(state := halves(), on_sale := offers())
    boots = [one for one in first.nodes if one.action == "boot"]
    assert boots, "the plan boots a machine"
    again = planned(state, on_sale, goal=goal_of(first))
    assert again.solve.method == REST
    assert [one.offer for one in again.nodes if one.action == "boot"] == [one.offer for one in boots]
    assert again.cost.after == first.cost.after


def test_a_plan_counts_the_pods_of_each_workload_that_it_moves() -> None:
    """Of every node, those that stay included; of workloads that it leaves alone it says nothing."""
    state = cluster(
        [node(name, cpu=1000, price="0.1") for name in NAMES[:3]],
        deployed("web", ["a", "b"], cpu=400),
        deployed("calm", ["c"], cpu=900),
    )
    found = planned(state, ())
    to = next(iter(deleted(found) ^ {"a", "b"}))
    assert found.seats == (Seats(workload=WEB, pods=FrozenMap({to: 2})),)


def logged(body: AnyBody, n: int) -> Event:
    """An event of that body."""
    return origin(body, id_=f"e{n}", cluster="test", iteration="i1", now=NOW)


def test_goals_follow_the_names_of_booted_nodes_and_outlive_other_proposals() -> None:
    """By the log alone: several proposals wait, one is executed, and its machine registers under a name of its own."""
    plan = planned(halves(), ())
    new = PlanNode(
        name="kinema-1-1",
        machine_type="m",
        zone="z",
        capacity_type="on-demand",
        offer="m/z",
        usd_per_hour=1,
        action="boot",
    )
    booting = msgspec.structs.replace(
        plan, nodes=(*plan.nodes, new), seats=(Seats(workload=WEB, pods=FrozenMap({"kinema-1-1": 4})),)
    )
    goals = Goals().after(logged(plan, 1)).after(logged(booting, 2))
    assert goals.of("e1") == goal_of(plan)
    done = StepSucceeded(
        plan="e2", step="boot/kinema-1-1", fencing=1, outcome="done", figures=FrozenMap({"node": "gke-7"})
    )
    found = goals.after(logged(done, 4)).of("e2")
    assert found is not None
    assert (found.boots, found.seats) == ({"gke-7": "m/z"}, {WEB: {"gke-7": 4}})
    for n in range(5, 9):
        goals = goals.after(logged(plan, n))
    assert goals.of("e2") is None


def test_plans_of_before_have_no_goal() -> None:
    """Their events do not say how many pods of a workload are where: the rest is planned as it was then."""
    plan = msgspec.structs.replace(planned(halves(), ()), seats=())
    assert Goals().after(logged(plan, 1)).of("e1") is None
