"""The one place where benchmarks call the search, and where its answers are checked before anything is measured."""

from __future__ import annotations

import time
from dataclasses import dataclass

from benchmarks.assemble import PodClass, assemble
from benchmarks.machine_types import MachineType
from kinema_optimizer.problem.instance import Instance, Solution, cost, flaws, moves
from kinema_optimizer.problem.solution import Progress
from kinema_optimizer.search.search import SearchOptions, search
from kinema_optimizer.solvers.stopping import ClockStop, Deadline


@dataclass(frozen=True)
class Solved:
    """A checked answer. Money in micro-USD per hour, times in seconds since the solve began."""

    packing: Solution
    cost: int
    least: int
    """Of the cheapest state seen: the answer may cost a little more where that spares moves."""
    bound: int
    moves: int
    unplaced: int
    seconds: float
    curve: tuple[tuple[float, int, int], ...]
    """(time, cost, moves) whenever the search reported a better plan."""

    @property
    def gap(self) -> float:
        """Cost over the bound, less one."""
        return self.cost / self.bound - 1 if self.bound else 0.0

    @property
    def least_gap(self) -> float:
        """The same of the cheapest state."""
        return self.least / self.bound - 1 if self.bound else 0.0


def solve(
    problem: Instance,
    *,
    seconds: float,
    seed: int = 0,
    workers: int = 2,
    move_price: int | None = None,
    max_moves: int | None = None,
    processors: float | None = None,
) -> Solved:
    """Solve within a time limit. The rules of generated problems hold in every plan: they are their own relaxation.

    `processors`: see `deadline`.

    Raises:
        AssertionError: the answer breaks a constraint, or its cost or its bound is not what it says.
    """
    limit = deadline(seconds, processors)
    curve: list[tuple[float, int, int]] = []

    def report(progress: Progress) -> None:
        curve.append((round(limit.clock() - limit.began, 3), progress.cost, progress.moves))

    wish = SearchOptions(move_price=move_price, max_moves=max_moves, seed=seed, workers=workers)
    found = search(problem, problem, wish, ClockStop(limit), report)
    took = limit.clock() - limit.began
    wrong = flaws(problem, found.packing)
    assert not wrong, wrong
    paid, moved = cost(problem, found.packing), moves(problem, found.packing)
    assert found.cost == paid, (found.cost, paid)
    assert found.bound.value <= paid, (found.bound.value, paid)
    assert max_moves is None or moved <= max_moves, (moved, max_moves)
    lost = int(found.packing.unplaced.sum())
    return Solved(found.packing, paid, found.least, found.bound.value, moved, lost, round(took, 3), tuple(curve))


def deadline(seconds: float, processors: float | None = None) -> Deadline:
    """Return the end of so many seconds by the clock.

    Or, on a machine that has other work to do, of this process' own processor time by so many `processors`.
    """
    return Deadline(seconds, clock=None if processors is None else lambda: time.process_time() / processors)


def warm_up() -> float:
    """Seconds to load, or to compile, what the search compiles."""
    began = time.perf_counter()
    classes = [PodClass((500 * size, 2**29 * size, 1), 3 * size) for size in range(1, 8)]
    machines = [MachineType(f"m{cpu}", 40_000 * cpu, (1000 * cpu, 2**32 * cpu, 110)) for cpu in (2, 4, 8)]
    solve(assemble(("cpu", "memory", "pods"), classes, machines), seconds=0.5, workers=1)
    return round(time.perf_counter() - began, 3)
