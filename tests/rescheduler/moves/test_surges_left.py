"""Which workloads may still carry something of a surge when the plan ends."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace
from tests.rescheduler.plans_in_memory import small_plan
from tests.support.builders import NOW

from kinema_core.events import EMPTY, Event, Figures, FrozenMap, PlanAccepted, Step, StepKind
from kinema_core.model.cluster import Cluster, all_objects, from_objects
from kinema_core.runtime.envelope import origin
from kinema_rescheduler.journal.execution import Execution, Progress
from kinema_rescheduler.moves.scheduling import surges_left
from kinema_rescheduler.moves.surge import restoring
from kinema_rescheduler.names import CHEAPEST, COST_BEFORE, DELETION_COST
from kinema_rescheduler.plan.context import ExecutionContext
from kinema_rescheduler.plan.limits import Limits

WEB = "Deployment/shop/web"


def ended(kind: StepKind, number: int, figures: Figures = EMPTY, **more: Any) -> Progress:
    """A step of the move of pods that are gone by now, done."""
    step = Step(id=f"{kind}/{WEB}/{number}", kind=kind, target=WEB, **{"pods": ("gone",), **more})
    return Progress(
        step=step,
        attempt=1,
        first=NOW,
        intended=NOW,
        deadline=NOW,
        state="done",
        result="done",
        ended=NOW,
        figures=figures,
    )


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
    cluster, _ = small_plan()
    assert surges_left(context(cluster, *(ended(kind, number) for kind, number in steps))) == expected


def test_a_deletion_cost_that_no_step_names_is_taken_back() -> None:
    """A pod was to leave in the place of one that was gone, and its owner's update ended others instead."""
    before, _ = small_plan()
    left = replace(before.pods_by_key["shop/web-1"], annotations=FrozenMap({COST_BEFORE: "", DELETION_COST: CHEAPEST}))
    cluster = from_objects([*all_objects(before), left], 2)
    assert surges_left(context(cluster, ended("surge-up", 1), ended("surge-down", 1))) == (WEB,)


def context(cluster: Cluster, *progresses: Progress, passed: timedelta = timedelta()) -> ExecutionContext:
    """An execution that has come so far."""
    _, plan = small_plan()
    execution = Execution(
        cause=accepted(), plan_id="plan-1", plan=plan, steps={item.step.id: item for item in progresses}
    )
    return ExecutionContext(
        execution=execution, plan=plan, cluster=cluster, now=NOW + passed, limits=Limits(), fencing=1
    )


@pytest.mark.parametrize(
    ("ready", "expected"),
    [({"web-4": True, "web-5": True}, "web-5"), ({"web-4": False, "web-5": True}, "web-4"), ({"web-4": True}, "web-4")],
)
def test_the_newest_pod_is_the_surplus(ready: dict[str, bool], expected: str) -> None:
    """A revert takes a pod that came since the surge began, one that is not Ready first, and none that was to leave."""
    before, _ = small_plan()
    old = before.pods_by_key["shop/web-1"]
    new = [
        replace(old, name=name, uid=f"uid-pod-shop-{name}", created=NOW + timedelta(seconds=number), ready=is_ready)
        for number, (name, is_ready) in enumerate(ready.items())
    ]
    cluster = from_objects([*all_objects(before), *new], 2)
    up = ended("surge-up", 1, pods=(old.uid,), replicas_from=3, replicas_to=4)
    found = restoring(context(cluster, up), WEB, cluster.pods)
    assert (found.pods, found.replicas_from, found.replicas_to) == ((f"uid-pod-shop-{expected}",), 4, 3)
