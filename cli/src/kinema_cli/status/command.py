"""`kinema status`: current activity, and why no more happens; `kinema plans`: recent plans and their outcome."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kinema_cli.options import BROKER, ClusterName, Nats, Output
from kinema_cli.output import Format, could_be_saved, counted, facts, hourly, listed, table

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from rich.console import RenderableType

    from kinema_cli.status.execution import ExecutionStatus
    from kinema_cli.status.pipeline import PlanStatus, Status
    from kinema_cli.status.plans import PlanLine
    from kinema_core.events import Figures

NOTHING_FOUND = 3
TIME = "%Y-%m-%d %H:%M:%S"
_BETWEEN = "the observed state does not show the last step yet, or the rescheduler has not looked since"
_UNKNOWN = "unknown; see the rescheduler's /readyz and log"


def status(nats: Nats = BROKER, cluster: ClusterName = "", output: Output = Format.TABLE) -> None:
    """Show the observed state, the planning cycle, the newest plan, its execution, and why nothing happens."""
    raise typer.Exit(run_status(nats=nats, cluster=cluster, output=output))


def run_status(*, nats: str, cluster: str, output: Format) -> int:
    """Print the status; returns 0, 1 (broker cannot be read), 2 (no address) or 3 (no event yet)."""
    import asyncio

    from kinema_cli.broker import on_bus, settings_for
    from kinema_cli.inputs import UsageError, fail
    from kinema_cli.output import emit
    from kinema_cli.status.pipeline import read_status
    from kinema_core.runtime.bus import BusError

    try:
        settings = settings_for(nats, cluster)
        name, now = settings.cluster, settings.clock().now()
        found = asyncio.run(on_bus(settings, lambda bus: read_status(bus, cluster=name, now=now)))
    except (UsageError, BusError) as error:
        return fail(error)
    if found.empty:
        return print_nothing_found(name)
    emit(found, output, lambda: [status_table(found)])
    return 0


def print_nothing_found(cluster: str) -> int:
    """Say that the broker has no event of the cluster; returns the exit code."""
    from kinema_cli.output import print_error, print_hint

    print_error(f'no events found for cluster "{cluster}"')
    print_hint("check --cluster-name (KINEMA_CLUSTER), and that the observer is running")
    return NOTHING_FOUND


def status_table(found: Status) -> RenderableType:
    """Return the status for a terminal."""
    rows = [("cluster", found.cluster), *_state_rows(found)]
    if found.plan is not None:
        rows += _plan_rows(found.plan)
    if found.execution is not None:
        shown = found.plan.id if found.plan is not None else ""
        rows += _execution_rows(found.execution, found.now, shown)
    if found.damaged:
        rows.append(("damaged", f"the newest {', '.join(found.damaged)} cannot be read"))
    return facts("Status", rows)


def _state_rows(found: Status) -> list[tuple[str, str]]:
    from kinema_cli.status.reasons import in_words

    rows: list[tuple[str, str]] = []
    if found.state is not None:
        rows.append(("state", f"version {found.state.version}, last change {duration(found.state.age_seconds)} ago"))
    pause = found.pause
    if pause.paused:
        why = f": {pause.reason}" if pause.reason else ""
        rows.append(("paused", f"by {pause.by} since {pause.since:{TIME}}{why}"))
    if found.iteration is not None:
        item = found.iteration
        outcome = f": {item.outcome}" if item.outcome else ""
        rows.append(("cycle", f"{item.id}, {item.mode} on state {item.version}, {item.stage}{outcome}"))
    if found.skipped is not None:
        age = duration((found.now - found.skipped.at).total_seconds())
        reason = _with_figures(in_words(found.skipped.reason), found.skipped.figures)
        rows.append(("no cycle", f"{reason}; reported {age} ago"))
    return rows


def _plan_rows(plan: PlanStatus) -> list[tuple[str, str]]:
    left = could_be_saved(plan.cost_after, plan.lower_bound, plan.unit)
    cost = f"{hourly(plan.usd_per_hour_before)} → {hourly(plan.usd_per_hour_after)}"
    rows = [
        ("plan", f"{plan.short_id}, {plan.phase}"),
        ("", f"{cost}, {counted(plan.moves, 'move')}, {plan.status}; {left}"),
    ]
    if plan.reason:
        rows.append(("", ": ".join(part for part in (plan.rule, plan.reason) if part)))
    elif plan.figures:
        rows.append(("", _with_figures("predicted", plan.figures)))
    if plan.outlived:
        rows.append(("", f"no longer so: {plan.outlived}; the next plan is judged by itself"))
    elif plan.would_change:
        rows.append(("", f"what would change it: {plan.would_change}"))
    return rows


def _execution_rows(execution: ExecutionStatus, now: datetime, shown: str) -> list[tuple[str, str]]:
    """Return the execution, with its plan where that is not the one shown above it."""
    from kinema_cli.report.protocol import step_in_a_line
    from kinema_cli.status.plan_ids import short_id
    from kinema_core.events import FrozenMap

    counts = f"{counted(execution.done, 'step')} done, {len(execution.running)} running, {len(execution.failed)} failed"
    if execution.skipped:
        counts += f", {len(execution.skipped)} skipped"
    figures = FrozenMap({name: value for name, value in execution.figures.items() if value})
    of = "" if execution.plan == shown else f"of plan {short_id(execution.plan)}, "
    rows = [("execution", _with_figures(f"{of}{execution.phase}, {counts}", figures))]
    rows += _pending_rows(execution, now)
    rows += [("", f"running: {step_in_a_line(step)}") for step in execution.running]
    rows += [
        ("", f"failed: {item.step}: {item.reason}: {item.detail}{'; will be repeated' if item.retry else ''}")
        for item in execution.failed
    ]
    rows += [("", f"skipped: {item.what}: {item.reason}: {item.detail}") for item in execution.skipped]
    if execution.reason:
        rows.append(("", execution.reason))
    if execution.leftovers:
        rows.append(("left behind", ", ".join(execution.leftovers)))
    return rows


def _pending_rows(execution: ExecutionStatus, now: datetime) -> list[tuple[str, str]]:
    """Return the requested abort, and what a quiet execution waits for."""
    from kinema_cli.status.execution import QUIET_SECONDS

    rows: list[tuple[str, str]] = []
    if execution.abort is not None:
        why = f": {execution.abort.reason}" if execution.abort.reason else ""
        rows.append(("", f"abort requested by {execution.abort.by} at {execution.abort.asked:{TIME}}{why}"))
    since = execution.last_progress_time
    quiet = (now - since).total_seconds()
    if execution.phase == "Running" and (quiet >= QUIET_SECONDS or not execution.running):
        if quiet >= QUIET_SECONDS:
            rows.append(("", f"no step began or ended for {duration(quiet)}, since {since:{TIME}}"))
        unknown = _UNKNOWN if quiet >= QUIET_SECONDS else _BETWEEN
        blocked = execution.blocked_on or (() if execution.running else (unknown,))
        rows += [("", f"probably blocked on: {what}") for what in blocked]
    if execution.pending_pods:
        pods = f"{counted(len(execution.pending_pods), 'pod')} without a node: {listed(execution.pending_pods)}"
        rows.append(("", f"{pods}; placed when this plan has ended"))
    return rows


def _with_figures(text: str, figures: Figures) -> str:
    from kinema_cli.report.protocol import figures_in_a_line

    return f"{text} ({figures_in_a_line(figures)})" if figures else text


def duration(seconds: float) -> str:
    """Return a duration in its largest unit: `90s`, `15min`, `7h`, `12d`."""
    seconds = max(0.0, seconds)
    for most, unit, name in ((120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if seconds < most:
            return f"{seconds / unit:.0f}{name}"
    return f"{seconds / 86_400:.0f}d"


def plans(
    nats: Nats = BROKER,
    cluster: ClusterName = "",
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="Number of newest plans.")] = 20,
    output: Output = Format.TABLE,
) -> None:
    """List recent plans with cost before and after, moves, phase and reason. Equal rejections in a row are one line."""
    raise typer.Exit(run_plans(nats=nats, cluster=cluster, limit=limit, output=output))


def run_plans(*, nats: str, cluster: str, limit: int, output: Format) -> int:
    """Print the plans; returns 0, 1 (broker cannot be read), 2 (no address) or 3 (no plan yet)."""
    import asyncio

    from kinema_cli.broker import on_bus, settings_for
    from kinema_cli.inputs import UsageError, fail
    from kinema_cli.output import emit, print_error, print_hint
    from kinema_cli.status.plans import read_plans
    from kinema_core.runtime.bus import BusError

    try:
        settings = settings_for(nats, cluster)
        found = asyncio.run(on_bus(settings, lambda bus: read_plans(bus, limit)))
    except (UsageError, BusError) as error:
        return fail(error)
    if not found:
        print_error(f'no plan was proposed for cluster "{settings.cluster}" yet')
        print_hint("`kinema status` shows what it waits for")
        return NOTHING_FOUND
    emit({"plans": found}, output, lambda: [plans_table(found)])
    return 0


def plans_table(found: Sequence[PlanLine]) -> RenderableType:
    """Return one line for each plan, or for equal rejections in a row; ids are short where they are unique."""
    ids = [line.short_id for line in found]
    rows = []
    for line in found:
        cost = f"{hourly(line.usd_per_hour_before)} → {hourly(line.usd_per_hour_after)}"
        again = f"{line.times} times since {line.first_proposed:{TIME}}: " if line.times > 1 else ""
        name = line.short_id if ids.count(line.short_id) == 1 else line.id
        phase = (line.phase, again + line.why)
        rows.append((name, f"{line.proposed:{TIME}}", line.purpose, line.status, cost, str(line.moves), *phase))
    return table(
        "Plans",
        ("plan", "proposed", "purpose", "status", "cost", "moves", "phase", "reason"),
        rows,
        numbers=("moves",),
        whole="plan",
    )
