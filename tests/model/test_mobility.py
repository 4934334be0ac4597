"""Each rule of what does not move: who is held, by which code, and what lifts it."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from tests.support.builders import (
    NOW,
    cluster,
    deployed,
    deployment,
    labels,
    namespace,
    node,
    pod,
    replica_set,
    stateful,
    stateful_set,
    toleration,
    unreadable,
    workload,
)
from tests.support.verdicts import code, judged

from kinema_core.events import (
    ClusterObject,
    Owner,
    PlacementRules,
    Requirement,
)
from kinema_core.events import NodeTerm as Term
from kinema_core.model.mobility import MobilityOptions, mobility, next_end_of_protection, spot_allowed
from kinema_core.model.vocabulary import parse_duration

HOUR_AGO = NOW - timedelta(hours=1)
HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"


def owned(kind: str) -> Owner:
    """A controller that the state does not have."""
    return Owner(kind=kind, name="x", uid="uid-x")


# --- controllers


def test_a_bare_pod_is_held() -> None:
    """Nobody would replace a pod without a controller."""
    assert code("shop/p", pod("p", node="n1")) == "bare-pod"


def test_a_bare_pod_that_is_pending_is_not_held() -> None:
    """Placing a pod disturbs nobody, whatever would hold it once it runs."""
    verdict = judged(pod("p", annotations={"karpenter.sh/do-not-disrupt": "true"}))
    assert "shop/p" not in verdict.held
    assert "shop/p" not in verdict.strategy


@pytest.mark.parametrize("kind", ["Workflow", "Rollout", "CloneSet"])
def test_pods_of_unknown_controllers_are_held(kind: str) -> None:
    """A controller that Kinema does not know may not replace its pod, unless its owner says evict."""
    assert code("shop/p", pod("p", node="n1", owner=owned(kind))) == "unknown-controller"
    for choice, expected in (("surge", "unknown-controller"), ("none", "strategy-none"), ("evict", None)):
        annotated = pod("p", node="n1", owner=owned(kind), annotations={"kinema.io/strategy": choice})
        assert code("shop/p", annotated) == expected


def test_pods_of_jobs_are_held_unless_allowed() -> None:
    """A job's pod loses its work: only an option of the operator lets it go."""
    job = pod("p", node="n1", owner=workload("Job", "import"))
    assert code("shop/p", job) == "job"
    assert code("shop/p", job, move_jobs=True) is None
    assert judged(job, move_jobs=True).strategy["shop/p"] == "evict"


@pytest.mark.parametrize("kind", ["ReplicaSet", "ReplicationController", "StatefulSet"])
def test_a_single_replica_without_deployment_is_held(kind: Any) -> None:
    """One replica without a Deployment would be away for a while; two are moved by eviction."""
    alone = workload(kind, "db", replicas=1)
    pair = workload(kind, "db", replicas=2)
    assert code("shop/p", alone, pod("p", node="n1", owner=alone)) == "single-replica"
    assert judged(pair, pod("p", node="n1", owner=pair)).strategy == {"shop/p": "evict"}


@pytest.mark.parametrize(
    ("kind", "choice", "expected"),
    [
        ("ReplicaSet", "evict", "evict"),
        ("ReplicaSet", "surge", "surge"),
        ("ReplicaSet", "rolling", "surge"),
        ("StatefulSet", "evict", "evict"),
        ("StatefulSet", "rolling", "evict"),
        ("StatefulSet", "surge", None),
    ],
)
def test_an_annotation_lets_a_single_replica_go(kind: Any, choice: str, expected: str | None) -> None:
    """The strategy says how the only replica may go; a stateful set cannot surge, so that this choice is no way."""
    alone = workload(kind, "db", replicas=1, annotations={"kinema.io/strategy": choice})
    verdict = judged(alone, pod("p", node="n1", owner=alone))
    assert verdict.strategy.get("shop/p") == expected
    assert ("shop/p" in verdict.held) == (expected is None)


def test_a_set_that_the_list_lacks_counts_by_its_pods() -> None:
    """Where replica sets were not listed, two pods of one owner are two replicas and one is a single one."""
    owner = owned("ReplicaSet")
    two = [pod("a", node="n1", owner=owner), pod("b", node="n2", owner=owner)]
    assert code("shop/a", two) is None
    assert code("shop/a", two[:1]) == "single-replica"


@pytest.mark.parametrize(("known_hash", "found"), [("7d9f", True), ("other", False), ("", False)])
def test_a_pod_whose_set_is_gone_already_is_still_its_deployments(known_hash: str, found: bool) -> None:
    """An empty set is no part of the state, and is known to be empty before the end of its last pod is."""
    top = deployment("web", replicas=1, ready=1, annotations={"kinema.io/strategy": "rolling"})
    emptied = replica_set("web-7d9f", owner=top)
    last = pod("web-7d9f-a", node="n1", owner=emptied, labels={"pod-template-hash": known_hash} if known_hash else {})
    state = cluster(node("n1"), top, last)
    verdict = mobility(state, NOW)
    assert state.controller_key_of(last) == (top.key if found else None)
    assert verdict.strategy == ({last.key: "rolling"} if found else {})
    assert (verdict.deletable["n1"] is None) == found


def test_a_deployment_surges_and_its_single_replica_too() -> None:
    """The replacement is Ready first: one replica is no obstacle."""
    assert judged(deployed("web", ["n1"])).strategy == {"shop/web-0": "surge"}


def test_the_owner_reference_alone_tells_of_the_deployment() -> None:
    """A replica set whose Deployment was not listed still belongs to one."""
    set_ = replica_set("web-rs", replicas=1, owner=Owner(kind="Deployment", name="web", uid="u"))
    assert judged(set_, pod("p", node="n1", owner=set_)).strategy == {"shop/p": "surge"}


@pytest.mark.parametrize(
    ("choice", "strategy"),
    [("surge", "surge"), ("rolling", "rolling"), ("evict", "evict"), ("none", None), ("sruge", None)],
)
def test_the_deployments_annotation_wins(choice: str, strategy: str | None) -> None:
    """The strategy is the annotated one; none and what cannot be read hold the pods."""
    verdict = judged(deployed("web", ["n1"], annotations={"kinema.io/strategy": choice}))
    assert verdict.strategy.get("shop/web-0") == strategy
    expected = {"none": "strategy-none", "sruge": "strategy-unknown"}.get(choice)
    assert (verdict.held["shop/web-0"].code if verdict.held else None) == expected


def recreated(annotations: dict[str, str], *, pods: int = 2) -> list[ClusterObject]:
    """A Deployment that ends its old pods before it makes new ones."""
    top, *rest = deployed("web", ["n1"] * pods, annotations=annotations)
    return [msgspec.structs.replace(top, max_surge="0", max_unavailable="100%"), *rest]


def test_a_deployment_that_recreates_its_pods_is_not_rolled() -> None:
    """Its owner chose a rolling update, and an update that is none: nothing may happen. A surge changes no template."""
    assert code("shop/web-0", recreated({"kinema.io/strategy": "rolling"})) == "strategy-recreate"
    assert judged(recreated({})).strategy == {"shop/web-0": "surge", "shop/web-1": "surge"}


@pytest.mark.parametrize(
    ("surge", "unavailable", "held"),
    [
        ("0", "100%", True),
        ("0", "1", True),
        ("0%", "1", True),
        ("00%", "50%", True),
        ("1", "0", False),
        ("10%", "0", False),
        ("25%", "25%", False),
    ],
)
def test_no_second_copy_runs_where_the_owner_excludes_one(surge: str, unavailable: str, held: bool) -> None:
    """One replica whose own update never runs two: a surge would. Of two replicas, two run anyway."""
    for pods in (1, 2):
        top, *rest = deployed("web", ["n1"] * pods)
        bounds = {"max_surge": surge, "max_unavailable": unavailable}
        verdict = judged(msgspec.structs.replace(top, **bounds), *rest)
        expected = {"shop/web-0"} if held and pods == 1 else set()
        assert {key for key, one in verdict.held.items() if one.code == "single-replica"} == expected
        assert verdict.held.keys() == expected
        assert set(verdict.strategy.values()) == (set() if expected else {"surge"})


def test_an_only_copy_goes_the_way_that_its_owner_names() -> None:
    """The reason names both ways out; by an eviction it is away for a moment, by a surge a second copy runs."""
    reason = judged(recreated({}, pods=1)).held["shop/web-0"].reason
    assert reason == (
        "Deployment/shop/web wants one replica and lets no second copy run (Recreate): "
        "kinema.io/strategy: evict (it may be away for a moment) or surge (a second copy may run) allows"
    )
    for choice in ("evict", "surge"):
        assert judged(recreated({"kinema.io/strategy": choice}, pods=1)).strategy == {"shop/web-0": choice}
    top, *rest = deployed("web", ["n1"], annotations={"kinema.io/strategy": "rolling"})
    rolling = [msgspec.structs.replace(top, max_surge="0%", max_unavailable="1"), *rest]
    assert code("shop/web-0", rolling) == "single-replica"
    assert "(maxSurge 0%)" in judged(rolling).held["shop/web-0"].reason


def test_the_pods_own_annotation_is_nearest() -> None:
    """What the pod says counts before what its Deployment says."""
    objects = deployed(
        "web", ["n1"], annotations={"kinema.io/strategy": "none"}, pod_annotations={"kinema.io/strategy": "evict"}
    )
    assert judged(objects).strategy == {"shop/web-0": "evict"}


# --- annotations


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({"karpenter.sh/do-not-disrupt": "true"}, "do-not-disrupt"),
        ({"karpenter.sh/do-not-disrupt": "false"}, None),
        ({"karpenter.sh/do-not-disrupt": "2h"}, "do-not-disrupt"),
        ({"karpenter.sh/do-not-disrupt": "1h0m1s"}, "do-not-disrupt"),
        ({"karpenter.sh/do-not-disrupt": "1h"}, None),
        ({"karpenter.sh/do-not-disrupt": "59m"}, None),
        ({"karpenter.sh/do-not-disrupt": "0"}, None),
        ({"karpenter.sh/do-not-disrupt": "soon"}, "do-not-disrupt"),
        ({"karpenter.sh/do-not-disrupt": "-1h"}, "do-not-disrupt"),
        ({"karpenter.sh/do-not-disrupt": "99999999999h"}, "do-not-disrupt"),
        ({"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}, "safe-to-evict"),
        ({"cluster-autoscaler.kubernetes.io/safe-to-evict": "on-completion"}, "safe-to-evict"),
        ({"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}, None),
        ({"descheduler.alpha.kubernetes.io/prefer-no-eviction": ""}, "prefer-no-eviction"),
        ({"kinema.io/do-not-move": "true"}, "do-not-move"),
        ({"kinema.io/do-not-move": "False "}, None),
        ({"kinema.io/do-not-move": "yes"}, "do-not-move"),
        ({"kinema.io/do-not-move": ""}, "do-not-move"),
    ],
)
def test_annotations_of_pods(annotations: dict[str, str], expected: str | None) -> None:
    """Every neighbor's annotation is honored; durations count from the pod's start, and what is unreadable holds."""
    assert code("shop/web-0", deployed("web", ["n1"], pod_annotations=annotations, started=HOUR_AGO)) == expected


def test_a_duration_protects_while_the_start_is_unknown() -> None:
    """A bound pod whose start nobody saw yet is protected by any duration."""
    objects = deployed("web", ["n1"], pod_annotations={"karpenter.sh/do-not-disrupt": "1s"}, started=None)
    assert code("shop/web-0", objects) == "do-not-disrupt"


def test_a_protection_ends_with_time() -> None:
    """The same cluster asked later gives another answer: nothing else but the time decides on a duration."""
    annotations = {"karpenter.sh/do-not-disrupt": "90m"}
    on = cluster(node("n1"), deployed("web", ["n1"], pod_annotations=annotations, started=HOUR_AGO))
    assert "shop/web-0" in mobility(on, NOW).held
    assert "shop/web-0" in mobility(on, NOW + timedelta(minutes=29)).held
    assert "shop/web-0" not in mobility(on, NOW + timedelta(minutes=30)).held
    assert "shop/web-0" in mobility(on, NOW).held


def test_the_time_alone_changes_nothing_while_no_protection_ends() -> None:
    """Of a pod and of a node: before, between and after the two ends the answer is one and the same."""
    marks = {"karpenter.sh/do-not-disrupt": "90m"}
    on = cluster(
        msgspec.structs.replace(node("n1", annotations={"karpenter.sh/do-not-disrupt": "100m"}), created=HOUR_AGO),
        deployed("web", ["n1"], pod_annotations=marks, started=HOUR_AGO),
    )
    found = [mobility(on, NOW + timedelta(minutes=minutes)) for minutes in (0, 29, 30, 39, 40, 400)]
    assert [one is other for one, other in pairwise(found)] == [True, False, True, False, True]
    assert ["shop/web-0" in one.held for one in found[::2]] == [True, False, False]
    assert [one.deletable["n1"] is None for one in found[::2]] == [False, False, True]
    ends = [next_end_of_protection(on, NOW + timedelta(minutes=minutes)) for minutes in (29, 30, 40)]
    assert ends == [NOW + timedelta(minutes=30), NOW + timedelta(minutes=40), None]


def test_do_not_move_may_stand_on_the_deployment() -> None:
    """Kinema's own word counts on pod, set and Deployment."""
    assert code("shop/web-0", deployed("web", ["n1"], annotations={"kinema.io/do-not-move": "true"})) == "do-not-move"


def test_do_not_move_may_be_a_label_of_the_namespace() -> None:
    """A team's namespace is left alone as a whole; the reason names it."""
    space = namespace("shop", labels={"kinema.io/do-not-move": "true"})
    other = deployed("web", ["n1"], namespace="other")
    held = mobility(cluster(node("n1"), space, deployed("web", ["n1"]), other), NOW).held
    assert {key: (one.code, one.reason) for key, one in held.items()} == {
        "shop/web-0": ("do-not-move", "kinema.io/do-not-move of namespace shop is true")
    }


@pytest.mark.parametrize(
    ("on_pod", "on_deployment", "said"),
    [
        ({"kinema.io/do-not-move": "yes"}, {}, "kinema.io/do-not-move is 'yes'"),
        ({}, {"kinema.io/do-not-move": "on"}, "kinema.io/do-not-move of Deployment/shop/web is 'on'"),
        (
            {"cluster-autoscaler.kubernetes.io/safe-to-evict": "no"},
            {},
            "cluster-autoscaler.kubernetes.io/safe-to-evict is 'no'",
        ),
    ],
)
def test_a_mark_that_is_neither_true_nor_false_is_told(
    on_pod: dict[str, str], on_deployment: dict[str, str], said: str
) -> None:
    """Whoever wrote it meant something: the pod is held, and the reason names the object, the key and the value."""
    objects = deployed("web", ["n1"], pod_annotations=on_pod, annotations=on_deployment)
    assert judged(objects).held["shop/web-0"].reason == f"{said}, neither true nor false: correct or remove it"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90.0), ("1h30m", 5400.0), ("1.5h", 5400.0), ("250ms", 0.25), ("1us", 1e-6), ("1ns", 1e-6), ("0", 0.0)],
)
def test_durations_are_read_as_go_writes_them(text: str, seconds: float) -> None:
    """Units from h to ns, with fractions, rounded up to microseconds."""
    found = parse_duration(text)
    assert found is not None
    assert found.total_seconds() == seconds


@pytest.mark.parametrize("text", ["", "5", "h", "1d", "1h 5m", "-1h", "1,5h", "1h\n", "١h"])  # noqa: RUF001 - a foreign digit
def test_what_is_no_duration_is_none(text: str) -> None:
    """A number needs a unit, and nothing else is let pass."""
    assert parse_duration(text) is None


def test_host_paths_hold_unless_the_pod_is_safe() -> None:
    """A directory of the node stays behind, unless somebody says that this is safe."""
    safe = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}
    assert code("shop/web-0", deployed("web", ["n1"], host_path=True)) == "host-path"
    assert code("shop/web-0", deployed("web", ["n1"], host_path=True, pod_annotations=safe)) is None


# --- nodes


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({}, None),
        ({"annotations": {"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"}}, "scale-down-disabled"),
        ({"annotations": {"cluster-autoscaler.kubernetes.io/scale-down-disabled": "false"}}, None),
        ({"annotations": {"cluster-autoscaler.kubernetes.io/scale-down-disabled": "yes"}}, "is 'yes', neither"),
        ({"annotations": {"karpenter.sh/do-not-disrupt": "true"}}, "do-not-disrupt"),
        ({"annotations": {"karpenter.sh/do-not-disrupt": "72h"}}, "do-not-disrupt"),
        ({"annotations": {"karpenter.sh/do-not-disrupt": "1h"}}, None),
        ({"labels": {"node-role.kubernetes.io/control-plane": ""}}, "control-plane"),
        ({"labels": {"node-role.kubernetes.io/master": "true"}}, "control-plane"),
        ({"taints": ["ToBeDeletedByClusterAutoscaler=17:NoSchedule"]}, "ToBeDeletedByClusterAutoscaler"),
        ({"taints": ["DeletionCandidateOfClusterAutoscaler=1:PreferNoSchedule"]}, "DeletionCandidate"),
        ({"taints": ["karpenter.sh/disrupted:NoSchedule"]}, "karpenter.sh/disrupted"),
        ({"unschedulable": True}, None),
        ({"ready": False}, None),
    ],
)
def test_rules_of_nodes(settings: dict[str, Any], reason: str | None) -> None:
    """A node's own rules keep it from being deleted, but let its pods move; cordons and failures keep nothing."""
    verdict = mobility(cluster(node("n1", **settings), deployed("web", ["n1"])), NOW)
    found = verdict.deletable["n1"]
    assert (found is None) if reason is None else (found is not None and reason in found)
    assert verdict.strategy == {"shop/web-0": "surge"}


@pytest.mark.parametrize(
    ("settings", "open_"),
    [
        ({}, True),
        ({"unschedulable": True}, False),
        ({"ready": False}, False),
        ({"taints": ["karpenter.sh/disrupted:NoSchedule"]}, False),
        ({"taints": ["dedicated=db:NoSchedule"]}, True),
        ({"annotations": {"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"}}, True),
    ],
)
def test_which_nodes_take_pods(settings: dict[str, Any], open_: bool) -> None:
    """Cordoned, failing and foreign-deleted nodes take nobody; taints are for each pod to tolerate."""
    assert mobility(cluster(node("n1", **settings)), NOW).open_nodes == ({"n1"} if open_ else set())


def test_a_held_pod_pins_its_node() -> None:
    """The node of a pod that may not move stays, and says for whom."""
    verdict = judged(pod("p", node="n1"))
    assert verdict.deletable == {"n1": "pod shop/p may not move: bare-pod", "n2": None}


def test_a_frozen_node_stays_closed() -> None:
    """Nobody knows what an unreadable pod takes of its node: it is neither deleted nor filled."""
    verdict = judged(unreadable("Pod shop/odd", node="n1"))
    assert verdict.deletable["n1"] is not None
    assert verdict.open_nodes == {"n2"}


# --- spot


@pytest.mark.parametrize(
    ("settings", "allowed"),
    [
        ({}, False),
        ({"pod_annotations": {"kinema.io/spot": "allow"}}, True),
        ({"annotations": {"kinema.io/spot": "allow"}}, True),
        ({"annotations": {"kinema.io/spot": "deny"}}, False),
        ({"rules": PlacementRules(node_selector=labels({"cloud.google.com/gke-spot": "true"}))}, True),
        ({"rules": PlacementRules(tolerations=(toleration("kubernetes.azure.com/scalesetpriority"),))}, True),
        ({"rules": PlacementRules(tolerations=(toleration(),))}, False),
        ({"rules": PlacementRules(tolerations=(toleration("dedicated"),))}, True),
        ({"rules": PlacementRules(tolerations=(toleration("other"),))}, False),
        (
            {
                "rules": PlacementRules(
                    node_terms=(Term(expressions=(Requirement(key="karpenter.sh/capacity-type", operator="Exists"),)),)
                )
            },
            True,
        ),
    ],
)
def test_who_asks_for_spot(settings: dict[str, Any], allowed: bool) -> None:
    """Spot capacity is for pods that ask: by annotation, selector, affinity, or toleration of its taint."""
    state = cluster(node("n1"), deployed("web", ["n1"], **settings))
    [web] = state.pods
    assert spot_allowed(state, web, taint_keys=frozenset({"dedicated"})) is allowed
    assert spot_allowed(state, web, options=MobilityOptions(allow_spot=True))


def test_stateful_sets_of_two_or_more_are_evicted_from() -> None:
    """A stateful set moves by eviction, one at a time, when it has a second replica."""
    assert judged(stateful("db", ["n1", "n2"])).strategy == {"shop/db-0": "evict", "shop/db-1": "evict"}
    assert code("shop/db-0", stateful_set("db", replicas=1), stateful("db", ["n1"])) == "single-replica"
