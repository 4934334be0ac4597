"""Replicas of the coming hours: from the same hours of earlier days, and only where two of them agree."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.support.builders import NOW, cluster, deployed, node, on_every_node
from tests.support.usage_steps import KEY, STEP, step

from kinema_core.events import ReplicasAhead
from kinema_core.model.cluster import Cluster
from kinema_predictor.logic.ahead import replicas_ahead
from kinema_predictor.logic.history import History, remember

DAY = 288
STATE = cluster(node("n1"), deployed("web", ["n1", "n1"]), *on_every_node("logger", ["n1"]))
BEFORE = 3
"""Steps before now that the answer begins with."""


def history(days: float, peaks: set[int], *, rise: int = 12, lasts: int = 24) -> History:
    """Two pods; ten from `rise` steps after the hour of now on, on days that are so many days ago."""
    found = History()
    for at in reversed(range(round(days * DAY))):
        ago, ahead = -(-(at + 1) // DAY), -(at + 1) % DAY
        high = ago in peaks and rise <= ahead < rise + lasts
        found = remember(found, step(at, pods=10 if high else 2), keep=timedelta(days=21))
    return found


def ahead(of: History, hours: float = 3.0, share: float = 0.5, state: Cluster = STATE) -> ReplicasAhead | None:
    """What is expected."""
    return replicas_ahead(state, of, hours, share)


def test_a_peak_of_two_days_is_expected_at_the_same_time() -> None:
    """Its replicas have their first sample a step after they have come: they are expected a step earlier."""
    found = ahead(history(2.1, {1, 2}))
    assert found is not None
    assert (found.start, found.step_seconds) == (NOW - BEFORE * STEP, STEP.total_seconds())
    (web,) = found.workloads
    assert web.workload == KEY
    assert web.replicas == (2,) * (BEFORE + 11) + (10,) * 25


def test_a_peak_of_one_day_is_not_expected() -> None:
    """One day shows no pattern, nor do fewer than half of five."""
    for days, peaks in ((2.1, {1}), (2.1, {2}), (5.1, {1, 4})):
        found = ahead(history(days, peaks))
        assert found is not None
        assert found.workloads == ()


def test_the_share_says_on_how_many_days_it_must_have_been() -> None:
    """Three of five days are more than half and fewer than four fifths."""
    past = history(5.1, {1, 2, 4})
    assert [len(found.workloads) for share in (0.5, 0.8) if (found := ahead(past, share=share))] == [1, 0]


@pytest.mark.parametrize(("days", "hours"), [(1.9, 3.0), (2.1, 0.0)])
def test_nothing_is_said_of_less_than_two_days_or_where_it_is_off(days: float, hours: float) -> None:
    """Off is the default: the event then has what it had before."""
    assert ahead(history(days, {1, 2}), hours=hours) is None


def test_a_workload_without_pods_or_of_daemons_is_left_out() -> None:
    """There is no pod to learn from, and daemons follow the nodes."""
    found = ahead(history(2.1, {1, 2}), state=cluster(node("n1"), deployed("other", ["n1"])))
    assert found is not None
    assert found.workloads == ()
