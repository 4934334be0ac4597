"""The search: an anytime solver for placement problems of any size.

1. Bound: the assignment relaxation, its prices turned into a certificate that integers check (`adapters.bound`).
2. First plans: the cluster as it is with pending pods placed, and one made anew (`adapters.start`).
3. Improvement: rounds of steps over disjoint sets of nodes (`adapters.neighbourhood`), run side by side and carried out
   in a fixed order: what comes out depends on problem, seed and number of rounds, not on who was faster.

Costs are prices of nodes plus the price of moves. Every packing that leaves here obeys `packing.flaws`.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, TypeAlias

import numpy as np

from kinema_core.events import Stop
from kinema_optimizer.adapters.assignment import Relaxation, relax
from kinema_optimizer.adapters.bound import Bound, lower_bound
from kinema_optimizer.adapters.errands import ALIKE, Crew, Errand, Threads
from kinema_optimizer.adapters.lp import Floats
from kinema_optimizer.adapters.neighbourhood import Guide, Step, carried_out
from kinema_optimizer.adapters.pick import picks
from kinema_optimizer.adapters.reuse import with_reused
from kinema_optimizer.adapters.selection import Selection, sparing
from kinema_optimizer.adapters.start import Prices, anew, as_it_is, first_guide, generated, keeping, on_sale
from kinema_optimizer.adapters.stops import StopRule
from kinema_optimizer.logic.kinds import Kinds, kinds_of
from kinema_optimizer.logic.packing import UNLIMITED, Packing, PackingProblem, enemies_of
from kinema_optimizer.logic.problem import Flags, Ints
from kinema_optimizer.logic.progress import Progress, Report
from kinema_optimizer.logic.state import State, cost_of, moved, packing_of

_OTHER: Final = 6
"""Every so many rounds, the way to look for exchanges that gained less is tried again."""
_STEPS: Final = 4
"""Steps of a round."""
_GLOBAL_CLASSES: Final = 700
"""Up to so many classes columns are generated for the whole cluster at once."""
_ROUNDS: Final = 100_000
_IDLE: Final = 40
"""Rounds without any gain after which a phase has nothing more to find."""
_FEW: Final = 70
"""Nodes of a step by column generation."""
_SOME: Final = (40, 100)
"""Nodes of a step by quick tries: so many at least, and at most."""
_PARTS: Final = 25
"""Such steps that would be all nodes together, within those limits."""
_QUICK: Final = 24
"""Rounds before columns are generated: a good plan soon, and columns to begin with."""
_ENOUGH: Final = 8
"""Nodes that a step by column generation has at least."""
SHARE_OF_ALL: Final = "last"
"""Phase that takes all the time left."""
_SMALL: Final = 0.05
"""Price of a move, in mean costs of a pod, at which nearly all the saving is still had."""
_LEAST: Final = 0.001
"""Price of a move, likewise, below which it does not matter."""
_ROOM: Final = 0.97
"""Share of the moves that the start may use up: mending it takes more."""
_BISECTIONS: Final = 8
_STEER: Final = 1.25
"""Factor by which the price of a move rises or falls after a round."""
_NEARLY: Final = 0.995
"""Share of the moves that are allowed from which on they are dear."""

Allowed: TypeAlias = Callable[[State], bool]
"""Whether a state may be taken."""


@dataclass(frozen=True)
class Wish:
    """What to make small, and within which limits."""

    move_price: int | None = None
    """Micro-USD per hour for an ordinary move; None: least cost, then fewest moves within `slack` of it."""
    max_moves: int | None = None
    slack: float = 0.001
    seed: int = 0
    workers: int = 2
    crew: Crew | None = None
    """Who does the errands of a round; None: as many threads as there are workers."""


@dataclass(frozen=True, eq=False)
class Found:
    """The best packing, what none can cost less than, and how it was found."""

    packing: Packing
    cost: int
    least: int
    """Least cost found; the packing may cost a little more where that saves moves."""
    bound: Bound
    moves: int
    stops: tuple[Stop, ...]


def search(
    problem: PackingProblem,
    relaxed: PackingProblem,
    wish: Wish,
    stop: StopRule,
    report: Report = lambda _: None,
) -> Found:
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


def placed_as_it_is(problem: PackingProblem) -> State:
    """Every node kept and all pods that need a place given one, as far as there is room or a machine on sale."""
    kinds = kinds_of(problem)
    return as_it_is(problem, kinds, enemies_of(problem), _prices(problem, kinds, _relaxation(problem, kinds)))


def _relaxation(problem: PackingProblem, kinds: Kinds) -> Relaxation:
    return relax(problem.requests, _demand(problem, kinds), kinds, rounds=0)


def _demand(problem: PackingProblem, kinds: Kinds) -> Ints:
    return np.where((kinds.fits > 0).any(axis=0), problem.total, 0)


def _prices(problem: PackingProblem, kinds: Kinds, found: Relaxation) -> Prices:
    """The relaxation as prices; itself too where it knows machines on sale alone."""
    alone = len(kinds.price) == len(problem.machines)
    return Prices(found.guiding_price, _demand(problem, kinds), found if alone else None)


@dataclass(frozen=True)
class _Ways:
    """What the nodes that are worth keeping at a price of moves come to."""

    start: Callable[[float], State]
    leaving: Callable[[float], int]
    """Pods that have to move at least; known much sooner than the state."""


@dataclass
class _Search:
    """One search and what it knows so far."""

    problem: PackingProblem
    relaxed: PackingProblem
    wish: Wish
    stop: StopRule
    report: Report
    pool: ThreadPoolExecutor
    least: int = 0
    bounding: Future[Bound] | None = None
    prices: Prices = field(init=False)
    stops: list[Stop] = field(default_factory=list)

    def run(self) -> Found:
        """First plans, then rounds of improvement as the wish asks for."""
        problem = self.problem
        kinds = kinds_of(problem)
        relaxation = _relaxation(problem, kinds)
        guide = first_guide(problem, kinds, relaxation)
        self.prices = _prices(problem, kinds, relaxation)
        now = as_it_is(problem, kinds, guide.enemies, self.prices)
        self.bounding = self.pool.submit(lower_bound, self.relaxed, now.unplaced)
        self.least = cost_of(problem, now)
        self._tell("start", self.least, now)
        if not problem.stays.totals(len(problem.pending), ~problem.node_fixed).any():
            best = self._cheapest(guide, kinds, now, SHARE_OF_ALL)
        else:
            selection = Selection(problem, on_sale(kinds, len(problem.machines)), relaxation)
            best = self._of_running(guide, kinds, now, selection)
        return Found(
            packing=packing_of(problem, best),
            cost=cost_of(problem, best),
            least=min(self.least, cost_of(problem, best)),
            bound=self.bounding.result(),
            moves=self._moves(best),
            stops=tuple(self.stops),
        )

    def _of_running(self, guide: Guide, kinds: Kinds, now: State, selection: Selection) -> State:
        """The best for a running cluster, whose moves count."""
        lost = int(now.unplaced.sum())

        def start(price: float) -> State:
            return keeping_some(*selection.keep(self._at(guide, price).move_price))

        def keeping_some(keep: Flags, scarce: Floats) -> State:
            if self.wish.max_moves is not None:
                keep = sparing(self.problem, keep, int(self.wish.max_moves * _ROOM))
            made = [
                one
                for prices in (self.prices, replace(self.prices, pod_price=scarce))
                if (one := keeping(self.problem, kinds, guide.enemies, prices, keep)).unplaced.sum() <= lost
            ]
            return with_reused(self.problem, min(made, key=lambda one: cost_of(self.problem, one), default=now))

        def leaving(price: float) -> int:
            keep, _ = selection.keep(self._at(guide, price).move_price)
            return int((self.problem.rolled + self.problem.stays.totals(len(self.problem.pending), ~keep)).sum())

        if self.wish.max_moves is not None:
            return self._within(guide, kinds, now, self.wish.max_moves, _Ways(start, leaving))
        if self.wish.move_price is not None:
            priced = self._at(guide, float(self.wish.move_price))
            first = min((now, start(float(self.wish.move_price))), key=lambda one: self._worth(priced, one))
            return self._rounds(priced, first, SHARE_OF_ALL)
        return self._cheapest_then_fewest(guide, kinds, now, selection, keeping_some)

    def _moves(self, state: State) -> int:
        return int(moved(self.problem, state).sum())

    def _anew(self, guide: Guide, kinds: Kinds, now: State) -> State:
        return anew(self.problem, kinds, guide.enemies, self.prices) if self.problem.nodes else now

    def _cheapest(self, guide: Guide, kinds: Kinds, now: State, phase: str, fresh: State | None = None) -> State:
        """Least cost, whatever moves; `fresh`: the plan made anew, where it is there already."""
        problem = self.problem
        fresh = self._anew(guide, kinds, now) if fresh is None else fresh
        best = now
        if fresh.unplaced.sum() <= now.unplaced.sum():
            if len(problem.pending) <= _GLOBAL_CLASSES and fresh.boots:
                fresh = self._rounds(guide, fresh, "quick", quick=True)
                fresh, ended = generated(guide, fresh, kinds, self.stop, self.pool)
                self.stops.append(ended)
            best = min((now, fresh), key=lambda state: cost_of(problem, state))
            if cost_of(problem, best) < self.least:
                self.least = cost_of(problem, best)
                self._tell("columns", self.least, best)
        return self._rounds(guide, best, phase)

    def _within(self, guide: Guide, kinds: Kinds, now: State, most: int, ways: _Ways) -> State:
        """Least cost with at most so many moves.

        The start is at a price of a move at which about as many have to; where a plan made anew keeps to the limit,
        it is one, too. Then the price follows the moves: it rises while there are nearly as many as allowed, and falls
        while there are not.
        """

        def allowed(state: State) -> bool:
            return self._moves(state) <= most

        price = self._price_within(int(most * _ROOM), ways.leaving)
        cost = partial(cost_of, self.problem)
        best = min((one for one in (now, ways.start(price)) if allowed(one)), key=cost)
        fresh = self._anew(guide, kinds, now)
        if allowed(with_reused(self.problem, fresh)):
            cheapest = with_reused(self.problem, self._cheapest(guide, kinds, now, "search", fresh))
            best = min((best, cheapest if allowed(cheapest) else best), key=cost)
        return self._rounds(self._at(guide, max(price, _SMALL * self._mean())), best, SHARE_OF_ALL, allowed, most)

    def _price_within(self, most: int, leaving: Callable[[float], int]) -> float:
        """A price of a move at which the nodes that go have about so many pods; bisected by its logarithm."""
        low, high = _LEAST * self._mean(), 4.0 * self._mean()
        price = high
        self.stop.begin("start")
        for turn in range(1, _BISECTIONS + 1):
            price = (low * high) ** 0.5
            if leaving(price) > most:
                low = price
            else:
                high = price
            if self._over("start", turn):
                break
        return price

    def _cheapest_then_fewest(
        self,
        guide: Guide,
        kinds: Kinds,
        now: State,
        selection: Selection,
        keeping_some: Callable[[Flags, Floats], State],
    ) -> State:
        """Least cost; then, among plans within the slack of it, the fewest moves that are found.

        Two ways lead there: nodes selected with moves at a small price, and a plan made anew. On the largest clusters
        the first takes seconds: it is taken as far as time allows.
        """
        cheapest = with_reused(self.problem, self._cheapest(guide, kinds, now, "search"))
        self.stop.begin("selection")
        if self._over("selection", 0):
            return cheapest
        small = self._at(guide, _SMALL * self._mean())
        chosen = selection.keep(small.move_price)
        if self._over("selection", 1):
            return cheapest
        near = self._rounds(small, keeping_some(*chosen), "near")
        self.least = min(cost_of(self.problem, one) for one in (cheapest, near))
        most = self.least + int(self.least * self.wish.slack)

        def affordable(state: State) -> bool:
            return cost_of(self.problem, state) <= most

        best = min((one for one in (near, cheapest) if affordable(one)), key=self._moves)
        return self._rounds(self._at(guide, self._mean()), best, SHARE_OF_ALL, affordable)

    def _over(self, phase: str, turn: int) -> bool:
        """Whether a phase ends at this callback; notes it down."""
        ended = self.stop.ends(turn)
        if ended is not None:
            self.stops.append(Stop(reason=ended, phase=phase, iteration=turn))
        return ended is not None

    def _known_bound(self) -> int:
        """For those who watch; 0 until the bound is there."""
        return self.bounding.result().value if self.bounding is not None and self.bounding.done() else 0

    def _tell(self, phase: str, cost: int, state: State) -> None:
        made = partial(packing_of, self.problem, state)
        self.report(Progress(phase, cost, self._known_bound(), self._moves(state), made, tuple(self.stops)))

    def _mean(self) -> float:
        """Cost per pod of the cheapest plan known, micro-USD per hour."""
        return self.least / max(1, int(self.problem.total.sum()))

    def _at(self, guide: Guide, price: float) -> Guide:
        weights = self.problem.disruption.astype(np.float64)
        return replace(guide, move_price=weights * (price / 1000.0))

    def _worth(self, guide: Guide, state: State) -> float:
        return cost_of(self.problem, state) + float(moved(self.problem, state) @ guide.move_price)

    def _rounds(
        self,
        guide: Guide,
        state: State,
        phase: str,
        allowed: Allowed = lambda _: True,
        most: int | None = None,
        *,
        quick: bool = False,
    ) -> State:
        """Rounds of steps until the stop rule ends the phase, or nothing has been found for long.

        Where there are to be at `most` so many moves, their price is steered by them, and the cheapest state counts.
        Quick: a few rounds of tries alone, for a plan that need not be the best known.
        """
        self.stop.begin(phase)
        if (cost := cost_of(self.problem, state)) < self.least:
            self.least = cost
            self._tell(phase, cost, state)
        if self._over(phase, 0):
            return state
        idle, best = 0, state
        gains = {True: np.inf, False: np.inf}
        for turn in range(1, _ROUNDS):
            # The way that gained more when it was last tried, and now and then the other.
            deep = not quick and (gains[True] >= gains[False]) != (turn % _OTHER == 0)
            steps, deep = self._steps(guide, state, turn, deep=deep)
            errands = [Errand(step, deep, (self.wish.seed, turn, i)) for i, step in enumerate(steps)]
            found = (self.wish.crew or Threads(self.pool)).improve(guide, errands)
            before = state
            gains[deep] = 0.0
            for step, exchange in zip(steps, found, strict=True):
                after = state if exchange is None else carried_out(state, step, exchange)
                if exchange is not None and allowed(after):
                    state = after
                    gains[deep] += exchange.saving
            idle = idle + 1 if state is before else 0
            if state is not before:
                cost = cost_of(self.problem, state)
                if not quick or cost < self.least:
                    self._tell(phase, cost, state)
                self.least = min(self.least, cost)
            if most is not None:
                best = min(best, state, key=lambda one: cost_of(self.problem, one))
                guide = self._steered(guide, state, most)
            done = idle >= _IDLE or not steps or (quick and turn == _QUICK)
            reason = self.stop.ends(turn) or ("optimal" if done else None)
            if reason is not None:
                self.stops.append(Stop(reason=reason, phase=phase, iteration=turn))
                break
        return state if most is None else best

    def _steps(self, guide: Guide, state: State, turn: int, *, deep: bool) -> tuple[list[Step], bool]:
        """Steps of a round, and whether by column generation: not where few nodes have too many classes for it."""
        seed, nodes = (self.wish.seed, turn), int(state.keep.sum()) + len(state.boots)
        if deep:
            count = max(1, min(_STEPS, nodes // _FEW))
            steps = picks(guide, state, seed=seed, steps=count, nodes=_FEW, classes=ALIKE)
            if all(len(step.kept) + len(step.boots) >= min(_ENOUGH, nodes // count) for step in steps):
                return steps, deep
        some = int(np.clip(nodes // _PARTS, *_SOME))
        return picks(guide, state, seed=seed, steps=_STEPS, nodes=some, classes=UNLIMITED), False

    def _steered(self, guide: Guide, state: State, most: int) -> Guide:
        """With moves dearer while there are nearly as many as allowed, else cheaper."""
        factor = _STEER if self._moves(state) > most * _NEARLY else 1 / _STEER
        return replace(guide, move_price=np.minimum(guide.move_price * factor, 4.0 * self._mean()))
