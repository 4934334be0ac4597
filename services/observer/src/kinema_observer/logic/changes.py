"""Computation of the next delta from the changes that the source saw."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from kinema_core.events import ClusterDelta, ClusterObject, ObjectKey
from kinema_core.model.cluster import Cluster, difference, from_objects

Changes: TypeAlias = Mapping[tuple[str, str], ClusterObject | None]
"""Objects by kind and key as they are now; None for those that are gone."""

SNAPSHOT_AT_LEAST: Final = timedelta(hours=12)
"""A snapshot is stated again at least this often, so that the stream's retention never leaves readers without one."""
HEARTBEAT_EVERY: Final = timedelta(seconds=15)
"""A heartbeat follows when nothing else was published for so long: a quarter of the age at which readers stop."""


def delta_of_changes(cluster: Cluster, changes: Changes) -> ClusterDelta | None:
    """Return the delta that follows `cluster`; None when nothing is different from what was published."""
    upserts, deletes = [], []
    for kind, key in sorted(changes):
        old, new = cluster.objects.get(kind, {}).get(key), changes[kind, key]
        if new is None and old is not None:
            deletes.append(ObjectKey(kind=kind, key=key))
        elif new is not None and old != new:
            upserts.append(new)
    return _delta(cluster, tuple(upserts), tuple(deletes))


def delta_of_contents(cluster: Cluster, contents: Iterable[ClusterObject]) -> ClusterDelta | None:
    """Return the delta that leads from `cluster` to a full list; None when they are the same."""
    return _delta(cluster, *difference(cluster, from_objects(contents)))


def _delta(cluster: Cluster, upserts: tuple[ClusterObject, ...], deletes: tuple[ObjectKey, ...]) -> ClusterDelta | None:
    if not upserts and not deletes:
        return None
    return ClusterDelta(version=cluster.version + 1, upserts=upserts, deletes=deletes)


def snapshot_due(*, deltas: int, age: timedelta, every: int, seconds: float) -> bool:
    """Return whether to state a snapshot again, `deltas` versions and `age` after the last one."""
    return deltas >= every or (deltas > 0 and age >= timedelta(seconds=seconds)) or age >= SNAPSHOT_AT_LEAST


def age_of(then: datetime, now: datetime) -> timedelta:
    """Return how long ago; not negative, whatever the clocks say."""
    return max(timedelta(), now - then)
