"""`kinema explain PLAN`: what the log says about one plan."""

from __future__ import annotations

import io
from pathlib import Path

import msgspec
import pytest
from rich.console import Console
from tests.support.builders import NOW
from tests.support.plans import bare_plan, plan_node

from kinema_cli.explain.command import ExplainOptions, run_explain
from kinema_cli.explain.plan import PlanExplanation, plan_explanation, read_plan
from kinema_cli.status.plan_ids import UnknownPlanError
from kinema_core.events import (
    AnyBody,
    ExecutionAborted,
    FrozenMap,
    Held,
    Placement,
    PlanAccepted,
    PlanRejected,
)
from kinema_core.runtime.envelope import origin
from kinema_sim.memory_bus import MemoryBus

PLAN = bare_plan(moves=7)
NO = PlanRejected(
    plan="p1", version=4, rule="saving", reason="saves too little", would_change="a smaller min_savings_fraction"
)


@pytest.fixture
async def bus() -> MemoryBus:
    """Two plans, of which the first is refused."""
    found = MemoryBus()
    said: list[tuple[str, AnyBody]] = [
        ("p1", PLAN),
        ("p2", PLAN),
        ("r1", NO),
        ("a2", PlanAccepted(plan="p2", version=4)),
    ]
    for id_, body in said:
        await found.publish(origin(body, id_=id_, cluster="demo", iteration="i1", now=NOW))
    return found


async def test_plan_is_told_with_what_became_of_it(bus: MemoryBus) -> None:
    """The verdict on another plan is none on this one."""
    told = await read_plan(bus, "p1")
    assert told.plan == PLAN
    assert [(one.phase, one.rule, one.would_change) for one in told.verdicts] == [
        ("Rejected", "saving", "a smaller min_savings_fraction")
    ]
    console = Console(file=io.StringIO(), width=160, record=True)
    console.print(*plan_explanation(told))
    said = console.export_text()
    assert "saves too little" in said
    assert "$2.00/h → $1.00/h" in said


async def test_the_end_of_its_execution_is_told(bus: MemoryBus) -> None:
    """After the approval; an abort with its reason."""
    end = ExecutionAborted(plan="p2", fencing=1, reason="operator", detail="asked by me", figures=FrozenMap(deleted=1))
    await bus.publish(origin(end, id_="e2", cluster="demo", iteration="i1", now=NOW))
    told = await read_plan(bus, "p2")
    assert [(one.phase, one.rule, one.reason) for one in told.verdicts] == [
        ("Approved", "", ""),
        ("Aborted", "operator", "asked by me"),
    ]


def test_the_plan_itself_tells_where_its_pods_are() -> None:
    """Without a state, held pods have nodes with a price, and moves are told by pod."""
    nodes = (plan_node("n0"), plan_node("n1", "delete"))
    bare = Placement(pod="shop/lone", uid="u0", source="n0", to="n0", strategy="stay", requests=FrozenMap())
    gone = Placement(pod="shop/web-1", uid="u1", source="n1", to="n0", strategy="surge", requests=FrozenMap())
    held = (Held(pod="shop/lone", code="bare-pod", reason="no controller would replace it"),)
    plan = msgspec.structs.replace(PLAN, nodes=nodes, placements=(bare, gone), held=held)
    console = Console(file=io.StringIO(), width=200, record=True)
    console.print(*plan_explanation(PlanExplanation(id="p1", proposed=NOW, plan=plan, verdicts=())))
    said = console.export_text()
    (rule,) = (line for line in said.splitlines() if "pods without a controller" in line)
    assert rule.split()[4:] == ["not", "priced", "1", "1", "1", "node,", "$124/month", *rule.split()[-6:]]
    assert " workload " not in said


async def test_plan_that_was_never_proposed_is_none(bus: MemoryBus) -> None:
    """A verdict alone is no plan."""
    with pytest.raises(UnknownPlanError, match="the newest are p1, p2"):
        await read_plan(bus, "r1")
    with pytest.raises(UnknownPlanError, match="no plan was proposed yet"):
        await read_plan(MemoryBus(), "latest")


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (ExplainOptions(name="plan/p1", nats="http://host"), 2, "--nats"),
        (ExplainOptions(name="n0", snapshot=Path("cluster.json"), context="prod"), 2, "--snapshot"),
    ],
)
def test_wrong_arguments_are_one_line(
    options: ExplainOptions, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is missing or wrong is named."""
    assert run_explain(options) == code
    found = capsys.readouterr()
    assert said in found.err
    assert len(found.err.strip().splitlines()) == 1
