"""What the demo says at its end, and writes to `summary.json` and `report.html`."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec
from rich.console import Console
from rich.table import Table

from kinema_cli import output
from kinema_cli.replay.recording import Recording
from kinema_cli.report.build import build_report
from kinema_cli.report.data import ReportData
from kinema_cli.report.from_run import cluster_at, offers_in, run_report
from kinema_cli.report.history import read_history
from kinema_core.events import ExecutionAborted, ExecutionCompleted, ForecastMade, Plan, PlanAccepted
from kinema_optimizer.planning.planner import reference_for
from kinema_optimizer.settings import PlanningSettings
from kinema_optimizer.solvers.stopping import ClockStop

LITERAL_SECONDS: Final = 30.0
"""What the comparison with the literal model may take."""


@dataclass(frozen=True)
class Literal:
    """What the literal model says of the state that the first accepted plan was made for; USD per hour."""

    cost: float | None
    proven: bool
    seconds: float


@dataclass(frozen=True)
class DemoResult:
    """The figures of a demo."""

    data: ReportData
    plans: tuple[Plan, ...]
    """Accepted plans, in order."""
    literal: Literal | None
    finished: int
    aborted: int
    wall_seconds: float
    recorded_seconds: float

    @property
    def good(self) -> bool:
        """Whether plans were carried out whole, the cluster costs what they promised, and nobody was hurt."""
        audit = self.data.audit
        if audit is None or audit.violations or self.aborted or not self.finished:
            return False
        return self.data.headline.usd_after <= self.plans[-1].cost.after + 1e-9


def plan_digest(plan: Plan) -> str:
    """A fingerprint of what a plan decides: nodes, placements, costs, requests.

    Measured seconds and the state's version are left out, and so are the names of new nodes, which hold that version.
    """
    boots = [node.name for node in plan.nodes if node.action == "boot"]
    names = {name: f"new {number}" for number, name in enumerate(boots)}
    what = (
        [(names.get(node.name, node.name), node.offer, node.action) for node in plan.nodes],
        [(place.pod, place.source, names.get(place.to, place.to), place.strategy) for place in plan.placements],
        [place.requests for place in plan.placements],
        plan.cost,
        plan.unplaced,
        plan.held,
    )
    return sha256(msgspec.json.encode(what, order="deterministic")).hexdigest()[:16]


def summarise(recording: Recording, history: bytes, *, out: Path, wall_seconds: float) -> DemoResult:
    """Take the figures from recording and history, and write the report and `summary.json` beside it."""
    log = [item.event for item in recording.log]
    data = run_report([item.event for item in recording.state], log, read_history(history), title="Kinema demo")
    proposals = {event.id: event.body for event in log if isinstance(event.body, Plan)}
    result = DemoResult(
        literal=_literal(recording),
        data=data,
        plans=tuple(proposals[event.body.plan] for event in log if isinstance(event.body, PlanAccepted)),
        finished=sum(isinstance(event.body, ExecutionCompleted) for event in log),
        aborted=sum(isinstance(event.body, ExecutionAborted) for event in log),
        wall_seconds=wall_seconds,
        recorded_seconds=recording.seconds,
    )
    build_report(data, out / "report.html")
    (out / "summary.json").write_text(json.dumps(figures(result), indent=2) + "\n", encoding="utf-8")
    return result


def _literal(recording: Recording) -> Literal | None:
    """Solve the literal model (one binary per pod and node) on the state of the first accepted plan."""
    log = [item.event for item in recording.log]
    accepted = next((event for event in log if isinstance(event.body, PlanAccepted)), None)
    if accepted is None or not isinstance(accepted.body, PlanAccepted):
        return None
    proposal = next(event for event in log if event.id == accepted.body.plan)
    plan = proposal.body
    assert isinstance(plan, Plan)
    made = [event.body for event in log if event.id == proposal.cause and isinstance(event.body, ForecastMade)]
    began = time.perf_counter()
    found = reference_for(
        cluster_at([item.event for item in recording.state], plan.base_version),
        offers_in(log),
        now=proposal.time,
        settings=PlanningSettings(),
        stop=ClockStop(LITERAL_SECONDS),
        forecasts=made[0].forecasts if made else (),
        at_most=round(plan.cost.after * 1_000_000),
    )
    cost = None if found.cost is None else found.cost / 1_000_000
    return Literal(cost=cost, proven=found.proven, seconds=time.perf_counter() - began)


def figures(result: DemoResult) -> dict[str, object]:
    """The result as plain values."""
    head, audit = result.data.headline, result.data.audit
    return {
        "nodes": {"before": head.nodes_before, "after": head.nodes_after},
        "usd_per_hour": {"before": head.usd_before, "after": head.usd_after},
        "lower_bound_usd_per_hour": head.lower_bound,
        "gap": head.gap,
        "literal_model": None if result.literal is None else asdict(result.literal),
        "moves": head.moves,
        "restarts": head.restarts,
        "moves_by_strategy": dict(head.strategies),
        "plans": [plan_digest(plan) for plan in result.plans],
        "executions": {"finished": result.finished, "aborted": result.aborted},
        "violations": None if audit is None else audit.violations,
        "unready_pod_seconds": None if audit is None else audit.unready_pod_seconds,
        "wall_seconds": round(result.wall_seconds, 1),
        "recorded_seconds": round(result.recorded_seconds, 1),
    }


def print_summary(result: DemoResult, out: Path) -> None:
    """Say it on the terminal."""
    console = output.console()
    head = result.data.headline
    moves = ", ".join(f"{count} by {name}" for name, count in sorted(head.strategies.items())) or "none"
    gap = "unknown" if head.gap is None else f"{head.gap:.2%}"
    bound = "none" if head.lower_bound is None else f"{head.lower_bound:.2f} USD/h"
    console.print(f"nodes      {head.nodes_before} → {head.nodes_after}")
    saved = f"{head.usd_saved_per_month:,.0f} USD a month less"
    console.print(f"cost       {head.usd_before:.2f} → {head.usd_after:.2f} USD/h, {saved}")
    console.print(f"bound      {bound}, gap {gap} ({head.status})")
    _print_literal(console, result.literal)
    console.print(f"moves      {head.moves} ({moves}); restarts in place {head.restarts}")
    console.print(f"executed   {result.finished} finished, {result.aborted} aborted")
    digests = Counter(plan_digest(plan) for plan in result.plans)
    console.print(f"plans      {', '.join(digests)} (fingerprints: the same seed gives the same)")
    _print_audit(console, result.data)
    console.print(f"took       {result.wall_seconds:.0f} s; {result.recorded_seconds:,.0f} s of cluster time recorded")
    console.print(f"report     {out / 'report.html'}", soft_wrap=True)
    console.print(f"recording  {out / 'recording.jsonl.zst'}", soft_wrap=True)


def _print_literal(console: Console, literal: Literal | None) -> None:
    if literal is None:
        return
    cost = "no plan" if literal.cost is None else f"{literal.cost:.2f} USD/h"
    end = "proven to be the least" if literal.proven else "not proven"
    console.print(f"literal    {cost}, {end}: the thesis' model on the same state, {literal.seconds:.1f} s")


def _print_audit(console: Console, data: ReportData) -> None:
    if data.audit is None:
        console.print("audit      nothing was carried out")
        return
    table = Table(title="Disruption audit", title_justify="left")
    table.add_column("workload", overflow="fold")
    table.add_column("moved by")
    for heading in ("replicas", "least ready", "floor", "violations", "unready pod-s"):
        table.add_column(heading, justify="right")
    for item in data.audit.workloads:
        table.add_row(
            item.workload,
            item.strategy,
            str(item.replicas),
            str(item.least_ready),
            str(item.floor),
            str(item.violations),
            f"{item.unready_pod_seconds:.1f}",
        )
    console.print(table)
    console.print(f"violations {data.audit.violations}; unready pod-seconds {data.audit.unready_pod_seconds:.1f}")
