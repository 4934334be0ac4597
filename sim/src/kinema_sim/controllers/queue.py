"""The work queue of a controller: keys to look after, each once per instant, in virtual time."""

from collections.abc import Callable
from enum import IntEnum

from kinema_sim.engine.clock import Loop
from kinema_sim.engine.kinds import Kind
from kinema_sim.engine.objects import Key, controller_ref, namespace_of
from kinema_sim.engine.store import Change


class Turn(IntEnum):
    """Who acts first at one instant."""

    CLEANUP = 5
    WORKLOAD = 20
    SET = 30
    BUDGET = 40
    SCHEDULER = 50
    KUBELET = 60


class WorkQueue:
    """Remembers which objects to look after.

    Args:
        loop: virtual time.
        turn: order among controllers at the same instant.
        sync: brings one object closer to what it asks for; must be safe to call at any time.
    """

    def __init__(self, loop: Loop, turn: Turn, sync: Callable[[Key], None]) -> None:
        self._loop = loop
        self._turn = turn
        self._sync = sync
        self._queued: set[Key] = set()

    def add(self, key: Key, *, delay_ms: int = 0) -> None:
        """Look after an object soon; a key that waits already waits only once."""
        if delay_ms:
            self._loop.after(delay_ms, lambda: self.add(key))
        elif key not in self._queued:
            self._queued.add(key)
            self._loop.after(0, lambda: self._work(key), priority=self._turn)

    def add_owner(self, change: Change, kind: Kind) -> None:
        """Queue the controller of a changed object, before and after the change, if it is of a kind."""
        for obj in (change.old, change.new):
            owner = controller_ref(obj) if obj is not None else None
            if obj is not None and owner is not None and owner["kind"] == kind.name:
                self.add((namespace_of(obj), owner["name"]))

    def _work(self, key: Key) -> None:
        self._queued.discard(key)
        self._sync(key)
