"""Pods that need company on their node leave it with that: as one for the search, one after another in plans."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.optimizer.planned import planned as optimizer_plan
from tests.optimizer.problem.random_packings import plan_of, random_packing
from tests.optimizer.rule_instances import rule_instance
from tests.support.builders import NOW, budget, cluster, deployed, node, offer, selector, stateful
from tests.support.planning import unguarded

from kinema_core.events import ClusterObject, Node, PlacementRules, Plan, PodTerm, Solve
from kinema_core.model.checker.check import check_plan
from kinema_core.model.cluster import Cluster
from kinema_optimizer.explain.explain import explain_node, explain_pod
from kinema_optimizer.planning.planner import SalvageStop, plan_from
from kinema_optimizer.planning.task import Request
from kinema_optimizer.problem.compile import Compiled, compiled
from kinema_optimizer.problem.instance import flaws, moves
from kinema_optimizer.problem.question import Question
from kinema_optimizer.problem.solution import IncumbentReport
from kinema_optimizer.settings import PlanningSettings

HOSTNAME = "kubernetes.io/hostname"
ON_SALE = (offer("m4", price=170_000),)
SOLVE = Solve(seconds=1.0, first_feasible_seconds=0.1, method="search", seed=0)


def near(*apps: str, apart: str = "") -> PlacementRules:
    """Asks for a pod of each of these apps on its node, and none of another."""
    terms = tuple(PodTerm(topology_key=HOSTNAME, selector=selector(app=app)) for app in apps)
    away = (PodTerm(topology_key=HOSTNAME, selector=selector(app=apart)),) if apart else ()
    return PlacementRules(affinity=terms, anti_affinity=away)


def scene(*objects: ClusterObject | tuple[ClusterObject, ...], full: int = 3) -> Cluster:
    """A dear node `n0` for these objects, and others of 4,000m with 2,800m of it in use by fourteen small pods each."""
    names = [f"n{index}" for index in range(1, full + 1)]
    fill = deployed("fill", [name for name in names for _ in range(14)], cpu=200)
    return cluster(node("n0", price="0.5"), [node(name) for name in names], fill, *objects)


def asked(state: Cluster) -> Compiled:
    """The problem of a reschedule."""
    return compiled(Question(state, ON_SALE, NOW, "reschedule"))


def planned(state: Cluster, settings: PlanningSettings | None = None) -> Plan:
    """The plan of the whole optimizer, checked."""
    return optimizer_plan(state, ON_SALE, settings=settings)


def deleted(plan: Plan) -> set[str]:
    """The nodes that the plan deletes."""
    return {one.name for one in plan.nodes if one.action == "delete"}


def only(state: Cluster) -> Node:
    """Node `n0`."""
    found = state.node("n0")
    assert found is not None
    return found


def waves(plan: Plan) -> dict[str, int]:
    """In which wave the pods of each app are in place."""
    return {step.pod.split("/")[1].rsplit("-", 1)[0]: step.wave for step in plan.steps if step.action == "move"}


@pytest.mark.slow
@pytest.mark.parametrize("settings", [unguarded(), unguarded(max_moves=2)], ids=["free", "two-moves"])
def test_a_pod_and_the_company_that_it_asks_for_leave_their_node(settings: PlanningSettings) -> None:
    """The company first; both are on one node afterwards, and count as two moves."""
    state = scene(deployed("cache", ["n0"], cpu=500), deployed("web", ["n0"], cpu=300, rules=near("cache")))
    plan = planned(state, settings)
    assert deleted(plan) == {"n0"}
    places = {item.pod: item.to for item in plan.placements}
    assert places["shop/cache-0"] == places["shop/web-0"]
    assert waves(plan)["cache"] < waves(plan)["web"]
    assert plan.moves == 2


@pytest.mark.slow
def test_a_chain_of_company_moves_link_by_link() -> None:
    """Each when the one that it asks for is there."""
    state = scene(
        deployed("cache", ["n0"], cpu=300),
        deployed("web", ["n0"], cpu=300, rules=near("cache")),
        deployed("log", ["n0"], cpu=300, rules=near("web", "cache")),
    )
    plan = planned(state)
    assert deleted(plan) == {"n0"}
    order = waves(plan)
    assert order["cache"] < order["web"] < order["log"]


@pytest.mark.slow
def test_too_few_moves_for_the_whole_group_leave_it() -> None:
    """No part of it goes without the rest."""
    state = scene(deployed("cache", ["n0"], cpu=500), deployed("web", ["n0", "n0"], cpu=300, rules=near("cache")))
    assert planned(state, unguarded(max_moves=2)).moves == 0


def test_a_group_goes_nowhere_where_only_its_parts_find_room() -> None:
    """1,200m are free on each other node, and the two together need 1,400m: said so where nothing is on sale."""
    state = scene(deployed("cache", ["n0"], cpu=700), deployed("web", ["n0"], cpu=700, rules=near("cache")))
    sold_out = (offer("m4", price=170_000, available=0),)
    told = explain_node(compiled(Question(state, sold_out, NOW, "reschedule")), only(state))
    assert (told.verdict, told.elsewhere.homeless) == ("no-place", 2)
    assert "shop/cache-0 and shop/web-0 leave it only together" in told.reason
    told = explain_node(asked(state), only(state))
    assert (told.verdict, told.elsewhere.pods, told.elsewhere.boots[0].count) == ("could-go", 2, 1)


@pytest.mark.slow
def test_groups_that_keep_each_other_away_find_nodes_of_their_own() -> None:
    """A cache on every node at most, and a web server beside each: two pairs leave their dear nodes for two others."""
    objects = [node(f"big{index}", cpu=8000, price="0.9") for index in range(2)]
    caches = deployed("cache", ["big0", "big1"], cpu=500, rules=near(apart="cache"))
    web = deployed("web", ["big0", "big1"], cpu=300, rules=near("cache", apart="web"))
    plan = planned(scene(objects, caches, web))  # type: ignore[arg-type]  # any nesting of objects will do
    assert deleted(plan) >= {"big0", "big1"}
    places = {item.pod: item.to for item in plan.placements}
    assert places["shop/cache-0"] != places["shop/cache-1"]
    assert {places["shop/cache-0"], places["shop/cache-1"]} == {places["shop/web-0"], places["shop/web-1"]}


@pytest.mark.slow
def test_replicas_that_ask_for_each_other_stay_and_it_is_said_why() -> None:
    """None of them could go first: its new copy would be let in only beside the others."""
    state = scene(deployed("web", ["n0", "n0"], cpu=300, rules=near("web")))
    assert "n0" not in deleted(planned(state))
    told = explain_node(asked(state), only(state))
    assert told.verdict == "held-pods"
    assert {one.code for one in told.held} == {"affinity-together"}
    pod = explain_pod(asked(state), state.pods_by_key["shop/web-0"])
    assert (pod.verdict, pod.code) == ("held", "affinity-together")
    assert "none could go first" in pod.reason


@pytest.mark.slow
def test_the_only_one_of_its_kind_goes_only_by_eviction() -> None:
    """By a surge its new copy would be let in only beside the old one."""
    surged = scene(deployed("web", ["n0"], cpu=300, rules=near("web")))
    assert "n0" not in deleted(planned(surged))
    assert explain_pod(asked(surged), surged.pods_by_key["shop/web-0"]).code == "affinity-first"
    evicting = {"kinema.io/strategy": "evict"}
    evicted = scene(deployed("web", ["n0"], cpu=300, rules=near("web"), annotations=evicting))
    assert deleted(planned(evicted)) == {"n0"}


def test_an_explanation_names_the_company_that_a_pod_moves_with() -> None:
    """Both ways."""
    state = scene(deployed("cache", ["n0"], cpu=500), deployed("web", ["n0"], cpu=300, rules=near("cache")))
    for one, other in (("cache", "web"), ("web", "cache")):
        told = explain_pod(asked(state), state.pods_by_key[f"shop/{one}-0"])
        assert told.verdict == "movable"
        assert f"together with shop/{other}-0" in told.reason
        assert told.rooms == ("n1", "n2", "n3")


@pytest.mark.slow
def test_budgets_and_stateful_sets_move_with_their_company() -> None:
    """Evicted one after the other, each within its budget."""
    state = scene(
        stateful("cache", ["n0"], cpu=500, annotations={"kinema.io/strategy": "evict"}),
        stateful("web", ["n0"], cpu=300, rules=near("cache"), annotations={"kinema.io/strategy": "evict"}),
        budget("web", max_unavailable="1"),
    )
    assert deleted(planned(state)) == {"n0"}


def test_pods_without_such_rules_make_the_same_problem() -> None:
    """Nothing is grouped, and nothing is worked out twice."""
    found = asked(scene(deployed("web", ["n0"], rules=near(apart="web"))))
    assert found.grouped is found


def test_packings_that_move_groups_are_valid_plans() -> None:
    """Whatever the rules and wherever the groups go by chance, the checker finds nothing, wave by wave either."""
    tally: Counter[str] = Counter()
    for seed in range(400):
        instance = rule_instance(seed, nodes=12, groups=0.5)
        state, offers = instance.cluster, instance.offers
        found = compiled(Question(state, offers, NOW, "reschedule"))
        grouped = {key for group in found.sites.ties.groups for key in group.pods}
        for draw in range(2 if grouped else 0):
            packing = random_packing(found.packing, seed * 10 + draw)
            if packing is None:
                continue
            assert flaws(found.packing, packing) == ()
            violations = check_plan(plan_of(found, packing), state, offers, NOW)
            assert {one.code for one in violations} <= {"pending-placeable"}, seed
            incumbent = IncumbentReport(1, packing, 0, ())
            plan = plan_from(
                Request(state, offers, NOW, unguarded(), "reschedule", SalvageStop()),
                incumbent=incumbent,
                solve=SOLVE,
            )
            assert check_plan(plan, state, offers, NOW, ordered=True) == (), seed
            went = {item.pod for item in plan.placements if item.source not in (None, item.to)}
            tally += Counter(plans=1, grouped=len(went & grouped), whole=plan.moves == moves(found.packing, packing))
    assert tally["plans"] > 30
    assert tally["grouped"] > 30, "the packings hardly move a group"
    assert tally["whole"] > tally["plans"] * 0.8
