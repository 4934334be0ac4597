"""Workloads that a plan has left in the middle of a move as its Kinema ended: those with a surplus, or half rolled."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from kinema_cli.output import counted
from kinema_cli.status.execution import Steps, steps_of
from kinema_core.events import Step, StepSucceeded
from kinema_core.runtime.bus import Bus, Stored
from kinema_kubernetes.client import Client, connect
from kinema_kubernetes.errors import NotFoundError
from kinema_kubernetes.objects import annotations_of, workload_path
from kinema_rescheduler.names import ROLLED

_KINDS: Final = ("step-started", "step-succeeded", "step-failed")
_ENDS: Final = {"surge-up": "surge-down", "roll": "finalize-rollout"}
"""What begins a move that leaves something to give back → what gives it back."""
_MOST: Final = 10
"""Workloads that are named; the rest is counted."""


async def incomplete_moves_of(bus: Bus, plan: str, kubeconfig: Path, *, context: str) -> str:
    """Return the workloads that the plan moves and that differ from what their owners want; empty where none do.

    Raises:
        BusError: the log cannot be read. KubernetesError: the cluster cannot be.
    """
    begun = await bus.last("LOG", "plan-accepted")
    if not isinstance(begun, Stored):
        return ""
    found = bus.read("LOG", start=begun.sequence, kinds=_KINDS)
    steps = moving(steps_of(plan, [item.event async for item in found if isinstance(item, Stored)]))
    if not steps:
        return ""
    api = await connect(str(kubeconfig), context=context)
    try:
        return format_moves([said for step in steps if (said := await _now(api, step))])
    finally:
        await api.close()


def moving(steps: Steps) -> tuple[Step, ...]:
    """Return the newest step of each workload whose move may have begun and has not ended, by workload."""
    newest: dict[str, Step] = {}
    for step in steps.intended.values():
        if step.kind in _ENDS:
            newest[step.target] = step
    return tuple(newest[target] for target in sorted(newest) if _goes_on(steps, newest[target]))


def _goes_on(steps: Steps, begun: Step) -> bool:
    outcome = steps.settled.get(begun.id)
    made = outcome is None or (isinstance(outcome, StepSucceeded) and outcome.outcome != "void")
    end = _ENDS[begun.kind] + begun.id.removeprefix(begun.kind)
    return made and end not in steps.done and f"revert/{begun.target}" not in steps.done


async def _now(api: Client, begun: Step) -> str:
    """Return what is left of the move on the workload; empty where it is complete, or the workload is gone."""
    try:
        workload = await api.get(workload_path(begun.target))
    except NotFoundError:
        return ""
    if begun.kind == "roll":
        return f"{begun.target} is half rolled" if ROLLED in annotations_of(workload) else ""
    replicas = (workload.get("spec") or {}).get("replicas")
    if replicas != begun.replicas_to:
        return ""
    more = counted(begun.replicas_to - begun.replicas_from, "replica")
    return f"{begun.target} has {more} too many ({begun.replicas_to}, its owner wants {begun.replicas_from})"


def format_moves(every: Iterable[str]) -> str:
    """Return the workloads in a line."""
    said = list(every)
    more = [f"{len(said) - _MOST} more workloads in the middle of a move"] if len(said) > _MOST else []
    return "; ".join((*said[:_MOST], *more))
