"""Disruption cost of a pod: the weight of its restart (1: ordinary), by which the price of its move is multiplied.

The annotation `kinema.io/disruption-cost` on pod, set or Deployment sets it, the nearest first: a number from 0 to
1000, where 2.5 makes a move cost two and a half ordinary ones. Without one, a pod counts 1; 1 more as the only replica,
whose connections and caches all go at once; 2 more when it has volumes, which have to be detached before the new copy
starts. `controller.kubernetes.io/pod-deletion-cost` doubles that when above 0, and halves it
when below.
"""

from __future__ import annotations

import re
from typing import Final

from kinema_core.events import Labels, Pod
from kinema_core.model.cluster import Cluster
from kinema_core.model.strategy import annotations_of, chain_of
from kinema_core.model.vocabulary import DELETION_COST, DISRUPTION_COST

ORDINARY: Final = 1000
"""Disruption costs are in thousandths of an ordinary restart."""
MOST: Final = 1000
_ONLY: Final = 1000
_VOLUMES: Final = 2000
_NUMBER: Final = re.compile(r"[0-9]{1,4}(?:\.[0-9]{1,3})?")
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,10}")


def disruption_cost(cluster: Cluster, pod: Pod) -> int:
    """Return the cost in thousandths of an ordinary restart; ignores an annotation that cannot be read."""
    given = _given(cluster, pod)
    said = None if given is None else _parsed(given)
    if said is not None:
        return said
    workloads = chain_of(cluster, pod).workloads
    only = bool(workloads) and workloads[-1].replicas == 1
    cost = ORDINARY + _ONLY * only + _VOLUMES * bool(pod.rules.claims)
    deletion = _deletion_cost(pod.annotations)
    return cost * 2 if deletion > 0 else cost // 2 if deletion < 0 else cost


def disruption_cost_doubt(cluster: Cluster, pod: Pod) -> str | None:
    """Return why the annotation cannot be read; None when it can, or there is none."""
    given = _given(cluster, pod)
    if given is None or _parsed(given) is not None:
        return None
    return f"{DISRUPTION_COST} is {given!r}: write a number from 0 to {MOST}, with up to three decimals"


def _given(cluster: Cluster, pod: Pod) -> str | None:
    return next((one[DISRUPTION_COST].strip() for one in annotations_of(cluster, pod) if DISRUPTION_COST in one), None)


def _parsed(text: str) -> int | None:
    if not _NUMBER.fullmatch(text):
        return None
    whole, _, part = text.partition(".")
    cost = int(whole) * ORDINARY + int(part.ljust(3, "0") or "0")
    return cost if cost <= MOST * ORDINARY else None


def _deletion_cost(annotations: Labels) -> int:
    """0 also where it is no number, as Kubernetes takes it."""
    text = annotations.get(DELETION_COST, "") if annotations else ""
    return int(text) if _INTEGER.fullmatch(text) else 0
