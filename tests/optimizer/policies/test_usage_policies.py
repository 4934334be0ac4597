"""Trimaran's target load packing and the metric descheduler: the score worked out, and why each fails."""

from __future__ import annotations

from datetime import timedelta
from fractions import Fraction

import pytest
from tests.support.builders import NOW, amounts, cluster, deployed, node, offer

from kinema_core.events import Amounts
from kinema_core.model.cluster import Cluster
from kinema_optimizer.policies.policy import Since, Tick
from kinema_optimizer.policies.usage import EVICTED, MetricDescheduler, Trimaran, target_load_score

OFFERS = (offer(),)


@pytest.mark.parametrize(
    ("predicted", "target", "score"),
    [
        (0, 40, 40),
        (20, 40, 70),
        (40, 40, 100),
        (70, 40, 20),
        (100, 40, 0),
        (101, 40, 0),
        (30, 60, 80),
        (60, 60, 100),
        (80, 60, 30),
    ],
)
def test_the_score_rises_to_the_target_and_falls_beyond(predicted: int, target: int, score: int) -> None:
    """(100 - X) p / X + X up to the target X, then X (100 - p) / (100 - X), and 0 above 100."""
    assert target_load_score(Fraction(predicted), target) == score


def used(**cores: int) -> dict[str, Amounts]:
    """Millicores that pods use."""
    return {f"shop/{name.replace('_', '-')}": amounts(cpu, 100) for name, cpu in cores.items()}


def test_trimaran_places_where_the_load_comes_closest_to_the_target() -> None:
    """n1 uses 20 %, n2 35 %; a pod of 10 % makes 30 and 45: the score of 30 is 85, that of 45 is 36.7."""
    state = cluster(
        node("n1"), node("n2"), deployed("a", ["n1"]), deployed("b", ["n2"]), deployed("new", [None], cpu=400)
    )
    plan = Trimaran().tick(Tick(state, OFFERS, NOW, usage=used(a_0=800, b_0=1400))).proposal.plan
    assert next(one.to for one in plan.placements if one.pod == "shop/new-0") == "n1"


def test_trimaran_alone_removes_no_node() -> None:
    """Source: the thesis, 4.2. Nearly empty nodes stay for ever."""
    state = cluster(node("n1"), node("n2"), deployed("a", ["n1", "n2"], cpu=100))
    policy = Trimaran()
    since: Since = {}
    for hours in range(24):
        outcome = policy.tick(Tick(state, OFFERS, NOW + timedelta(hours=hours), since, used(a_0=10, a_1=10)))
        assert not outcome.proposal.steps
        since = outcome.since


def idle() -> Cluster:
    """Two nodes that request more than half and use little, so that the Cluster Autoscaler leaves them alone."""
    return cluster(node("n1"), node("n2"), deployed("a", ["n1", "n1"], cpu=1300), deployed("b", ["n2", "n2"], cpu=1200))


def test_the_descheduler_evicts_from_the_node_with_the_least_usage() -> None:
    """n2 uses 2 % and n1 5 %: its pods are evicted, and the scheduler brings them back to it."""
    state, usage = idle(), used(a_0=100, a_1=100, b_0=40, b_1=40)
    outcome = MetricDescheduler().tick(Tick(state, OFFERS, NOW, usage=usage))
    [step] = outcome.proposal.steps
    assert (step.action, step.emptied, step.evictions) == ("evict", ("n2",), 2)
    assert outcome.since[EVICTED] == NOW
    assert {one.to for one in outcome.proposal.plan.placements if one.pod.startswith("shop/b")} == {"n2"}
    assert all(one.action == "keep" for one in outcome.proposal.plan.nodes)


def test_the_descheduler_rests_between_evictions() -> None:
    """Five minutes."""
    usage = used(a_0=100, a_1=100, b_0=40, b_1=40)
    first = MetricDescheduler().tick(Tick(idle(), OFFERS, NOW, usage=usage))
    for seconds, evicts in ((299, False), (300, True)):
        tick = Tick(idle(), OFFERS, NOW + timedelta(seconds=seconds), first.since, usage)
        assert bool(MetricDescheduler().tick(tick).proposal.steps) is evicts


def test_a_busy_node_is_left_alone() -> None:
    """30 % of 4 cores are 1.2."""
    busy = used(a_0=1200, a_1=1200, b_0=600, b_1=600)
    assert not MetricDescheduler().tick(Tick(idle(), OFFERS, NOW, usage=busy)).proposal.steps


def test_without_readings_nothing_is_evicted() -> None:
    """No usage is not low usage."""
    assert not MetricDescheduler().tick(Tick(idle(), OFFERS, NOW)).proposal.steps
