"""Solutions: under change while they are improved (`Incumbent`), by name, and as reported by a running solve.

Nodes of an incumbent are entries that are replaced whole, never changed in place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeAlias, TypeVar

import numpy as np

from kinema_core.events import Stop
from kinema_optimizer.problem.arrays import Flags, Ints
from kinema_optimizer.problem.instance import Content, Instance, Solution


@dataclass(frozen=True, eq=False)
class NodeLoad:
    """Pods of one node: all that are on a new one, or what changes on an existing one that is kept."""

    machine: int
    """Index of the machine; -1 for an existing node."""
    classes: Ints
    """Ascending."""
    counts: Ints
    """Never 0. Of an existing node: pods that come, and below 0 pods that leave it."""


NOTHING = NodeLoad(-1, np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))


@dataclass(eq=False)
class Incumbent:
    """A solution under change: existing nodes that are kept, what changes there, new nodes, unplaced pods."""

    keep: Flags
    """(E,)"""
    changes: dict[int, NodeLoad] = field(default_factory=dict)
    """By existing node; nodes without any are left out."""
    boots: list[NodeLoad] = field(default_factory=list)
    unplaced: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """(C,)"""

    def copy(self) -> Incumbent:
        """Return a state that may be changed; fillings are shared."""
        return Incumbent(self.keep.copy(), dict(self.changes), list(self.boots), self.unplaced)


@dataclass(frozen=True)
class NamedSolution:
    """A solution by the names of pods and nodes."""

    assignment: Mapping[str, str | None]
    """Pod key → live node's or new node's name; None: left without a place. Pods that may not move are not in it."""
    boots: Mapping[str, tuple[str, ...]]
    """New node's name → the offers that are alike, any of which will do."""
    deleted: tuple[str, ...]
    """Live nodes that go."""
    updates: frozenset[str]
    """Workloads that are moved by a rolling update: their every pod is replaced, also where it is."""
    alike: tuple[tuple[str, ...], ...]
    """Pods of the assignment that may change places."""


_Found = TypeVar("_Found", Solution, NamedSolution)


@dataclass(frozen=True)
class ModelResult(Generic[_Found]):
    """A solution by branch and bound, checked in integers, and what is proven about it.

    The bound rests on HiGHS' dual bound, made safe: lowered by a tolerance, then raised to the next multiple of the
    price unit, as every cost is one. It is no exact certificate.
    """

    solution: _Found
    cost: int
    """Micro-USD per hour of all nodes kept and booted."""
    least: int
    """Least cost found, which `cost` may exceed by 1/1000 for fewer moves."""
    lower_bound: int
    """No plan that leaves out no more pods costs less."""
    proven: bool
    """Nothing costs less than `least`, and no fewer pods can be left out."""
    settled: bool
    """No plan within the limit on moves is worth more: `cost`, or what it is with preferences and moves priced."""
    stops: tuple[Stop, ...]
    method: str


def cost_of(problem: Instance, state: Incumbent) -> int:
    """Price of the nodes kept and booted, micro-USD per hour."""
    booted = sum(int(problem.machine_price[one.machine]) for one in state.boots)
    return int(problem.node_price[state.keep].sum()) + booted


def moved(problem: Instance, state: Incumbent) -> Ints:
    """(C,): pods whose node changes; rolled pods that come back to their node are not among them."""
    gone = problem.stays.totals(len(problem.pending), ~state.keep)
    back = np.zeros(len(problem.pending), dtype=np.int64)
    for e in np.flatnonzero(np.diff(problem.old.start) > 0).tolist():
        here = state.changes.get(e, NOTHING)
        for c, count in problem.old.of(e):
            back[c] += np.clip(here.counts[here.classes == c], 0, count).sum()
    for one in state.changes.values():
        gone[one.classes] -= np.minimum(one.counts, 0)
    return np.asarray(gone + problem.rolled - back, dtype=np.int64)


def solution_of(problem: Instance, state: Incumbent) -> Solution:
    """Return the state as an answer: new nodes by machine, then by what they take."""
    boots = sorted(state.boots, key=lambda one: (one.machine, one.classes.tolist(), one.counts.tolist()))
    return Solution(
        keep=state.keep,
        changes=contents([state.changes.get(e, NOTHING) for e in range(len(problem.nodes))]),
        boots=np.array([one.machine for one in boots], dtype=np.int64),
        booted=contents(boots),
        unplaced=state.unplaced,
    )


def contents(fillings: Sequence[NodeLoad]) -> Content:
    """Return what is in each of the fillings."""
    sizes = [one.classes.size for one in fillings]
    none = np.zeros(0, dtype=np.int64)
    return Content(
        start=np.concatenate([none, [0], np.cumsum(sizes)]).astype(np.int64),
        classes=np.concatenate([none, *(one.classes for one in fillings)]),
        counts=np.concatenate([none, *(one.counts for one in fillings)]),
    )


def filling(machine: int, counts: Mapping[int, int]) -> NodeLoad:
    """Return a node's load from pods by class; zeros are left out."""
    entries = sorted((c, n) for c, n in counts.items() if n)
    pairs = np.array(entries, dtype=np.int64).reshape(len(entries), 2)
    return NodeLoad(machine, pairs[:, 0].copy(), pairs[:, 1].copy())


Given: TypeAlias = Solution | NamedSolution
"""An answer as each solver gives it: in counts, or by name."""


@dataclass(frozen=True)
class Progress:
    """The best plan so far, and what no plan can cost less than."""

    phase: str
    cost: int
    """Of the incumbent, in millionths of the objective's unit: micro-USD per hour, or microwatts."""
    bound: int
    """In the same unit; 0 while nothing is known."""
    moves: int
    """Pods that the incumbent moves."""
    answer: Callable[[], Given] | None = field(default=None, compare=False, repr=False)
    """Makes the incumbent itself, to be kept in case the solve comes to no end; None: it is no better than before."""
    stops: tuple[Stop, ...] = field(default=(), compare=False, repr=False)
    """Of the phases that had ended by then."""
    unplaced: int = 0
    """Pending pods that the incumbent leaves without a place."""

    @property
    def gap(self) -> float | None:
        """Return how much dearer than the bound the incumbent is, as a share; None while there is no bound."""
        return (self.cost - self.bound) / self.bound if self.bound > 0 else None


Report: TypeAlias = Callable[[Progress], None]
"""Called whenever incumbent or bound improve; what it does is no part of any decision."""


def report_nothing(_: Progress) -> None:
    """Ignore progress."""


@dataclass(frozen=True, eq=False)
class IncumbentReport:
    """The best answer that a solve has reported, and how far it was then."""

    number: int
    """Number of the solve's report, from 1: the same again when the solve is repeated."""
    answer: Given
    bound: int
    stops: tuple[Stop, ...]


def incumbent_report(number: int, news: Progress) -> IncumbentReport | None:
    """Return the incumbent of a report; None where it has only figures."""
    return None if news.answer is None else IncumbentReport(number, news.answer(), news.bound, news.stops)
