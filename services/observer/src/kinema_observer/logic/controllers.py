"""Readers of what controls pods: workloads, autoscalers, disruption budgets, vertical recommendations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from kinema_core.events import (
    EMPTY,
    Amounts,
    Autoscaler,
    AutoscalerMetric,
    DisruptionBudget,
    FrozenMap,
    Recommendation,
    Selector,
    Workload,
    WorkloadKind,
)
from kinema_core.model.quantity import QuantityError, parse_cpu
from kinema_core.model.resources import total
from kinema_core.model.vocabulary import KEDA
from kinema_observer.errors import UnreadableFieldError
from kinema_observer.logic import wire
from kinema_observer.logic.pods import template_of
from kinema_observer.logic.reading import (
    amounts_of,
    annotations_of,
    condition_holds,
    controller_of,
    labels_of,
    name_of,
    namespace_of,
    selector_of,
    uid_of,
)
from kinema_observer.logic.wire import Scalar

_NO_UPDATE: Final = wire.UpdateStrategy()
_MESSAGE_CHARACTERS: Final = 256
"""Of what a controller says, for people."""


def workload_of(type_: WorkloadKind, found: wire.Controller) -> Workload | None:
    """Return the workload; None for what is over: an old replica set of a Deployment without pods, a finished Job.

    Raises:
        UnreadableFieldError: a part cannot be read.
    """
    meta, spec, status = found.metadata, found.spec, found.status or wire.ControllerStatus()
    owner = controller_of(meta.owner_references)
    counts = _counts(type_, spec, status)
    if type_ == "ReplicaSet" and owner is not None and counts["replicas"] == counts["current"] == 0:
        return None
    if type_ == "Job" and _finished(status) and not status.active:
        return None
    surge, unavailable = _update(type_, spec)
    template = template_of(spec.template)
    return Workload(
        type=type_,
        name=name_of(meta),
        namespace=namespace_of(meta),
        uid=uid_of(meta),
        owner=owner,
        labels=labels_of(meta.labels),
        annotations=annotations_of(meta.annotations)[0],
        selector=_plain_selector(spec.selector) if type_ == "ReplicationController" else selector_of(spec.selector),
        **counts,
        generation=meta.generation or 0,
        observed_generation=status.observed_generation or 0,
        template_labels=template.labels,
        template_requests=template.requests,
        template_containers=template.containers,
        template_ceiling=template.ceiling,
        template_rules=template.rules,
        max_surge=surge,
        max_unavailable=unavailable,
        paused=bool(spec.paused or spec.suspend),
        refused=_refused(status),
    )


def _counts(type_: WorkloadKind, spec: wire.ControllerSpec, status: wire.ControllerStatus) -> dict[str, int]:
    for path, wanted in (("spec.replicas", spec.replicas), ("spec.parallelism", spec.parallelism)):
        _natural(path, wanted)
    if type_ == "DaemonSet":
        desired, ready = status.desired_number_scheduled, status.number_ready
        updated, current = status.updated_number_scheduled, status.current_number_scheduled
    elif type_ == "Job":
        desired = 1 if spec.parallelism is None else spec.parallelism
        ready, updated, current = status.ready, None, status.active
    else:
        desired = 1 if spec.replicas is None else spec.replicas
        ready, updated, current = _serving(spec, status), status.updated_replicas, status.replicas
    counts = {"replicas": desired or 0, "ready": ready or 0, "updated": updated or 0, "current": current or 0}
    for name, count in counts.items():
        _natural(f"status, {name} pods", count)
    return counts


def _serving(spec: wire.ControllerSpec, status: wire.ControllerStatus) -> int:
    """Pods that the controller itself relies on: with `minReadySeconds` those that have been Ready for so long."""
    ready = status.ready_replicas or 0
    return min(ready, status.available_replicas or 0) if spec.min_ready_seconds else ready


def _natural(path: str, count: int | None) -> None:
    if count is not None and count < 0:
        raise UnreadableFieldError(path, f"is {count}: a number of pods is 0 or more")


def _finished(status: wire.ControllerStatus) -> bool:
    return condition_holds(status.conditions, "Complete") or condition_holds(status.conditions, "Failed")


_REFUSALS: Final = (("ReplicaFailure", "True", "FailedCreate"), ("Progressing", "False", "ReplicaSetCreateError"))
"""Type, status and reason of the conditions by which a controller says that its pods, or their set, are refused."""


def _refused(status: wire.ControllerStatus) -> str:
    """Return why no pod can be created. Without the name of the pod or its set, which is another one at each try."""
    found = next((one for one in status.conditions or () if (one.type, one.status, one.reason) in _REFUSALS), None)
    if found is None:
        return ""
    message = found.message or found.reason or ""
    return (message.partition(" is forbidden: ")[2] or message)[:_MESSAGE_CHARACTERS]


def _update(type_: WorkloadKind, spec: wire.ControllerSpec) -> tuple[str, str]:
    """Return how many pods an update may add and take away, as written or by Kubernetes' default for the kind."""
    strategy = spec.strategy or spec.update_strategy or _NO_UPDATE
    if strategy.type == "Recreate":
        return "0", "100%"
    rolling = strategy.rolling_update or wire.RollingUpdate()
    surge, unavailable = ("25%", "25%") if type_ == "Deployment" else ("0", "1")
    return (
        surge if rolling.max_surge is None else str(rolling.max_surge),
        unavailable if rolling.max_unavailable is None else str(rolling.max_unavailable),
    )


def _plain_selector(raw: msgspec.Raw) -> Selector:
    """Return the selector of a replication controller, which selects by equal labels only."""
    return Selector(labels=labels_of(raw, "spec.selector"))


# --- autoscalers


def autoscaler_of(found: wire.Autoscaler) -> Autoscaler:
    """Return the autoscaler with each of its metrics, now and target.

    Raises:
        UnreadableFieldError: a value cannot be read.
    """
    meta, spec, status = found.metadata, found.spec, found.status or wire.AutoscalerStatus()
    for path, bound in (("spec.minReplicas", spec.min_replicas), ("spec.maxReplicas", spec.max_replicas)):
        _natural(path, bound)
    return Autoscaler(
        name=name_of(meta),
        namespace=namespace_of(meta),
        uid=uid_of(meta),
        target_kind=spec.scale_target_ref.kind,
        target_name=spec.scale_target_ref.name,
        min_replicas=1 if spec.min_replicas is None else spec.min_replicas,
        max_replicas=spec.max_replicas or 1,
        current=status.current_replicas or 0,
        desired=status.desired_replicas or 0,
        metrics=_metrics(spec.metrics or (), status.current_metrics or ()),
        scaled_object=labels_of(meta.labels).get(KEDA, ""),
    )


def _metrics(specs: Sequence[wire.Metric], currents: Sequence[wire.Metric]) -> tuple[AutoscalerMetric, ...]:
    """Return each metric with its present value; of two with one name, the order decides, which the API keeps."""
    left = [(_metric_name(metric), metric) for metric in currents]
    found = []
    for index, metric in enumerate(specs):
        name, source = _metric_name(metric), _source(metric)
        target = source.target if source is not None else None
        if target is None:
            raise UnreadableFieldError(f"spec.metrics[{index}]", f"has no known target (type {metric.type!r})")
        goal, unit = _goal(target, f"spec.metrics[{index}]")
        now = next((pair for pair in left if pair[0] == name), None)
        if now is not None:
            left.remove(now)
        reading = _source(now[1]) if now is not None else None
        current = _value(reading.current, unit) if reading is not None and reading.current is not None else None
        found.append(AutoscalerMetric(name=name, current=current, target=goal))
    return tuple(found)


def _source(metric: wire.Metric) -> wire.MetricSource | None:
    return metric.resource or metric.container_resource or metric.pods or metric.object or metric.external


def _metric_name(metric: wire.Metric) -> str:
    source = _source(metric)
    if source is None:
        return metric.type
    if metric.resource is not None:
        return source.name or ""
    if metric.container_resource is not None:
        return f"container/{source.container}/{source.name}"
    name = source.metric.name if source.metric is not None else ""
    if source.described_object is not None:
        return f"object/{source.described_object.kind}/{source.described_object.name}/{name}"
    return f"{metric.type.lower()}/{name}"


def _goal(target: wire.MetricValue, path: str) -> tuple[int, str]:
    """Return the target's amount and the field that it is in: per mille for a utilization, else milli."""
    for unit in ("average_utilization", "average_value", "value"):
        amount = _value(target, unit, path)
        if amount is not None:
            return amount, unit
    raise UnreadableFieldError(f"{path}.target", "names no value")


def _value(found: wire.MetricValue, unit: str, path: str = "status.currentMetrics") -> int | None:
    if unit == "average_utilization":
        return None if found.average_utilization is None else 10 * found.average_utilization
    text: Scalar | None = found.average_value if unit == "average_value" else found.value
    if text is None:
        return None
    try:
        # Millicores are thousandths of any unit.
        return parse_cpu(text if isinstance(text, str) else repr(text))
    except QuantityError as error:
        raise UnreadableFieldError(path, str(error)) from error


# --- budgets and recommendations


def budget_of(found: wire.Budget) -> DisruptionBudget:
    """Return the disruption budget.

    Raises:
        UnreadableFieldError: a part cannot be read.
    """
    meta, spec, status = found.metadata, found.spec, found.status or wire.BudgetStatus()
    return DisruptionBudget(
        name=name_of(meta),
        namespace=namespace_of(meta),
        uid=uid_of(meta),
        selector=selector_of(spec.selector),
        min_available=None if spec.min_available is None else str(spec.min_available),
        max_unavailable=None if spec.max_unavailable is None else str(spec.max_unavailable),
        allowed=status.disruptions_allowed or 0,
        expected=status.expected_pods or 0,
        desired_healthy=status.desired_healthy or 0,
        healthy=status.current_healthy or 0,
        always_allow_unhealthy=spec.unhealthy_pod_eviction_policy == "AlwaysAllow",
    )


def recommendation_of(found: wire.Vertical) -> Recommendation:
    """Return the vertical autoscaler's recommendation, summed over the containers.

    Raises:
        UnreadableFieldError: a quantity cannot be read.
    """
    meta, spec = found.metadata, found.spec
    recommended = found.status.recommendation if found.status is not None else None
    containers = (recommended.container_recommendations if recommended is not None else None) or []
    policy = spec.update_policy.update_mode if spec.update_policy is not None else None
    return Recommendation(
        name=name_of(meta),
        namespace=namespace_of(meta),
        uid=uid_of(meta),
        target_kind=spec.target_ref.kind,
        target_name=spec.target_ref.name,
        target=_summed([item.target for item in containers], "target"),
        lower=_summed([item.lower_bound for item in containers], "lowerBound"),
        upper=_summed([item.upper_bound for item in containers], "upperBound"),
        mode=policy or "Auto",
        created=meta.creation_timestamp,
    )


def _summed(parts: Sequence[dict[str, Scalar] | None], name: str) -> Amounts:
    path = "status.recommendation.containerRecommendations"
    summed = total(amounts_of(part, f"{path}[{index}].{name}") for index, part in enumerate(parts))
    return FrozenMap(summed) if summed else EMPTY
