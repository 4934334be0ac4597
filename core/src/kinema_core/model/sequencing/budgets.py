"""Disruption budgets over evicted pods: how many may be away at once."""

from __future__ import annotations

from collections.abc import Collection

from kinema_core.model.budgets import budgets_by_pod
from kinema_core.model.cluster import Cluster
from kinema_core.model.health import standings
from kinema_core.model.sequencing.movers import Mover


class Budgets:
    """Workloads that lose a pod by eviction in this wave.

    Evictions of one workload go one after the other within a wave, so that at most one of its pods is away. A budget
    over several workloads bears as many of them at once as it lets pods be away when all are healthy who can be: where
    it allows none now, the eviction waits. Under a budget that waits for pods which cannot heal, none is evicted.
    """

    def __init__(self, cluster: Cluster, unplaced: Collection[str]) -> None:
        """`unplaced`: pending pods to which the plan gives no place, by key."""
        self._most = {key: standing.bears for key, standing in standings(cluster, unplaced).items()}
        self._budgets = budgets_by_pod(cluster)
        self._away: dict[str, set[str]] = {}

    def bears(self, mover: Mover) -> bool:
        """Return whether the pod may be evicted in this wave; one that comes before it leaves needs no budget."""
        if mover.strategy != "evict":
            return True
        for budget in self._budgets.get(mover.key, ()):
            away, most = self._away.get(budget.key, set()), self._most.get(budget.key, 1)
            if most == 0 or (mover.workload not in away and len(away) >= most):
                return False
        return True

    def begin(self, mover: Mover) -> None:
        """Count the pod as evicted in this wave."""
        if mover.strategy == "evict":
            for budget in self._budgets.get(mover.key, ()):
                self._away.setdefault(budget.key, set()).add(mover.workload)

    def settle(self) -> None:
        """End the wave: every pod is back."""
        self._away.clear()
