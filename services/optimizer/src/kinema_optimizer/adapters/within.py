"""First plans for a running cluster: from nodes that are selected to be kept, also within a limit on moves.

What fits by sums does not by pods: the selection at the limit itself may make a worse plan than one that is held to
fewer moves, or whose moves have a price; and a plan within a smaller limit is one within a larger. So several are made,
which takes a fraction of a round of improvement each, and the best is gone on with.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Final

from kinema_optimizer.adapters.neighbourhood import Guide
from kinema_optimizer.adapters.reuse import with_reused
from kinema_optimizer.adapters.selection import Kept, Selection, sparing
from kinema_optimizer.adapters.start import Prices, anew, keeping
from kinema_optimizer.logic.kinds import Kinds
from kinema_optimizer.logic.packing import PackingProblem, losses
from kinema_optimizer.logic.state import State, cost_of, moved

_LIMITS: Final = (1.0, 0.98, 0.95, 0.9)
"""Parts of the limit that a selection is held to."""
_EXTRA: Final = (0.0, 0.1, 0.2, 0.35, 0.5)
"""What a move costs in a selection besides its price, in mean costs of a pod."""


@dataclass(frozen=True, eq=False)
class Running:
    """A running cluster, and what its first plans are made of."""

    problem: PackingProblem
    kinds: Kinds
    guide: Guide
    prices: Prices
    now: State
    """Every node kept."""
    selection: Selection

    def plan(self, kept: Kept, most: int | None = None) -> State:
        """The cheapest plan found with these nodes, and as many more as a limit on moves takes; else as it is now."""
        problem = self.problem
        lost = losses(problem, self.now.unplaced)
        keep = kept.nodes if most is None else sparing(problem, kept.nodes, most)
        prices = (self.prices, replace(self.prices, pod_price=kept.pod_price))
        made = [keeping(problem, self.kinds, self.guide.enemies, one, keep) for one in prices]
        made = [one for one in made if losses(problem, one.unplaced) <= lost]
        return with_reused(problem, min(made, key=lambda one: cost_of(problem, one), default=self.now))

    @cached_property
    def fresh(self) -> State:
        """The plan that is made anew, whatever moves: the bound begins with it, too."""
        return anew(self.problem, self.kinds, self.guide.enemies, self.prices)

    def within(self, most: int, price: float, mean: float, over: Callable[[int], bool]) -> tuple[State, float]:
        """The best of several plans with so many moves at this price of one, and what one more would save at most.

        Args:
            most: moves, pods.
            price: of a move, micro-USD per hour.
            mean: cost per pod of the cheapest plan known, likewise.
            over: whether there is no time for more than so many.
        """
        problem = self.problem
        weights, lost = problem.disruption / 1000.0, losses(problem, self.now.unplaced)
        found, saved = [self.now, with_reused(problem, self.fresh)], 0.0
        for turn, (share, extra) in enumerate(product(_LIMITS, _EXTRA), start=1):
            kept = self.selection.keep(weights * (price + extra * mean), int(most * share))
            found.append(self.plan(kept, int(most * share)))
            saved = max(saved, kept.move_price)
            if over(turn):
                break

        def worth(state: State) -> float:
            return cost_of(problem, state) + float(moved(problem, state) @ weights) * price

        allowed = [one for one in found if int(moved(problem, one) @ problem.pods) <= most]
        return min((one for one in allowed if losses(problem, one.unplaced) <= lost), key=worth), saved
