"""One plan as the log has it: what it proposed, and its phase."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from kinema_cli.broker import on_bus, settings_for
from kinema_cli.output import table
from kinema_cli.plan.table import plan_tables
from kinema_cli.report.protocol import figures_in_a_line
from kinema_cli.status.plan_ids import matching_id, short_id
from kinema_cli.status.plans import completed_phase
from kinema_core.events import (
    EMPTY,
    ExecutionAborted,
    ExecutionCompleted,
    Figures,
    Plan,
    PlanAccepted,
    PlanApprovalRequested,
    PlanRejected,
)
from kinema_core.model.cluster import Cluster
from kinema_core.runtime.bus import Bus, Stored

if TYPE_CHECKING:
    from rich.console import RenderableType

_Judgment: TypeAlias = PlanAccepted | PlanApprovalRequested | PlanRejected | ExecutionCompleted | ExecutionAborted
_KINDS: Final = (
    "plan-proposed",
    "plan-accepted",
    "plan-approval-requested",
    "plan-rejected",
    "execution-completed",
    "execution-aborted",
)


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The decider's verdict on the plan, or how its execution ended."""

    at: datetime
    phase: str
    """`Approved`, `AwaitingApproval` or `Rejected`; `Completed`, `PartlyCompleted` or `Aborted`."""
    rule: str = ""
    reason: str = ""
    would_change: str = ""
    figures: Figures = EMPTY


class PlanExplanation(msgspec.Struct, frozen=True, kw_only=True):
    """A plan of the log, the verdicts on it, and how its execution ended, in order."""

    kind: str = "plan"
    id: str
    proposed: datetime
    plan: Plan
    verdicts: tuple[Verdict, ...]


def explained_plan(given: str, *, nats: str, cluster: str = "") -> PlanExplanation:
    """Return the plan of that id, short id, unique prefix, or `latest`.

    Raises:
        AddressError: no such address. BusError: the broker cannot be read. UnknownPlanError: no plan, or several.
    """
    return asyncio.run(on_bus(settings_for(nats, cluster), lambda bus: read_plan(bus, given)))


async def read_plan(bus: Bus, given: str) -> PlanExplanation:
    """Return the plan that is named, and the verdicts on it; raises UnknownPlanError."""
    plans: dict[str, PlanExplanation] = {}
    async for item in bus.read("LOG", kinds=_KINDS):
        if not isinstance(item, Stored):
            continue
        event, body = item.event, item.event.body
        if isinstance(body, Plan):
            plans[event.id] = PlanExplanation(id=event.id, proposed=event.time, plan=body, verdicts=())
        elif isinstance(body, _Judgment) and body.plan in plans:
            found = plans[body.plan]
            verdicts = (*found.verdicts, _verdict(body, event.time))
            plans[body.plan] = msgspec.structs.replace(found, verdicts=verdicts)
    return plans[matching_id(given, [*plans])]


def _verdict(body: _Judgment, at: datetime) -> Verdict:
    if isinstance(body, PlanAccepted):
        return Verdict(at=at, phase="Approved", figures=body.figures)
    if isinstance(body, ExecutionCompleted):
        phase, left = completed_phase(body)
        return Verdict(at=at, phase=phase, reason=left, figures=body.figures)
    if isinstance(body, ExecutionAborted):
        return Verdict(at=at, phase="Aborted", rule=body.reason, reason=body.detail, figures=body.figures)
    return Verdict(
        at=at,
        phase="AwaitingApproval" if isinstance(body, PlanApprovalRequested) else "Rejected",
        rule=body.rule,
        reason=body.reason,
        would_change=body.would_change,
        figures=body.figures,
    )


def plan_explanation(found: PlanExplanation) -> list[RenderableType]:
    """Return the verdicts and the plan's tables; the log does not contain the workloads of pods."""
    rows = []
    for one in found.verdicts:
        why = ": ".join(part for part in (one.rule, one.reason) if part)
        rows.append((f"{one.at:%H:%M:%S}", one.phase, why, one.would_change, figures_in_a_line(one.figures)))
    title = f"Plan {short_id(found.id)}, proposed {found.proposed:%Y-%m-%d %H:%M:%S} UTC ({found.id})"
    columns = ("at", "phase", "reason", "what would change it", "figures")
    return [table(title, columns, rows or [("", "Pending", "", "", "")]), *plan_tables(found.plan, Cluster())]
