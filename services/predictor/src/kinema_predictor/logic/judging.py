"""From the history of some workloads to what a pod of each needs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Literal

import numpy as np

from kinema_core.events import UsageBand
from kinema_predictor.forecasting.cleaning import BREAK, Clean, breaks, clean
from kinema_predictor.forecasting.competition import band, compete, entrants, fitted, level_for
from kinema_predictor.forecasting.models import Model
from kinema_predictor.forecasting.task import DAY_SECONDS, Array, Task
from kinema_predictor.logic.history import History

Resource = Literal["cpu", "memory"]
RESOURCES: Final[tuple[Resource, ...]] = ("cpu", "memory")
LEAST_STEPS: Final = 8
"""Steps of history without which nothing can be judged."""
SILENT_STEPS: Final = 3
"""Steps without a sample after which a workload's usage counts as unknown."""
_CHUNK: Final = 500


class RefusedError(Exception):
    """Nothing is recommended for this workload."""

    def __init__(self, reason: str, **figures: float | str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.figures = figures


@dataclass(frozen=True)
class Risk:
    """How often usage may exceed a request."""

    cpu: float
    """Share of the steps above the request of CPU."""
    memory: float
    """The same of memory, for any single step of the horizon."""

    def quantile(self, resource: Resource) -> float:
        """Return the share of steps that a request is to cover."""
        return 1 - (self.cpu if resource == "cpu" else self.memory)


@dataclass(frozen=True)
class Judged:
    """What is known of the usage of one workload."""

    bands: tuple[UsageBand, ...]
    memory_peak: int
    """Largest of the last day, bytes."""

    def band(self, resource: str) -> UsageBand | None:
        """Return the band of a resource."""
        return next((one for one in self.bands if one.resource == resource), None)


def judge(
    history: History,
    workloads: Sequence[str],
    *,
    risks: Mapping[str, Risk],
    horizon: timedelta,
    capacity: Mapping[str, int],
    before: Mapping[tuple[str, str], frozenset[str]],
) -> dict[str, Judged | RefusedError]:
    """Return for each workload its judgement, or why there is none.

    Args:
        history: of all workloads.
        workloads: keys.
        risks: by workload.
        horizon: time ahead.
        capacity: of the largest node, by resource; empty where no node is known.
        before: models chosen the last time, by workload and resource.
    """
    found: dict[str, Judged | RefusedError] = {}
    for at in range(0, len(workloads), _CHUNK):
        some = workloads[at : at + _CHUNK]
        series = {
            name: clean(history.matrix(some, name, history.steps), float(capacity.get(name, 0)) or np.inf)
            for name in RESOURCES
        }
        refused = {key: error for row, key in enumerate(some) if (error := _unfit(series, row, history)) is not None}
        bands: dict[str, list[UsageBand]] = defaultdict(list)
        for name in RESOURCES:
            rows = [row for row, key in enumerate(some) if key not in refused]
            for row, one in _bands(series[name], rows, some, name, risks, horizon, history, before):
                bands[some[row]].append(one)
        day = max(1, round(DAY_SECONDS / history.step_seconds))
        for row, key in enumerate(some):
            peak = int(np.ceil(series["memory"].values[row, -day:].max(initial=0.0)))
            found[key] = refused.get(key) or Judged(tuple(bands[key]), peak)
    return found


def _unfit(series: Mapping[Resource, Clean], row: int, history: History) -> RefusedError | None:
    task = Task(1, history.step_seconds, 0.5)
    for name in RESOURCES:
        one = series[name]
        if one.age[row] == 0:
            return RefusedError("no-data")
        if one.silent[row] > SILENT_STEPS:
            return RefusedError("stale", silent_seconds=float(one.silent[row] * history.step_seconds))
        if one.age[row] < LEAST_STEPS:
            return RefusedError("few-samples", steps=int(one.age[row]), needed=LEAST_STEPS)
        times = float(breaks(one.values[row : row + 1, -int(one.age[row]) :], task)[0])
        if times >= BREAK:
            return RefusedError("level-broken", resource=name, times=round(times, 1))
    return None


def _bands(  # noqa: PLR0913, PLR0917 - the parts of one table
    series: Clean,
    rows: Sequence[int],
    keys: Sequence[str],
    name: Resource,
    risks: Mapping[str, Risk],
    horizon: timedelta,
    history: History,
    before: Mapping[tuple[str, str], frozenset[str]],
) -> list[tuple[int, UsageBand]]:
    """Return the band of each row; rows of one length and risk are judged together."""
    steps = round(horizon.total_seconds() / history.step_seconds)
    groups: dict[tuple[int, float], list[int]] = defaultdict(list)
    day = max(1, round(DAY_SECONDS / history.step_seconds))
    for row in rows:
        groups[_usable(int(series.age[row]), day), risks[keys[row]].quantile(name)].append(row)
    found: list[tuple[int, UsageBand]] = []
    for (length, quantile), members in sorted(groups.items()):
        task = fitted(Task(max(1, steps), history.step_seconds, quantile), length)
        past = series.values[members, -length:]
        earlier = [before.get((keys[row], name), frozenset()) for row in members]
        able = entrants(task, length)
        found += zip(members, _judged(past, task, earlier, able, name, series.coverage[members]), strict=True)
    return found


def _judged(
    past: Array,
    task: Task,
    before: Sequence[frozenset[str]],
    able: Sequence[Model],
    name: Resource,
    coverage: Array,
) -> list[UsageBand]:
    outcome = compete(past, task, before, able)
    _, upper = band(past, task, outcome.offsets, outcome.chosen, able)
    need = enough = upper.max(axis=1)
    if name == "cpu":
        need = level_for(upper, outcome.spread, task.quantile)
        enough = level_for(upper, outcome.spread, task.quantile, unused=0.0)
    histogram = outcome.models.index("histogram")
    found = []
    for row in range(len(past)):
        chosen = np.flatnonzero(outcome.chosen[row])
        found.append(
            UsageBand(
                resource=name,
                need=int(np.ceil(round(float(need[row]), 3))),
                enough=int(np.ceil(round(float(enough[row]), 3))),
                quantile=round(task.quantile, 6),
                models=tuple(outcome.models[index] for index in chosen),
                offsets=tuple(round(float(outcome.offsets[row, index])) for index in chosen),
                horizon_seconds=task.horizon * task.step_seconds,
                days=round(past.shape[1] / task.per_day, 3),
                steps=past.shape[1],
                coverage=round(float(coverage[row]), 4),
                above=round(float(outcome.above[row]), 4),
                loss=float(f"{outcome.losses[row].min():.5g}"),
                vpa_loss=float(f"{outcome.losses[row, histogram]:.5g}"),
            )
        )
    return found


def _usable(age: int, day: int) -> int:
    """Return how much of a history is used: whole days, or a power of two of steps, so that many are judged at once."""
    return age // day * day if age >= day else 1 << (age.bit_length() - 1)
