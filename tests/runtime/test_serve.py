"""The serve loop: whatever happens, each event is answered once, in order, and the next one goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta

import pytest
from structlog.testing import capture_logs
from tests.runtime.serving import Predictor, State, forecasts, letters, served
from tests.support.bus_events import NOW, iteration, paused
from tests.support.manual_clock import ManualClock
from tests.support.waiting import until

from kinema_core.events import (
    EMPTY,
    AnyBody,
    ClusterDelta,
    ClusterSnapshot,
    Event,
    ForecastMade,
    IterationStarted,
    encode,
)
from kinema_core.runtime import serve as serve_module
from kinema_core.runtime.bus import BusDeniedError, BusSetupError, StreamResetError
from kinema_core.runtime.envelope import answer, origin
from kinema_core.runtime.health import Health
from kinema_core.runtime.memory import in_order
from kinema_core.runtime.serve import MAX_ATTEMPTS, serve
from kinema_core.runtime.stage import AtVersion, Latest, Moment, NoState
from kinema_core.runtime.topology import subject
from kinema_sim.memory_bus import MemoryBus


@pytest.fixture
def bus() -> MemoryBus:
    """A bus that delivers again quickly."""
    return MemoryBus(ack_wait=0.2)


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Back-off in hundredths of a second, heartbeats to match the bus above."""
    monkeypatch.setattr(serve_module, "_PAUSES", (0.01,) * 5)
    monkeypatch.setattr(serve_module, "_BEAT_SECONDS", 0.05)


async def test_answers_each_event_once_and_in_order(bus: MemoryBus) -> None:
    """Every event gets its answers, with ids derived from it, its iteration, and the time of handling."""
    for n in (1, 2, 3):
        await bus.publish(iteration(n))
    stage = Predictor()
    later = NOW + timedelta(seconds=30)
    async with served(stage, bus, ManualClock(later)):
        await until(lambda: len(forecasts(bus)) == 3)
    assert forecasts(bus) == [f"it-{n}/predictor/0" for n in (1, 2, 3)]
    given = bus.events("LOG")[3]
    body = ForecastMade(version=1, forecasts=())
    assert given == answer(body, cause=iteration(1), service="predictor", n=0, now=later, state=0)
    assert await bus.position("predictor") == 3


async def test_one_time_for_all_answers_of_an_event(bus: MemoryBus) -> None:
    """All answers to an event carry the same time, though the clock goes on while it is handled."""
    clock = ManualClock(NOW)

    async def later(_: Event) -> None:
        await clock.sleep(7)

    stage = Predictor(bodies=2, before_answer=later)
    await bus.publish(iteration(1))
    async with served(stage, bus, clock):
        await until(lambda: len(forecasts(bus)) == 2)
    assert [event.time for event in bus.events("LOG")[1:]] == [NOW, NOW]


async def test_hands_over_the_state_asked_for(bus: MemoryBus) -> None:
    """AtVersion gives that version, Latest the newest; answers record which."""
    for version in (1, 2, 3):
        body: AnyBody = ClusterDelta(version=version) if version > 1 else ClusterSnapshot(version=1, objects=())
        await bus.publish(origin(body, id_=f"s{version}", cluster="c1", iteration="", now=NOW))
    for want, state in ((AtVersion(2), (1, 2)), (Latest(), (1, 2, 3)), (NoState(), None)):
        stage = Predictor(want=want)
        number = len(bus.events("LOG")) + 1
        await bus.publish(iteration(number))
        async with served(stage, bus):
            await until(lambda number=number: bus.events("LOG")[-1].id == f"it-{number}/predictor/0")  # type: ignore[misc]  # the default binds the loop's value
        assert stage.handled[-1][1] == state
        assert bus.events("LOG")[-1].state == (len(state) and state[-1] if state else 0)


async def test_recalls_the_past_before_it_handles(bus: MemoryBus) -> None:
    """At start everything before the first unhandled event is recalled, and that event last."""
    await bus.publish(paused(1))
    await bus.publish(iteration(1))
    await bus.publish(paused(2))
    await bus.publish(iteration(2))
    stage = Predictor()
    async with served(stage, bus):
        await until(lambda: len(forecasts(bus)) == 2)
    assert stage.recalled == ["pause-1", "it-1", "it-1/predictor/0", "pause-2", "it-2", "it-2/predictor/0"]


async def test_a_restart_remembers_in_the_same_order(bus: MemoryBus) -> None:
    """What a new process recalls equals what the old one had recalled, and what a replay of the LOG recalls."""
    for event in (iteration(1), paused(1), iteration(2), paused(2)):
        await bus.publish(event)
    first = Predictor()
    async with served(first, bus):
        await until(lambda: len(forecasts(bus)) == 2)
    await bus.publish(iteration(3))
    second = Predictor()
    async with served(second, bus):
        await until(lambda: len(forecasts(bus)) == 3)
    assert second.recalled[: len(first.recalled)] == first.recalled
    assert [event.id for event in in_order(bus.events("LOG"), "predictor")] == second.recalled
    assert [handled[0] for handled in second.handled] == ["it-3"]


@pytest.mark.parametrize("published", [0, 1, 2])
async def test_killed_while_answering_it_answers_once(bus: MemoryBus, published: int) -> None:
    """After a crash before, between or after its answers, a new process publishes the missing ones only.

    It decides under the circumstances of the first time: same time, same state, the recorded answer at hand.
    """
    await bus.publish(iteration(1))
    first = Predictor(bodies=2)
    for n in range(published):
        body = ForecastMade(version=1, forecasts=())
        await bus.publish(answer(body, cause=iteration(1), service="predictor", n=n, now=NOW, state=0))
    await anext(bus.deliveries("predictor"))
    stage = Predictor(bodies=2)
    later = ManualClock(NOW + timedelta(hours=1))
    async with served(stage, bus, later):
        await until(lambda: stage.handled != [] and len(forecasts(bus)) == 2)
        await bus.publish(iteration(2))
        await until(lambda: len(forecasts(bus)) == 4)
    assert forecasts(bus)[:2] == ["it-1/predictor/0", "it-1/predictor/1"]
    moment = stage.handled[0][2]
    assert moment.now == (NOW if published else later.now())
    assert (moment.recorded is not None) == bool(published)
    times = {event.time for event in bus.events("LOG") if event.cause == "it-1"}
    assert len(times) == 1
    assert stage.recalled.count("it-1/predictor/0") == 1
    assert not first.handled


async def test_an_acknowledgement_that_got_lost_is_made_up_for(bus: MemoryBus) -> None:
    """An event delivered again though it was answered is acknowledged without being handled again."""
    stage = Predictor()
    await bus.publish(iteration(1))
    cut = asyncio.Event()

    class Deaf(MemoryBus):
        """Loses the first acknowledgement."""

    async def lose(_: Event) -> None:
        cut.set()

    stage.before_answer = lose
    async with served(stage, bus):
        await until(lambda: len(forecasts(bus)) == 1)
        bus_consumer = bus._consumers["predictor"]
        bus_consumer.settled = 0
        bus.pulse()
        await bus.publish(iteration(2))
        await until(lambda: len(forecasts(bus)) == 2)
    assert [handled[0] for handled in stage.handled] == ["it-1", "it-2"]
    assert await bus.position("predictor") == 3


async def test_an_event_that_always_fails_is_given_up(bus: MemoryBus) -> None:
    """After its attempts it goes to DLQ with reason and bytes, and the next event is answered."""

    async def fail(event: Event) -> None:
        if event.id == "it-1":
            raise RuntimeError("cannot")

    stage = Predictor(before_answer=fail)
    await bus.publish(iteration(1))
    await bus.publish(iteration(2))
    with capture_logs() as lines:
        async with served(stage, bus) as health:
            await until(lambda: forecasts(bus) == ["it-2/predictor/0"])
    assert [handled[0] for handled in stage.handled] == ["it-1"] * MAX_ATTEMPTS + ["it-2"]
    assert stage.recalled.count("it-1") == 1
    (letter,) = letters(bus)
    assert (letter.service, letter.stream, letter.sequence) == ("predictor", "LOG", 1)
    assert letter.reason == "handler-failed"
    assert "RuntimeError: cannot" in letter.detail
    assert letter.data == encode(iteration(1))
    assert [line["event"] for line in lines].count("dropped") == 1
    assert health.registry.get_sample_value(
        "kinema_dead_letters_total", {"service": "predictor", "cluster": "c1", "reason": "handler-failed"}
    )


async def test_an_event_that_kills_the_process_is_given_up(bus: MemoryBus) -> None:
    """Delivered more often than it may fail, it is given up without being tried once more."""
    await bus.publish(iteration(1))
    bus._consumers["predictor"].out = 1
    bus._consumers["predictor"].attempt = MAX_ATTEMPTS
    stage = Predictor()
    async with served(stage, bus):
        await until(lambda: len(letters(bus)) == 1)
        await bus.publish(iteration(2))
        await until(lambda: len(forecasts(bus)) == 1)
    assert letters(bus)[0].reason == "handler-died"
    assert [handled[0] for handled in stage.handled] == ["it-2"]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"{", "bad-json"),
        (encode(iteration(1)).replace(b".v1", b".v2"), "unknown-type"),
        (encode(iteration(1)).replace(b'"version":1', b'"version":1e400'), "bad-body"),
    ],
)
async def test_a_message_that_is_no_event_goes_to_dlq(bus: MemoryBus, data: bytes, reason: str) -> None:
    """It is copied with its bytes and reason, never handled, and the next event is answered."""
    bus.inject("LOG", subject("c1", "iteration-started"), data)
    await bus.publish(iteration(2))
    stage = Predictor()
    async with served(stage, bus):
        await until(lambda: len(forecasts(bus)) == 1)
    (letter,) = letters(bus)
    assert (letter.reason, letter.data, letter.sequence) == (reason, data, 1)
    assert stage.recalled == ["it-2", "it-2/predictor/0"]


async def test_an_answer_that_cannot_be_encoded_is_a_failure(bus: MemoryBus) -> None:
    """A NaN in an answer is the handler's fault: the event goes to DLQ and nothing half-made is published."""
    stage = Predictor()

    async def bad(event: Event, state: State | None, moment: Moment) -> Sequence[AnyBody]:
        del event, state, moment
        figures = EMPTY.__class__({"x": float("nan")})
        return [IterationStarted(mode="reschedule", version=1, reason="x", figures=figures)]

    stage.handle = bad  # type: ignore[method-assign]  # this one test needs another answer
    await bus.publish(iteration(1))
    async with served(stage, bus):
        await until(lambda: len(letters(bus)) == 1)
    assert "not a finite number" in letters(bus)[0].detail
    assert len(bus.events("LOG")) == 1


async def test_a_recall_that_fails_is_said_and_survived(bus: MemoryBus) -> None:
    """A stage that cannot remember an event does not stop the service; the log names the event."""
    await bus.publish(iteration(666))
    await bus.publish(iteration(2))
    with capture_logs() as lines:
        async with served(Predictor(), bus):
            await until(lambda: len(forecasts(bus)) == 2)
    assert [line["event_id"] for line in lines if line["event"] == "event could not be recalled"] == ["it-666"]


async def test_a_lost_state_is_waited_for_then_given_up(bus: MemoryBus) -> None:
    """A version that cannot be had is tried again, and mended by a snapshot in time; else the event goes to DLQ."""
    stage = Predictor(want=AtVersion(4))
    await bus.publish(iteration(4))
    async with served(stage, bus):
        await until(lambda: len(letters(bus)) == 1)
    assert letters(bus)[0].reason == "state-lost"
    assert not stage.handled


async def test_an_unreachable_broker_is_waited_for(bus: MemoryBus) -> None:
    """Cut off at any moment, the service goes on when the broker is back, with nothing lost or doubled."""
    stage = Predictor()

    async def cut(event: Event) -> None:
        if event.id == "it-2":
            bus.cut()
            asyncio.get_running_loop().call_later(0.1, lambda: bus.cut(reachable=True))

    stage.before_answer = cut
    for n in (1, 2, 3):
        await bus.publish(iteration(n))
    async with served(stage, bus):
        await until(lambda: len(forecasts(bus)) == 3)
    assert forecasts(bus) == [f"it-{n}/predictor/0" for n in (1, 2, 3)]
    assert [handled[0] for handled in stage.handled] == ["it-1", "it-2", "it-3"]


async def test_starts_without_a_broker(bus: MemoryBus) -> None:
    """A service that starts while the broker is away begins when it comes."""
    await bus.publish(iteration(1))
    bus.cut()
    async with served(Predictor(), bus) as health:
        await asyncio.sleep(0.05)
        assert "start" in health.problems()
        bus.cut(reachable=True)
        await until(lambda: len(forecasts(bus)) == 1)
        assert not health.problems()


async def test_a_long_handler_is_not_overtaken(bus: MemoryBus) -> None:
    """While a handler runs longer than the acknowledgement may take, the event is not delivered again."""

    async def slow(_: Event) -> None:
        await asyncio.sleep(0.6)

    stage = Predictor(before_answer=slow)
    await bus.publish(iteration(1))
    async with served(stage, bus):
        await until(lambda: bool(stage.handled))
        other = bus.deliveries("predictor")
        waiting = asyncio.ensure_future(anext(other))
        await until(lambda: len(forecasts(bus)) == 1)
        assert not waiting.done()
        waiting.cancel()
        with suppress(asyncio.CancelledError):
            await waiting


async def test_stopped_in_the_middle_it_gives_the_event_back(bus: MemoryBus) -> None:
    """On cancellation the event in hand is free at once for the next process."""
    bus.ack_wait = 60.0

    async def forever(_: Event) -> None:
        await asyncio.sleep(60)

    stage = Predictor(before_answer=forever)
    await bus.publish(iteration(1))
    async with served(stage, bus):
        await until(lambda: bool(stage.handled))
    async with served(Predictor(), bus):
        await until(lambda: len(forecasts(bus)) == 1)


@pytest.mark.parametrize("longer", [False, True])
async def test_a_log_made_anew_ends_the_service(bus: MemoryBus, longer: bool) -> None:
    """When LOG begins again the service ends instead of taking new events for old ones; a new process goes on."""
    for n in (1, 2, 3):
        await bus.publish(iteration(n))
    task = asyncio.create_task(serve(Predictor(), bus, ManualClock(NOW), Health("predictor", "c1")))
    await until(lambda: len(forecasts(bus)) == 3)
    bus.wipe("LOG")
    for n in range(4, 14 if longer else 5):
        await bus.publish(paused(n) if longer and n < 13 else iteration(n))
    with pytest.raises(StreamResetError, match="starting over"):
        await asyncio.wait_for(task, 60)
    last = bus.events("LOG")[-1].id
    async with served(Predictor(), bus):
        await until(lambda: forecasts(bus) == [f"{last}/predictor/0"])


@pytest.mark.parametrize("error", [BusDeniedError, BusSetupError])
async def test_what_a_person_must_mend_ends_the_service(
    bus: MemoryBus, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing right or stream is raised, not retried for ever, and the event is not given up for it."""

    async def refuse(event: Event, *, expected_last: int | None = None) -> int:
        del event, expected_last
        raise error("no")

    await bus.publish(iteration(1))
    monkeypatch.setattr(bus, "publish", refuse)
    with pytest.raises(error):
        await asyncio.wait_for(serve(Predictor(), bus, ManualClock(NOW), Health("predictor", "c1")), 60)
    assert await bus.position("predictor") == 0


async def test_one_line_tells_all_about_an_event(bus: MemoryBus) -> None:
    """Each handled event gives one log line with id, kind, sequence, answers and time."""
    await bus.publish(iteration(1))
    with capture_logs() as lines:
        async with served(Predictor(), bus):
            await until(lambda: any(line["event"] == "handled" for line in lines))
    (line,) = [line for line in lines if line["event"] == "handled"]
    assert line["event_id"] == "it-1"
    assert line["kind"] == "iteration-started"
    assert (line["seq"], line["attempt"]) == (1, 1)
    assert line["answers"] == ["forecast-made"]
    assert line["trace_id"] == iteration(1).traceparent.split("-")[1]


async def test_counts_what_it_does(bus: MemoryBus) -> None:
    """Events by kind and outcome, and the time that they took, are metrics."""
    await bus.publish(iteration(1))
    async with served(Predictor(), bus) as health:
        await until(lambda: len(forecasts(bus)) == 1)
        await until(lambda: health.registry.get_sample_value("kinema_stage_duration_seconds_count", labels()) == 1)
        assert health.registry.get_sample_value("kinema_events_total", labels(outcome="answered")) == 1


def labels(**more: str) -> dict[str, str]:
    """Labels of the test's one kind of event."""
    return {"service": "predictor", "cluster": "c1", "kind": "iteration-started", **more}
