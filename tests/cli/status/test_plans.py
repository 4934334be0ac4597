"""`kinema plans`: which plans it lists, and what it says became of them."""

from __future__ import annotations

import json

import msgspec
import pytest
from tests.cli.status.test_command import PLAN, Told
from tests.support.plans import bare_plan, plan_node

from kinema_cli import broker
from kinema_cli.output import Format, console
from kinema_cli.status.command import plans_table, run_plans
from kinema_cli.status.plans import read_plans
from kinema_core.events import (
    AnyBody,
    ExecutionAborted,
    ExecutionCompleted,
    FrozenMap,
    PlanAccepted,
    PlanApprovalRequested,
    PlanRejected,
    StepSucceeded,
)
from kinema_core.runtime.settings import RuntimeSettings
from kinema_sim.memory_bus import MemoryBus

HELD = PlanApprovalRequested(plan="e1", version=7, rule="approval", reason="asks first", would_change="approve")
REFUSED = PlanRejected(plan="e1", version=7, rule="saving", reason="too little", would_change="more")
ACCEPTED = PlanAccepted(plan="e1", version=7)
PARTLY = ExecutionCompleted(plan="e1", fencing=1, figures=FrozenMap({"nodes_kept": 2, "workloads_skipped": 1}))


@pytest.mark.parametrize(
    ("bodies", "phase", "why"),
    [
        ((), "Pending", ""),
        ((HELD,), "AwaitingApproval", "asks first"),
        ((REFUSED,), "Rejected", "too little"),
        ((HELD, ACCEPTED), "Running", ""),
        ((ACCEPTED, ExecutionCompleted(plan="e1", fencing=1)), "Completed", ""),
        ((ACCEPTED, PARTLY), "PartlyCompleted", "2 nodes kept, 1 workload skipped"),
        (
            (ACCEPTED, ExecutionAborted(plan="e1", fencing=1, reason="stock-out", detail="no e2 left")),
            "Aborted",
            "stock-out: no e2 left",
        ),
    ],
)
async def test_fate_is_the_last_word(bodies: tuple[AnyBody, ...], phase: str, why: str) -> None:
    """A plan's fate follows from the newest event about it; of others it says nothing."""
    told = await Told().say(PLAN, *bodies, PLAN)
    first, second = await read_plans(told.bus, 9)
    assert (first.id, first.phase, first.why) == ("e1", phase, why)
    assert (first.usd_per_hour_before, first.usd_per_hour_after, first.moves) == (1.7, 0.56, 12)
    assert second.phase == "Pending"


SHRINKING = bare_plan(
    plan_node("n1", usd=0.2),
    *(plan_node(name, "delete", usd=0.2) for name in ("n2", "n3", "n4")),
    before=0.8,
    after=0.2,
    temporary=(plan_node("t1", "boot", usd=0.2), plan_node("t2", "boot", usd=0.2)),
)


def made(step: str, plan: str = "e1", **figures: str) -> StepSucceeded:
    """A step of a plan that was made."""
    return StepSucceeded(plan=plan, step=step, fencing=1, outcome="done", figures=FrozenMap(figures))


@pytest.mark.parametrize(
    ("done", "reached"),
    [
        ((made("delete/n2"),), 0.6),
        ((made("delete/n2"), made("delete/n3", plan="e9")), 0.6),
        ((made("delete/n2"), made("delete/n3"), made("boot/t1", node="x")), 0.6),
        ((made("delete/n2"), made("boot/t1", node="x"), made("delete/x")), 0.6),
        ((made("delete/n2"), made("delete/n3")), None),
        ((), None),
    ],
)
async def test_what_a_plan_in_part_came_to(done: tuple[StepSucceeded, ...], reached: float | None) -> None:
    """Nodes that were kept are paid for, temporary ones too; where nodes went otherwise, nothing is said of cost."""
    end = ExecutionCompleted(plan="e1", fencing=1, figures=FrozenMap({"nodes_kept": 2}))
    told = await Told().say(SHRINKING, ACCEPTED, *done, end)
    (line,) = await read_plans(told.bus, 9)
    assert line.usd_per_hour_reached == reached
    cost = "" if reached is None else "; costs $0.60/h after it, $0.80/h before ($0.20/h planned)"
    assert line.why == f"2 nodes kept{cost}"


async def test_the_newest_are_listed() -> None:
    """Of more plans than asked for the oldest are left out, the order stays."""
    told = await Told().say(PLAN, PLAN, PLAN, PLAN)
    assert [line.id for line in await read_plans(told.bus, 2)] == ["e3", "e4"]


def refusal(plan: str, rule: str = "saving", reason: str = "too little") -> PlanRejected:
    """The decider's word on this plan."""
    return PlanRejected(plan=plan, version=7, rule=rule, reason=reason, would_change="more")


async def test_equal_refusals_in_a_row_are_one_line() -> None:
    """With how many, the first time, and the newest id; another rule, figure or fate begins a new line."""
    told = await Told().say(PLAN, PLAN, PLAN, PLAN, PLAN, msgspec.structs.replace(PLAN, moves=3))
    await told.say(refusal("e1"), refusal("e2", reason="less still"), refusal("e3", "drift"), refusal("e6"))
    folded, *others = await read_plans(told.bus, 9)
    assert (folded.id, folded.times, folded.why) == ("e2", 2, "less still")
    assert folded.first_proposed < folded.proposed
    assert [(line.id, line.phase, line.times) for line in others] == [
        ("e3", "Rejected", 1),
        ("e4", "Pending", 1),
        ("e5", "Pending", 1),
        ("e6", "Rejected", 1),
    ]
    screen = console()
    with screen.capture() as shown:
        screen.print(plans_table([folded, *others]))
    assert "2 times since 2026-03-02 12:00:0" in shown.get()
    assert "1 times" not in shown.get()


@pytest.mark.parametrize("known", [True, False])
def test_exit_codes(known: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """3 with one line of advice where nothing was proposed yet, else 0 and JSON with every plan."""

    async def connect(_: RuntimeSettings) -> MemoryBus:
        return (await Told().say(*([PLAN] if known else []))).bus

    monkeypatch.setattr(broker, "connect", connect)
    assert run_plans(nats="nats://host", cluster="demo", limit=5, output=Format.JSON) == (0 if known else 3)
    said = capsys.readouterr()
    if known:
        assert [line["status"] for line in json.loads(said.out)["plans"]] == ["optimal"]
        assert run_plans(nats="nats://host", cluster="demo", limit=5, output=Format.TABLE) == 0
        assert "$1.70/h → $0.56/h" in capsys.readouterr().out
    else:
        assert "kinema status" in said.err


async def test_an_id_stays_on_one_line() -> None:
    """However narrow the terminal and however long the reason, a plan's id can be copied whole."""
    told = await Told().say(PLAN, refusal("e1", reason="too little " * 20))
    name = "optimizer-0123456789abcdef0123456789abcdef"
    line = msgspec.structs.replace((await read_plans(told.bus, 9))[0], short_id=name)
    screen = console()
    screen.width = 80
    with screen.capture() as shown:
        screen.print(plans_table([line]))
    assert name in shown.get()
