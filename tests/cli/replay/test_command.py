"""`kinema replay`: what counts as checked, what cannot be, and what is said about it."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace as changed
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.builders import NOW, fragmented, offer, tiny
from tests.support.plans import plan_for
from tests.support.usage_steps import STEP, step

from kinema_cli.replay import recording as files
from kinema_cli.replay.command import MAX_VALUE_SHOWN, run_replay
from kinema_cli.replay.engine import Checked, Skipped, StageReplay, StateLine, field_differences
from kinema_cli.replay.recording import Recorded, RecordingError
from kinema_core.events import (
    AnyBody,
    ClusterDelta,
    ClusterSnapshot,
    Event,
    ForecastMade,
    IterationStarted,
    NoPlanFound,
    ServiceStarted,
)
from kinema_core.model.cluster import Cluster, all_objects, evolve
from kinema_core.runtime.bus import Damaged, Stored, StreamName
from kinema_core.runtime.envelope import answer, origin
from kinema_core.runtime.settings import RuntimeSettings
from kinema_core.runtime.stage import Moment
from kinema_predictor.service import Predictor
from kinema_predictor.settings import Settings
from kinema_sim.memory_bus import MemoryBus


def told(body: AnyBody, name: str, *, state: int = 0) -> Event:
    """An event that nothing caused."""
    return origin(body, id_=f"demo/observer/{name}", cluster="demo", iteration=name, now=NOW, state=state)


def rows(stream: str, *events: Event, first: int = 1) -> list[Recorded]:
    """Events at rising sequences of a stream."""
    return [Recorded(stream=stream, sequence=first + n, event=event) for n, event in enumerate(events)]


def snapshot(version: int) -> Event:
    """A full state."""
    return told(ClusterSnapshot(version=version, objects=tuple(all_objects(tiny()))), f"snapshot-{version}")


def delta(version: int) -> Event:
    """A state that follows the version before, and changes nothing."""
    return told(ClusterDelta(version=version, upserts=(), deletes=()), f"delta-{version}")


def started(version: int) -> Event:
    """An iteration on a state."""
    return told(IterationStarted(mode="reschedule", version=version, reason="stable"), f"it-{version}", state=version)


def forecast(cause: Event, version: int) -> Event:
    """What the predictor answers."""
    stage = Predictor(Settings(runtime=RuntimeSettings(cluster="demo")))
    state = evolve(Cluster(), ClusterSnapshot(version=version, objects=tuple(all_objects(tiny()))))
    now = NOW + timedelta(seconds=2)
    [body] = asyncio.run(_handled(stage, cause, state, Moment(now=now)))
    return answer(body, cause=cause, service="predictor", n=0, now=now, state=version)


async def _handled(stage: Predictor, cause: Event, state: Cluster, moment: Moment) -> list[AnyBody]:
    return list(await stage.handle(cause, state, moment))


def whole() -> list[Recorded]:
    """Two decisions of the predictor, from the beginning of both streams."""
    one, two = started(1), started(2)
    log = rows("LOG", service("{}"), one, forecast(one, 1), two, forecast(two, 2))
    return [*rows("STATE", snapshot(1), delta(2)), *log]


def service(settings: str) -> Event:
    """The predictor says that it runs."""
    return told(ServiceStarted(service="predictor", settings=settings), "started")


def replay(path: Path, events: list[Recorded], **options: Any) -> int:
    """Write a recording and replay it."""
    files.write(path, cluster="demo", version="0", events=events)
    given: dict[str, Any] = {"stage": None, "start": 1, "end": None, "speed": 0.0, "strict": True, "show_diff": False}
    return run_replay(file=path, **(given | options))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a test writes its recording."""
    return tmp_path / "recording.jsonl"


def test_untouched_is_equal(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same answers on the same state: exit 0, and nothing on standard error."""
    assert replay(path, whole()) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("options", [{"start": 99}, {"start": 5, "end": 5}, {"stage": "decider"}])
def test_nothing_checked_is_no_success(path: Path, options: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    """An assertion over no decision at all exits 3 and names the range."""
    assert replay(path, whole(), **options) == 3
    said = capsys.readouterr().err
    assert "no decision" in said
    assert f"between {options.get('start', 1)} and" in said


def test_a_decision_that_cannot_be_decided_again_is_not_none(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where the state of the only decision is missing, the decision is counted all the same."""
    events = [item for item in whole() if (item.stream, item.sequence) != ("STATE", 2)]
    assert replay(path, events, stage="predictor", start=4) == 3
    said = capsys.readouterr().err
    assert "1 event of the predictor not decided again: the cluster state of that time cannot be folded" in said
    assert "1 event of the predictor between 4 and 5, and none can be decided again" in said


async def test_what_is_published_during_a_recording_leaves_no_gap(path: Path) -> None:
    """The services go on: every state that the recorded log refers to is in the recording."""
    bus = _GoingOn()
    await bus.go_on()
    assert await files.record_to(bus, cluster="demo", out=path) == (4, 0)
    recorded = files.read(path)
    states = {item.event.body.version for item in recorded.state if isinstance(item.event.body, ClusterSnapshot)}
    assert {item.event.state for item in recorded.log} == {1}
    assert states == {1, 2, 3}


class _GoingOn(MemoryBus):
    """A bus on which a state and an iteration on it are published after each reading of a stream."""

    _newest = 0

    async def read(
        self, stream: StreamName, *, start: int = 1, end: int | None = None, kinds: tuple[str, ...] = ()
    ) -> AsyncIterator[Stored | Damaged]:
        async for item in super().read(stream, start=start, end=end, kinds=kinds):
            yield item
        await self.go_on()

    async def go_on(self) -> None:
        """Publish the next state, and an iteration on it."""
        self._newest += 1
        await self.publish(snapshot(self._newest))
        await self.publish(started(self._newest))


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"start": 40, "end": 20}, "--to 20"),
        ({"start": -1}, "--from -1"),
        ({"speed": -2.0}, "--speed -2.0"),
        ({"speed": float("nan")}, "--speed nan"),
        ({"stage": "oracle"}, "--stage 'oracle'"),
        ({"policy": "oracle"}, "--policy oracle: no such policy; choose from kinema, thesis"),
    ],
)
def test_wrong_arguments(path: Path, options: dict[str, Any], named: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Arguments that make no sense are named in one line, exit 2."""
    assert replay(path, whole(), **options) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {named}")


def test_answer_to_a_removed_event_is_a_difference(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In a log that begins at its beginning every cause must be there."""
    events = [item for item in whole() if item.event.id != "demo/observer/it-2"]
    assert replay(path, events) == 1
    assert "log sequence 5 is not decided again" in capsys.readouterr().out


def test_answer_to_an_event_before_the_log_is_skipped(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A stream drops its oldest events: what they caused is named, counted, and no difference."""
    events = [item for item in whole() if item.stream == "STATE" or item.sequence >= 3]
    assert replay(path, events) == 0
    assert "1 event of the predictor not decided again: the cause lies before" in capsys.readouterr().err


def test_answer_to_a_removed_answer_is_a_difference(path: Path) -> None:
    """Also in a log that begins in the middle, what answers a recorded event must be there."""
    events = [item for item in whole() if item.stream == "STATE" or item.sequence >= 4]
    gone = events[-1].event
    plan = answer(plan_for(tiny(), [offer()]), cause=gone, service="optimizer", n=0, now=NOW, state=2)
    assert replay(path, [*events[:-1], *rows("LOG", plan, first=6)], stage="optimizer") == 1


def test_state_that_begins_with_deltas(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Deltas before the first snapshot are passed over; decisions on those versions are skipped and named."""
    log = [item for item in whole() if item.stream == "LOG"]
    three = started(3)
    later = rows("LOG", three, forecast(three, 3), first=6)
    assert replay(path, [*rows("STATE", delta(2), snapshot(3), first=7), *log, *later]) == 0
    said = capsys.readouterr()
    assert "state events before the first full state are skipped: 1" in said.err
    assert "2 events of the predictor not decided again: the cluster state" in said.err


def test_usage_from_before_the_recording_is_no_difference(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A forecast that comes out otherwise without the usage of before is skipped; from the beginning it differs."""
    one = started(3)
    made = forecast(one, 3)
    other = msgspec.structs.replace(made, body=msgspec.structs.replace(made.body, refused=()))
    log = [*rows("STATE", snapshot(3)), *rows("LOG", service("{}"), one, other)]
    assert replay(path, [*rows("USAGE", used(), first=40), *log]) == 3
    assert "settings, catalog or usage from before the recording are missing" in capsys.readouterr().err
    assert replay(path, [*rows("USAGE", used()), *log]) == 1


def used() -> Event:
    """A step of usage of another workload."""
    return told(step(0), "used")


def test_usage_is_replayed_up_to_the_time_that_an_iteration_names(path: Path) -> None:
    """A step that was published later than the iteration began is no part of its forecast, then or now."""
    state = evolve(Cluster(), ClusterSnapshot(version=1, objects=tuple(all_objects(tiny()))))
    key = next(one.key for one in state.workloads if state.pods_by_workload.get(one.key))
    steps = [told(step(at, key=key), f"u-{at}") for at in reversed(range(14))]
    asked = told(IterationStarted(mode="reschedule", version=1, reason="stable", usage=NOW - 2 * STEP), "it-1", state=1)
    stage = Predictor(Settings(runtime=RuntimeSettings(cluster="demo")))
    past = stage.past.initial
    for event in steps[:-2]:
        past = stage.past.fold(past, event)
    now = NOW + timedelta(seconds=2)
    [body] = asyncio.run(_handled(stage, asked, state, Moment(now=now, past=past)))
    assert isinstance(body, ForecastMade)
    assert [one.workload for one in body.judged] == [key]
    given = answer(body, cause=asked, service="predictor", n=0, now=now, state=1)
    log = rows("LOG", service("{}"), asked, given)
    assert replay(path, [*rows("STATE", snapshot(1)), *rows("USAGE", *steps), *log]) == 0
    # Without the steps before, the same iteration is judged otherwise.
    assert replay(path, [*rows("STATE", snapshot(1)), *rows("USAGE", *steps[8:]), *log]) == 1


def test_no_state_at_all(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without any full state there is one clear line."""
    assert replay(path, [item for item in whole() if item.event.id != "demo/observer/snapshot-1"]) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert "contains no full state" in line


@pytest.mark.parametrize(("settings", "named"), [('{"limits":{}}', "`limits`"), ("no{}", "malformed")])
def test_settings_of_another_version(path: Path, settings: str, named: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Settings that cannot be read name the service and the field."""
    first, *rest = (item for item in whole() if item.stream == "LOG")
    events = [*rows("STATE", snapshot(1), delta(2)), changed(first, event=service(settings)), *rest]
    assert replay(path, events) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert "settings of the predictor" in line
    assert named in line


def test_state_line_knows_what_it_does_not_know() -> None:
    """After a gap nothing holds until a snapshot, and what came before the gap can still be had."""
    events = rows("STATE", snapshot(1), delta(2), delta(4), delta(5), snapshot(7), delta(8))
    line = StateLine(Cluster(), _fold, events)
    found = [state.version if (state := line.at(version)) is not None else None for version in (2, 3, 5, 6, 7, 8, 9, 2)]
    assert found == [2, None, None, None, 7, 8, None, 2]


def _fold(cluster: Cluster, event: Event) -> Cluster:
    assert isinstance(event.body, ClusterSnapshot | ClusterDelta)
    return evolve(cluster, event.body)


def _damage(name: str) -> tuple[str, bytes]:
    header = b'{"format":"kinema.recording/v1","cluster":"demo","kinema":"0"}\n'
    event = msgspec.json.encode({"stream": "LOG", "sequence": 1, "event": 0})
    packed = bytearray(gzip.compress(header * 90, mtime=0))
    packed[12:20] = b"\xff" * 8
    return {
        "corrupt": ("r.jsonl.gz", bytes(packed)),
        "cut": ("r.jsonl.gz", gzip.compress(header)[:-6]),
        "deep": ("r.jsonl", header + event.replace(b"0}", b"[" * 100_000 + b"]" * 100_000 + b"}")),
        "empty": ("r.jsonl.zst", b""),
        "deep-header": ("r.jsonl", b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
        "text": ("r.jsonl", header + b'{"stream":"LOG","sequence":1,"event":{"id":"\xff"}}'),
    }[name]


@pytest.mark.parametrize("name", ["corrupt", "cut", "deep", "deep-header", "empty", "text"])
def test_damaged_files(name: str, tmp_path: Path) -> None:
    """Whatever is wrong with the bytes, it is an error of the recording that names the file."""
    file, data = _damage(name)
    (tmp_path / file).write_bytes(data)
    with pytest.raises(RecordingError, match=f"{file}: is empty" if name == "empty" else file):
        files.read(tmp_path / file)


def test_differences_name_the_pod() -> None:
    """A field of a placement shows whose placement it is."""
    cluster = fragmented()
    plan = plan_for(cluster, [offer()])
    other = msgspec.structs.replace(
        plan, placements=(msgspec.structs.replace(plan.placements[0], to="elsewhere"), *plan.placements[1:])
    )
    [found] = field_differences(told(plan, "plan"), told(other, "plan"))
    assert (found.path, found.pod) == ("body.placements[0].to", plan.placements[0].pod)


def test_another_type_of_answer_begins_with_its_reason() -> None:
    """Of a plan that is none now the hundreds of fields that are gone do not hide why."""
    plan = told(plan_for(fragmented(), [offer()]), "plan")
    none = told(NoPlanFound(mode="reschedule", version=1, reason="nothing is cheaper"), "plan")
    found = field_differences(plan, none)
    assert [one.path for one in found][:2] == ["type", "body.reason"]
    assert not any(one.path.startswith(("body.steps", "body.placements")) for one in found)


def test_long_values_are_cut(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The first difference stays readable whatever differs."""
    events = whole()
    body = IterationStarted(mode="reschedule", version=2, reason="x" * 5000)
    events[-1] = changed(events[-1], event=msgspec.structs.replace(events[-1].event, body=body, type=body.TYPE))
    assert replay(path, events, show_diff=True) == 1
    lines = capsys.readouterr().out.splitlines()
    [line] = [item for item in lines if item.startswith("  body.reason")]
    assert "…" in line
    assert len(line) < MAX_VALUE_SHOWN + 40


def test_a_service_that_starts_late_answers_by_its_own_settings(path: Path) -> None:
    """An event that was there before the service started is decided again by the settings that it started with."""
    one, used_settings = started(1), []

    class Noting(Predictor):
        given: str | None = None

        async def handle(self, event: Event, state: Cluster | None, moment: Moment) -> Sequence[AnyBody]:
            used_settings.append(self.given)
            return await super().handle(event, state, moment)

    def make(text: str | None) -> Noting:
        stage = Noting(Settings(runtime=RuntimeSettings(cluster="demo")))
        stage.given = text
        return stage

    log = rows("LOG", one, service("{}"), forecast(one, 1))
    files.write(path, cluster="demo", version="0", events=[*rows("STATE", snapshot(1)), *log])

    async def checked() -> list[Checked | Skipped]:
        return [one async for one in StageReplay(make, "predictor", files.read(path)).run()]

    checks = asyncio.run(checked())
    assert [type(one) for one in checks] == [Checked]
    assert used_settings == ["{}"]
