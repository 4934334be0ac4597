"""The observer loop: what to ask for at one tick, and why not more.

Pure: the folded cluster, the folded log, the time and what the last tick remembered go in, a decision comes out.
Source: algorithms 3 and 4 of the thesis.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from kinema_core.events import (
    POD_WAITS,
    FrozenMap,
    IterationSkipped,
    IterationStarted,
    Node,
    NodeDeletionRequested,
    Pod,
)
from kinema_core.model.ahead import more_within
from kinema_core.model.cluster import Cluster
from kinema_core.model.daemons import is_resident
from kinema_core.model.quarantine import quarantine_of
from kinema_core.model.restless import restless_workloads
from kinema_observer.logic.logview import AHEAD, Ended, Iteration, LogView, Unfinished
from kinema_observer.logic.settings import LoopSettings
from kinema_observer.logic.stability import Refusal, contradiction, refusal, unrest, unschedulable

DISRUPTED: Final = "kinema.io/disrupted"
"""Label of the nodes that a running plan empties."""


_MOST_IDLE: Final = 5
"""Executions in a row that end early, save nothing and leave no fewer moves; then the next plan waits for calm."""


@dataclass(frozen=True)
class Memory:
    """State from one tick to the next: the time since which the cluster is stable. A restart starts it again."""

    stable_since: datetime | None = None


@dataclass(frozen=True)
class Decision:
    """Events to publish, in this order, and what to remember. At most one of `start` and `skip` is there."""

    memory: Memory
    deletions: tuple[NodeDeletionRequested, ...] = ()
    iteration: str = ""
    """Id of the iteration that begins."""
    start: IterationStarted | None = None
    skip: IterationSkipped | None = None


@dataclass(frozen=True)
class _Moment:
    cluster: Cluster
    view: LogView
    now: datetime
    settings: LoopSettings
    running: tuple[Iteration, ...]


def tick(
    cluster: Cluster,
    view: LogView,
    *,
    now: datetime,
    memory: Memory,
    settings: LoopSettings,
    blind: tuple[str, ...] = (),
) -> Decision:
    """Decide at `now`. `blind` names what the source cannot see just now: then nothing is decided.

    Nor is anything asked for on a state that contradicts itself.
    """
    moment = _Moment(cluster, view, now, settings, view.running(now, settings))
    if blind:
        return Decision(Memory(), skip=_skip(moment, refusal("state-unknown", missing=", ".join(blind))))
    decision = _decide(moment, memory)
    if decision.start is None and not decision.deletions:
        return decision
    found = contradiction(cluster, settings.missing_share)
    return decision if found is None else Decision(Memory(), skip=_skip(moment, found))


def _decide(moment: _Moment, memory: Memory) -> Decision:
    """Return what to ask for on a state that is believed."""
    cluster, view, settings, now = moment.cluster, moment.view, moment.settings, moment.now
    restless = unrest(cluster, moment.running, settings.max_restless_fraction, _hopeless(moment))
    memory = Memory() if restless is not None else Memory(memory.stable_since or now)
    empty, occupied = _disrupted_nodes(cluster)
    deletions = _deletions(moment, empty)
    waits = occupied or _coming_up(moment)
    start = _autoscale(moment) or _prepare(moment) or (_continue(moment) if waits is None else None)
    if start is None:
        obstacle = waits or _obstacle(moment, restless, memory)
        if obstacle is not None:
            return Decision(memory, deletions, skip=_skip(moment, obstacle))
        start = _reschedule(moment, memory)
    return Decision(memory, deletions, iteration=_iteration_id(view, cluster.version), start=start)


def _iteration_id(view: LogView, version: int) -> str:
    """`it-<version>`, with a number behind it from the second one on the same version on."""
    last, count = view.started
    return f"it-{version}-{count + 1}" if last == version else f"it-{version}"


def _skip(moment: _Moment, why: Refusal) -> IterationSkipped | None:
    """Return the refusal as an event; None while the same reason was published recently."""
    if moment.view.skipped is not None:
        reason, at = moment.view.skipped
        repeat = timedelta(seconds=moment.settings.skip_repeat_seconds)
        if reason == why.reason and moment.now - at < repeat:
            return None
    return IterationSkipped(version=moment.cluster.version, reason=why.reason, figures=why.figures)


# --- disrupted nodes


def _disrupted_nodes(cluster: Cluster) -> tuple[tuple[Node, ...], Refusal | None]:
    """Return the disrupted nodes without evictable pods, and the refusal that one with such pods causes.

    Terminating pods count: they still run. A pod that could not be read counts on its node, or on every node.
    """
    marked = [node for node in cluster.nodes if DISRUPTED in node.labels]
    if not marked:
        return (), None
    unreadable = quarantine_of(cluster).nodes
    left = {
        node.name: sum(not is_resident(cluster, pod) for pod in cluster.pods_by_node.get(node.name, ()))
        + (node.name in unreadable)
        for node in marked
    }
    occupied = [node for node in marked if left[node.name]]
    empty = tuple(node for node in marked if not left[node.name])
    if not occupied:
        return empty, None
    first = occupied[0].name
    return empty, refusal("disrupted-node-occupied", node=first, pods=left[first], nodes=len(occupied))


def _deletions(moment: _Moment, nodes: tuple[Node, ...]) -> tuple[NodeDeletionRequested, ...]:
    repeat = timedelta(seconds=moment.settings.deletion_repeat_seconds)
    asked = moment.view.requested
    return tuple(
        NodeDeletionRequested(node=node.name, uid=node.uid, version=moment.cluster.version)
        for node in nodes
        if node.uid not in asked or moment.now - asked[node.uid] >= repeat
    )


# --- autoscale


def _autoscale(moment: _Moment) -> IterationStarted | None:
    """Return an autoscale iteration for the unschedulable pods that none covers, nor has covered a moment ago.

    None while a plan is being executed: Kinema executes one at a time, and the decider would refuse a second one.
    """
    waiting = unschedulable(moment.cluster)
    if not waiting or any(item.phase == "executing" for item in moment.running):
        return None
    covered = {pod for item in moment.running if item.mode == "autoscale" for pod in item.pods}
    recent = {pod for item in moment.view.autoscaled if moment.now - item.at < _rest(moment, item) for pod in item.pods}
    pods = tuple(pod for pod in waiting if pod not in covered and pod not in recent)
    if not pods:
        return None
    figures = {"unschedulable": len(waiting), "uncovered": len(pods)}
    return IterationStarted(
        mode="autoscale",
        version=moment.cluster.version,
        reason="unschedulable-pods",
        figures=FrozenMap(figures),
        pods=pods,
        purpose="room",
    )


def _prepare(moment: _Moment) -> IterationStarted | None:
    """Return an iteration for replicas that are expected before a node ordered now would be Ready; once in a step.

    It is an autoscale iteration without pods: it moves nothing, and its plan buys room where there is too little.
    """
    view, now = moment.view, moment.now
    if view.ahead is None or any(item.mode == "autoscale" or item.phase == "executing" for item in moment.running):
        return None
    if view.prepared is not None and (now - view.prepared).total_seconds() < view.ahead.step_seconds:
        return None
    seconds = float(view.boot_times.seconds()) + moment.settings.ahead_margin_seconds
    more = more_within(view.ahead, moment.cluster, now, seconds)
    if not more:
        return None
    figures = {"expected": sum(more.values()), "workloads": len(more), "within_seconds": round(seconds, 3)}
    return IterationStarted(
        mode="autoscale",
        version=moment.cluster.version,
        reason=AHEAD,
        figures=FrozenMap(figures),
        purpose="room",
    )


def _hopeless(moment: _Moment) -> frozenset[str]:
    """Pods without a place for which an autoscale iteration, if not an untimely one, has brought none."""
    tried = frozenset(pod for item in moment.view.autoscaled if not item.untimely for pod in item.pods)
    return tried.intersection(unschedulable(moment.cluster)) if tried else tried


def _rest(moment: _Moment, item: Ended) -> timedelta:
    """Return how long pods wait after an iteration for them ended.

    An untimely plan brought them nothing, and what came first soon shows its effect: there the settle time is enough.
    """
    settings = moment.settings
    longest = settings.autoscale_retry_seconds
    return timedelta(seconds=min(longest, settings.stabilization_window_seconds) if item.untimely else longest)


# --- reschedule


def _due(moment: _Moment) -> Unfinished | None:
    """Return the plan that ended just now and left a rest to be planned; None after too many in a row did nothing."""
    rest, settings = moment.view.unfinished, moment.settings
    if rest is None or not rest.due or rest.idle >= _MOST_IDLE or moment.running:
        return None
    since = _seconds_since(rest.at, moment.now) or 0.0
    longest = settings.iteration_deadline_seconds + settings.stabilization_window_seconds
    return rest if since <= longest else None


def _coming_up(moment: _Moment) -> Refusal | None:
    """Return the refusal while new pods come up after a plan that left a rest.

    Planned before that, the rest would hold all pods of a workload of which one is not Ready. Pods that have not been
    Ready for long are waited for only where the plan ended for one that waited: it may have had no node for long.
    """
    rest, window = _due(moment), moment.settings.stabilization_window_seconds
    if rest is None or (passed := _seconds_since(rest.at, moment.now) or 0.0) >= window:
        return None
    restless = restless_workloads(moment.cluster)
    found = sorted(
        key
        for key, why in restless.items()
        if why.code == "not-ready" and (rest.reason == POD_WAITS or _has_new_pod(moment, key))
    )
    if not found:
        return None
    return refusal("pods-coming-up", workload=found[0], workloads=len(found), passed_seconds=passed)


def _has_new_pod(moment: _Moment, workload: str) -> bool:
    """Return whether a pod that is not Ready came to its node a moment ago, and has not failed there."""
    since = moment.now - timedelta(seconds=moment.settings.stabilization_window_seconds)
    return any(
        pod.node is not None and not (pod.ready or pod.restarts or pod.terminating or (pod.started or since) < since)
        for pod in moment.cluster.pods_by_workload.get(workload, ())
    )


def _continue(moment: _Moment) -> IterationStarted | None:
    """Return an iteration for what remains of the plan that ended just now; None where nothing does.

    It waits neither for calm nor for the interval: the cluster is as the plan has left it.
    """
    rest = _due(moment)
    if rest is None:
        return None
    figures = {"seconds_since_end": _seconds_since(rest.at, moment.now) or 0.0, "idle": rest.idle}
    return IterationStarted(
        mode="reschedule",
        version=moment.cluster.version,
        reason=f"rest-after-{rest.reason}",
        figures=FrozenMap(figures),
        purpose="saving",
        continues=rest.plan,
    )


def _obstacle(moment: _Moment, restless: Refusal | None, memory: Memory) -> Refusal | None:
    """Return the first obstacle to a reschedule iteration, in the order in which they are reported; None if free."""
    return _iteration_running(moment) or restless or _settling(moment, memory) or _too_soon(moment)


def _iteration_running(moment: _Moment) -> Refusal | None:
    if not moment.running:
        return None
    first = moment.running[0]
    return refusal(
        "iteration-running",
        iteration=first.id,
        mode=first.mode,
        phase=first.phase,
        phase_seconds=_seconds_since(first.since, moment.now) or 0.0,
        iterations=len(moment.running),
    )


def _settling(moment: _Moment, memory: Memory) -> Refusal | None:
    stable = _seconds_since(memory.stable_since, moment.now)
    if stable is not None and stable >= moment.settings.stabilization_window_seconds:
        return None
    return refusal(
        "settling",
        stable_seconds=stable or 0.0,
        stabilization_window_seconds=moment.settings.stabilization_window_seconds,
    )


def _too_soon(moment: _Moment) -> Refusal | None:
    passed = _seconds_since(moment.view.rescheduled, moment.now)
    if passed is None or passed >= moment.settings.reschedule_interval_seconds:
        return None
    interval = moment.settings.reschedule_interval_seconds
    return refusal("reschedule-recent", passed_seconds=passed, interval_seconds=interval)


def _reschedule(moment: _Moment, memory: Memory) -> IterationStarted:
    figures = {
        "stable_seconds": _seconds_since(memory.stable_since, moment.now) or 0.0,
        "nodes": len(moment.cluster.nodes),
        "pods": len(moment.cluster.objects.get(Pod.__name__, {})),
    }
    return IterationStarted(
        mode="reschedule",
        version=moment.cluster.version,
        reason="stable",
        figures=FrozenMap(figures),
        purpose="saving",
    )


def _seconds_since(then: datetime | None, now: datetime) -> float | None:
    return None if then is None else round((now - then).total_seconds(), 3)
