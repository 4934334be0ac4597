"""When to stop a solve: by the clock, by an amount of work, or where a recorded solve stopped.

Every rule counts the solver's own callbacks, which come at the same places in every run of the same model with the same
seed on one thread. A solve that the clock ended at callback k therefore ends in the same state when it is ended at
callback k without a clock: that is how a replay repeats it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final, Literal, Protocol, TypeAlias

import msgspec

from kinema_core.events import Solve, Stop

StopReason: TypeAlias = Literal["time-limit", "work-limit"]

Ends: TypeAlias = Callable[[int], StopReason | None]
"""Why something ends at this iteration, or None when it goes on."""

SHARES = {
    "relaxation": 0.3,
    "unplaced": 0.4,
    "cost": 0.6,
    "bound": 0.4,
    "moves": 0.7,
    "quick": 0.1,
    "columns": 0.2,
    "dive": 0.8,
    "proof": 0.2,
    "search": 0.15,
    "near": 0.65,
    "selection": 0.6,
    "starts": 0.15,
    "last": 0.95,
    "exact-soon": 0.1,
    "exact-cost": 0.4,
    "exact-below": 0.8,
    "exact-preferences": 0.3,
    "exact-moves": 0.4,
    "exact-lost-1": 0.3,
    "exact-lost-2": 0.3,
    "exact-lost-3": 0.3,
    "exact-cost-of-most": 0.4,
}
"""Part of the time left that a phase may take; the last phase takes all."""
SLOWER = {"columns of a step": (12.0, "tries")}
"""Kinds of steps: as so many times the last one of another kind they are taken until one of them was done."""


class StopRule(Protocol):
    """Decides at every callback whether a phase of the solve ends there."""

    @property
    def recorded(self) -> Solve | None:
        """The recorded solve that is repeated, None when this one is new."""

    def begin(self, phase: str) -> None:
        """A phase begins; its callbacks are counted from 1."""

    def ends(self, iteration: int, coming: str = "") -> StopReason | None:
        """Why the phase ends at this callback, or None when it goes on.

        `coming` names what is done until the next callback, where a phase has steps of several kinds.
        """

    def beside(self, phase: str) -> Ends:
        """When a phase ends that runs beside others: asked after each of its iterations, from any thread."""

    def late(self) -> bool:
        """Whether the time of the phase is over in the middle of a step; never in a replay, which does not begin it."""

    def part(self, share: float) -> AbstractContextManager[None]:
        """What comes within the block takes at most this part of the time left."""

    def within(self, prefix: str) -> AbstractContextManager[None]:
        """What comes within the block is recorded with this before the names of its phases.

        A phase that went on to its end may not be in the record: the next one of its name would be taken for it.
        """

    def cancel(self) -> None:
        """End everything at the next callback: nobody wants the result any more. May come from another thread."""


def within(prefix: str, stops: Iterable[Stop]) -> tuple[Stop, ...]:
    """Where phases ended that began within such a block, for the record."""
    return tuple(msgspec.structs.replace(one, phase=prefix + one.phase) for one in stops)


class _Rule:
    def __init__(self, recorded: Solve | None = None) -> None:
        self.recorded = recorded
        self._cancelled = False
        self._phase = ""

    def begin(self, phase: str) -> None:
        """See `StopRule`."""
        self._phase = phase

    def late(self) -> bool:
        """See `StopRule`."""
        return self._cancelled

    def part(self, share: float) -> AbstractContextManager[None]:
        """See `StopRule`."""
        return nullcontext()

    def within(self, prefix: str) -> AbstractContextManager[None]:
        """See `StopRule`."""
        return nullcontext()

    def cancel(self) -> None:
        """See `StopRule`."""
        self._cancelled = True


PRICING: Final = "rule-prices"
"""The phase after the plan, in which what rules cost is worked out."""


class ClockStop(_Rule):
    """Ends after `seconds` in all; every phase gets its share of what is left when it begins.

    A phase that takes too long costs the next ones time, so it may end a little late. Nothing is begun of which the
    last of its kind took longer than there is left in all. A new kind is taken for what `SLOWER` says, or else for half
    as long again as the longest that came before without being of a kind, such as the first plan.

    Args:
        seconds: real seconds from now.
        pricing: part of them that `PRICING` has for itself, even where what came before took longer than it should.
    """

    def __init__(self, seconds: float, *, pricing: float = 0.0) -> None:
        super().__init__()
        self._end = time.monotonic() + seconds
        self._pricing = pricing * seconds
        self._deadline = self._end - self._pricing
        self._limit = self._phase_deadline = self._deadline
        self._began = time.monotonic()
        self._coming = ""
        self._took: dict[str, float] = {}
        self._longest = 0.0

    def begin(self, phase: str) -> None:
        """See `StopRule`."""
        super().begin(phase)
        now = time.monotonic()
        self._limit = max(self._end, now + self._pricing) if phase == PRICING else self._deadline
        self._phase_deadline = now + max(0.0, self._limit - now) * SHARES.get(phase, 1.0)
        self._began, self._coming = now, phase

    @contextmanager
    def part(self, share: float) -> Iterator[None]:
        """See `StopRule`."""
        now, deadline = time.monotonic(), self._deadline
        self._deadline = now + max(0.0, deadline - now) * share
        try:
            yield
        finally:
            self._deadline = deadline

    def ends(self, iteration: int, coming: str = "") -> StopReason | None:
        """See `StopRule`. Of the share, also where the next callback would more likely come after it than before."""
        now = time.monotonic()
        self._took[self._coming] = now - self._began
        if self._coming == self._phase:
            self._longest = max(self._longest, now - self._began)
        self._began, self._coming = now, coming or self._phase
        times, other = SLOWER.get(coming, (1.5, ""))
        unknown = times * self._took.get(other, self._longest) if coming else 0.0
        took = self._took.get(self._coming, unknown)
        over = now + took / 2 >= self._phase_deadline or now + took >= self._limit
        return "time-limit" if self._cancelled or over else None

    def late(self) -> bool:
        """See `StopRule`."""
        return self._cancelled or time.monotonic() >= self._limit

    def beside(self, phase: str) -> Ends:
        """See `StopRule`: its share of the time left is its own."""
        began = time.monotonic()
        deadline = began + max(0.0, self._deadline - began) * SHARES[phase]

        def ends(iteration: int) -> StopReason | None:
            now = time.monotonic()
            over = now + (now - began) / iteration >= deadline
            return "time-limit" if self._cancelled or over else None

        return ends


class WorkStop(_Rule):
    """Ends every phase after this many callbacks: repeatable without a recording."""

    def __init__(self, iterations: int) -> None:
        super().__init__()
        self._iterations = iterations

    def ends(self, iteration: int, coming: str = "") -> StopReason | None:
        """See `StopRule`."""
        return "work-limit" if self._cancelled or iteration >= self._iterations else None

    def beside(self, phase: str) -> Ends:
        """See `StopRule`."""
        return self.ends


class StepStop(WorkStop):
    """The same for a solve that is one step of another one's phase, and is given up when that is late."""

    def __init__(self, iterations: int, late: Callable[[], bool]) -> None:
        super().__init__(iterations)
        self._late = late
        self.given_up = False

    def ends(self, iteration: int, coming: str = "") -> StopReason | None:
        """See `StopRule`."""
        self.given_up = self.given_up or self._late()
        return "time-limit" if self.given_up else super().ends(iteration, coming)


class RecordedStop(_Rule):
    """Ends every phase where a recorded solve ended it, and leaves the others alone."""

    def __init__(self, recorded: Solve) -> None:
        super().__init__(recorded)
        self._stops: dict[str, list[Stop]] = {}
        for stop in recorded.stops:
            self._stops.setdefault(stop.phase, []).append(stop)
        self._now: Ends = lambda _: None
        self._prefix = ""

    @contextmanager
    def within(self, prefix: str) -> Iterator[None]:
        """See `StopRule`."""
        before, self._prefix = self._prefix, self._prefix + prefix
        try:
            yield
        finally:
            self._prefix = before

    def begin(self, phase: str) -> None:
        """See `StopRule`; a phase that comes again ends where it ended that time."""
        super().begin(phase)
        self._now = self.beside(phase)

    def ends(self, iteration: int, coming: str = "") -> StopReason | None:
        """See `StopRule`."""
        return self._now(iteration)

    def beside(self, phase: str) -> Ends:
        """See `StopRule`."""
        left = self._stops.get(self._prefix + phase, [])
        stop = left.pop(0) if left else None

        def ends(iteration: int) -> StopReason | None:
            if self._cancelled:
                return "time-limit"
            if stop is None or stop.reason in {"optimal", "infeasible"} or iteration < stop.iteration:
                return None
            return "time-limit" if stop.reason == "time-limit" else "work-limit"

        return ends
