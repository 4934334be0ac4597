"""The order in which a recorded log is remembered."""

from __future__ import annotations

from tests.support.bus_events import NOW, forecast, iteration, paused

from kinema_core.events import (
    ForecastMade,
    PlanApproved,
    kind_of_type,
)
from kinema_core.runtime.envelope import answer, origin
from kinema_core.runtime.memory import in_order


def test_a_recorded_log_has_answers_after_their_causes() -> None:
    """Own answers come right after what they answer; everything else stays where it is stored."""
    body = ForecastMade(version=1, forecasts=())
    late = answer(body, cause=iteration(1), service="predictor", n=0, now=NOW, state=0)
    foreign = origin(PlanApproved(plan="it-1/optimizer/0", by="ann"), id_="ok-1", cluster="c1", iteration="", now=NOW)
    recorded = [iteration(1), paused(1), iteration(2), late, foreign]
    assert [event.id for event in in_order(recorded, "predictor")] == [
        "it-1",
        "it-1/predictor/0",
        "pause-1",
        "it-2",
        "ok-1",
    ]
    assert list(in_order(recorded, "decider")) == recorded
    assert kind_of_type(forecast(1).type) == "forecast-made"
