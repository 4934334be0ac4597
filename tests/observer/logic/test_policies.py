"""Reading budgets, autoscalers and recommendations."""

from __future__ import annotations

from datetime import UTC, datetime

from tests.observer.kube_json import CREATED, JSON, thing
from tests.observer.logic.test_objects import GIB, HPA, VPA, read_as

from kinema_core.events import (
    Autoscaler,
    AutoscalerMetric,
    DisruptionBudget,
    Quarantined,
    Recommendation,
    Selector,
)


def test_an_autoscaler_compares_each_metric_in_its_targets_unit() -> None:
    """Utilization in per mille, amounts in thousandths; a metric without a reading has none."""
    specs = [
        {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}}},
        {"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}}},
        {
            "type": "ContainerResource",
            "containerResource": {"name": "cpu", "container": "main", "target": {"averageUtilization": 80}},
        },
        {"type": "Pods", "pods": {"metric": {"name": "rps"}, "target": {"averageValue": "100"}}},
        {
            "type": "Object",
            "object": {
                "metric": {"name": "hits"},
                "describedObject": {"kind": "Ingress", "name": "i"},
                "target": {"value": "2k"},
            },
        },
        {"type": "External", "external": {"metric": {"name": "queue"}, "target": {"value": "30"}}},
    ]
    currents = [
        {"type": "External", "external": {"metric": {"name": "queue"}, "current": {"value": "12500m"}}},
        {"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 73, "averageValue": "73m"}}},
        {"type": "Resource", "resource": {"name": "memory", "current": {"averageValue": "512Mi"}}},
        {"type": ""},
    ]
    found = read_as(
        Autoscaler,
        thing(
            HPA,
            group="autoscaling/v2",
            spec={
                "scaleTargetRef": {"kind": "Deployment", "name": "web"},
                "maxReplicas": 9,
                "metrics": specs,
            },
            status={"currentReplicas": 2, "desiredReplicas": 3, "currentMetrics": currents},
        ),
    )
    assert (found.min_replicas, found.max_replicas, found.current, found.desired) == (1, 9, 2, 3)
    assert found.metrics == (
        AutoscalerMetric(name="cpu", current=730, target=600),
        AutoscalerMetric(name="memory", current=GIB // 2 * 1000, target=GIB * 1000),
        AutoscalerMetric(name="container/main/cpu", current=None, target=800),
        AutoscalerMetric(name="pods/rps", current=None, target=100_000),
        AutoscalerMetric(name="object/Ingress/i/hits", current=None, target=2_000_000),
        AutoscalerMetric(name="external/queue", current=12_500, target=30_000),
    )


def test_two_metrics_of_one_name_keep_their_own_readings() -> None:
    """External metrics may differ only in their selectors: their order tells them apart."""

    def external(part: str, value: str) -> JSON:
        return {"type": "External", "external": {"metric": {"name": "queue"}, part: {"value": value}}}

    target = {"kind": "Deployment", "name": "web"}
    metrics = [external("target", "10"), external("target", "20")]
    status = {"currentMetrics": [external("current", "1"), external("current", "2")]}
    found = read_as(
        Autoscaler,
        thing(HPA, group="autoscaling/v2", spec={"scaleTargetRef": target, "metrics": metrics}, status=status),
    )
    assert [(metric.current, metric.target) for metric in found.metrics] == [(1000, 10_000), (2000, 20_000)]


def test_an_autoscaler_with_a_metric_of_an_unknown_kind_is_quarantined() -> None:
    """Whether it is above its target cannot be known."""
    target = {"kind": "Deployment", "name": "web"}
    found = read_as(
        Quarantined, thing(HPA, group="autoscaling/v2", spec={"scaleTargetRef": target, "metrics": [{"type": "Stars"}]})
    )
    assert found.path == "spec.metrics[0]"


def test_a_budget_keeps_numbers_and_percentages_as_written() -> None:
    """No selector selects nothing, an empty one everything in the namespace."""
    found = read_as(
        DisruptionBudget,
        thing(
            "PodDisruptionBudget",
            group="policy/v1",
            spec={"minAvailable": "50%", "selector": {}, "unhealthyPodEvictionPolicy": "AlwaysAllow"},
            status={"disruptionsAllowed": 1, "expectedPods": 4, "desiredHealthy": 2, "currentHealthy": 3},
        ),
    )
    assert (found.min_available, found.max_unavailable, found.selector) == ("50%", None, Selector())
    assert (found.allowed, found.expected, found.desired_healthy, found.healthy) == (1, 4, 2, 3)
    assert found.always_allow_unhealthy
    other = read_as(DisruptionBudget, thing("PodDisruptionBudget", group="policy/v1", spec={"maxUnavailable": 0}))
    assert (other.max_unavailable, other.selector) == ("0", None)


def test_an_unreadable_budget_freezes_its_namespace() -> None:
    """An unknown operator in its selector may select any pod there."""
    expressions = [{"key": "app", "operator": "Resembles", "values": ["web"]}]
    spec = {"selector": {"matchExpressions": expressions}, "maxUnavailable": 1}
    found = read_as(Quarantined, thing("PodDisruptionBudget", group="policy/v1", spec=spec))
    assert (found.namespace, found.path) == ("shop", "spec.selector.matchExpressions[0].operator")


def test_a_vertical_recommendation_is_summed_over_containers() -> None:
    """Target and bounds per pod, the mode, and since when the object exists (1.2: valid when older than 24 h)."""

    def of(cpu: str) -> JSON:
        return {"target": {"cpu": cpu}, "lowerBound": {"cpu": cpu}, "upperBound": {"cpu": cpu, "memory": "1Mi"}}

    found = read_as(
        Recommendation,
        thing(
            VPA,
            group="autoscaling.k8s.io/v1",
            spec={"targetRef": {"kind": "Deployment", "name": "web"}, "updatePolicy": {"updateMode": "Off"}},
            status={"recommendation": {"containerRecommendations": [of("100m"), of("50m")]}},
        ),
    )
    assert (found.target, found.upper, found.mode) == ({"cpu": 150}, {"cpu": 150, "memory": 2 * 2**20}, "Off")
    assert found.created == datetime.fromisoformat(CREATED).astimezone(UTC)
