"""One piece of a round's work: a step, and how a cheaper exchange for it is looked for."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Protocol

from kinema_optimizer.search.neighbourhood import BETTER, Exchange, Guide, Step, generated, saving_of, view_of
from kinema_optimizer.search.ruin_recreate import tried

ALIKE: Final = 100
"""Classes of a step up to which column generation is worth its time."""
_EFFORT: Final = 2400
"""Nodes that the tries of a step fill anew, all together."""
_AFTERWARDS: Final = 80
"""Most tries after column generation: what it lost is soon won back or not at all."""


@dataclass(frozen=True, eq=False)
class Errand:
    """A step to be improved. Guide and errand alone decide what comes out, whoever does it."""

    step: Step
    deep: bool
    """By column generation, where its pods are alike enough, or by quick tries."""
    seed: tuple[int, ...]


class Crew(Protocol):
    """Whoever does the errands of a round."""

    def improve(self, guide: Guide, errands: Sequence[Errand]) -> list[Exchange | None]:
        """An exchange for each errand, in their order; None where none was found."""


class Threads:
    """Threads of this process."""

    def __init__(self, pool: Executor) -> None:
        self._pool = pool

    def improve(self, guide: Guide, errands: Sequence[Errand]) -> list[Exchange | None]:
        """See `Crew`."""
        return list(self._pool.map(partial(better, guide), errands))


def better(guide: Guide, errand: Errand) -> Exchange | None:
    """A cheaper exchange: by tries, which begin with what column generation makes where that is asked for.

    The master program loses a percent or two where it is made whole; tries at its prices win a part of that back, also
    where nothing is saved yet.
    """
    view = view_of(guide, errand.step)
    now = begun = view.current()
    tries = max(1, _EFFORT // max(1, len(now)))
    if errand.deep and len(view.mine) <= 2 * ALIKE:
        prices, made = generated(view)
        view = replace(view, task=replace(view.task, guess=prices))
        begun, tries = made or now, min(tries, _AFTERWARDS)
    found = tried(view, begun, tries=tries, seed=errand.seed)
    exchange = view.exchange(found)
    return exchange if saving_of(guide, errand.step, exchange) > BETTER else None
