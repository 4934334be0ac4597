"""The observer's side of the STATE stream: one writer, versions without a gap."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256

import msgspec
import structlog

from kinema_core.events import ClusterDelta, ClusterObject, ClusterSnapshot, Event, ObserverHeartbeat
from kinema_core.model.cluster import Cluster, StateGapError, all_objects, contradiction, evolve, from_objects
from kinema_core.runtime.bus import Bus, ConflictError, Damaged, Stored
from kinema_core.runtime.envelope import origin
from kinema_core.runtime.faultpoint import faultpoint, register
from kinema_observer.errors import AnotherClusterError
from kinema_observer.logic.changes import (
    HEARTBEAT_EVERY,
    Changes,
    age_of,
    delta_of_changes,
    delta_of_contents,
    snapshot_due,
)

register("observer.delta.published", "observer.snapshot.published")
_KINDS = ("cluster-snapshot", "cluster-delta")
_DECIDED = ("iteration-started", "step-started")
"""Kinds of LOG events whose newest names the version of a state that was lost since."""


@dataclass
class _Stream:
    """Position in the stream: the last sequence of each subject, and version and time of the last snapshot."""

    deltas: int = 0
    snapshots: int = 0
    heartbeats: int = 0
    snapshot_version: int = 0
    snapshot_time: datetime | None = None
    highest: int = 0
    """The highest version ever published, as far as can be seen."""


class StatePublisher:
    """Publishes what the cluster is. All it remembers is a fold over what it published."""

    def __init__(self, bus: Bus, *, cluster: str, every: int, seconds: float) -> None:
        self._bus = bus
        self._name = cluster
        self._every = every
        self._seconds = seconds
        self._stream = _Stream()
        self._cluster: Cluster | None = None
        self._published: datetime | None = None
        """When anything was last published."""
        self._blind: tuple[str, ...] = ()
        """The kinds that are said to be out of date, as of the last heartbeat."""

    @property
    def cluster(self) -> Cluster | None:
        """The state as published; None when there is none, or the stream is damaged."""
        return self._cluster

    def age(self, now: datetime) -> timedelta:
        """Return how long ago anything was published; 0 before that."""
        return age_of(self._published or now, now)

    async def restore(self) -> None:
        """Fold what is in the stream.

        Raises:
            BusError: it cannot be read now.
        """
        stream, cluster = _Stream(), None
        last = await self._bus.last("STATE", "cluster-snapshot")
        beat = await self._bus.last("STATE", "observer-heartbeat")
        last_delta = await self._bus.last("STATE", "cluster-delta")
        stream.snapshots = last.sequence if last is not None else 0
        stream.heartbeats = beat.sequence if beat is not None else 0
        stream.deltas = last_delta.sequence if last_delta is not None else 0
        start = last.sequence if isinstance(last, Stored) else 1
        async for item in self._bus.read("STATE", start=start, kinds=_KINDS):
            cluster = _folded(cluster, item, stream)
        if cluster is None:  # ids of iterations and operations derive from versions: none may come again
            newest = [await self._bus.last("LOG", kind) for kind in _DECIDED]
            stream.highest = max([stream.highest, *(item.event.state for item in newest if isinstance(item, Stored))])
        if cluster is None and stream.highest:
            structlog.get_logger().warning("state stream is damaged: a new snapshot follows", version=stream.highest)
        body = beat.event.body if isinstance(beat, Stored) else None
        self._blind = body.blind if isinstance(body, ObserverHeartbeat) else ()
        self._stream, self._cluster = stream, cluster

    async def publish_contents(self, contents: Callable[[], Iterable[ClusterObject]], now: datetime) -> None:
        """Publish what leads from the published state to a full list: a first snapshot, or one delta.

        Raises:
            AnotherClusterError: the state in the stream is of a cluster that was there before under this name.
            ConflictError: another process writes too; restore, then call again. BusError: as the bus.
        """
        if self._cluster is not None:
            await self._publish_delta(delta_of_contents(self._cluster, self._of_this_cluster(contents())), now)
            return
        cluster = from_objects(contents(), version=self._stream.highest + 1)
        await self._publish_snapshot(cluster, now, digest=True)
        self._cluster = cluster

    def _of_this_cluster(self, contents: Iterable[ClusterObject]) -> Iterator[ClusterObject]:
        """Yield the objects; raises AnotherClusterError."""
        assert self._cluster is not None
        for item in contents:
            if found := contradiction(self._cluster, item):
                raise AnotherClusterError(
                    f"the broker holds the streams of another cluster of the name {self._name} ({found}): delete them, "
                    "or give this cluster another name"
                )
            yield item

    async def publish_changes(self, changes: Changes, now: datetime) -> None:
        """Publish what changed, if anything did, and a snapshot when one is due.

        Raises:
            ConflictError: another process writes too; restore, then call again. BusError: as the bus.
        """
        if self._cluster is None:
            raise RuntimeError("changes were published before the first full list")
        await self._check_stream()
        await self._publish_delta(delta_of_changes(self._cluster, changes), now)
        stream = self._stream
        deltas = self._cluster.version - stream.snapshot_version
        age = age_of(stream.snapshot_time or now, now)
        if snapshot_due(deltas=deltas, age=age, every=self._every, seconds=self._seconds):
            await self._publish_snapshot(self._cluster, now, digest=False)

    async def publish_heartbeat(self, blind: tuple[str, ...], now: datetime) -> None:
        """Publish a heartbeat where nothing else was published recently, or where other kinds are `blind` than before.

        Raises:
            ConflictError: another process writes too: restore and try again. BusError: as the bus.
        """
        recent = self._published is not None and self.age(now) < HEARTBEAT_EVERY
        if self._cluster is None or (recent and blind == self._blind):
            return
        body = ObserverHeartbeat(version=self._cluster.version, blind=blind)
        event = self._event(body, f"heartbeat-after-{self._stream.heartbeats}", now)
        self._stream.heartbeats = await self._bus.publish(event, expected_last=self._stream.heartbeats)
        self._published, self._blind = now, blind

    async def mark(self, now: datetime) -> int:
        """Publish a delta without changes and return its version.

        Usage readings come between two versions. A reader that folds the state up to this one has all readings until
        now, however long the cluster has been quiet.

        Raises:
            ConflictError: another process writes too; restore, then call again. BusError: as the bus.
        """
        if self._cluster is None:
            raise RuntimeError("a version was asked for before the first full list")
        await self._publish_delta(ClusterDelta(version=self._cluster.version + 1), now)
        return self._cluster.version

    async def _check_stream(self) -> None:
        """Notice a stream that was lost and begun again, also while nothing changes."""
        known = max(self._stream.deltas, self._stream.snapshots)
        head = await self._bus.head("STATE")
        if head < known:
            raise ConflictError(f"the state stream ends at {head}, but {known} was published: it was created again")

    async def _publish_delta(self, delta: ClusterDelta | None, now: datetime) -> None:
        if delta is None or self._cluster is None:
            return
        # The digest tells two writers' deltas of one version apart: the bus takes equal ids for the same event.
        event = self._event(delta, f"delta-{delta.version}-{_digest(delta)}", now)
        self._stream.deltas = await self._bus.publish(event, expected_last=self._stream.deltas)
        faultpoint("observer.delta.published")
        self._cluster, self._published = evolve(self._cluster, delta), now
        self._stream.highest = delta.version

    async def _publish_snapshot(self, cluster: Cluster, now: datetime, *, digest: bool) -> None:
        """Publish a snapshot. The one before it is part of its id, so that a version can be stated again."""
        snapshot = ClusterSnapshot(version=cluster.version, objects=tuple(all_objects(cluster)))
        name = f"snapshot-{cluster.version}-after-{self._stream.snapshots}"
        event = self._event(snapshot, f"{name}-{_digest(snapshot)}" if digest else name, now)
        self._stream.snapshots = await self._bus.publish(event, expected_last=self._stream.snapshots)
        faultpoint("observer.snapshot.published")
        self._stream.snapshot_version, self._stream.snapshot_time = cluster.version, now
        self._published = now
        self._stream.highest = cluster.version

    def _event(self, body: ClusterDelta | ClusterSnapshot | ObserverHeartbeat, name: str, now: datetime) -> Event:
        return origin(
            body,
            id_=f"{self._name}/observer/{name}",
            cluster=self._name,
            iteration="",
            now=now,
            state=body.version,
        )


def _digest(body: ClusterDelta | ClusterSnapshot) -> str:
    return sha256(msgspec.json.encode(body, order="deterministic")).hexdigest()[:12]


def _folded(cluster: Cluster | None, item: Stored | Damaged, stream: _Stream) -> Cluster | None:
    """Fold one item of the stream; None when the state is lost until the next snapshot."""
    if isinstance(item, Damaged):
        is_delta = item.subject.endswith(".cluster-delta")
        # Which version a damaged delta had cannot be known; one more than before is the least.
        stream.highest += is_delta
        return None if is_delta else cluster
    body = item.event.body
    if isinstance(body, ClusterSnapshot):
        stream.snapshot_version, stream.snapshot_time = body.version, item.event.time
    elif not isinstance(body, ClusterDelta) or cluster is None:
        stream.highest = max(stream.highest, body.version) if isinstance(body, ClusterDelta) else stream.highest
        return cluster
    stream.highest = max(stream.highest, body.version)
    try:
        return evolve(cluster or Cluster(), body)
    except StateGapError:
        return None
