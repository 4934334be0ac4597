"""Annotations, labels and taints by which people and neighboring tools steer Kinema, and how to read them."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Final

from kinema_core.events import Labels

KINEMA_PREFIX: Final = "kinema.io/"
"""Beginning of all labels and annotations of Kinema."""
STRATEGY: Final = "kinema.io/strategy"
DO_NOT_MOVE: Final = "kinema.io/do-not-move"
SPOT: Final = "kinema.io/spot"
SPOT_MAX_SHARE: Final = "kinema.io/spot-max-share"
SPOT_MAX_SHARE_PER_POOL: Final = "kinema.io/spot-max-share-per-pool"
STEERING: Final = "kinema.io/steering"
"""`false`: new pods of the workload go where kube-scheduler puts them, whatever the plan says."""
DISRUPTION_COST: Final = "kinema.io/disruption-cost"
DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
PRICE: Final = "kinema.io/usd-per-hour"
CAPACITY_TYPE: Final = "kinema.io/capacity-type"
DO_NOT_DISRUPT: Final = "karpenter.sh/do-not-disrupt"
SAFE_TO_EVICT: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"
HELD: Final = "kinema.io/held"
"""`code: reason` why pods stay, from what is in no state: the optimizer adds it to its own view of the state."""
ROLLED: Final = "kinema.io/rolled"
"""On a workload during a rolling update by Kinema: what it was before."""
RESIZED_AT_ADMISSION: Final = "vpaUpdates"
"""A vertical autoscaler writes it on pods of which it set the requests at their creation."""
RUNTIME_CLASS: Final = "spec.runtimeClassName"
"""Path in a template of what is not modeled there: only a pod has its runtime class's node selector."""
PREFER_NO_EVICTION: Final = "descheduler.alpha.kubernetes.io/prefer-no-eviction"
SCALE_DOWN_DISABLED: Final = "cluster-autoscaler.kubernetes.io/scale-down-disabled"

GITOPS: Final[dict[str, str]] = {
    "argocd.argoproj.io/instance": "Argo CD",
    "argocd.argoproj.io/tracking-id": "Argo CD",
    "kustomize.toolkit.fluxcd.io/name": "Flux",
    "helm.toolkit.fluxcd.io/name": "Flux",
}
"""Labels and annotations of objects that a GitOps tool applies, and which one does."""
KEDA: Final = "scaledobject.keda.sh/name"
"""Label of a horizontal pod autoscaler whose limits KEDA sets, again and again: the name of its ScaledObject."""

CONTROL_PLANE: Final = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
DELETION_CANDIDATE: Final = "DeletionCandidateOfClusterAutoscaler"
"""The taint of Cluster Autoscaler on each node that it considers unneeded, so also on those that Kinema empties."""
FOREIGN_DELETION_TAINTS: Final = (
    "ToBeDeletedByClusterAutoscaler",
    DELETION_CANDIDATE,
    "karpenter.sh/disrupted",
    "karpenter.sh/disruption",
)
"""Another autoscaler is about to delete a node with one of these, or considers it."""

SPOT_VALUES: Final[dict[str, str]] = {
    CAPACITY_TYPE: "spot",
    "karpenter.sh/capacity-type": "spot",
    "cloud.google.com/gke-spot": "true",
    "cloud.google.com/gke-preemptible": "true",
    "eks.amazonaws.com/capacityType": "spot",
    "kubernetes.azure.com/scalesetpriority": "spot",
    "cluster.x-k8s.io/interruptible": "",
}
"""Labels that mark spot capacity, and the value (in lower case) that does."""

_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
_DURATION: Final = re.compile(rf"\+?(?:{_PART.pattern})+|0")
_MICROSECONDS: Final[dict[str, Fraction]] = {
    "ns": Fraction(1, 1000),
    "us": Fraction(1),
    "µs": Fraction(1),
    "μs": Fraction(1),
    "ms": Fraction(1000),
    "s": Fraction(10**6),
    "m": Fraction(60 * 10**6),
    "h": Fraction(3600 * 10**6),
}
_FOREVER: Final = timedelta(days=36500)
"""Longer protections are cut to a century, which dates can hold."""


def is_true(annotations: Labels, key: str) -> bool:
    """Return whether the annotation says `true`, in any case."""
    return annotations.get(key, "").strip().lower() == "true"


def forbids(annotations: Labels, key: str, *, when: str = "true", of: str = "") -> str | None:
    """Return why an annotation that is true or false forbids; None when it does not.

    A value that is neither forbids: it was written for a reason.

    Args:
        annotations: those of one object.
        key: the annotation.
        when: which of the two values forbids.
        of: names the object in the reason, where it is not the one that the reason is about.
    """
    value = annotations.get(key)
    if value is None:
        return None
    said, where = value.strip().lower(), f"{key} of {of}" if of else key
    if said not in ("true", "false"):
        return f"{where} is {value!r}, neither true nor false: correct or remove it"
    return f"{where} is {said}" if said == when else None


def parse_duration(text: str) -> timedelta | None:
    """Return a duration in Go's notation (`90s`, `1h30m`, `1.5h`), rounded up to microseconds; None when it is none."""
    if len(text) > 64 or not _DURATION.fullmatch(text):
        return None
    exact = sum((Fraction(number) * _MICROSECONDS[unit] for number, unit in _PART.findall(text)), Fraction(0))
    microseconds = -(-exact.numerator // exact.denominator)
    return _FOREVER if microseconds > _FOREVER // timedelta(microseconds=1) else timedelta(microseconds=microseconds)


def protection(value: str | None, *, start: datetime | None, now: datetime) -> str | None:
    """Return why a `do-not-disrupt` annotation protects now; None when it does not.

    `true`, or a duration since `start`. A value that cannot be read protects: it was written for a reason.
    """
    if value is None or value.strip().lower() == "false":
        return None
    if value.strip().lower() == "true":
        return f"{DO_NOT_DISRUPT} is true"
    duration = parse_duration(value.strip())
    if duration is None:
        return f"{DO_NOT_DISRUPT} is {value!r}, neither true nor a duration such as 1h30m: correct or remove it"
    if not duration:
        return None
    if start is None:
        return f"{DO_NOT_DISRUPT} protects it for {value} from a start that is not known yet"
    until = end_of_protection(value, start=start)
    return f"{DO_NOT_DISRUPT} protects it until {until.isoformat()}" if until is not None and now < until else None


def end_of_protection(value: str, *, start: datetime | None) -> datetime | None:
    """Return when a `do-not-disrupt` annotation no longer protects; None where that is no question of time."""
    duration = parse_duration(value.strip())
    return start + duration if duration and start is not None else None
