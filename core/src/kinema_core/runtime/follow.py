"""Following the cluster's state: folds the STATE stream up to a version, no further.

Starts at the last snapshot that is not too new, or from the beginning where the state keeps a history. A missing or
damaged delta, or a stream that is not the one followed so far, makes the state unknown until the next snapshot.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Generic, TypeVar

from kinema_core.events import ClusterDelta, ClusterSnapshot, Event, kind_of_type
from kinema_core.runtime.bus import Bus, Damaged, Stored
from kinema_core.runtime.topology import kind_in

S = TypeVar("S")

_SNAPSHOT: Final = kind_of_type(ClusterSnapshot.TYPE)
_DELTA: Final = kind_of_type(ClusterDelta.TYPE)
_KEPT: Final = 16
"""Points to go back to: events may name a version a little older than the last one folded."""


SMALL_BYTES: Final = 64 * 1024
"""Events up to this size are kept or read again without a thought: plans may have megabytes."""


@dataclass
class Anchor:
    """The last small event that was read of LOG: another one in its place means that LOG is another stream."""

    sequence: int = 0
    id: str = ""

    def note(self, item: Stored | Damaged) -> None:
        """Take note of the next item that was read."""
        if self.sequence == 0 or isinstance(item, Damaged) or item.size <= SMALL_BYTES:
            self.sequence, self.id = item.sequence, item.id

    async def holds(self, bus: Bus, *, if_gone: bool) -> bool:
        """Return whether the event is there still; `if_gone`: the answer where retention has removed it."""
        if not self.sequence:
            return True
        found = [item.id async for item in bus.read("LOG", start=self.sequence, end=self.sequence)]
        return found == [self.id] if found else if_gone


class StateLostError(Exception):
    """The wanted state cannot be had: a version that was passed over, or unknown until the next snapshot."""


class _OtherStreamError(Exception):
    """The stream is not the one that was followed so far."""


@dataclass(frozen=True)
class _Point(Generic[S]):
    """A place in the stream with the state folded up to it."""

    state: S
    version: int = 0
    known: bool = False
    """False: a gap came after `version`, nothing holds until a snapshot."""
    sequence: int = 0
    last_id: str = ""
    """Id of the event at `sequence`: it shows whether the stream is still the same."""
    exact: bool = False
    """Nothing was folded after the event that brought `version`."""


class Follower(Generic[S]):
    """Folds STATE on demand.

    Args:
        initial: the state before any event.
        fold: pure function of a state and an event; gets snapshots, deltas in turn, and the other kinds asked for.
        kinds: further kinds of STATE events to fold.
        from_beginning: with further kinds, whether folding begins at the beginning of the stream, or at a snapshot.
    """

    def __init__(
        self,
        bus: Bus,
        initial: S,
        fold: Callable[[S, Event], S],
        kinds: tuple[str, ...] = (),
        *,
        from_beginning: bool = True,
    ) -> None:
        self._bus = bus
        self._initial = initial
        self._fold = fold
        self._history = kinds if from_beginning else ()
        self._kinds = (_SNAPSHOT, _DELTA, *kinds)
        self._points: deque[_Point[S]] = deque(maxlen=_KEPT)

    async def at(self, version: int) -> S:
        """Return the state folded up to and including a version, and not further.

        Raises:
            StateLostError: the stream does not lead to that version. BusError.
        """
        point = await self._advance(version)
        if not (point.known and point.version == version):
            raise StateLostError(f"state version {version} cannot be had: {_reached(point)}")
        return point.state

    async def latest(self) -> tuple[S, int]:
        """Return the newest state and its version.

        Raises:
            StateLostError: unknown until the next snapshot. BusError.
        """
        point = await self._advance(None)
        if not point.known:
            raise StateLostError(f"the newest state cannot be had: {_reached(point)}")
        return point.state, point.version

    async def _advance(self, version: int | None) -> _Point[S]:
        """Fold on from the best point up to the version, or to the end of the stream."""
        point = self._best(version)
        if not (point.exact and point.version == version):
            try:
                point = await self._fold_from(point, version)
            except _OtherStreamError:
                self._points.clear()
                point = await self._fold_from(_Point(self._initial), version)
        self._points.append(point)
        return point

    def _best(self, version: int | None) -> _Point[S]:
        """Return the furthest point from which the version can still be reached."""
        fit = [
            point
            for point in self._points
            if version is None or point.version < version or (point.version == version and point.exact)
        ]
        return max(fit, key=lambda point: point.sequence, default=_Point(self._initial))

    async def _fold_from(self, point: _Point[S], version: int | None) -> _Point[S]:
        begun = point
        start = point.sequence or await self._snapshot_start(version)
        async for item in self._bus.read("STATE", start=start, kinds=self._kinds):
            if item.sequence == begun.sequence:
                if item.id != begun.last_id:
                    raise _OtherStreamError
                continue
            point = self._step(point, item)
            if version is not None and point.known and point.version >= version:
                return point
        if point is begun and await self._bus.head("STATE") < begun.sequence:
            raise _OtherStreamError
        return point

    async def _snapshot_start(self, version: int | None) -> int:
        """Return where folding begins when nothing is folded yet."""
        if self._history:
            return 1
        last = await self._bus.last("STATE", _SNAPSHOT)
        if not isinstance(last, Stored) or not isinstance(last.event.body, ClusterSnapshot):
            return 1
        return last.sequence if version is None or last.event.body.version <= version else 1

    def _step(self, point: _Point[S], item: Stored | Damaged) -> _Point[S]:
        moved = replace(point, sequence=item.sequence, last_id=item.id, exact=False)
        if isinstance(item, Damaged):
            # A damaged snapshot re-states what is known, or leaves unknown what is unknown.
            return replace(moved, known=False) if kind_in(item.subject) == _DELTA else moved
        body = item.event.body
        if isinstance(body, ClusterSnapshot):
            return self._snapshot(moved, item.event, body.version)
        if isinstance(body, ClusterDelta):
            return self._delta(moved, item.event, body.version)
        return replace(moved, state=self._fold(moved.state, item.event))

    def _snapshot(self, point: _Point[S], event: Event, version: int) -> _Point[S]:
        if point.known and version == point.version:
            return point
        if version < point.version:
            # The observer began again: earlier versions have no meaning any more.
            self._points.clear()
        return replace(point, state=self._fold(point.state, event), version=version, known=True, exact=True)

    def _delta(self, point: _Point[S], event: Event, version: int) -> _Point[S]:
        if not point.known or version <= point.version:
            return point
        if version != point.version + 1:
            return replace(point, known=False)
        return replace(point, state=self._fold(point.state, event), version=version, exact=True)


def _reached(point: _Point[S]) -> str:
    if not point.sequence:
        return "the stream holds no state yet"
    if not point.known:
        return f"after version {point.version} the stream has a gap, and no snapshot since"
    return f"the stream leads to version {point.version}"
