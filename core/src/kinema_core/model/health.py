"""Number of evictions that the disruption budgets allow as their pods are now.

The API counts the pods that are Ready, not those that there should be. A pending pod that a plan places will be; one
that runs and is not Ready (it crashes, or has only just come), one without a place, and one that does not exist are
not: as long as that is so, evictions are refused for their sake.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from kinema_core.events import DisruptionBudget, Pod
from kinema_core.model.budgets import allowance, covered, expected
from kinema_core.model.cluster import Cluster


class Standing(NamedTuple):
    """Disruptions that a budget allows."""

    bears: int
    """Pods that may be away at once; 0 when it bears none before other pods are healthy."""
    why: str
    """Then, which pods it waits for."""


def standings(cluster: Cluster, waiting: Collection[str]) -> Mapping[str, Standing]:
    """Each budget that ever allows a disruption, by `namespace/name`. `waiting`: pending pods that stay so, by key."""
    found: dict[str, Standing] = {}
    for budget in cluster.budgets:
        most = allowance(budget, expected(cluster, budget))
        if most > 0:
            found[budget.key] = _standing(cluster, budget, most, waiting)
    return found


def _standing(cluster: Cluster, budget: DisruptionBudget, most: int, waiting: Collection[str]) -> Standing:
    pods, replicas = covered(cluster, budget), expected(cluster, budget)
    needed = replicas - most
    sick = (pod for pod in pods if (pod.key in waiting if pod.node is None else not pod.ready))
    ailing = sorted(sick, key=lambda pod: pod.key)
    there = len(pods) + _successors(cluster, pods)
    healthy = there - len(ailing)
    if healthy > needed:
        return Standing(min(healthy, replicas) - needed, "")
    named = [f"{pod.key} {'has no place' if pod.node is None else 'is not Ready'}" for pod in ailing[:2]]
    named += [f"{len(ailing) - 2} more"] if len(ailing) > 2 else []
    named += [f"{replicas - there} of them to be created"] if there < replicas else []
    return Standing(0, f"{healthy} of {replicas} pods are healthy, and {needed} have to be: {', '.join(named)}")


def _successors(cluster: Cluster, pods: Iterable[Pod]) -> int:
    """Pods that will come for terminating ones: a stateful set waits until those are gone."""
    owners = {one.key: one for pod in pods if (one := cluster.controller_of(pod)) is not None}
    coming = 0
    for key, owner in owners.items():
        owned = cluster.pods_by_workload[key]
        gone = sum(pod.terminating for pod in owned)
        coming += min(gone, max(0, owner.replicas - len(owned) + gone))
    return coming
