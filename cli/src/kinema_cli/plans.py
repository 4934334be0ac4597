"""The plans of the log, in short: what they proposed and what became of them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

import msgspec

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
_FATES: Final[Mapping[type, str]] = {
    PlanAccepted: ACCEPTED,
    PlanHeld: HELD,
    PlanRefused: "refused",
    ExecutionFinished: "carried out",
    ExecutionAborted: "aborted",
}
_FATE_KINDS: Final = ("plan-accepted", "plan-held", "plan-refused", "execution-finished", "execution-aborted")


class Fate(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a plan so far."""

    fate: str = UNDECIDED
    """`undecided`, `held`, `refused`, `accepted` (and perhaps under way), `carried out` or `aborted`."""
    why: str = ""
    iteration: str = ""


class PlanLine(msgspec.Struct, frozen=True, kw_only=True):
    """One plan in short. Money in USD per hour."""

    id: str
    proposed: datetime
    status: str
    usd_per_hour_before: float
    usd_per_hour_after: float
    moves: int
    fate: str
    """As in `Fate`."""
    why: str


async def read_fates(bus: Bus) -> dict[str, Fate]:
    """What became of every plan that anything was said about, by its id, in the order of the last word."""
    fates: dict[str, Fate] = {}
    async for item in bus.read("LOG", kinds=_FATE_KINDS):
        if isinstance(item, Stored):
            body = item.event.body
            reason, detail = getattr(body, "reason", ""), getattr(body, "detail", "")
            why = f"{reason}: {detail}" if detail else reason
            plan = str(getattr(body, "plan", ""))
            fates.pop(plan, None)
            fates[plan] = Fate(fate=_FATES[type(body)], why=why, iteration=item.event.iteration)
    return fates


async def read_plans(bus: Bus, most: int) -> tuple[PlanLine, ...]:
    """The newest plans of the log, at most so many, in the order in which they were proposed."""
    fates = await read_fates(bus)
    lines: dict[str, PlanLine] = {}
    async for item in bus.read("LOG", kinds=("plan-proposed",)):
        if isinstance(item, Stored) and isinstance(item.event.body, Plan):
            lines[item.event.id] = _line(item.event, item.event.body, fates.get(item.event.id, Fate()))
            if len(lines) > most:
                del lines[next(iter(lines))]
    return tuple(lines.values())


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
    )
