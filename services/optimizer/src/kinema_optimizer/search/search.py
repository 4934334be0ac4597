"""The search: an anytime solver for placement problems of any size.

1. Bound: the assignment LP, its duals turned into a certificate that is checked in integers (`bounds.certificate`).
2. First plans: the cluster as it is with pending pods placed, and one built from nothing (`search.first_plan`).
3. Improvement: rounds of disjoint neighborhoods (`search.neighborhood`), improved side by side and applied in a fixed
   order: the answer depends on problem, seed and number of rounds, not on the speed of any worker.

Costs are prices of nodes plus the price of moves. Every packing that leaves here is verified (`instance.flaws`); one
that breaks a rule is replaced by the cluster as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, Protocol, TypeAlias

import numpy as np

from kinema_core.events import Stop
from kinema_core.model.disruption_cost import ORDINARY
from kinema_optimizer.bounds.assignment_lp import AssignmentSolution, solve_assignment_lp
from kinema_optimizer.bounds.background import WHOLE_CLUSTER_CLASSES, BackgroundBound
from kinema_optimizer.bounds.certificate import Bound
from kinema_optimizer.problem.arrays import Ints
from kinema_optimizer.problem.instance import UNLIMITED, Instance, Solution, enemies_of, flaws, losses
from kinema_optimizer.problem.node_types import NodeTypes, node_types
from kinema_optimizer.problem.solution import Incumbent, Progress, Report, cost_of, moved, solution_of
from kinema_optimizer.search.first_plan import (
    FirstPlans,
    Prices,
    choose_new_nodes,
    construct_as_is,
    construct_fresh,
    first_context,
    on_sale,
    swap_in_existing,
)
from kinema_optimizer.search.neighborhood import (
    MOST_CLASSES,
    ImprovementTask,
    Neighborhood,
    Replacement,
    SearchContext,
    TaskPool,
    ThreadPool,
    apply,
    saving,
    select_neighborhoods,
)
from kinema_optimizer.search.retention_lp import RetentionLp
from kinema_optimizer.solvers.stopping import StopRule

MOST_ROUNDS: Final = 100_000
QUICK: Final = "quick"
"""Phase of a few tries for a plan that need not be the best known."""
_COLUMNS: Final = "columns of a neighborhood"
_TRIES: Final = "tries"
_NEIGHBORHOODS: Final = 4
"""Neighborhoods of a round."""
_OTHER_EVERY: Final = 6
"""Rounds after which the kind of step that gained less is taken again."""
_IDLE_ROUNDS: Final = 40
"""Rounds without a gain after which a phase ends."""
_COLUMN_NODES: Final = (8, 70)
"""Least and most nodes of a neighborhood for column generation."""
_TRY_NODES: Final = (40, 100)
"""Least and most nodes of a neighborhood for quick tries."""
_TRY_PARTS: Final = 25
"""Neighborhoods for quick tries that would hold all nodes, within these limits."""
_PRICE_FACTOR: Final = 1.5
"""Factor by which the price of a move rises or falls after a round."""
_STALE_ROUNDS: Final = 6
"""Rounds without a cheaper state after which a low price of moves is raised again."""
_LOW_PRICE: Final = 0.1
"""Price of a move that counts as low, in mean costs of a pod."""
_RAISED_PRICE: Final = 1.0
"""Price of a move that a low one is raised to, likewise."""
_MOST_PRICE: Final = 4.0
_CATCH_UP: Final = 4
"""Rounds in which nodes retained have to come to the cost of a plan built from nothing, for each round that it had."""

Allowed: TypeAlias = Callable[[Incumbent], bool]
"""Test that a state passes to be taken."""


@dataclass
class Checks:
    """A test of the best state after the first, second, fourth, eighth round and so on; one that fails ends the search.

    Rounds are counted and not timed, so that a search with more time passes the same states.
    """

    test: Allowed | None = None
    failed: bool = False
    _rounds: int = 0
    _due: int = 1

    def after_round(self, best: Incumbent) -> bool:
        """Count a round; return whether the search is to end."""
        self._rounds += 1
        if self.test is not None and self._rounds >= self._due:
            self._due *= 2
            self.failed = not self.test(best)
        return self.failed


@dataclass
class Affordable:
    """Test that a state costs no more than the states before it, or no more than so much in any case."""

    problem: Instance
    paid: int
    """Micro-USD per hour of the last state that passed."""
    enough: int
    """Micro-USD per hour that a state may cost whatever the others did: what is left to it buys fewer moves."""

    def __call__(self, state: Incumbent) -> bool:
        """Return whether a state passes."""
        cost = cost_of(self.problem, state)
        if cost > max(self.paid, self.enough):
            return False
        self.paid = cost
        return True


@dataclass
class Record:
    """Least cost that a search has found, and where its phases ended."""

    problem: Instance
    stop: StopRule
    report: Report
    bound: BackgroundBound
    least: int = 0
    """Micro-USD per hour."""
    stops: list[Stop] = field(default_factory=list)

    def ends(self, phase: str, turn: int, *, coming: str = "", last: bool = False) -> bool:
        """Return whether the stop rule ends a phase at this callback, and record that it does.

        The `last` callback of a phase is recorded in any case: a replay finds a stop for each phase that it begins.
        """
        ended = self.stop.ends(turn, coming)
        if ended is not None or last:
            self.stops.append(Stop(reason=ended or "optimal", phase=phase, iteration=turn))
        return ended is not None

    def take(self, phase: str, state: Incumbent, *, always: bool = False) -> None:
        """Note the cost of a state, and report the state where it is the cheapest so far, or `always`."""
        cost = cost_of(self.problem, state)
        cheaper = cost < self.least
        self.least = min(self.least, cost)
        if cheaper or always:
            made, lost = partial(solution_of, self.problem, state), int(state.unplaced.sum())
            self.report(Progress(phase, cost, self.bound.known, self.moves(state), made, tuple(self.stops), lost))

    def moves(self, state: Incumbent) -> int:
        """Return how many pods a state moves."""
        return int(moved(self.problem, state) @ self.problem.pods)

    @property
    def mean(self) -> float:
        """Cost per pod of the cheapest plan known, micro-USD per hour."""
        return self.least / max(1, self.problem.everybody)

    def objective(self, context: SearchContext, state: Incumbent) -> float:
        """Return the cost of a state with moves at their price, micro-USD per hour."""
        return cost_of(self.problem, state) + float(moved(self.problem, state) @ context.move_price)


@dataclass
class _StepKind:
    """Choice of column generation or tries for the next round.

    The kind that gained more when it was last taken, and now and then the other one. Where the price of moves changes
    in each round, tries are preferred: there are more rounds of them.
    """

    deep: bool
    steered: bool
    columns: bool = False
    _gains: dict[bool, float] = field(default_factory=lambda: {True: np.inf, False: 0.0})

    def choose(self, turn: int, *, taken: bool, gain: float) -> str:
        """Return the kind of the round after `turn`, in which a kind was `taken` and gained so much."""
        self._gains[self.columns] = 0.0
        self._gains[taken] = gain
        columns, tries = self._gains[True], self._gains[False]
        better = columns > tries or (not self.steered and columns == tries)
        self.columns = self.deep and better != ((turn + 1) % _OTHER_EVERY == 0)
        return _COLUMNS if self.columns else _TRIES


@dataclass(frozen=True)
class Rounds:
    """Rounds of one search."""

    record: Record
    pool: TaskPool
    seed: int
    checks: Checks = field(default_factory=Checks)

    def run(  # noqa: PLR0913 - all but three have defaults and are named
        self,
        context: SearchContext,
        state: Incumbent,
        phase: str,
        allowed: Allowed | None = None,
        *,
        deep: bool = True,
        least: SearchContext | None = None,
        most: int = MOST_ROUNDS,
        hopeless: Callable[[int, Incumbent], bool] = lambda _, __: False,
    ) -> tuple[SearchContext, Incumbent]:
        """Improve a state until the stop rule ends the phase, or nothing was found for long.

        Tries come first: from their time the clock estimates that of columns.

        Returns the last context and the best state: the cheapest with moves at their price. Where `least` is given, the
        price of moves falls to that of this context, at which states are compared, and rises where one is not allowed.
        Not `deep`: tries alone. The phase ends as well where it is `hopeless` after a round, by its number and state.
        """
        record = self.record
        if self.checks.failed:
            return context, state
        record.stop.begin(phase)
        record.take(phase, state)
        if record.ends(phase, 0, coming=_TRIES):
            return context, state
        key = partial(record.objective, least or context)
        kind, best, idle, stale = _StepKind(deep, least is not None), state, 0, 0
        for turn in range(1, most + 1):
            neighborhoods, columns = self._select(context, state, turn, deep=kind.columns)
            tasks = [ImprovementTask(one, columns, (self.seed, turn, i)) for i, one in enumerate(neighborhoods)]
            before, found = state, self.pool.improve(context, tasks)
            state, gain, refused = _apply_all(context, state, zip(neighborhoods, found, strict=True), allowed)
            idle = idle + 1 if state is before else 0
            if state is not before:
                record.take(phase, state, always=phase != QUICK)
            known, best = best, min(best, state, key=key)
            if least is not None:
                stale = stale + 1 if best is known else 0
                raised = allowed is not None and stale >= _STALE_ROUNDS
                context = self._steer(context, least, dearer=refused, stale=raised)
            done = idle >= _IDLE_ROUNDS or not neighborhoods or turn == most or hopeless(turn, state)
            done = self._checked(phase, best) or done
            coming = kind.choose(turn, taken=columns, gain=gain)
            if record.ends(phase, turn, coming=coming, last=done) or done:
                break
        return context, best

    def _checked(self, phase: str, best: Incumbent) -> bool:
        return phase in _CHECKED and self.checks.after_round(best)

    def _select(
        self, context: SearchContext, state: Incumbent, turn: int, *, deep: bool
    ) -> tuple[list[Neighborhood], bool]:
        """Return the neighborhoods of a round, and whether for columns: not where few nodes have many classes."""
        select = partial(select_neighborhoods, context, state, seed=(self.seed, turn), neighborhoods=_NEIGHBORHOODS)
        nodes = int(state.keep.sum()) + len(state.boots)
        if deep:
            least, most = _COLUMN_NODES
            found = select(nodes=most, classes=MOST_CLASSES)
            large = [one for one in found if len(one.kept) + len(one.boots) >= min(least, nodes)]
            if large:
                return large, deep
        some = min(int(np.clip(nodes // _TRY_PARTS, *_TRY_NODES)), max(4, nodes // _NEIGHBORHOODS))
        return select(nodes=some, classes=UNLIMITED), False

    def _steer(self, context: SearchContext, least: SearchContext, *, dearer: bool, stale: bool) -> SearchContext:
        """Make moves dearer after replacements that took too many, else cheaper; dear again where that led nowhere.

        A state with fewer moves has room for other replacements within the limit, even where it costs more for a while.
        """
        mean, now = self.record.mean, float(context.move_price.mean())
        factor = _PRICE_FACTOR if dearer else 1 / _PRICE_FACTOR
        if stale and now * factor < _LOW_PRICE * mean:
            factor = _RAISED_PRICE * mean / max(now, 1e-9)
        price = np.minimum(context.move_price * factor, _MOST_PRICE * mean)
        return replace(context, move_price=np.maximum(price, least.move_price))


def _apply_all(
    context: SearchContext,
    state: Incumbent,
    found: Iterable[tuple[Neighborhood, Replacement | None]],
    allowed: Allowed | None,
) -> tuple[Incumbent, float, bool]:
    """Return the state with all replacements that are allowed, what they save, and whether one was not allowed."""
    gain, refused = 0.0, False
    for neighborhood, replacement in found:
        if replacement is None:
            continue
        after = apply(state, neighborhood, replacement)
        if allowed is None or allowed(after):
            state, gain = after, gain + saving(context, neighborhood, replacement)
        else:
            refused = True
    return state, gain, refused


_FRESH_TRIES: Final = 24
"""Rounds of tries for a plan built from nothing, before columns are generated: a good plan soon, and first columns."""
_FRESH_COLUMNS: Final = 400
"""Most rounds of columns for it."""
_FRESH_REPAIRS: Final = 4
"""Rounds of tries for a choice of columns that is dearer than the plan before."""
_TAIL_ROUNDS: Final = 8
"""Rounds of tries after which the clock is asked again whether columns fit into the time left."""
_STARTS: Final = "starts"
"""Phase of the first plans where moves have a price or a limit."""
_SELECTION: Final = "selection"
"""Phase of the retention LP."""
_LAST: Final = "last"
"""Phase that takes the time left; after it come tries alone, while nothing else fits."""
_TAIL: Final = "tail"
_CHECKED: Final = frozenset({_LAST, _TAIL})
"""Phases whose states are tested."""
_MENDED: Final = 0.85
"""Part of the time after which the best state has to pass its test, or is mended in what is left."""
_SEEDS: Final = 2**31
"""Added to the seed for each time that a search goes on elsewhere."""
_KNEE_PRICE: Final = 0.1
"""Price of a move, likewise, at the knee of the frontier: what the last moves save is less."""
_SMALL_PRICE: Final = 0.05
"""Price of a move, in mean costs of a pod, at which nearly all of the saving is kept."""
_DEAR: Final = 4.0
"""Times their price that moves cost in the first round: a pod hardly goes back, as others soon have its place."""
_FIRST_PRICE: Final = 0.2
"""Least price of a move, likewise, at which a search within a limit begins: what fits by sums does not by pods."""


@dataclass(frozen=True)
class SearchOptions:
    """Objective of a search, its limits and its means."""

    move_price: int | None = None
    """Micro-USD per hour for an ordinary move; None: least cost, then fewest moves within `slack` of it."""
    max_moves: int | None = None
    knee: bool = False
    """Where moves have no price and no limit, they get the knee's; see `knee_price`."""
    slack: float = 0.001
    seed: int = 0
    workers: int = 2
    task_pool: TaskPool | None = None
    """Executor of the tasks of a round; None: as many threads as there are workers."""


@dataclass(frozen=True, eq=False)
class SearchResult:
    """The best packing, what no packing can cost less than, and how it was found."""

    packing: Solution
    cost: int
    least: int
    """Least cost found; the packing may cost a little more where that saves moves."""
    bound: Bound
    moves: int
    stops: tuple[Stop, ...]
    move_price: int | None
    """Price of an ordinary move that the search was for, micro-USD per hour."""


class Course(Protocol):
    """What a search is held to from outside: its states are tested, and it goes on elsewhere where a test fails."""

    def test(self, state: Incumbent) -> bool:
        """Return whether the state will do."""

    def mend(self) -> tuple[Instance, Incumbent] | None:
        """Return the problem and the state to go on from after a test that failed; None where there is none."""


def search(
    problem: Instance,
    relaxed: Instance,
    options: SearchOptions,
    stop: StopRule,
    report: Report = lambda _: None,
    course: Course | None = None,
) -> SearchResult:
    """Return the best packing found until `stop` ends the search.

    Args:
        problem: what to solve.
        relaxed: the same with only those rules between pods that hold in every plan: what the bound is of.
        options: objective and limits.
        stop: asked after every round.
        report: called with every better plan.
        course: tests the best state after some rounds and in the end; the packing is one of its last problem.
    """
    with ThreadPoolExecutor(max_workers=options.workers) as pool:
        bound, stops = BackgroundBound(problem, relaxed, stop, pool), list[Stop]()

        def phases(of: Instance, leg: int) -> _Search:
            own = replace(options, seed=options.seed + leg * _SEEDS)
            return _Search(
                _Means(of, own, stop, report, pool, Checks(None if course is None else course.test), bound, stops)
            )

        with nullcontext() if course is None else stop.part(_MENDED):
            made = phases(problem, 0)
            best, legs = made.run(), 0
            while made.checks.failed and course is not None and (other := course.mend()) is not None:
                legs += 1
                made = phases(other[0], legs)
                best = made.go_on(other[1])
        if course is not None and not course.test(best) and (other := course.mend()) is not None:
            made = phases(other[0], legs + 1)
            made.checks.failed = False
            best = made.go_on(other[1])
            course.test(best)
        return made.result(best)


def start_as_is(problem: Instance) -> Incumbent:
    """Return every node kept, and a place for all pods that need one as far as there is room or a machine on sale."""
    kinds = node_types(problem)
    return construct_as_is(problem, kinds, enemies_of(problem), _prices(problem, kinds, _assignment(problem, kinds)))


def knee_price(problem: Instance, prices: Prices) -> int:
    """Return a price of a move, micro-USD per hour: a tenth of what a pod costs on average by the relaxation.

    Of the moves that lead to the least cost, the last third saves next to nothing; none of those pays this.
    """
    everybody = int(prices.demand @ problem.pods)
    return round(_KNEE_PRICE * float(prices.pod_price @ prices.demand) / max(1, everybody))


def too_slow(begun: int, now: int, goal: int, *, turn: int, rounds: int) -> bool:
    """Return whether a cost that has come down from `begun` in `turn` rounds will be above the goal after so many.

    The first rounds gain most, so what goes on at their pace is the best that can be hoped for. One round is no pace.
    """
    return turn > 1 and begun - (begun - now) * max(turn, rounds) // turn > goal


def _too_mixed(state: Incumbent) -> bool:
    """Return whether new nodes hold so many classes of pods each that a choice among columns for all is not worth it.

    Hardly two nodes are alike then, and next to no column is used for a whole node: what it costs to make them whole
    is more than tries win back. What is no larger than a neighborhood for columns is not too mixed.
    """
    least, most = _COLUMN_NODES
    classes = [one.classes for one in state.boots]
    many = len(classes) > most and len(np.unique(np.concatenate(classes))) > 2 * MOST_CLASSES
    return many and sum(map(len, classes)) * least > MOST_CLASSES * len(classes)


def _assignment(problem: Instance, kinds: NodeTypes) -> AssignmentSolution:
    return solve_assignment_lp(problem.requests, _demand(problem, kinds), kinds)


def _demand(problem: Instance, kinds: NodeTypes) -> Ints:
    return np.where((kinds.fits > 0).any(axis=0), problem.total, 0)


def _prices(problem: Instance, kinds: NodeTypes, found: AssignmentSolution) -> Prices:
    """Return the prices of the assignment LP; with its solution where that knows machines on sale alone."""
    alone = len(kinds.price) == len(problem.machines)
    return Prices(found.guiding_price, _demand(problem, kinds), found if alone else None)


@dataclass(frozen=True, eq=False)
class _Means:
    """A problem, and what its search shares with those before it."""

    problem: Instance
    options: SearchOptions
    stop: StopRule
    report: Report
    pool: ThreadPoolExecutor
    checks: Checks
    bound: BackgroundBound
    stops: list[Stop]


class _Search:
    """Phases of one search."""

    def __init__(self, means: _Means) -> None:
        problem, options, stop, pool = means.problem, means.options, means.stop, means.pool
        stop.begin("start")
        self.problem, self.options, self.stop, self.pool = problem, options, stop, pool
        self.bound, self.checks = means.bound, means.checks
        self.record = Record(problem, stop, means.report, self.bound, stops=means.stops)
        self.rounds = Rounds(self.record, options.task_pool or ThreadPool(pool), options.seed, self.checks).run
        self.kinds = node_types(problem)
        self.assignment = _assignment(problem, self.kinds)
        self.context = first_context(problem, self.kinds, self.assignment)
        self.prices = _prices(problem, self.kinds, self.assignment)
        self.now = construct_as_is(problem, self.kinds, self.context.enemies, self.prices)
        self.cap = self._move_cap()
        self.move_price = options.move_price
        if options.knee and options.move_price is None and self.cap is None:
            self.move_price = knee_price(problem, self.prices)

    def run(self) -> Incumbent:
        """Construct first plans, then run rounds of improvement as the options ask for."""
        problem, now, record = self.problem, self.now, self.record
        if now.unplaced.any():
            self.bound.restart(now.unplaced)
        record.least = cost_of(problem, now)
        record.take("start", now, always=True)
        if record.ends("start", 0, last=True):
            best = self._without_time()
        elif not problem.stays.totals(len(problem.pending), ~problem.node_fixed | problem.node_releases).any():
            best = self._use_time_left(*self._cheapest(_LAST))
        else:
            best = self._improve_running()
        return best

    def go_on(self, start: Incumbent) -> Incumbent:
        """Improve a state of the problem; the cluster as it is where the state breaks a rule."""
        record, problem = self.record, self.problem
        broken = set(flaws(problem, solution_of(problem, start))) - set(flaws(problem, solution_of(problem, self.now)))
        best = self.now if broken or not self._within_cap(start) else start
        record.least = cost_of(problem, best)
        record.take("start", best, always=True)
        if not record.ends("start", 0, last=True):
            priced = self._price_moves(float(self.move_price or _SMALL_PRICE * record.mean))
            least = None if self.cap is None else self._price_moves(float(self.move_price or 0))
            best = self._use_time_left(
                *self.rounds(priced, best, _LAST, self._within_cap, least=least), self._within_cap, least=least
            )
        return best

    def result(self, best: Incumbent) -> SearchResult:
        """Wait for the bound, and return a state with what is known about it."""
        problem, now, record = self.problem, self.now, self.record
        bound, ended = self.bound.result()
        packing, start = solution_of(problem, best), solution_of(problem, now)
        if not set(flaws(problem, packing)) <= set(flaws(problem, start)):
            best, packing, record.least = now, start, cost_of(problem, now)
        return SearchResult(
            packing=packing,
            cost=cost_of(problem, best),
            least=min(record.least, cost_of(problem, best)),
            bound=bound,
            moves=record.moves(best),
            stops=(*record.stops, *ended),
            move_price=self.move_price,
        )

    def _without_time(self) -> Incumbent:
        """Return a plan built from nothing where it is better than the cluster as it is; that takes little time."""
        problem, now = self.problem, self.now
        made = swap_in_existing(problem, construct_fresh(problem, self.kinds, self.context.enemies, self.prices))
        if losses(problem, made.unplaced) > losses(problem, now.unplaced) or not self._within_cap(made):
            return now
        priced = self._price_moves(float(self.move_price or 0))
        best = min((now, made), key=partial(self.record.objective, priced))
        self.record.least = min(self.record.least, cost_of(problem, best))
        return best

    def _improve_running(self) -> Incumbent:
        """Return the best plan for a running cluster, whose moves count."""
        retention = RetentionLp(self.problem, on_sale(self.kinds, len(self.problem.machines)), self.assignment)
        first_plans = FirstPlans(self.problem, self.kinds, self.context, self.prices, self.now, retention)
        if self.move_price is None and self.cap is None:
            return self._cheapest_then_fewest(first_plans)
        problem, price, record = self.problem, float(self.move_price or 0), self.record
        self.bound.sharpen(lambda: first_plans.fresh.boots)
        priced = self._price_moves(price)
        self.stop.begin(_STARTS)
        first, saved = first_plans.at_price(price, record.mean, partial(record.ends, _STARTS), most=self.cap)
        if self.cap is None:
            dear = self._price_moves(_DEAR * price)
            return self._use_time_left(*self.rounds(dear, first, _LAST, least=priced), least=priced)
        if (knee := max(price, knee_price(problem, self.prices))) >= saved:
            first = min((first, self._at_knee(first_plans, knee)), key=partial(record.objective, priced))
        dear = self._price_moves(max(price + saved, _FIRST_PRICE * record.mean))
        last = self.rounds(dear, first, _LAST, self._within_cap, least=priced)
        return self._use_time_left(*last, self._within_cap, least=priced)

    def _at_knee(self, first_plans: FirstPlans, price: float) -> Incumbent:
        """Return a plan for moves at the knee's price; the cluster as it is where that needs too many, or time.

        A plan that is made up to the limit has moves that pay little, and a search hardly takes a move back.
        """
        self.stop.begin(_STARTS)
        if self.record.ends(_STARTS, 0):
            return self.now
        first, _ = first_plans.at_price(price, self.record.mean, partial(self.record.ends, _STARTS))
        if not self._within_cap(first):
            return self.now
        return self.rounds(self._price_moves(price), first, "near", self._within_cap)[1]

    def _move_cap(self) -> int | None:
        """Return the limit on moves, no fewer than are needed in any case; None where all pods may move."""
        most = self.options.max_moves
        return None if most is None or most >= self.problem.everybody else max(most, self.record.moves(self.now))

    def _within_cap(self, state: Incumbent) -> bool:
        return self.cap is None or self.record.moves(state) <= self.cap

    def _cheapest(self, phase: str) -> tuple[SearchContext, Incumbent]:
        """Return the context and the plan of least cost, however many pods it moves."""
        best = self._built()
        self.record.take("columns", best)
        return self.rounds(self.context, best, phase)

    def _built(self) -> Incumbent:
        """Return the cheaper of the cluster as it is and of a plan built from nothing, by columns where that pays."""
        problem, context, now = self.problem, self.context, self.now
        cost = partial(cost_of, problem)
        fresh = construct_fresh(problem, self.kinds, context.enemies, self.prices) if problem.nodes else now
        best = now
        if losses(problem, fresh.unplaced) <= losses(problem, now.unplaced):
            if len(problem.pending) <= WHOLE_CLUSTER_CLASSES and fresh.boots:
                _, fresh = self.rounds(context, fresh, QUICK, deep=False, most=_FRESH_TRIES)
                if _too_mixed(fresh):
                    self.bound.sharpen(lambda: fresh.boots)
                    return min((now, fresh), key=cost)
                chosen, ended = choose_new_nodes(
                    context, fresh, self.kinds, self.stop, self.pool, self.bound.sharpen, most=_FRESH_COLUMNS
                )
                self.record.stops += ended
                if cost(chosen) >= cost(fresh):
                    # Tries soon win back what the last pods cost at the end of a dive, and more than that.
                    _, chosen = self.rounds(context, chosen, QUICK, deep=False, most=_FRESH_REPAIRS)
                fresh = min((chosen, fresh), key=cost)
            best = min((now, fresh), key=cost)
        return best

    def _cheapest_then_fewest(self, first_plans: FirstPlans) -> Incumbent:
        """Return the plan with the fewest moves found among those within the slack of the least cost.

        Two ways lead there: nodes retained with moves at a small price, and a plan built from nothing. On the largest
        clusters the first takes seconds: it goes as far as time allows, and ends where it comes too slowly to the cost
        of the other. What the slack buys is fewer moves, so none is spent while the plan is above the bound by more.
        """
        problem, record = self.problem, self.record
        cheapest = swap_in_existing(problem, self._cheapest("search")[1])
        self.stop.begin(_SELECTION)
        if record.ends(_SELECTION, 0):
            return cheapest
        small = self._price_moves(_SMALL_PRICE * record.mean)
        chosen = first_plans.retention.solve(small.move_price)
        if record.ends(_SELECTION, 1, last=True):
            return cheapest
        retained, goal = first_plans.plan(chosen), self._with_slack(cost_of(problem, cheapest))
        begun, rounds = cost_of(problem, retained), _CATCH_UP * max(1, self._rounds_of("search"))

        def hopeless(turn: int, state: Incumbent) -> bool:
            return too_slow(begun, cost_of(problem, state), goal, turn=turn, rounds=rounds)

        _, near = self.rounds(small, retained, "near", hopeless=hopeless)
        record.least = min(cost_of(problem, one) for one in (cheapest, near))
        most = self._with_slack(record.least)
        best = min((one for one in (near, cheapest) if cost_of(problem, one) <= most), key=record.moves)
        proven = self._with_slack(self.bound.result()[0].value)
        affordable = Affordable(problem, cost_of(problem, best), min(most, proven))
        context = small if affordable.paid > affordable.enough else self._price_moves(record.mean)
        return self._use_time_left(*self.rounds(context, best, _LAST, affordable), affordable)

    def _with_slack(self, cost: int) -> int:
        return cost + int(cost * self.options.slack)

    def _rounds_of(self, phase: str) -> int:
        """Return how many rounds a phase has had."""
        return sum(stop.iteration for stop in self.record.stops if stop.phase == phase)

    def _use_time_left(
        self,
        context: SearchContext,
        state: Incumbent,
        allowed: Allowed | None = None,
        *,
        least: SearchContext | None = None,
    ) -> Incumbent:
        """Run tries where no longer step seems to fit, and ask again after some of them: one may have been slow."""
        for _ in range(0 if self.checks.failed else MOST_ROUNDS):
            before = state
            context, state = self.rounds(context, state, _TAIL, allowed, deep=False, least=least, most=_TAIL_ROUNDS)
            if self.record.stops[-1].reason != "optimal" or self.checks.failed:
                break
            context, state = self.rounds(context, state, _LAST, allowed, least=least)
            if state is before or self.checks.failed:
                break
        return state

    def _price_moves(self, price: float) -> SearchContext:
        """Return the first context with moves at this price, micro-USD per hour for an ordinary one.

        Unlike `price_of_moves` in floats: the price is scaled to steer the search, and no plan is compared by it.
        """
        weights = self.problem.disruption_cost.astype(np.float64)
        return replace(self.context, move_price=weights * (price / ORDINARY))
