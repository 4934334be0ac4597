"""What is in force in LOG, and when it is stated again; what readers see of it: tests/rescheduler/test_restated.py."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.support.bus_events import NOW, iteration, paused
from tests.support.plans import bare_plan

from kinema_core.events import (
    AnyBody,
    Event,
    ExecutionAborted,
    ExecutionResumed,
    PlanAccepted,
    PlanApprovalRequested,
    PlanRejected,
    subject_of,
)
from kinema_core.runtime.bus import Extent, Stored
from kinema_core.runtime.envelope import answer, origin
from kinema_core.runtime.restated import InForce, carried


def held(plan: str) -> PlanApprovalRequested:
    """A plan waits for approval."""
    return PlanApprovalRequested(plan=plan, version=1, rule="approval", reason="-", would_change="-")


def refused(plan: str) -> PlanRejected:
    """A plan is not to be executed."""
    return PlanRejected(plan=plan, version=1, rule="age", reason="-", would_change="-")


def about(body: AnyBody, id_: str) -> Event:
    """An event of the first iteration."""
    return origin(body, id_=id_, cluster="c1", iteration="it-1", now=NOW)


def folded(*events: Event) -> InForce:
    """What is in force after these events, at sequences from 1."""
    fold = InForce()
    for sequence, event in enumerate(events, start=1):
        fold.note(Stored("LOG", sequence, subject_of(event), event, 100))
    return fold


PROPOSED = about(bare_plan(), "p1")


@pytest.mark.parametrize(
    ("events", "kept"),
    [
        ([iteration(1), paused(1), iteration(2)], [2]),
        ([paused(1), paused(2)], [2]),
        ([paused(1), about(ExecutionResumed(by="ann"), "r")], []),
        ([iteration(1), PROPOSED], []),
        ([iteration(1), PROPOSED, about(held("p1"), "h1")], [1, 2, 3]),
        ([PROPOSED, about(held("p1"), "h1"), about(bare_plan(), "p2"), about(held("p2"), "h2")], [3, 4]),
        ([PROPOSED, about(held("p1"), "h1"), about(refused("p1"), "r1")], []),
        ([iteration(1), PROPOSED, about(PlanAccepted(plan="p1", version=1), "a1")], [1, 2, 3]),
        (
            [
                PROPOSED,
                about(PlanAccepted(plan="p1", version=1), "a1"),
                about(ExecutionAborted(plan="p1", fencing=1, reason="-", detail="-"), "e1"),
            ],
            [],
        ),
    ],
    ids=["pause", "newest", "resumed", "proposed", "held", "held-later", "refused", "open", "ended"],
)
def test_what_decisions_still_rest_on_is_in_force(events: list[Event], kept: list[int]) -> None:
    """A pause until it is resumed, the newest plan that waits for approval, and a plan until its execution ends."""
    assert [sequence for sequence, _ in folded(*events).events()] == kept


@pytest.mark.parametrize(
    ("extent", "days", "due"),
    [
        (Extent(first=1, last=1000, filled=0.49), 9000, False),
        (Extent(first=1, last=2, filled=0.9), 0, False),
        (Extent(first=1, last=4, filled=0.5), 0, True),
        (Extent(first=1, last=1000, filled=0.0, max_age_seconds=86_400 * 30), 14.9, False),
        (Extent(first=1, last=2, filled=0.0, max_age_seconds=86_400 * 30), 15.1, True),
    ],
    ids=["roomy", "recent", "oldest", "young", "old"],
)
def test_events_are_restated_before_any_is_dropped(extent: Extent, days: float, due: bool) -> None:
    """By size in the older half of a LOG that is half full, by age after half of the age that any may reach; once."""
    fold, now = folded(iteration(1), paused(1)), NOW + timedelta(days=days)
    body = fold.restatement(extent, now)
    assert (body is not None) is due
    if body is not None:
        event = answer(body, cause=paused(1), service="rescheduler", n=0, now=now, state=0)
        stored = Stored("LOG", extent.last + 1, subject_of(event), event, 100)
        assert [(item.sequence, item.event) for item in carried(stored)] == [(2, paused(1))]
        fold.note(stored)
        assert fold.restatement(Extent(extent.first, extent.last + 1, 0.6, extent.max_age_seconds), now) is None
