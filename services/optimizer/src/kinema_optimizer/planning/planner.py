"""From a cluster and what is on sale to a checked plan: compile, solve, build, check."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

import msgspec

from kinema_core.events import Mode, Offer, Plan, Solve, WorkloadForecast
from kinema_core.model.checker.check import check_plan
from kinema_core.model.cluster import Cluster
from kinema_core.model.mobility import mobility
from kinema_core.model.preferences import violated_preferences
from kinema_core.model.redundancy import redundancy_loss
from kinema_optimizer.bounds.certificate import lower_bound
from kinema_optimizer.errors import UnsoundPlanError
from kinema_optimizer.exact.thesis_model import LiteralResult, solve_literal
from kinema_optimizer.planning.naming import nothing, outcome_of
from kinema_optimizer.planning.ordering import ATTEMPTS, attempt, counting, exceeds, ordered, rank, unmoved
from kinema_optimizer.planning.plan import concluded
from kinema_optimizer.planning.portfolio import (
    UNSEARCHED,
    Answer,
    is_dense,
    left_out,
    node_cost,
    plainly,
    solved,
    without_moves_of,
)
from kinema_optimizer.planning.rule_prices import rule_prices
from kinema_optimizer.planning.unplaceable import with_waiting
from kinema_optimizer.planning.watch import Watch
from kinema_optimizer.problem.compile import Compiled, compiled
from kinema_optimizer.problem.progress import IncumbentReport, Report
from kinema_optimizer.problem.question import Question
from kinema_optimizer.request.headroom import without_placeholders_in
from kinema_optimizer.request.objective import MICRO, Objective, lowers, objective_at, raised, rising, worth
from kinema_optimizer.request.restate import Frame, framed
from kinema_optimizer.search import kernels
from kinema_optimizer.search.neighborhood import TaskPool
from kinema_optimizer.search.search import SearchOptions
from kinema_optimizer.settings import PlanningSettings
from kinema_optimizer.solvers.stopping import BUILD, KERNELS, ORDER, WAVE, ClockStop, StopRule, WorkStop, within

PRICING_SHARE: Final = 0.1
"""Of the time limit: on large clusters the search would leave none to tell what rules cost."""
UNLOWERED: Final = "unlowered-"
"""Before the phases of a solve without smaller requests, after one with them."""
LOWERED_SHARE: Final = 0.5
"""Of the time, for a plan with smaller requests where one without them may have to be made as well."""


def plan_for(  # noqa: PLR0913 - all but two have defaults and are named
    cluster: Cluster,
    offers: tuple[Offer, ...],
    *,
    now: datetime,
    settings: PlanningSettings,
    mode: Mode = "reschedule",
    forecasts: tuple[WorkloadForecast, ...] = (),
    stop: StopRule | None = None,
    progress: Report | None = None,
    task_pool: TaskPool | None = None,
) -> Plan:
    """The best plan found, checked by code that shares no model with the solvers. Blocks for up to the time limit.

    Args:
        cluster: the state to plan for.
        offers: machines on sale.
        now: the cluster's time: protections and objectives depend on it.
        settings: time limit, windows, and what may move.
        mode: `autoscale` only adds nodes for pending pods.
        forecasts: new requests; those that cannot be carried out are left out.
        stop: when to end the solve; by default the clock after the settings' time limit. That of a recorded solve
            also reports its seconds.
        progress: told of the first plan and of the best one.
        task_pool: who does the errands of the search; None: threads of this process.

    Raises:
        PriceError: live nodes have no price. UnsoundPlanError: the checker refuses the plan.
    """
    stop = stop or ClockStop(settings.time_limit_seconds, pricing=PRICING_SHARE)
    watch = Watch()
    asked = _Asked(cluster, offers, now, settings, mode, stop)
    made = _no_dearer(asked, forecasts, task_pool, stop, watch.reporting(progress, stop))
    made = made.of(*_worthwhile(asked, forecasts, made.task, made.plan), stop)
    task, answer = made.task, made.answer
    binding, looked = rule_prices(task.problem, made.first, stop)
    stops = (*answer.stops, *stop.notes, looked)
    solve = watch.solve(replace(answer, stops=stops), stop.recorded, settings.seed)
    plan = msgspec.structs.replace(made.plan, constraint_costs=binding, solve=solve)
    return task.concluded(plan, lower_bound=answer.lower_bound, proven=answer.proven)


def plan_from(  # noqa: PLR0913 - the question as in `plan_for`, and all are named
    cluster: Cluster,
    offers: tuple[Offer, ...],
    *,
    now: datetime,
    settings: PlanningSettings,
    incumbent: IncumbentReport,
    solve: Solve,
    mode: Mode = "reschedule",
    forecasts: tuple[WorkloadForecast, ...] = (),
) -> Plan:
    """The plan of the incumbent of a solve that came to no end: built, ordered and checked like any other.

    Raises:
        PriceError: live nodes have no price. UnsoundPlanError: the checker refuses the plan.
    """
    asked = _Asked(cluster, offers, now, settings, mode, WorkStop(0))
    task = asked.task(forecasts)
    outcome = outcome_of(task.problem, incumbent.answer)
    task, plan = _worthwhile(asked, forecasts, task, ordered(task.problem, outcome, asked.stop)[0])
    return task.concluded(msgspec.structs.replace(plan, solve=solve), lower_bound=incumbent.bound, proven=False)


@dataclass(frozen=True)
class _Asked:
    """What is asked of the planner, new requests aside."""

    cluster: Cluster
    offers: tuple[Offer, ...]
    now: datetime
    settings: PlanningSettings
    mode: Mode
    stop: StopRule

    def task(self, forecasts: tuple[WorkloadForecast, ...]) -> _Task:
        """The question with these new requests, compiled."""
        return _Task.of(
            self.cluster,
            self.offers,
            now=self.now,
            settings=self.settings,
            mode=self.mode,
            forecasts=forecasts,
            stop=self.stop,
        )

    def wish(self, task: _Task, task_pool: TaskPool | None) -> SearchOptions:
        """What is wanted of the search."""
        settings = self.settings
        return SearchOptions(
            move_price=task.objective.move_price,
            max_moves=None if task.problem.question.still else task.objective.max_moves,
            seed=settings.seed,
            workers=settings.workers,
            task_pool=task_pool,
        )


@dataclass(frozen=True)
class _Made:
    """A plan, what it is the plan of, and what is known about it."""

    task: _Task
    first: Answer
    """What was answered before an order was looked for."""
    answer: Answer
    plan: Plan

    def of(self, task: _Task, plan: Plan, stop: StopRule) -> _Made:
        """Return the same with another plan; what was proven of a task with other requests is proven no more."""
        if plan is self.plan:
            return self
        known = stop.waits(KERNELS, kernels.ready)
        bound = min(self.answer.lower_bound, lower_bound(task.problem.relaxed).value) if known else 0
        answer = replace(self.answer, lower_bound=bound, proven=False)
        return _Made(task, replace(self.first, least=None), answer, plan)


def _no_dearer(
    asked: _Asked, forecasts: tuple[WorkloadForecast, ...], task_pool: TaskPool | None, stop: StopRule, report: Report
) -> _Made:
    """The best plan; where smaller requests would make it dearer, or leave more pods without a place, one without them.

    All pods of a workload that gets new requests restart, and their old copies are there while new ones come. Where
    that takes room that is not there, it is bought, whatever is there after it. Nothing asks for that: the next plan
    may lower them.
    """
    stop.begin(BUILD)
    task = asked.task(forecasts)
    stop.ends(0)
    if not lowers(task.problem.resizes) or not is_dense(task.problem):  # the search of a large one uses up the time
        return _made(task, asked.wish(task, task_pool), stop, report)
    with stop.part(LOWERED_SHARE):
        made = _made(task, asked.wish(task, task_pool), stop, report)
    task = asked.task(raised(forecasts))
    known = stop.waits(KERNELS, kernels.ready)
    if known and worth(made.plan) <= (False, 0, lower_bound(task.problem.relaxed).value):
        return made
    with stop.within(UNLOWERED):
        other = _made(task, asked.wish(task, task_pool), stop, lambda _: None)
    best = min(made, other, key=lambda one: worth(one.plan))
    # Who is replaced has to be let in, who stays has not: neither bound is one of the other's plans.
    bound = min(made.answer.lower_bound, other.answer.lower_bound)
    stops = (*made.answer.stops, *within(UNLOWERED, other.answer.stops))
    return replace(best, answer=replace(best.answer, lower_bound=bound, stops=stops))


def _worthwhile(asked: _Asked, forecasts: tuple[WorkloadForecast, ...], task: _Task, plan: Plan) -> tuple[_Task, Plan]:
    """Return the plan; where it saves nothing, one that keeps every node and every running pod where they are.

    Requests that fall are then lowered in place. Workloads without room for that, or all, keep their requests.
    """
    if _has_purpose(forecasts, plan):
        return task, plan
    tried = [forecasts] if _is_at_rest(plan) else [forecasts, raised(forecasts)]
    while tried:
        given = tried.pop(0)
        still = asked.task(given)
        rest, stuck = attempt(still.problem, nothing(still.problem))
        blocked = _without_room(still.problem, stuck)
        if not blocked and worth(rest) <= worth(plan) and _unplaced(rest) <= _unplaced(plan):
            return still, rest
        if blocked and given is forecasts:
            tried.insert(0, tuple(one for one in given if one.workload not in blocked))
    return task, plan


def _has_purpose(forecasts: tuple[WorkloadForecast, ...], plan: Plan) -> bool:
    """Whether a plan saves, raises requests, places pods, or lowers requests and changes nothing else."""
    disordered, _, after = worth(plan)
    if rising(plan.resizes) or (not disordered and after < round(plan.cost.before * MICRO)):
        return True
    if not disordered and _is_at_rest(plan):
        return bool(plan.resizes) or not lowers(forecasts)
    return not lowers(plan.resizes) and any(one.source is None for one in plan.placements)


def _is_at_rest(plan: Plan) -> bool:
    return not plan.moves and all(node.action == "keep" for node in plan.nodes)


def _without_room(problem: Compiled, stuck: Collection[str]) -> frozenset[str]:
    """Workloads with new requests whose pods have no order in place, or are not admitted any more where they are."""
    cluster, admission = problem.question.cluster, problem.sites.admission
    sites = {site.name: site for site in problem.sites.nodes}
    resized = {one.workload: cluster.pods_by_workload[one.workload] for one in problem.resizes}
    return frozenset(
        workload
        for workload, pods in resized.items()
        for pod in pods
        if pod.key in stuck or (pod.node in sites and admission.forbids(pod, sites[pod.node]) is not None)
    )


def _unplaced(plan: Plan) -> frozenset[str]:
    return frozenset(one.pod for one in plan.unplaced)


def _made(task: _Task, wish: SearchOptions, stop: StopRule, report: Report) -> _Made:
    """The best plan of a task."""
    first = solved(task.problem, wish, stop, report)
    if first.method == UNSEARCHED:
        return _Made(task, first, first, unmoved(task.problem))
    answer, plan, stuck = _in_waves(task.problem, first, wish=wish, stop=stop, report=report)
    # The next best answer of the exact model can be a poor one: is a plan from which moves can be taken out cheaper?
    if plan is None or (answer.shuffles and answer is not first and _is_dearer(task.problem, plan, first)):
        plain, stops = answer.searched, answer.stops
        if plain is None:
            plain = plainly(task.problem, wish, stop, report)
            stops += plain.stops
        bound = max(plain.lower_bound, answer.lower_bound)
        other, _ = ordered(task.problem, plain.outcome, stop)
        if plan is None or rank(task.problem, other) < rank(task.problem, plan):
            answer, plan = plain, other
        answer = replace(answer, lower_bound=bound, stops=stops)
    if stuck and is_dense(task.problem):
        answer, plan = _with_some_unmoved(task, wish, stop, stuck, (answer, plan))
    return _Made(task, first, answer, plan)


def _is_dearer(problem: Compiled, plan: Plan, first: Answer) -> bool:
    """Whether a plan costs more, or leaves more pods out, than the answer that had no order."""
    lost, price = len(first.outcome.lost), node_cost(problem, first.outcome)
    return (len(plan.unplaced), round(plan.cost.after * MICRO)) > (lost, price)


@dataclass(frozen=True)
class _Task:
    """What is planned: the cluster as the solver is to see it, compiled."""

    frame: Frame
    problem: Compiled
    objective: Objective

    @classmethod
    def of(
        cls,
        cluster: Cluster,
        offers: tuple[Offer, ...],
        *,
        now: datetime,
        settings: PlanningSettings,
        mode: Mode,
        forecasts: tuple[WorkloadForecast, ...],
        stop: StopRule,
    ) -> _Task:
        """Restate and compile."""
        objective = settings.objective(now)
        frame = framed(cluster, offers, objective, limits=settings.limits, usable=settings.usable)
        question = Question(
            frame.cluster,
            frame.offers,
            now,
            mode,
            forecasts,
            objective.percent,
            settings.mobility,
            round(settings.preference_price_usd * MICRO),
            move_price=objective.move_price,
            max_moves=objective.max_moves,
        )
        question = with_waiting(question)
        if objective.max_moves == 0 and not forecasts:  # new requests may have to move pods in any case
            movable = frozenset(mobility(frame.cluster, now, question.options).strategy)
            question = replace(question, unmoved=movable, still=True)
        return cls(frame, *_prepared(question, objective, stop))

    def concluded(self, plan: Plan, *, lower_bound: int, proven: bool) -> Plan:
        """The plan with bound and status, checked, in terms of the cluster as it is.

        Raises:
            UnsoundPlanError: the checker refuses the plan.
        """
        plan = concluded(plan, lower_bound=lower_bound, proven=proven, objective=self.objective.text)
        asked = self.problem.question
        violations = check_plan(plan, asked.cluster, asked.offers, asked.now, asked.options, ordered=True)
        violations += exceeds(self.problem, plan)
        if violations:
            raise UnsoundPlanError(plan, violations)
        offers = {offer.name: offer for offer in asked.offers}
        lost = violated_preferences(plan, asked.cluster, offers, asked.point_price)
        close = redundancy_loss(plan, asked.cluster)
        return self.frame.read(msgspec.structs.replace(plan, violated_preferences=lost, redundancy_loss=close))


def _in_waves(
    problem: Compiled, answer: Answer, *, wish: SearchOptions, stop: StopRule, report: Report
) -> tuple[Answer, Plan | None, frozenset[str]]:
    """The answer that is kept and its plan with steps in waves; no plan when no order was found for any.

    And the pods whose moves in the answer that was given have no order.
    """
    first: frozenset[str] = frozenset()
    for _ in range(ATTEMPTS if answer.shuffles else 0):
        over = stop.noted(ORDER)
        if over(ORDER):
            return answer, unmoved(problem), frozenset()
        plan, stuck = attempt(problem, answer.outcome, over)
        if not stuck:
            return answer, plan, first
        if over(WAVE):
            return answer, unmoved(problem), frozenset()
        first = first or frozenset(stuck)
        answer = without_moves_of(problem, answer, stuck, wish=wish, stop=stop, report=report)
        if not answer.shuffles:
            break
    if answer.shuffles:
        return answer, None, first
    plan, stuck_too = ordered(problem, answer.outcome, stop)
    return answer, plan, first or stuck_too


def _with_some_unmoved(
    task: _Task, wish: SearchOptions, stop: StopRule, stuck: frozenset[str], known: tuple[Answer, Plan]
) -> tuple[Answer, Plan]:
    """A plan made again with those held whose moves have no order, if it is better than what is `known`.

    What is known without these moves was made for a cluster in which they happen: machines may be bought for nobody.
    Only where models are exact: the search has used the time up. Who is held keeps its requests: nobody is who needs
    more.
    """
    problem, (answer, best) = task.problem, known
    cluster, growing = problem.question.cluster, rising(problem.resizes)
    grow = {pod.key for workload in growing for pod in cluster.pods_by_workload[workload]}
    found: set[str] = set()
    for turn in range(ATTEMPTS):
        stuck &= problem.sites.mobility.strategy.keys() - grow
        if not stuck:
            break
        found |= stuck
        problem = compiled(replace(problem.question, unmoved=problem.question.unmoved | stuck))
        with stop.within(f"held-{turn}-"):
            again = solved(problem, wish, stop, lambda _: None)
        plan, stuck = ordered(problem, again.outcome, stop)
        better = rank(problem, plan) < rank(problem, best)
        # What the first answer proves holds for every plan; what is proven with pods held does not.
        stops, chosen = (*answer.stops, *within(f"held-{turn}-", again.stops)), again if better else answer
        answer = replace(chosen, lower_bound=answer.lower_bound, proven=answer.proven and not better, stops=stops)
        best = plan if better else best
    return answer, counting(best, found)


def reference_for(
    cluster: Cluster,
    offers: tuple[Offer, ...],
    *,
    now: datetime,
    settings: PlanningSettings,
    stop: StopRule,
    forecasts: tuple[WorkloadForecast, ...] = (),
    at_most: int | None = None,
) -> LiteralResult:
    """The least cost of any plan by the literal model of the thesis, to hold a plan of `plan_for` against.

    Every pod that may move may go anywhere; pending pods that nothing can hold are left out. For up to a hundred pods
    or so: its size grows with pods times nodes. `at_most` (micro-USD per hour) is the cost of the plan to be compared.

    Raises:
        PriceError: live nodes have no price.
    """
    objective = objective_at(settings.windows, now)
    question = Question(
        cluster, offers, now, "reschedule", forecasts, percent=objective.percent, options=settings.mobility
    )
    return solve_literal(compiled(with_waiting(question)).unbound, stop, at_most=at_most)


def _prepared(question: Question, objective: Objective, stop: StopRule) -> tuple[Compiled, Objective]:
    """The problem, and the objective that it is solved for.

    A ceiling is lifted while a pending pod waits that could be placed without it. Forecasts are dropped where machines
    are limited and the larger pods find no place; without them, keeping everything is a solution.
    """
    found = _solvable(question, stop)
    if objective.percent < 100 and left_out(found, stop):
        own = replace(question, cluster=without_placeholders_in(question.cluster))  # a wish for room lifts nothing
        freed = replace(own, percent=100)
        if (left_out(_solvable(own, stop), stop) or 0) > len(_solvable(freed, stop).homeless):
            return _solvable(replace(question, percent=100), stop), replace(objective, percent=100)
    return found, objective


def _solvable(question: Question, stop: StopRule) -> Compiled:
    found = compiled(question)
    if not question.forecasts or left_out(found, stop) is not None:  # nobody is replaced, or all who are find a place
        return found
    return compiled(replace(question, forecasts=()))
