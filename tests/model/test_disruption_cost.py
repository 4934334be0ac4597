"""What a restart counts, by workload."""

from __future__ import annotations

import pytest
from tests.support.builders import NOW, cluster, deployed, node, stateful

from kinema_core.events import ClusterObject, PlacementRules
from kinema_core.model.disruption_cost import ORDINARY, disruption_cost
from kinema_core.model.mobility import mobility

ANNOTATION, DELETION = "kinema.io/disruption-cost", "controller.kubernetes.io/pod-deletion-cost"
CLAIM = PlacementRules(claims=("data",))


def cost_of(*objects: ClusterObject) -> float:
    """Of the only pods there are, in ordinary restarts."""
    on = cluster(node("n1"), node("n2"), objects)
    (found,) = {disruption_cost(on, pod) for pod in on.pods}
    return found / ORDINARY


def test_ordinary_pods_count_one_and_those_that_are_missed_more() -> None:
    """One for each of several replicas; the only one counts two, and volumes two more."""
    assert cost_of(*deployed("web", ["n1", "n2"])) == 1
    assert cost_of(*deployed("web", ["n1"])) == 2
    assert cost_of(*stateful("db", ["n1", "n2"], rules=CLAIM)) == 3
    assert cost_of(*stateful("db", ["n1"], rules=CLAIM)) == 4


def test_the_nearest_annotation_decides() -> None:
    """That of the pod before that of its Deployment, and either before any rule."""
    assert cost_of(*deployed("web", ["n1"], annotations={ANNOTATION: "2.5"})) == 2.5
    assert (
        cost_of(*deployed("web", ["n1"], annotations={ANNOTATION: "5"}, pod_annotations={ANNOTATION: "0.125"})) == 0.125
    )
    assert cost_of(*deployed("web", ["n1"], annotations={ANNOTATION: " 0 "})) == 0


def test_the_deletion_cost_of_kubernetes_counts() -> None:
    """Twice for whom Kubernetes shall spare, half for whom it shall take first; what is no number, nothing."""
    for cost, expected in (("1", 2.0), ("-7", 0.5), ("0", 1.0), ("many", 1.0)):
        assert cost_of(*deployed("web", ["n1", "n2"], pod_annotations={DELETION: cost})) == expected


@pytest.mark.parametrize("value", ["high", "-1", "1001", "1000.5", "1e3", "", "0.1234"])
def test_a_risk_that_cannot_be_read_holds_the_pod(value: str) -> None:
    """Whoever wrote it meant something: the pod stays, and the reason says what to write."""
    on = cluster(node("n1"), deployed("web", ["n1", "n1"], annotations={ANNOTATION: value}))
    held = mobility(on, NOW).held["shop/web-0"]
    assert held.code == "invalid-disruption-cost"
    assert "write a number from 0 to 1000" in held.reason
