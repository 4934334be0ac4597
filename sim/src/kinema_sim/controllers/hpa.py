"""The horizontal pod autoscaler: replicas follow the metrics."""

from dataclasses import dataclass
from fractions import Fraction

from kinema_sim.api.kube import KubeApi
from kinema_sim.api.subresources import write_scale
from kinema_sim.engine.kinds import DEPLOYMENT, HPA, REPLICA_SET, STATEFUL_SET, Kind
from kinema_sim.engine.objects import (
    Obj,
    is_active,
    is_ready,
    key_of,
    labels_of,
    namespace_of,
    set_condition,
)
from kinema_sim.engine.selectors import matches
from kinema_sim.engine.store import Store
from kinema_sim.load.meter import Meter
from kinema_sim.scheduler.books import pod_requests

SYNC_MS = 15_000
TOLERANCE = Fraction(1, 10)
_STABILISATION_SECONDS = 300
_TARGETS: tuple[Kind, ...] = (DEPLOYMENT, STATEFUL_SET, REPLICA_SET)


@dataclass(frozen=True)
class Reading:
    """One metric of an autoscaler at one moment.

    Attributes:
        wanted: replicas that the metric asks for.
        status: the metric as `status.currentMetrics` shows it.
    """

    wanted: int
    status: Obj


def desired_replicas(current: int, *, ready: int, usage: int, target: int) -> int:
    """Give the replicas that a metric asks for: ceil(ready × usage / target), within a tolerance of a tenth.

    Args:
        current: replicas now.
        ready: ready pods that the usage is of.
        usage: what they use in all.
        target: what one of them should use.
    """
    if not ready or not target:
        return current
    ratio = Fraction(usage, ready * target)
    if abs(ratio - 1) <= TOLERANCE:
        return current
    exact = ratio * ready
    return -(-exact.numerator // exact.denominator)


class Autoscaler:
    """Looks at every autoscaler each 15 virtual seconds."""

    def __init__(self, store: Store, api: KubeApi, meter: Meter) -> None:
        self.store = store
        self._api = api
        self._meter = meter
        self._advice: dict[str, list[tuple[int, int]]] = {}

    def sync_all(self) -> None:
        """Look at every autoscaler once."""
        for found in self.store.sorted(HPA):
            self._sync(found)

    def _sync(self, found: Obj) -> None:
        reference = found["spec"]["scaleTargetRef"]
        kind = next((each for each in _TARGETS if each.name == reference["kind"]), None)
        target = self.store.get(kind, namespace_of(found), reference["name"]) if kind else None
        if kind is None or target is None:
            why = {"type": "AbleToScale", "status": "False", "reason": "FailedGetScale"}
            self._write(found, {}, [why])
            return
        current = int(target["spec"]["replicas"])
        advice = self._advice.setdefault(found["metadata"]["uid"], [(self.store.loop.now_ms, current)])
        readings = self._read(found, target, current)
        if current == 0 or readings is None:
            reason = "ScalingDisabled" if current == 0 else "FailedGetResourceMetric"
            self._report(found, current=current, desired=current, metrics=[], active=reason)
            return
        wanted = max(reading.wanted for reading in readings)
        desired = self._settle(found, advice, current=current, wanted=wanted)
        if desired != current:
            body = {"metadata": {}, "spec": {"replicas": desired}}
            write_scale(self._api, kind, key_of(target), body=body, content_type=None)
        metrics = [reading.status for reading in readings]
        self._report(found, current=current, desired=desired, metrics=metrics, active="")

    def _read(self, found: Obj, target: Obj, current: int) -> list[Reading] | None:
        selector = target["spec"]["selector"]
        pods = [
            pod
            for pod in self.store.pods_in(namespace_of(found))
            if matches(selector, labels_of(pod))
            and is_active(pod)
            and is_ready(pod)
            and key_of(pod) in self._meter.usage
        ]
        if not pods:
            return None
        readings = [
            reading
            for metric in found["spec"].get("metrics") or ()
            if (reading := self._reading(metric, pods, current)) is not None
        ]
        return readings or None

    def _reading(self, metric: Obj, pods: list[Obj], current: int) -> Reading | None:
        if metric.get("type") != "Resource":
            return None
        name, wanted = metric["resource"]["name"], metric["resource"]["target"]
        usages = [self._meter.usage[key_of(pod)] for pod in pods]
        usage = sum(each.cpu_nano if name == "cpu" else each.memory_bytes for each in usages)
        unit = 1_000_000 if name == "cpu" else 1
        requests = sum(pod_requests(pod).get(name, 0) for pod in pods) * unit
        mean = usage // len(pods)
        shown: Obj = {"averageValue": f"{-(-mean // unit)}m" if name == "cpu" else str(mean)}
        percent = wanted.get("averageUtilization")
        if percent is None or not requests:
            return None
        shown["averageUtilization"] = usage * 100 // requests
        # In hundredths of the mean request, so that the target stays a whole number.
        replicas = desired_replicas(current, ready=len(pods), usage=usage * 100 * len(pods), target=requests * percent)
        return Reading(replicas, {"type": "Resource", "resource": {"name": name, "current": shown}})

    def _settle(self, found: Obj, advice: list[tuple[int, int]], *, current: int, wanted: int) -> int:
        """Apply stabilisation, the pace of growth and the bounds."""
        spec, now = found["spec"], self.store.loop.now_ms
        behavior: Obj = (spec.get("behavior") or {}).get("scaleDown") or {}
        window = int(behavior.get("stabilizationWindowSeconds", _STABILISATION_SECONDS)) * 1000
        advice[:] = [entry for entry in advice if entry[0] > now - window]
        advice.append((now, wanted))
        steady = max(value for _, value in advice) if wanted < current else wanted
        steady = min(steady, current) if wanted < current else steady
        # Upstream's default policies: at most double, or four more, in one step.
        paced = min(steady, max(2 * current, current + 4))
        return max(int(spec["minReplicas"]), min(paced, int(spec["maxReplicas"])))

    def _report(self, found: Obj, *, current: int, desired: int, metrics: list[Obj], active: str) -> None:
        spec = found["spec"]
        able = {"type": "AbleToScale", "status": "True", "reason": "ReadyForNewScale"}
        active_entry = {
            "type": "ScalingActive",
            "status": "False" if active else "True",
            "reason": active or "ValidMetricFound",
        }
        at_edge = desired in (int(spec["minReplicas"]), int(spec["maxReplicas"]))
        reason = "DesiredWithinRange"
        if at_edge:
            reason = "TooFewReplicas" if desired == int(spec["minReplicas"]) else "TooManyReplicas"
        limited = {"type": "ScalingLimited", "status": "True" if at_edge else "False", "reason": reason}
        status: Obj = {"currentReplicas": current, "desiredReplicas": desired}
        if metrics:
            status["currentMetrics"] = metrics
        if desired != current:
            status["lastScaleTime"] = self.store.loop.now
        self._write(found, status, [able, active_entry, limited])

    def _write(self, found: Obj, status: Obj, conditions: list[Obj]) -> None:
        now = self.store.loop.now

        def change(draft: Obj) -> None:
            draft.setdefault("status", {}).update(status)
            for entry in conditions:
                set_condition(draft, entry, now)

        self.store.edit(HPA, key_of(found), change)
