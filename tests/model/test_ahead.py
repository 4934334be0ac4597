"""What of the expected replicas is missing, and when."""

from __future__ import annotations

from datetime import timedelta

from tests.support.builders import NOW, cluster, deployed, node

from kinema_core.events import ReplicasAhead, ReplicasExpected
from kinema_core.model.ahead import more_within, needed_later

WEB = "Deployment/shop/web"
STATE = cluster(node("n1"), deployed("web", ["n1", "n1"], cpu=100))


def expected(*replicas: int, workload: str = WEB, minutes_ago: float = 15) -> ReplicasAhead:
    """Replicas in steps of five minutes."""
    one = ReplicasExpected(workload=workload, replicas=replicas)
    return ReplicasAhead(start=NOW - timedelta(minutes=minutes_ago), step_seconds=300, workloads=(one,))


RISE = expected(2, 2, 2, 2, 6, 9, 4)
"""Six replicas in five minutes, nine in ten."""


def test_only_what_is_expected_in_time_counts() -> None:
    """The step of now is the fourth."""
    found = [dict(more_within(RISE, STATE, NOW, seconds)) for seconds in (299, 300, 600, 9000)]
    assert found == [{}, {WEB: 4}, {WEB: 7}, {WEB: 7}]


def test_replicas_that_do_not_come_are_not_waited_for_much_longer() -> None:
    """Six were due at 5 minutes; at 20 nobody expects them any more, nor at 30 the nine of minute 10."""
    flat = expected(2, 2, 2, 2, 6, 6, 6, 6, 6, 6, 6, 6)
    found = [dict(more_within(flat, STATE, NOW + timedelta(minutes=n), 300)) for n in (5, 19, 20, 30)]
    assert found == [{WEB: 4}, {WEB: 4}, {}, {}]


def test_nothing_is_expected_of_a_workload_that_is_gone_or_after_the_end() -> None:
    """Without a pod nobody knows what one requests."""
    assert not more_within(expected(2, 2, 2, 9, workload="Deployment/shop/gone"), STATE, NOW, 600)
    assert not more_within(RISE, STATE, NOW + timedelta(hours=3), 600)
    assert not more_within(None, STATE, NOW, 600)


def test_needs_are_the_requests_of_the_missing_pods() -> None:
    """In the order of time, from now on."""
    found = [(seconds, needed.get("cpu", 0)) for seconds, needed in needed_later(RISE, STATE, NOW)]
    assert found == [(0, 0), (300, 400), (600, 700), (900, 200)]
