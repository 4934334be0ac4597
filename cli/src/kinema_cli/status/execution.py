"""Progress of the newest execution, and what it most probably waits for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec

from kinema_core.events import (
    EMPTY,
    AbortRequested,
    Event,
    ExecutionAborted,
    ExecutionCompleted,
    Figures,
    Placement,
    Plan,
    PlanAccepted,
    Pod,
    Step,
    StepFailed,
    StepStarted,
    StepSucceeded,
    Workload,
)
from kinema_core.model.cluster import Cluster
from kinema_core.runtime.bus import Bus, Stored
from kinema_rescheduler.moves.decision import Blocked
from kinema_rescheduler.names import ABORT, REPLAN, is_verdict

QUIET_SECONDS: Final = 20.0
"""After so long without a step that began or ended, the status shows why."""
_MOST: Final = 6
"""Things that are named; the rest is counted."""
_MOVING: Final = frozenset({"surge-up", "evict", "roll", "revert"})


class FailedStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step that did not succeed so far."""

    step: str
    reason: str
    detail: str
    retry: bool
    """True if it will be repeated; no step is after the plan's end."""


class Skipped(msgspec.Struct, frozen=True, kw_only=True):
    """A node that is not deleted, or a workload that is not moved further: a decision, not a failure."""

    what: str
    reason: str
    detail: str


class AbortStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The operator's request to abort the running plan."""

    by: str
    asked: datetime
    reason: str = ""


class ExecutionStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The newest execution."""

    plan: str
    accepted: datetime
    phase: str
    """`Running`, `Completed` or `Aborted`."""
    done: int
    running: tuple[Step, ...]
    failed: tuple[FailedStep, ...]
    skipped: tuple[Skipped, ...] = ()
    last_progress_time: datetime
    """When a step last began or ended; before the first, when the plan was accepted."""
    blocked_on: tuple[str, ...] = ()
    """Probable causes of the wait, where no step is running, or none began or ended for a while."""
    pending_pods: tuple[str, ...] = ()
    """Pods without a node that the plan has no place for, where no step began or ended for a while: no other plan is
    executed before its end."""
    abort: AbortStatus | None = None
    """A requested abort, as long as the plan has not ended."""
    reason: str = ""
    leftovers: tuple[str, ...] = ()
    figures: Figures = EMPTY


class Steps(msgspec.Struct, frozen=True):
    """The steps of one plan: those that were started, by id, and how the latest attempt ended."""

    intended: Mapping[str, Step]
    settled: Mapping[str, StepSucceeded | StepFailed]
    newest: datetime | None

    @property
    def open(self) -> tuple[Step, ...]:
        """Steps whose outcome is not known."""
        return tuple(step for key, step in self.intended.items() if key not in self.settled)

    @property
    def done(self) -> Mapping[str, StepSucceeded]:
        """Steps that succeeded, by id."""
        return {key: body for key, body in self.settled.items() if isinstance(body, StepSucceeded)}


def steps_of(plan: str, events: list[Event]) -> Steps:
    """Return the steps of a plan among these events."""
    intended: dict[str, Step] = {}
    settled: dict[str, StepSucceeded | StepFailed] = {}
    newest = None
    for event in events:
        body = event.body
        if not isinstance(body, StepStarted | StepSucceeded | StepFailed) or body.plan != plan:
            continue
        newest = event.time
        if isinstance(body, StepStarted):
            intended[body.step.id] = body.step
            # A new attempt replaces an old failure.
            settled.pop(body.step.id, None)
        else:
            settled[body.step] = body
    return Steps(intended, settled, newest)


def execution_of(newest: Mapping[str, Stored], events: list[Event]) -> ExecutionStatus | None:
    """Return the execution by the newest event of each kind, and the steps and ends since the plan was accepted."""
    item = newest.get("plan-accepted")
    if item is None or not isinstance(item.event.body, PlanAccepted):
        return None
    plan = item.event.body.plan
    steps = steps_of(plan, events)
    # Not the newest end of all: deletions of single nodes that the observer asks for end, too.
    ends = [event.body for event in events if isinstance(event.body, ExecutionCompleted | ExecutionAborted)]
    ended = next((body for body in ends if body.plan == plan), None)
    over = ended is not None
    aborted = ended if isinstance(ended, ExecutionAborted) else None
    failed = [body for body in steps.settled.values() if isinstance(body, StepFailed)]
    left = [body for body in failed if body.step not in {ABORT, REPLAN} and is_verdict(body.step)]
    return ExecutionStatus(
        plan=plan,
        accepted=item.event.time,
        phase="Aborted" if aborted is not None else "Completed" if over else "Running",
        done=len(steps.done),
        running=() if over else steps.open,
        failed=tuple(
            FailedStep(step=body.step, reason=body.reason, detail=body.detail, retry=body.retry and not over)
            for body in failed
            if body not in left
        ),
        skipped=tuple(
            Skipped(what=body.step.partition("/")[2], reason=body.reason, detail=body.detail) for body in left
        ),
        last_progress_time=steps.newest or item.event.time,
        abort=None if over else _abort(newest, item.sequence),
        reason=f"{aborted.reason}: {aborted.detail}" if aborted is not None else "",
        leftovers=aborted.leftovers if aborted is not None else (),
        figures=ended.figures if ended is not None else EMPTY,
    )


async def unended(bus: Bus) -> str:
    """Return the id of the plan that runs by the log; empty where none does."""
    begun = await bus.last("LOG", "plan-accepted")
    if not isinstance(begun, Stored) or not isinstance(begun.event.body, PlanAccepted):
        return ""
    ends = [await bus.last("LOG", kind) for kind in ("execution-completed", "execution-aborted")]
    over = any(end is not None and end.sequence > begun.sequence for end in ends)
    return "" if over else begun.event.body.plan


def _abort(newest: Mapping[str, Stored], accepted: int) -> AbortStatus | None:
    item = newest.get("abort-requested")
    if item is None or item.sequence < accepted or not isinstance(item.event.body, AbortRequested):
        return None
    return AbortStatus(by=item.event.body.by, asked=item.event.time, reason=item.event.body.reason)


def blocked_on(steps: Steps, plan: Plan | None, cluster: Cluster, blocked: Sequence[Blocked] = ()) -> tuple[str, ...]:
    """Return what must change before the plan continues, the likeliest first.

    `blocked` is what the rescheduler's own logic reports of moves that have not begun.
    """
    keys = {step.target for step in steps.intended.values() if step.kind in _MOVING}
    keys |= _planned(plan, cluster)
    workloads = [found for key in sorted(keys) if (found := cluster.workload(key)) is not None]
    held_up = [
        *(f"{one.workload} cannot be moved yet: {one.reason}: {one.detail}" for one in blocked),
        *_nodes_to_come(steps, cluster),
        *_nodes_to_fill(plan, steps, cluster),
        *(text for workload in workloads for text in _held_up(workload, steps)),
        *_pods_to_come(workloads, cluster),
        *_nodes_to_go(steps, cluster),
    ]
    return (*held_up[:_MOST], *([f"{len(held_up) - _MOST} more"] if len(held_up) > _MOST else []))


def pending_pods(steps: Steps, plan: Plan | None, cluster: Cluster) -> tuple[str, ...]:
    """Return keys of pods without a node for which neither the plan nor its moves have a place."""
    known = {place.uid for place in plan.placements} if plan is not None else set()
    moving = {step.target for step in steps.intended.values() if step.kind in _MOVING}
    return tuple(
        pod.key
        for pod in sorted(cluster.pods, key=lambda one: one.key)
        if pod.node is None
        and pod.unschedulable
        and not (pod.terminating or pod.rules.gated or pod.uid in known)
        and cluster.workload_key_of(pod) not in moving
    )


def _planned(plan: Plan | None, cluster: Cluster) -> set[str]:
    """Return workloads of which the plan moves or restarts an existing pod."""
    pods = [cluster.pods_by_uid.get(place.uid) for place in _moves(plan)]
    keys = {cluster.controller_key_of(pod) for pod in pods if pod is not None}
    return {key for key in keys if key is not None}


def _moves(plan: Plan | None) -> list[Placement]:
    placements = plan.placements if plan is not None else ()
    return [place for place in placements if place.strategy not in {"stay", "schedule"}]


def _nodes_to_fill(plan: Plan | None, steps: Steps, cluster: Cluster) -> Iterator[str]:
    """Yield nodes that cannot take their planned pods, except those that are being launched."""
    booting = set() if _marking(steps) else {step.target for step in steps.intended.values() if step.kind == "boot"}
    for name in sorted({place.to for place in _moves(plan)} - booting):
        node = cluster.node(name)
        if node is not None and node.unschedulable:
            yield f"node {name} is to take pods and is cordoned; run `kubectl uncordon {name}`"
        elif node is not None and not node.ready:
            yield f"node {name} is to take pods and is not Ready"


def _marking(steps: Steps) -> bool:
    """Return whether all nodes were launched."""
    return any(step.kind == "taint" for step in steps.intended.values())


def _nodes_to_come(steps: Steps, cluster: Cluster) -> Iterator[str]:
    for key, body in steps.done.items():
        step = steps.intended.get(key)
        if step is None or step.kind != "boot" or _marking(steps):
            continue
        name = str(body.figures.get("node", step.target))
        node = cluster.node(name)
        if node is None or not node.ready:
            yield f"node {name} was launched and {'has not registered' if node is None else 'is not Ready'}"


def _held_up(workload: Workload, steps: Steps) -> Iterator[str]:
    # Kinema has paused it.
    finishing = {step.target for step in steps.open if step.kind in {"finalize-rollout", "resize"}}
    if workload.paused and workload.key not in finishing:
        resume = f"kubectl -n {workload.namespace} rollout resume deployment/{workload.name}"
        yield f"{workload.key} is paused; its pods are replaced after `{resume}`"
    if workload.refused:
        yield f"{workload.key}: its controller cannot create pods: {workload.refused}"


def _pods_to_come(workloads: list[Workload], cluster: Cluster) -> Iterator[str]:
    """Yield pods that are not Ready; those that fit nowhere first."""
    waiting: list[Pod] = []
    for workload in workloads:
        pods = cluster.pods_by_workload.get(workload.key, ())
        waiting += [pod for pod in pods if not pod.ready and not pod.terminating]
    for pod in sorted(waiting, key=lambda one: (not one.unschedulable, one.node is not None, one.key)):
        if pod.unschedulable:
            why = f"see `kubectl -n {pod.namespace} describe pod {pod.name}`"
            yield f"pod {pod.key} is Pending: kube-scheduler finds no node for it; {why}"
        elif pod.node is None:
            yield f"pod {pod.key} is Pending: it has no node yet"
        else:
            yield f"pod {pod.key} on node {pod.node} is not Ready"
    for workload in workloads:
        there = len([pod for pod in cluster.pods_by_workload.get(workload.key, ()) if not pod.terminating])
        if there < workload.replicas and not workload.refused:
            yield f"{workload.key} has {there} of {workload.replicas} pods"


def _nodes_to_go(steps: Steps, cluster: Cluster) -> Iterator[str]:
    """Yield deleted nodes that still exist, and pods that do not end on nodes to be deleted."""
    for key in steps.done:
        step = steps.intended.get(key)
        if step is not None and step.kind == "delete" and cluster.node(step.target) is not None:
            yield f"node {step.target} was deleted and still exists"
    leaving = {step.target for step in steps.intended.values() if step.kind in {"taint", "delete"}}
    for name in sorted(leaving):
        for pod in cluster.pods_by_node.get(name, ()):
            if pod.terminating:
                yield f"pod {pod.key} on node {name} has not ended yet"
