"""Accuracy and speed of the forecasts: every model, the combination that the predictor uses, and neighbors' rules.

    python -m benchmarks.forecast [--series DIR] [--seed 1] [--each 12] [--out FILE]

Rolling origin: CPU 24 hours ahead after 7 days, memory 1 hour ahead after 12 hours, at the 95th percentile. Each model
is calibrated in the same way. `vpa` is the recommender of the VerticalPodAutoscaler as it comes: the 90th percentile of
a histogram with a half-life of a day, plus 15%. `vpa-p95` is its 95th percentile without a margin. `last-day-maximum`
takes no part in the predictor's combination. `thesis-as-is` is the thesis's line without a band. With `--series`, the
folder's `cpu/*.csv` and `memory.csv` are measured as well.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import numpy as np

from benchmarks.machine import peak_rss_mib, write_result
from benchmarks.usage_series import CPU_KINDS, MEMORY_KINDS, Series, cpu_files, generated, memory_file
from kinema_predictor.forecasting.competition import Outcome, band, compete, entrants, fitted, origins_of, pinball
from kinema_predictor.forecasting.models import MODELS, decayed_quantiles
from kinema_predictor.forecasting.task import Array, Task
from kinema_predictor.threads import one_thread

_T = TypeVar("_T")
QUANTILE: Final = 0.95
OURS: Final = "selected"
_VPA_MARGIN: Final = 1.15
_WORKLOADS: Final = 10_000
_CHUNK: Final = 1_000


@dataclass(frozen=True)
class Setting:
    """History, horizon and distance of origins, in steps."""

    history: int
    horizon: int


CPU: Final = Setting(history=2016, horizon=288)
MEMORY: Final = Setting(history=720, horizon=60)


def measure(series: Path | None = None, *, each: int = 12, seed: int = 1) -> dict[str, object]:
    """Return accuracy by group of series, and speed."""
    with one_thread():
        groups = {
            "generated cpu": (generated(CPU_KINDS, each=each, step_seconds=300, steps=4032, seed=seed), CPU),
            "generated memory": (generated(MEMORY_KINDS, each=each, step_seconds=60, steps=1440, seed=seed), MEMORY),
        }
        if series is not None:
            groups["measured cpu"] = (cpu_files(series / "cpu"), CPU)
            groups["measured memory"] = (memory_file(series / "memory.csv"), MEMORY)
        found: dict[str, object] = {name: accuracy(*group) for name, group in groups.items()}
        return {**found, "speed": speed()}


def accuracy(series: Sequence[Series], setting: Setting) -> dict[str, object]:
    """Return for each model its loss in shares of mean usage, the share of steps above it, and its over-provision."""
    steps = min(len(one.values) for one in series)
    task = fitted(Task(setting.horizon, series[0].step_seconds, QUANTILE), setting.history)
    scale = np.array([max(float(one.values[setting.history : steps].mean()), 1e-12) for one in series])
    scores: dict[str, list[Array]] = {}
    before: tuple[frozenset[str], ...] = ()
    for origin in range(setting.history, steps - setting.horizon + 1, setting.horizon):
        past = np.stack([one.values[origin - setting.history : origin] for one in series])
        truth = np.stack([one.values[origin : origin + setting.horizon] for one in series])
        outcome = compete(past, task, before)
        before = tuple(frozenset(np.array(outcome.models)[row]) for row in outcome.chosen)
        for name, upper in _uppers(past, task, outcome).items():
            loss = pinball(truth - upper, QUANTILE).mean(axis=1) / scale
            over = (upper - truth).mean(axis=1) / scale
            scores.setdefault(name, []).append(np.stack([loss, (truth > upper).mean(axis=1), over]))
    means = {name: np.mean(rows, axis=0) for name, rows in scores.items()}
    return _summary(means, [one.name for one in series])


def _uppers(past: Array, task: Task, outcome: Outcome) -> dict[str, Array]:
    able = [model for model in MODELS if model.name in outcome.models]
    now = (past.shape[1],)
    paths = {model.name: model.paths(past, now, task)[0] for model in able}
    found = {
        name: np.maximum(path + outcome.offsets[:, index, None], 0.0)
        for index, (name, path) in enumerate(paths.items())
    }
    flat = np.ones((1, task.horizon))
    found["thesis-as-is"] = paths["thesis"]
    found["vpa"] = _VPA_MARGIN * decayed_quantiles(past, now, task, 0.9)[0][:, None] * flat
    found["vpa-p95"] = decayed_quantiles(past, now, task, QUANTILE)[0][:, None] * flat
    found["last-day-maximum"] = past[:, -task.per_day :].max(axis=1)[:, None] * flat
    found[OURS] = band(past, task, outcome.offsets, outcome.chosen, able)[1]
    return found


def _summary(means: Mapping[str, Array], names: Sequence[str]) -> dict[str, object]:
    """Return the table; `typical` is the geometric mean over the series of the loss in shares of `vpa`'s."""
    reference = means["vpa"][0]
    table = {
        name: {
            "pinball": round(float(rows[0].mean()), 6),
            "typical_of_vpa": round(float(np.exp(np.log((rows[0] + 1e-9) / (reference + 1e-9)).mean())), 4),
            "share_above": round(float(rows[1].mean()), 4),
            "over_provision": round(float(rows[2].mean()), 4),
        }
        for name, rows in sorted(means.items(), key=lambda item: float(item[1][0].mean()))
    }
    singles = {model.name: table[model.name]["pinball"] for model in MODELS if model.name in table}
    best = min(singles, key=lambda name: singles[name])
    ours = table[OURS]["pinball"]
    return {
        "series": len(names),
        "models": table,
        "best_single": best,
        "against_best_single": _against(ours, singles[best]),
        "against_vpa": _against(ours, table["vpa"]["pinball"]),
        "against_vpa_p95": _against(ours, table["vpa-p95"]["pinball"]),
        "against_thesis": _against(ours, table["thesis-as-is"]["pinball"]),
        "share_above": table[OURS]["share_above"],
    }


def _against(ours: float, theirs: float) -> float:
    """Return by which share of the other's loss ours is above it; negative: it is better."""
    return round(ours / theirs - 1, 4)


def speed() -> dict[str, object]:
    """Return processor seconds for 10,000 workloads, two resources, a week of 5-minute steps; peak memory in MiB."""
    task = Task(CPU.horizon, 300.0, QUANTILE)
    rng = np.random.default_rng(5)
    wave = 50 * np.sin(np.arange(CPU.history) / task.per_day * 2 * np.pi)
    past = np.abs(rng.normal(100, 20, (_CHUNK, CPU.history)) + wave)
    able = entrants(task, CPU.history)
    seconds = {model.name: _timed(partial(model.paths, past, (CPU.history,), task))[0] for model in able}
    competition, outcome = _timed(partial(compete, past, task), times=1)
    update, _ = _timed(partial(band, past, task, outcome.offsets, outcome.chosen, able))
    return {
        "series": 2 * _WORKLOADS,
        "steps": CPU.history,
        "folds": len(origins_of(task, CPU.history, 2.0)),
        "forecast_seconds_by_model": {name: round(one, 2) for name, one in seconds.items()},
        "cheap_family_seconds": round(sum(seconds.values()), 2),
        "competition_seconds": round(competition, 2),
        "update_seconds": round(update, 2),
        "peak_mib": round(peak_rss_mib()),
    }


def _timed(work: Callable[[], _T], times: int = 4) -> tuple[float, _T]:
    """Return processor seconds for all series of work on a chunk, and its result; the first time also gets memory."""
    began = time.process_time()
    found = work()
    for _ in range(times - 1):
        found = work()
    return (time.process_time() - began) / times * 2 * _WORKLOADS / _CHUNK, found


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--series", type=Path, help="folder of measured series: cpu/*.csv and memory.csv")
    parser.add_argument("--each", type=int, default=12, help="generated series of each kind")
    parser.add_argument("--seed", type=int, default=1, help="of the generated series")
    parser.add_argument("--out", type=Path, default=Path("out/bench/forecast.json"), help="file to write")
    arguments = parser.parse_args()
    result = measure(arguments.series, each=arguments.each, seed=arguments.seed)
    print(json.dumps(result, indent=2))
    write_result("forecast", result, arguments.out)


if __name__ == "__main__":
    main()
