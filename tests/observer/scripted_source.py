"""A cluster source whose contents a test sets, as a reflector would see them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from tests.support.manual_clock import ManualClock

from kinema_core.events import ClusterDelta, ClusterObject, ClusterSnapshot
from kinema_core.model.cluster import Cluster, evolve
from kinema_core.runtime.health import Health
from kinema_core.runtime.settings import RuntimeSettings
from kinema_observer.logic.changes import Changes
from kinema_observer.logic.drivers import identity
from kinema_observer.service import Observer
from kinema_observer.settings import Settings
from kinema_sim.memory_bus import MemoryBus

BEGIN = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)


class ScriptedSource:
    """Holds objects; `put` and `drop` count as changes."""

    def __init__(self, objects: Iterable[ClusterObject] = ()) -> None:
        self.all_listed = True
        self.problems: tuple[str, ...] = ()
        self._items: dict[tuple[str, str], ClusterObject] = {}
        self._changes: dict[tuple[str, str], ClusterObject | None] = {}
        self.put(*objects)

    def put(self, *objects: ClusterObject) -> None:
        """Objects as they are now."""
        for item in objects:
            self._items[identity(item)] = self._changes[identity(item)] = item

    def drop(self, *objects: ClusterObject) -> None:
        """Objects that are gone."""
        for item in objects:
            del self._items[identity(item)]
            self._changes[identity(item)] = None

    def listed(self) -> bool:
        """Whether everything has been listed."""
        return self.all_listed

    def missing(self) -> tuple[str, ...]:
        """What cannot be seen."""
        return self.problems

    def drain(self) -> Changes:
        """What changed since the last call."""
        changes, self._changes = self._changes, {}
        return changes

    def contents(self) -> Iterator[ClusterObject]:
        """Everything."""
        return iter(list(self._items.values()))


def observer(
    bus: MemoryBus, source: ScriptedSource, clock: ManualClock, *, health: Health | None = None, **settings: float
) -> Observer:
    """An observer of cluster `c1` on these parts."""
    chosen = Settings(runtime=RuntimeSettings(cluster="c1"), **settings)  # type: ignore[arg-type]  # numbers all
    return Observer(bus=bus, source=source, clock=clock, health=health or Health("observer", "c1"), settings=chosen)


def folded(bus: MemoryBus) -> Cluster:
    """What any reader folds from the stream, from its beginning."""
    cluster = Cluster()
    for event in bus.events("STATE"):
        if isinstance(event.body, (ClusterSnapshot, ClusterDelta)):
            cluster = evolve(cluster, event.body)
    return cluster


def state(bus: MemoryBus) -> list[tuple[str, int]]:
    """Kind and version of each state event, in order."""
    return [
        (event.type.rpartition(".")[0].removeprefix("cluster-"), event.body.version)
        for event in bus.events("STATE")
        if isinstance(event.body, (ClusterSnapshot, ClusterDelta))
    ]


def log(bus: MemoryBus) -> list[str]:
    """Ids of the LOG events, without their common beginning."""
    return [event.id.removeprefix("c1/observer/") for event in bus.events("LOG")]
