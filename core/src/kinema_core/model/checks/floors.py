"""What disruption budgets bear while a plan is carried out, counted by the checks themselves."""

from __future__ import annotations

from collections.abc import Collection

from kinema_core.events import DisruptionBudget, Pod
from kinema_core.model.budgets import allowance, budgets_by_pod, expected
from kinema_core.model.checks.view import View
from kinema_core.model.strategy import strategy_of


def overdrawn(view: View, budget: DisruptionBudget, lost: Collection[str]) -> str | None:
    """Why a budget does not bear that these workloads lose a pod at once; None when it does."""
    replicas, healthy = expected(view.cluster, budget), view.healthy[budget.key]
    allowed = allowance(budget, replicas)
    spare = healthy - (replicas - allowed)
    if allowed and spare < 1:
        return f"a pod is evicted though {healthy} of {replicas} are healthy, and {replicas - allowed} have to be"
    most = max(1, min(allowed, spare))
    return f"{', '.join(sorted(lost))} lose a pod at once, it bears {most}" if len(lost) > most else None


def awaits_healthy(view: View, pod: Pod | None) -> bool:
    """Whether the pod would be evicted under a budget that bears none as its pods are, and as the plan leaves them."""
    if pod is None or pod.node is None or strategy_of(view.cluster, pod) != "evict":
        return False
    budgets = budgets_by_pod(view.cluster).get(pod.key, ())
    return any(overdrawn(view, budget, ()) is not None for budget in budgets)
