"""One piece of a round's work: a step, and how a cheaper exchange for it is looked for."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from kinema_optimizer.adapters.neighbourhood import Exchange, Guide, Step, classes_of, improve
from kinema_optimizer.adapters.ruin import ruin

ALIKE: Final = 100
"""Classes of a step up to which column generation is worth its time."""
_EFFORT: Final = 2400
"""Nodes that the tries of a step fill anew, all together."""


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
    """A cheaper exchange: by column generation where asked for and pods are alike enough, else by quick tries."""
    if errand.deep and classes_of(guide, errand.step) <= 2 * ALIKE:
        return improve(guide, errand.step)
    nodes = len(errand.step.kept) + len(errand.step.boots)
    return ruin(guide, errand.step, tries=max(1, _EFFORT // max(1, nodes)), seed=errand.seed)
