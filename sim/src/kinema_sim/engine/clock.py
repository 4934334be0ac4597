"""Virtual time: an event queue that never looks at a wall clock."""

import hashlib
import heapq
from collections.abc import Callable
from datetime import UTC, datetime

EPOCH_MS = 1_767_600_000_000
"""Start of virtual time: 2026-01-05T08:00:00Z, a Monday morning."""

_MAX_EVENTS_PER_INSTANT = 1_000_000


def stamp(ms: int) -> str:
    """Write virtual milliseconds as Kubernetes writes times (UTC, whole seconds)."""
    return datetime.fromtimestamp(ms // 1000, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_stamp(text: str) -> int:
    """Read a Kubernetes time as milliseconds since 1970.

    Raises:
        ValueError: the text is not an RFC 3339 time.
    """
    return int(datetime.fromisoformat(text).timestamp() * 1000)


def digest(*parts: object) -> int:
    """Give a repeatable 256-bit number for a tuple of printable parts."""
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest(), "big")


def spread(what: str, seed: int, name: str, bounds: tuple[int, int]) -> int:
    """Give a repeatable number between two bounds, inclusive."""
    return bounds[0] + digest(what, seed, name) % (bounds[1] - bounds[0] + 1)


class Loop:
    """A queue of callbacks ordered by (time, priority, counter): ties always break the same way."""

    def __init__(self, start_ms: int = EPOCH_MS) -> None:
        self.now_ms = start_ms
        self._heap: list[tuple[int, int, int, Callable[[], None]]] = []
        self._counter = 0
        self._stamped = (-1, "")

    @property
    def now(self) -> str:
        """The virtual time as Kubernetes writes it."""
        second = self.now_ms // 1000
        if self._stamped[0] != second:
            self._stamped = second, stamp(self.now_ms)
        return self._stamped[1]

    def at(self, time_ms: int, action: Callable[[], None], *, priority: int = 0) -> None:
        """Run an action at a virtual time; a time in the past means now."""
        self._counter += 1
        heapq.heappush(self._heap, (max(time_ms, self.now_ms), priority, self._counter, action))

    def after(self, delay_ms: int, action: Callable[[], None], *, priority: int = 0) -> None:
        """Run an action once a delay has passed."""
        self.at(self.now_ms + delay_ms, action, priority=priority)

    def every(self, period_ms: int, action: Callable[[], None], *, priority: int = 0) -> None:
        """Run an action now and then on every multiple of the period, for good."""

        def tick() -> None:
            action()
            self.at((self.now_ms // period_ms + 1) * period_ms, tick, priority=priority)

        self.at(self.now_ms, tick, priority=priority)

    def run_until(self, time_ms: int) -> None:
        """Run everything due up to and including a time, then stand at that time.

        Raises:
            RuntimeError: an instant does not end, two controllers undo each other without a delay.
        """
        at_this_instant = 0
        while self._heap and self._heap[0][0] <= time_ms:
            due, _, _, action = heapq.heappop(self._heap)
            at_this_instant = at_this_instant + 1 if due == self.now_ms else 0
            if at_this_instant > _MAX_EVENTS_PER_INSTANT:
                raise RuntimeError(f"virtual time stands still at {self.now}: controllers work against each other")
            self.now_ms = due
            action()
        self.now_ms = max(self.now_ms, time_ms)
