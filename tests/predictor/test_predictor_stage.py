"""The predictor as a stage: folds usage, answers reschedule iterations, and the same way every time."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from tests.support.builders import NOW, cluster, deployed, node
from tests.support.usage_steps import days, step

from kinema_core.events import AnyBody, Event, ForecastMade, IterationStarted, encode
from kinema_core.runtime.envelope import answer, origin
from kinema_core.runtime.settings import RuntimeSettings
from kinema_core.runtime.stage import AtVersion, Moment, NoState
from kinema_predictor.logic.history import History
from kinema_predictor.service import Predictor
from kinema_predictor.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
STATE = cluster(node("n1"), deployed("web", ["n1", "n1"], cpu=400, memory=500), version=3)
SETTINGS = Settings(runtime=RuntimeSettings(cluster="test"), max_request_change_fraction="0.10")


def event(body: AnyBody, n: int = 0) -> Event:
    """An event of that body."""
    return origin(body, id_=f"e{n}", cluster="test", iteration="i1", now=NOW)


def past(predictor: Predictor) -> History:
    """What the predictor folds of a day of usage."""
    history = predictor.past.initial
    for n, body in enumerate(days(1.1)):
        history = predictor.past.fold(history, event(body, n))
    return history


def started(mode: str = "reschedule") -> Event:
    """An iteration on state version 3."""
    given = {"mode": mode, "version": 3, "reason": "stable", "usage": NOW}
    return event(msgspec.convert(given, IterationStarted), 99)


async def test_an_iteration_is_answered_with_forecasts_of_its_version() -> None:
    """One event with the state version, made from what was used until the time that the iteration names."""
    predictor = Predictor(SETTINGS)
    assert predictor.wants(started()) == AtVersion(3)
    assert predictor.past.until(started()) == NOW
    assert predictor.past.end(event(step(2))) == NOW - timedelta(minutes=10)
    (body,) = await predictor.handle(started(), STATE, Moment(NOW, past=past(predictor)))
    assert isinstance(body, ForecastMade)
    assert body.version == 3
    assert body.forecasts[0].requests_after["cpu"] == 360


async def test_requests_change_only_where_an_operator_allows_it() -> None:
    """By default every workload is judged, and no request changes."""
    predictor = Predictor(Settings(runtime=RuntimeSettings(cluster="test")))
    (body,) = await predictor.handle(started(), STATE, Moment(NOW, past=past(predictor)))
    assert isinstance(body, ForecastMade)
    assert (body.forecasts, [one.reason for one in body.refused]) == ((), ["recommend-only"])
    assert body.judged[0].recommended["cpu"] == 100


async def test_the_rest_of_a_plan_is_not_answered() -> None:
    """The optimizer plans it at once, with the requests that there are."""
    predictor = Predictor(SETTINGS)
    asked = event(IterationStarted(mode="reschedule", version=3, reason="rest-after-no-room", continues="p1"), 99)
    assert predictor.wants(asked) == NoState()
    assert await predictor.handle(asked, None, Moment(NOW)) == []


async def test_an_autoscale_iteration_is_not_answered() -> None:
    """Pending pods do not wait for forecasts."""
    predictor = Predictor(SETTINGS)
    assert predictor.wants(started("autoscale")) == NoState()
    assert predictor.past.until(started("autoscale")) is None
    assert await predictor.handle(started("autoscale"), None, Moment(NOW)) == []


async def test_what_it_answered_before_is_remembered() -> None:
    """A judgement is not made again before its time; what could not be judged is asked about again."""
    predictor = Predictor(SETTINGS)
    moment = Moment(NOW, past=past(predictor))
    (first,) = await predictor.handle(started(), STATE, moment)
    predictor.recall(answer(first, cause=started(), service="predictor", n=0, now=NOW, state=3))
    (second,) = await predictor.handle(started(), STATE, Moment(NOW + timedelta(minutes=1), past=moment.past))
    assert isinstance(first, ForecastMade)
    assert isinstance(second, ForecastMade)
    assert (len(first.judged), len(second.judged)) == (1, 0)
    assert second.forecasts == first.forecasts


async def test_two_runs_give_the_same_bytes() -> None:
    """The same events give the same answer, byte for byte."""
    found = set()
    for _ in range(2):
        predictor = Predictor(SETTINGS)
        (body,) = await predictor.handle(started(), STATE, Moment(NOW, past=past(predictor)))
        found.add(encode(answer(body, cause=started(), service="predictor", n=0, now=NOW, state=3)))
    assert len(found) == 1


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_request_change_fraction", "a lot"),
        ("max_request_change_fraction", "2"),
        ("horizon_seconds", 0),
        ("lookback_seconds", 1e9),
        ("cpu_risk", 0.9),
        ("memory_risk", 0),
        ("least_age_seconds", -1),
        ("least_coverage", 1.5),
        ("workloads_per_iteration", 0),
        ("mode", "sometimes"),
    ],
)
def test_settings_out_of_range_are_refused_by_name(field: str, value: object) -> None:
    """The error names the setting."""
    with pytest.raises(msgspec.ValidationError, match=field):
        msgspec.convert({"runtime": {"cluster": "test"}, field: value}, Settings)


async def test_a_fit_that_takes_long_holds_up_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """While one runs, the process goes on: it answers probes and the broker, and its iteration can be abandoned."""
    goes_on = threading.Event()

    def slow(*_: object) -> ForecastMade:
        assert goes_on.wait(30)
        return ForecastMade(version=3, forecasts=())

    monkeypatch.setattr("kinema_predictor.service.forecasts", slow)
    asyncio.get_running_loop().call_later(0.05, goes_on.set)
    predictor = Predictor(SETTINGS)
    assert await predictor.handle(started(), STATE, Moment(NOW)) == [ForecastMade(version=3, forecasts=())]


def test_judging_uses_one_thread_whatever_the_environment_says() -> None:
    """With eight asked for, libraries below numpy have one for each core before an answer, and one while it is made."""
    code = (
        "import asyncio, json, numpy as np, threadpoolctl\n"
        "from tests.predictor import test_predictor_stage as here\n"
        "import kinema_predictor.service as service\n"
        "def threads(): return [pool['num_threads'] for pool in threadpoolctl.threadpool_info()]\n"
        "before, during = threads(), []\n"
        "real = service.forecasts\n"
        "def watched(*given): during.extend(threads()); return real(*given)\n"
        "service.forecasts = watched\n"
        "stage = service.Predictor(here.SETTINGS)\n"
        "asyncio.run(stage.handle(here.started(), here.STATE, here.Moment(here.NOW, past=here.past(stage))))\n"
        "print(json.dumps([before, during]))"
    )
    asked = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "8")
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **asked}, cwd=ROOT, capture_output=True, text=True, check=True
    )
    before, during = json.loads(done.stdout)
    assert max(before) == min(8, os.cpu_count() or 1)
    assert set(during) == {1}


def test_the_image_asks_for_one_thread() -> None:
    """Where libraries make their pools before Kinema can limit them."""
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert "OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1" in dockerfile
