"""An iteration of its own reason begins before expected replicas come, as long before as boots take."""

from __future__ import annotations

from tests.observer import log_events as log
from tests.observer.log_events import at, view
from tests.observer.logic.test_loop import decide
from tests.support.builders import cluster, deployed, node

from kinema_core.events import ForecastMade, IterationStarted, ReplicasAhead, ReplicasExpected, Step, StepStarted
from kinema_observer.logic.logview import LogView

STATE = cluster(node("n1"), deployed("web", ["n1", "n1"]))
WEB = "Deployment/shop/web"


def forecast(minutes: float, to: int = 5) -> ForecastMade:
    """So many replicas from so many minutes after START on."""
    replicas = (2,) * (3 + round(minutes / 5)) + (to,) * 12
    expected = (ReplicasExpected(workload=WEB, replicas=replicas),)
    ahead = ReplicasAhead(start=at(-900), step_seconds=300, workloads=expected)
    return ForecastMade(version=1, forecasts=(), ahead=ahead)


def begun(of: LogView, seconds: float = 0.0) -> IterationStarted | None:
    """The iteration for expected replicas that begins then; None where another one does, or none."""
    start = decide(STATE, of, now=at(seconds)).start
    return start if start is not None and start.reason == "ahead" else None


def test_it_begins_the_margin_before_the_rise_and_moves_nothing() -> None:
    """At five minutes before by default. Its plan is for room, so that it waits for no approval."""
    heard = view((-10, "it-0", forecast(10)))
    assert begun(heard) is None
    found = begun(heard, 300)
    assert found is not None
    assert (found.mode, found.purpose, found.pods) == ("autoscale", "room", ())
    assert dict(found.figures) == {"expected": 3, "workloads": 1, "within_seconds": 300.0}


def test_boots_that_take_long_let_it_begin_earlier() -> None:
    """A boot took 280 seconds."""
    order = StepStarted(
        plan="p1", step=Step(id="s1", kind="boot", target="n9", offer="m4"), fencing=1, deadline=at(600)
    )
    heard = view((-900, "it-0", order), (-620, "it-0", log.done()), (-10, "it-0", forecast(10)))
    assert begun(heard, 10) is None
    assert begun(heard, 20) is not None


def test_it_begins_once_in_a_step() -> None:
    """Five minutes later what came in the meantime is counted again."""
    found = begun(view((-10, "it-0", forecast(5))))
    assert found is not None
    heard = view((-10, "it-0", forecast(5)), (0, "it-1", found), (5, "it-1", log.none("autoscale")))
    assert [begun(heard, seconds) is not None for seconds in (10, 299, 300)] == [False, False, True]


def test_it_waits_for_a_plan_that_is_executed() -> None:
    """Kinema executes one plan at a time."""
    heard = view((-10, "it-0", forecast(5)), (-9, "it-2", log.started("reschedule")), (-8, "it-2", log.accepted()))
    assert begun(heard) is None


def test_without_a_forecast_of_replicas_nothing_is_prepared() -> None:
    """As by default, and where the newest forecast has none any more."""
    assert begun(view((-10, "it-0", forecast(5)), (-5, "it-1", ForecastMade(version=1, forecasts=())))) is None
