"""`kinema status`: what the pipeline is doing, and why it is not doing more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from kinema_cli.options import BROKER, CLUSTER, ClusterName, Nats, Output
from kinema_cli.output import Format, cell, counted

if TYPE_CHECKING:
    from datetime import datetime

    from rich.console import RenderableType

    from kinema_cli.status.execution import ExecutionStatus
    from kinema_cli.status.pipeline import PlanStatus, Status
    from kinema_core.events import Figures
    from kinema_core.runtime.settings import RuntimeSettings

NOTHING_FOUND = 3
_TIME = "%Y-%m-%d %H:%M:%S"
_BETWEEN = "the observed state does not show yet what was done, or the rescheduler has not looked since"
_UNTOLD = "the state does not tell what for: see the rescheduler's /readyz and log"


def status(
    nats: Nats = BROKER,
    cluster: ClusterName = CLUSTER,
    output: Output = Format.TABLE,
) -> None:
    """Show state, iteration, plan, execution and pause of a running pipeline."""
    raise typer.Exit(run_status(nats=nats, cluster=cluster, output=output))


def run_status(*, nats: str, cluster: str, output: Format) -> int:
    """Print the status; returns 0, 1 (broker cannot be read), 2 (no address) or 3 (nothing was said yet)."""
    import asyncio

    from kinema_cli.broker import AddressError, settings_for
    from kinema_cli.output import complain, console, printed
    from kinema_core.runtime.bus import BusError

    try:
        settings = settings_for(nats, cluster)
    except AddressError as error:
        complain(str(error))
        return 2
    try:
        found = asyncio.run(_read(settings))
    except BusError as error:
        complain(f"the broker cannot be read: {error}")
        return 1
    if found.empty:
        complain(f"no service of cluster {cluster!r} has said anything yet: is its name right, and is the observer up?")
        return NOTHING_FOUND
    if output is Format.TABLE:
        console().print(status_tables(found))
    else:
        printed(found, output)
    return 0


async def _read(settings: RuntimeSettings) -> Status:
    from kinema_cli.status.pipeline import read_status
    from kinema_core.runtime.nats_bus import connect

    bus = await connect(settings)
    try:
        return await read_status(bus, cluster=settings.cluster, now=settings.clock().now())
    finally:
        await bus.close()


def status_tables(found: Status) -> RenderableType:
    """The status for a terminal."""
    from rich.table import Table

    rows = [("cluster", found.cluster), *_state_rows(found)]
    if found.plan is not None:
        rows += _plan_rows(found.plan)
    if found.execution is not None:
        rows += _execution_rows(found.execution, found.now)
    if found.damaged:
        rows.append(("damaged", f"the newest {', '.join(found.damaged)} cannot be read"))
    table = Table(title="Kinema", title_justify="left", show_header=False)
    table.add_column("what", style="bold")
    table.add_column("now", overflow="fold")
    for what, said in rows:
        table.add_row(what, cell(said))
    return table


def _state_rows(found: Status) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    if found.state is not None:
        age = _lasting(found.state.age_seconds)
        rows.append(("state", f"version {found.state.version}, last change {age} ago"))
    pause = found.pause
    if pause.paused:
        why = f": {pause.reason}" if pause.reason else ""
        rows.append(("paused", f"by {pause.by} since {pause.since:{_TIME}}{why}"))
    if found.iteration is not None:
        item = found.iteration
        outcome = f": {item.outcome}" if item.outcome else ""
        rows.append(("iteration", f"{item.id}, {item.mode} on state {item.version}, {item.stage}{outcome}"))
    if found.skipped is not None:
        told = _lasting((found.now - found.skipped.at).total_seconds())
        rows.append(("waiting", f"{_with_figures(found.skipped.reason, found.skipped.figures)}, told {told} ago"))
    return rows


def _plan_rows(plan: PlanStatus) -> list[tuple[str, str]]:
    gap = "unknown" if plan.gap is None else f"{plan.gap:.2%}"
    cost = f"{plan.usd_per_hour_before:.4f} → {plan.usd_per_hour_after:.4f} USD/h"
    rows = [
        ("plan", plan.id),
        ("", f"{plan.status}: {cost}, {counted(plan.moves, 'move')}, gap {gap}"),
        ("", _with_figures(": ".join(part for part in (plan.fate, plan.rule, plan.reason) if part), plan.figures)),
    ]
    if plan.would_change:
        rows.append(("", f"would change it: {plan.would_change}"))
    return rows


def _execution_rows(execution: ExecutionStatus, now: datetime) -> list[tuple[str, str]]:
    from kinema_cli.report.protocol import step_in_a_line

    counts = f"{counted(execution.done, 'step')} done, {len(execution.running)} running, {len(execution.failed)} failed"
    if execution.left_alone:
        counts += f", {len(execution.left_alone)} left alone"
    rows = [("execution", _with_figures(f"{execution.outcome}, {counts}", execution.figures))]
    rows += _pending_rows(execution, now)
    rows += [("", f"running: {step_in_a_line(step)}") for step in execution.running]
    rows += [
        ("", f"failed: {item.step}: {item.reason}: {item.detail}{'; will be tried again' if item.retry else ''}")
        for item in execution.failed
    ]
    rows += [("", f"left alone: {item.what}: {item.reason}: {item.detail}") for item in execution.left_alone]
    if execution.reason:
        rows.append(("", execution.reason))
    if execution.leftovers:
        rows.append(("left behind", ", ".join(execution.leftovers)))
    return rows


def _pending_rows(execution: ExecutionStatus, now: datetime) -> list[tuple[str, str]]:
    """That an abort was asked for, and what a quiet execution waits for."""
    from kinema_cli.status.execution import QUIET_SECONDS

    rows: list[tuple[str, str]] = []
    if execution.abort is not None:
        why = f": {execution.abort.reason}" if execution.abort.reason else ""
        rows.append(("", f"abort asked for by {execution.abort.by} at {execution.abort.asked:{_TIME}}{why}"))
    quiet = (now - execution.quiet_since).total_seconds()
    if execution.outcome == "running" and (quiet >= QUIET_SECONDS or not execution.running):
        if quiet >= QUIET_SECONDS:
            rows.append(("", f"no step began or ended for {_lasting(quiet)}, since {execution.quiet_since:{_TIME}}"))
        unknown = _UNTOLD if quiet >= QUIET_SECONDS else _BETWEEN
        waits = execution.waits_for or (() if execution.running else (unknown,))
        rows += [("", f"waits, most probably: {what}") for what in waits]
    if execution.kept_waiting:
        named, more = ", ".join(execution.kept_waiting[:3]), len(execution.kept_waiting) - 3
        pods = f"{counted(len(execution.kept_waiting), 'pod')} without a node: {named}"
        told = f"{pods}{f' and {more} more' if more > 0 else ''}"
        rows.append(("", f"{told}: no place is planned before this plan has ended"))
    return rows


def _with_figures(said: str, figures: Figures) -> str:
    from kinema_cli.report.protocol import figures_in_a_line

    return f"{said} ({figures_in_a_line(figures)})" if figures else said


def _lasting(seconds: float) -> str:
    if seconds < 120:
        return f"{max(0.0, seconds):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"
