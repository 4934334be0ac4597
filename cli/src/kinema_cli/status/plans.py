"""The plans of the log in short: what they proposed, and their phase."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Final

import msgspec

from kinema_cli.output import counted, hourly
from kinema_cli.status.plan_ids import short_id
from kinema_core.events import (
    AnyBody,
    Event,
    ExecutionAborted,
    ExecutionCompleted,
    Plan,
    PlanAccepted,
    PlanApprovalRequested,
    PlanRejected,
    Purpose,
    StepSucceeded,
)
from kinema_core.model.purpose import purpose_of
from kinema_core.runtime.bus import Bus, Stored

PENDING: Final = "Pending"
HELD: Final = "AwaitingApproval"
RUNNING: Final = "Running"
REFUSED: Final = "Rejected"
COMPLETED: Final = "Completed"
IN_PART: Final = "PartlyCompleted"
ABORTED: Final = "Aborted"
_PHASES: Final[Mapping[type, str]] = {
    PlanAccepted: RUNNING,
    PlanApprovalRequested: HELD,
    PlanRejected: REFUSED,
    ExecutionAborted: ABORTED,
}
DECIDED_KINDS: Final = (
    "plan-accepted",
    "plan-approval-requested",
    "plan-rejected",
    "execution-completed",
    "execution-aborted",
)
"""Events about a proposed plan; the newest has its phase."""


class PlanState(msgspec.Struct, frozen=True, kw_only=True):
    """Phase of a plan, and the reason."""

    phase: str = PENDING
    """`Pending` (not decided yet), `AwaitingApproval`, `Rejected`, `Running` (approved and not ended), `Completed`,
    `PartlyCompleted` or `Aborted`."""
    why: str = ""
    rule: str = ""
    """The decider's rule that rejected it, or that asks for approval."""
    iteration: str = ""
    end: ExecutionCompleted | None = None
    """End of the plan, where it was completed, at least in part."""


class PlanLine(msgspec.Struct, frozen=True, kw_only=True):
    """One plan in short, or equal ones that were rejected one after the other. Money in USD per hour."""

    id: str
    """Of the newest of them, like `proposed` and `why`."""
    short_id: str
    proposed: datetime
    status: str
    usd_per_hour_before: float
    usd_per_hour_after: float
    moves: int
    purpose: Purpose
    phase: str
    """As in `PlanState`."""
    why: str
    rule: str = ""
    usd_per_hour_reached: float | None = None
    """Cost of the nodes after a plan that was completed in part, where the events show it."""
    times: int = 1
    """Number of times that it was proposed and rejected in a row: by the same rule, with the same figures."""
    first_proposed: datetime


async def read_plan_states(bus: Bus) -> dict[str, PlanState]:
    """Return the phase of every decided plan by its id, in the order of the last event about each."""
    states: dict[str, PlanState] = {}
    async for item in bus.read("LOG", kinds=DECIDED_KINDS):
        if isinstance(item, Stored):
            body = item.event.body
            state, why = phase_of(body)
            plan = str(getattr(body, "plan", ""))
            states.pop(plan, None)
            rule = str(getattr(body, "rule", ""))
            end = body if isinstance(body, ExecutionCompleted) else None
            states[plan] = PlanState(phase=state, why=why, rule=rule, iteration=item.event.iteration, end=end)
    return states


def phase_of(body: AnyBody) -> tuple[str, str]:
    """Return the phase of a plan after a decision about it or the end of its execution, and the reason."""
    if isinstance(body, ExecutionCompleted):
        return completed_phase(body)
    reason, detail = getattr(body, "reason", ""), getattr(body, "detail", "")
    return _PHASES.get(type(body), ""), f"{reason}: {detail}" if detail else reason


def completed_phase(end: ExecutionCompleted) -> tuple[str, str]:
    """Return the phase of a completed plan, and what was not done, such as `2 nodes kept, 1 workload skipped`."""
    counts = (("nodes_kept", "node", "kept"), ("workloads_skipped", "workload", "skipped"))
    undone = ((int(end.figures.get(name, 0)), what, state) for name, what, state in counts)
    left = ", ".join(f"{counted(count, what)} {state}" for count, what, state in undone if count)
    return IN_PART if left else COMPLETED, left


def cost_reached(plan: Plan, done: Mapping[str, StepSucceeded], end: ExecutionCompleted) -> float | None:
    """Return USD per hour of the nodes after a plan that was completed in part; None where the events do not show it.

    Args:
        plan: what was executed.
        done: the steps of it that succeeded, by id.
        end: what was counted at its end.
    """
    kept = [node for node in plan.nodes if node.action == "delete" and f"delete/{node.name}" not in done]
    for node in plan.temporary:
        booted = done.get(f"boot/{node.name}")
        if booted is not None and f"delete/{booted.figures.get('node', node.name)}" not in done:
            kept.append(node)
    if len(kept) != int(end.figures.get("nodes_kept", 0)):
        return None  # some were deleted by others, and no event names them
    return round(usd_after(plan) + sum(node.usd_per_hour for node in kept), 6)


def format_cost(plan: Plan, reached: float | None) -> str:
    """Return it in words, beside the costs before and as planned; empty where it is not known."""
    if reached is None:
        return ""
    return f"costs {hourly(reached)} after it, {hourly(usd_before(plan))} before ({hourly(usd_after(plan))} planned)"


def usd_before(plan: Plan) -> float:
    """Return USD per hour of the nodes before, whatever the objective."""
    return float(plan.figures.get("usd_per_hour_before", plan.cost.before))


def usd_after(plan: Plan) -> float:
    """Return USD per hour of the planned nodes, whatever the objective."""
    return float(plan.figures.get("usd_per_hour_after", plan.cost.after))


async def read_plans(bus: Bus, most: int) -> tuple[PlanLine, ...]:
    """Return the newest plans of the log, at most so many lines, in the order in which they were proposed.

    A rejected plan is soon proposed again: equal rejections in a row are one line.
    """
    states = await read_plan_states(bus)
    lines: deque[PlanLine] = deque(maxlen=most)
    partly: deque[Stored] = deque(maxlen=most)
    async for item in bus.read("LOG", kinds=("plan-proposed",)):
        if isinstance(item, Stored) and isinstance(item.event.body, Plan):
            line = _line(item.event, item.event.body, states.get(item.event.id, PlanState()))
            if lines and _same_refusal(lines[-1], line):
                last = lines.pop()
                line = msgspec.structs.replace(line, times=last.times + 1, first_proposed=last.first_proposed)
            lines.append(line)
            if line.phase == IN_PART:
                partly.append(item)
    plans = {item.event.id: item.event.body for item in partly if isinstance(item.event.body, Plan)}
    made = await _made(bus, plans, partly[0].sequence) if partly else {}
    return tuple(
        _reached(line, plans.get(line.id), made.get(line.id, {}), states.get(line.id, PlanState())) for line in lines
    )


async def _made(bus: Bus, plans: Collection[str], start: int) -> dict[str, dict[str, StepSucceeded]]:
    """Return the succeeded steps of these plans, by plan and id."""
    found: dict[str, dict[str, StepSucceeded]] = {plan: {} for plan in plans}
    async for item in bus.read("LOG", start=start, kinds=("step-succeeded",)):
        body = item.event.body if isinstance(item, Stored) else None
        if isinstance(body, StepSucceeded) and body.plan in found:
            found[body.plan][body.step] = body
    return found


def _reached(line: PlanLine, plan: Plan | None, done: Mapping[str, StepSucceeded], state: PlanState) -> PlanLine:
    """Return the line with what the cluster costs after a plan that was completed in part."""
    reached = cost_reached(plan, done, state.end) if plan is not None and state.end is not None else None
    if plan is None or reached is None:
        return line
    why = f"{line.why}; {format_cost(plan, reached)}"
    return msgspec.structs.replace(line, why=why, usd_per_hour_reached=reached)


def _same_refusal(one: PlanLine, other: PlanLine) -> bool:
    """Return whether both were rejected alike; the reasons may differ in the seconds that have passed."""

    def key(line: PlanLine) -> tuple[object, ...]:
        cost = (line.usd_per_hour_before, line.usd_per_hour_after)
        return (line.phase, line.rule, line.status, *cost, line.moves)

    return one.phase == REFUSED and key(one) == key(other)


def _line(event: Event, plan: Plan, state: PlanState) -> PlanLine:
    return PlanLine(
        id=event.id,
        short_id=short_id(event.id),
        proposed=event.time,
        status=plan.status,
        usd_per_hour_before=usd_before(plan),
        usd_per_hour_after=usd_after(plan),
        moves=plan.moves,
        purpose=purpose_of(plan),
        phase=state.phase,
        why=state.why,
        rule=state.rule,
        first_proposed=event.time,
    )
