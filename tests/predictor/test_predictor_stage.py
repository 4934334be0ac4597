"""The predictor as a stage: folds state, answers reschedule iterations, and the same way every time."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest
from tests.support.builders import MIB, NOW, cluster, deployed, node

from kinema_core.events import (
    AnyBody,
    ClusterSnapshot,
    Event,
    ForecastMade,
    IterationStarted,
    PodUsage,
    UsageSampled,
    encode,
)
from kinema_core.model.cluster import all_objects
from kinema_core.runtime.envelope import answer, origin
from kinema_core.runtime.settings import RuntimeSettings
from kinema_core.runtime.stage import AtVersion, Moment, NoState
from kinema_predictor.service import Observed, Predictor
from kinema_predictor.settings import Settings

STATE = cluster(node("n1"), deployed("web", ["n1", "n1"], cpu=400, memory=500), version=3)
SETTINGS = Settings(runtime=RuntimeSettings(cluster="test"), max_request_change_fraction="0.10")


def event(body: AnyBody, n: int = 0) -> Event:
    """An event of that body."""
    return origin(body, id_=f"e{n}", cluster="test", iteration="i1", now=NOW)


def folded(predictor: Predictor) -> Observed:
    """The state after a snapshot and ten readings."""
    state = predictor.fold(predictor.initial(), event(ClusterSnapshot(version=3, objects=tuple(all_objects(STATE)))))
    for minute in range(10, 0, -1):
        pods = tuple(PodUsage(pod=pod.key, uid=pod.uid, cpu=100, memory=450 * MIB) for pod in STATE.pods)
        reading = UsageSampled(sampled=NOW - timedelta(minutes=minute), window_seconds=15, pods=pods)
        state = predictor.fold(state, event(reading, minute))
    return state


def started(mode: str = "reschedule") -> Event:
    """An iteration on state version 3."""
    given = {"mode": mode, "version": 3, "reason": "stable"}
    return event(msgspec.convert(given, IterationStarted), 99)


async def test_a_reschedule_iteration_is_answered_with_forecasts() -> None:
    """One answer, for the iteration's version."""
    predictor = Predictor(SETTINGS)
    assert predictor.wants(started()) == AtVersion(3)
    (body,) = await predictor.handle(started(), folded(predictor), Moment(NOW))
    assert isinstance(body, ForecastMade)
    assert body.version == 3
    assert body.forecasts[0].requests_after["cpu"] == 360


async def test_requests_change_only_where_an_operator_allows_it() -> None:
    """By default every workload is refused as `turned-off`, and no request changes."""
    predictor = Predictor(Settings(runtime=RuntimeSettings(cluster="test")))
    (body,) = await predictor.handle(started(), folded(predictor), Moment(NOW))
    assert isinstance(body, ForecastMade)
    assert (body.forecasts, [one.reason for one in body.refused]) == ((), ["turned-off"])


async def test_an_autoscale_iteration_is_not_answered() -> None:
    """Pending pods do not wait for forecasts."""
    predictor = Predictor(SETTINGS)
    assert predictor.wants(started("autoscale")) == NoState()
    assert await predictor.handle(started("autoscale"), None, Moment(NOW)) == []


async def test_two_runs_give_the_same_bytes() -> None:
    """The same events give the same answer, byte for byte."""
    found = set()
    for _ in range(2):
        predictor = Predictor(SETTINGS)
        (body,) = await predictor.handle(started(), folded(predictor), Moment(NOW))
        found.add(encode(answer(body, cause=started(), service="predictor", n=0, now=NOW, state=3)))
    assert len(found) == 1


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_request_change_fraction", "a lot"),
        ("max_request_change_fraction", "2"),
        ("horizon_seconds", 0),
        ("lookback_seconds", 1e9),
    ],
)
def test_settings_out_of_range_are_refused_by_name(field: str, value: object) -> None:
    """The error names the setting."""
    with pytest.raises(msgspec.ValidationError, match=field):
        msgspec.convert({"runtime": {"cluster": "test"}, field: value}, Settings)
