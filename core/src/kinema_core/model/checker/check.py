"""Plan checker: refuse what is not a valid plan, without trusting or knowing the solver that made it.

Integers only. Each broken rule is one `Violation` with its own code, so that a refused plan says what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Final

from kinema_core.events import Offer, Plan
from kinema_core.model.checker.nodes import (
    check_availability,
    check_boot_name,
    check_deletion,
    check_money,
    check_nodes,
    check_scope,
)
from kinema_core.model.checker.pods import (
    check_copies,
    check_counts,
    check_held,
    check_lists,
    check_placements,
    check_priority,
    check_promises,
    check_reports,
)
from kinema_core.model.checker.redundancy import check_redundancy
from kinema_core.model.checker.room import check_pending, check_room, check_targets
from kinema_core.model.checker.rules import check_rules
from kinema_core.model.checker.spot_share import check_spot_share
from kinema_core.model.checker.steps import check_waves
from kinema_core.model.checker.view import PlanView, Violation, view_of
from kinema_core.model.cluster import Cluster
from kinema_core.model.mobility import MobilityOptions

__all__ = ["Violation", "check_drifted", "check_plan"]

_DEFAULTS: Final = MobilityOptions()
_SCHEMA: Final = "kinema.plan/v1"

_CHECKS: Final[tuple[Callable[[PlanView], Iterator[Violation]], ...]] = (
    check_nodes,
    check_lists,
    check_placements,
    check_held,
    check_copies,
    check_targets,
    check_room,
    check_rules,
    check_redundancy,
    check_spot_share,
    check_pending,
    check_priority,
    check_promises,
    check_counts,
    check_reports,
    check_money,
)
_AT_ALL_TIMES: Final[tuple[Callable[[PlanView], Iterator[Violation]], ...]] = (
    check_held,
    check_copies,
    check_targets,
    check_room,
    check_rules,
    check_redundancy,
    check_spot_share,
    check_availability,
)


def check_plan(
    plan: Plan,
    cluster: Cluster,
    offers: Iterable[Offer],
    now: datetime,
    options: MobilityOptions = _DEFAULTS,
    *,
    ordered: bool = False,
) -> tuple[Violation, ...]:
    """Everything that is wrong with a plan for exactly this cluster at the time `now`; empty when it is valid.

    A plan that says `infeasible` is only asked who cannot be placed, and why. Steps are checked where there are any;
    with `ordered`, a plan that moves pods must have them.
    """
    view = view_of(plan, cluster, offers, now=now, options=options)
    if plan.schema != _SCHEMA:
        return (Violation("schema", "schema", f"{plan.schema!r} is not {_SCHEMA}"),)
    if plan.status == "infeasible":
        return (*check_lists(view), *_infeasible(view))
    found = (violation for check in _CHECKS for violation in check(view))
    return (*found, *check_waves(view, required=ordered))


def check_drifted(
    plan: Plan,
    cluster: Cluster,
    offers: Iterable[Offer],
    now: datetime,
    options: MobilityOptions = _DEFAULTS,
) -> tuple[Violation, ...]:
    """Return why a plan cannot be executed on a later cluster; empty when it still can.

    What went is left out, what appeared stays where it is: neither is a violation by itself. Lists, counts and money
    of the plan are not looked at: they were true at another time.
    """
    view = view_of(plan, cluster, offers, now=now, options=options, drifted=True)
    return (*_nodes_still_there(view), *(violation for check in _AT_ALL_TIMES for violation in check(view)))


def _infeasible(view: PlanView) -> Iterator[Violation]:
    if not any(pod.node is not None for key, pod in view.pods.items() if key in view.unplaced):
        yield Violation("status-infeasible", "status", "infeasible, but every running pod has a place")


def _nodes_still_there(view: PlanView) -> Iterator[Violation]:
    for planned in (*view.plan.nodes, *view.plan.temporary):
        if planned.action == "boot":
            yield from check_boot_name(view, planned)
            offer = view.offers.get(planned.offer)
            if offer is None:
                yield Violation("offer-unknown", planned.name, f"no offer is named {planned.offer!r} any more")
            else:
                yield from check_scope(view, planned, offer)
        elif view.cluster.node(planned.name) is not None:
            yield from check_deletion(view, planned)
