"""`kinema record`, `setup` and the operator's words: what they say, store, and refuse."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.support.builders import NOW
from tests.support.plans import bare_plan

from kinema_cli import broker, control
from kinema_cli.admin.setup import StreamOptions, run_setup
from kinema_cli.control import Command, publish_command
from kinema_cli.output import Format
from kinema_cli.replay.recording import record_to, run_record
from kinema_cli.status.command import run_plans, run_status
from kinema_cli.status.plan_ids import matching_id
from kinema_core.events import (
    AbortRequested,
    AnyBody,
    ClusterSnapshot,
    ExecutionCompleted,
    ExecutionPaused,
    ExecutionResumed,
    PlanAccepted,
    PlanApprovalRequested,
    PlanApproved,
    PlanRejected,
)
from kinema_core.runtime.bus import BusUnavailableError, Stored
from kinema_core.runtime.envelope import origin
from kinema_core.runtime.nats_bus import connect as connect_broker
from kinema_core.runtime.settings import RuntimeSettings
from kinema_sim.memory_bus import MemoryBus

BAD = ["nats://a:secret@[::1", "nats://a:secret@127.0.0.1:99999", "nats://a:secret@host:0", "http://a:secret@host"]


@pytest.mark.parametrize(("nats", "cluster"), [(address, "demo") for address in BAD])
def test_every_command_refuses_a_bad_address(
    nats: str, cluster: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 2 and one line without the password, whichever command was called."""
    codes = [
        run_record(nats=nats, cluster=cluster, out=tmp_path / "r.jsonl"),
        run_setup(nats=nats, clusters=["good", cluster], streams=StreamOptions()),
        run_status(nats=nats, cluster=cluster, output=Format.JSON),
        run_plans(nats=nats, cluster=cluster, limit=1, output=Format.JSON),
        *(publish_command(nats=nats, cluster=cluster, command=word) for word in WORDS),
    ]
    said = capsys.readouterr()
    assert codes == [2] * 8
    assert said.out == ""
    assert len(said.err.splitlines()) == 8
    assert "secret" not in said.err


@pytest.mark.parametrize("error", [KeyError("uid not found"), OSError("no username set in the environment")])
def test_a_user_without_a_name_has_a_word_too(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """In many pods the user is a number that nothing names: that number speaks."""

    def nameless() -> str:
        raise error

    monkeypatch.setattr("getpass.getuser", nameless)
    monkeypatch.setattr("os.getuid", lambda: 54321)
    assert control.operator() == "uid 54321"


WORDS: list[Command] = [
    ExecutionPaused(by="ada", reason=""),
    ExecutionResumed(by="ada"),
    PlanApproved(plan="p1", by="ada"),
    AbortRequested(by="ada", reason=""),
]


class Lasting(MemoryBus):
    """What was said stays there when a command disconnects; the verdicts come while an approval waits for one."""

    verdicts: tuple[AnyBody, ...] = ()

    async def close(self) -> None:
        """The next command goes on with it."""


@pytest.fixture
def bus(monkeypatch: pytest.MonkeyPatch) -> Lasting:
    """A bus that every command connects to."""
    made = Lasting()

    async def connect(_: RuntimeSettings) -> MemoryBus:
        return made

    async def judged() -> None:
        for body in made.verdicts:
            await made.publish(origin(body, id_="verdict", cluster="demo", iteration="i7", now=NOW))

    monkeypatch.setattr(broker, "connect", connect)
    monkeypatch.setattr(control, "wait_a_second", judged)
    return made


def publish(bus: MemoryBus, *bodies: AnyBody) -> None:
    """Publish events as services would."""
    for body in bodies:
        count = asyncio.run(bus.head("LOG"))
        asyncio.run(bus.publish(origin(body, id_=f"e{count}", cluster="demo", iteration="i7", now=NOW)))


def held(plan: str) -> PlanApprovalRequested:
    """A plan that waits for approval."""
    return PlanApprovalRequested(plan=plan, version=3, rule="approval", reason="asked for", would_change="an approval")


def send(command: Command) -> int:
    """Run the command; returns its exit code."""
    return publish_command(nats="nats://host", cluster="demo", command=command)


@pytest.mark.parametrize("replicas", [0, -1, 2, 4, 7])
def test_replicas(replicas: int, capsys: pytest.CaptureFixture[str]) -> None:
    """The broker knows 1, 3 or 5 copies; anything else is refused before it is asked."""
    assert run_setup(nats="nats://host", clusters=["demo"], streams=StreamOptions(replicas)) == 2
    assert capsys.readouterr().err == f"error: --replicas is {replicas}; use 1, 3 or 5\n"


@pytest.mark.parametrize(
    ("word", "line"),
    [
        (WORDS[0], "cluster/demo paused by ada"),
        (WORDS[1], "cluster/demo resumed by ada"),
        (WORDS[3], "cluster/demo abort requested by ada"),
    ],
)
def test_success_is_said(word: Command, line: str, bus: MemoryBus, capsys: pytest.CaptureFixture[str]) -> None:
    """One line says what was done, to which cluster, and as whom."""
    if isinstance(word, ExecutionResumed):
        publish(bus, ExecutionPaused(by="ada", reason=""))
    if isinstance(word, AbortRequested):
        publish(bus, PlanAccepted(plan="p1", version=3))
    assert send(word) == 0
    done = capsys.readouterr()
    assert done.out == f"{line}\n"
    assert ("warning: an abort is no pause" in done.err) == isinstance(word, AbortRequested)


def test_an_abort_during_a_pause_asks_for_no_other_one(bus: MemoryBus, capsys: pytest.CaptureFixture[str]) -> None:
    """Where no further plan is carried out anyway, that is not told again."""
    publish(bus, PlanAccepted(plan="p1", version=3))
    assert send(WORDS[0]) == 0
    assert send(WORDS[3]) == 0
    assert "warning" not in capsys.readouterr().err


def test_approval_belongs_to_the_iteration_of_its_plan(bus: MemoryBus, capsys: pytest.CaptureFixture[str]) -> None:
    """An approval carries the iteration of the plan that was held; without such a plan nothing is published."""
    assert send(WORDS[2]) == 3
    publish(bus, held("p1"))
    assert send(WORDS[2]) == 0
    assert capsys.readouterr().out == "plan/p1 approved by ada\n"
    stored = asyncio.run(bus.last("LOG", "plan-approved"))
    assert isinstance(stored, Stored)
    assert stored.event.iteration == "i7"


@pytest.mark.parametrize(
    "given", ["latest", "plan/latest", "it-83", "plan/it-83", "it-8", "c1/observer/it-83/optimizer/0"]
)
def test_a_plan_is_named_by_a_short_id_a_unique_prefix_or_latest(given: str, bus: MemoryBus) -> None:
    """Nobody types 43 characters; the event has the whole id."""
    publish(bus, *(held(f"c1/observer/it-{number}/optimizer/0") for number in (7, 83)))
    assert send(PlanApproved(plan=given, by="ada")) == 0
    stored = asyncio.run(bus.last("LOG", "plan-approved"))
    assert isinstance(stored, Stored)
    assert stored.event.body == PlanApproved(plan="c1/observer/it-83/optimizer/0", by="ada")


def test_a_plan_from_a_file_is_named_by_its_time(bus: MemoryBus, capsys: pytest.CaptureFixture[str]) -> None:
    """Its id begins with the operator's name and a time: the time is its short id."""
    whole = "c1/operator/20261128T013005.123456Z/plan"
    publish(bus, held(whole))
    for given in ("20261128T013005.123456Z", "20261128", whole):
        assert matching_id(given, [whole]) == whole
    assert send(PlanApproved(plan="20261128T013005.123456Z", by="ada")) == 0
    assert capsys.readouterr().out == "plan/20261128T013005.123456Z approved by ada\n"


def test_an_approved_plan_that_is_rejected_is_exit_4(bus: Lasting, capsys: pytest.CaptureFixture[str]) -> None:
    """The decider may have more reasons than the command knows: a rest after an execution, a changed cluster."""
    publish(bus, held("it-83"))
    bus.verdicts = (PlanRejected(plan="it-83", version=3, rule="cooldown", reason="too soon", would_change="60 s"),)
    assert send(PlanApproved(plan="it-83", by="ada")) == 4
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "error: plan it-83 was rejected: cooldown: too soon\n")


def test_an_approval_without_a_verdict_is_warned_of(bus: Lasting, capsys: pytest.CaptureFixture[str]) -> None:
    """The approval stands; the decider may be away."""
    publish(bus, held("it-83"))
    assert send(PlanApproved(plan="it-83", by="ada")) == 0
    assert "the decider has given no verdict yet" in capsys.readouterr().err


@pytest.mark.parametrize("given", ["latest", "it-84"])
def test_a_plan_that_is_not_decided_yet_is_waited_for(
    given: str, bus: Lasting, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its verdict comes within seconds; where none comes, the error says so, and nothing is approved."""
    publish(bus, held("it-83"))
    proposed = origin(bare_plan(), id_="it-84", cluster="demo", iteration="i8", now=NOW)
    asyncio.run(bus.publish(proposed))
    assert send(PlanApproved(plan=given, by="ada")) == 1
    assert "plan it-84 cannot be approved: the decider has given no verdict yet" in capsys.readouterr().err
    assert asyncio.run(bus.last("LOG", "plan-approved")) is None
    bus.verdicts = (held("it-84"),)
    assert send(PlanApproved(plan=given, by="ada")) == 0
    assert capsys.readouterr().out == "plan/it-84 approved by ada\n"


def test_a_file_that_is_not_there_is_no_id(bus: MemoryBus, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 2, and the command that writes such a file."""
    publish(bus, held("p1"))
    assert send(PlanApproved(plan="out/plan.json", by="ada")) == 2
    assert "there is no file out/plan.json: `kinema plan --out` writes one" in capsys.readouterr().err


def test_an_unclear_or_unknown_plan_id_names_plans(bus: MemoryBus, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 3 with the plans that match, or the newest ones."""
    publish(bus, held("it-81"), held("it-83"))
    for given, text in (
        ("it-8", "2 plans match 'it-8': it-81, it-83"),
        ("x", "no plan has the id 'x'; the newest are"),
    ):
        assert send(PlanApproved(plan=given, by="ada")) == 3
        assert text in capsys.readouterr().err


def test_words_that_would_change_nothing(bus: MemoryBus, capsys: pytest.CaptureFixture[str]) -> None:
    """A pause during a pause, a resumption without one, an abort of nothing: exit 3, and nothing is published."""
    assert send(WORDS[1]) == 3
    assert send(WORDS[3]) == 3
    publish(bus, PlanAccepted(plan="p1", version=3), ExecutionCompleted(plan="p1", fencing=1))
    assert send(WORDS[3]) == 3
    assert send(WORDS[0]) == 0
    assert send(WORDS[0]) == 3
    said = capsys.readouterr().err.splitlines()
    assert said == [
        "error: cluster demo is not paused",
        "error: no plan of cluster demo is running",
        "error: no plan of cluster demo is running",
        "error: cluster demo is already paused",
    ]
    assert asyncio.run(bus.last("LOG", "abort-requested")) is None


def test_approval_comes_too_late(bus: MemoryBus, capsys: pytest.CaptureFixture[str]) -> None:
    """A plan that was held and then judged otherwise cannot be approved any more: exit 4."""
    publish(bus, held("p1"), PlanAccepted(plan="p1", version=3))
    assert send(WORDS[2]) == 4
    assert capsys.readouterr().err == "error: plan p1 does not wait for approval; its phase is Running\n"


def test_an_approval_is_not_spent_where_it_would_be_refused(bus: MemoryBus, capsys: pytest.CaptureFixture[str]) -> None:
    """During a pause and while another plan is carried out: exit 4 with what to do, and nothing is published."""
    publish(bus, held("p1"))
    assert send(WORDS[0]) == 0
    assert send(WORDS[2]) == 4
    assert send(WORDS[1]) == 0
    publish(bus, PlanAccepted(plan="p2", version=3))
    assert send(WORDS[2]) == 4
    assert capsys.readouterr().err.splitlines() == [
        "error: plan p1 would be rejected during the pause; `kinema resume`, then approve it",
        "error: plan p1 would be rejected while plan p2 runs; wait for its end",
    ]
    assert asyncio.run(bus.last("LOG", "plan-approved")) is None
    publish(bus, ExecutionCompleted(plan="p2", fencing=1))
    assert send(WORDS[2]) == 0


def test_what_was_refused_since_hides_no_execution(bus: MemoryBus) -> None:
    """A plan can be aborted also after another one was refused because this one is carried out."""
    publish(bus, PlanAccepted(plan="p1", version=3))
    publish(bus, PlanRejected(plan="p2", version=3, rule="executing", reason="p1", would_change="its end"))
    assert send(WORDS[3]) == 0


def test_an_empty_stream_leaves_the_file_alone(
    bus: MemoryBus, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A recording that exists is not replaced by an empty one."""
    assert bus is not None
    out = tmp_path / "r.jsonl"
    out.write_text("precious")
    assert run_record(nats="nats://host", cluster="demo", out=out) == 3
    assert out.read_text() == "precious"
    assert 'no events found for cluster "demo"' in capsys.readouterr().err


async def test_recording_what_there_is(bus: MemoryBus, tmp_path: Path) -> None:
    """With events the file is written."""
    body = ClusterSnapshot(version=1, objects=())
    await bus.publish(origin(body, id_="s1", cluster="demo", iteration="", now=NOW))
    assert await record_to(bus, cluster="demo", out=tmp_path / "r.jsonl") == (1, 0)
    assert (tmp_path / "r.jsonl").exists()


def test_where_no_file_can_be_written(bus: MemoryBus, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A directory, or a place that is not there, is one line with option and reason, and leaves nothing behind."""
    publish(bus, ClusterSnapshot(version=1, objects=()))
    target = tmp_path / "there"
    target.mkdir()
    assert run_record(nats="nats://host", cluster="demo", out=target) == 1
    (target / "file").write_text("")
    assert run_record(nats="nats://host", cluster="demo", out=target / "file" / "r.jsonl") == 1
    assert run_record(nats="nats://host", cluster="demo", out=tmp_path / "nope" / "r.jsonl") == 1
    first, *others = capsys.readouterr().err.splitlines()
    assert first == f"error: --out {target}: is a directory: name a file in it"
    for said, place in zip(others, (target / "file", tmp_path / "nope"), strict=True):
        assert said == f"error: --out {place / 'r.jsonl'}: there is no directory {place}: make it, or name another"
    assert [item.name for item in tmp_path.iterdir()] == ["there"]


@pytest.mark.parametrize("url", ["nats://127.0.0.1:99999", "nats://[::1"])
async def test_a_service_with_an_impossible_address(url: str) -> None:
    """An address that the client cannot even parse is an error of the bus, which says what was tried."""
    with pytest.raises(BusUnavailableError, match="cannot be reached"):
        await connect_broker(RuntimeSettings(cluster="demo", nats_url=url, nats_connect_seconds=2.0))
