"""Course of a simulation over time: a sample whenever anything that is shown changes, and the figures of its phases.

A sample holds from its time to that of the next one, so sums over time are exact for all that changes by events. Usage
and throughput are measured every 15 seconds in between: of applications under load always, of pods that follow a series
where it went on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple

import msgspec

from kinema_sim.cloud.machines import Offer
from kinema_sim.cluster import Cluster
from kinema_sim.engine.kinds import DEPLOYMENT, NODE, POD, REPLICA_SET, STATEFUL_SET
from kinema_sim.engine.objects import (
    Key,
    Obj,
    controller_ref,
    is_finished,
    is_ready,
    is_terminating,
    name_of,
    namespace_of,
    uid_of,
)
from kinema_sim.engine.store import Change
from kinema_sim.load.generator import Moment
from kinema_sim.load.meter import Usage
from kinema_sim.simulate.executor import Tally

MEASURE_MS: Final = 15_000
_LAST: Final = 1_000


class Sample(msgspec.Struct, frozen=True):
    """The cluster from one moment until the next sample; `at` in seconds since the beginning."""

    at: float
    nodes: int
    ready_nodes: int
    usd_per_hour: float
    watts: int
    pods: int
    pending: int
    missing: int
    """Pods that workloads ask for and that are not Ready."""
    floor: float
    """The least share of Ready pods of any workload that asks for some."""
    requested_cpu: int
    requested_memory: int
    allocatable_cpu: int
    allocatable_memory: int
    used_cpu: int
    used_memory: int
    rps: float
    users: int
    zones: tuple[tuple[str, int], ...] = ()
    """Nodes by zone."""
    loaded: int = 0
    """Pods that follow a series or serve users, and run."""
    short: int = 0
    """Those of them that get less CPU than they want."""
    above: int = 0
    """Those of them that want more CPU than they request."""
    killed: int = 0
    """Pods that were killed for memory so far."""
    evictions: int = 0
    """Pods that the policy, or who sizes, moved or restarted so far."""
    disruptions: int = 0
    """Pods that stopped serving so far while their workload had too few of them."""
    resized: int = 0
    """Pods that got other requests so far, each time."""


class _Fleet(NamedTuple):
    """Machines that are paid for, in all."""

    nodes: int
    usd_per_hour: float
    watts: int
    zones: tuple[tuple[str, int], ...]


class _Room(NamedTuple):
    """What nodes have for pods and what these request, in all."""

    ready_nodes: int
    requested_cpu: int
    requested_memory: int
    allocatable_cpu: int
    allocatable_memory: int


@dataclass
class Recorder:
    """Takes the samples."""

    sim: Cluster
    samples: list[Sample] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)
    """What the policy, and who sizes, have done so far: they keep it, the samples state it."""
    restarts: int = 0
    """Pods that ended although their workload still wanted as many."""
    _armed: bool = False
    _measured: Moment | None = None
    _desired: dict[str, int] = field(default_factory=dict)
    _ready: dict[str, int] = field(default_factory=dict)
    _own: dict[str, int] = field(default_factory=dict)
    """Replicas that owners ask for, of workloads that a policy has lent some more."""
    _lacking: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Workloads with fewer Ready pods than they ask for: these, and how many they ask for."""
    _owned: tuple[list[Offer], _Fleet] | None = None
    _held: tuple[int, _Room] | None = None
    _sets: dict[str, str] = field(default_factory=dict)
    _pods: dict[str, tuple[str, bool]] = field(default_factory=dict)
    """Uid of each pod → its workload, and whether it serves."""

    def __post_init__(self) -> None:
        self.start = self.sim.loop.now_ms
        self.sim.store.subscribe(self._note)
        for kind in (DEPLOYMENT, STATEFUL_SET, REPLICA_SET, POD):
            for item in self.sim.store.each(kind):
                self._note(Change(0, "ADDED", kind, None, item))
        if self.sim.load.apps or self.sim.load.has_series:
            self.sim.loop.every(MEASURE_MS, self._measure, priority=_LAST)
        self._arm()

    def _note(self, change: Change) -> None:
        kind = change.kind
        if kind is POD:
            self._note_pod(change)
        elif kind in (DEPLOYMENT, STATEFUL_SET):
            key = f"{kind.name} {namespace_of(change.new)}/{name_of(change.new)}"
            if change.type == "DELETED":
                self._desired.pop(key, None)
            else:
                self._desired[key] = change.new["spec"].get("replicas", 1)
            self._count(key)
        elif kind is REPLICA_SET:
            owner = controller_ref(change.new)
            if owner is not None:
                self._sets[uid_of(change.new)] = f"{owner['kind']} {namespace_of(change.new)}/{owner['name']}"
        elif kind is not NODE:
            return
        self._arm()

    def lend(self, workload: str, replicas: int) -> None:
        """Take note that a policy changes the replicas of a workload: what it lends, its owner does not ask for."""
        if workload not in self._own:
            self._own[workload] = self._desired.get(workload, replicas)
        if replicas <= self._own[workload]:
            del self._own[workload]
        self._count(workload)

    def _wanted(self, workload: str) -> int:
        return self._own.get(workload, self._desired.get(workload, 0))

    def _count(self, workload: str) -> None:
        """Note whether a workload lacks pods, after any of what decides about it has changed."""
        ready, wanted = self._ready.get(workload, 0), self._wanted(workload)
        if workload in self._desired and ready < wanted:
            self._lacking[workload] = ready, wanted
        else:
            self._lacking.pop(workload, None)

    def _note_pod(self, change: Change) -> None:
        pod, uid = change.new, uid_of(change.new)
        owner = controller_ref(pod)
        workload = self._workload(owner, namespace_of(pod))
        serves = change.type != "DELETED" and is_ready(pod) and not is_terminating(pod) and not is_finished(pod)
        _, served = self._pods.get(uid, (workload, False))
        if serves != served:
            self._ready[workload] = self._ready.get(workload, 0) + (1 if serves else -1)
            self._count(workload)
            if not serves and self._ready[workload] < self._wanted(workload):
                self.restarts += 1
        if change.type == "DELETED":
            self._pods.pop(uid, None)
        else:
            self._pods[uid] = workload, serves

    def _workload(self, owner: Obj | None, namespace: str) -> str:
        if owner is None:
            return ""
        return self._sets.get(owner["uid"], f"{owner['kind']} {namespace}/{owner['name']}")

    def _arm(self) -> None:
        if not self._armed:
            self._armed = True
            self.sim.loop.at(self.sim.loop.now_ms, self._changed, priority=_LAST)

    def _measure(self) -> None:
        """Take a sample, unless usage can only be what it was."""
        moment = self.sim.load.moment
        if self.sim.load.apps or moment != self._measured:
            self._measured = moment
            self.take()

    def _changed(self) -> None:
        self._armed = False
        self.take()

    def take(self) -> None:
        """Take a sample now, if it differs from the last one."""
        found = self._sample()
        last = self.samples[-1] if self.samples else None
        if last is not None and last.at == found.at:
            self.samples.pop()
            last = self.samples[-1] if self.samples else None
        if last is None or msgspec.structs.replace(found, at=last.at) != last:
            self.samples.append(found)

    def _sample(self) -> Sample:
        sim = self.sim
        fleet, room = self._fleet(), self._room()
        usages = sim.load.usage() if sim.load.apps or sim.load.has_series else {}
        loaded, less, above = self._pressure(usages)
        return Sample(
            at=(sim.loop.now_ms - self.start) / 1000,
            nodes=fleet.nodes,
            ready_nodes=room.ready_nodes,
            usd_per_hour=fleet.usd_per_hour,
            watts=fleet.watts,
            pods=len(self._pods),
            pending=len(sim.scheduler.books.pending),
            missing=sum(wanted - ready for ready, wanted in self._lacking.values()),
            floor=round(min((ready / wanted for ready, wanted in self._lacking.values()), default=1.0), 4),
            requested_cpu=room.requested_cpu,
            requested_memory=room.requested_memory,
            allocatable_cpu=room.allocatable_cpu,
            allocatable_memory=room.allocatable_memory,
            used_cpu=sum(usage.cpu_nano for usage in usages.values()) // 1_000_000,
            used_memory=sum(usage.memory_bytes for usage in usages.values()),
            rps=round(sum(sim.load.flow(name).requests_per_1000s for name in sim.load.apps) / 1000, 3),
            users=sum(sim.load.users(name) for name in sim.load.apps),
            zones=fleet.zones,
            loaded=loaded,
            short=less,
            above=above,
            killed=0 if sim.memory is None else len(sim.memory.killed),
            evictions=self.tally.evictions,
            disruptions=self.restarts,
            resized=self.tally.resized,
        )

    def _fleet(self) -> _Fleet:
        """Return what the machines come to, added up again only where others are paid for."""
        offers = [machine.offer for machine in self.sim.cloud.machines.values()]
        if self._owned is None or self._owned[0] != offers:
            zones = Counter(offer.zone for offer in offers)
            usd = sum(offer.usd_micro for offer in offers) / 10**6
            watts = sum(offer.watts for offer in offers)
            self._owned = offers, _Fleet(len(offers), usd, watts, tuple(sorted(zones.items())))
        return self._owned[1]

    def _room(self) -> _Room:
        """Return what the nodes have and what is requested of it, added up again only where that has changed."""
        books = self.sim.scheduler.books
        if self._held is None or self._held[0] != books.version:
            infos = books.nodes()
            sums = [
                sum(amounts.get(name, 0) for amounts in each)
                for each in ([info.used for info in infos], [info.allocatable for info in infos])
                for name in ("cpu", "memory")
            ]
            self._held = books.version, _Room(sum(not info.taints for info in infos), *sums)
        return self._held[1]

    def _pressure(self, usages: Mapping[Key, Usage]) -> tuple[int, int, int]:
        """Count the pods under load, those that get less CPU than they want, and that want more than they request."""
        loaded = less = above = 0
        wanted = self.sim.load.wanted() if usages else {}
        for key, usage in usages.items():
            pod = self.sim.store.find(POD, key)
            if pod is None or not self.sim.load.is_loaded(pod):
                continue
            wants, bound = wanted[key].cpu_nano, self.sim.scheduler.books.bound(key)
            loaded += 1
            less += usage.cpu_nano < wants
            above += bound is not None and wants > bound[0].requests.get("cpu", 0) * 1_000_000
        return loaded, less, above


class Figures(msgspec.Struct, frozen=True):
    """Figures of a part of the time; means are weighted by time."""

    seconds: float
    usd: float
    """Paid in all."""
    mean_usd_per_hour: float
    min_usd_per_hour: float
    kwh: float
    mean_nodes: float
    max_nodes: int
    cpu_used_percent: float
    """Of allocatable CPU, where there is a load or a series."""
    cpu_requested_percent: float
    memory_used_percent: float
    memory_requested_percent: float
    mean_rps: float
    requests: float
    """Served in all."""
    pending_pod_seconds: float
    missing_pod_seconds: float
    """Pods that were asked for and not Ready, over time."""
    floor: float
    """The least share of Ready pods of any workload that asks for some, once those of the beginning have come up."""
    cpu_short_percent: float = 0.0
    """Share of the time of pods under load in which they get less CPU than they want: their node has no more."""
    cpu_above_request_percent: float = 0.0
    """Share of it in which they want more than they request."""
    killed: int = 0
    """Pods killed for memory."""
    evictions: int = 0
    """Pods that the policy, or who sizes, moved or restarted; those of a plan when it was accepted."""
    disruptions: int = 0
    """Pods that stopped serving while their workload had too few of them, whatever the reason."""
    resized: int = 0
    """Pods that got other requests, each time."""


def figures(samples: Sequence[Sample], start: float, end: float) -> Figures:
    """Return the figures between two times in seconds."""
    spans = [
        (sample, min(until, end) - max(sample.at, start))
        for sample, until in zip(samples, [*(later.at for later in samples[1:]), end], strict=True)
        if min(until, end) > max(sample.at, start)
    ]
    seconds = end - start

    def total(name: str) -> float:
        return float(sum(getattr(sample, name) * span for sample, span in spans))

    def percent(part: str, whole: str) -> float:
        base = total(whole)
        return round(100 * total(part) / base, 2) if base else 0.0

    last = samples[-1].at if samples else 0.0

    def count(name: str) -> int:
        """Count what came from `start` on and before `end`, or at it where the samples end there."""
        begun = max((getattr(sample, name) for sample in samples if sample.at < start), default=0)
        ended = max((getattr(sample, name) for sample in samples if sample.at < end or last <= end), default=0)
        return int(ended - begun)

    risen = _risen(samples)
    floors = [sample.floor for sample, _ in spans if sample.at >= risen]
    return Figures(
        seconds=seconds,
        usd=round(total("usd_per_hour") / 3600, 6),
        mean_usd_per_hour=round(total("usd_per_hour") / seconds, 6),
        min_usd_per_hour=min((sample.usd_per_hour for sample, _ in spans), default=0.0),
        kwh=round(total("watts") / 3600 / 1000, 6),
        mean_nodes=round(total("nodes") / seconds, 4),
        max_nodes=max((sample.nodes for sample, _ in spans), default=0),
        cpu_used_percent=percent("used_cpu", "allocatable_cpu"),
        cpu_requested_percent=percent("requested_cpu", "allocatable_cpu"),
        memory_used_percent=percent("used_memory", "allocatable_memory"),
        memory_requested_percent=percent("requested_memory", "allocatable_memory"),
        mean_rps=round(total("rps") / seconds, 3),
        requests=round(total("rps"), 1),
        pending_pod_seconds=round(total("pending"), 1),
        missing_pod_seconds=round(total("missing"), 1),
        floor=min(floors, default=spans[-1][0].floor if spans else 1.0),
        cpu_short_percent=percent("short", "loaded"),
        cpu_above_request_percent=percent("above", "loaded"),
        killed=count("killed"),
        evictions=count("evictions"),
        disruptions=count("disruptions"),
        resized=count("resized"),
    )


def _risen(samples: Sequence[Sample]) -> float:
    """Return when the pods of the beginning had come up: the floor reaches what it falls from first, or ends with.

    They are all created at once, so at first none is Ready, whatever the policy does. Where some never come up, the
    floor stays at what it reaches without them.
    """
    top = next((before.floor for before, after in pairwise(samples) if after.floor < before.floor), None)
    if top is None:
        top = samples[-1].floor if samples else 1.0
    return next((sample.at for sample in samples if sample.floor >= top), 0.0)
