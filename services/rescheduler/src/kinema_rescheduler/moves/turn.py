"""What a move in progress does next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kinema_core.events import Step
from kinema_rescheduler.moves.workloads import Movers
from kinema_rescheduler.names import skip_id, unit_id
from kinema_rescheduler.plan.context import Decision, Scene

HARMLESS: Final = frozenset(
    {"changed", "conflict", "gone", "held", "refused", "not-ready", "budget", "taken-back", "throttled"}
)
"""Reasons for which only the workload concerned is left alone; any other ends the plan."""


@dataclass(frozen=True)
class Blocked:
    """Why a move does not begin."""

    workload: str
    reason: str
    detail: str


@dataclass(frozen=True)
class Turn:
    """Bodies to publish now, and whether the move has ended."""

    bodies: tuple[Decision, ...] = ()
    over: bool = False
    waits: Blocked | None = None
    """What it waits for, where that is neither a step of its own nor a moment."""


WAIT: Final = Turn()
OVER: Final = Turn(over=True)


def skip(scene: Scene, movers: Movers, reason: str, detail: str) -> Turn:
    """Leave this workload where it is."""
    return skipping(scene, Blocked(movers.key, reason, detail))


def skipping(scene: Scene, blocked: Blocked) -> Turn:
    """Leave a workload where it is whose move was blocked."""
    return Turn(scene.verdict(skip_id(blocked.workload), blocked.reason, blocked.detail))


def blocked(scene: Scene, movers: Movers, reason: str, detail: str) -> Turn:
    """Wait while anything else goes on; then leave the workload alone."""
    if scene.passed(scene.last_event, scene.limits.blocked_seconds):
        return skip(scene, movers, reason, detail)
    return Turn(waits=Blocked(movers.key, reason, detail))


def fail(scene: Scene, movers: Movers, reason: str, detail: str) -> Turn:
    """A step failed for good: leave the workload alone, or give the plan up where that would not help."""
    if reason in HARMLESS:
        return skip(scene, movers, reason, detail)
    return Turn(scene.give_up(reason, f"{movers.key}: {detail}"))


def steering(scene: Scene, movers: Movers, number: int, pods: tuple[str, ...], nodes: tuple[str, ...]) -> Turn:
    """Begin the `number`th move of a workload: say where its new pods shall go."""
    owner = next(pod.owner for pod in movers.victims if pod.uid in pods)
    step = Step(
        id=unit_id("steer", movers.key, number),
        kind="steer",
        target=movers.key,
        uid=owner.uid if owner is not None else "",
        pods=pods,
        nodes=nodes,
    )
    return Turn(scene.intend(step))


def steered(scene: Scene, movers: Movers, number: int) -> Turn:
    """Whether new pods are steered by now (`over`). Steering that failed is done without: it fails open."""
    steer = scene.unit("steer", movers.key, number)
    if steer is None:
        return OVER
    if not steer.over:
        return Turn(scene.intend(steer.step))
    if steer.result == "done" and not scene.passed(steer.ended, scene.limits.steer_seconds):
        return WAIT  # found made, it has been in effect for long
    return OVER
