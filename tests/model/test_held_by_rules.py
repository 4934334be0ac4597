"""Who is held by disruption budgets, by rules that are not modeled, by volumes, and by what could not be read."""

from __future__ import annotations

from collections.abc import Sequence
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
    PlacementRules,
    PodTerm,
    PreferredNodeTerm,
    Spread,
    StorageClass,
    Volume,
    VolumeClaim,
)
from kinema_core.events import NodeTerm as Term

HOUR_AGO = NOW - timedelta(hours=1)
ZONE = "topology.kubernetes.io/zone"


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


# --- rules that are not modeled


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        (PlacementRules(scheduler="volcano"), "unmodeled-scheduler"),
        (PlacementRules(unmodeled=("spec.resourceClaims",)), "unmodeled-field"),
        (PlacementRules(affinity=(PodTerm(topology_key=ZONE),)), None),
        (PlacementRules(anti_affinity=(PodTerm(topology_key=ZONE),)), None),
        (PlacementRules(affinity=(PodTerm(topology_key=ZONE, weight=5),)), None),
        (
            PlacementRules(spread=(Spread(topology_key=ZONE, max_skew=1, when_unsatisfiable="DoNotSchedule"),)),
            None,
        ),
        (PlacementRules(preferred_nodes=(PreferredNodeTerm(weight=1, term=Term()),)), None),
        (PlacementRules(host_ports=(HostPort(port=80),)), None),
        (PlacementRules(node_selector=labels({"zone": "a"})), None),
    ],
)
def test_rules_that_are_not_modeled_hold(rules: PlacementRules, expected: str | None) -> None:
    """What must hold and is not modeled is never broken by a move; preferences and modeled rules hold nobody."""
    assert code("shop/web-0", deployed("web", ["n1"], rules=rules)) == expected
    assert code("shop/web-0", deployed("web", [None], rules=rules)) == expected


@pytest.mark.parametrize("known", [True, False])
def test_an_affinity_over_unknown_namespaces_holds(known: bool) -> None:
    """Whom it needs cannot be told without the namespaces; anti-affinity is then taken to mean all of them."""
    term = PodTerm(topology_key=ZONE, selector=selector(app="db"), namespace_selector=selector(tier="back"))
    spaces = [namespace("shop", labels={"tier": "back"})] if known else []
    near, apart = PlacementRules(affinity=(term,)), PlacementRules(anti_affinity=(term,))
    expected = None if known else "unmodeled-namespaces"
    assert code("shop/web-0", deployed("web", ["n1"], rules=near), spaces) == expected
    assert code("shop/web-0", deployed("web", ["n1"], rules=apart), spaces) is None


def test_a_gated_pod_is_not_placed() -> None:
    """A scheduling gate keeps the scheduler away, and us."""
    assert code("shop/web-0", deployed("web", [None], rules=PlacementRules(gated=True))) == "gated"


# --- volumes


def claimed(*objects: ClusterObject, on: Sequence[str | None] = ("n1",), **more: Any) -> list[ClusterObject]:
    """A stateful set whose pods use the claim `data`, and these objects."""
    rules = PlacementRules(claims=("data",))
    return [*stateful("db", on, rules=rules, annotations={"kinema.io/strategy": "evict"}, **more), *objects]


def claim(volume: str | None = None, storage_class: str | None = None) -> VolumeClaim:
    """The claim `data`."""
    return VolumeClaim(name="data", namespace="shop", uid="uid-data", volume=volume, storage_class=storage_class)


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        ([], "volume-unknown"),
        ([claim("pv")], "volume-unknown"),
        ([claim("pv"), Volume(name="pv", uid="u")], None),
        ([claim()], "volume-unknown"),
        ([claim(storage_class="late")], "volume-unknown"),
        ([claim(storage_class="late"), StorageClass(name="late", uid="u")], "volume-unknown"),
        ([claim(storage_class="late"), StorageClass(name="late", uid="u", wait_for_consumer=True)], None),
    ],
)
def test_a_volume_that_nobody_can_place_holds(objects: list[ClusterObject], expected: str | None) -> None:
    """A pod goes where its volume is, or where one will be made: where that is not known it stays."""
    assert code("shop/db-0", claimed(*objects)) == expected
    assert code("shop/db-0", claimed(*objects, on=(None,))) == expected


def test_a_class_that_is_not_there_is_told_from_one_that_does_not_wait() -> None:
    """Of a class that nobody has read, nobody can say when it makes volumes."""
    pending = claimed(claim(storage_class="late"), on=(None,))
    assert judged(*pending).held["shop/db-0"].reason.endswith("its storage class late is not in the cluster's state")
    early = judged(*pending, StorageClass(name="late", uid="u")).held["shop/db-0"].reason
    assert early.endswith("storage class late does not make one for its first pod")


def test_a_claim_that_pods_of_one_node_share_holds_them() -> None:
    """It may be a volume that one node at a time can use; pods of two nodes show that it is not."""
    volume: list[ClusterObject] = [claim("pv"), Volume(name="pv", uid="u")]
    assert code("shop/db-0", claimed(*volume, on=("n1", "n1"))) == "volume-shared"
    assert code("shop/db-0", claimed(*volume, on=("n1", None))) == "volume-shared"
    assert code("shop/db-0", claimed(*volume, on=("n1", "n2"))) is None


@pytest.mark.parametrize(("chosen", "held"), [(None, True), ("surge", True), ("rolling", True), ("evict", False)])
def test_a_pod_with_a_volume_is_evicted(chosen: str | None, held: bool) -> None:
    """A second pod would wait for the volume: an only replica is away for a while, which somebody has to allow."""
    objects = deployed(
        "web",
        ["n1"],
        rules=PlacementRules(claims=("data",)),
        annotations={"kinema.io/strategy": chosen} if chosen else {},
    )
    verdict = judged(objects, claim("pv"), Volume(name="pv", uid="u"))
    assert ("shop/web-0" in verdict.held) is held
    assert held or verdict.strategy["shop/web-0"] == "evict"


# --- what could not be read, what goes, what is not there


@pytest.mark.parametrize(
    ("bad", "expected"),
    [
        (unreadable("Pod shop/odd-0", node="n1"), "quarantined-node"),
        (unreadable("Pod shop/odd-0", namespace="shop"), "quarantined-node"),
        (unreadable("Pod bank/odd-0", namespace="bank"), "quarantined-node"),
        (unreadable("Pod odd-0", namespace=""), "quarantined-node"),
        (unreadable("Pod unnamed-1", namespace=""), "quarantined-node"),
        (unreadable("Pod nameless-1", namespace=""), None),
        (unreadable("Pod nameless-1", node="n1"), "quarantined-node"),
        (unreadable("Object unnamed-1"), "quarantined-node"),
        (unreadable("Object nameless-1"), None),
        (unreadable("Object shop/x"), None),
        (unreadable("PodDisruptionBudget shop/nameless-1", namespace="shop"), None),
        (unreadable("Pod shop/odd-0"), None),
        (unreadable("Pod shop/odd-0", node="n2"), None),
        (unreadable("PodDisruptionBudget shop/x", namespace="shop"), "frozen-namespace"),
        (unreadable("PodDisruptionBudget shop/x"), "frozen-namespace"),
        (unreadable("PodDisruptionBudget bank/x", namespace="bank"), None),
        (unreadable("PodDisruptionBudget x", namespace=""), "frozen-namespace"),
        (unreadable("PodDisruptionBudget unnamed-1", namespace=""), "frozen-namespace"),
        (unreadable("Deployment shop/web"), "quarantined-controller"),
        (unreadable("ReplicaSet shop/web-rs"), "quarantined-controller"),
        (unreadable("ReplicaSet shop/other"), None),
        (unreadable("ReplicaSet web-rs", namespace=""), "frozen-namespace"),
        (unreadable("StatefulSet shop/unnamed-1", namespace="shop"), "frozen-namespace"),
        (unreadable("StatefulSet bank/unnamed-1", namespace="bank"), None),
        (unreadable("Namespace shop"), "frozen-namespace"),
        (unreadable("Namespace unnamed-1", namespace=""), "frozen-namespace"),
        (unreadable("HorizontalPodAutoscaler shop/web", namespace="shop"), None),
    ],
)
def test_unreadable_objects_freeze_what_they_might_forbid(bad: ClusterObject, expected: str | None) -> None:
    """An unreadable pod freezes its node, a budget its namespace, a set its pods; what does not tell which, all."""
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
