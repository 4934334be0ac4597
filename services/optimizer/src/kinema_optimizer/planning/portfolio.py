"""The portfolio of methods: each is tried in its turn where it applies, and the best result is taken.

1. `ExactModel`: a few dozen pods, with every rule between pods. It ends early where it proves nothing soon.
2. `AggregatedModel`: pods by class, without rules between pods, as far as branch and bound ends in time.
3. `ExactRolls`: the exact model with rolling updates, if their moves have an order.
4. `Search`: any size, with a certified bound; where no result before is optimal.
5. `ExactBelow`: the exact model again, for less than the best result so far.
6. `Relocation`: the exact model for an autoscale iteration that may move running pods.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, Protocol

from kinema_core.events import Plan, Stop
from kinema_optimizer.columns.compiled import is_loaded
from kinema_optimizer.exact.aggregated import MAX_COLUMNS, columns_of, solve_aggregated, unplaced
from kinema_optimizer.exact.build import exact_instance, forbid_moves, hold_spreads_in_transit, relocation
from kinema_optimizer.exact.first_fit import starts
from kinema_optimizer.exact.model import ExactInstance
from kinema_optimizer.exact.solve import ExactResult, solve_below, solve_exact
from kinema_optimizer.planning.ordered_search import is_tested, search_in_order
from kinema_optimizer.planning.ordering import key_of, order_once
from kinema_optimizer.planning.plan import Outcome, node_cost, nothing, of_names, of_packing
from kinema_optimizer.planning.preferences import preferred
from kinema_optimizer.planning.redundancy import arranged, redundant
from kinema_optimizer.problem.compile import Compiled, compiled
from kinema_optimizer.problem.instance import Solution, cost, flaws, losses, moves
from kinema_optimizer.problem.question import Question
from kinema_optimizer.problem.solution import Progress, Report, solution_of
from kinema_optimizer.request.headroom import NAMESPACE
from kinema_optimizer.request.objective import MICRO, with_equal_costs
from kinema_optimizer.search import kernels
from kinema_optimizer.search.drain import drain
from kinema_optimizer.search.search import SearchOptions, search, start_as_is
from kinema_optimizer.solvers.stopping import BEGIN, DRAIN, KERNELS, LOAD, ORDER, StopRule

SOON: Final = 2000
"""Callbacks of the solver after which the exact model's least cost is not waited for."""
SEARCHED: Final = 0.3
"""Part of the time for one of search and exact model where the other goes on from what it found."""
SEARCH: Final = "assignment bound, column generation, neighborhood search"
UNSEARCHED: Final = "none: the time was over"
DRAINED: Final = "first fit on free room: the time for a search was over"
WITHOUT_SEARCH: Final = frozenset({UNSEARCHED, DRAINED})
_DENSE: Final = 12_000
"""Nodes and machines times classes up to which the aggregated model is built."""


@dataclass(frozen=True)
class SolverResult:
    """Outcome of a method, and its proof."""

    outcome: Outcome
    lower_bound: int
    """Micro-USD per hour: no plan costs less that leaves out no more pods."""
    optimal: bool
    """Nothing costs less than the least cost found."""
    method: str
    plan: Plan | None = None
    """The outcome with its order, where that is known."""
    held: frozenset[str] = frozenset()
    """Pods whose moves had no order before others were found."""
    obstacles: frozenset[str] = frozenset()
    """What was against these moves."""
    least: int | None = None
    """Micro-USD per hour of the best that was found, with or without an order."""
    move_price: int | None = None
    """Micro-USD per hour that the search took an ordinary move to cost, where the question sets no price."""
    exact: tuple[ExactInstance, ExactResult] | None = None
    """The exact model's instance and result, where the outcome is from it.

    Its pods change places whatever that takes: perhaps no order of the moves exists, and none can be taken out.
    """


class Method(Protocol):
    """A way to solve a problem."""

    def applies(self, to: Portfolio) -> bool:
        """Return whether the method can solve the problem and may improve on the results so far."""

    def solve(self, to: Portfolio) -> Iterable[SolverResult]:
        """Return what the method found; nothing where it found no solution in time."""


class ExactModel:
    """Branch and bound with every rule between pods.

    It counts on old copies having left, and a rolling update has to find room for the new ones before. Where requests
    change, the order of moves shows whether it does. Workloads that only move by one are left to the other methods.
    """

    def applies(self, to: Portfolio) -> bool:
        """See `Method`."""
        return to.instance is not None

    def solve(self, to: Portfolio) -> Iterable[SolverResult]:
        """See `Method`."""
        assert to.instance is not None, "the method applies"
        return to.solve_exact(to.instance, hurried=to.problem.question.max_moves is None)


class AggregatedModel:
    """Branch and bound on counts of pods per class: with room for old copies beside new ones, without rules."""

    def applies(self, to: Portfolio) -> bool:
        """See `Method`."""
        problem, limited = to.problem, to.options.max_moves is not None or to.options.move_price is not None
        if limited or not is_dense(problem) or problem.problem.conflicts.size:
            return False
        if to.exact is not None and to.instance is not None and not problem.resizes:
            rules = to.instance
            if rules.affinities or rules.anti_affinities or rules.spreads:
                return False
        return columns_of(problem.problem, cost(problem.problem, to.dense_starts[0])) <= MAX_COLUMNS

    def solve(self, to: Portfolio) -> Iterable[SolverResult]:
        """See `Method`."""
        problem, dense, first = to.problem, to.problem.problem, to.dense_starts[0]
        lost = unplaced(first)
        to.report(Progress("start", cost(dense, first), 0, moves(dense, first), lambda: first, unplaced=lost))
        reschedules = problem.question.mode == "reschedule"
        found = solve_aggregated(dense, problem.unbound, to.dense_starts, to.stop, least_moves=reschedules)
        best = found.solution
        paid, lost = cost(dense, best), unplaced(best)
        to.report(Progress("end", paid, found.lower_bound, moves(dense, best), lambda: best, found.stops, lost))
        to.stops += found.stops
        outcome = preferred(problem, of_packing(problem, best))
        return [SolverResult(outcome, found.lower_bound, found.proven, found.method)]


class ExactRolls:
    """The exact model where workloads only move by rolling update, for which it counts no second copies.

    So a result without an order is none. The aggregated model has no moves between nodes that stay, and where it
    proves the least cost, a plan with fewer moves may have some; the search weighs no rolling updates at all.
    """

    def applies(self, to: Portfolio) -> bool:
        """See `Method`."""
        return to.rolling is not None and not any(to.is_still(one) for one in to.results)

    def solve(self, to: Portfolio) -> Iterable[SolverResult]:
        """See `Method`."""
        assert to.rolling is not None, "the method applies"
        with to.stop.part(SEARCHED):
            results = to.solve_exact(to.rolling, hurried=True)
        for found in results:
            over = to.stop.noted(ORDER)
            plan, stuck = (None, {}) if over(ORDER) else order_once(to.problem, found.outcome, over)
            if plan is not None and not stuck:
                yield replace(found, plan=plan, exact=None)


class Search:
    """The anytime search, for the time that the models before leave without a proof."""

    def applies(self, to: Portfolio) -> bool:
        """See `Method`."""
        return not any(to.is_optimal(one) for one in to.results)

    def solve(self, to: Portfolio) -> Iterable[SolverResult]:
        """See `Method`."""
        followed = to.exact is not None and to.options.max_moves is None
        with to.stop.part(SEARCHED) if followed else nullcontext():
            return [to.search()]


class ExactBelow:
    """The exact model for less than the best result: dear machines and most copies of cheap ones are not in it."""

    def applies(self, to: Portfolio) -> bool:
        """See `Method`."""
        searched = to.results[-1].method in {SEARCH, *WITHOUT_SEARCH}
        if to.exact is None or to.instance is None or to.options.max_moves is not None or not searched:
            return False
        costs = to.costs_of_all_placed()
        return bool(costs) and to.bound < min(costs) and len(to.instance.homeless) >= len(to.problem.homeless)

    def solve(self, to: Portfolio) -> Iterable[SolverResult]:
        """See `Method`."""
        assert to.instance is not None, "the method applies"
        least, last = min(to.costs_of_all_placed()), to.results[-1]
        found, bound = to.solve_below(to.instance, least, to.bound)
        if found is not None:
            return [replace(found, lower_bound=bound)]
        return [replace(last, lower_bound=bound, optimal=bound >= least)]


class Relocation:
    """The exact model in which an autoscale iteration moves running pods to make room for pending ones."""

    def applies(self, to: Portfolio) -> bool:
        """See `Method`."""
        idle = any(not one.outcome.boots and not one.outcome.lost for one in to.results)
        return to.relocates and not idle

    def solve(self, to: Portfolio) -> Iterable[SolverResult]:
        """See `Method`."""
        instance = relocation(to.problem.question, to.problem.sites)
        return [] if instance is None else to.solve_exact(instance, least_moves=True)


METHODS: Final[tuple[Method, ...]] = (
    ExactModel(),
    AggregatedModel(),
    ExactRolls(),
    Search(),
    ExactBelow(),
    Relocation(),
)


class Portfolio:
    """The methods on one problem, with what they found so far."""

    def __init__(self, problem: Compiled, options: SearchOptions, stop: StopRule, report: Report) -> None:
        self.problem = problem
        self.options = options
        self.stop = stop
        self.report = report
        self.results: list[SolverResult] = []
        self.stops: list[Stop] = []
        """Of all phases, also of those whose result was discarded: a replay ends them there too."""
        self.fallback: SolverResult | None = None
        """The cheapest result whose moves can be taken out one by one, and which places all pods that can be."""

    def solve(self) -> SolverResult:
        """Return the best result that the time allows; one that changes nothing is always found.

        Of equally good ones a result whose moves can be taken out one by one is taken: they may have no order.
        """
        if self.stop.noted(BEGIN)(BEGIN if is_loaded() else LOAD):
            return self._unsearched()
        for method in METHODS:
            if method.applies(self):
                self.results += [self._redundant(one) for one in method.solve(self)]
        self.fallback = self._cheapest_in_any_order()
        best = joint_bound(self.problem, self._best(), self.results)
        if not self.relocates:
            return best
        # What is proven of plans that only add says nothing of those that move; no plan of this mode deletes a node.
        return replace(best, lower_bound=sum(self.problem.sites.prices.values()), optimal=False)

    def _redundant(self, result: SolverResult) -> SolverResult:
        """Return the result without the moves by which workloads lose their redundancy."""
        outcome = redundant(self.problem, arranged(self.problem, result.outcome))
        if outcome is result.outcome:
            return result
        same = node_cost(self.problem, outcome) == node_cost(self.problem, result.outcome)
        return replace(result, outcome=outcome, optimal=result.optimal and same)

    def next_best(self, result: SolverResult, stuck: Collection[str]) -> SolverResult:
        """Return the next best result after one of the exact model; the fallback where that model knows none for less.

        First spreads over nodes are to hold on the way, where such pods are stuck; then no stuck pod goes where it was
        to go. What the first result proves holds for every plan; what is proven with moves taken out does not.
        """
        assert result.exact is not None, "only the exact model lets pods change places"
        instance, found = result.exact
        stricter = hold_spreads_in_transit(instance, stuck)
        fewer = stricter or forbid_moves(instance, stuck, found.solution)
        again = None
        if self.fallback is None:
            again = next(iter(self.solve_exact(fewer, hurried=self.options.max_moves is None)), None)
            if again is None or not (again.optimal or self.options.max_moves is not None):
                with self.stop.part(SEARCHED):
                    other = self.search()
                self.fallback = other if again is None or self.places_all(other) else None
        if self.fallback is not None:
            again, _ = self.solve_below(fewer, node_cost(self.problem, self.fallback.outcome), result.lower_bound)
        chosen = again or self.fallback
        assert chosen is not None, "the search always finds a result"
        return replace(chosen, lower_bound=result.lower_bound, optimal=False)

    def search(self) -> SolverResult:
        """Return the result of the search; where its moves have no order, fewer of them have."""
        problem = self.problem
        if not self.stop.waits(KERNELS, kernels.ready):
            return self._unsearched()
        if is_tested(problem):
            made = search_in_order(problem, self.options, self.stop, self.report)
            self.stops += made.found.stops
            paid = node_cost(problem, made.outcome) if made.plan is None else round(made.plan.cost.after * MICRO)
            proven, least = made.found.bound.value >= paid, None if made.plan is None else made.least
            result = SolverResult(made.outcome, made.found.bound.value, proven, SEARCH)
            result = replace(result, plan=made.plan, held=made.held, obstacles=made.obstacles)
            return replace(result, least=least, move_price=made.found.move_price)
        found = search(problem.packing, problem.relaxed, self.options, self.stop, self.report)
        self.stops += found.stops
        # Where machines are few, some pods to be replaced may have no place: the dense form's first plan has them.
        sound = not (is_dense(problem) and losses(problem.packing, found.packing.unplaced)[0])
        outcome = of_packing(problem, found.packing if sound else self.dense_starts[0])
        proven = sound and found.bound.value >= found.least
        return SolverResult(preferred(problem, outcome), found.bound.value, proven, SEARCH, move_price=found.move_price)

    def solve_exact(
        self, instance: ExactInstance, *, hurried: bool = False, least_moves: bool | None = None
    ) -> list[SolverResult]:
        """Return the exact model's result, if it finds one in time."""
        reschedules = self.problem.question.mode == "reschedule"
        discarded: list[Stop] = []
        found = solve_exact(
            instance,
            self.stop,
            least_moves=reschedules if least_moves is None else least_moves,
            most_moves=self.problem.question.max_moves,
            hurried=hurried,
            discarded=discarded,
            report=self.report,
        )
        self.stops += discarded if found is None else found.stops
        return [] if found is None else [self._named(instance, found)]

    def solve_below(self, instance: ExactInstance, least: int, bound: int) -> tuple[SolverResult | None, int]:
        """Return what the exact model finds for less than the cost of a known plan, and its bound."""
        reschedules = self.problem.question.mode == "reschedule"
        below = solve_below(instance, self.stop, cost=least, bound=bound, least_moves=reschedules, report=self.report)
        self.stops += below.stops
        return None if below.result is None else self._named(instance, below.result), below.lower_bound

    @cached_property
    def instance(self) -> ExactInstance | None:
        """Return the exact instance; None where it would be too large or a workload only moves by rolling."""
        return None if self.problem.updates else exact_instance(self.problem.question, self.problem.sites)

    @cached_property
    def rolling(self) -> ExactInstance | None:
        """Return the exact instance where a workload only moves by rolling; None where none does, or if too large."""
        problem, question = self.problem, self.problem.question
        concerned = problem.updates and not problem.resizes and question.mode == "reschedule"
        return exact_instance(question, problem.sites) if concerned else None

    @cached_property
    def dense_starts(self) -> tuple[Solution, ...]:
        """First solutions of the aggregated model, best first."""
        return starts(self.problem.problem)

    @property
    def exact(self) -> SolverResult | None:
        """Return the result of the exact model, where it found one."""
        return self.results[0] if self.results and self.results[0].exact is not None else None

    @property
    def least(self) -> int | None:
        """Micro-USD per hour of the cheapest plan, where the exact model has proven it."""
        exact = self.exact
        return exact.exact[1].least if exact and exact.exact and exact.optimal and not self.relocates else None

    @property
    def bound(self) -> int:
        """Return the best lower bound so far."""
        return max(one.lower_bound for one in self.results)

    @property
    def relocates(self) -> bool:
        """Return whether running pods may make room for pending ones."""
        question = self.problem.question
        return question.mode == "autoscale" and question.options.autoscale_moves

    def places_all(self, result: SolverResult) -> bool:
        """Return whether a result leaves out no pod but those that no node or offer can hold."""
        return len(result.outcome.lost) <= len(self.problem.homeless)

    def costs_of_all_placed(self) -> list[int]:
        """Return the node costs of the results that place all pods."""
        return [node_cost(self.problem, one.outcome) for one in self.results if self.places_all(one)]

    def is_optimal(self, result: SolverResult) -> bool:
        """Return whether no better result exists: it is proven for the objective and within the limit on moves."""
        if result.exact is not None:
            proven = result.exact[1].settled
        else:
            proven = result.optimal and self.options.move_price is None
        return proven and not key_of(self.problem, result.outcome).over_limit

    def is_still(self, result: SolverResult) -> bool:
        """Return whether a result is optimal and moves nothing."""
        return self.is_optimal(result) and not result.outcome.targets and not result.outcome.updates

    def _best(self) -> SolverResult:
        """Return the best result; where moves have no price, costs within 1/SLACK of the least count as equal."""
        found = [key_of(self.problem, one.outcome) for one in self.results]
        keys = with_equal_costs(found, priced=self.options.move_price is not None)
        return self.results[min(range(len(keys)), key=lambda i: (keys[i], self.results[i].exact is not None))]

    def _cheapest_in_any_order(self) -> SolverResult | None:
        """Return the cheapest result with room for old copies beside new ones.

        Only those of the search have it, and where requests change those of the aggregated model.
        """
        resizes = bool(self.problem.resizes)
        known = [one for one in self.results if one.method in {SEARCH, DRAINED} or (resizes and one.exact is None)]
        placing = [one for one in known if self.places_all(one)]
        return min(placing, key=lambda one: node_cost(self.problem, one.outcome), default=None)

    def _unsearched(self) -> SolverResult:
        """Return a result for a solve without the time or the kernels for a search: nodes are drained, else none."""
        problem, options = self.problem, self.options
        rest = SolverResult(nothing(problem), lower_bound=0, optimal=False, method=UNSEARCHED)
        over = self.stop.noted(DRAIN)
        if over(DRAIN):
            return rest
        state = drain(problem.packing, over, move_price=options.move_price, max_moves=options.max_moves)
        if state is None or flaws(problem.packing, found := solution_of(problem.packing, state)):
            return rest
        drained = replace(rest, outcome=of_packing(problem, found), method=DRAINED)
        if key_of(problem, drained.outcome) >= key_of(problem, rest.outcome):
            return rest
        paid, moving = cost(problem.packing, found), moves(problem.packing, found)
        self.report(Progress(DRAIN, paid, 0, moving, lambda: found))
        return drained

    def _named(self, instance: ExactInstance, found: ExactResult) -> SolverResult:
        """Return the exact model's result."""
        outcome = of_names(self.problem, found.solution)
        return SolverResult(outcome, found.lower_bound, found.proven, found.method, exact=(instance, found))


def joint_bound(problem: Compiled, best: SolverResult, results: Sequence[SolverResult]) -> SolverResult:
    """Return the best result with what the others prove of plans that leave out no more pods than it does.

    A result's bound holds for plans that leave out no more pods of any class than that result: one of a result that
    places a pod says nothing of plans without the pod, which may cost less.
    """
    classes = {mover.pod.key: c for c, members in enumerate(problem.draft.members) for mover in members}
    lost = [Counter(classes[mover.pod.key] for mover in one.outcome.lost) for one in (best, *results)]
    valid = [one for one, pods in zip(results, lost[1:], strict=True) if lost[0] <= pods]
    bound = max(one.lower_bound for one in valid)
    return replace(best, lower_bound=bound, optimal=any(one.optimal for one in valid))


def least_cost(question: Question, stop: StopRule) -> int | None:
    """Return micro-USD per hour of the cheapest plan by the exact model; None where it is not proven in time."""
    problem = compiled(replace(question, point_price=0, move_price=None))  # of nodes alone, whatever else is priced
    instance = None if problem.updates else exact_instance(problem.question, problem.sites)
    found = None if instance is None else solve_exact(instance, stop, least_moves=False)
    return found.least if found is not None and found.proven else None


def count_unplaced(problem: Compiled, stop: StopRule) -> int | None:
    """Return how many pending pods a first plan leaves without a place; None when even replaced pods find none.

    Placeholders for headroom do not count. Without compiled kernels no pod of a large cluster does.
    """
    if is_dense(problem):
        given = starts(problem.problem)
        if not given:
            return None
        classes, without = problem.classes, given[0].unplaced.tolist()
    elif not stop.waits(KERNELS, kernels.ready):
        return 0
    else:
        state = start_as_is(problem.packing)
        if losses(problem.packing, state.unplaced)[0]:
            return None
        classes, without = problem.grouped.classes, state.unplaced.tolist()
    waiting = [mover for one, n in zip(classes, without, strict=True) if n for mover in one.pending[-n:]]
    waiting += [mover for _, mover in problem.homeless]
    return sum(mover.pod.namespace != NAMESPACE for mover in waiting)


def is_dense(problem: Compiled) -> bool:
    """Return whether a problem is small enough for the aggregated model."""
    sites = len(problem.question.cluster.nodes) + len(problem.offers)
    return sites * len(problem.classes) <= _DENSE
