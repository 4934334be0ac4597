"""Explanations agree with the problem that plans are made from."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.optimizer.exact.test_exactness import tried
from tests.optimizer.instances import random_cluster
from tests.support.builders import NOW, budget, cluster, deployed, node, offer, pod, selector
from tests.support.planning import unguarded

from kinema_core.events import Node, Offer, PlacementRules, Pod, PodTerm, Spread
from kinema_core.model.catalog import node_prices
from kinema_core.model.cluster import Cluster
from kinema_core.model.mobility import listed
from kinema_optimizer.explain.elsewhere import seating
from kinema_optimizer.explain.explain import NodeExplanation, explain_node, explain_pod
from kinema_optimizer.planning.planner import plan_for
from kinema_optimizer.problem.compile import Compiled, compiled
from kinema_optimizer.problem.question import Question
from kinema_optimizer.solvers.stopping import WorkStop

ON_SALE = (offer("m2", cpu=2000, price=90_000), offer("m4", cpu=4000, price=170_000))


def asked(state: Cluster, on_sale: tuple[Offer, ...] = ON_SALE) -> Compiled:
    """The problem of a reschedule."""
    return compiled(Question(state, on_sale, NOW, "reschedule"))


def told(state: Cluster, name: str) -> NodeExplanation:
    """The explanation of a node."""
    found = state.node(name)
    assert found is not None
    return explain_node(asked(state), found)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_node_is_said_to_be_held_exactly_when_plans_must_keep_it(seed: int) -> None:
    """No explanation claims that a fixed node could go, nor that a free one may not."""
    state, on_sale = random_cluster(seed, pods=14)
    problem = asked(state, on_sale)
    for index, one in enumerate(state.nodes):
        verdict = explain_node(problem, one).verdict
        assert (verdict in {"own-rule", "held-pods"}) == bool(problem.packing.node_fixed[index])


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_saving_that_is_promised_is_no_more_than_the_best_plan_saves(seed: int) -> None:
    """A free node whose deletion saves something saves at least that much in the best plan."""
    state, on_sale = random_cluster(seed, pods=10)
    problem = asked(state, on_sale)
    promised = [explain_node(problem, one) for one in state.nodes]
    most = max((one.saves_usd_per_hour or 0.0 for one in promised if one.verdict == "could-go"), default=0.0)
    made = plan_for(state, on_sale, now=NOW, settings=unguarded(), stop=WorkStop(20_000))
    waiting = any(item.source is None for item in made.placements)
    if not waiting:  # pods that wait may need a machine more
        assert made.cost.before - made.cost.after >= most * 0.999 - made.cost.before * 0.001 - 1e-9


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_every_pod_has_an_explanation(seed: int) -> None:
    """Running, waiting, held, ending or bound to its node: each pod's fate has a word and a reason."""
    state, on_sale = random_cluster(seed, pods=14, limited=True)
    problem = asked(state, on_sale)
    own = {one.key for one in listed(state)}
    for one in state.pods:
        found = explain_pod(problem, one)
        assert found.reason
        assert (found.verdict in {"with-node", "terminating"}) == (one.key not in own)
        assert (found.verdict in {"placeable", "no-place", "not-placed"}) == (one.node is None and one.key in own)


def test_pod_kept_by_rules_between_pods_is_named() -> None:
    """A pod that its rule lets go to some nodes only, none of which has room, keeps its node."""
    beside = PlacementRules(affinity=(PodTerm(topology_key="kubernetes.io/hostname", selector=selector(app="db")),))
    nodes = [node("n0", cpu=1000), node("n1")]
    state = cluster(nodes, deployed("db", ["n0"], cpu=900), deployed("web", ["n1"], cpu=500, rules=beside))
    pair = cluster(nodes, deployed("db", ["n0", "n1"], cpu=900), deployed("web", ["n1", "n1"], cpu=500, rules=beside))
    assert told(state, "n1").verdict == "held-pods"  # it has no company now
    assert told(pair, "n1").verdict == "could-go"
    zoned = PlacementRules(affinity=(PodTerm(topology_key="topology.kubernetes.io/zone", selector=selector(app="db")),))
    state = cluster(nodes, deployed("db", ["n0"], cpu=900), deployed("web", ["n1"], cpu=500, rules=zoned))
    there = state.node("n1")
    assert there is not None
    found = explain_node(asked(state, (offer("m4", available=0),)), there)
    assert found.verdict == "no-place"
    assert "shop/web-0: rules between pods keep it in topology.kubernetes.io/zone a" in found.reason


def test_limits_on_spot_capacity_are_named() -> None:
    """Half of the pods are on spot capacity already: the others stay on demand, and so does their node."""
    said = {"kinema.io/spot": "allow", "kinema.io/spot-max-share": "0.5"}
    nodes = [node("n0", spot=True, price="0.07"), node("n1")]
    state = cluster(nodes, deployed("web", ["n0", "n1"], cpu=100, annotations=said))
    there = state.node("n1")
    assert there is not None
    found = explain_node(asked(state, (offer("m4", available=0),)), there)
    assert found.verdict == "no-place"
    assert "shop/web-1: rules between pods keep it in on-demand nodes" in found.reason


def test_pod_that_only_a_rolling_update_moves_is_named_when_that_is_stuck() -> None:
    """A sibling that may not be restarted keeps every pod of the workload."""
    stays = {"kinema.io/do-not-move": "true"}
    objects = [
        pod(one.name, node=one.node, owner=one.owner, annotations=stays)
        if isinstance(one, Pod) and one.node == "n0"
        else one
        for one in deployed("web", ["n0", "n1"], annotations={"kinema.io/strategy": "rolling"})
    ]
    found = told(cluster(node("n0"), node("n1"), *objects), "n1")
    assert (found.verdict, [item.code for item in found.held]) == ("held-pods", ["rolling-update"])


def test_two_rules_on_a_node_are_both_told() -> None:
    """Its own rule is the verdict, the held pods are listed, and the price is that of both together."""
    keep = {"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"}
    objects = [*deployed("db", ["n1", "n1"]), budget("db", max_unavailable="0")]
    found = told(cluster(node("n0"), node("n1", annotations=keep), *objects), "n1")
    assert (found.verdict, len(found.held), found.saves_usd_per_hour) == ("own-rule", 2, 0.17)


def test_rooms_of_a_pod_are_those_that_its_company_leaves_it() -> None:
    """A node with a pod that keeps it away is no room for it, however much is free there."""
    alone = PlacementRules(anti_affinity=(PodTerm(topology_key="kubernetes.io/hostname", selector=selector(app="db")),))
    nodes = [node(name) for name in ("n0", "n1", "n2")]
    state = cluster(nodes, deployed("db", ["n0", "n1"], cpu=100, rules=alone))
    found = explain_pod(asked(state), state.pods[0])
    assert found.rooms == ("n2",)


def test_the_node_that_a_zone_leans_on_is_told() -> None:
    """As plans keep one beside another that is not Ready and has pods: the cheapest, if none stays anyway."""

    def caveat(*nodes: Node, of: str = "a2") -> str:
        state = cluster(nodes, node("b1", zone="b", price="0.1"), pod("stays", node="a1"), deployed("web", ["a2"]))
        found = told(state, of)
        assert found.verdict == "could-go"
        return found.caveat

    silent, served = node("a1", price="0.1", ready=False), node("a2", price="0.1")
    assert caveat(silent, served) == (
        "node a1 of zone a is not Ready and has pods: as long as it stays, so does a node of that zone that takes "
        "pods, and this is the only one"
    )
    dearer = node("a3", price="0.2")
    assert "this is the cheapest" in caveat(silent, served, dearer)
    assert caveat(silent, served, dearer, of="a3") == ""
    kept = node("a3", price="0.2", annotations={"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"})
    assert caveat(silent, served, kept) == ""
    assert caveat(node("a1", price="0.1"), served) == ""


def test_the_node_that_is_asked_about_is_no_empty_domain() -> None:
    """A spread over hosts lets a pod go to another host when its own is deleted: plans do, and it is said."""
    hosts = ["n0", "n1", "n2"]
    even = Spread(
        topology_key="kubernetes.io/hostname",
        max_skew=1,
        when_unsatisfiable="DoNotSchedule",
        selector=selector(app="web"),
    )
    web = deployed("web", hosts, cpu=1700, rules=PlacementRules(spread=(even,)))
    found = told(cluster([node(name) for name in hosts], web), "n0")
    assert (found.verdict, found.elsewhere.onto_nodes, found.elsewhere.boots) == ("could-go", 1, ())
    assert found.saves_usd_per_hour == found.usd_per_hour
    assert found.caveat == ""
    crowded = deployed("big", ["n1", "n2"], cpu=1000)
    assert told(cluster([node(name) for name in hosts], web, crowded), "n0").elsewhere.onto_nodes == 0


def test_places_by_the_rules_of_those_who_come_leave_nobody_alone() -> None:
    """What would take the company of somebody who stays is no answer."""
    near = PlacementRules(affinity=(PodTerm(topology_key="topology.kubernetes.io/zone", selector=selector(app="db")),))
    for cpu, onto in ((3000, {"n2": 1}), (3800, None)):
        nodes = (node("n1"), node("n2"), node("n3", zone="b", price="0.17"))
        state = cluster(nodes, deployed("db", ["n1"], cpu=500), deployed("web", ["n2"], cpu=cpu, rules=near))
        there = state.node("n1")
        assert there is not None
        found = seating(asked(state, (offer("m4", available=0),)), there)
        assert (found and found.onto) == onto


@pytest.mark.slow
def test_savings_by_the_rules_are_no_more_than_trying_everything_saves() -> None:
    """On tiny clusters with every kind of rule a node that is said to go saves at most what the best plan does."""
    promised = 0
    for seed in range(60):
        found = tried(seed)
        if found is None or any(one.node is None for one in found[0].cluster.pods):
            continue
        instance, best = found
        problem = asked(instance.cluster, instance.offers)
        before = sum(node_prices(instance.cluster, instance.offers).values())
        for one in instance.cluster.nodes:
            told_of = explain_node(problem, one)
            if told_of.verdict == "could-go":
                assert told_of.saves_usd_per_hour is not None
                assert round(told_of.saves_usd_per_hour * 10**6) <= before - best.cost, (seed, one.name)
                promised += 1
    assert promised >= 5


def test_a_replica_that_its_own_kind_keeps_out_everywhere_holds_its_node() -> None:
    """Of two pods that keep apart by zone, a new copy is refused where an old one still is: in every zone."""
    apart = PodTerm(topology_key="topology.kubernetes.io/zone", selector=selector(app="web"))
    nodes = [node("n1", price="0.1"), *(node(name, zone="b", price="0.1") for name in ("n2", "n3"))]
    web = deployed("web", ["n1", "n2"], rules=PlacementRules(anti_affinity=(apart,)))
    found = told(cluster(nodes, web), "n2")
    assert found.verdict == "held-pods"
    assert [(one.pod, one.code) for one in found.held] == [("shop/web-1", "anti-affinity-alone")]
    assert told(cluster(nodes, deployed("web", ["n1", "n2"])), "n2").caveat == ""
