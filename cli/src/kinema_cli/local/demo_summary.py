"""The demo's result, its `summary.json` and its `report.html`."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from kinema_cli.output import cell, counted, facts, hourly, monthly, show, table
from kinema_cli.replay.recording import Recording
from kinema_cli.report.audit import Audit
from kinema_cli.report.build import build_report
from kinema_cli.report.data import ReportData
from kinema_cli.report.from_run import cluster_at, offers_in, read_history, run_report
from kinema_core.events import ExecutionAborted, ExecutionCompleted, ForecastMade, Plan, PlanAccepted
from kinema_optimizer.planning.planner import reference_for
from kinema_optimizer.settings import PlanningSettings
from kinema_optimizer.solvers.stopping import ClockStop

if TYPE_CHECKING:
    from rich.console import RenderableType

REFERENCE_SECONDS: Final = 30.0
"""Time limit of the comparison with the exact model."""


@dataclass(frozen=True)
class ReferenceResult:
    """Result of the exact model for the state of the first accepted plan; USD per hour."""

    cost: float | None
    proven: bool
    seconds: float


@dataclass(frozen=True)
class DemoResult:
    """The figures of a demo."""

    data: ReportData
    plans: tuple[Plan, ...]
    """Accepted plans, in order."""
    reference: ReferenceResult | None
    finished: int
    aborted: int
    wall_seconds: float
    recorded_seconds: float

    @property
    def good(self) -> bool:
        """True if all plans completed, the cost matches the plan, and there were no disruption violations."""
        audit = self.data.audit
        if audit is None or audit.violations or self.aborted or not self.finished:
            return False
        return self.data.headline.usd_after <= self.plans[-1].cost.after + 1e-9


def plan_digest(plan: Plan) -> str:
    """Return a digest of what a plan decides: nodes, placements, costs, requests.

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


def summarize(recording: Recording, history: bytes, *, out: Path, wall_seconds: float) -> DemoResult:
    """Return the result by recording and history; writes the report and `summary.json`."""
    log = [item.event for item in recording.log]
    data = run_report([item.event for item in recording.state], log, read_history(history), title="Kinema demo")
    proposals = {event.id: event.body for event in log if isinstance(event.body, Plan)}
    result = DemoResult(
        reference=_reference(recording),
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


def _reference(recording: Recording) -> ReferenceResult | None:
    """Solve the exact model (one binary per pod and node) for the state of the first accepted plan."""
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
        settings=PlanningSettings(max_moves_fraction=1.0, redundancy=False, headroom=0),
        stop=ClockStop(REFERENCE_SECONDS),
        forecasts=made[0].forecasts if made else (),
        at_most=round(plan.cost.after * 1_000_000),
    )
    cost = None if found.cost is None else found.cost / 1_000_000
    return ReferenceResult(cost=cost, proven=found.proven, seconds=time.perf_counter() - began)


def figures(result: DemoResult) -> dict[str, object]:
    """Return the result as plain values."""
    head, audit = result.data.headline, result.data.audit
    return {
        "nodes": {"before": head.nodes_before, "after": head.nodes_after},
        "usd_per_hour": {"before": head.usd_before, "after": head.usd_after},
        "lower_bound_usd_per_hour": head.lower_bound,
        "gap": head.gap,
        "reference_model": None if result.reference is None else asdict(result.reference),
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
    """Print the result; the headline comes last."""
    head, audit = result.data.headline, result.data.audit
    moves = ", ".join(f"{count} by {name}" for name, count in sorted(head.strategies.items())) or "none"
    restarts = f"; {head.restarts} restarted in place" if head.restarts else ""
    rows = [
        ("nodes", f"{head.nodes_before} → {head.nodes_after}"),
        ("cost", f"{hourly(head.usd_before)} → {hourly(head.usd_after)}, saves {monthly(head.usd_saved)}"),
        ("moved pods", f"{head.moves} ({moves}){restarts}"),
        ("plans", f"{result.finished} completed, {result.aborted} aborted"),
    ]
    if head.lower_bound is not None:
        rows.insert(2, ("lower bound", f"no plan for this cluster costs less than {hourly(head.lower_bound)}"))
    reference = result.reference
    if reference is not None and reference.cost is not None:
        end = "proven minimum" if reference.proven else "not proven"
        rows.insert(3, ("cross-check", f"{hourly(reference.cost)} by an independent exact model ({end})"))
    rows += [
        ("took", f"{result.wall_seconds:.0f}s for {result.recorded_seconds:,.0f}s of simulated time"),
        ("report", str(out / "report.html")),
        ("recording", f"{out / 'recording.jsonl.zst'} (kinema replay repeats every decision)"),
    ]
    if audit is None:
        show(facts("Demo", rows), cell("No plan was executed.", "bold"))
        return
    count = audit.violations
    verdict = "no workload fell below its floor" if not count else f"{counted(count, 'disruption violation')}"
    saving = f"{hourly(head.usd_before)} → {hourly(head.usd_after)}, {head.nodes_before} → {head.nodes_after} nodes"
    show(_audit_table(audit), facts("Demo", rows), cell(f"{saving}: {verdict}.", "bold"))


def _audit_table(audit: Audit) -> RenderableType:
    columns = ("workload", "moved by", "replicas", "least ready", "floor", "violations", "unready pod-seconds")
    rows = [
        (
            item.workload,
            item.strategy,
            str(item.replicas),
            str(item.least_ready),
            str(item.floor),
            str(item.violations),
            f"{item.unready_pod_seconds:.1f}",
        )
        for item in audit.workloads
    ]
    return table("Disruption audit, by the cluster's own record of ready pods", columns, rows, numbers=columns[2:])
