"""Rounds of neighborhoods, the loop of every phase of a search; and the record of what a search knows so far."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, TypeAlias

import numpy as np

from kinema_core.events import Stop
from kinema_optimizer.bounds.background import BackgroundBound
from kinema_optimizer.problem.instance import UNLIMITED, Instance
from kinema_optimizer.problem.progress import Progress, Report
from kinema_optimizer.problem.solution import Incumbent, cost_of, moved, solution_of
from kinema_optimizer.search.neighborhood import (
    MOST_CLASSES,
    ImprovementTask,
    Neighborhood,
    Replacement,
    SearchContext,
    TaskPool,
    apply,
    saving,
    select_neighborhoods,
)
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

Allowed: TypeAlias = Callable[[Incumbent], bool]
"""Whether a state may be taken."""


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

    def run(
        self,
        context: SearchContext,
        state: Incumbent,
        phase: str,
        allowed: Allowed = lambda _: True,
        *,
        deep: bool = True,
        steered: bool = False,
        most: int = MOST_ROUNDS,
    ) -> tuple[SearchContext, Incumbent]:
        """Improve a state until the stop rule ends the phase, or nothing was found for long.

        Tries come first: from their time the clock estimates that of columns.

        Returns the last context and the best state: the cheapest where the search is `steered`, that is where the price
        of moves follows what is allowed; else the cheapest with moves at their price. Not `deep`: tries alone.
        """
        record = self.record
        record.stop.begin(phase)
        record.take(phase, state)
        if record.ends(phase, 0, coming=_TRIES):
            return context, state
        key = partial(cost_of, record.problem) if steered else partial(record.objective, context)
        kind, best, idle, stale = _StepKind(deep, steered), state, 0, 0
        for turn in range(1, most + 1):
            neighborhoods, columns = self._select(context, state, turn, deep=kind.columns)
            tasks = [ImprovementTask(one, columns, (self.seed, turn, i)) for i, one in enumerate(neighborhoods)]
            before, found = state, self.pool.improve(context, tasks)
            state, gain, refused = _apply_all(context, state, zip(neighborhoods, found, strict=True), allowed)
            idle = idle + 1 if state is before else 0
            if state is not before:
                record.take(phase, state, always=phase != QUICK)
            known, best = best, min(best, state, key=key)
            if steered:
                stale = stale + 1 if best is known else 0
                context = self._steer(context, dearer=refused, stale=stale >= _STALE_ROUNDS)
            done = idle >= _IDLE_ROUNDS or not neighborhoods or turn == most
            coming = kind.choose(turn, taken=columns, gain=gain)
            if record.ends(phase, turn, coming=coming, last=done) or done:
                break
        return context, best

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

    def _steer(self, context: SearchContext, *, dearer: bool, stale: bool) -> SearchContext:
        """Make moves dearer after replacements that took too many, else cheaper; dear again where that led nowhere.

        A state with fewer moves has room for other replacements within the limit, even where it costs more for a while.
        """
        mean, now = self.record.mean, float(context.move_price.mean())
        factor = _PRICE_FACTOR if dearer else 1 / _PRICE_FACTOR
        if stale and now * factor < _LOW_PRICE * mean:
            factor = _RAISED_PRICE * mean / max(now, 1e-9)
        return replace(context, move_price=np.minimum(context.move_price * factor, _MOST_PRICE * mean))


def _apply_all(
    context: SearchContext,
    state: Incumbent,
    found: Iterable[tuple[Neighborhood, Replacement | None]],
    allowed: Allowed,
) -> tuple[Incumbent, float, bool]:
    """Return the state with all replacements that are allowed, what they save, and whether one was not allowed."""
    gain, refused = 0.0, False
    for neighborhood, replacement in found:
        if replacement is None:
            continue
        after = apply(state, neighborhood, replacement)
        if allowed(after):
            state, gain = after, gain + saving(context, neighborhood, replacement)
        else:
            refused = True
    return state, gain, refused
