"""A machine that registers under its own name takes the planned node's place in the journal."""

from __future__ import annotations

from datetime import timedelta

from tests.support.builders import NOW

from kinema_core.events import (
    Cost,
    Event,
    FrozenMap,
    Placement,
    Plan,
    PlanAccepted,
    PlanNode,
    PlanStep,
    Solve,
    Step,
    StepStarted,
    StepSucceeded,
)
from kinema_core.runtime.envelope import origin
from kinema_rescheduler.journal.execution import Journal, fold


def _event(body: Plan | PlanAccepted | StepStarted | StepSucceeded, id_: str) -> Event:
    return origin(body, id_=id_, cluster="test", iteration="it-1", now=NOW)


def _plan() -> Plan:
    node = PlanNode(
        name="kinema-7-1",
        machine_type="r640",
        zone="-",
        capacity_type="on-demand",
        offer="r640/-/on-demand",
        usd_per_hour=0.1,
        action="boot",
    )
    place = Placement(
        pod="shop/web-1", uid="p1", source="old", to="kinema-7-1", strategy="surge", requests=FrozenMap({"cpu": 1})
    )
    steps = (
        PlanStep(wave=0, action="boot", node="kinema-7-1"),
        PlanStep(wave=1, action="move", node="kinema-7-1", pod="shop/web-1"),
        PlanStep(wave=2, action="delete", node="old"),
    )
    return Plan(
        status="feasible",
        cost=Cost(before=1.0, after=0.5, lower_bound=0.5, gap=0.0),
        nodes=(node,),
        placements=(place,),
        steps=steps,
        moves=1,
        restarts=0,
        solve=Solve(seconds=0.0, first_feasible_seconds=None, method="by hand", seed=0),
        base_version=7,
    )


def _booted(**figures: str) -> Journal:
    deadline = NOW + timedelta(seconds=60)
    step = Step(id="boot/kinema-7-1", kind="boot", target="kinema-7-1", offer="r640/-/on-demand")
    journal = Journal()
    for event in (
        _event(_plan(), "plan-1"),
        _event(PlanAccepted(plan="plan-1", version=7), "accepted"),
        _event(StepStarted(plan="plan-1", step=step, fencing=1, deadline=deadline, attempt=1), "i"),
        _event(
            StepSucceeded(plan="plan-1", step="boot/kinema-7-1", fencing=1, outcome="done", figures=FrozenMap(figures)),
            "d",
        ),
    ):
        journal = fold(journal, event)
    return journal


def test_the_name_that_was_registered_replaces_the_planned_one() -> None:
    """Nodes, placements, the way and the boot's own step are of the machine that came."""
    active = _booted(node="rack1-7").active
    assert active is not None
    assert active.plan is not None
    assert [node.name for node in active.plan.nodes] == ["rack1-7"]
    assert [place.to for place in active.plan.placements] == ["rack1-7"]
    assert [(step.action, step.node) for step in active.plan.steps] == [
        ("boot", "rack1-7"),
        ("move", "rack1-7"),
        ("delete", "old"),
    ]
    booted = active.progress("boot/rack1-7")
    assert booted is not None
    assert (booted.state, booted.step.target) == ("done", "rack1-7")
    assert "kinema-7-1" not in str(active.steps) + str(active.plan)


def test_without_another_name_nothing_changes() -> None:
    """A node that registers as planned keeps its name."""
    active = _booted().active
    assert active is not None
    assert active.plan == _plan()
    assert active.progress("boot/kinema-7-1") is not None
