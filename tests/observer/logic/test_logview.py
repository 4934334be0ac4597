"""The fold over the log: what it keeps, and what it forgets."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st
from tests.observer import log_events as log
from tests.observer.log_events import START, at, event, view

from kinema_core.events import NodeDeletionRequested, PlanApproved
from kinema_observer.logic.logview import KINDS, LogView, fold
from kinema_observer.logic.settings import LoopSettings

STORY: list[log.Timed] = [
    (0.0, "it-1", log.started("reschedule")),
    (1.0, "it-1", log.held()),
    (2.0, "it-1", log.accepted()),
    (3.0, "it-1", log.intended("boot")),
    (4.0, "it-2", log.started("autoscale", 2, "shop/a")),
    (5.0, "it-1", log.done()),
    (6.0, "it-2", log.none("autoscale")),
    (7.0, "it-1", log.finished()),
    (8.0, "it-3", log.started("reschedule", 2)),
]


def test_an_iteration_goes_through_its_phases() -> None:
    """Planning, held, executing, gone; each phase counts from its own event."""
    phases = []
    for length in range(1, 5):
        running = view(*STORY[:length]).running(at(4), LoopSettings())
        phases.append([(item.phase, item.since) for item in running])
    assert phases == [[("planning", at(0))], [("held", at(1))], [("executing", at(2))], [("executing", at(2))]]
    assert [item.id for item in view(*STORY).running(at(9), LoopSettings())] == ["it-3"]


def test_ends_are_remembered_by_mode() -> None:
    """A reschedule iteration leaves its time, an autoscale iteration also its pods."""
    folded = view(*STORY)
    assert folded.rescheduled == at(7)
    assert [(item.at, item.pods) for item in folded.autoscaled] == [(at(6), frozenset({"shop/a"}))]
    assert folded.started == (2, 2)


@given(cut=st.integers(0, len(STORY)), again=st.integers(0, len(STORY)))
def test_a_restart_anywhere_folds_to_the_same_view(cut: int, again: int) -> None:
    """The view is nothing but the log: stopping and going on, with other kinds in between, changes nothing."""
    folded = view(*STORY[:cut])
    folded = fold(folded, cut, event(cut, (0.5, "it-1", PlanApproved(plan="p1", by=f"operator {again}"))))
    for number, item in enumerate(STORY[cut:], start=cut + 1):
        folded = fold(folded, number, event(number, item))
    assert folded == view(*STORY)


def test_events_of_unknown_iterations_change_nothing() -> None:
    """Their start may have left the log. What boots take is learned of any."""
    for body in (log.none(), log.accepted(), log.intended("delete"), log.finished()):
        assert view((1.0, "it-0", body)) == LogView(sequence=1)


def test_old_iterations_and_requests_are_forgotten() -> None:
    """Whoever knew their end is gone: memory stays bounded."""
    late = timedelta(days=3).total_seconds()
    asked = NodeDeletionRequested(node="n1", uid="u1", version=1)
    other = NodeDeletionRequested(node="n2", uid="u2", version=1)
    folded = view(
        (0.0, "it-1", log.started("reschedule")),
        (0.0, "", asked),
        (late, "", other),
        (late, "it-9", log.started("reschedule")),
    )
    assert set(folded.iterations) == {"it-9"}
    assert dict(folded.requested) == {"u2": START + timedelta(days=3)}


def test_the_kinds_read_from_the_log_are_those_that_are_folded() -> None:
    """Asking the broker for fewer kinds than the fold knows would blind it."""
    assert "iteration-started" in KINDS
    assert "step-started" in KINDS
    assert {event(1, item).type.rpartition(".")[0] for item in STORY} <= set(KINDS)


def test_a_plan_of_an_operator_begins_its_iteration() -> None:
    """No observer has begun it: held or executed, it keeps other iterations from beginning."""
    found = view((1.0, "c1/operator-20260302T120000Z", log.accepted()))
    assert [item.phase for item in found.iterations.values()] == ["executing"]
