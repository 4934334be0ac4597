"""Replicas that rise and fall every day, with and without the look ahead of the predictor (`ahead_hours`).

    python -m benchmarks.ahead [--days 2] [--workloads 6] [--hours 0 --hours 3] [--work 5] [--idle-day 0]

Each workload has its own hours and heights, and each day differs: the rise begins up to ten minutes earlier or later
and goes up to a fifth higher or less high. Usage of the two days before is known, as an observer with Prometheus has
it. The pipeline is the services' own, on the simulated cluster. `--idle-day N` leaves the peak of a day out.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog

from kinema_core.events import AnyBody, Event, UsageResampled
from kinema_core.model.cluster import Cluster
from kinema_core.model.usage import Amounts, resampled, step_start
from kinema_core.runtime.settings import RuntimeSettings
from kinema_core.runtime.stage import Moment
from kinema_predictor.logic.history import History, remember
from kinema_predictor.service import Predictor
from kinema_predictor.settings import Settings
from kinema_sim.simulate.build import build
from kinema_sim.simulate.course import Figures, Recorder, Sample, figures
from kinema_sim.simulate.pipeline import NAME, Pipeline
from kinema_sim.simulate.scenario import Loaded, load_scenario, milliseconds
from kinema_sim.simulate.view import View, now_of

DAY: Final = 86_400
STEP: Final = timedelta(minutes=5)
KNOWN_DAYS: Final = 2
KEPT: Final = timedelta(days=21)
LEAST: Final = 2
MOST: Final = 12
"""Replicas of a workload at night, and at most by day."""
HEADER: Final = "| look ahead | cost | mean nodes | booted | pod-seconds pending | not Ready | moved | by `payback` |"


@dataclass(frozen=True)
class Shape:
    """A workload's day: seconds after midnight at which the rise begins and ends, and the fall."""

    rise: int
    high: int
    fall: int
    low: int
    peak: int


def shapes(count: int, seed: int) -> list[Shape]:
    """Return the usual day of each workload."""
    chance = random.Random(seed)
    found = []
    for _ in range(count):
        rise = chance.randrange(7 * 3600, 9 * 3600, 300)
        fall = chance.randrange(16 * 3600, 18 * 3600, 300)
        lasts = chance.randrange(1200, 3600, 300)
        found.append(Shape(rise, rise + lasts, fall, fall + 2 * lasts, chance.randint(MOST // 2, MOST)))
    return found


def replicas(shape: Shape, day: int, chance: random.Random) -> Iterator[tuple[int, int]]:
    """Yield the changes of one day: seconds since the first midnight, and replicas from then on."""
    shift, height = chance.randrange(-600, 601, 60), chance.uniform(0.8, 1.2)
    peak = max(LEAST, round(shape.peak * height))
    for begin, end, first, last in (
        (shape.rise, shape.high, LEAST, peak),
        (shape.fall, shape.low, peak, LEAST),
    ):
        steps = abs(last - first)
        for n in range(1, steps + 1):
            at = day * DAY + shift + begin + (end - begin) * n // steps
            yield at, first + (n if last > first else -n)


def courses(count: int, days: int, seed: int, idle: int | None) -> dict[str, list[tuple[int, int]]]:
    """Return the changes of each workload from the first day that is known on."""
    found: dict[str, list[tuple[int, int]]] = {}
    for number, shape in enumerate(shapes(count, seed)):
        chance = random.Random(f"{seed}/{number}")
        found[f"web-{number}"] = [
            change
            for day in range(-KNOWN_DAYS, days)
            for change in replicas(shape, day, chance)
            if idle is None or day != idle
        ]
    return found


def scenario(course: Mapping[str, list[tuple[int, int]]], days: float) -> Loaded:
    """Return the days that are simulated."""
    whole: dict[str, Any] = {
        "name": "days",
        "duration": f"{round(days * DAY)}s",
        "cloud": {"types": ["e2-standard-2", "e2-standard-4", "e2-standard-8"], "zones": ["europe-west3-a"]},
        "nodes": [{"type": "e2-standard-4", "count": 3}],
        "workloads": [
            {
                "name": name,
                "cpu": "500m",
                "memory": "512Mi",
                "replicas": [["0s", LEAST], *([f"{at}s", count] for at, count in changes if 0 < at < days * DAY)],
            }
            for name, changes in course.items()
        ],
    }
    return load_scenario("days.yaml", {"days.yaml": msgspec.yaml.encode(whole)}.__getitem__, Path("days.yaml"))


def known(course: Mapping[str, list[tuple[int, int]]], midnight: datetime) -> Iterator[UsageResampled]:
    """Yield the usage of the days before the simulation."""
    for step in range(-KNOWN_DAYS * DAY // 300, 0):
        count = {
            name: next((most for at, most in reversed(changes) if at <= step * 300), LEAST)
            for name, changes in course.items()
        }
        yield _step({f"Deployment/shop/{name}": most for name, most in count.items()}, midnight + step * STEP)


def _step(pods: Mapping[str, int], start: datetime) -> UsageResampled:
    return resampled({key: Amounts(count, 100, 2**28) for key, count in pods.items()}, start=start, step=STEP)


class Knowing(Predictor):
    """A predictor that knows the usage that it was given."""

    history = History()

    def know(self, steps: Iterable[UsageResampled]) -> None:
        """Take in steps of usage."""
        for one in steps:
            self.history = remember(self.history, one, keep=KEPT)

    async def handle(self, event: Event, state: Cluster | None, moment: Moment) -> Sequence[AnyBody]:
        """See `Stage`."""
        return await super().handle(event, state, replace(moment, past=self.history))


class Looking(Pipeline):
    """The five services, with a predictor that looks so many hours ahead."""

    def __init__(self, recorder: Recorder, view: View, *, hours: float, work: int) -> None:
        super().__init__(recorder.sim, view, work=work, lend=recorder.lend)
        self._recorder = recorder
        settings = Settings(runtime=RuntimeSettings(cluster=NAME), mode="off", ahead_hours=hours)
        self.predictor = Knowing(settings)
        self._seats[0].stage = self.predictor
        self._begun = step_start(now_of(recorder.sim), STEP.total_seconds())

    def samples(self) -> Sequence[Sample]:
        """Return the cluster over time."""
        return self._recorder.samples

    async def _turn(self) -> None:
        while now_of(self.sim) >= self._begun + STEP:
            cluster = self._observer.cluster
            if cluster is not None:
                pods = {
                    key: sum(pod.node is not None and not pod.terminating for pod in found)
                    for key, found in cluster.pods_by_workload.items()
                }
                step = _step({key: count for key, count in pods.items() if count}, self._begun)
                self.predictor.know([step])
            self._begun += STEP
        await super()._turn()


def simulate(
    course: Mapping[str, list[tuple[int, int]]], days: float, *, hours: float, work: int, seed: int = 0
) -> tuple[Figures, Looking]:
    """Return the figures of the days, and the pipeline that has worked."""
    loaded = scenario(course, days)
    sim = build(loaded, seed)
    recorder, end = Recorder(sim), milliseconds(loaded.scenario.duration)
    view = View(sim)
    pipeline = Looking(recorder, view, hours=hours, work=work)
    pipeline.predictor.know(known(course, step_start(now_of(sim), STEP.total_seconds())))

    async def days_pass() -> None:
        try:
            await pipeline.run_until(sim.loop.now_ms + end)
        finally:
            await pipeline.close()

    asyncio.run(days_pass())
    recorder.take()
    return figures(tuple(recorder.samples), 0.0, end / 1000), pipeline


def main() -> None:
    """Simulate, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ahead", description=__doc__)
    parser.add_argument("--days", type=float, default=2)
    parser.add_argument("--workloads", type=int, default=6)
    parser.add_argument("--hours", type=float, action="append", help="may be repeated; default: 0 and 3")
    parser.add_argument("--work", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--idle-day", type=int, help="number of a day without a peak, from 0 on")
    given = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    course = courses(given.workloads, -(-round(given.days * 100) // 100), given.seed, given.idle_day)
    print(HEADER, "|" + "---|" * (HEADER.count("|") - 1), sep="\n", flush=True)
    for hours in given.hours or [0.0, 3.0]:
        found, pipeline = simulate(course, given.days, hours=hours, work=given.work, seed=given.seed)
        cells = (
            f"{hours:g} h" if hours else "off",
            f"${found.usd:.2f}",
            f"{found.mean_nodes:.2f}",
            str(pipeline.tally.booted),
            f"{found.pending_pod_seconds:,.0f}",
            f"{found.missing_pod_seconds:,.0f}",
            str(pipeline.tally.evictions),
            str(pipeline.rejections["payback"]),
        )
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
