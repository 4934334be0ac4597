"""Partial structs of what controls pods: workloads, autoscalers, disruption budgets."""

from __future__ import annotations

import msgspec

from kinema_observer.logic.wire import NOTHING, Condition, Object, Scalar, Wire
from kinema_observer.logic.wire_pods import Template


class RollingUpdate(Wire):
    """Bounds of a rolling update."""

    max_surge: str | int | None = None
    max_unavailable: str | int | None = None


class UpdateStrategy(Wire):
    """`spec.strategy` or `spec.updateStrategy`."""

    type: str | None = None
    rolling_update: RollingUpdate | None = None


class ControllerSpec(Wire):
    """`spec` of any controller of pods."""

    replicas: int | None = None
    min_ready_seconds: int | None = None
    selector: msgspec.Raw = NOTHING
    template: Template | None = None
    strategy: UpdateStrategy | None = None
    update_strategy: UpdateStrategy | None = None
    paused: bool | None = None
    parallelism: int | None = None
    suspend: bool | None = None


class ControllerStatus(Wire):
    """`status` of any controller of pods."""

    replicas: int | None = None
    ready_replicas: int | None = None
    available_replicas: int | None = None
    updated_replicas: int | None = None
    observed_generation: int | None = None
    desired_number_scheduled: int | None = None
    current_number_scheduled: int | None = None
    updated_number_scheduled: int | None = None
    number_ready: int | None = None
    active: int | None = None
    ready: int | None = None
    conditions: list[Condition] | None = None


class Controller(Object):
    """A Deployment, ReplicaSet, ReplicationController, StatefulSet, DaemonSet or Job."""

    spec: ControllerSpec
    status: ControllerStatus | None = None


# --- autoscalers and budgets


class TargetReference(Wire):
    """Reference to the object that an autoscaler scales."""

    kind: str = ""
    name: str = ""


class MetricValue(Wire):
    """`target` or `current` of a metric."""

    average_utilization: int | None = None
    average_value: Scalar | None = None
    value: Scalar | None = None


class MetricName(Wire):
    """`metric` of a pods, object or external metric."""

    name: str = ""


class MetricSource(Wire):
    """A metric of any type; `target` in the spec, `current` in the status."""

    name: str | None = None
    container: str | None = None
    metric: MetricName | None = None
    described_object: TargetReference | None = None
    target: MetricValue | None = None
    current: MetricValue | None = None


class Metric(Wire):
    """An entry of `spec.metrics` or `status.currentMetrics`."""

    type: str = ""
    resource: MetricSource | None = None
    container_resource: MetricSource | None = None
    pods: MetricSource | None = None
    object: MetricSource | None = None
    external: MetricSource | None = None


class AutoscalerSpec(Wire):
    """`spec` of a HorizontalPodAutoscaler."""

    scale_target_ref: TargetReference
    min_replicas: int | None = None
    max_replicas: int | None = None
    metrics: list[Metric] | None = None


class AutoscalerStatus(Wire):
    """`status` of a HorizontalPodAutoscaler."""

    current_replicas: int | None = None
    desired_replicas: int | None = None
    current_metrics: list[Metric] | None = None


class Autoscaler(Object):
    """A HorizontalPodAutoscaler (autoscaling/v2)."""

    spec: AutoscalerSpec
    status: AutoscalerStatus | None = None


class BudgetSpec(Wire):
    """`spec` of a PodDisruptionBudget."""

    selector: msgspec.Raw = NOTHING
    min_available: str | int | None = None
    max_unavailable: str | int | None = None
    unhealthy_pod_eviction_policy: str | None = None


class BudgetStatus(Wire):
    """`status` of a PodDisruptionBudget."""

    disruptions_allowed: int | None = None
    expected_pods: int | None = None
    desired_healthy: int | None = None
    current_healthy: int | None = None


class Budget(Object):
    """A PodDisruptionBudget."""

    spec: BudgetSpec
    status: BudgetStatus | None = None


class UpdatePolicy(Wire):
    """`spec.updatePolicy` of a VerticalPodAutoscaler."""

    update_mode: str | None = None


class VerticalSpec(Wire):
    """`spec` of a VerticalPodAutoscaler."""

    target_ref: TargetReference
    update_policy: UpdatePolicy | None = None


class ContainerRecommendation(Wire):
    """Recommendation of a VerticalPodAutoscaler for one container."""

    target: dict[str, Scalar] | None = None
    lower_bound: dict[str, Scalar] | None = None
    upper_bound: dict[str, Scalar] | None = None


class PodRecommendation(Wire):
    """`status.recommendation`."""

    container_recommendations: list[ContainerRecommendation] | None = None


class VerticalStatus(Wire):
    """`status` of a VerticalPodAutoscaler."""

    recommendation: PodRecommendation | None = None


class Vertical(Object):
    """A VerticalPodAutoscaler."""

    spec: VerticalSpec
    status: VerticalStatus | None = None
