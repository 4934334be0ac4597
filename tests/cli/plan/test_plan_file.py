"""A plan kept in a file: what is approved is the very plan that was shown, if it still holds."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import msgspec
import pytest
from tests.cli.bench import Bench, text
from tests.cli.bench import node as bench_node
from tests.support.builders import NOW, cluster, deployed, node, offers
from tests.support.plans import plan_for
from typer.testing import CliRunner

from kinema_cli import control
from kinema_cli.main import app
from kinema_cli.plan.plan_file import CONFLICT, read_plan, write_plan
from kinema_core.events import CatalogPublished, Event, Plan, PlanAccepted, PlanApprovalRequested, PlanApproved
from kinema_core.model.cluster import Cluster
from kinema_core.runtime.bus import Stored
from kinema_core.runtime.envelope import answer, origin
from kinema_core.runtime.settings import RuntimeSettings
from kinema_core.runtime.stage import Moment
from kinema_decider.logic.limits import Limits
from kinema_decider.service import Decider
from kinema_decider.settings import Settings
from kinema_sim.memory_bus import MemoryBus


def kept(folder: Path) -> tuple[Cluster, Plan, Path]:
    """Two nodes with a pod each, a plan that makes them one, and its file."""
    before = cluster(node("n1"), node("n2"), deployed("web", ["n1", "n2"], cpu=500), version=7)
    plan = plan_for(before, offers(), to={"shop/web-1": "n1"}, delete=["n2"])
    write_plan(folder / "plan.json", msgspec.to_builtins(plan))
    return before, plan, folder / "plan.json"


def test_the_file_holds_the_very_plan(tmp_path: Path) -> None:
    """What is read is what was written, field by field."""
    _, plan, path = kept(tmp_path)
    assert read_plan(path) == plan


@pytest.mark.parametrize("text", ["{}", "no json", '{"schema": "other"}'])
def test_what_is_no_plan_is_refused_with_its_name(text: str, bench: Bench) -> None:
    """Exit 1 and one line that names the file; a missing file is named as an unknown plan."""
    path = bench.directory / "plan.json"
    path.write_text(text)
    files = ["--catalog", str(bench.catalog), "--snapshot", str(bench.snapshot)]
    found = CliRunner().invoke(app, ["diff", str(path), *files])
    assert found.exit_code == 1
    assert found.stderr.startswith(f"error: {path}: ")


class Judge:
    """A decider that answers what is published on the bus."""

    def __init__(self, bus: MemoryBus, state: Cluster, limits: Limits) -> None:
        self.bus, self.state, self.seen = bus, state, 0
        self.decider = Decider(Settings(runtime=RuntimeSettings(cluster="demo"), limits=limits))
        self.decider.recall(
            origin(
                CatalogPublished(source="test", priced=None, offers=offers()),
                id_="catalog",
                cluster="demo",
                iteration="",
                now=NOW,
            )
        )

    async def answer(self) -> None:
        """Judge all proposals and approvals, as the serve loop would."""
        asked = [item async for item in self.bus.read("LOG") if isinstance(item, Stored)]
        for item in asked[self.seen :]:
            self.decider.recall(item.event)
            for body in await self.decider.handle(item.event, self.state, Moment(now=item.event.time)):
                made = answer(body, cause=item.event, service="decider", n=0, now=item.event.time, state=7)
                self.decider.recall(made)
                await self.bus.publish(made)
        self.seen = await self.bus.head("LOG")


def approve(path: Path, state: Cluster, monkeypatch: pytest.MonkeyPatch, limits: Limits) -> tuple[int, list[Event]]:
    """Approve a file before a decider; the exit code and the log."""
    bus = MemoryBus()
    judge = Judge(bus, state, limits)

    async def judged() -> None:
        await judge.answer()

    async def on_bus(_: object, work: object) -> object:
        return await work(bus)  # type: ignore[operator]

    monkeypatch.setattr(control, "on_bus", on_bus)
    monkeypatch.setattr(control, "operator", lambda: "ada")
    monkeypatch.setattr(control, "wait_a_second", judged)
    code = control.approve_file(nats="nats://host", path=path, cluster="demo")

    async def log() -> list[Event]:
        return [item.event async for item in bus.read("LOG") if isinstance(item, Stored)]

    return code, asyncio.run(log())


@pytest.mark.parametrize("approval", ["required", "automatic"])
def test_an_approved_file_is_that_plan_and_executed(
    approval: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Proposed as it is, held, approved by the operator, accepted: also where it moves more than one plan may."""
    before, plan, path = kept(tmp_path)
    limits = Limits(approval=approval, redundancy=False, max_moves_fraction=0.0)  # type: ignore[arg-type]
    code, log = approve(path, before, monkeypatch, limits)
    assert code == 0
    bodies = [item.body for item in log]
    assert [type(body) for body in bodies] == [Plan, PlanApproved, PlanApprovalRequested, PlanAccepted]
    assert bodies[0] == msgspec.structs.replace(plan, by="ada")


def test_a_file_that_does_not_hold_any_more_is_refused_with_the_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The node that was to take the pod is full now: nothing is executed, and the reason is printed."""
    _, _, path = kept(tmp_path)
    full = cluster(
        node("n1"),
        node("n2"),
        deployed("web", ["n1", "n2"], cpu=500),
        deployed("big", ["n1"], cpu=3200),
        version=9,
    )
    code, log = approve(path, full, monkeypatch, Limits(redundancy=False, max_drift_fraction=1.0))
    assert code == CONFLICT
    assert not any(isinstance(item.body, PlanAccepted) for item in log)
    assert "does not hold any more" in capsys.readouterr().err


def test_diff_judges_as_the_decider_does(bench: Bench) -> None:
    """On another cluster, where nothing of it is left, a plan does not hold: the decider's rules say so."""
    path = bench.directory / "plan.json"
    given = ["--catalog", str(bench.catalog), "--snapshot", str(bench.snapshot)]
    made = CliRunner().invoke(app, ["plan", *given, "--work", "20", "--out", str(path)])
    assert made.exit_code == 0, made.stderr
    bench.snapshot.write_bytes(text([*(bench_node(f"other-{index}") for index in range(3))]))
    found = CliRunner().invoke(app, ["diff", str(path), *given, "-o", "json"])
    assert found.exit_code == CONFLICT
    assert json.loads(found.stdout)["reasons"][0].startswith("drift: ")


def test_diff_names_what_has_changed(bench: Bench) -> None:
    """Against its own state a plan holds; the value says so in JSON."""
    path = bench.directory / "plan.json"
    given = ["--catalog", str(bench.catalog), "--snapshot", str(bench.snapshot)]
    made = CliRunner().invoke(app, ["plan", *given, "--work", "20", "--out", str(path)])
    assert made.exit_code == 0, made.stderr
    found = CliRunner().invoke(app, ["diff", str(path), *given, "-o", "json"])
    assert found.exit_code == 0, found.stderr
    value = json.loads(found.stdout)
    assert value["holds"] is True
    assert value["changes"]["pods gone"] == value["changes"]["nodes new"] == "0"
    plan = read_plan(path)
    moved = msgspec.structs.replace(plan, placements=tuple(one for one in plan.placements[1:]))
    write_plan(path, msgspec.to_builtins(moved))
    found = CliRunner().invoke(app, ["diff", str(path), *given, "-o", "json"])
    assert json.loads(found.stdout)["changes"]["pods new"].startswith("1: ")
