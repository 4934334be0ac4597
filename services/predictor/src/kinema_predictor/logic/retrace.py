"""From a judgement back to what led to it: usage, the band ahead, and how every model did in the back-test."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import numpy as np

from kinema_core.events import UsageBand
from kinema_predictor.forecasting.cleaning import clean
from kinema_predictor.forecasting.competition import band, compete, entrants
from kinema_predictor.forecasting.task import Array, Task
from kinema_predictor.logic.history import History
from kinema_predictor.logic.judging import RESOURCES


@dataclass(frozen=True)
class Trace:
    """What a band was made from; amounts are millicores or bytes per pod."""

    end: datetime
    """When the newest step ended."""
    step_seconds: float
    usage: Array
    """(t,) in the steps that were judged, NaN where there is no sample."""
    middle: Array
    """(horizon,) the forecast of the steps after `end`, before calibration."""
    upper: Array
    """(horizon,) the edge of the band."""
    tested: Array
    """(horizon,) the edge as it was forecast a horizon before `end`, for the last steps of `usage`."""
    losses: tuple[tuple[str, float], ...]
    """Loss in the back-test of every model that could be judged, the best first."""


def retrace(history: History, workload: str, judged: UsageBand, capacity: float) -> Trace:
    """Return what a judgement of a workload was made from.

    Args:
        history: of the time of the judgement.
        workload: its key.
        judged: one of its bands.
        capacity: of the largest node, infinite where no node is known.

    Raises:
        ValueError: the history is shorter than what was judged.
    """
    resource = next(name for name in RESOURCES if name == judged.resource)
    if history.end is None or history.steps < judged.steps:
        raise ValueError(f"{judged.steps} steps of usage were judged, and {history.steps} are known")
    raw = history.matrix([workload], resource, history.steps)
    if np.isnan(raw).all():
        raise ValueError(f"no usage of {workload} is known")
    past = clean(raw, capacity).values[:, -judged.steps :]
    horizon = round(judged.horizon_seconds / history.step_seconds)
    task = Task(horizon, history.step_seconds, judged.quantile)
    able = entrants(task, judged.steps)
    outcome = compete(past, task, (frozenset(judged.models),), able)
    offsets = dict(zip(judged.models, judged.offsets, strict=True))
    added = np.array([[float(offsets.get(name, 0)) for name in outcome.models]])
    chosen = np.array([[name in offsets for name in outcome.models]])
    middle, upper = band(past, task, added, chosen, able)
    _, tested = band(past[:, :-horizon], task, added, chosen, able)
    return Trace(
        end=history.end,
        step_seconds=history.step_seconds,
        usage=raw[0, -judged.steps :],
        middle=middle[0],
        upper=upper[0],
        tested=tested[0],
        losses=tuple(sorted(zip(outcome.models, map(float, outcome.losses[0]), strict=True), key=lambda one: one[1])),
    )
