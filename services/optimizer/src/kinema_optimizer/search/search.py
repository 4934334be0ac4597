"""The search: an anytime solver for placement problems of any size.

1. Bound: the assignment LP, its duals turned into a certificate that is checked in integers (`bounds.certificate`).
2. First plans: the cluster as it is with pending pods placed, and one built from nothing (`search.first_plan`).
3. Improvement: rounds of disjoint neighborhoods (`search.neighborhood`), improved side by side and applied in a fixed
   order: the answer depends on problem, seed and number of rounds, not on the speed of any worker.

Costs are prices of nodes plus the price of moves. Every packing that leaves here is verified (`instance.flaws`); one
that breaks a rule is replaced by the cluster as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, TypeAlias

import numpy as np

from kinema_core.events import Stop
from kinema_optimizer.bounds.assignment_lp import AssignmentSolution, solve_assignment_lp
from kinema_optimizer.bounds.background import WHOLE_CLUSTER_CLASSES, BackgroundBound
from kinema_optimizer.bounds.certificate import Bound
from kinema_optimizer.problem.arrays import Ints
from kinema_optimizer.problem.instance import UNLIMITED, Instance, Solution, enemies_of, flaws, losses
from kinema_optimizer.problem.node_types import NodeTypes, node_types
from kinema_optimizer.problem.progress import Progress, Report
from kinema_optimizer.problem.solution import Incumbent, cost_of, moved, solution_of
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
    SearchContext,
    TaskPool,
    ThreadPool,
    apply,
    saving,
    select_neighborhoods,
)
from kinema_optimizer.search.retention_lp import RetentionLp
from kinema_optimizer.solvers.stopping import StopRule

_OTHER_EVERY: Final = 6
"""Every so many rounds, the way to look for replacements that gained less is tried again."""
_STEP_KINDS: Final = {True: "columns of a neighborhood", False: "tries"}
"""What rounds look for replacements by."""
_NEIGHBORHOODS: Final = 4
"""Steps of a round."""
_ROUNDS: Final = 100_000
_IDLE_ROUNDS: Final = 40
"""Rounds without any gain after which a phase has nothing more to find."""
_COLUMN_NODES: Final = 70
"""Nodes of a neighborhood by column generation."""
_TRY_NODES: Final = (40, 100)
"""Nodes of a neighborhood by quick tries: so many at least, and at most."""
_TRY_PARTS: Final = 25
"""Such neighborhoods that would be all nodes together, within those limits."""
_REPAIR_ROUNDS: Final = 4
"""Rounds of tries for a choice of columns that is dearer than what was known."""
_QUICK_ROUNDS: Final = 24
"""Rounds before columns are generated: a good plan soon, and columns to begin with."""
_TAIL_ROUNDS: Final = 8
"""Rounds of tries after which it is asked again whether columns fit into the time left."""
_LEAST_COLUMN_NODES: Final = 8
"""Nodes that a neighborhood by column generation has at least."""
_STARTS: Final = "starts"
"""Phase of the first plans within a limit on moves."""
_LAST: Final = "last"
"""Phase that takes the time left; after it come tries alone, while nothing else fits."""
_TAIL: Final = "tail"
_QUICK_PHASE: Final = "quick"
"""Phase of a few tries for a plan that need not be the best known."""
_SMALL_PRICE: Final = 0.05
"""Price of a move, in mean costs of a pod, at which nearly all the saving is still had."""
_FIRST_PRICE: Final = 0.2
"""Least price of a move, likewise, at which a search within a limit begins: what fits by sums does not by pods."""
_PRICE_FACTOR: Final = 1.5
"""Factor by which the price of a move rises or falls after a round."""
_FREE_PRICE: Final = 0.1
"""Price of a move, in mean costs of a pod, from which on it rises again once nothing cheaper was found,"""
_STALE_ROUNDS: Final = 6
"""for so many rounds,"""
_RESET_PRICE: Final = 1.0
"""to this."""

Allowed: TypeAlias = Callable[[Incumbent], bool]
"""Whether a state may be taken."""


@dataclass(frozen=True)
class SearchOptions:
    """What to make small, and within which limits."""

    move_price: int | None = None
    """Micro-USD per hour for an ordinary move; None: least cost, then fewest moves within `slack` of it."""
    max_moves: int | None = None
    slack: float = 0.001
    seed: int = 0
    workers: int = 2
    task_pool: TaskPool | None = None
    """Who does the tasks of a round; None: as many threads as there are workers."""


@dataclass(frozen=True, eq=False)
class SearchResult:
    """The best packing, what none can cost less than, and how it was found."""

    packing: Solution
    cost: int
    least: int
    """Least cost found; the packing may cost a little more where that saves moves."""
    bound: Bound
    moves: int
    stops: tuple[Stop, ...]


def search(
    problem: Instance,
    relaxed: Instance,
    wish: SearchOptions,
    stop: StopRule,
    report: Report = lambda _: None,
) -> SearchResult:
    """The best packing found until `stop` says so.

    Args:
        problem: what to solve.
        relaxed: the same with only those rules between pods that hold in every plan: what the bound is of.
        wish: what to make small.
        stop: when to end; asked after every round.
        report: told of progress.
    """
    with ThreadPoolExecutor(max_workers=wish.workers) as pool:
        return _Search(problem, relaxed, wish, stop, report, pool).run()


def start_as_is(problem: Instance) -> Incumbent:
    """Every node kept and all pods that need a place given one, as far as there is room or a machine on sale."""
    kinds = node_types(problem)
    return construct_as_is(problem, kinds, enemies_of(problem), _prices(problem, kinds, _relaxation(problem, kinds)))


def _relaxation(problem: Instance, kinds: NodeTypes) -> AssignmentSolution:
    return solve_assignment_lp(problem.requests, _demand(problem, kinds), kinds, rounds=0)


def _demand(problem: Instance, kinds: NodeTypes) -> Ints:
    return np.where((kinds.fits > 0).any(axis=0), problem.total, 0)


def _prices(problem: Instance, kinds: NodeTypes, found: AssignmentSolution) -> Prices:
    """The relaxation as prices; itself too where it knows machines on sale alone."""
    alone = len(kinds.price) == len(problem.machines)
    return Prices(found.guiding_price, _demand(problem, kinds), found if alone else None)


@dataclass
class _Search:
    """One search and what it knows so far."""

    problem: Instance
    relaxed: Instance
    wish: SearchOptions
    stop: StopRule
    report: Report
    pool: ThreadPoolExecutor
    least: int = 0
    most: int | None = None
    prices: Prices = field(init=False)
    bound: BackgroundBound = field(init=False)
    stops: list[Stop] = field(default_factory=list)

    def run(self) -> SearchResult:
        """First plans, then rounds of improvement as the wish asks for."""
        problem = self.problem
        self.stop.begin("start")
        self.bound = BackgroundBound(problem, self.relaxed, self.stop, self.pool)
        kinds = node_types(problem)
        relaxation = _relaxation(problem, kinds)
        context = first_context(problem, kinds, relaxation)
        self.prices = _prices(problem, kinds, relaxation)
        now = construct_as_is(problem, kinds, context.enemies, self.prices)
        if now.unplaced.any():
            self.bound.restart(now.unplaced)
        self.least = cost_of(problem, now)
        self.most = self._most(now)
        self._tell("start", self.least, now)
        if self._ends("start", 0, last=True):
            best = self._at_once(context, kinds, now)
        elif not problem.stays.totals(len(problem.pending), ~problem.node_fixed | problem.node_releases).any():
            best = self._to_the_end(*self._cheapest(context, kinds, now, _LAST))
        else:
            retention = RetentionLp(problem, on_sale(kinds, len(problem.machines)), relaxation)
            best = self._of_running(context, kinds, now, retention)
        bound, ended = self.bound.result()
        packing, start = solution_of(problem, best), solution_of(problem, now)
        if not set(flaws(problem, packing)) <= set(flaws(problem, start)):
            best, packing, self.least = now, start, cost_of(problem, now)
        return SearchResult(
            packing=packing,
            cost=cost_of(problem, best),
            least=min(self.least, cost_of(problem, best)),
            bound=bound,
            moves=self._moves(best),
            stops=(*self.stops, *ended),
        )

    def _at_once(self, context: SearchContext, kinds: NodeTypes, now: Incumbent) -> Incumbent:
        """Where the time is over already: a plan made anew, if it is better; that takes less than what came before."""
        made = swap_in_existing(self.problem, construct_fresh(self.problem, kinds, context.enemies, self.prices))
        if losses(self.problem, made.unplaced) > losses(self.problem, now.unplaced) or not self._allowed(made):
            return now
        best = min((now, made), key=partial(self._worth, self._at(context, float(self.wish.move_price or 0))))
        self.least = min(self.least, cost_of(self.problem, best))
        return best

    def _of_running(
        self, context: SearchContext, kinds: NodeTypes, now: Incumbent, retention: RetentionLp
    ) -> Incumbent:
        """The best for a running cluster, whose moves count."""
        running = FirstPlans(self.problem, kinds, context, self.prices, now, retention)
        if self.wish.move_price is None and self.most is None:
            return self._cheapest_then_fewest(running)
        price = float(self.wish.move_price or 0)
        self.bound.sharpen(lambda: running.fresh.boots)
        priced = self._at(context, price)
        if self.most is not None:
            self.stop.begin(_STARTS)
            first, saved = running.within(self.most, price, self._mean(), partial(self._ends, _STARTS))
            priced = self._at(context, max(price + saved, _FIRST_PRICE * self._mean()))
            last = self._rounds(priced, first, _LAST, self._allowed, steered=True)
            return self._to_the_end(*last, self._allowed, steered=True)
        first = running.plan(retention.solve(priced.move_price))
        return self._to_the_end(*self._rounds(priced, min((now, first), key=partial(self._worth, priced)), _LAST))

    def _most(self, now: Incumbent) -> int | None:
        """The limit on moves, where it is one: not where all pods may move; and no fewer than must in any case."""
        if self.wish.max_moves is None or self.wish.max_moves >= self.problem.everybody:
            return None
        return max(self.wish.max_moves, self._moves(now))

    def _allowed(self, state: Incumbent) -> bool:
        return self.most is None or self._moves(state) <= self.most

    def _moves(self, state: Incumbent) -> int:
        return int(moved(self.problem, state) @ self.problem.pods)

    def _cheapest(
        self, context: SearchContext, kinds: NodeTypes, now: Incumbent, phase: str
    ) -> tuple[SearchContext, Incumbent]:
        """Least cost, whatever moves; and the context."""
        problem = self.problem
        fresh = construct_fresh(problem, kinds, context.enemies, self.prices) if problem.nodes else now
        best = now
        if losses(problem, fresh.unplaced) <= losses(problem, now.unplaced):
            if len(problem.pending) <= WHOLE_CLUSTER_CLASSES and fresh.boots:
                _, fresh = self._rounds(context, fresh, _QUICK_PHASE, deep=False, most=_QUICK_ROUNDS)
                chosen, ended = choose_new_nodes(context, fresh, kinds, self.stop, self.pool, self.bound.sharpen)
                self.stops += ended
                if cost_of(problem, chosen) >= cost_of(problem, fresh):
                    # What the last pods cost at the end of a dive is soon won back, and more than that.
                    _, chosen = self._rounds(context, chosen, _QUICK_PHASE, deep=False, most=_REPAIR_ROUNDS)
                fresh = min((chosen, fresh), key=lambda state: cost_of(problem, state))
            best = min((now, fresh), key=lambda state: cost_of(problem, state))
            if cost_of(problem, best) < self.least:
                self.least = cost_of(problem, best)
                self._tell("columns", self.least, best)
        return self._rounds(context, best, phase)

    def _cheapest_then_fewest(self, running: FirstPlans) -> Incumbent:
        """Least cost; then, among plans within the slack of it, the fewest moves that are found.

        Two ways lead there: nodes selected with moves at a small price, and a plan made anew. On the largest clusters
        the first takes seconds: it is taken as far as time allows.
        """
        context = running.context
        cheapest = swap_in_existing(self.problem, self._cheapest(context, running.kinds, running.now, "search")[1])
        self.stop.begin("selection")
        if self._ends("selection", 0):
            return cheapest
        small = self._at(context, _SMALL_PRICE * self._mean())
        chosen = running.retention.solve(small.move_price)
        if self._ends("selection", 1, last=True):
            return cheapest
        _, near = self._rounds(small, running.plan(chosen), "near")
        self.least = min(cost_of(self.problem, one) for one in (cheapest, near))
        most = self.least + int(self.least * self.wish.slack)

        def affordable(state: Incumbent) -> bool:
            return cost_of(self.problem, state) <= most

        best = min((one for one in (near, cheapest) if affordable(one)), key=self._moves)
        return self._to_the_end(*self._rounds(self._at(context, self._mean()), best, _LAST, affordable), affordable)

    def _to_the_end(
        self, context: SearchContext, state: Incumbent, allowed: Allowed = lambda _: True, *, steered: bool = False
    ) -> Incumbent:
        """Tries where nothing longer seems to fit; after some of them that is asked again: one may have been slow."""
        for _ in range(_ROUNDS):
            before = state
            context, state = self._rounds(
                context, state, _TAIL, allowed, deep=False, steered=steered, most=_TAIL_ROUNDS
            )
            if self.stops[-1].reason != "optimal":
                break
            context, state = self._rounds(context, state, _LAST, allowed, steered=steered)
            if state is before:
                break
        return state

    def _ends(self, phase: str, turn: int, *, coming: str = "", last: bool = False) -> bool:
        """Return whether the stop rule ends a phase at this callback, and record that it does.

        The `last` callback of a phase is recorded in any case: a replay finds a stop for each phase that it begins.
        """
        ended = self.stop.ends(turn, coming)
        if ended is not None or last:
            self.stops.append(Stop(reason=ended or "optimal", phase=phase, iteration=turn))
        return ended is not None

    def _tell(self, phase: str, cost: int, state: Incumbent) -> None:
        made = partial(solution_of, self.problem, state)
        lost = int(state.unplaced.sum())
        self.report(Progress(phase, cost, self.bound.known, self._moves(state), made, tuple(self.stops), lost))

    def _mean(self) -> float:
        """Cost per pod of the cheapest plan known, micro-USD per hour."""
        return self.least / max(1, self.problem.everybody)

    def _at(self, context: SearchContext, price: float) -> SearchContext:
        weights = self.problem.disruption.astype(np.float64)
        return replace(context, move_price=weights * (price / 1000.0))

    def _worth(self, context: SearchContext, state: Incumbent) -> float:
        return cost_of(self.problem, state) + float(moved(self.problem, state) @ context.move_price)

    def _rounds(
        self,
        context: SearchContext,
        state: Incumbent,
        phase: str,
        allowed: Allowed = lambda _: True,
        *,
        deep: bool = True,
        steered: bool = False,
        most: int = _ROUNDS,
    ) -> tuple[SearchContext, Incumbent]:
        """Rounds of neighborhoods until the stop rule ends the phase, or nothing has been found for long.

        Tries come first: how long they take tells how long columns will.

        Returns the best state, and the last context. Steered: the price of moves follows what is allowed, and the
        cheapest state counts; else the cheapest with moves at their price.
        Not deep: tries alone.
        """
        self.stop.begin(phase)
        if (cost := cost_of(self.problem, state)) < self.least:
            self.least = cost
            self._tell(phase, cost, state)
        if self._ends(phase, 0, coming=_STEP_KINDS[False]):
            return context, state
        worth = partial(cost_of, self.problem) if steered else partial(self._worth, context)
        idle, stale, best, columns = 0, 0, state, False
        gains = {True: np.inf, False: 0.0}
        for turn in range(1, most + 1):
            asked, (neighborhoods, columns) = columns, self._select(context, state, turn, deep=columns)
            tasks = [
                ImprovementTask(neighborhood, columns, (self.wish.seed, turn, i))
                for i, neighborhood in enumerate(neighborhoods)
            ]
            found = (self.wish.task_pool or ThreadPool(self.pool)).improve(context, tasks)
            before, refused = state, False
            gains[asked] = gains[columns] = 0.0
            for neighborhood, replacement in zip(neighborhoods, found, strict=True):
                after = state if replacement is None else apply(state, neighborhood, replacement)
                if replacement is not None and allowed(after):
                    state = after
                    gains[columns] += saving(context, neighborhood, replacement)
                refused |= replacement is not None and state is not after
            idle = idle + 1 if state is before else 0
            if state is not before:
                cost = cost_of(self.problem, state)
                if phase != _QUICK_PHASE or cost < self.least:
                    self._tell(phase, cost, state)
                self.least = min(self.least, cost)
            known, best = best, min(best, state, key=worth)
            if steered:
                stale = stale + 1 if best is known else 0
                context = self._steered(context, dearer=refused, stale=stale >= _STALE_ROUNDS)
            done = idle >= _IDLE_ROUNDS or not neighborhoods or turn == most
            # The way that gained more when it was last tried, and now and then the other; where the price of moves is
            # another each round, tries: there are more rounds of them.
            better = gains[True] > gains[False] or (not steered and gains[True] == gains[False])
            columns = deep and better != ((turn + 1) % _OTHER_EVERY == 0)
            if self._ends(phase, turn, coming=_STEP_KINDS[columns], last=done) or done:
                break
        return context, best

    def _select(
        self, context: SearchContext, state: Incumbent, turn: int, *, deep: bool
    ) -> tuple[list[Neighborhood], bool]:
        """Steps of a round, and whether by column generation: not where few nodes have too many classes for it."""
        seed, nodes = (self.wish.seed, turn), int(state.keep.sum()) + len(state.boots)
        if deep:
            found = select_neighborhoods(
                context, state, seed=seed, neighborhoods=_NEIGHBORHOODS, nodes=_COLUMN_NODES, classes=MOST_CLASSES
            )
            large = [
                neighborhood
                for neighborhood in found
                if len(neighborhood.kept) + len(neighborhood.boots) >= min(_LEAST_COLUMN_NODES, nodes)
            ]
            if large:
                return large, deep
        some = min(int(np.clip(nodes // _TRY_PARTS, *_TRY_NODES)), max(4, nodes // _NEIGHBORHOODS))
        return select_neighborhoods(
            context, state, seed=seed, neighborhoods=_NEIGHBORHOODS, nodes=some, classes=UNLIMITED
        ), False

    def _steered(self, context: SearchContext, *, dearer: bool, stale: bool) -> SearchContext:
        """With moves dearer after replacements that took too many, else cheaper; dear again where that has led nowhere.

        A state with fewer moves has room for other replacements within the limit, even where it costs more for a while.
        """
        mean, now = self._mean(), float(context.move_price.mean())
        factor = _PRICE_FACTOR if dearer else 1 / _PRICE_FACTOR
        if stale and now * factor < _FREE_PRICE * mean:
            factor = _RESET_PRICE * mean / max(now, 1e-9)
        return replace(context, move_price=np.minimum(context.move_price * factor, 4.0 * mean))
