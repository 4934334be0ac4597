"""What the log says about one plan: what it proposed, and what became of it."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Final

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table

from kinema_cli.broker import settings_for
from kinema_cli.output import cell
from kinema_cli.plan.table import plan_tables
from kinema_cli.report.protocol import figures_in_a_line
from kinema_core.events import EMPTY, Figures, Plan, PlanAccepted, PlanApprovalRequested, PlanRejected
from kinema_core.model.cluster import Cluster
from kinema_core.runtime.bus import Bus, Stored
from kinema_core.runtime.nats_bus import connect

_KINDS: Final = ("plan-proposed", "plan-accepted", "plan-approval-requested", "plan-rejected")


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What the decider said of the plan."""

    at: datetime
    fate: str
    """`accepted`, `held` or `refused`."""
    rule: str = ""
    reason: str = ""
    would_change: str = ""
    figures: Figures = EMPTY


class PlanExplanation(msgspec.Struct, frozen=True, kw_only=True):
    """A plan of the log, and what was decided about it, in order."""

    kind: str = "plan"
    id: str
    proposed: datetime
    plan: Plan
    verdicts: tuple[Verdict, ...]


def explained_plan(id_: str, *, nats: str, cluster: str) -> PlanExplanation | None:
    """The plan of that id in the cluster's log; None where there is none.

    Raises:
        AddressError: no such address. BusError: the broker cannot be read.
    """
    settings = settings_for(nats, cluster)

    async def read() -> PlanExplanation | None:
        bus = await connect(settings)
        try:
            return await read_plan(bus, id_)
        finally:
            await bus.close()

    return asyncio.run(read())


async def read_plan(bus: Bus, id_: str) -> PlanExplanation | None:
    """The plan of that id and the verdicts on it."""
    found: PlanExplanation | None = None
    async for item in bus.read("LOG", kinds=_KINDS):
        if not isinstance(item, Stored):
            continue
        event, body = item.event, item.event.body
        if isinstance(body, Plan) and event.id == id_:
            found = PlanExplanation(id=id_, proposed=event.time, plan=body, verdicts=())
        elif (
            found is not None
            and isinstance(body, PlanAccepted | PlanApprovalRequested | PlanRejected)
            and body.plan == id_
        ):
            found = msgspec.structs.replace(found, verdicts=(*found.verdicts, _verdict(body, event.time)))
    return found


def _verdict(body: PlanAccepted | PlanApprovalRequested | PlanRejected, at: datetime) -> Verdict:
    if isinstance(body, PlanAccepted):
        return Verdict(at=at, fate="accepted", figures=body.figures)
    return Verdict(
        at=at,
        fate="held" if isinstance(body, PlanApprovalRequested) else "refused",
        rule=body.rule,
        reason=body.reason,
        would_change=body.would_change,
        figures=body.figures,
    )


def plan_explanation_table(told: PlanExplanation) -> RenderableType:
    """The plan's tables and its verdicts, for a terminal."""
    table = Table(title=f"{told.id}, proposed {told.proposed:%Y-%m-%d %H:%M:%S}", title_justify="left")
    for column in ("at", "verdict", "why", "would change it", "figures"):
        table.add_column(column, overflow="fold")
    for one in told.verdicts:
        why = ": ".join(part for part in (one.rule, one.reason) if part)
        cells = (f"{one.at:%H:%M:%S}", one.fate, why, one.would_change, figures_in_a_line(one.figures))
        table.add_row(*(cell(text) for text in cells))
    if not told.verdicts:
        table.add_row("", "undecided")
    # The log does not say to which workload a pod belonged then; the plan's own words have to do.
    return Group(table, plan_tables(told.plan, Cluster()))
