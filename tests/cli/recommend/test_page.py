"""`kinema forecast --html`: what a judgement was made from, read back from the broker, and the page of it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import timedelta
from fractions import Fraction

import numpy as np
import pytest
from tests.cli.report.test_build import parsed
from tests.support.builders import MIB, NOW, cluster, deployed, node
from tests.support.usage_steps import KEY, step

from kinema_cli.recommend.judgements import Judgement, read_judgements, read_traces
from kinema_cli.recommend.page import build_page
from kinema_core.events import AnyBody, ClusterSnapshot, UsageResampled
from kinema_core.model.cluster import all_objects
from kinema_core.runtime.envelope import origin
from kinema_predictor.forecasting.competition import SPREAD, level_for
from kinema_predictor.logic.forecast import Rules, forecasts
from kinema_predictor.logic.history import History, remember
from kinema_predictor.logic.retrace import Trace
from kinema_sim.memory_bus import MemoryBus

STATE = cluster(node("n1"), deployed("web", ["n1", "n1"], cpu=400, memory=600), version=3)
DAY = 288
LATE = timedelta(minutes=2)


def waves(days: int) -> Iterable[UsageResampled]:
    """Daily waves of CPU with noise, and memory that is released every six hours; no sample between 03:00 and 04:00."""
    rng = np.random.default_rng(5)
    for at in reversed(range(days * DAY)):
        cpu = 180 + 110 * math.sin(at / DAY * 2 * math.pi) + rng.normal(0, 12)
        yield step(at, round(cpu), round(380 + (-at % 72) + rng.normal(0, 4)), pods=0 if 900 <= at < 912 else 2)


async def published(steps: Iterable[UsageResampled]) -> MemoryBus:
    """A broker with the state, the usage and the judgement of it."""
    bus, number = MemoryBus(), 0

    async def publish(body: AnyBody) -> None:
        nonlocal number
        number += 1
        await bus.publish(origin(body, id_=f"e{number}", cluster="c1", iteration="", now=NOW + LATE, state=3))

    await publish(ClusterSnapshot(version=3, objects=tuple(all_objects(STATE))))
    history = History()
    for one in steps:
        history = remember(history, one, keep=timedelta(days=21))
        await publish(one)
    await publish(forecasts(STATE, history, NOW, Rules(Fraction(0), mode="recommend")))
    # Usage of later, which the judgement does not know.
    await publish(step(-1, 5000))
    return bus


async def read(bus: MemoryBus) -> tuple[Judgement, dict[str, Trace]]:
    """The judgement, and what it was made from."""
    one = (await read_judgements(bus))[0][KEY]
    return one, await read_traces(bus, one)


async def test_a_trace_leads_to_the_judgement_again() -> None:
    """The same usage, models and calibration: what was needed follows from the trace, later usage does not count."""
    one, traces = await read(await published(waves(7)))
    cpu, memory = one.found.bands
    assert (cpu.steps, traces["cpu"].end) == (7 * DAY, NOW)
    assert np.isnan(traces["cpu"].usage[-912:-900]).all()
    assert np.nanmax(traces["cpu"].usage) < 400
    assert math.ceil(round(traces["memory"].upper.max(), 3)) == memory.need
    # Offsets are rounded to millicores in the event, and a level lies within the band and the errors of the back-test.
    still = level_for(traces["cpu"].upper[None], np.zeros((1, SPREAD)), cpu.quantile)[0]
    assert still <= traces["cpu"].upper.max()
    assert abs(still - cpu.need) < 0.2 * cpu.need
    for band in one.found.bands:
        losses = dict(traces[band.resource].losses)
        assert min(losses.values()) == pytest.approx(band.loss, rel=1e-4)
        assert losses["histogram"] == pytest.approx(band.vpa_loss, rel=1e-4)
        assert set(band.models) <= set(losses)


async def test_the_page_stands_alone_and_shows_the_judgement() -> None:
    """No script and nothing from elsewhere; requests, every model, the risk and history. The same bytes each time."""
    one, traces = await read(await published(waves(7)))
    html = build_page(one, traces)
    assert html == build_page(one, traces)
    checker = parsed(html)
    assert len(checker.ids) == len(set(checker.ids))
    assert not {"script", "link", "img"} & set(checker.tags)
    text = " ".join("".join(checker.text).split())
    cpu, memory = (one.found.recommended[name] for name in ("cpu", "memory"))
    for part in (
        f"400m → {cpu}m",
        f"600Mi → {memory / MIB:.0f}Mi",
        f"{2 * (400 - cpu)}m less in all pods",
        "holt-winters",
        "5% are allowed",
        "99% of the steps with a sample",
        "since the newest usage, hours",
        "request recommended",
    ):
        assert part in text
    assert html.count("<td>yes</td>") == sum(len(band.models) for band in one.found.bands)


async def test_usage_that_is_gone_from_the_broker_is_an_error() -> None:
    """A judgement of seven days cannot be drawn from one: the sentence has both lengths."""
    one, _ = await read(await published(waves(7)))
    with pytest.raises(ValueError, match="2016 steps of usage were judged, and 288 are known"):
        await read_traces(await published(waves(1)), one)
