"""Requests that fall for nothing: they stay as they are.

A fall pays where plans become cheaper by it, in this plan or in those that its room makes possible. What all of them
together can lead to is bounded by the cost of the cluster with every request as recommended. Where that saves less than
a plan has to, only falls that a plan needs for what it does are left in it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TypeAlias

from kinema_core.events import FrozenMap, Plan, Resize, WorkloadForecast
from kinema_core.model.checker.check import check_plan
from kinema_core.model.checker.view import PlanView, view_of
from kinema_core.model.mobility import listed_by_key
from kinema_core.model.resources import fits, scaled, subtract, total
from kinema_core.model.volumes import with_attachments
from kinema_optimizer.bounds.certificate import lower_bound
from kinema_optimizer.planning.ordering import key_of_plan, order_once
from kinema_optimizer.planning.plan import Outcome, outcome_from
from kinema_optimizer.planning.portfolio import is_dense
from kinema_optimizer.planning.task import Request, Task
from kinema_optimizer.problem.compile import compiled
from kinema_optimizer.problem.pods import ceiled
from kinema_optimizer.request.objective import MICRO, in_the_end, lowers, raised
from kinema_optimizer.search import kernels
from kinema_optimizer.solvers.stopping import KERNELS, ORDER

Forecasts: TypeAlias = tuple[WorkloadForecast, ...]


@dataclass(frozen=True)
class Prospect:
    """What the cluster may cost at least once all requests are as recommended."""

    least: int | None = None
    """Millionths of the objective's unit per hour; None where it is not known, or nothing is to fall."""
    now: int = 0
    """The same of the cluster as it is."""
    share: Fraction = Fraction(0)
    """What a plan has to save at least."""

    def pays(self, cost: int) -> bool:
        """Return whether falling requests may save enough of such a cost."""
        return self.least is None or self.least <= (1 - self.share) * cost


def prospect_of(request: Request, forecasts: Forecasts) -> Prospect:
    """Return the prospect; of a large cluster, whose search takes all of the time, it is not known."""
    if not lowers(forecasts):
        return Prospect()
    _, question, _ = request.question(in_the_end(forecasts), limited=False)
    problem = compiled(question)
    if not is_dense(problem) or not request.stop.waits(KERNELS, kernels.ready):
        return Prospect()
    share = Fraction(str(request.settings.min_savings_fraction))
    return Prospect(lower_bound(problem.relaxed).value, sum(problem.sites.prices.values()), share)


def useful(request: Request, forecasts: Forecasts, prospect: Prospect) -> Forecasts:
    """Return the forecasts; none that falls where it cannot save, and makes room for nothing that waits or rises."""
    rising = raised(forecasts)
    waits = any(pod.node is None for pod in listed_by_key(request.cluster).values())
    return forecasts if rising or waits or prospect.pays(prospect.now) else rising


def without_idle_falls(
    request: Request, forecasts: Forecasts, task: Task, plan: Plan, prospect: Prospect
) -> tuple[Task, Plan]:
    """Return the plan with those requests as they are that it does not need to fall, and that save nothing later.

    Pods go where they would have gone. Where they cannot with those requests, or time is over, the plan stays.
    """
    if prospect.pays(round(plan.cost.after * MICRO)):
        return task, plan
    idle = _idle(task, plan)
    over = request.stop.noted(ORDER) if idle else None
    while idle and over is not None and not over(ORDER):
        left = {one.workload for one in plan.resizes} - idle
        fewer = request.whole(tuple(one for one in forecasts if one.workload in left))
        found, stuck = order_once(fewer.problem, _kept_in_place(fewer, plan, idle), over)
        asked = fewer.problem.question
        wrong = () if stuck else check_plan(found, asked.cluster, asked.offers, asked.now, asked.options, ordered=True)
        if not stuck and not wrong and key_of_plan(fewer.problem, found) <= key_of_plan(task.problem, plan):
            return fewer, found
        cluster = asked.cluster
        subjects = (*stuck, *(one.subject for one in wrong))
        blamed = {cluster.controller_key_of(pod) for key in subjects if (pod := cluster.pod(key)) is not None}
        if not blamed & idle:
            break
        idle -= blamed
    return task, plan


def _idle(task: Task, plan: Plan) -> frozenset[str]:
    """Return workloads whose requests need not fall, as far as room goes: those with most pods first."""
    asked = task.problem.question
    view = view_of(plan, asked.cluster, asked.offers, now=asked.now, options=asked.options)
    free = {name: _free(view, name, asked.percent) for name in view.seats_by_node if name in view.sites}
    falling = [one for one in plan.resizes if lowers((one,))]
    pods = {one.workload: Counter(seat.to for seat in view.seats if seat.workload == one.workload) for one in falling}
    idle = set[str]()
    for one in sorted(falling, key=lambda one: (-pods[one.workload].total(), one.workload)):
        more, here = _fall(one), pods[one.workload]
        if all(name in free and fits(scaled(more, count), free[name]) for name, count in here.items()):
            free |= {name: subtract(free[name], scaled(more, count)) for name, count in here.items()}
            idle.add(one.workload)
    return frozenset(idle)


def _free(view: PlanView, name: str, percent: int) -> FrozenMap[int]:
    """Return the room that the plan leaves on a node, under the ceiling on its utilization."""
    site, live = view.sites[name], view.cluster.node(name)
    offer = next(node.offer for node in view.plan.nodes if node.name == name) if live is None else ""
    whole = view.offers[offer].allocatable if live is None else live.allocatable
    seats = view.seats_by_node[name]
    taken = total(with_attachments(view.cluster, seat.pod, seat.requests) for seat in seats)
    return subtract(subtract(site.room, subtract(whole, ceiled(whole, percent))), taken)


def _fall(one: Resize) -> FrozenMap[int]:
    """Return by how much each request falls."""
    return subtract(one.requests_before, one.requests_after)


def _kept_in_place(task: Task, plan: Plan, idle: frozenset[str]) -> Outcome:
    """Return what the plan decides, without restarts of pods that stay and have no new requests any more."""
    problem, cluster = task.problem, task.problem.question.cluster
    outcome = outcome_from(problem, plan)
    stays = {
        key
        for key, to in outcome.targets.items()
        if (pod := cluster.pods_by_key[key]).node == to and cluster.controller_key_of(pod) in idle
    }
    return replace(outcome, targets={key: to for key, to in outcome.targets.items() if key not in stays})
