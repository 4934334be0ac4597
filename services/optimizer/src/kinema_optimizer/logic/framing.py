"""A problem restated so that a solver that knows only nodes, pods and prices solves it, and its plan read back.

Energy is a price in another currency; room kept free, and nodes that are to remain, are pods that do not run yet. What
the solver sees and what the checker checks is the restated cluster; what leaves the service names neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from kinema_core.events import FrozenMap, Offer, Plan
from kinema_core.model.cluster import Cluster
from kinema_optimizer.logic.energy import in_usd, in_watts
from kinema_optimizer.logic.headroom import (
    ROOM,
    USABLE,
    placeholders,
    with_placeholders,
    without_placeholders,
)
from kinema_optimizer.logic.limits import NodeLimit, breaches, capped, floor_pods
from kinema_optimizer.logic.usable import UsableResources, fill_after, room_needed
from kinema_optimizer.logic.windows import Objective


@dataclass(frozen=True)
class Frame:
    """A cluster and what is on sale, as the solver is to see them."""

    cluster: Cluster
    offers: tuple[Offer, ...]
    objective: Objective
    usable: UsableResources | None
    limits: tuple[NodeLimit, ...]
    _cluster: Cluster
    _offers: tuple[Offer, ...]

    def read(self, plan: Plan) -> Plan:
        """The plan in terms of the cluster as it is."""
        if len(self.cluster.pods) > len(self._cluster.pods):
            plan = without_placeholders(plan)
        if self.limits:
            broken = {"limits_broken": float(len(breaches(self.limits, plan)))}
            plan = msgspec.structs.replace(plan, figures=FrozenMap({**plan.figures, **broken}))
        if self.usable is not None and plan.status != "infeasible":
            fill = fill_after(plan, self._cluster, self._offers, rule=self.usable)
            shares = {f"usable_{name}_percent": round(fill[name].percent, 2) for name in self.usable.max_percent}
            plan = msgspec.structs.replace(plan, figures=FrozenMap({**plan.figures, **shares}))
        return in_usd(plan, self._cluster, self._offers) if self.objective.kind == "energy" else plan


def framed(
    cluster: Cluster,
    offers: Sequence[Offer],
    objective: Objective,
    *,
    limits: Sequence[NodeLimit] = (),
    usable: UsableResources | None = None,
) -> Frame:
    """Restate; where money counts and nothing is kept free or limited, cluster and offers are the ones given.

    Raises:
        PriceError: energy is to be saved, and machine types have no watts.
    """
    given = (cluster, tuple(offers))
    seen, on_sale = in_watts(*given) if objective.kind == "energy" else given
    added = [
        pod
        for index, one in enumerate(objective.headroom)
        for pod in placeholders(f"{ROOM}{index}-", one.amounts, one.count)
    ]
    if usable is not None:
        added += placeholders(USABLE, *room_needed(cluster, usable))
    added += floor_pods(limits)
    return Frame(
        with_placeholders(seen, added), capped(limits, cluster, on_sale), objective, usable, tuple(limits), *given
    )
