"""The simulated cluster as the services see it: read object by object, as it changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Final

import msgspec

from kinema_core.events import ClusterDelta, ClusterObject, FrozenMap, ObjectKey, Offer
from kinema_core.events.objects import kind_of
from kinema_core.model.catalog import offers_from
from kinema_core.model.catalog_file import CatalogRow
from kinema_core.model.cluster import Cluster, evolve, from_objects
from kinema_observer.logic.kubernetes import decode_object, is_read
from kinema_sim.cloud.machines import MAX_PODS
from kinema_sim.cloud.machines import Offer as Sold
from kinema_sim.cluster import Cluster as SimCluster
from kinema_sim.engine.kinds import ALL_KINDS
from kinema_sim.engine.objects import Key, key_of
from kinema_sim.engine.store import Change

_KINDS: Final = tuple(kind for kind in ALL_KINDS if is_read(kind.name, ""))
_UNSEEN: Final = frozenset({"Autoscaler", "Recommendation"})
"""Kinds whose changes are no reason for a policy to look again: their figures change with every scrape."""


def now_of(sim: SimCluster) -> datetime:
    """Return the virtual time."""
    return datetime.fromtimestamp(sim.loop.now_ms / 1000, UTC)


class View:
    """Everything that the observer reads, as of now."""

    def __init__(self, sim: SimCluster) -> None:
        self._sim = sim
        self._dirty: dict[tuple[str, Key], None] = {
            (kind.name, key_of(item)): None for kind in _KINDS for item in sim.store.sorted(kind)
        }
        self._of_name = {kind.name: kind for kind in _KINDS}
        self._seen: dict[tuple[str, Key], ClusterObject] = {}
        self.cluster: Cluster = from_objects([], version=1)
        self.changes = 0
        """How often anything changed that a policy looks at."""
        sim.store.subscribe(self._note)

    def _note(self, change: Change) -> None:
        if change.kind.name in self._of_name:
            self._dirty[change.kind.name, key_of(change.new)] = None

    def drain(self) -> Mapping[tuple[str, str], ClusterObject | None]:
        """Return what changed since the last call, by kind and key; None for what is gone."""
        found: dict[tuple[str, str], ClusterObject | None] = {}
        for name, key in sorted(self._dirty):
            raw = self._sim.store.find(self._of_name[name], key)
            item = None if raw is None else decode_object(name, msgspec.json.encode(raw))
            before = self._seen.get((name, key))
            if item is None:
                if before is not None:
                    found[kind_of(before), before.key] = None
                    del self._seen[name, key]
            elif item != before:
                found[kind_of(item), item.key] = item
                self._seen[name, key] = item
        self._dirty.clear()
        return found

    def contents(self) -> Iterator[ClusterObject]:
        """Return everything as last read."""
        return iter(self._seen.values())

    def refresh(self) -> Cluster:
        """Return the cluster as it is now."""
        changes = self.drain()
        if changes:
            upserts = tuple(item for item in changes.values() if item is not None)
            deletes = tuple(ObjectKey(kind=kind, key=key) for (kind, key), item in changes.items() if item is None)
            version = self.cluster.version + 1
            self.cluster = evolve(self.cluster, ClusterDelta(version=version, upserts=upserts, deletes=deletes))
            self.changes += any(kind not in _UNSEEN for kind, _ in changes)
        return self.cluster


def rows_of(sim: SimCluster) -> tuple[CatalogRow, ...]:
    """Return the price list as a provider reads it."""
    return tuple(_row(line, sold, sim) for line, sold in enumerate(sim.cloud.offers.values(), 1))


def _row(line: int, sold: Sold, sim: SimCluster) -> CatalogRow:
    available = 0 if sold.name in sim.cloud.sold_out else sim.cloud.available.get(sold.name)
    cpu, memory = sold.allocatable
    return CatalogRow(
        line=line,
        machine_type=sold.machine_type,
        vcpus=sold.vcpus,  # type: ignore[arg-type]  # whole numbers are fractions
        memory=sold.memory_bytes,
        micro_usd_per_hour=sold.usd_micro,
        zone=sold.zone,
        capacity_type="spot" if sold.capacity_type == "spot" else "on-demand",
        labels=FrozenMap(dict(sold.labels)),
        taints=sold.taints,
        allocatable_cpu=cpu,
        allocatable_memory=memory,
        max_pods=MAX_PODS,
        watts=float(sold.watts),
        available=available,
        extended=FrozenMap(),
    )


def offers_on_sale(sim: SimCluster, cluster: Cluster) -> tuple[Offer, ...]:
    """Return what is on sale now."""
    return offers_from(rows_of(sim), cluster)
