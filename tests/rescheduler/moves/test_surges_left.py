"""Which workloads may still carry something of a surge when the plan ends."""

from __future__ import annotations

import pytest
from tests.rescheduler.plans_in_memory import small_plan
from tests.support.builders import NOW

from kinema_core.events import Event, PlanAccepted, Step, StepKind
from kinema_core.runtime.envelope import origin
from kinema_rescheduler.journal.execution import Execution, Progress
from kinema_rescheduler.moves.scheduling import surges_left
from kinema_rescheduler.plan.context import ExecutionContext
from kinema_rescheduler.plan.limits import Limits

WEB = "Deployment/shop/web"


def ended(kind: StepKind, number: int) -> Progress:
    """A step of the surge of pods that are gone by now, done."""
    step = Step(id=f"{kind}/{WEB}/{number}", kind=kind, target=WEB, pods=("gone",))
    return Progress(step=step, attempt=1, first=NOW, intended=NOW, deadline=NOW, state="done", result="done", ended=NOW)


def accepted() -> Event:
    """What began the execution."""
    return origin(PlanAccepted(plan="plan-1", version=1), id_="a", cluster="test", iteration="it-1", now=NOW)


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([("surge-up", 1), ("surge-down", 1)], ()),
        ([("surge-up", 1)], (WEB,)),
        ([("surge-up", 1), ("prefer-nodes", 2)], (WEB,)),
        ([("surge-up", 1), ("surge-up", 2), ("surge-down", 2)], (WEB,)),
    ],
)
def test_every_surge_without_its_end_is_taken_back(
    steps: list[tuple[StepKind, int]], expected: tuple[str, ...]
) -> None:
    """A surge that was cut short may have left its autoscaler's limits raised, whatever move came after it."""
    cluster, plan = small_plan()
    progresses = [ended(kind, number) for kind, number in steps]
    execution = Execution(
        cause=accepted(), plan_id="plan-1", plan=plan, steps={item.step.id: item for item in progresses}
    )
    scene = ExecutionContext(execution=execution, plan=plan, cluster=cluster, now=NOW, limits=Limits(), fencing=1)
    assert surges_left(scene) == expected
