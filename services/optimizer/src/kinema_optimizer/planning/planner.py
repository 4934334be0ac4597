"""Planning of a cluster, from question to checked plan: compile, solve, order, price constraints, check."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import datetime
from fractions import Fraction
from typing import Final, TypeAlias

import msgspec

from kinema_core.events import ConstraintCost, Mode, Offer, Plan, Pod, Solve, Stop, WorkloadForecast
from kinema_core.model.checker.check import Violation, check_plan
from kinema_core.model.cluster import Cluster
from kinema_core.model.freed_room import freed_share
from kinema_core.model.resizing import resized_in_place
from kinema_optimizer.bounds.certificate import lower_bound
from kinema_optimizer.exact.thesis_model import LiteralResult, solve_literal
from kinema_optimizer.planning.constraint_prices import price_constraints
from kinema_optimizer.planning.frontier import FrontierPoint, frontier_of
from kinema_optimizer.planning.idle_falls import prospect_of, useful, without_idle_falls
from kinema_optimizer.planning.ordering import (
    ATTEMPTS,
    Stuck,
    key_of_plan,
    obstacles_of,
    order_once,
    order_plan,
    order_within,
    unmoved,
    with_unordered_count,
)
from kinema_optimizer.planning.plan import node_cost, nothing, outcome_from, outcome_of
from kinema_optimizer.planning.portfolio import UNSEARCHED, Portfolio, SolverResult, is_dense
from kinema_optimizer.planning.rest import outcomes_left
from kinema_optimizer.planning.task import Request, Task, places_beside, with_unplaceable
from kinema_optimizer.problem.compile import Compiled, compiled
from kinema_optimizer.problem.question import Question
from kinema_optimizer.problem.solution import IncumbentReport, Progress, Report
from kinema_optimizer.request.choice import PRICE_STEPS, Choice, choose, with_choice
from kinema_optimizer.request.goal import Goal
from kinema_optimizer.request.headroom import brings_room
from kinema_optimizer.request.objective import (
    MICRO,
    in_the_end,
    lowers,
    objective_at,
    raised,
    rising,
    with_equal_costs,
    worth,
)
from kinema_optimizer.search import kernels
from kinema_optimizer.search.neighborhood import TaskPool
from kinema_optimizer.search.search import SearchOptions
from kinema_optimizer.settings import PlanningSettings
from kinema_optimizer.solvers.stopping import BUILD, KERNELS, ORDER, WAVE, ClockStop, Over, StopRule, WorkStop, within

PRICING_SHARE: Final = 0.1
"""Of the time limit: on large clusters the search would leave none to price constraints."""
UNLOWERED: Final = "unlowered-"
"""Before the phases of a solve without smaller requests, after one with them."""
WORTH_FREEING: Final = Fraction(1, 100)
"""Of the room of all nodes: requests that leave so much free in the end fall before a plan without smaller ones."""
FIRST_SHARE: Final = 0.5
"""Of the time, for the first plan where others are made to choose from."""
LOWERED_SHARE: Final = 0.5
"""Of the time, for a plan with smaller requests where one without them may have to be made as well."""
REST: Final = "rest of a plan"
"""Method of a plan that goes on where the one before it ended."""

Forecasts: TypeAlias = tuple[WorkloadForecast, ...]


def plan_for(  # noqa: PLR0913 - all but two have defaults and are named
    cluster: Cluster,
    offers: tuple[Offer, ...],
    *,
    now: datetime,
    settings: PlanningSettings,
    mode: Mode = "reschedule",
    forecasts: tuple[WorkloadForecast, ...] = (),
    ahead: tuple[Pod, ...] = (),
    goal: Goal | None = None,
    stop: StopRule | None = None,
    progress: Report | None = None,
    task_pool: TaskPool | None = None,
    frontier: Callable[[tuple[FrontierPoint, ...]], None] | None = None,
) -> Plan:
    """Return the best plan found, checked by `kinema_core.model.checker`. Blocks for up to the time limit.

    Args:
        cluster: the state to plan for.
        offers: machines on sale.
        now: the cluster's time: protections and objectives depend on it.
        settings: time limit, windows, and what may move.
        mode: `autoscale` only adds nodes for pending pods.
        forecasts: new requests; those that cannot be applied are left out.
        ahead: placeholders for replicas that are expected soon.
        goal: of the plan that this is the rest of.
        stop: when to end the solve; by default the clock after the settings' time limit. That of a recorded solve
            also reports its seconds.
        progress: called with each incumbent and bound.
        task_pool: who does the errands of the search; None: threads of this process.
        frontier: called with what parts of the plan cost, before constraints are priced.

    Raises:
        PriceError: no live node has a price. UnsoundPlanError: the checker refuses the plan.
    """
    stop = stop or ClockStop(settings.time_limit_seconds, pricing=PRICING_SHARE)
    watch = Watch()
    request = Request(cluster, offers, now, settings, mode, stop, ahead)
    report, choice = watch.reporting(progress, stop), settings.choice
    prospect = prospect_of(request, forecasts)
    forecasts = useful(request, forecasts, prospect)
    with stop.part(FIRST_SHARE) if choice is not None else nullcontext():
        if goal is None:
            made = _make_no_dearer(request, forecasts, task_pool, stop, report)
        else:
            made = _going_on(request, forecasts, goal, task_pool, stop, report)
    for amended in (_raised_in_place, _worthwhile, _with_others_in_place):
        made = made.of(*amended(request, forecasts, made.task, made.plan), stop)
    made = made.of(*without_idle_falls(request, forecasts, made.task, made.plan, prospect), stop)
    if choice is not None and mode == "reschedule" and not _is_at_rest(made.plan) and not made.plan.resizes:
        made = _chosen(made, request.search_options(made.task, task_pool), stop, choice)
    if frontier is not None:
        frontier(frontier_of(made.task, made.plan, stop))
    prices, ended = price_constraints(made.task.problem, made.least, stop)
    prices = tuple(sorted((*prices, *made.costs_of_order), key=lambda one: (-one.usd_per_hour, one.constraint)))
    stops = (*made.stops, *stop.notes, ended)
    solve = watch.solve(made.result.method, stops, stop.recorded, settings.seed)
    solve = msgspec.structs.replace(solve, lost_to_order=made.lost, move_price=made.move_price)
    plan = msgspec.structs.replace(made.plan, constraint_costs=prices, solve=solve)
    return made.task.finish(plan, lower_bound=made.result.lower_bound, optimal=made.result.optimal)


class SalvageStop(WorkStop):
    """Limit of the waves that the order of a salvaged plan may have: its time is over, and a replay makes it again."""

    def __init__(self, waves: int = 200) -> None:
        super().__init__(waves)

    def noted(self, phase: str) -> Over:
        """See `StopRule`."""
        return StopRule.noted(self, phase)


def plan_from(request: Request, *, incumbent: IncumbentReport, solve: Solve, forecasts: Forecasts = ()) -> Plan:
    """Return the plan of the incumbent of a solve that failed: built, ordered and checked like any other.

    Raises:
        PriceError: no live node has a price. UnsoundPlanError: the checker refuses the plan.
    """
    prospect = prospect_of(request, forecasts)
    forecasts = useful(request, forecasts, prospect)
    task = request.task(forecasts)
    outcome = outcome_of(task.problem, incumbent.answer)
    task, plan = _worthwhile(request, forecasts, task, order_plan(task.problem, outcome, request.stop)[0])
    task, plan = without_idle_falls(request, forecasts, task, plan, prospect)
    return task.finish(msgspec.structs.replace(plan, solve=solve), lower_bound=incumbent.bound, optimal=False)


@dataclass(frozen=True)
class _Made:
    """A plan, what it is the plan of, and what is known about it."""

    task: Task
    plan: Plan
    result: SolverResult
    """The solver's result that the plan is of, with what is proven for all plans."""
    stops: tuple[Stop, ...]
    least: int | None = None
    """Micro-USD per hour of the cheapest plan, in any order, where the exact model has proven it."""
    found: int | None = None
    """Micro-USD per hour of the first result; None where it had an order."""
    obstacles: frozenset[str] = frozenset()
    """What was against moves of it."""

    @property
    def lost(self) -> float:
        """USD per hour by which the best result, with or without an order, costs less than the plan."""
        if self.found is None:
            return 0.0
        return max(0, round(self.plan.cost.after * MICRO) - self.found) / MICRO

    @property
    def costs_of_order(self) -> tuple[ConstraintCost, ...]:
        """Return what the order of moves costs, as a constraint that is named after what was against it."""
        if not self.lost:
            return ()
        to_blame = f": {', '.join(sorted(self.obstacles))}" if self.obstacles else ""
        return (ConstraintCost(constraint=f"order of moves{to_blame}", usd_per_hour=self.lost),)

    @property
    def move_price(self) -> float | None:
        """The price of a move that the search chose; None where it was given or there is none."""
        price = self.result.move_price
        return None if price is None or self.task.problem.question.move_price is not None else price / MICRO

    def of(self, task: Task, plan: Plan, stop: StopRule) -> _Made:
        """Return the same with another plan; what was proven of a task with other requests is proven no more."""
        if plan is self.plan:
            return self
        known = stop.waits(KERNELS, kernels.ready)
        bound = min(self.result.lower_bound, lower_bound(task.problem.relaxed).value) if known else 0
        result = replace(self.result, lower_bound=bound, optimal=False)
        return replace(self, task=task, plan=plan, result=result, least=None, found=None)


def _make_no_dearer(
    request: Request, forecasts: Forecasts, task_pool: TaskPool | None, stop: StopRule, report: Report
) -> _Made:
    """Return the best plan; one without smaller requests where they make it dearer or leave more pods unplaced.

    All pods of a workload with new requests restart, and their old copies are there while new ones come. Where that
    takes room that is not there, it would be bought, whatever is free afterwards. The next plan may lower them.
    """
    stop.begin(BUILD)
    task = request.task(forecasts)
    stop.ends(0)
    if not lowers(task.problem.resizes) or not is_dense(task.problem):  # the search of a large one uses up the time
        return _make(task, request.search_options(task, task_pool), stop, report)
    with stop.part(LOWERED_SHARE):
        made = _make(task, request.search_options(task, task_pool), stop, report)
    task = request.task(raised(forecasts))
    known = stop.waits(KERNELS, kernels.ready)
    if known and worth(made.plan) <= (False, 0, lower_bound(task.problem.relaxed).value):
        return made
    with stop.within(UNLOWERED):
        other = _make(task, request.search_options(task, task_pool), stop, lambda _: None)
    best = min(made, other, key=lambda one: key_of_plan(one.task.problem, one.plan))
    # Replaced pods have to be admitted again, pods that stay have not: neither bound holds for the other's plans.
    bound = min(made.result.lower_bound, other.result.lower_bound)
    stops = (*made.stops, *within(UNLOWERED, other.stops))
    return replace(best, result=replace(best.result, lower_bound=bound), stops=stops)


def _going_on(
    request: Request, forecasts: Forecasts, goal: Goal, task_pool: TaskPool | None, stop: StopRule, report: Report
) -> _Made:
    """Return what is left to do for the goal of the plan before, unless the solvers' plan is better.

    Theirs may be as cheap with other machines, and would move pods again that have moved already. What is left is
    worked out first: the solvers use the time up. Of equals the one with fewer restarts is taken.
    """
    stop.begin(BUILD)
    task = request.task(forecasts)
    stop.ends(0)
    problem = task.problem
    with stop.patient():
        plans = list(_left_of(problem, goal, stop))
    with stop.punctual() if plans else nullcontext():
        made = _make(task, request.search_options(task, task_pool), stop, report)
    price = made.result.move_price or problem.question.move_price
    plans.append(made.plan)
    found = [key_of_plan(problem, plan, price) for plan in plans]
    keys = with_equal_costs([key for _, key in found], priced=price is not None)
    best = plans[min(range(len(plans)), key=lambda i: (found[i][0], keys[i], plans[i].restarts))]
    if best is made.plan:
        return made
    paid = round(best.cost.after * MICRO)
    proven = made.result.optimal and paid <= round(made.plan.cost.after * MICRO)
    return replace(made, plan=best, result=replace(made.result, method=REST, optimal=proven), found=None)


def _left_of(problem: Compiled, goal: Goal, stop: StopRule) -> Iterator[Plan]:
    """Yield plans of what is left to do for a goal, as far as there is time to order them."""
    for outcome in outcomes_left(problem, goal):
        over = stop.noted(ORDER)
        plan, _ = order_within(problem, outcome, over)
        if not _violations(problem, plan):
            yield plan
        if over(ORDER):
            break


def _worthwhile(request: Request, forecasts: Forecasts, task: Task, plan: Plan) -> tuple[Task, Plan]:
    """Return the plan; where it saves nothing, one that keeps every node and moves no pod that need not restart.

    Requests then change in place, or where there is room for second copies, also where new requests make the plan break
    a rule: its own node may not admit a pod again. Workloads that cannot change so keep their requests, or all where a
    saving is worth more than what theirs free in the end. Where pods restart for new requests and the plan saves
    enough without them, it keeps its moves. Where the time is over, it stays as it is.
    """
    sound, least = not _blocked(task.problem, plan), request.settings.min_savings_fraction
    if sound and _has_purpose(forecasts, plan, least):
        return task, plan
    before = round(plan.cost.before * MICRO)
    tried = [forecasts] if sound and _is_at_rest(plan) else [forecasts, raised(forecasts)]
    while tried:
        given, over = tried.pop(0), request.stop.noted(ORDER)
        if over(ORDER):
            break
        still, rest, stuck = _where_they_are(request, given, over)
        no_dearer = worth(rest) <= max(worth(plan), (False, len(plan.unplaced), before))
        if not stuck and (not sound or (no_dearer and _unplaced(rest) <= _unplaced(plan))):
            falling = {one.workload for one in rest.resizes}
            freed = freed_share(request.cluster, in_the_end(one for one in given if one.workload in falling))
            if sound and _is_saving(plan) and freed < WORTH_FREEING:
                return task, plan
            pays = sound and rest.moves + rest.restarts > 0 and _is_saving(plan, least)
            falls = tuple(one for one in given if one.workload in falling)
            return _falling_beside(request, falls, task, plan, (still, rest), over) if pays else (still, rest)
        blocked = {one for key in stuck for one in _resized(still.problem, key)}
        if blocked and (not sound or lowers(given)):
            tried.insert(0, tuple(one for one in given if one.workload not in blocked))
    return task, plan


def _falling_beside(
    request: Request, falls: Forecasts, task: Task, plan: Plan, rest: tuple[Task, Plan], over: Over
) -> tuple[Task, Plan]:
    """Return the plan with as many of these falls as have an order beside its moves.

    Pods restart for them, so whoever moves afterwards gains nothing by waiting for the next plan. Where the limit on
    moves has not enough for both, they fall alone: `rest`.
    """
    while falls and not over(ORDER):
        both = request.whole(falls)
        found, stuck = order_once(both.problem, outcome_from(both.problem, plan), over)
        if not stuck and key_of_plan(both.problem, found)[1].over_limit:
            return rest
        subjects = tuple(stuck) or _blocked(both.problem, found)
        if not subjects:
            return both, found
        blocked = {one for key in subjects for one in _resized(both.problem, key)}
        falls = tuple(one for one in falls if blocked and one.workload not in blocked)
    return task, plan


def _raised_in_place(request: Request, forecasts: Forecasts, task: Task, plan: Plan) -> tuple[Task, Plan]:
    """Return the plan; where one that only raises requests, where the pods are, is cheaper or moves fewer, that one.

    The solvers count second copies of all pods with new requests. Pods that run on need none.
    """
    over, growing = request.stop.noted(ORDER), raised(forecasts)
    if _is_at_rest(plan) or not _run_on(request, growing) or over(ORDER):
        return task, plan
    whole = request.whole(growing)
    still, stuck = order_once(whole.problem, nothing(whole.problem), over)
    if stuck or _blocked(whole.problem, still) or not rising(plan.resizes) <= rising(still.resizes):
        return task, plan
    return min(((task, plan), (whole, still)), key=lambda one: key_of_plan(one[0].problem, one[1]))


def _with_others_in_place(request: Request, forecasts: Forecasts, task: Task, plan: Plan) -> tuple[Task, Plan]:
    """Return the plan with other requests, too, that pods which it leaves alone can get while they run.

    The solvers may move all pods with new requests, so that these count as restarts to them, and the limit on those
    leaves workloads out. Where there is no room for all that rises, requests fall alone.
    """
    resizable = request.resizable(forecasts) if request.mode == "reschedule" else ()
    cluster, given = request.cluster, {one.workload for one in plan.resizes}
    leaving = {one.pod for one in plan.placements if one.source is not None and one.strategy != "stay"}
    others = tuple(
        one
        for one in forecasts
        if one.workload in resizable
        and one.workload not in given
        and one.requests_after != one.requests_before
        and leaving.isdisjoint(pod.key for pod in cluster.pods_by_workload.get(one.workload, ()))
    )
    growing = raised(others)
    falling = tuple(one for one in others if one not in growing)
    for more in dict.fromkeys((others, falling)):
        over = request.stop.noted(ORDER)
        if not more or over(ORDER):
            break
        names = given.union(one.workload for one in more)
        whole = request.whole(tuple(one for one in forecasts if one.workload in names))
        found, stuck = order_once(whole.problem, outcome_from(whole.problem, plan), over)
        asked = whole.problem.question
        new = {one.workload for one in found.resizes} - resized_in_place(found, asked.cluster, asked.options)
        sound = not stuck and not _blocked(whole.problem, found) and new <= given
        if sound and key_of_plan(whole.problem, found) <= key_of_plan(task.problem, plan):
            return whole, found
    return task, plan


def _run_on(request: Request, forecasts: Forecasts) -> bool:
    """Return whether pods of some workload may get other requests while they run."""
    pods = request.cluster.pods_by_workload
    resizable = any(pod.resizable for one in forecasts for pod in pods.get(one.workload, ()))
    return request.settings.resize_in_place and resizable


def _where_they_are(request: Request, forecasts: Forecasts, over: Over) -> tuple[Task, Plan, tuple[str, ...]]:
    """Return the plan that moves no pod but those that restart in any case, and the subjects of what is against it.

    Pods that can run on with other requests need no second copies; else there has to be room for these.
    """
    if _run_on(request, forecasts):
        whole = request.whole(forecasts)
        still, stuck = order_once(whole.problem, nothing(whole.problem), over)
        if not stuck and not _blocked(whole.problem, still):
            return whole, still, ()
    task = request.task(forecasts)
    return task, *_lowering(task.problem, over)


def _lowering(problem: Compiled, over: Over) -> tuple[Plan, tuple[str, ...]]:
    """Return the plan that moves no pod but those that restart in any case, and the subjects of what is against it.

    They come back to their own nodes; where these have no room for both copies, to others.
    """
    rest, unordered = order_once(problem, nothing(problem), over)
    stuck = tuple(unordered) or _blocked(problem, rest)
    full = {one for key in stuck for one in _resized(problem, key)}
    asked = problem.question
    places = places_beside(asked, sorted(asked.forecasts, key=lambda one: one.workload in full)) if full else {}
    roomless = full - places.keys()
    if roomless or not full:
        cluster = asked.cluster
        return rest, tuple(pod.key for one in sorted(roomless) for pod in cluster.pods_by_workload[one]) or stuck
    targets = {key: place for one in sorted(full) for key, place in places[one].items()}
    elsewhere, unordered = order_once(problem, replace(nothing(problem), targets=targets), over)
    return (rest, stuck) if unordered or _blocked(problem, elsewhere) else (elsewhere, ())


def _has_purpose(forecasts: tuple[WorkloadForecast, ...], plan: Plan, least: float) -> bool:
    """Return whether a plan saves, raises requests, places pods, or lowers requests and changes nothing else.

    Where requests are to fall, it saves only where it lowers some, and with the `least` share: a plan that is refused
    would keep them up, and so would one that packs pods by their present requests, as no room is left beside them.
    """
    disordered = worth(plan)[0]
    if rising(plan.resizes):
        return True
    falls = lowers(forecasts)
    if not disordered and _is_saving(plan, least if falls else 0.0) and (plan.resizes or not falls):
        return True
    if not disordered and _is_at_rest(plan):
        return bool(plan.resizes) or not lowers(forecasts)
    return not lowers(plan.resizes) and brings_room(plan)


def _is_saving(plan: Plan, least: float = 0.0) -> bool:
    """Return whether a plan saves anything, and at least a share of the cost."""
    before, after = round(plan.cost.before * MICRO), round(plan.cost.after * MICRO)
    return after < before and after <= (1 - Fraction(str(least))) * before


def _is_at_rest(plan: Plan) -> bool:
    return not plan.moves and all(node.action == "keep" for node in plan.nodes)


def _blocked(problem: Compiled, plan: Plan) -> tuple[str, ...]:
    """Return what the checker finds wrong with a plan that changes requests, by subject."""
    if not plan.resizes:
        return ()
    return tuple(sorted({violation.subject for violation in _violations(problem, plan)}))


def _violations(problem: Compiled, plan: Plan) -> tuple[Violation, ...]:
    """Return what the checker finds wrong with a plan."""
    asked = problem.question
    return check_plan(plan, asked.cluster, asked.offers, asked.now, asked.options, ordered=True)


def _resized(problem: Compiled, key: str) -> Iterator[str]:
    """Yield the workload of the pod with this key, where it has new requests."""
    cluster = problem.question.cluster
    pod = cluster.pod(key)
    workload = None if pod is None else cluster.controller_key_of(pod)
    yield from (one.workload for one in problem.resizes if one.workload == workload)


def _unplaced(plan: Plan) -> frozenset[str]:
    return frozenset(one.pod for one in plan.unplaced)


def _make(task: Task, options: SearchOptions, stop: StopRule, report: Report) -> _Made:
    """Return the best plan of a task."""
    problem, portfolio = task.problem, Portfolio(task.problem, options, stop, report)
    first = portfolio.solve()
    if first.method == UNSEARCHED:
        return _Made(task, unmoved(problem), first, tuple(portfolio.stops))
    least = portfolio.least
    result, plan, stuck = _order(portfolio, first)
    # The next best result of the exact model can be a poor one: is a plan from which moves can be taken out cheaper?
    if plan is None or (result.exact is not None and result is not first and _is_dearer(problem, plan, first)):
        plain = portfolio.fallback or portfolio.search()
        bound = max(plain.lower_bound, result.lower_bound)
        other, _ = order_plan(problem, plain.outcome, stop)
        if plan is None or key_of_plan(problem, other) < key_of_plan(problem, plan):
            result, plan = plain, other
        result = replace(result, lower_bound=bound)
    found = first.least if first.least is not None else node_cost(problem, first.outcome) if stuck else None
    against = first.obstacles or obstacles_of(stuck)
    made = _Made(task, plan, result, tuple(portfolio.stops), least, found, against)
    return _with_some_unmoved(made, options, stop, frozenset(stuck)) if stuck and is_dense(problem) else made


def _is_dearer(problem: Compiled, plan: Plan, first: SolverResult) -> bool:
    """Return whether a plan costs more, or leaves more pods out, than the result that had no order."""
    unplaced, price = len(first.outcome.lost), node_cost(problem, first.outcome)
    return (len(plan.unplaced), round(plan.cost.after * MICRO)) > (unplaced, price)


def _order(portfolio: Portfolio, result: SolverResult) -> tuple[SolverResult, Plan | None, Stuck]:
    """Return the result that has an order and its plan with steps; no plan where no order was found.

    And the pods whose moves in the first result have no order.
    """
    problem, stop = portfolio.problem, portfolio.stop
    first: Stuck = {}
    for _ in range(ATTEMPTS if result.exact is not None else 0):
        over = stop.noted(ORDER)
        if over(ORDER):
            return result, unmoved(problem), {}
        plan, stuck = order_once(problem, result.outcome, over)
        if not stuck:
            return result, plan, first
        if over(WAVE):
            return result, unmoved(problem), {}
        first = first or stuck
        result = portfolio.next_best(result, stuck)
        if result.exact is None:
            break
    if result.exact is not None:
        return result, None, first
    if result.plan is not None:
        return result, with_unordered_count(result.plan, result.held), first
    plan, stuck_too = order_plan(problem, result.outcome, stop)
    return result, plan, first or stuck_too


def _with_some_unmoved(made: _Made, options: SearchOptions, stop: StopRule, stuck: frozenset[str]) -> _Made:
    """Return a plan solved again with the pods held whose moves have no order, if it is better.

    A plan from which these moves were only taken out was made for a cluster in which they happen: it may boot nodes
    that no pod needs. Only where models are exact: the search has used the time up. A held pod keeps its requests, so
    none is held that needs more.
    """
    problem, first = made.task.problem, made.result
    cluster, growing = problem.question.cluster, rising(problem.resizes)
    grow = {pod.key for workload in growing for pod in cluster.pods_by_workload[workload]}
    held: set[str] = set()
    for turn in range(ATTEMPTS):
        stuck &= problem.sites.mobility.strategy.keys() - grow
        if not stuck:
            break
        held |= stuck
        problem = compiled(replace(problem.question, unmoved=problem.question.unmoved | stuck))
        again = Portfolio(problem, options, stop, lambda _: None)
        with stop.within(f"held-{turn}-"):
            result = again.solve()
        plan, unordered = order_plan(problem, result.outcome, stop)
        stuck = frozenset(unordered)
        made = replace(made, stops=(*made.stops, *within(f"held-{turn}-", again.stops)))
        if key_of_plan(problem, plan) < key_of_plan(problem, made.plan):
            # What the first result proves holds for every plan; what is proven with pods held does not.
            made = replace(made, plan=plan, result=replace(result, lower_bound=first.lower_bound, optimal=False))
    return replace(made, plan=with_unordered_count(made.plan, held))


def _chosen(made: _Made, options: SearchOptions, stop: StopRule, choice: Choice) -> _Made:
    """Return the plan that is chosen among the one made and others, for which a move has another price.

    What is proven of the first holds for all: prices of moves are no part of it.
    """
    question = made.task.problem.question
    price = made.result.move_price or question.move_price or _tenth_of_a_pod(made)
    found, stops = [made], made.stops
    for turn, step in enumerate(PRICE_STEPS):
        problem = compiled(replace(question, move_price=step * price))
        task = replace(made.task, problem=problem)
        with stop.within(f"choice-{turn}-"), stop.part(1 / (len(PRICE_STEPS) - turn + 1)):
            other = _make(task, replace(options, move_price=step * price), stop, lambda _: None)
        stops = (*stops, *within(f"choice-{turn}-", other.stops))
        found.append(other)
    best = found[choose([one.plan for one in found], question.cluster, question.offers, choice)]
    bound, same = made.result.lower_bound, best is made
    result = replace(best.result, lower_bound=bound, optimal=made.result.optimal and same)
    return replace(best, plan=with_choice(best.plan, len(found)), result=result, stops=stops, least=made.least)


def _tenth_of_a_pod(made: _Made) -> int:
    """Return a tenth of what a pod costs on average, in micro-USD per hour."""
    return max(1, round(made.plan.cost.before * MICRO) // (10 * max(1, len(made.plan.placements))))


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
    """Return the least cost of any plan by the literal model of the thesis, as a reference for `plan_for`.

    Every pod that may move may go anywhere; pending pods that nothing can hold are left out. For up to a hundred pods
    or so: its size grows with pods times nodes. `at_most` (micro-USD per hour) is the cost of the plan to be compared.

    Raises:
        PriceError: no live node has a price.
    """
    objective = objective_at(settings.windows, now)
    question = Question(
        cluster, offers, now, "reschedule", forecasts, percent=objective.percent, options=settings.mobility
    )
    return solve_literal(compiled(with_unplaceable(question)).unbound, stop, at_most=at_most)


@dataclass
class Watch:
    """Measures a solve; what it measures is no part of any decision."""

    _began: float = 0.0
    _feasible: float = 0.0

    def __post_init__(self) -> None:
        self._began = time.perf_counter()

    def reporting(self, progress: Report | None, stop: StopRule) -> Report:
        """Note when the first plan is there, and pass figures on, with what the stop rule has noted by then.

        An incumbent is passed on only if it is no worse than those before: further solves begin with poor ones.
        """
        best: Progress | None = None

        def report(news: Progress) -> None:
            nonlocal best
            self._feasible = self._feasible or time.perf_counter() - self._began
            if best is not None and (news.unplaced, news.cost) > (best.unplaced, best.cost):
                news = replace(best, phase=news.phase, stops=news.stops)
            else:
                best = replace(news, answer=None)
            if progress is not None:
                progress(replace(news, stops=(*stop.notes, *news.stops)))

        return report

    def solve(self, method: str, stops: tuple[Stop, ...], recorded: Solve | None, seed: int) -> Solve:
        """Return the report on the solve; a replay's has the seconds of the recording."""
        seconds, feasible = round(time.perf_counter() - self._began, 3), round(self._feasible, 3)
        return Solve(
            seconds=seconds if recorded is None else recorded.seconds,
            first_feasible_seconds=feasible if recorded is None else recorded.first_feasible_seconds,
            method=method,
            seed=seed,
            stops=stops,
        )
