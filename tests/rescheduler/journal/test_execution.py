"""The journal: what a fold of the log remembers of executions."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec import structs
from tests.rescheduler.plans_in_memory import fragmented_plan, small_plan
from tests.support.builders import NOW, cluster, node, unreadable
from tests.support.plans import bare_plan, plan_node

from kinema_core.events import (
    AbortRequested,
    AnyBody,
    ClusterObject,
    Event,
    ExecutionCompleted,
    FrozenMap,
    NodeDeletionRequested,
    Placement,
    Plan,
    PlanAccepted,
    PlanStep,
    Step,
    StepFailed,
    StepStarted,
    StepSucceeded,
)
from kinema_core.runtime.envelope import origin
from kinema_rescheduler.journal.execution import Journal, fold
from kinema_rescheduler.names import DISRUPTED
from kinema_rescheduler.plan.decide import current

STEP = Step(id="boot/k1", kind="boot", target="k1")


def event(body: AnyBody, id_: str, seconds: float = 0) -> Event:
    """An event of the log."""
    return origin(body, id_=id_, cluster="test", iteration="it-1", now=NOW + timedelta(seconds=seconds))


def intended(attempt: int = 1, *, plan: str = "plan-1", step: Step = STEP, fencing: int = 1) -> StepStarted:
    """An intent."""
    return StepStarted(plan=plan, step=step, fencing=fencing, deadline=NOW, attempt=attempt)


def done(plan: str = "plan-1", step: Step = STEP) -> StepSucceeded:
    """Its outcome."""
    return StepSucceeded(plan=plan, step=step.id, fencing=1, outcome="done")


def begun() -> Journal:
    """A plan that was accepted."""
    journal = fold(Journal(), event(fragmented_plan()[1], "plan-1"))
    return fold(journal, event(PlanAccepted(plan="plan-1", version=1), "accept-1"))


def test_step_goes_from_intent_to_outcome() -> None:
    """An intent opens a step, its outcome ends it, a retry opens it again with the time of the first try kept."""
    journal = fold(begun(), event(intended(), "i-1", 1))
    assert journal.active is not None
    assert [progress.step.id for progress in journal.active.open_steps] == ["boot/k1"]
    failed = StepFailed(plan="plan-1", step="boot/k1", fencing=1, reason="conflict", detail="", retry=True)
    journal = fold(journal, event(failed, "f-1", 2))
    journal = fold(journal, event(intended(2), "i-2", 9))
    assert journal.active is not None
    progress = journal.active.steps["boot/k1"]
    assert (progress.state, progress.attempt) == ("open", 2)
    assert progress.first == NOW + timedelta(seconds=1)
    journal = fold(journal, event(done(), "d-2", 10))
    assert journal.active is not None
    assert journal.active.steps["boot/k1"].result == "done"


def test_what_comes_twice_or_late_changes_nothing() -> None:
    """An earlier attempt's intent and a second outcome leave the step as it is."""
    journal = fold(fold(begun(), event(intended(2), "i-2", 1)), event(done(), "d-2", 2))
    again = fold(fold(journal, event(intended(1), "i-1", 3)), event(done(), "d-3", 4))
    assert again.active == journal.active


def test_plans_wait_in_order_and_end_one_by_one() -> None:
    """The first accepted plan is active until it ends, then the next one is; a second delivery adds none."""
    journal = fold(begun(), event(small_plan()[1], "plan-2"))
    journal = fold(journal, event(PlanAccepted(plan="plan-2", version=1), "accept-2"))
    journal = fold(journal, event(PlanAccepted(plan="plan-2", version=1), "accept-2"))
    assert journal.active is not None
    assert [other.plan_id for other in journal.waiting] == ["plan-2"]
    journal = fold(journal, event(ExecutionCompleted(plan="plan-1", fencing=1), "end-1"))
    assert journal.active is not None
    assert journal.active.plan_id == "plan-2"
    assert journal.waiting == ()


def test_abort_counts_for_what_runs_now() -> None:
    """Without an execution a wish to abort means nothing, also not for the next one."""
    wish = event(AbortRequested(by="me"), "abort-1")
    assert fold(Journal(), wish).active is None
    journal = fold(begun(), wish)
    assert journal.active is not None
    assert journal.active.abort is not None
    ended = fold(journal, event(ExecutionCompleted(plan="plan-1", fencing=1), "end-1"))
    assert ended.active is None


@pytest.mark.parametrize(("reason", "detail"), [("too slow", "me: too slow"), ("", "me gave no reason")])
def test_an_abort_names_who_asked_and_why(reason: str, detail: str) -> None:
    """Or says that no reason was given."""
    journal = fold(begun(), event(AbortRequested(by="me", reason=reason), "abort-1"))
    assert journal.active is not None
    assert journal.active.abort is not None
    assert journal.active.abort.detail == detail


def test_first_verdict_stands() -> None:
    """Why something was given up is told once."""
    journal = begun()
    for reason in ("first", "second"):
        body = StepFailed(plan="plan-1", step="skip/x", fencing=1, reason=reason, detail="", retry=False)
        journal = fold(journal, event(body, reason))
    assert journal.active is not None
    assert journal.active.verdicts["skip/x"].reason == "first"
    assert dict(journal.active.steps) == {}


def test_request_becomes_active_with_its_first_step() -> None:
    """A requested deletion that begins just before a plan is accepted comes first; the plan waits."""
    request = event(NodeDeletionRequested(node="n9", uid="uid", version=1), "request-1")
    journal = fold(begun(), request)
    step = Step(id="taint/n9", kind="taint", target="n9", uid="uid")
    journal = fold(journal, event(intended(plan="request-1", step=step), "i-1"))
    assert journal.active is not None
    assert journal.active.plan_id == "request-1"
    assert [other.plan_id for other in journal.waiting] == ["plan-1"]
    journal = fold(journal, event(ExecutionCompleted(plan="request-1", fencing=1), "end-1"))
    assert journal.active is not None
    assert journal.active.plan_id == "plan-1"
    assert dict(journal.requests) == {}


def test_highest_fencing_is_remembered() -> None:
    """Revisions of all who acted count, in whichever order their events came."""
    journal = fold(begun(), event(intended(fencing=7), "i-1"))
    assert fold(journal, event(intended(2, fencing=3), "i-2")).fencing == 7


def test_many_requests_keep_the_newest() -> None:
    """The journal does not grow without bound; the newest request for a node counts."""
    journal = Journal()
    for number in range(300):
        request = NodeDeletionRequested(node=f"n{number % 290}", uid=f"uid-{number}", version=1)
        journal = fold(journal, event(request, f"request-{number}"))
    assert len(journal.requests) == 256
    assert journal.requests["n9"].id == "request-299"


@pytest.mark.parametrize(
    ("odd", "carried_out"),
    [
        ([], True),
        (unreadable("Pod shop/odd", node="n9"), False),
        (unreadable("Pod odd", namespace=""), False),
        (unreadable("Pod shop/odd", node="n1"), True),
    ],
)
def test_request_waits_for_pods_that_may_run_on_its_node(odd: ClusterObject, carried_out: bool) -> None:
    """A pod that could not be read keeps its node, and any node where its own is not told."""
    request = event(NodeDeletionRequested(node="n9", uid="uid-node-n9", version=1), "request-1")
    state = cluster(node("n1"), node("n9", labels={DISRUPTED: "old"}), odd)
    journal = fold(Journal(closed={"n9": "uid-node-n9"}), request)
    assert (current(journal, state) is not None) is carried_out


def two_moves() -> Plan:
    """A pod moves to a node that is booted for it."""
    place = Placement(pod="shop/web-1", uid="p1", source="old", to="kinema-7-1", strategy="surge", requests=FrozenMap())
    steps = (
        PlanStep(wave=0, action="boot", node="kinema-7-1"),
        PlanStep(wave=1, action="move", node="kinema-7-1", pod="shop/web-1"),
        PlanStep(wave=2, action="delete", node="old"),
    )
    return bare_plan(plan_node("kinema-7-1", "boot"), placements=(place,), steps=steps, moves=1)


def after_boot(**figures: str) -> Journal:
    """The journal after the boot's outcome."""
    step = Step(id="boot/kinema-7-1", kind="boot", target="kinema-7-1", offer="m4/a/on-demand")
    journal = Journal()
    for id_, body in (
        ("plan-1", two_moves()),
        ("accepted", PlanAccepted(plan="plan-1", version=7)),
        ("i", intended(step=step)),
        ("d", structs.replace(done(step=step), figures=FrozenMap(figures))),
    ):
        journal = fold(journal, event(body, id_))
    return journal


def test_the_name_that_was_registered_replaces_the_planned_one() -> None:
    """A machine may register under its own name: nodes, placements, steps and the boot are of that machine."""
    active = after_boot(node="rack1-7").active
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
    active = after_boot().active
    assert active is not None
    assert active.plan == two_moves()
    assert active.progress("boot/kinema-7-1") is not None
