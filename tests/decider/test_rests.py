"""The rest of a plan that was accepted is judged more mildly than a plan of its own, and only that rest is."""

from __future__ import annotations

from datetime import time

import pytest
from tests.decider.cases import Court, halved
from tests.support.plans import change

from kinema_core.events import ExecutionAborted, ExecutionCompleted, ExecutionPaused, PlanAccepted
from kinema_core.model.schedule import Schedule

STRICT = {
    "cooldown_seconds": 60.0,
    "min_savings_fraction": 0.9,
    "approval": "required",
    "windows": (Schedule(start=time(1), end=time(2)),),
}


def court_after(end: ExecutionCompleted | ExecutionAborted) -> Court:
    """A decider that has accepted a plan, which has ended so."""
    court = Court(**STRICT)
    court.tell(PlanAccepted(plan="old", version=1), "accept-old")
    court.tell(end, "end-1")
    return court


UNFINISHED = ExecutionCompleted(plan="old", fencing=1, replan="misplaced")


async def test_the_rest_of_a_plan_needs_no_rest_no_window_no_approval_and_any_saving() -> None:
    """All that was given to the plan as a whole."""
    before, plan = halved()
    body = await court_after(UNFINISHED).judge(change(plan, continues="old"), before)
    assert isinstance(body, PlanAccepted), body


@pytest.mark.parametrize("continues", ["", "another"])
async def test_any_other_plan_is_judged_as_ever(continues: str) -> None:
    """A plan cannot pass as the rest of one that did not end just now."""
    before, plan = halved()
    body = await court_after(UNFINISHED).judge(change(plan, continues=continues), before)
    assert not isinstance(body, PlanAccepted)


async def test_a_plan_that_was_finished_or_aborted_has_no_rest() -> None:
    """Its end does not ask for one."""
    before, plan = halved()
    for end in (
        ExecutionCompleted(plan="old", fencing=1),
        ExecutionAborted(plan="old", fencing=1, reason="operator", detail=""),
    ):
        body = await court_after(end).judge(change(plan, continues="old"), before)
        assert not isinstance(body, PlanAccepted)


async def test_the_rest_of_a_plan_waits_in_a_pause() -> None:
    """An operator's word comes before everything."""
    before, plan = halved()
    court = court_after(UNFINISHED)
    court.tell(ExecutionPaused(by="ann"), "pause-1")
    body = await court.judge(change(plan, continues="old"), before)
    assert not isinstance(body, PlanAccepted)
    assert body.rule == "paused"
