"""When to stop a solve: by the clock, by an amount of work, or where a recorded solve stopped.

Every rule counts the solver's own callbacks, which come at the same places in every run of the same model with the same
seed on one thread. A solve that the clock ended at callback k therefore ends in the same state when it is ended at
callback k without a clock: that is how a replay repeats it.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final, Literal, TypeAlias

import msgspec

from kinema_core.events import Solve, Stop

StopReason: TypeAlias = Literal["time-limit", "work-limit"]

Ends: TypeAlias = Callable[[int], StopReason | None]
"""Why something ends at this iteration, or None when it goes on."""

Over: TypeAlias = Callable[[str], bool]
"""Whether a phase is over at this callback, given what comes next."""

SHARES = {
    "kernels": 0.8,
    "relaxation": 0.3,
    "unplaced": 0.4,
    "cost": 0.6,
    "bound": 0.4,
    "moves": 0.7,
    "quick": 0.1,
    "columns": 0.2,
    "dive": 0.45,
    "proof": 0.4,
    "search": 0.15,
    "near": 0.65,
    "selection": 0.6,
    "starts": 0.15,
    "last": 0.95,
    "frontier": 0.4,
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
BUILD: Final = "build"
"""The phase in which the model is built."""
BEGIN: Final = "begin"
"""The phase that ends at 0 where no time is left for a search."""
LOAD: Final = "load"
"""The same for a search that has to load its kernels: that takes somewhat longer than the imports before it did."""
DRAIN: Final = "drain"
"""The phase of a plan without a search, in which nodes are drained."""
KERNELS: Final = "kernels"
"""The phase in which a search waits for its kernels to be compiled."""
ORDER: Final = "order"
"""The phase in which the moves of a plan get an order."""
WAVE: Final = "wave"
"""Step of an order."""
PRICING: Final = "rule-prices"
"""The phase after the plan, in which what rules cost is worked out."""
FRONTIER: Final = "frontier"
"""The phase after the plan, in which parts of it are worked out."""
SLOWER = {"columns of a neighborhood": (12.0, "tries")}
"""Kinds of steps: as so many times the last one of another kind they are taken until one of them was done."""
EXPECTED = {BEGIN: 2.5, LOAD: 2.5, DRAIN: 1.0, ORDER: 1.0, WAVE: 0.0, PRICING: 2.0, FRONTIER: 2.0}
"""Kinds of steps: seconds that they take, for each second of `BUILD`, until one of them was done."""
KEPT = {PRICING: 1.5, FRONTIER: 1.5, ORDER: 1.5}
"""Seconds that a phase leaves for what comes after it, for each second of `BUILD`; see `_KEPT` for the others."""
_AFTER: Final = frozenset({PRICING, FRONTIER})
"""Phases after the plan is made, which share the time that is left for them."""
_KEPT: Final = EXPECTED[ORDER] + KEPT[ORDER] + 0.5
"""Likewise, for naming, ordering, checking and printing a plan: all grow as the model does, and slow down alike.

More than an order asks for, as phases end a step late: no plan that is found may be dropped for want of an order.
"""
_LOADING: Final = 1.5
"""Seconds that kernels take to load, for each second that imports took."""
_END: Final = 0.25
"""Seconds left to print and to end the process, for each second that importing and reading took."""
LATE_SHARE: Final = 0.1
LATE_SECONDS: Final = 2.0
"""By how much more than the time limit a plan that is at hand may be ordered and checked; no search is."""
PATIENT_SECONDS: Final = 10.0
"""The same at least, where nothing would be done without that plan: on a busy machine an order may take so long."""

_POLL_SECONDS: Final = 0.05


class Deadline:
    """The moment when a command or a job has to be done.

    Args:
        seconds: the time limit.
        began: what the clock showed when the work began; by default now.
        imports: seconds that imports took, from which the time to load kernels is estimated.
        clock: seconds that pass; a benchmark beside other work counts those of its own process.
    """

    def __init__(
        self,
        seconds: float,
        *,
        began: float | None = None,
        imports: float = 0.0,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.clock = time.monotonic if clock is None else clock
        self.began = self.clock() if began is None else began
        self.imports = imports
        self.seconds = seconds
        self.end = self.began + seconds
        self.latest = self.end + LATE_SHARE * seconds + LATE_SECONDS

    def left(self) -> float:
        """Return the seconds left, 0 when it is past."""
        return max(0.0, self.end - self.clock())


class StopRule(ABC):
    """Decides at every callback whether a phase of the solve ends there.

    Args:
        recorded: the recorded solve that is repeated, None when this one is new.
    """

    def __init__(self, recorded: Solve | None = None) -> None:
        self.recorded = recorded
        self._canceled = False
        self._phase = ""
        self._counts: Counter[str] = Counter()
        self._notes: list[Stop] = []

    def begin(self, phase: str) -> None:
        """Begin a phase; its callbacks are counted from 1."""
        self._phase = phase

    @abstractmethod
    def ends(self, iteration: int, coming: str = "") -> StopReason | None:
        """Return why the phase ends at this callback, or None when it goes on.

        `coming` names what is done until the next callback, where a phase has steps of several kinds.
        """

    @abstractmethod
    def beside(self, phase: str) -> Ends:
        """Return when a phase ends that runs beside others: asked after each of its iterations, from any thread."""

    def late(self) -> bool:
        """Return whether the time of the phase is over in the middle of a step; never before a replay is canceled."""
        return self._canceled

    def part(self, share: float) -> AbstractContextManager[None]:
        """Limit what comes within the block to this part of the time left."""
        return nullcontext()

    def punctual(self) -> AbstractContextManager[None]:
        """Let nothing within the block begin that ends after the limit: there is a plan without it."""
        return nullcontext()

    def patient(self) -> AbstractContextManager[None]:
        """Let orders that begin within the block end well after the limit: nothing would be done without them."""
        return nullcontext()

    def within(self, prefix: str) -> AbstractContextManager[None]:
        """Record what comes within the block with this before the names of its phases.

        A phase that went on to its end may not be in the record: the next one of its name would be taken for it.
        """
        return nullcontext()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Go on with the phase that is under way after those that begin within the block."""
        phase = self._phase
        try:
            yield
        finally:
            self._phase = phase

    def noted(self, phase: str) -> Over:
        """Begin a phase whose end the rule itself records; each has a number after its name.

        The function that is returned is called at each callback and says whether the phase ends there; from then on it
        says so always. Its argument names what is done until the next callback.
        """
        self._counts[phase] += 1
        name, count, ended = f"{phase}-{self._counts[phase]}", 0, False
        self.begin(name)

        def over(coming: str) -> bool:
            nonlocal count, ended
            reason = None if ended else self.ends(count, coming)
            if reason is not None:
                ended = True
                self._notes.append(Stop(reason=reason, phase=name, iteration=count))
            count += 1
            return ended

        return over

    def waits(self, phase: str, ready: Callable[[], bool]) -> bool:
        """Wait until something is ready; return False where the phase ends before that, and in a replay of that."""
        return not self.noted(phase)("")

    @property
    def notes(self) -> tuple[Stop, ...]:
        """Where `noted` phases and waits ended before they were done."""
        return tuple(self._notes)

    def cancel(self) -> None:
        """End everything at the next callback: no result is wanted. May come from another thread."""
        self._canceled = True


def within(prefix: str, stops: Iterable[Stop]) -> tuple[Stop, ...]:
    """Return where phases ended that began within such a block, for the record."""
    return tuple(msgspec.structs.replace(one, phase=prefix + one.phase) for one in stops)


class ClockStop(StopRule):
    """Ends by the clock; every phase gets its share of what is left when it begins.

    A phase that takes too long costs the next ones time. No step is begun of which the last of its kind took longer
    than there is left in all. A step of a new kind is expected to take what `SLOWER` or `EXPECTED` says, or else half
    as long again as the longest that came before without being of a kind, such as the first plan.

    Once the model is built, all phases leave time for what has to come after them (`KEPT`). A search begins, and a
    plan is ordered, also where that ends a little after the limit (`Deadline.latest`), unless it is to be `punctual`;
    much later where it may be `patient`.

    Args:
        limit: when all has to be done, or the seconds until then.
        pricing: part of the seconds left that is for `FRONTIER` and `PRICING`.
    """

    def __init__(self, limit: float | Deadline, *, pricing: float = 0.0) -> None:
        super().__init__()
        self._until = limit if isinstance(limit, Deadline) else Deadline(limit)
        self._latest = self._until.latest
        self._deadline = self._until.end - pricing * self._until.left()
        self._limit = self._phase_deadline = self._deadline
        self._began = self._until.clock()
        self._coming = ""
        self._took: dict[str, float] = {}
        self._longest = 0.0
        self._built = 0.0
        self._read = self._began - self._until.began

    @property
    def wanted(self) -> float:
        """Return the time limit, in seconds, with which a search would have begun."""
        solving = self._built * (1 + EXPECTED[LOAD] + _KEPT) + _LOADING * self._until.imports
        return max(0.0, self._read * (1 + _END) + solving - LATE_SECONDS) / (1 + LATE_SHARE)

    def begin(self, phase: str) -> None:
        """See `StopRule`."""
        super().begin(phase)
        now, kind = self._until.clock(), phase.rpartition("-")[0]
        kept = self._built * KEPT.get(phase if phase in _AFTER else kind, _KEPT) + self._read * _END
        self._limit = self._deadline - kept
        if phase in _AFTER:
            self._limit = self._until.end - kept
        if kind in {BEGIN, DRAIN, ORDER}:
            self._limit = self._latest - kept
        self._phase_deadline = now + max(0.0, self._limit - now) * SHARES.get(phase, SHARES.get(kind, 1.0))
        self._began, self._coming = now, phase

    def waits(self, phase: str, ready: Callable[[], bool]) -> bool:
        """See `StopRule`."""
        self._counts[phase] += 1
        if ready():
            return True
        name, before = f"{phase}-{self._counts[phase]}", self._phase
        self.begin(name)
        while not (done := ready()) and self._until.clock() < self._phase_deadline and not self._canceled:
            time.sleep(_POLL_SECONDS)
        if not done:
            self._notes.append(Stop(reason="time-limit", phase=name, iteration=0))
        self.begin(before)
        return done

    @contextmanager
    def part(self, share: float) -> Iterator[None]:
        """See `StopRule`."""
        now, deadline = self._until.clock(), self._deadline
        self._deadline = now + max(0.0, deadline - now) * share
        try:
            yield
        finally:
            self._deadline = deadline

    def punctual(self) -> AbstractContextManager[None]:
        """See `StopRule`."""
        return self._late_until(self._until.end)

    def patient(self) -> AbstractContextManager[None]:
        """See `StopRule`."""
        return self._late_until(max(self._latest, self._until.end + PATIENT_SECONDS))

    @contextmanager
    def _late_until(self, latest: float) -> Iterator[None]:
        before, self._latest = self._latest, latest
        try:
            yield
        finally:
            self._latest = before

    @contextmanager
    def aside(self) -> Iterator[None]:
        """See `StopRule`; what the block takes is no part of a step."""
        began, before = self._until.clock(), (self._limit, self._phase_deadline, self._began, self._coming)
        with super().aside():
            try:
                yield
            finally:
                self._limit, self._phase_deadline, self._began, self._coming = before
                self._began += self._until.clock() - began

    def ends(self, iteration: int, coming: str = "") -> StopReason | None:
        """See `StopRule`. Of the share, also where the next callback would more likely come after it than before."""
        now = self._until.clock()
        self._took[self._coming] = now - self._began
        if self._coming == BUILD:
            self._built = now - self._began
        elif self._coming == self._phase:
            self._longest = max(self._longest, now - self._began)
        self._began, self._coming = now, coming or self._phase
        times, other = SLOWER.get(coming, (1.5, ""))
        unknown = times * self._took.get(other, self._longest) if coming else 0.0
        if coming in EXPECTED:
            unknown = EXPECTED[coming] * self._built + (_LOADING * self._until.imports if coming == LOAD else 0.0)
        took = self._took.get(self._coming, unknown) if coming not in {BEGIN, LOAD, ORDER} else unknown
        over = now + took / 2 >= self._phase_deadline or now + took >= self._limit
        return "time-limit" if self._canceled or over else None

    def late(self) -> bool:
        """See `StopRule`."""
        return self._canceled or self._until.clock() >= self._limit

    def beside(self, phase: str) -> Ends:
        """See `StopRule`: its share of the time left is its own."""
        began = self._until.clock()
        kept = self._built * _KEPT + self._read * _END
        deadline = began + max(0.0, self._deadline - kept - began) * SHARES[phase]

        def ends(iteration: int) -> StopReason | None:
            now = self._until.clock()
            over = now + (now - began) / iteration >= deadline
            return "time-limit" if self._canceled or over else None

        return ends


class WorkStop(StopRule):
    """Ends every phase after this many callbacks: repeatable without a recording."""

    def __init__(self, iterations: int) -> None:
        super().__init__()
        self._iterations = iterations

    def ends(self, iteration: int, coming: str = "") -> StopReason | None:
        """See `StopRule`."""
        return "work-limit" if self._canceled or iteration >= self._iterations else None

    def beside(self, phase: str) -> Ends:
        """See `StopRule`."""
        return self.ends

    def noted(self, phase: str) -> Over:
        """See `StopRule`."""
        return lambda _: False


class StepStop(WorkStop):
    """Rule for a solve that is one step of another one's phase, and that stops when that phase is late."""

    def __init__(self, iterations: int, late: Callable[[], bool]) -> None:
        super().__init__(iterations)
        self._late = late
        self.given_up = False

    def ends(self, iteration: int, coming: str = "") -> StopReason | None:
        """See `StopRule`."""
        self.given_up = self.given_up or self._late()
        return "time-limit" if self.given_up else super().ends(iteration, coming)


class RecordedStop(StopRule):
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

    def noted(self, phase: str) -> Over:
        """See `StopRule`; its number says which it was."""
        before, self._prefix = self._prefix, ""
        over = super().noted(phase)
        self._prefix = before
        return over

    @contextmanager
    def aside(self) -> Iterator[None]:
        """See `StopRule`."""
        now = self._now
        with super().aside():
            try:
                yield
            finally:
                self._now = now

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
            if self._canceled:
                return "time-limit"
            if stop is None or stop.reason in {"optimal", "infeasible"} or iteration < stop.iteration:
                return None
            return "time-limit" if stop.reason == "time-limit" else "work-limit"

        return ends
