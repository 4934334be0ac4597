"""A pipeline that nobody disturbs, and what its recording is good for."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard
from tests.pipeline.pipeline_harness import Outcome, check, run_strategies
from tests.support.minors import LATER, next_minor, previous_minor, publisher

from kinema_cli.output import Format
from kinema_cli.replay.command import STAGES, replay_all, run_replay
from kinema_cli.replay.recording import read
from kinema_cli.simulate.command import SimulateOptions, run_simulate
from kinema_core.events import ClusterSnapshot, Node, Plan, PlanAccepted, Unknown

pytestmark = pytest.mark.pipeline


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the one run of this module writes."""
    return tmp_path_factory.mktemp("pipeline") / "run"


@pytest.fixture(scope="module")
def outcome(directory: Path) -> Outcome:
    """One run, shared by the tests of this module."""
    return asyncio.run(run_strategies(directory))


@pytest.fixture
def recording(outcome: Outcome, directory: Path) -> Path:
    """The recording of the run."""
    assert outcome.recording.log
    return directory / "recording.jsonl.zst"


def test_reaches_the_cheapest_nodes_by_every_strategy(outcome: Outcome) -> None:
    """Without any fault: the optimum, each strategy used, nobody hurt, nothing left behind."""
    check(outcome)
    assert outcome.report.headline.strategies == {"surge": 3, "rolling": 2, "evict": 2}
    assert outcome.report.headline.gap == 0


def test_replay_is_byte_equal(outcome: Outcome) -> None:
    """Every stage decides again what it decided then, to the byte."""
    tally = asyncio.run(replay_all(outcome.recording, STAGES))
    assert set(tally.decided) == set(STAGES)
    assert tally.equal == tally.decided
    assert tally.differences == []


def test_replay_asserts(recording: Path) -> None:
    """`kinema replay --assert` exits 0 on a recording that was not touched."""
    assert run_replay(file=recording, stage=None, start=1, end=None, speed=0, strict=True, show_diff=False) == 0


def test_a_changed_price_is_found(recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With one price changed in the file, `--diff` names the first event that comes out otherwise, field by field."""
    lines = zstandard.ZstdDecompressor().decompressobj().decompress(recording.read_bytes()).splitlines()
    changed = [_dearer(line, "e2-highcpu-2/europe-west3-a/on-demand") for line in lines]
    assert changed != lines
    path = tmp_path / "changed.jsonl"
    path.write_bytes(b"\n".join(changed) + b"\n")
    assert run_replay(file=path, stage=None, start=1, end=None, speed=0, strict=False, show_diff=True) == 1
    told = capsys.readouterr().out
    assert "first difference: optimizer, plan-proposed.v1" in told
    assert "'e2-highcpu-2/europe-west3-a/on-demand' → 'e2-highcpu-2/europe-west3-b/on-demand'" in told


def test_another_policy_decides_otherwise(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--policy` shows the first event that comes out otherwise, with the field and both values, and exits with 0."""
    given = {"stage": None, "start": 1, "end": None, "speed": 0, "strict": False, "show_diff": False}
    assert run_replay(file=recording, policy="none", **given) == 0  # type: ignore[arg-type]
    shown = capsys.readouterr().out
    assert "first difference: optimizer, plan-proposed.v1" in shown
    assert "type: 'plan-proposed.v1' → 'no-plan-found.v1'" in shown
    assert "decider" not in shown.split("first difference")[0]


def test_other_settings_decide_otherwise(recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--settings` replays only the services that it names; settings as recorded change nothing."""
    file = tmp_path / "settings.yaml"
    given = {"stage": None, "start": 1, "end": None, "speed": 0, "strict": True, "show_diff": False}
    file.write_text("decider: {limits: {approval: automatic}}")
    assert run_replay(file=recording, settings=file, **given) == 0  # type: ignore[arg-type]
    file.write_text("decider: {limits: {min_savings_fraction: 0.99}}")
    assert run_replay(file=recording, settings=file, **given) == 1  # type: ignore[arg-type]
    shown = capsys.readouterr().out
    assert "type: 'plan-accepted.v1' → 'plan-rejected.v1'" in shown
    assert "body.rule: None → 'saving'" in shown
    file.write_text("decider: {limits: {min_savings: 0.99}}")
    assert run_replay(file=recording, settings=file, **given) == 1  # type: ignore[arg-type]
    assert "unknown field `min_savings`" in capsys.readouterr().err


def test_a_recording_is_simulated_with_other_policies(recording: Path, tmp_path: Path) -> None:
    """The recorded cluster is every policy's beginning; what was simulated can be simulated again from its file."""
    out = tmp_path / "out"
    options = SimulateOptions(
        scenario=None,
        recording=recording,
        policies=("none", "karpenter"),
        seed=0,
        work=None,
        out=out,
        output=Format.JSON,
    )
    assert run_simulate(options) == 0
    first = json.loads((out / "results.json").read_text())
    unchanged, karpenter = first["results"]
    bodies = (item.event.body for item in read(recording).state)
    snapshot = next(body for body in bodies if isinstance(body, ClusterSnapshot))
    assert unchanged["samples"][0]["nodes"] == sum(isinstance(one, Node) for one in snapshot.objects)
    assert unchanged["evictions"] == 0
    assert karpenter["whole"]["usd"] < unchanged["whole"]["usd"]
    [file] = (out / "scenario").glob("*.yaml")
    again = replace(options, scenario=file, recording=None, out=tmp_path / "again")
    assert run_simulate(again) == 0
    assert json.loads((tmp_path / "again" / "results.json").read_text()) == first


def _dearer(line: bytes, offer: str) -> bytes:
    """The line, with the offer's price doubled if it is the catalog."""
    if b'"catalog-published.v1"' not in line:
        return line
    data = json.loads(line)
    for item in data["event"]["body"]["offers"]:
        if item["name"] == offer:
            item["micro_usd_per_hour"] *= 2
    return json.dumps(data, separators=(",", ":")).encode()


def test_what_was_accepted_was_proposed(outcome: Outcome) -> None:
    """Every accepted plan can be found by the id that its acceptance names."""
    log = [item.event for item in outcome.recording.log]
    proposals = {event.id for event in log if isinstance(event.body, Plan)}
    accepted = [event.body.plan for event in log if isinstance(event.body, PlanAccepted)]
    assert accepted
    assert set(accepted) <= proposals


@pytest.mark.parametrize("service", [*STAGES, "observer"])
@pytest.mark.parametrize("newer", [True, False], ids=["next", "previous"])
def test_one_service_of_another_minor_version(recording: Path, tmp_path: Path, service: str, *, newer: bool) -> None:
    """Events of a service one minor ahead of the others, or behind them, lose nothing and lead to the same decisions.

    Ahead, its events have unknown fields everywhere, and objects of an unknown kind; behind, they lack what is optional
    and those of the others have more.
    """
    header, *lines = zstandard.ZstdDecompressor().decompressobj().decompress(recording.read_bytes()).splitlines()
    rewritten = [header]
    for line in map(json.loads, lines):
        own = publisher(line["event"]) == service
        event = line["event"]
        if own or not newer:
            event = next_minor(event) if own == newer else previous_minor(event)
        rewritten.append(json.dumps({**line, "event": event}, separators=(",", ":")).encode())
    path = tmp_path / "mixed.jsonl"
    path.write_bytes(b"\n".join(rewritten) + b"\n")
    mixed, plain = read(path), read(recording)
    unknown = (service == "observer") == newer
    assert mixed.log == plain.log
    assert (mixed.state != plain.state) == unknown
    if unknown:
        objects = [item for one in mixed.state for item in getattr(one.event.body, "objects", ())]
        assert {item.of for item in objects if isinstance(item, Unknown)} == {LATER["kind"]}
        tally = asyncio.run(replay_all(mixed, STAGES))
        assert set(tally.decided) == set(STAGES)
        # The plans are the same; they name what could not be read.
        changed = [field for difference in tally.differences for field in difference.fields]
        assert {(field.path, field.then) for field in changed} == {("body.quarantined[0]", None)}
        assert {stage for stage in STAGES if tally.equal[stage] != tally.decided[stage]} == {"optimizer"}
