"""A random cluster simulated in process: planned, judged and rescheduled by the product, all in virtual time."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec
from tests.e2e.auditor import Auditor
from tests.e2e.follower import KINDS, Change, Objects, Told, key_of
from tests.history.environment import CONSTRAINTS, Write, completed, counted, labeled, price, steps_of
from tests.history.plan_step import WORK, accepted, history_of, planned
from tests.history.random_clusters import KEEP, RandomCluster
from tests.history.verdict import NothingToDoError, Verdict, verdict_on

from kinema_core.events import (
    AnyBody,
    CatalogPublished,
    ClusterDelta,
    ClusterObject,
    ClusterSnapshot,
    Event,
    ExecutionAborted,
    ExecutionCompleted,
    ObjectKey,
    ObserverHeartbeat,
    Offer,
    Plan,
)
from kinema_core.events.objects import kind_of
from kinema_core.model.cluster import Cluster, all_objects, evolve, from_objects
from kinema_core.runtime.bus import Lease
from kinema_core.runtime.envelope import origin
from kinema_core.runtime.health import Health
from kinema_core.runtime.settings import RuntimeSettings
from kinema_observer.logic.kubernetes import decode_object, is_read
from kinema_rescheduler.kubernetes.fenced import FencedClient
from kinema_rescheduler.kubernetes.writer import KubernetesWriter
from kinema_rescheduler.leadership.fence import Fence
from kinema_rescheduler.service import Dependencies, Rescheduler
from kinema_rescheduler.settings import Settings, SimSettings
from kinema_sim.api.errors import ApiError
from kinema_sim.api.kube import Patch
from kinema_sim.api.subresources import write_scale
from kinema_sim.cluster import Cluster as SimCluster
from kinema_sim.engine.kinds import ALL_KINDS, NAMESPACE, NODE, POD, Kind
from kinema_sim.engine.store import Change as SimChange
from kinema_sim.memory_bus import MemoryBus
from kinema_sim.scheduler import scores
from kinema_sim.scheduler.scores import least_allocated, most_allocated
from kinema_sim.simulate.pipeline import InProcessProvider, SimApi, SimClock

NAME: Final = "random"
_MERGE: Final = "application/merge-patch+json"
_KIND: Final = {kind.name: kind for kind in ALL_KINDS}
_SETTLE_SECONDS: Final = 40
_MOST_SECONDS: Final = 4 * 3600
"""Virtual seconds after which an execution counts as stuck."""
_HEARTBEAT_SECONDS: Final = 15


class SimSource:
    """Tells the auditor what changes in a simulated cluster."""

    def __init__(self, sim: SimCluster) -> None:
        self._sim = sim
        self.objects: Objects = {}
        self.lock = threading.Lock()
        self.gaps = 0

    def read(self) -> dict[str, str]:
        """Read everything."""
        for kind in KINDS:
            self.objects[kind] = {key_of(item): item for item in self._sim.store.each(_KIND[kind])}
        return dict.fromkeys(KINDS, str(self._sim.store.version))

    @contextmanager
    def following(self, versions: Mapping[str, str], changed: Told) -> Iterator[None]:
        """Follow within the block."""

        def note(change: SimChange) -> None:
            if change.kind.name not in KINDS:
                return
            held = self.objects[change.kind.name]
            if change.type == "DELETED":
                held.pop(key_of(change.new), None)
            else:
                held[key_of(change.new)] = change.new
            now = datetime.fromtimestamp(self._sim.loop.now_ms / 1000, UTC)
            changed(Change(now, change.type, change.kind.name, change.new))

        stop = self._sim.store.subscribe(note)
        try:
            yield
        finally:
            stop()


SCORERS: Final = {
    "most-allocated": tuple((most_allocated if one is least_allocated else one, n) for one, n in scores.SCORERS),
    "requested-to-capacity": scores.with_fit(most_allocated),  # by a straight line, which is the same
}


def simulated(cluster: RandomCluster) -> SimCluster:
    """Build the cluster in its environment and let it come to rest."""
    sim, around = SimCluster(cluster.seed), cluster.environment

    def complete(kind: Kind, item: dict[str, Any]) -> None:
        if kind is POD:
            completed(around, item)
        elif kind is NODE:
            labeled(around, item["metadata"]["name"], item["metadata"]["labels"])

    sim.store.admit_with(complete)
    sim.scheduler.scorers = SCORERS.get(around.scheduler, sim.scheduler.scorers)
    sim.scheduler.default_constraints = CONSTRAINTS.get(around.scheduler, ())
    for machine in cluster.machines:
        sim.cloud.adopt(machine.name, sim.cloud.offers[f"{machine.machine_type}/{machine.zone}/on-demand"], labels={})
    spaces = {item["metadata"]["namespace"] for _, item in cluster.objects}
    for name in ("default", "kube-system", *sorted(spaces)):
        sim.store.create(NAMESPACE, {"metadata": {"name": name}})
    for name, patch in around.nodes.items():
        write(sim, Write(0, "Node", "", name, patch))
    for kind, item in (*around.first, *cluster.objects):
        _create(sim, kind, item)
    sim.run_for(_SETTLE_SECONDS)
    for kind, item in around.last:
        _create(sim, kind, counted(item, len(sim.store.pods_in(item["metadata"]["namespace"]))))
    sim.run_for(1)
    return sim


def _create(sim: SimCluster, kind: str, item: dict[str, Any]) -> None:
    """Create an object; volumes and their claims are bound. What only completes pods is `completed`'s."""
    if kind in _KIND:
        made = sim.api.create(_KIND[kind], item["metadata"].get("namespace", ""), item)
        if kind.startswith("PersistentVolume"):
            key = (made["metadata"].get("namespace", ""), made["metadata"]["name"])
            sim.store.edit(_KIND[kind], key, lambda draft: draft.update(status={"phase": "Bound"}))


def write(sim: SimCluster, one: Write) -> None:
    """Do what another client does; what it is about may be gone."""
    kind = _KIND[one.kind]
    with suppress(ApiError):
        if one.create:
            sim.api.create(kind, one.namespace, one.body)
        elif one.part == "scale":
            write_scale(sim.api, kind, (one.namespace, one.name), body=one.body, content_type=_MERGE)
        else:
            sim.api.patch(kind, one.namespace, one.name, patch=Patch(one.body, _MERGE), part=one.part)


class SimulatedRun:
    """Everything around one plan: streams in memory, the services' own logic, the simulated cluster."""

    def __init__(self, cluster: RandomCluster, *, work: int = WORK, sim: SimCluster | None = None) -> None:
        """`work` is how far each solve goes; `sim` is the cluster where it is built already."""
        self.work = work
        self._around = cluster.environment
        self.sim = simulated(cluster) if sim is None else sim
        self.clock = SimClock(self.sim)
        self.bus = MemoryBus()
        self.auditor = Auditor(SimSource(self.sim), (KEEP,), others=cluster.environment.others)
        self._writes = sorted(cluster.environment.writes, key=lambda one: one.second)
        self._since: datetime | None = None
        self.plan: Plan | None = None
        self.begun = False
        """Whether the plan was accepted."""
        self.end: ExecutionCompleted | ExecutionAborted | None = None
        self._fence = Fence()
        self._changed: dict[tuple[str, str], None] = {}
        self._held: dict[tuple[str, str], ClusterObject | None] = {}
        """What was read of each object, by kind and key."""
        self._cluster = Cluster()
        self._told: datetime = self.clock.now()
        self.sim.store.subscribe(self._note)
        self._rescheduler = Rescheduler(
            settings=Settings(runtime=RuntimeSettings(cluster=NAME), provider=SimSettings(url="http://127.0.0.1:8001")),
            bus=self.bus,
            clock=self.clock,
            health=Health("rescheduler", NAME),
            writer=KubernetesWriter(FencedClient(SimApi(self.sim, self._fence), self._fence)),
            provider=InProcessProvider(self.sim, self._fence),
            dependencies=Dependencies(fence=self._fence),
        )

    @property
    def cost(self) -> float:
        """USD per hour of the machines that are paid for now, as plans know their prices."""
        paid = self.sim.cloud.machines.items()
        return sum(price(self._around, name, machine.offer.usd_micro / 10**6) for name, machine in paid)

    async def carry_out(self) -> None:
        """Observe, plan, judge, and carry out what was accepted."""
        lease = await self.bus.acquire("rescheduler", 3600)
        assert lease is not None
        self.lease = lease
        self._fence.hold(lease)
        await self._observe()
        with self.auditor.watching():
            await self._tick(lease)
            await self._tick(lease)  # publishes the catalog that the first one asked for
            self.begun = await self._accepted()
            if self.begun:
                await self._until_end(lease)

    async def _accepted(self) -> bool:
        """Whether the optimizer found a better plan and the decider accepted it."""
        self.plan = planned(self._cluster, self._offers(), self.clock.now(), work=self.work)
        return await accepted(self.bus, self.plan, self._cluster, self.clock.now(), name=NAME)

    async def _until_end(self, lease: Lease) -> None:
        deadline = self.clock.now() + timedelta(seconds=_MOST_SECONDS)
        seen = len(list(self.bus.events("LOG")))
        self._since = self._since or self.clock.now()
        while self.end is None and self.clock.now() < deadline:
            self.sim.run_for(1)
            self._let_others_write()
            await self._observe()
            await self._tick(lease)
            log = list(self.bus.events("LOG"))
            ends = [e.body for e in log[seen:] if isinstance(e.body, ExecutionCompleted | ExecutionAborted)]
            self.end, seen = (ends[0] if ends else None), len(log)

    def _let_others_write(self) -> None:
        """Do what other clients do by now, after the beginning of the first execution."""
        assert self._since is not None
        while self._writes and self._writes[0].second <= (self.clock.now() - self._since).total_seconds():
            for one in steps_of(self._writes.pop(0), self.sim.store.each(POD), self.sim.loop.now):
                write(self.sim, one)

    async def _tick(self, lease: Lease) -> None:
        await self._rescheduler.tick(lease)
        for _ in range(20):  # effects go on until all of them wait for time to pass
            await asyncio.sleep(0)

    async def close(self) -> None:
        """End what still runs."""
        tasks = self._rescheduler._tasks
        for task in tasks.values():
            task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*tasks.values(), return_exceptions=True)

    # --- the observer's part

    def _note(self, change: SimChange) -> None:
        if is_read(change.kind.name, ""):
            self._changed[change.kind.name, key_of(change.new)] = None

    async def _observe(self) -> None:
        """Publish what changed, or usage once a minute when nothing did."""
        if not self._cluster.version:
            for kind in (kind for name, kind in _KIND.items() if is_read(name, "")):
                self._changed.update(((kind.name, key_of(item)), None) for item in self.sim.store.sorted(kind))
            self._cluster = from_objects(self._difference()[0])
            await self._publish(ClusterSnapshot(version=1, objects=tuple(all_objects(self._cluster))), "state-1")
            return
        upserts, deletes = self._difference()
        version = self._cluster.version + 1
        if upserts or deletes:
            body = ClusterDelta(version=version, upserts=tuple(upserts), deletes=tuple(deletes))
            await self._publish(body, f"state-{version}")
            self._cluster = evolve(self._cluster, body)
        elif self.clock.now() - self._told >= timedelta(seconds=_HEARTBEAT_SECONDS):
            await self._publish(ObserverHeartbeat(version=self._cluster.version), f"heartbeat-{self.sim.loop.now_ms}")

    def _difference(self) -> tuple[list[ClusterObject], list[ObjectKey]]:
        """What is new since the last look."""
        upserts, deletes = [], []
        for kind, key in sorted(self._changed):
            space, _, name = key.rpartition("/")
            raw = self.sim.store.get(_KIND[kind], space, name)
            item = decode_object(kind, msgspec.json.encode(raw)) if raw is not None else None
            before = self._held.get((kind, key))
            if item is None and before is not None:
                deletes.append(ObjectKey(kind=kind_of(before), key=before.key))
            elif item is not None and item != before:
                upserts.append(item)
            self._held[kind, key] = item
        self._changed.clear()
        return upserts, deletes

    def _offers(self) -> tuple[Offer, ...]:
        [catalog] = [e.body for e in self.bus.events("LOG") if isinstance(e.body, CatalogPublished)]
        return catalog.offers

    async def _publish(self, body: AnyBody, id_: str, *, state: int = 0) -> Event:
        event = origin(body, id_=id_, cluster=NAME, iteration="it-1", now=self.clock.now(), state=state)
        await self.bus.publish(event)
        self._told = event.time
        return event


def carried_out(cluster: RandomCluster) -> Verdict:
    """Plan and carry out; raises what the product raises.

    Raises:
        NothingToDoError: there is no better plan.
    """
    began = time.monotonic()
    found = asyncio.run(_run(cluster))
    if found.end is None and not found.begun:
        raise NothingToDoError
    assert found.plan is not None
    return verdict_on(
        cluster.seed,
        history=history_of(found.bus, found.auditor),
        auditor=found.auditor,
        plan=found.plan,
        end=found.end,
        cost=found.cost,
        seconds=time.monotonic() - began,
    )


async def _run(cluster: RandomCluster) -> SimulatedRun:
    found = SimulatedRun(cluster)
    try:
        await found.carry_out()
    finally:
        await found.close()
    return found
