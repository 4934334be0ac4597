"""What remains of a plan that ended early is asked for at once, as long as that leads anywhere."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from tests.observer import log_events as log
from tests.observer.log_events import at, view
from tests.observer.logic.test_loop import decide, figures, refusal
from tests.support.builders import cluster, deployed, node, tiny

from kinema_core.events import ExecutionAborted, ExecutionCompleted, IterationStarted, Pod, Workload
from kinema_core.model.cluster import Cluster, all_objects, from_objects
from kinema_observer.logic.loop import Memory
from kinema_observer.logic.settings import LoopSettings

STORY: list[log.Timed] = [(0.0, "it-1", log.started("reschedule")), (1.0, "it-1", log.accepted())]
REST = IterationStarted(mode="reschedule", version=2, reason="rest-after-misplaced", continues="p1")


def test_the_rest_of_a_plan_is_asked_for_at_once() -> None:
    """Neither calm nor the interval between plans is waited for; the plan that is continued is named."""
    found = decide(tiny(), view(*STORY, (9.0, "it-1", log.ended(3))), now=at(10), memory=Memory())
    assert found.start is not None
    assert (found.start.reason, found.start.continues) == ("rest-after-misplaced", "p1")
    assert found.start.mode == "reschedule"


def test_the_rest_of_a_plan_is_asked_for_once() -> None:
    """After its iteration any further plan waits as usual."""
    story = [*STORY, (9.0, "it-1", log.ended(3)), (10.0, "it-2", REST), (11.0, "it-2", log.none())]
    assert decide(tiny(), view(*story), now=at(12), memory=Memory()).start is None


def test_a_plan_that_reached_its_end_is_not_continued() -> None:
    """Its end names no reason."""
    assert decide(tiny(), view(*STORY, (9.0, "it-1", log.finished())), now=at(10), memory=Memory()).start is None


@pytest.mark.parametrize(("reason", "continued"), [("pod-waits", True), ("operator", False), ("stock-out", False)])
def test_an_aborted_plan_is_continued_only_after_it_made_way_for_a_pod(reason: str, continued: bool) -> None:
    """What an operator aborts stays aborted, and a provider without machines is not asked again at once."""
    end = ExecutionAborted(plan="p1", fencing=1, reason=reason, detail="")
    found = decide(tiny(), view(*STORY, (9.0, "it-1", end)), now=at(10), memory=Memory())
    assert (found.start is not None) is continued


def cluster_of(*, ready: int) -> Cluster:
    """One node, and a Deployment with a pod."""
    web = [
        replace(one, ready=ready, observed_generation=1) if isinstance(one, Workload) else one
        for one in deployed("web", ["n1"])
    ]
    return cluster(node("n1"), *web)


POD_WAITS = view(*STORY, (9.0, "it-1", ExecutionAborted(plan="p1", fencing=1, reason="pod-waits", detail="")))


@pytest.mark.parametrize(("ready", "waits"), [(1, False), (0, True)])
def test_pods_may_come_up_before_the_rest_of_a_plan_that_ended_for_one_is_planned(ready: int, *, waits: bool) -> None:
    """All pods of its workload would be held until it is Ready. One that never is must not hold the rest up."""
    state = cluster_of(ready=ready)
    assert (decide(state, POD_WAITS, now=at(10), memory=Memory()).start is None) is waits
    for window in (LoopSettings().stabilization_window_seconds, 3 * LoopSettings().iteration_deadline_seconds):
        late = decide(state, POD_WAITS, now=at(9 + window), memory=Memory(), stabilization_window_seconds=window)
        assert late.start is not None
        assert late.start.continues == "p1"
    other = view(*STORY, (9.0, "it-1", log.ended(3)))
    assert decide(state, other, now=at(10), memory=Memory()).start is not None


@pytest.mark.parametrize(
    ("pod", "waits"),
    [
        ({"started": at(5)}, True),
        ({"started": None}, True),
        ({"started": at(-60)}, False),
        ({"started": at(5), "restarts": 1}, False),
        ({"started": at(5), "ready": True}, False),
        ({"node": None}, False),
        ({"started": at(5), "terminating": True}, False),
    ],
    ids=["new", "not started yet", "not Ready for long", "fails", "Ready", "without a node", "ends"],
)
def test_new_pods_come_up_before_any_rest_is_planned(pod: dict[str, Any], *, waits: bool) -> None:
    """A pod that waited took room on a new node: the plan for the rest may have another pod of its workload move."""
    state = from_objects(
        replace(one, **{"ready": False, **pod}) if isinstance(one, Pod) else one
        for one in all_objects(cluster_of(ready=0))
    )
    missed = view(*STORY, (9.0, "it-1", log.ended(3)))
    assert (decide(state, missed, now=at(10), memory=Memory()).start is None) is waits
    assert decide(state, missed, now=at(9 + LoopSettings().stabilization_window_seconds), memory=Memory()).start


def test_nothing_else_is_planned_while_such_pods_come_up() -> None:
    """However short the interval between plans is; what is waited for is said."""
    found = decide(
        cluster_of(ready=0), POD_WAITS, now=at(20), reschedule_interval_seconds=1.0, max_restless_fraction=1.0
    )
    assert refusal(found) == "pods-coming-up"
    assert figures(found) == {"workload": "Deployment/shop/web", "workloads": 1, "passed_seconds": 11.0}


@pytest.mark.parametrize(
    ("ends", "continued"),
    [
        ([*[log.ended(0)] * 4, log.ended(1)], True),
        ([log.ended(0)] * 5, False),
        ([log.ended(1), *[log.ended(0)] * 4], True),
        ([log.ended(2, saved=0.0)] * 5, False),
        ([*[log.ended(2, saved=-0.1)] * 4, log.ended(1, saved=0.1)], True),
    ],
)
def test_executions_that_lead_nowhere_are_not_continued_for_ever(
    ends: list[ExecutionCompleted], *, continued: bool
) -> None:
    """Five in a row that save nothing are enough, also if each boots two nodes and deletes the two of the last one."""
    story = [*STORY]
    for number, end in enumerate(ends):
        story += [
            (10.0 * number + 5, f"it-{number + 1}", end),
            (10.0 * number + 6, f"it-{number + 2}", REST),
        ]
    found = decide(tiny(), view(*story[:-1]), now=at(100), memory=Memory())
    assert (found.start is not None) is continued


@pytest.mark.parametrize(("moves", "continued"), [([9, 8, 7, 6, 5, 4], True), ([9, 8, 9, 8, 9, 8], False)])
def test_a_rest_with_ever_fewer_moves_is_continued(moves: list[int], *, continued: bool) -> None:
    """Nothing is saved before the last pod has left a node: what was left to move says whether that comes nearer."""
    story: list[log.Timed] = [(0.0, "it-0", log.started("reschedule"))]
    for number, left in enumerate(moves):
        story += [
            (10.0 * number + 1, f"it-{number}", log.accepted(left)),
            (10.0 * number + 5, f"it-{number}", log.ended(0)),
            (10.0 * number + 6, f"it-{number + 1}", REST),
        ]
    found = decide(tiny(), view(*story[:-1]), now=at(100), memory=Memory())
    assert (found.start is not None) is continued
