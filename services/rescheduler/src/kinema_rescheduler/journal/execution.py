"""The journal: every execution as a fold over the log, so that a restart forgets nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Final, Literal

from msgspec import structs

from kinema_core.events import (
    EMPTY,
    AbortRequested,
    CatalogPublished,
    Cost,
    Event,
    ExecutionAborted,
    ExecutionCompleted,
    ExecutionPaused,
    ExecutionResumed,
    Figures,
    NodeDeletionRequested,
    Plan,
    PlanAccepted,
    PlanNode,
    Solve,
    Step,
    StepFailed,
    StepStarted,
    StepSucceeded,
)
from kinema_rescheduler.names import ABORT, NODE, is_verdict

FOLLOWED: Final = (
    "plan-proposed",
    "plan-accepted",
    "catalog-published",
    "node-deletion-requested",
    "step-started",
    "step-succeeded",
    "step-failed",
    "execution-completed",
    "execution-aborted",
    "abort-requested",
    "execution-paused",
    "execution-resumed",
)
"""Kinds of log events that the journal folds."""

_PROPOSALS_KEPT: Final = 16
_REQUESTS_KEPT: Final = 256


@dataclass(frozen=True)
class Progress:
    """State of a step: its latest attempt and how that ended."""

    step: Step
    attempt: int
    first: datetime
    """When the first attempt was intended."""
    intended: datetime
    deadline: datetime
    state: Literal["open", "done", "failed"] = "open"
    result: str = ""
    """How it ended: `done`, `adopted`, `void`, or the reason of its failure."""
    detail: str = ""
    retry: bool = False
    ended: datetime | None = None
    figures: Figures = EMPTY

    @property
    def over(self) -> bool:
        """Done, or failed for good."""
        return self.state == "done" or (self.state == "failed" and not self.retry)

    @property
    def lost(self) -> bool:
        """Failed for good."""
        return self.state == "failed" and not self.retry

    def since(self, now: datetime) -> timedelta:
        """Time since the latest attempt ended; zero while it is open."""
        return now - self.ended if self.ended is not None else timedelta()


@dataclass(frozen=True)
class Verdict:
    """A decision to give something up."""

    reason: str
    detail: str
    time: datetime


@dataclass(frozen=True)
class Execution:
    """One plan under execution."""

    cause: Event
    """The acceptance, or the request to delete one node: ids of all its events derive from it."""
    plan_id: str
    plan: Plan | None
    """None when its proposal is not in the log any more."""
    steps: Mapping[str, Progress] = field(default_factory=lambda: MappingProxyType({}))
    """By step id, in the order of first intents."""
    verdicts: Mapping[str, Verdict] = field(default_factory=lambda: MappingProxyType({}))
    abort: Verdict | None = None
    """The operator's wish to give it up."""

    @property
    def ending(self) -> bool:
        """Return whether the plan was aborted, by an operator or by the rescheduler."""
        return self.abort is not None or ABORT in self.verdicts

    def progress(self, step_id: str) -> Progress | None:
        """Return where that step stands; None before its first intent."""
        return self.steps.get(step_id)

    @property
    def open_steps(self) -> tuple[Progress, ...]:
        """Steps whose outcome is not known."""
        return tuple(progress for progress in self.steps.values() if progress.state == "open")


@dataclass(frozen=True)
class Journal:
    """Everything that the rescheduler knows from the log."""

    proposals: Mapping[str, Plan] = field(default_factory=lambda: MappingProxyType({}))
    """The last proposals by event id."""
    active: Execution | None = None
    waiting: tuple[Execution, ...] = ()
    """Accepted plans behind the active one."""
    requests: Mapping[str, Event] = field(default_factory=lambda: MappingProxyType({}))
    """Requests to delete single nodes, by node name."""
    paused: bool = False
    """Whether the operator wants no new execution: requests to delete single nodes pass no decider."""
    catalog: Event | None = None
    closed: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Nodes that plans have closed and neither opened nor deleted: uids by name. No other is deleted on request."""
    fencing: int = 0
    """The highest lease revision that acted."""


def fold(journal: Journal, event: Event) -> Journal:  # noqa: PLR0911 - one return per kind of event
    """Fold one log event; those that mean nothing here leave the journal as it is."""
    match event.body:
        case Plan() as plan:
            return replace(journal, proposals=_newest(journal.proposals, event.id, plan, _PROPOSALS_KEPT))
        case PlanAccepted(plan=plan_id):
            return _enqueued(journal, Execution(cause=event, plan_id=plan_id, plan=journal.proposals.get(plan_id)))
        case CatalogPublished():
            return replace(journal, catalog=event)
        case NodeDeletionRequested() as request:
            return _requested(journal, event, request)
        case ExecutionPaused() | ExecutionResumed():
            return replace(journal, paused=isinstance(event.body, ExecutionPaused))
        case AbortRequested() as wish:
            detail = f"{wish.by}: {wish.reason}" if wish.reason else f"{wish.by} gave no reason"
            return _abort(journal, Verdict(reason="operator", detail=detail, time=event.time))
        case ExecutionCompleted(plan=plan_id) | ExecutionAborted(plan=plan_id):
            return _ended(_fenced(journal, event.body.fencing), plan_id)
        case StepStarted() | StepSucceeded() | StepFailed():
            return _stepped(_fenced(journal, event.body.fencing), event.body, event.time)
        case _:
            return journal


def _newest(kept: Mapping[str, Plan], key: str, plan: Plan, most: int) -> Mapping[str, Plan]:
    grown = {**kept, key: plan}
    for oldest in list(grown)[: max(0, len(grown) - most)]:
        del grown[oldest]
    return MappingProxyType(grown)


def _fenced(journal: Journal, fencing: int) -> Journal:
    return replace(journal, fencing=max(journal.fencing, fencing))


def _enqueued(journal: Journal, execution: Execution) -> Journal:
    if journal.active is None:
        return replace(journal, active=execution)
    known = {journal.active.cause.id, *(other.cause.id for other in journal.waiting)}
    return journal if execution.cause.id in known else replace(journal, waiting=(*journal.waiting, execution))


def _requested(journal: Journal, event: Event, request: NodeDeletionRequested) -> Journal:
    """Note a request, unless the active plan deletes the node and sees for itself when it is empty."""
    plan = journal.active.plan if journal.active is not None else None
    if plan is not None and request.node in _deleted_by(plan):
        return journal
    kept = {name: other for name, other in journal.requests.items() if name != request.node}
    kept[request.node] = event
    for oldest in list(kept)[: max(0, len(kept) - _REQUESTS_KEPT)]:
        del kept[oldest]
    return replace(journal, requests=MappingProxyType(kept))


def _deleted_by(plan: Plan) -> frozenset[str]:
    planned = (node.name for node in plan.nodes if node.action == "delete")
    return frozenset(planned) | {node.name for node in plan.temporary}


def _abort(journal: Journal, verdict: Verdict) -> Journal:
    """Abort what runs now; a second request changes nothing."""
    if journal.active is None or journal.active.abort is not None:
        return journal
    return replace(journal, active=replace(journal.active, abort=verdict))


def _ended(journal: Journal, plan_id: str) -> Journal:
    requests = {name: event for name, event in journal.requests.items() if event.id != plan_id}
    journal = replace(journal, requests=MappingProxyType(requests))
    if journal.active is None or journal.active.plan_id != plan_id:
        return replace(journal, waiting=tuple(other for other in journal.waiting if other.plan_id != plan_id))
    following = journal.waiting[0] if journal.waiting else None
    return replace(journal, active=following, waiting=journal.waiting[1:])


def of_request(event: Event) -> Execution:
    """Return the execution that deletes one node on the observer's request: a plan of one line."""
    assert isinstance(event.body, NodeDeletionRequested)
    plan = _plan([_node(event.body.node, "delete")], method="node-deletion-requested", base_version=event.body.version)
    return Execution(cause=event, plan_id=event.id, plan=plan)


def plan_of_steps(execution: Execution) -> Plan:
    """Return what the steps of an execution say of a plan that cannot be read: which nodes it booted and closed."""
    steps = [progress.step for progress in execution.steps.values()]
    offers = {step.target: step.offer for step in steps if step.kind == "boot"}
    closed = {step.target for step in steps if step.kind == "taint"} - offers.keys()
    booted = [_node(name, "boot", offer) for name, offer in sorted(offers.items())]
    return _plan([*booted, *(_node(name, "delete") for name in sorted(closed))], method="unknown", base_version=0)


def _node(name: str, action: Literal["boot", "delete"], offer: str = "") -> PlanNode:
    return PlanNode(
        name=name, machine_type="-", zone="-", capacity_type="-", offer=offer, usd_per_hour=0.0, action=action
    )


def _plan(nodes: Iterable[PlanNode], *, method: str, base_version: int) -> Plan:
    """Return a plan that moves nothing."""
    return Plan(
        status="feasible",
        cost=Cost(before=0.0, after=0.0, lower_bound=0.0, gap=0.0),
        nodes=tuple(nodes),
        placements=(),
        moves=0,
        restarts=0,
        solve=Solve(seconds=0.0, first_feasible_seconds=None, method=method, seed=0),
        base_version=base_version,
    )


def _stepped(journal: Journal, body: StepStarted | StepSucceeded | StepFailed, time: datetime) -> Journal:
    journal = _begun(journal, body.plan)
    active = journal.active
    if active is None or active.plan_id != body.plan:
        return journal
    if isinstance(body, StepFailed) and is_verdict(body.step):
        verdict = Verdict(reason=body.reason, detail=body.detail, time=time)
        verdicts = {**active.verdicts}
        verdicts.setdefault(body.step, verdict)
        return replace(journal, active=replace(active, verdicts=MappingProxyType(verdicts)))
    if isinstance(body, StepFailed) and body.fencing < journal.fencing:
        return journal  # the late word of a former holder: its successor makes the effect again
    steps = dict(active.steps)
    if isinstance(body, StepStarted):
        steps[body.step.id] = _intended(steps.get(body.step.id), body, time)
    else:
        before = steps.get(body.step)
        if before is not None and before.state == "open":
            steps[body.step] = _settled(before, body, time)
    active = replace(active, steps=MappingProxyType(steps))
    if isinstance(body, StepSucceeded):
        journal = replace(journal, closed=_closed(journal.closed, steps.get(body.step)))
    if isinstance(body, StepSucceeded) and body.step.startswith("boot/"):
        active = _renamed(active, body.step.removeprefix("boot/"), body.figures.get(NODE))
    return replace(journal, active=active)


def _closed(closed: Mapping[str, str], ended: Progress | None) -> Mapping[str, str]:
    """Return which nodes are closed after a step of which the effect was made."""
    if ended is None or ended.step.kind not in {"taint", "untaint", "delete"}:
        return closed
    others = {name: uid for name, uid in closed.items() if name != ended.step.target}
    mine = {ended.step.target: ended.step.uid} if ended.step.kind == "taint" and ended.result != "void" else {}
    return MappingProxyType({**others, **mine})


def _renamed(execution: Execution, planned: str, registered: object) -> Execution:
    """Put a machine with a name of its own in the planned node's place."""
    if not isinstance(registered, str):
        return execution
    steps = {
        (step := _renamed_step(progress.step, planned, registered)).id: replace(progress, step=step)
        for progress in execution.steps.values()
    }
    plan = _renamed_plan(execution.plan, planned, registered) if execution.plan is not None else None
    return replace(execution, plan=plan, steps=MappingProxyType(steps))


def _renamed_plan(plan: Plan, planned: str, registered: str) -> Plan:
    """Return the plan with one node under another name."""

    def name(node: str) -> str:
        return registered if node == planned else node

    return structs.replace(
        plan,
        nodes=tuple(structs.replace(node, name=name(node.name)) for node in plan.nodes),
        temporary=tuple(structs.replace(node, name=name(node.name)) for node in plan.temporary),
        placements=tuple(structs.replace(place, to=name(place.to)) for place in plan.placements),
        steps=tuple(structs.replace(step, node=name(step.node)) for step in plan.steps),
    )


def _renamed_step(step: Step, planned: str, registered: str) -> Step:
    """Return a step with one node under another name: in its id, as its target, and among the nodes that pods go to."""
    nodes = tuple(registered if node == planned else node for node in step.nodes)
    if step.target != planned:
        return structs.replace(step, nodes=nodes) if nodes != step.nodes else step
    kind, _, _ = step.id.partition("/")
    return structs.replace(step, id=f"{kind}/{registered}", target=registered, nodes=nodes)


def _begun(journal: Journal, plan_id: str) -> Journal:
    """Make a requested deletion the active execution at its first step, before plans that have not begun."""
    active = journal.active
    if active is not None and (active.plan_id == plan_id or active.steps):
        return journal
    request = next((event for event in journal.requests.values() if event.id == plan_id), None)
    if request is None:
        return journal
    waiting = journal.waiting if active is None else (active, *journal.waiting)
    return replace(journal, active=of_request(request), waiting=waiting)


def _intended(before: Progress | None, body: StepStarted, time: datetime) -> Progress:
    if before is not None and body.attempt <= before.attempt:
        return before
    return Progress(
        step=body.step,
        attempt=body.attempt,
        first=before.first if before is not None else time,
        intended=time,
        deadline=body.deadline,
    )


def _settled(progress: Progress, body: StepSucceeded | StepFailed, time: datetime) -> Progress:
    if isinstance(body, StepSucceeded):
        return replace(progress, state="done", result=body.outcome, ended=time, figures=body.figures)
    return replace(
        progress,
        state="failed",
        result=body.reason,
        detail=body.detail,
        retry=body.retry,
        ended=time,
        figures=body.figures,
    )
