"""The lower bound, computed beside the search: by the assignment LP at once, by patterns where time is left."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from typing import Final

import numpy as np

from kinema_core.events import Stop
from kinema_optimizer.bounds.certificate import Bound, lower_bound
from kinema_optimizer.bounds.pattern_lp import PHASE, pattern_bound
from kinema_optimizer.problem.arrays import Ints
from kinema_optimizer.problem.instance import Instance
from kinema_optimizer.problem.solution import NodeLoad
from kinema_optimizer.solvers.stopping import StopRule

WHOLE_CLUSTER_CLASSES: Final = 700
"""Up to so many classes columns are generated for the whole cluster at once."""


class BackgroundBound:
    """Bounds of one problem, in threads of a pool. What comes out does not depend on who was faster."""

    def __init__(self, problem: Instance, relaxed: Instance, stop: StopRule, pool: Executor) -> None:
        """Start the bound of `relaxed`, where pods that `problem` takes as one are several, in other classes."""
        self._problem, self._stop, self._pool = relaxed, stop, pool
        self._alike = np.array_equal(problem.requests, relaxed.requests)
        self._rough: Future[Bound] = pool.submit(lower_bound, relaxed)
        self._sharp: Future[tuple[Bound, Stop]] | None = None

    def restart(self, unplaced: Ints) -> None:
        """Start again, for plans that leave so many pods (C,) without a place."""
        self._rough = self._pool.submit(lower_bound, self._problem, unplaced)

    def sharpen(self, patterns: Callable[[], Sequence[NodeLoad]]) -> None:
        """Start the pattern bound, once, from these fillings of machines on sale, unless there are too many classes."""
        if self._sharp is None and len(self._problem.pending) <= WHOLE_CLUSTER_CLASSES:
            rough, ends = self._rough, self._stop.beside(PHASE)
            begin = patterns if self._alike else tuple
            self._sharp = self._pool.submit(lambda: pattern_bound(self._problem, rough.result(), begin(), ends))

    @property
    def known(self) -> int:
        """Bound for progress reports, micro-USD per hour; 0 until there is one."""
        if self._sharp is not None and self._sharp.done():
            return self._sharp.result()[0].value
        return self._rough.result().value if self._rough.done() else 0

    def result(self) -> tuple[Bound, list[Stop]]:
        """Wait for the best bound, and return it with the stop of its phase."""
        if self._sharp is None:
            return self._rough.result(), []
        bound, stop = self._sharp.result()
        return bound, [stop]
