"""Gain of an accepted plan, and whether its execution brought it although it left something undone.

An execution's end counts the nodes that were booted and deleted and does not name them. So the least that it can have
saved is taken: the cheapest of the plan's nodes were deleted, the dearest were booted. An execution that may have
saved nothing counts as one that saved nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kinema_core.events import ExecutionCompleted, Offer, Plan, PlanNode
from kinema_core.model.power import micro_watts

_MICRO: Final = 1_000_000
_ENOUGH: Final = 2
"""What is left undone is at most as much as what was reached: one part of two."""


@dataclass(frozen=True)
class Aim:
    """Return what a plan is to save, in millionths of the unit that it was made for."""

    saving: int
    deletes: tuple[int, ...]
    """Prices of the nodes that it deletes, those on the way too; the cheapest first."""
    boots: tuple[int, ...]
    """Prices of those that it boots, likewise; the dearest first."""


def aim_of(plan: Plan, offers: Sequence[Offer]) -> Aim | None:
    """Return what the plan is to save; None where energy is counted and a machine's is not known."""
    deleted = [node for node in plan.nodes if node.action == "delete"]
    booted = [node for node in plan.nodes if node.action == "boot"]
    watts = _watts(offers) if plan.cost.unit == "W" else None
    if watts is not None and not all(watts.get(node.machine_type) for node in (*deleted, *booted, *plan.temporary)):
        return None

    def price(node: PlanNode) -> int:
        return round(node.usd_per_hour * _MICRO) if watts is None else watts[node.machine_type]

    going, coming, passing = (sorted(map(price, nodes)) for nodes in (deleted, booted, plan.temporary))
    return Aim(
        saving=sum(going) - sum(coming),
        deletes=tuple(sorted([*going, *passing])),
        boots=tuple(sorted([*coming, *passing], reverse=True)),
    )


def _watts(offers: Sequence[Offer]) -> dict[str, int]:
    """Return microwatts by machine type; of offers of a type that differ, the first counts."""
    return {offer.machine_type: micro_watts(offer) for offer in reversed(offers)}


def brought(aim: Aim, end: ExecutionCompleted) -> bool:
    """Return whether half of the saving came at least; never for a plan that was not to save."""
    deleted, booted = (int(end.figures.get(name, 0)) for name in ("deleted", "booted"))
    least = sum(aim.deletes[:deleted]) - sum(aim.boots[:booted])
    return aim.saving > 0 and least * _ENOUGH >= aim.saving
