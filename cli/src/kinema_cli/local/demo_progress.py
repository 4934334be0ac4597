"""Progress of the current iteration, folded from the log: the live table and the final figures."""

from __future__ import annotations

from dataclasses import dataclass, field

from rich.table import Table

from kinema_cli.local.simulator import View
from kinema_cli.output import counted
from kinema_core.events import (
    Event,
    ExecutionAborted,
    ExecutionCompleted,
    ForecastMade,
    IterationSkipped,
    IterationStarted,
    NoPlanFound,
    Plan,
    PlanAccepted,
    PlanApprovalRequested,
    PlanRejected,
    StepFailed,
    StepStarted,
    StepSucceeded,
)


@dataclass
class Progress:
    """A fold over LOG. Holds every accepted plan with what became of it."""

    iteration: str = ""
    mode: str = ""
    waiting: str = "for the first observation"
    forecast: str = ""
    proposals: dict[str, Plan] = field(default_factory=dict)
    accepted: dict[str, Plan] = field(default_factory=dict)
    ended: dict[str, ExecutionCompleted | ExecutionAborted] = field(default_factory=dict)
    intended: dict[str, StepStarted] = field(default_factory=dict)
    done: dict[str, StepSucceeded] = field(default_factory=dict)
    failed: list[StepFailed] = field(default_factory=list)
    settled: bool = False
    """Whether everything accepted has ended, and the pipeline has looked again since and found nothing more to do."""

    def fold(self, event: Event) -> None:
        """Take one LOG event into account."""
        match event.body:
            case IterationStarted(mode=mode):
                self.iteration, self.mode, self.waiting = event.iteration, mode, "for a forecast"
            case IterationSkipped(reason=reason):
                self.waiting = f"before an iteration: {reason}"
            case ForecastMade(forecasts=made, refused=refused):
                self.forecast = f"{len(made)} workloads, {len(refused)} without"
                self.waiting = "for a plan"
            case Plan():
                self.proposals[event.id] = event.body
                self.waiting = "for a decision"
            case PlanAccepted(plan=plan):
                if plan in self.proposals:
                    self.accepted[plan] = self.proposals[plan]
                self.waiting, self.settled = "for the execution", False
            case PlanRejected() | NoPlanFound() | PlanApprovalRequested():
                self.settled = bool(self.ended) and self.accepted.keys() <= self.ended.keys()
                self.waiting = "for the next iteration"
            case _:
                self._fold_execution(event)

    def _fold_execution(self, event: Event) -> None:
        match event.body:
            case StepStarted(step=step):
                self.intended[step.id] = event.body
            case StepSucceeded(step=step_id):
                self.done[step_id] = event.body
            case StepFailed():
                self.failed.append(event.body)
            case ExecutionCompleted(plan=plan) | ExecutionAborted(plan=plan):
                self.ended[plan] = event.body
                self.waiting = "for the next iteration"
            case _:
                pass

    def table(self, *, seconds: float, view: View) -> Table:
        """Return the live table."""
        table = Table(title="Kinema demo", title_justify="left", show_header=False, min_width=64)
        table.add_column("what", style="bold")
        table.add_column("now")
        table.add_row("elapsed", f"{seconds:.0f} s")
        table.add_row("cluster", f"{len(view.nodes)} nodes, {view.usd_per_hour:.2f} USD/h, {view.pending} pods pending")
        table.add_row("iteration", f"{self.iteration} {self.mode}".strip() or "none yet")
        table.add_row("waiting", self.waiting)
        if self.forecast:
            table.add_row("forecast", self.forecast)
        if self.proposals:
            plan = list(self.proposals.values())[-1]
            gap = "unknown" if plan.cost.gap is None else f"{plan.cost.gap:.2%}"
            cost = f"{plan.cost.before:.2f} → {plan.cost.after:.2f} {plan.cost.unit}"
            table.add_row("plan", f"{cost}, gap {gap}, {counted(plan.moves, 'move')}")
        if self.intended:
            active = [item.step for key, item in self.intended.items() if key not in self.done]
            doing = ", ".join(f"{step.kind} {step.target}" for step in active[:3])
            table.add_row("steps", f"{len(self.done)} done, {len(self.failed)} failed, {len(active)} running")
            table.add_row("", doing[:90] or "-")
        return table
