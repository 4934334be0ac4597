"""What the exact model knows of a small cluster, one rule at a time."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from tests.model.checker.test_rules import HOSTNAME, ZONE, apart, even, near
from tests.support.builders import NOW, cluster, deployed, labels, node, offer, stateful
from tests.support.planning import unguarded

from kinema_core.events import ClusterObject, HostPort, Offer, PlacementRules
from kinema_core.model.cluster import Cluster
from kinema_optimizer.exact.build import exact_instance, forbid_moves, hold_spreads_in_transit
from kinema_optimizer.exact.model import ExactInstance, ExactSolution, as_it_is, flaws
from kinema_optimizer.exact.solve import ExactResult, solve_exact
from kinema_optimizer.planning.planner import SalvageStop, plan_for, plan_from
from kinema_optimizer.planning.task import Request
from kinema_optimizer.problem.compile import sites_of
from kinema_optimizer.problem.question import Question
from kinema_optimizer.problem.solution import Progress, incumbent_report
from kinema_optimizer.solvers.stopping import WorkStop

SMALL = tuple(offer("m2", zone=zone, cpu=2000, memory=8 * 1024, price=85_000) for zone in "ab")


def problem_of(on: Cluster, on_sale: tuple[Offer, ...] = SMALL, **more: Any) -> ExactInstance:
    """The exact problem of a cluster."""
    question = Question(on, on_sale, NOW, "reschedule", **more)
    found = exact_instance(question, sites_of(question))
    assert found is not None
    return found


def solved(
    *objects: ClusterObject | Iterable[ClusterObject], on_sale: tuple[Offer, ...] = SMALL, **more: Any
) -> ExactResult:
    """The best plan for a cluster of these objects."""
    found = solve_exact(problem_of(cluster(*objects), on_sale, **more), WorkStop(20_000))
    assert found is not None
    assert found.proven
    return found


def small(name: str, zone: str = "a", **more: Any) -> ClusterObject:
    """A node of 2 cores at 0.085 USD."""
    return node(name, zone=zone, machine="m2", **{"cpu": 2000, "memory": 8 * 1024, "price": "0.085", **more})


def test_pods_may_change_places_between_kept_nodes() -> None:
    """Nothing is forced to stay: where two nodes cannot be emptied but rearranged, one of three goes."""
    objects = [
        [small(name) for name in ("n1", "n2", "n3")],
        deployed("big", ["n1", "n2"], cpu=1200),
        deployed("mid", ["n3"], cpu=700),
        deployed("low", ["n3"], cpu=600),
    ]
    found = solved(*objects)
    assert found.least == 170_000
    assert found.solution.deleted == ("n3",)


def test_who_stays_keeps_whom_it_needs() -> None:
    """A pod that may not move holds back the one that it needs; without the rule that one makes room for another."""
    held = {"karpenter.sh/do-not-disrupt": "true"}
    objects = [small("n1"), small("n2"), deployed("cache", ["n1"], cpu=1000), deployed("new", [None], cpu=1500)]
    for rules, free in ((near("cache", HOSTNAME), False), (PlacementRules(), True)):
        web = deployed("web", ["n1"], cpu=200, rules=rules, pod_annotations=held)
        guard = deployed("guard", ["n2"], cpu=600, pod_annotations=held)
        found = solved(*objects, web, guard, on_sale=())
        assert (found.solution.assignment["shop/new-0"] == "n1") == free
        assert (found.solution.assignment["shop/cache-0"] == "n2") == free


def test_who_could_move_keeps_whom_it_needs_when_it_stays() -> None:
    """The same where the pod may move but finds no other place."""
    objects = [small("n1"), small("n2"), deployed("cache", ["n1"], cpu=1000), deployed("new", [None], cpu=1500)]
    for rules, free in ((near("cache", HOSTNAME), False), (PlacementRules(), True)):
        web = deployed("web", ["n1"], cpu=450, rules=rules)
        guard = deployed("guard", ["n2"], cpu=600, pod_annotations={"karpenter.sh/do-not-disrupt": "true"})
        found = solved(*objects, web, guard, on_sale=())
        assert (found.solution.assignment["shop/new-0"] == "n1") == free


def test_the_first_of_a_kind_needs_nobody_and_the_second_needs_the_first() -> None:
    """Pods that need each other find one domain together."""
    objects = [small("n1", "a"), small("n2", "b"), deployed("team", [None, None, None], cpu=900, rules=near("team"))]
    found = solved(*objects)
    zones = {"n1": "a", "n2": "b", **{name: alike[0].split("/")[1] for name, alike in found.solution.boots.items()}}
    assert len({zones[str(to)] for to in found.solution.assignment.values()}) == 1


def test_a_pool_is_shared_by_its_offers() -> None:
    """One more of either, not one of each."""
    pooled = tuple(replace_offer(one, pool="m2", available=1) for one in SMALL)
    zoned = [PlacementRules(node_selector=labels({ZONE: zone})) for zone in "ab"]
    objects = [
        deployed("left", [None], cpu=1500, rules=zoned[0]),
        deployed("right", [None], cpu=1500, rules=zoned[1], priority=5),
    ]
    found = solved(*objects, on_sale=pooled)
    assert found.solution.assignment["shop/left-0"] is None
    assert found.solution.assignment["shop/right-0"] in found.solution.boots


def replace_offer(one: Offer, **more: Any) -> Offer:
    """The offer with other limits."""
    return offer("m2", zone=one.zone, cpu=2000, memory=8 * 1024, price=85_000, **more)


def test_one_pod_of_high_priority_outweighs_any_number_below() -> None:
    """The node goes to the urgent pod, though two others would fit instead."""
    objects = [
        small("n1"),
        deployed("urgent", [None], cpu=1500, priority=10),
        deployed("plain", [None, None], cpu=900),
    ]
    found = solved(*objects, on_sale=())
    assert [key for key, to in found.solution.assignment.items() if to is None] == ["shop/plain-0", "shop/plain-1"]


def test_an_optimum_is_proven_whatever_the_unit_of_prices() -> None:
    """Prices of six decimals, which have no common unit above one micro-USD, hide no optimum from its proof."""
    fine = (
        offer("m2", cpu=2000, memory=8 * 1024, price=850_007),
        offer("m4", cpu=4000, memory=16 * 1024, price=1_610_923),
    )
    found = solved(deployed("web", [None] * 10, cpu=1200, memory=1024), on_sale=fine)
    assert found.lower_bound == found.least == 3 * 1_610_923 + 850_007


def test_offers_are_one_machine_unless_a_rule_tells_them_apart() -> None:
    """Equal machines in two zones are one, until a spread looks at zones."""
    plain = problem_of(cluster(small("n1"), deployed("web", ["n1", None])))
    assert [machine.offers for machine in plain.machines] == [("m2/a/on-demand", "m2/b/on-demand")]
    ruled = problem_of(cluster(small("n1"), deployed("web", ["n1", None], rules=even("web"))))
    assert len(ruled.machines) == 2


def test_pods_that_nothing_tells_apart_are_one_kind() -> None:
    """Replicas on different nodes are; a rule that selects some of them by label splits them."""
    pods = [*deployed("web", ["n1", "n2", None]), *deployed("api", ["n1"])]
    assert len(problem_of(cluster(small("n1"), small("n2"), pods)).kinds) == 2
    shy = deployed("shy", ["n2"], cpu=101, rules=apart("api"))
    assert len(problem_of(cluster(small("n1"), small("n2"), pods, shy)).kinds) == 4


def test_a_ceiling_keeps_newcomers_below_it() -> None:
    """Nothing new is placed above 50 % of a node, what is there may stay."""
    objects = [small("n1"), deployed("web", ["n1", "n1"], cpu=700), deployed("new", [None], cpu=300)]
    found = solved(*objects, percent=50)
    assert found.solution.assignment["shop/new-0"] in found.solution.boots
    assert found.solution.assignment["shop/web-0"] == "n1"


def test_a_host_port_is_had_once_per_node() -> None:
    """Two pods with one host port never come to share a node, however small they are."""
    rules = PlacementRules(host_ports=(HostPort(port=80),))
    found = solved(small("n1"), small("n2"), stateful("edge", ["n1", "n2"], rules=rules))
    assert found.solution.assignment == {"shop/edge-0": "n1", "shop/edge-1": "n2"}
    assert found.solution.deleted == ()


def test_a_barred_move_is_not_made_again() -> None:
    """Nor by a pod that is like it; everybody else stays free, and the rules count all of them as before."""
    objects = [small("n1"), small("n2"), small("n3"), deployed("web", ["n2", "n3"], cpu=500, rules=apart("web", ZONE))]
    problem = problem_of(cluster(*objects, deployed("low", ["n1", "n2", "n3"], cpu=300)), ())
    first = solve_exact(problem, WorkStop(20_000))
    assert first is not None
    sent = {key: to for key, to in first.solution.assignment.items() if key.startswith("shop/low") and to == "n2"}
    stuck = [key for key in sent if key != "shop/low-1"]
    assert stuck, "somebody joins the pods of n2"
    fewer = forbid_moves(problem, stuck, first.solution)
    second = solve_exact(fewer, WorkStop(20_000))
    assert second is not None
    assert all(second.solution.assignment[key] != "n2" for key in stuck)
    assert second.least >= first.least
    assert sum(len(kind.pods) for kind in fewer.kinds) == sum(len(kind.pods) for kind in problem.kinds)
    same = as_it_is(fewer)
    assert same is not None
    assert flaws(fewer, same) == ()


def test_a_spread_may_be_asked_to_hold_while_the_old_copies_are_there() -> None:
    """Six on one node are even in the end; on the way there, one more than on the five others is the most."""
    names = [f"n{n}" for n in range(6)]
    spread = deployed("web", names, cpu=300, rules=even("web", HOSTNAME))
    problem = problem_of(cluster([small(name) for name in names], spread))
    first = solve_exact(problem, WorkStop(20_000))
    assert first is not None
    assert first.least == 85_000
    assert hold_spreads_in_transit(problem, ["shop/other-0"]) is None, "nobody who is stuck has a spread"
    stricter = hold_spreads_in_transit(problem, ["shop/web-1"])
    assert stricter is not None
    assert hold_spreads_in_transit(stricter, ["shop/web-1"]) is None, "it is asked already"
    second = solve_exact(stricter, WorkStop(20_000))
    assert second is not None
    assert second.least == 3 * 85_000
    assert sorted(Counter(second.solution.assignment.values()).values()) == [2, 2, 2]
    alone = ExactSolution((True, *[False] * 5), boots=(), stay=({0: 1},), arrive=({0: 5},), lost=(0,))
    assert flaws(problem, alone) == ()
    assert flaws(stricter, alone)


@pytest.mark.parametrize("spoil", ["lost", "twice", "deleted", "overfull"])
def test_a_solution_is_judged_in_integers(spoil: str) -> None:
    """What the solver says is believed only when it obeys the problem itself."""
    problem = problem_of(cluster(small("n1"), small("n2"), deployed("web", ["n1", "n2"], cpu=1500)))
    same = as_it_is(problem)
    assert same is not None
    assert flaws(problem, same) == ()
    spoiled: dict[str, ExactSolution] = {
        "lost": replace(same, stay=({0: 1},)),
        "twice": replace(same, arrive=({0: 1},)),
        "deleted": replace(same, keep=(False, True)),
        "overfull": replace(same, stay=({0: 1},), arrive=({0: 1},)),
    }
    assert flaws(problem, spoiled[spoil])


def test_the_exact_model_reports_the_plans_that_it_finds() -> None:
    """What can be salvaged when the solver dies after its last report is the plan that it would have given."""
    told: list[Progress] = []
    there = [small(name) for name in ("n1", "n2", "n3")]
    web = deployed("web", ["n1", "n2"], cpu=900, rules=apart("web", HOSTNAME))
    state, on_sale, settings = cluster(there, web, deployed("api", ["n3"], cpu=500)), SMALL, unguarded()
    made = plan_for(state, on_sale, now=NOW, settings=settings, stop=WorkStop(20_000), progress=told.append)
    assert all(news.phase.startswith("exact") for news in told)
    incumbent = incumbent_report(len(told), [news for news in told if news.answer is not None][-1])
    assert incumbent is not None
    assert made.solve is not None
    saved = plan_from(
        Request(state, on_sale, NOW, settings, "reschedule", SalvageStop()), incumbent=incumbent, solve=made.solve
    )
    assert saved.cost.after == made.cost.after < made.cost.before
    assert saved.placements == made.placements


def apart_everywhere(nodes: int) -> Cluster:
    """Ten pods a node, a Deployment a node that keeps its pods on different nodes, and ten pods that wait."""
    there = [node(f"n{e:04d}", zone="abc"[e % 3], machine="m8", cpu=8000, memory=32 * 1024) for e in range(nodes)]
    pods = [
        deployed(
            f"w{w:04d}", [there[(w + k) % nodes].name for k in range(10)], cpu=600, rules=apart(f"w{w:04d}", HOSTNAME)
        )
        for w in range(nodes)
    ]
    return cluster(there, *pods, deployed("new", [None] * 10, cpu=3000, rules=apart("new", HOSTNAME)))


def calls(work: Callable[[], object]) -> int:
    """How many Python functions the work calls."""
    counted = 0

    def count(_frame: object, what: str, _argument: object) -> None:
        nonlocal counted
        counted += what == "call"

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return counted


@pytest.mark.slow
def test_the_instance_of_a_few_pending_pods_grows_with_the_cluster_and_not_with_its_square() -> None:
    """An autoscale iteration of 1,200 nodes and 12,000 pods models the rules of the pods that wait, and no others."""
    on_sale = tuple(offer("m8", zone=zone, cpu=8000, memory=32 * 1024, price=380_000) for zone in "abc")
    small, middle, large = (Question(apart_everywhere(nodes), on_sale, NOW, "autoscale") for nodes in (75, 300, 1200))
    few, more = (calls(partial(exact_instance, question, sites_of(question))) for question in (small, middle))
    assert more < 6 * few
    found = exact_instance(large, sites_of(large))
    assert found is not None
    assert len(found.anti_affinities) == 1
    made = plan_for(large.cluster, on_sale, now=NOW, settings=unguarded(), mode="autoscale", stop=WorkStop(100))
    assert made.cost.gap == 0
    assert not made.unplaced
