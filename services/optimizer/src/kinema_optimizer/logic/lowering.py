"""Requests that only fall: a plan may leave them as they are."""

from __future__ import annotations

from collections.abc import Iterable

from kinema_core.events import Plan, Resize, WorkloadForecast
from kinema_optimizer.logic.windows import MICRO


def lowers(changes: Iterable[Resize]) -> bool:
    """Whether the pods of some workload request less, and more of nothing."""
    return any(_only_falls(one) for one in changes)


def raised(forecasts: Iterable[WorkloadForecast]) -> tuple[WorkloadForecast, ...]:
    """Those by which pods request more of something."""
    return tuple(one for one in forecasts if not _only_falls(one))


def rising(changes: Iterable[Resize]) -> frozenset[str]:
    """Workloads whose pods request more of something."""
    return frozenset(one.workload for one in changes if not _only_falls(one))


def worth(plan: Plan) -> tuple[bool, int, int]:
    """The less the better: pods that restart in no order, pods without a place, micro-USD per hour."""
    disordered = not plan.steps and bool(plan.moves or plan.restarts)
    return disordered, len(plan.unplaced), round(plan.cost.after * MICRO)


def _only_falls(one: Resize | WorkloadForecast) -> bool:
    return all(amount <= one.requests_before.get(name, 0) for name, amount in one.requests_after.items())
