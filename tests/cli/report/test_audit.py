"""The disruption audit."""

from __future__ import annotations

import pytest

from kinema_cli.report.audit import ReadyPoint, audit, floor_of


def points(*changes: tuple[float, int, int]) -> list[ReadyPoint]:
    """Points of (at, replicas, ready)."""
    return [ReadyPoint(at=at, replicas=replicas, ready=ready) for at, replicas, ready in changes]


def test_untouched_and_steady_is_clean() -> None:
    """A workload that keeps its replicas ready has no violation and no unready time."""
    found = audit({"Deployment/shop/web": points((0, 3, 3))}, {}, start=10, end=60).workloads[0]
    assert (found.least_ready, found.floor, found.violations, found.unready_pod_seconds) == (3, 3, 0, 0)
    assert found.strategy == "-"


@pytest.mark.parametrize("strategy", ["surge", "rolling", "-"])
def test_one_below_replicas_is_a_violation(strategy: str) -> None:
    """Only an eviction may take a replica away."""
    series = {"Deployment/shop/web": points((0, 3, 3), (20, 3, 2), (26, 3, 3))}
    found = audit(series, {"Deployment/shop/web": strategy}, start=10, end=60).workloads[0]
    assert (found.least_ready, found.floor, found.violations, found.violation_seconds) == (2, 3, 1, 6)


def test_eviction_may_take_one_but_not_two() -> None:
    """With `evict` one missing replica counts as unready time only, two as a violation."""
    name = "StatefulSet/shop/db"
    one = audit({name: points((0, 3, 3), (20, 3, 2), (30, 3, 3))}, {name: "evict"}, start=0, end=60)
    two = audit({name: points((0, 3, 3), (20, 3, 1), (30, 3, 3))}, {name: "evict"}, start=0, end=60)
    assert (one.violations, one.unready_pod_seconds) == (0, 10)
    assert (two.violations, two.unready_pod_seconds) == (1, 20)


def test_each_stretch_below_the_floor_counts_once() -> None:
    """Going deeper is the same violation, coming back and falling again a new one."""
    series = {"Deployment/shop/web": points((0, 4, 4), (10, 4, 3), (12, 4, 2), (14, 4, 4), (20, 4, 3), (21, 4, 4))}
    found = audit(series, {}, start=0, end=60).workloads[0]
    assert (found.violations, found.least_ready, found.violation_seconds) == (2, 2, 5)
    assert found.unready_pod_seconds == 2 * 1 + 2 * 2 + 1


def test_only_the_window_counts() -> None:
    """What was missing before the window or after it is nobody's doing; the last point before it still holds."""
    series = {"Deployment/shop/web": points((0, 2, 0), (15, 2, 2), (70, 2, 0))}
    assert audit(series, {}, start=20, end=60).violations == 0
    assert audit(series, {}, start=10, end=60).workloads[0].violation_seconds == 5


def test_surplus_of_a_surge_hides_nothing() -> None:
    """Replicas of the owner count: a surplus that is ready later takes nothing from a dip before it."""
    series = {"Deployment/shop/web": points((0, 2, 2), (10, 2, 3), (20, 2, 1), (22, 2, 3))}
    found = audit(series, {"Deployment/shop/web": "surge"}, start=0, end=30).workloads[0]
    assert (found.least_ready, found.violations, found.unready_pod_seconds) == (1, 1, 2)


def test_floor_follows_the_owner() -> None:
    """Fewer replicas asked for by the owner lower the floor; the row shows the moment nearest to its floor."""
    series = {"Deployment/shop/web": points((0, 4, 4), (10, 2, 4), (12, 2, 2))}
    found = audit(series, {}, start=0, end=30).workloads[0]
    assert (found.violations, found.replicas) == (0, 2)
    assert found.least_ready - found.floor == 0


def test_workload_unknown_in_the_window_is_left_out() -> None:
    """No statement is made about a workload that has no point before the window's end."""
    series = {"Deployment/shop/late": points((90, 1, 0)), "Deployment/shop/web": points((0, 1, 1))}
    assert [item.workload for item in audit(series, {}, start=0, end=60).workloads] == ["Deployment/shop/web"]


def test_floor_is_never_negative() -> None:
    """A workload of zero replicas has floor zero, whatever moves it."""
    assert floor_of("evict", 0) == 0
    assert floor_of("surge", 2) == 2
