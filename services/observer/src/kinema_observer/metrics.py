"""Metrics of what the observer sees of nodes and workloads."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from functools import partial
from typing import Final

from prometheus_client import CollectorRegistry

from kinema_core.model.cluster import Cluster
from kinema_core.runtime.metric_table import counter, gauge
from kinema_observer.adapters.reflector import Reflector
from kinema_observer.logic.loop import DISRUPTED

NAME: Final = "observer"
_SERVING: Final = frozenset({"Deployment", "StatefulSet"})


def show_ages(registry: CollectorRegistry, cluster: str, reflectors: Iterable[Reflector]) -> None:
    """Show how long ago the API server last said anything about each kind; not a number for one that is left out."""
    ages = gauge(registry, "kinema_kind_age_seconds")
    for one in reflectors:
        ages.labels(service=NAME, cluster=cluster, kind=one.resource.kind).set_function(partial(_age, one))


def _age(reflector: Reflector) -> float:
    return math.nan if reflector.off else time.monotonic() - reflector.heard


class WorkloadMetrics:
    """Counts closed nodes, and workloads with fewer Ready pods than replicas."""

    def __init__(self, registry: CollectorRegistry, cluster: str) -> None:
        values = {"service": NAME, "cluster": cluster}
        self._disrupted = gauge(registry, "kinema_disrupted_nodes").labels(**values)
        self._unready = gauge(registry, "kinema_workloads_unready").labels(**values)
        self._dips = counter(registry, "kinema_ready_dips_total").labels(**values)
        self._ready: dict[str, int] = {}
        """Ready pods of each workload when last looked at."""

    def note(self, cluster: Cluster, *, executing: bool) -> None:
        """Look at a state; `executing`: a plan is being executed, so that a workload that falls below is a dip."""
        self._disrupted.set(sum(DISRUPTED in node.labels for node in cluster.nodes))
        serving = [one for one in cluster.workloads if one.type in _SERVING]
        below = [one for one in serving if one.ready < one.replicas]
        self._unready.set(len(below))
        if executing:
            self._dips.inc(sum(one.ready < self._ready.get(one.key, 0) for one in below))
        self._ready = {one.key: one.ready for one in serving}
