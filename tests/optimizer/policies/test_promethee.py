"""PROMETHEE II and the reactive autoscaler: the paper's example, and its rules one by one."""

from __future__ import annotations

from datetime import datetime, timedelta
from fractions import Fraction
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.support.builders import NOW, cluster, deployed, node, offer

from kinema_core.events import ClusterObject, Offer
from kinema_core.model.cluster import Cluster
from kinema_optimizer.policies.policy import Outcome, Tick
from kinema_optimizer.policies.promethee import Promethee
from kinema_optimizer.request.outranking import Criterion, flows, ranking

MASTER = {"node-role.kubernetes.io/control-plane": ""}


def by_pairs(criteria: list[Criterion]) -> list[Fraction]:
    """Net flows by the definition: every alternative compared with every other one."""
    count = len(criteria[0].values)
    found = []
    for a in range(count):
        net = Fraction(0)
        for one in criteria:
            sign = 1 if one.aim == "max" else -1
            mine = sign * one.values[a]
            net += Fraction(str(one.weight)) * sum((mine > sign * x) - (mine < sign * x) for x in one.values)
        found.append(net / max(1, count - 1))
    return found


@given(st.data())
def test_flows_by_sorting_are_those_by_pairs(data: st.DataObject) -> None:
    """The short way and the definition agree, with ties, weights and both aims."""
    count = data.draw(st.integers(1, 12))
    values = st.lists(st.integers(-3, 3), min_size=count, max_size=count).map(tuple)
    criterion = st.builds(Criterion, values, st.sampled_from(["max", "min"]), st.sampled_from([1.0, 0.5, 2.25]))
    criteria = data.draw(st.lists(criterion, min_size=1, max_size=5))
    assert [one.net for one in flows(criteria)] == by_pairs(criteria)


def test_a_single_alternative_has_no_flow_and_wins() -> None:
    """There is no other one to compare with: nothing is divided by 0."""
    criteria = [Criterion((7,), "max")]
    assert flows(criteria)[0].net == 0
    assert ranking(["n1"], criteria) == [0]


def test_equal_alternatives_are_ranked_by_name() -> None:
    """The same figures have the same flow."""
    assert ranking(["b", "a", "c"], [Criterion((1, 1, 1), "max")]) == [1, 0, 2]


def test_flows_of_three_nodes_worked_out_by_hand() -> None:
    """More cores and less power are better: the second outranks both others in cores and one in power."""
    criteria = [Criterion((4, 8, 4), "max"), Criterion((100, 150, 200), "min")]
    found = flows(criteria)
    assert [one.positive for one in found] == [1, Fraction(3, 2), 0]
    assert [one.negative for one in found] == [Fraction(1, 2), Fraction(1, 2), Fraction(3, 2)]
    assert ranking(["n1", "n2", "n3"], criteria) == [1, 0, 2]


def two_nodes(available: int | None) -> tuple[Offer, ...]:
    """What of the paper's two machines is switched off."""
    return (offer("m8", cpu=8000, price=100_000, available=available, watts=100.0),)


def at(seconds: float, *objects: ClusterObject | Any, available: int | None) -> Outcome:
    """The tick of the paper's example, so many seconds after its beginning."""
    state = cluster(*objects)
    return Promethee().tick(Tick(state, two_nodes(available), NOW + timedelta(seconds=seconds)))


def n1() -> Any:
    """The master, always active."""
    return node("n1", cpu=8000, machine="m8", labels=MASTER)


def n2() -> Any:
    """The second node."""
    return node("n2", cpu=8000, machine="m8")


def test_the_papers_example() -> None:
    """Source: section 4. n2 starts for P2 at 60 s, as n1 is loaded by 75 %; at 120 s P2 goes to n1 and n2 stops."""
    first = deployed("p1", ["n1"], cpu=6000, created=NOW)
    waiting = deployed("p2", [None], cpu=6000, created=NOW + timedelta(seconds=60))
    assert not at(0, n1(), first, available=1).proposal.steps
    [start] = at(60, n1(), first, waiting, available=1).proposal.steps
    assert (start.action, len(start.bought)) == ("start", 1)
    [stop] = at(120, n1(), n2(), deployed("p2", ["n2"], cpu=6000), available=0).proposal.steps
    assert (stop.action, stop.removed, stop.evictions) == ("stop", ("n2",), 1)


def test_a_pod_that_has_waited_for_long_starts_a_node_whatever_the_load() -> None:
    """At a load of 37.5 % it takes more than 120 s; the outcome names the moment."""
    low = deployed("p1", ["n1"], cpu=3000)
    waiting = deployed("p2", [None], cpu=6000, created=NOW)
    early = at(120, n1(), low, waiting, available=1)
    assert not early.proposal.steps
    assert at(60, n1(), low, waiting, available=1).due == NOW + timedelta(seconds=120)
    assert at(121, n1(), low, waiting, available=1).proposal.steps[0].action == "start"


def test_nothing_starts_where_no_node_is_stopped() -> None:
    """All machines run: the pod waits."""
    state = (n1(), deployed("p1", ["n1"], cpu=6000), deployed("p2", [None], cpu=6000, created=NOW))
    assert not at(600, *state, available=0).proposal.steps


def loaded(cpu: int) -> Cluster:
    """Two nodes, the first with a pod of so many cores."""
    return cluster(n1(), n2(), deployed("p", ["n1"], cpu=cpu))


def test_a_node_stops_at_the_lower_load_and_not_above() -> None:
    """6.4 of 16 cores are 40 %."""
    for cpu, stops in ((6400, True), (6401, False)):
        outcome = Promethee().tick(Tick(loaded(cpu), two_nodes(0), NOW))
        assert bool(outcome.proposal.steps) is stops


def test_the_control_plane_never_stops() -> None:
    """It alone is left: nothing stops, though the load is 0."""
    assert not Promethee().tick(Tick(cluster(n1()), two_nodes(1), NOW)).proposal.steps
    state = cluster(n1(), n2())
    assert Promethee().tick(Tick(state, two_nodes(0), NOW)).proposal.steps[0].removed == ("n2",)


def test_the_best_ranked_stopped_machine_starts() -> None:
    """More memory and less power outrank more cores alone."""
    sold = (
        offer("big", cpu=16000, memory=8 * 1024, watts=300.0),
        offer("green", cpu=8000, memory=32 * 1024, watts=90.0),
    )
    state = cluster(n1(), deployed("p", ["n1"], cpu=7000), deployed("q", [None], cpu=6000, created=NOW))
    plan = Promethee().tick(Tick(state, (*sold, *two_nodes(0)), NOW)).proposal.plan
    assert [one.machine_type for one in plan.nodes if one.action == "boot"] == ["green"]


def test_the_node_with_fewer_pods_stops() -> None:
    """Equal machines: the number of pods decides before the name does."""
    nodes = (n1(), n2(), node("n3", cpu=8000, machine="m8"))
    state = cluster(*nodes, deployed("p", ["n2", "n2", "n3"], cpu=500))
    assert Promethee().tick(Tick(state, two_nodes(0), NOW)).proposal.steps[0].removed == ("n3",)


def test_a_tick_is_repeatable() -> None:
    """The same cluster at the same time has the same plan."""
    moment: datetime = NOW
    one, other = (Promethee().tick(Tick(loaded(100), two_nodes(0), moment)) for _ in range(2))
    assert one.proposal == other.proposal
