"""Memory of the decider: a fold of the log, so that it is the same after a restart and in a replay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from types import MappingProxyType
from typing import Final

from kinema_core.events import (
    CatalogPublished,
    Event,
    ExecutionAborted,
    ExecutionCompleted,
    ExecutionPaused,
    ExecutionResumed,
    ForecastMade,
    Offer,
    Plan,
    PlanAccepted,
    PlanApprovalRequested,
    PlanRejected,
    ReplicasAhead,
    is_unfinished,
    saved_nothing,
)
from kinema_core.model.boot_times import BootTimes
from kinema_decider.logic.gain import Aim, aim_of, brought

REMEMBERED: Final = (
    "plan-proposed",
    "plan-accepted",
    "plan-rejected",
    "plan-approval-requested",
    "catalog-published",
    "forecast-made",
    "step-started",
    "step-succeeded",
    "execution-completed",
    "execution-aborted",
    "execution-paused",
    "execution-resumed",
    "plan-approved",
)
"""Kinds of log events that the decider wants to see."""

_PROPOSALS_KEPT: Final = 16
"""Proposals kept for a later approval: an older one is stale by far."""


@dataclass(frozen=True)
class Proposal:
    """A proposed plan and when it was proposed."""

    id: str
    plan: Plan
    time: datetime


@dataclass(frozen=True)
class Memory:
    """The log so far, as far as decisions need it."""

    offers: tuple[Offer, ...] | None = None
    """What the provider sells; None before the first catalog."""
    delegated: bool = False
    """Whether the cluster's own autoscaler boots and deletes."""
    paused: ExecutionPaused | None = None
    executing: str | None = None
    """Id of the proposal that was accepted and has not ended."""
    unfinished: str = ""
    """Id of the plan that was executed last, where its rest is to be planned again."""
    ended: datetime | None = None
    """When the last execution ended."""
    ineffective: int = 0
    """How many executions in a row, up to the last, were without effect."""
    boot_times: BootTimes = field(default_factory=BootTimes)
    ahead: ReplicasAhead | None = None
    """Replicas that the newest forecast expects."""
    aim: Aim | None = None
    """What the plan that is executed is to save; None where its proposal is not in the log."""
    proposals: Mapping[str, Proposal] = field(default_factory=lambda: MappingProxyType({}))
    """Proposals neither accepted nor rejected, oldest first."""
    held: frozenset[str] = frozenset()
    settled: tuple[str, ...] = ()
    """The last proposals accepted or rejected: to approve one of them again has no effect."""


def remember(memory: Memory, event: Event) -> Memory:
    """Fold one log event; others leave the memory as it is."""
    memory = replace(memory, boot_times=memory.boot_times.after(event))
    match event.body:
        case Plan() as plan:
            memory = _proposed(memory, Proposal(id=event.id, plan=plan, time=event.time))
        case PlanAccepted(plan=plan_id):
            accepted = memory.proposals.get(plan_id)
            aim = None if accepted is None else aim_of(accepted.plan, memory.offers or ())
            memory = replace(_settled(memory, plan_id), executing=plan_id, unfinished="", aim=aim)
        case PlanRejected(plan=plan_id):
            memory = _settled(memory, plan_id)
        case PlanApprovalRequested(plan=plan_id):
            memory = replace(memory, held=memory.held | {plan_id})
        case CatalogPublished(offers=offers, delegated=delegated):
            memory = replace(memory, offers=offers, delegated=delegated)
        case ExecutionCompleted(plan=plan_id) | ExecutionAborted(plan=plan_id) if plan_id == memory.executing:
            ineffective = memory.ineffective + 1 if _was_ineffective(event.body, memory.aim) else 0
            rest = plan_id if is_unfinished(event.body) else ""
            memory = replace(
                memory, executing=None, unfinished=rest, ended=event.time, ineffective=ineffective, aim=None
            )
        case ForecastMade(ahead=ahead):
            memory = replace(memory, ahead=ahead)
        case ExecutionPaused() as pause:
            memory = replace(memory, paused=pause)
        case ExecutionResumed():
            memory = replace(memory, paused=None)
        case _:
            pass
    return memory


def _was_ineffective(end: ExecutionCompleted | ExecutionAborted, aim: Aim | None) -> bool:
    """Return whether the next plan would probably meet the same obstacle, such as a quota: no state shows it.

    An execution that brought its saving had an effect, even where it left one workload of many, for example one that
    its owner scaled during the execution.
    """
    if is_unfinished(end):  # what it could not do is what the plan of its rest is for, which does not wait
        return saved_nothing(end)
    if isinstance(end, ExecutionAborted):
        return True
    return end.figures.get("workloads_skipped", 0) != 0 and (aim is None or not brought(aim, end))


def _proposed(memory: Memory, proposal: Proposal) -> Memory:
    kept = {**memory.proposals, proposal.id: proposal}
    for oldest in list(kept)[: max(0, len(kept) - _PROPOSALS_KEPT)]:
        del kept[oldest]
    return replace(memory, proposals=MappingProxyType(kept), held=memory.held & kept.keys())


def _settled(memory: Memory, plan_id: str) -> Memory:
    kept = {key: value for key, value in memory.proposals.items() if key != plan_id}
    return replace(
        memory,
        proposals=MappingProxyType(kept),
        held=memory.held - {plan_id},
        settled=(*(other for other in memory.settled if other != plan_id), plan_id)[-_PROPOSALS_KEPT:],
    )
