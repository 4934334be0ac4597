"""Moves whose new pods are on their way: what the journal shows of them, for the one that leads their pods."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from kinema_core.events import Step
from kinema_rescheduler.journal.execution import Execution
from kinema_rescheduler.names import skip_id, unit_id
from kinema_rescheduler.plan.limits import Limits


def landing_steps(execution: Execution | None, now: datetime, limits: Limits) -> tuple[Step, ...]:
    """Return the `prefer-nodes` steps of moves whose new pods may still come, in the order of the journal.

    From when the nodes are published until the new pods are Ready, the move has failed or was abandoned, or they have
    had their time to appear. Pods of a workload that come later are not those of the plan.
    """
    if execution is None or execution.ending or limits.landing_seconds == 0:
        return ()
    return tuple(_landing(execution, now, limits))


def _landing(execution: Execution, now: datetime, limits: Limits) -> Iterator[Step]:
    last: dict[str, Step] = {}
    for progress in execution.steps.values():
        if progress.step.kind == "prefer-nodes":
            last[progress.step.target] = progress.step
    for key, step in last.items():
        steered = execution.steps[step.id]
        published = steered.state == "done" and steered.result != "void"
        if published and step.nodes and skip_id(key) not in execution.verdicts and _comes(execution, step, now, limits):
            yield step


def _comes(execution: Execution, step: Step, now: datetime, limits: Limits) -> bool:
    """Return whether the new pods of a move are asked for, or about to be, and may not all be there."""
    number = int(step.id.rpartition("/")[2])
    over = (unit_id(kind, step.target, number) for kind in ("surge-down", "finalize-rollout"))
    if any(id_ in execution.steps for id_ in over):
        return False
    for kind, seconds in (("roll", limits.roll_seconds), ("surge-up", None), ("evict", None)):
        asked = execution.progress(unit_id(kind, step.target, number))
        if asked is None:
            continue
        if asked.lost or asked.result == "void":
            return False
        patience = timedelta(seconds=limits.observed_seconds if seconds is None else seconds)
        return asked.ended is None or now - asked.ended <= patience
    return now - execution.steps[step.id].first <= timedelta(seconds=limits.pods_ready_seconds)
