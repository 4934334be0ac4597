"""A pipeline that nobody disturbs, and what its recording is good for."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
import zstandard
from tests.pipeline.pipeline_harness import Outcome, check, run_strategies

from kinema_cli.replay.command import STAGES, replay_all, run_replay
from kinema_core.events import Plan, PlanAccepted

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
