"""Who is held by disruption budgets, by rules that are not modelled, and by what could not be read."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from tests.support.builders import (
    NOW,
    budget,
    deployed,
    labels,
    mirror,
    namespace,
    on_every_node,
    pod,
    selector,
    stateful,
    unreadable,
)
from tests.support.verdicts import code, judged

from kinema_core.events import (
    ClusterObject,
    HostPort,
    Owner,
    PlacementRules,
    PodTerm,
    PreferredNodeTerm,
    Requirement,
    Spread,
)
from kinema_core.events import NodeTerm as Term

HOUR_AGO = NOW - timedelta(hours=1)
HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"


def owned(kind: str) -> Owner:
    """A controller that the state does not have."""
    return Owner(kind=kind, name="x", uid="uid-x")


# --- disruption budgets


@pytest.mark.parametrize(
    ("amounts", "replicas", "never"),
    [
        ({"max_unavailable": "0"}, 3, True),
        ({"max_unavailable": "0%"}, 3, True),
        ({"max_unavailable": "1"}, 3, False),
        ({"max_unavailable": "1%"}, 3, False),
        ({"max_unavailable": "100%"}, 3, False),
        ({"min_available": "100%"}, 3, True),
        ({"min_available": "3"}, 3, True),
        ({"min_available": "4"}, 3, True),
        ({"min_available": "2"}, 3, False),
        ({"min_available": "67%"}, 3, True),
        ({"min_available": "66%"}, 3, False),
        ({"min_available": "50%"}, 1, True),
        ({"min_available": "50%"}, 2, False),
        ({"min_available": "0"}, 1, False),
        ({"min_available": "0%"}, 1, False),
        ({"min_available": "many"}, 3, True),
        ({"max_unavailable": "-1"}, 3, True),
        ({}, 3, True),
    ],
)
def test_a_budget_that_never_allows_holds(amounts: dict[str, Any], replicas: int, never: bool) -> None:
    """Never: no arithmetic over the desired replicas, percentages rounded up, leaves room for one disruption."""
    objects = deployed("web", ["n1"] * replicas)
    assert code("shop/web-0", objects, budget("web", allowed=0, **amounts)) == ("pdb-never" if never else None)


def test_a_budget_that_only_now_allows_nothing_holds_nobody() -> None:
    """Execution waits for it: planning does not."""
    assert code("shop/web-0", deployed("web", ["n1", "n2"]), budget("web", min_available="1", allowed=0)) is None


def test_two_budgets_on_a_pod_hold_it() -> None:
    """The eviction API refuses for ever when two budgets select one pod."""
    two = [budget("web", max_unavailable="1"), budget("all", selects={}, max_unavailable="1")]
    assert code("shop/web-0", deployed("web", ["n1", "n2"]), two) == "two-budgets"


def test_a_budget_reaches_its_namespace_only() -> None:
    """A budget of another namespace, or without a selector, holds nobody."""
    other = budget("web", namespace="bank", max_unavailable="0")
    blind = msgspec.structs.replace(budget("web", max_unavailable="0"), selector=None)
    assert code("shop/web-0", deployed("web", ["n1"]), other, blind) is None


def test_a_budget_counts_all_workloads_that_it_selects() -> None:
    """MinAvailable 2 never allows anything over two single replicas, but does over three."""
    shared = {"team": "a"}
    pair = [deployed("web", ["n1"], labels=shared), deployed("api", ["n1"], labels=shared)]
    third = deployed("job", ["n1"], labels=shared)
    both = budget("both", selects=shared, min_available="2")
    assert code("shop/web-0", *pair, both) == "pdb-never"
    assert code("shop/web-0", *pair, third, both) is None


@pytest.mark.parametrize(("choice", "held"), [(None, True), ("evict", True), ("surge", False), ("rolling", False)])
def test_a_chosen_surge_goes_around_budgets(choice: str | None, held: bool) -> None:
    """Budgets limit evictions; whoever chose surge or rolling by name wants them not to matter."""
    annotations = {"kinema.io/strategy": choice} if choice else {}
    objects = deployed("web", ["n1"], annotations=annotations)
    never = budget("web", max_unavailable="0")
    assert code("shop/web-0", objects, never) == ("pdb-never" if held else None)
    assert code("shop/web-0", objects, never, budget("two", selects={})) == ("two-budgets" if held else None)


def test_a_stateful_set_cannot_go_around_its_budget() -> None:
    """It is evicted from whatever was chosen, so that its budget holds."""
    objects = stateful("db", ["n1", "n2"], annotations={"kinema.io/strategy": "rolling"})
    assert code("shop/db-0", objects, budget("db", max_unavailable="0")) == "pdb-never"


# --- rules that are not modelled


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        (PlacementRules(claims=("data",)), "unmodelled-volume"),
        (PlacementRules(affinity=(PodTerm(topology_key=ZONE),)), "unmodelled-affinity"),
        (PlacementRules(anti_affinity=(PodTerm(topology_key=ZONE),)), "unmodelled-anti-affinity"),
        (
            PlacementRules(spread=(Spread(topology_key=ZONE, max_skew=1, when_unsatisfiable="DoNotSchedule"),)),
            "unmodelled-spread",
        ),
        (PlacementRules(scheduler="volcano"), "unmodelled-scheduler"),
        (PlacementRules(unmodelled=("spec.resourceClaims",)), "unmodelled-field"),
        (PlacementRules(affinity=(PodTerm(topology_key=ZONE, weight=5),)), None),
        (PlacementRules(anti_affinity=(PodTerm(topology_key=ZONE, weight=5),)), None),
        (
            PlacementRules(spread=(Spread(topology_key=ZONE, max_skew=1, when_unsatisfiable="ScheduleAnyway"),)),
            None,
        ),
        (PlacementRules(preferred_nodes=(PreferredNodeTerm(weight=1, term=Term()),)), None),
        (PlacementRules(host_ports=(HostPort(port=80),)), None),
        (PlacementRules(node_selector=labels({"zone": "a"})), None),
    ],
)
def test_rules_that_are_not_modelled_hold(rules: PlacementRules, expected: str | None) -> None:
    """What must hold and is not modelled is never broken by a move; preferences and modelled rules hold nobody."""
    assert code("shop/web-0", deployed("web", ["n1"], rules=rules)) == expected
    assert code("shop/web-0", deployed("web", [None], rules=rules)) == expected


def test_a_gated_pod_is_not_placed() -> None:
    """A scheduling gate keeps the scheduler away, and us."""
    assert code("shop/web-0", deployed("web", [None], rules=PlacementRules(gated=True))) == "gated"


def test_pods_that_anothers_anti_affinity_selects_are_held() -> None:
    """Wherever they went they could meet the pod that keeps them away; pods of other namespaces are free."""
    shy = PlacementRules(anti_affinity=(PodTerm(topology_key=HOSTNAME, selector=selector(app="noisy")),))
    objects = [
        deployed("shy", ["n1"], rules=shy),
        deployed("noisy", ["n2", None]),
        deployed("noisy", ["n2"], namespace="bank"),
        deployed("calm", ["n2"]),
    ]
    held = judged(*objects).held
    assert {key: item.code for key, item in held.items()} == {
        "shop/shy-0": "unmodelled-anti-affinity",
        "shop/noisy-0": "anti-affinity-peer",
        "shop/noisy-1": "anti-affinity-peer",
    }


def test_a_daemon_sets_anti_affinity_counts_too() -> None:
    """Pods that go with their node keep others away like any pod."""
    shy = PlacementRules(
        anti_affinity=(PodTerm(topology_key=HOSTNAME, selector=selector(app="noisy"), namespaces=("shop",)),)
    )
    guard = pod("guard", node="n1", namespace="kube-system", owner=owned("DaemonSet"), rules=shy)
    assert code("shop/noisy-0", guard, deployed("noisy", ["n2"])) == "anti-affinity-peer"


def test_pods_that_anothers_affinity_needs_are_held_in_its_domain() -> None:
    """Whom a pod must be with may not leave its domain; the same kind of pod elsewhere may go."""
    close = PlacementRules(affinity=(PodTerm(topology_key=HOSTNAME, selector=selector(app="cache")),))
    held = judged(deployed("web", ["n1"], rules=close), deployed("cache", ["n1", "n2"])).held
    assert {key: item.code for key, item in held.items()} == {
        "shop/web-0": "unmodelled-affinity",
        "shop/cache-0": "affinity-peer",
    }


def test_pods_that_anothers_spread_counts_are_held() -> None:
    """A pod that a constraint counts shifts its balance by moving."""
    even = PlacementRules(
        spread=(Spread(topology_key=ZONE, max_skew=1, when_unsatisfiable="DoNotSchedule", selector=selector(team="a")),)
    )
    objects = [
        deployed("web", ["n1"], labels={"team": "a"}, rules=even),
        deployed("api", ["n2"], labels={"team": "a"}),
    ]
    assert code("shop/api-0", *objects) == "spread-peer"


def test_pods_that_are_not_there_yet_or_no_more_hold_nobody() -> None:
    """A pending pod keeps nobody away from where it is not, a terminating one from where it will not be."""
    shy = PlacementRules(anti_affinity=(PodTerm(topology_key=HOSTNAME, selector=selector(app="noisy")),))
    coming, going = deployed("shy", [None], rules=shy), pod("going", node="n1", rules=shy, terminating=True)
    assert code("shop/noisy-0", coming, going, deployed("noisy", ["n2"])) is None


def test_a_term_without_selector_selects_nobody() -> None:
    """Match label keys narrow a selector; they do not make one."""
    term = PodTerm(topology_key=HOSTNAME, match_label_keys=("app",))
    rules = PlacementRules(anti_affinity=(term,))
    assert code("shop/any-0", deployed("shy", ["n1"], rules=rules), deployed("any", ["n2"])) is None


@pytest.mark.parametrize(("known", "expected"), [(True, None), (False, "anti-affinity-peer")])
def test_without_namespaces_a_namespace_selector_reaches_all(known: bool, expected: str | None) -> None:
    """A selector over namespaces that nobody listed may mean any of them."""
    term = PodTerm(topology_key=HOSTNAME, selector=selector(app="noisy"), namespace_selector=selector(quiet="yes"))
    spaces = [namespace("shop"), namespace("bank", labels={"quiet": "yes"})] if known else []
    objects = [deployed("shy", ["n1"], rules=PlacementRules(anti_affinity=(term,))), deployed("noisy", ["n2"])]
    assert code("shop/noisy-0", *objects, spaces) == expected


def test_match_label_keys_narrow_a_term_to_the_pods_own_values() -> None:
    """A term with match label keys reaches pods with the same values only."""
    term = PodTerm(topology_key=HOSTNAME, selector=selector(app="web"), match_label_keys=("hash", "absent"))
    rules = PlacementRules(anti_affinity=(term,))
    objects = [
        deployed("shy", ["n1"], labels={"app": "shy", "hash": "1"}, rules=rules),
        deployed("old", ["n2"], labels={"app": "web", "hash": "0"}),
        deployed("new", ["n2"], labels={"app": "web", "hash": "1"}),
    ]
    held = judged(*objects).held
    assert "shop/new-0" in held
    assert "shop/old-0" not in held


def test_selectors_with_expressions_reach_as_well() -> None:
    """A selector without equalities is evaluated over the whole namespace."""
    wide = msgspec.structs.replace(selector(), expressions=(Requirement(key="app", operator="NotIn", values=("shy",)),))
    rules = PlacementRules(anti_affinity=(PodTerm(topology_key=HOSTNAME, selector=wide),))
    assert code("shop/any-0", deployed("shy", ["n1"], rules=rules), deployed("any", ["n2"])) == "anti-affinity-peer"


# --- what could not be read, what goes, what is not there


@pytest.mark.parametrize(
    ("bad", "expected"),
    [
        (unreadable("Pod shop/odd-0", node="n1"), "quarantined-node"),
        (unreadable("Pod shop/odd-0", namespace="shop"), "quarantined-node"),
        (unreadable("Pod bank/odd-0", namespace="bank"), "quarantined-node"),
        (unreadable("Pod shop/odd-0"), None),
        (unreadable("Pod shop/odd-0", node="n2"), None),
        (unreadable("PodDisruptionBudget shop/x", namespace="shop"), "frozen-namespace"),
        (unreadable("PodDisruptionBudget shop/x"), "frozen-namespace"),
        (unreadable("PodDisruptionBudget bank/x", namespace="bank"), None),
        (unreadable("Deployment shop/web"), "quarantined-controller"),
        (unreadable("ReplicaSet shop/web-rs"), "quarantined-controller"),
        (unreadable("ReplicaSet shop/other"), None),
        (unreadable("Namespace shop"), "frozen-namespace"),
        (unreadable("HorizontalPodAutoscaler shop/web", namespace="shop"), None),
    ],
)
def test_unreadable_objects_freeze_what_they_might_forbid(bad: ClusterObject, expected: str | None) -> None:
    """An unreadable pod freezes its node, or every node where its own is lost; a budget a namespace, a set its pods."""
    assert code("shop/web-0", deployed("web", ["n1"]), bad) == expected


def test_an_unreadable_node_freezes_its_pods() -> None:
    """A node that could not be read is in no list of nodes, but its pods stay on it."""
    there = deployed("web", ["n9"])
    assert code("shop/web-0", there, unreadable("Node n9", node="n9")) == "quarantined-node"
    assert code("shop/web-0", there, unreadable("Node n9")) == "quarantined-node"
    assert code("shop/web-0", there) == "unknown-node"


def test_pods_of_a_namespace_that_ends_are_held() -> None:
    """Nothing can be created in a terminating namespace: a moved pod would not come back."""
    assert code("shop/web-0", deployed("web", ["n1"]), namespace("shop", terminating=True)) == "namespace-terminating"


def test_residents_and_terminating_pods_are_nowhere() -> None:
    """Mirrors, daemon sets' pods and terminating ones are neither held nor movable, and pin no node."""
    going = pod("going", node="n1", terminating=True)
    verdict = judged(on_every_node("log", ["n1"]), mirror("proxy", node="n1"), going)
    assert not verdict.held
    assert not verdict.strategy
    assert verdict.deletable["n1"] is None
