"""The plans of the log, in short: what they proposed and what became of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from datetime import datetime
from typing import Final

import msgspec

from kinema_cli.output import counted
from kinema_core.events import (
    Event,
    ExecutionAborted,
    ExecutionFinished,
    Plan,
    PlanAccepted,
    PlanHeld,
    PlanRefused,
)
from kinema_core.runtime.bus import Bus, Stored

UNDECIDED: Final = "undecided"
HELD: Final = "held"
ACCEPTED: Final = "accepted"
REFUSED: Final = "refused"
_FATES: Final[Mapping[type, str]] = {
    PlanAccepted: ACCEPTED,
    PlanHeld: HELD,
    PlanRefused: REFUSED,
    ExecutionAborted: "aborted",
}
_FATE_KINDS: Final = ("plan-accepted", "plan-held", "plan-refused", "execution-finished", "execution-aborted")


class Fate(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a plan so far."""

    fate: str = UNDECIDED
    """`undecided`, `held`, `refused`, `accepted` (and perhaps under way), `carried out`, `carried out in part` or
    `aborted`."""
    why: str = ""
    rule: str = ""
    """The decider's rule that refused or held it."""
    iteration: str = ""


class PlanLine(msgspec.Struct, frozen=True, kw_only=True):
    """One plan in short, or equal ones that were refused one after the other. Money in USD per hour."""

    id: str
    """Of the newest of them, like `proposed` and `why`."""
    proposed: datetime
    status: str
    usd_per_hour_before: float
    usd_per_hour_after: float
    moves: int
    fate: str
    """As in `Fate`."""
    why: str
    rule: str = ""
    times: int = 1
    """How often it was proposed and refused in a row: by the same rule, with the same figures."""
    first_proposed: datetime


async def read_fates(bus: Bus) -> dict[str, Fate]:
    """What became of every plan that anything was said about, by its id, in the order of the last word."""
    fates: dict[str, Fate] = {}
    async for item in bus.read("LOG", kinds=_FATE_KINDS):
        if isinstance(item, Stored):
            body = item.event.body
            reason, detail = getattr(body, "reason", ""), getattr(body, "detail", "")
            fate, why = _FATES.get(type(body), ""), f"{reason}: {detail}" if detail else reason
            if isinstance(body, ExecutionFinished):
                fate, why = how_far(body)
            plan = str(getattr(body, "plan", ""))
            fates.pop(plan, None)
            rule = str(getattr(body, "rule", ""))
            fates[plan] = Fate(fate=fate, why=why, rule=rule, iteration=item.event.iteration)
    return fates


def how_far(end: ExecutionFinished) -> tuple[str, str]:
    """Whether the plan was carried out whole, and what was not done, such as `2 nodes kept, 1 workload skipped`."""
    told = (("nodes_kept", "node", "kept"), ("workloads_skipped", "workload", "skipped"))
    undone = ((int(end.figures.get(name, 0)), what, fate) for name, what, fate in told)
    left = ", ".join(f"{counted(count, what)} {fate}" for count, what, fate in undone if count)
    return "carried out in part" if left else "carried out", left


async def read_plans(bus: Bus, most: int) -> tuple[PlanLine, ...]:
    """The newest plans of the log, at most so many lines, in the order in which they were proposed.

    A plan that is refused is soon made again, and again: equal refusals in a row are one line.
    """
    fates = await read_fates(bus)
    lines: deque[PlanLine] = deque(maxlen=most)
    async for item in bus.read("LOG", kinds=("plan-proposed",)):
        if isinstance(item, Stored) and isinstance(item.event.body, Plan):
            line = _line(item.event, item.event.body, fates.get(item.event.id, Fate()))
            if lines and _same_refusal(lines[-1], line):
                last = lines.pop()
                line = msgspec.structs.replace(line, times=last.times + 1, first_proposed=last.first_proposed)
            lines.append(line)
    return tuple(lines)


def _same_refusal(one: PlanLine, other: PlanLine) -> bool:
    """Whether both were refused alike. The reason may differ: it tells seconds that passed."""

    def key(line: PlanLine) -> tuple[object, ...]:
        cost = (line.usd_per_hour_before, line.usd_per_hour_after)
        return (line.fate, line.rule, line.status, *cost, line.moves)

    return one.fate == REFUSED and key(one) == key(other)


def _line(event: Event, plan: Plan, fate: Fate) -> PlanLine:
    return PlanLine(
        id=event.id,
        proposed=event.time,
        status=plan.status,
        usd_per_hour_before=plan.figures.get("usd_per_hour_before", plan.cost.before),
        usd_per_hour_after=plan.figures.get("usd_per_hour_after", plan.cost.after),
        moves=plan.moves,
        fate=fate.fate,
        why=fate.why,
        rule=fate.rule,
        first_proposed=event.time,
    )
