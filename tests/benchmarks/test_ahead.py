"""The look ahead through the whole pipeline: nodes are there when the replicas come, and go where they do not."""

from __future__ import annotations

import asyncio

from benchmarks.ahead import DAY, Looking, simulate

from kinema_core.events import IterationStarted
from kinema_core.runtime.bus import Stored
from kinema_sim.simulate.course import Figures

RISE = 2400
"""Seconds after the beginning, every day."""
HOURS = 1.5


def days(*with_peak: int) -> dict[str, list[tuple[int, int]]]:
    """Two workloads of two replicas, and of ten for half an hour of these days."""
    changes = [(day * DAY + RISE + at, count) for day in with_peak for at, count in ((0, 10), (1800, 2))]
    return {"web-0": changes, "web-1": changes}


def simulated(course: dict[str, list[tuple[int, int]]], hours: float) -> tuple[Figures, Looking]:
    """Figures of the hour and a half around the rise, and the pipeline."""
    return simulate(course, HOURS * 3600 / DAY, hours=hours, work=3)


def prepared(pipeline: Looking) -> list[float]:
    """When iterations began for expected replicas, in seconds after the beginning."""

    async def read() -> list[float]:
        events = [item.event async for item in pipeline.bus.read("LOG") if isinstance(item, Stored)]
        of_it = [one for one in events if isinstance(one.body, IterationStarted) and one.body.reason == "ahead"]
        return [(one.time - events[0].time).total_seconds() for one in of_it]

    return asyncio.run(read())


def test_nodes_are_there_when_the_replicas_come() -> None:
    """Without the look ahead pods wait for boots; with it for the scheduler only."""
    without, plain = simulated(days(-2, -1, 0), 0)
    with_it, looking = simulated(days(-2, -1, 0), 3)
    assert prepared(plain) == []
    assert RISE - 900 < prepared(looking)[0] < RISE
    assert without.pending_pod_seconds > 0
    assert with_it.pending_pod_seconds < without.pending_pod_seconds / 10
    assert with_it.missing_pod_seconds < without.missing_pod_seconds


def test_a_day_without_the_peak_gives_the_nodes_back() -> None:
    """They are bought, and gone half an hour later: the end is as without the look ahead."""
    _, looking = simulated(days(-2, -1), 3)
    assert prepared(looking)
    assert looking.tally.booted > 0
    samples = looking.samples()
    at_rise = max(one.nodes for one in samples if one.at <= RISE)
    assert samples[-1].nodes < at_rise
