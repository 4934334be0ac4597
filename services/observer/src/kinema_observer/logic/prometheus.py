"""Usage of pods as Prometheus keeps it: queries, answers, and steps of what workloads used.

The kubelet's metrics have the same names whether cAdvisor or its resource endpoint gives them. Two scrapes of one
container, such as by two replicas of Prometheus, are one: the larger. A pod is the sum of its containers.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from math import ceil, isfinite
from typing import Final, TypeAlias

import msgspec

from kinema_core.events import PodUsage, UsageResampled, UsageSampled
from kinema_core.model.cluster import Cluster
from kinema_observer.errors import PartialError, PrometheusError, TimedOutError, TooMuchError
from kinema_observer.logic.usage import STARTING, is_outlier, step_of

NAME: Final = "prometheus"
TOO_MUCH: Final = re.compile(r"too many (samples|points)|exceeded maximum resolution|limit", re.IGNORECASE)
"""How Prometheus, Thanos, Mimir and VictoriaMetrics word that a query wants more than they give at once."""
_TIMED_OUT: Final = re.compile(r"^(timeout|canceled): |deadline exceeded|timed out")
_CPU: Final = "container_cpu_usage_seconds_total"
_MEMORY: Final = "container_memory_working_set_bytes"
_CONTAINERS: Final = ('container!=""', 'container!="POD"')
"""Neither the sums of a pod and of a node, nor the container that holds a pod's network."""
_SHOWN: Final = 200

Samples: TypeAlias = Mapping[str, Mapping[int, float]]
"""Of each pod the values of steps: the n-th step ends n steps after the first instant asked for."""


class _Series(msgspec.Struct):
    metric: dict[str, str]
    values: list[tuple[float, str]] = []


class _Data(msgspec.Struct, rename="camel"):
    result_type: str = ""
    result: list[_Series] = []


class _Answer(msgspec.Struct, rename="camel"):
    status: str
    data: _Data | None = None
    error_type: str = ""
    error: str = ""
    warnings: list[str] | None = None


_ANSWERS: Final = msgspec.json.Decoder(_Answer)


def queries(step: timedelta, matchers: Mapping[str, str]) -> tuple[str, str]:
    """Return what asks for the CPU (cores) and the memory (bytes) of each pod in the step that ends at an instant."""
    own = [f"{name}={msgspec.json.encode(value).decode()}" for name, value in sorted(matchers.items())]
    chosen = f"{{{','.join([*_CONTAINERS, *own])}}}[{round(step.total_seconds())}s]"
    parts = (f"rate({_CPU}{chosen})", f"max_over_time({_MEMORY}{chosen})")
    cpu, memory = (f"sum by (namespace, pod) (max by (namespace, pod, container) ({part}))" for part in parts)
    return cpu, memory


def samples_of(body: bytes, *, status: int, first: datetime, step: timedelta) -> Samples:
    """Read the answer to a range query.

    Raises:
        TooMuchError: the query wanted too much. TimedOutError: it took too long. PartialError: the answer holds only a
            part. PrometheusError: anything else.
    """
    try:
        answer = _ANSWERS.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise PrometheusError(_foreign(status, body)) from error
    if answer.status != "success":
        text = f"{answer.error_type or 'error'}: {answer.error or 'no reason given'} (HTTP {status})"
        if _TIMED_OUT.search(text):
            raise TimedOutError(text)
        raise (TooMuchError if TOO_MUCH.search(answer.error) else PrometheusError)(text)
    if answer.warnings:
        raise PartialError(f"the answer is not whole: {'; '.join(answer.warnings)[:_SHOWN]}")
    if answer.data is None or answer.data.result_type != "matrix":
        raise PrometheusError(f"the answer to a range query is no matrix (HTTP {status})")
    begin, seconds = first.timestamp(), step.total_seconds()
    return {
        f"{series.metric['namespace']}/{series.metric['pod']}": {
            round((time - begin) / seconds): float(value) for time, value in series.values
        }
        for series in answer.data.result
        if series.metric.get("namespace") and series.metric.get("pod")
    }


def _foreign(status: int, body: bytes) -> str:
    """Return what to do about an answer that Prometheus would not give."""
    if status in {401, 403}:
        return f"access is denied (HTTP {status}): give a valid bearer token in `prometheus.token_file`"
    if 300 <= status < 400:
        return (
            f"the address answers with a redirect (HTTP {status}), as a login page does: name the server's own address"
        )
    if status == 404:
        return "no Prometheus API at this address (HTTP 404): give `prometheus.url` with the path before /api/v1"
    start = body[:_SHOWN].decode(errors="replace").strip()
    return f"the answer is not Prometheus' (HTTP {status}): {start or 'it is empty'}"


@dataclass(frozen=True)
class Pods:
    """Workloads of pods, also of those that are gone.

    The name of a pod that is gone shows its controller: the controller's name, a hash of the template where a
    Deployment is behind it, and five random characters or a number. Names that Kubernetes had to cut show nothing.
    """

    cluster: Cluster

    @cached_property
    def largest(self) -> Mapping[str, int]:
        """What no node has more of."""
        nodes = self.cluster.nodes
        names = ("cpu", "memory") if nodes else ()
        return {name: max(node.allocatable.get(name, 0) for node in nodes) for name in names}

    def workload_of(self, key: str) -> str | None:
        """Return the workload of a pod, by keys; None where it is unknown, or a workload that is gone."""
        pod = self.cluster.pod(key)
        if pod is not None:
            workload = self.cluster.controller_of(pod)
            return workload.key if workload is not None else None
        named = ((kind, pattern.fullmatch(key)) for kinds, pattern in _NAMES for kind in kinds)
        known = (self.cluster.workload(f"{kind}/{match[1]}") for kind, match in named if match is not None)
        return next((one.key for one in known if one is not None and one.owner is None), None)

    def is_starting(self, key: str, begin: datetime, *, is_new: bool) -> bool:
        """Return whether a pod was starting in the step that begins then."""
        pod = self.cluster.pod(key)
        if pod is None or pod.started is None:
            return is_new
        return begin < pod.started + STARTING

    def has(self, key: str) -> Mapping[str, int]:
        """Return what the node of a pod has; of one that is gone, what no node has more of."""
        pod = self.cluster.pod(key)
        node = self.cluster.node(pod.node) if pod is not None and pod.node is not None else None
        return node.allocatable if node is not None else self.largest


_ANY: Final = "[bcdfghjklmnpqrstvwxz2456789]"
"""Characters that Kubernetes draws for names."""
_NAMES: Final = (
    (("DaemonSet", "ReplicaSet", "ReplicationController"), re.compile(rf"(.+)-{_ANY}{{5}}")),
    (("StatefulSet",), re.compile(r"(.+)-\d+")),
    (("Deployment",), re.compile(rf"(.+)-{_ANY}{{1,10}}-{_ANY}{{5}}")),
)
"""How controllers name pods, `namespace/name`."""


@dataclass(frozen=True)
class _Step:
    """Valid samples of one step: millicores and bytes of each pod."""

    pods: Mapping[str, tuple[int | None, int]]
    dropped: int


def _step(number: int, cpu: Samples, memory: Samples, pods: Pods, begin: datetime) -> _Step:
    found: dict[str, tuple[int | None, int]] = {}
    dropped = 0
    for key, values in memory.items():
        amount = values.get(number)
        if amount is None:
            continue
        has, cores = pods.has(key), cpu.get(key, {}).get(number)
        if not all(isfinite(value) and value >= 0 for value in (amount, cores or 0.0)) or is_outlier(
            has, (cores or 0.0) * 1000, amount
        ):
            dropped += 1
            continue
        is_starting = cores is None or pods.is_starting(key, begin, is_new=number - 1 not in values)
        # The last bits of a sum of rates are noise: they are no millicore more.
        milli = None if cores is None or is_starting else ceil(round(cores * 1000, 3))
        found[key] = (milli, ceil(amount))
    return _Step(found, dropped)


def steps_of(
    cpu: Samples, memory: Samples, pods: Pods, *, first: datetime, step: timedelta, count: int
) -> Iterator[UsageResampled]:
    """Return the steps that have samples.

    Args:
        cpu: cores of each pod; step 0 lies before the first one wanted and shows which pods were there.
        memory: bytes of each pod.
        pods: whose they are.
        first: when step 0 ends.
        step: its length.
        count: steps wanted, from step 1 on.
    """
    workloads = {key: pods.workload_of(key) for key in memory}
    for number in range(1, count + 1):
        begin = first + (number - 1) * step
        valid = _step(number, cpu, memory, pods, begin)
        rows: dict[str, list[tuple[int | None, int]]] = defaultdict(list)
        for key, used in valid.pods.items():
            workload = workloads[key]
            if workload is not None:
                rows[workload].append(used)
        made = step_of(rows, start=begin, step=step, source=NAME, dropped=valid.dropped)
        if made is not None:
            yield made


def reading_of(
    cpu: Samples, memory: Samples, pods: Pods, *, first: datetime, step: timedelta, count: int
) -> UsageSampled:
    """Return what the pods that there are used in the last step."""
    begin = first + (count - 1) * step
    used = _step(count, cpu, memory, pods, begin).pods
    known = ((pods.cluster.pod(key), *amounts) for key, amounts in sorted(used.items()))
    return UsageSampled(
        sampled=begin + step,
        window_seconds=step.total_seconds(),
        pods=tuple(
            PodUsage(pod=pod.key, uid=pod.uid, cpu=milli or 0, memory=memory_)
            for pod, milli, memory_ in known
            if pod is not None
        ),
    )
