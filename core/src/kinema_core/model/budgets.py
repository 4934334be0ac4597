"""Disruption budgets: which pods they cover, and whether one can ever allow a disruption."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from kinema_core.events import DisruptionBudget, Pod
from kinema_core.model.cluster import Cluster
from kinema_core.model.derived import derived
from kinema_core.model.neighbors import Scope, pod_index

_AMOUNT: Final = re.compile(r"([0-9]{1,10})(%?)")


@derived
def budgets_by_pod(cluster: Cluster) -> Mapping[str, tuple[DisruptionBudget, ...]]:
    """Return the budgets that select each pod, by pod key; pods without any are missing."""
    found: dict[str, list[DisruptionBudget]] = {}
    for budget in cluster.budgets:
        for pod in covered(cluster, budget):
            found.setdefault(pod.key, []).append(budget)
    return {key: tuple(budgets) for key, budgets in found.items()}


def covered(cluster: Cluster, budget: DisruptionBudget) -> tuple[Pod, ...]:
    """Return the pods that a budget selects, terminating ones aside."""
    return pod_index(cluster).select(Scope((budget.namespace,), budget.selector))


@derived
def blocking_budgets(cluster: Cluster) -> Mapping[str, str]:
    """Budgets that can never allow a disruption, by `namespace/name`, and why."""
    reasons = {budget.key: never_allows(budget, expected(cluster, budget)) for budget in cluster.budgets}
    return {key: reason for key, reason in reasons.items() if reason is not None}


def expected(cluster: Cluster, budget: DisruptionBudget) -> int:
    """Return how many pods the budget counts on: the desired replicas of the controllers of the pods that it selects.

    A pod whose controller is unknown counts as one.
    """
    replicas: dict[str, int] = {}
    for pod in covered(cluster, budget):
        controller = cluster.controller_of(pod)
        if controller is None:
            replicas[f"Pod/{pod.key}"] = 1
        else:
            replicas[controller.key] = controller.replicas
    return sum(replicas.values())


def allowance(budget: DisruptionBudget, replicas: int) -> int:
    """Return how many of so many desired replicas the budget lets be away at once while all the others are healthy."""
    if budget.max_unavailable is not None:
        return scaled(budget.max_unavailable, replicas) or 0
    least = None if budget.min_available is None else scaled(budget.min_available, replicas)
    return 0 if least is None else max(0, replicas - least)


def never_allows(budget: DisruptionBudget, replicas: int) -> str | None:
    """Return why a budget over so many desired replicas can never allow a disruption; None when it can.

    Percentages round up, for both amounts, as in the disruption controller. A budget with neither amount allows none.
    """
    if budget.max_unavailable is not None:
        most = scaled(budget.max_unavailable, replicas)
        if most is None:
            return f"maxUnavailable {budget.max_unavailable!r} cannot be read"
        return f"maxUnavailable is {budget.max_unavailable}" if most == 0 else None
    if budget.min_available is None:
        return "it names neither minAvailable nor maxUnavailable, and so allows nothing"
    least = scaled(budget.min_available, replicas)
    if least is None:
        return f"minAvailable {budget.min_available!r} cannot be read"
    if replicas and least >= replicas:
        return f"minAvailable is {budget.min_available} of {replicas} replicas"
    return "minAvailable is 100%" if budget.min_available == "100%" else None


def scaled(text: str, replicas: int) -> int | None:
    """Return a number, or a percentage of the replicas rounded up; None when the text is neither."""
    found = _AMOUNT.fullmatch(text)
    if found is None:
        return None
    number = int(found[1])
    if not found[2]:
        return number
    # No replicas yet: 1 stands for them, so that only 0% is zero.
    return -(-number * max(1, replicas) // 100)
