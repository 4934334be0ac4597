"""Plans by amount of work, so that no clock decides."""

from __future__ import annotations

from typing import Any

from tests.support.builders import NOW
from tests.support.planning import unguarded

from kinema_core.events import Offer, Plan
from kinema_core.model.checker.check import check_plan
from kinema_core.model.cluster import Cluster
from kinema_optimizer.planning.planner import plan_for
from kinema_optimizer.settings import PlanningSettings
from kinema_optimizer.solvers.stopping import PRICING, RecordedStop, StopReason, WorkStop


class Unpriced(WorkStop):
    """Ends phases by work, and prices no constraint: for a tiny cluster that takes most of the time of its plan."""

    def ends(self, iteration: int, coming: str = "") -> StopReason | None:
        """See `StopRule`."""
        return "work-limit" if coming == PRICING else super().ends(iteration, coming)


def planned(
    state: Cluster,
    on_sale: tuple[Offer, ...],
    *,
    work: int = 40,
    stop: WorkStop | RecordedStop | None = None,
    settings: PlanningSettings | None = None,
    **more: Any,
) -> Plan:
    """Return the optimizer's plan after `work` callbacks a phase, accepted by the checker; no constraint is priced.

    Args:
        state: the cluster.
        on_sale: the machines.
        work: callbacks of each phase.
        stop: ends the phases in place of `work`.
        settings: the operator's.
        more: what else `plan_for` takes.
    """
    wish = settings or unguarded()
    plan = plan_for(state, on_sale, settings=wish, stop=stop or Unpriced(work), **{"now": NOW, **more})
    assert check_plan(plan, state, on_sale, more.get("now", NOW), wish.mobility, ordered=True) == ()
    return plan


def replanned(plan: Plan, state: Cluster, on_sale: tuple[Offer, ...], **more: Any) -> Plan:
    """Return what a replay of the plan's solve decides."""
    return planned(state, on_sale, stop=RecordedStop(plan.solve), **more)
