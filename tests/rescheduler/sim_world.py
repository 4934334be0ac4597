"""A rescheduler with its real adapters beside the simulated cluster, over HTTP on loopback."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from kinema_core.events import (
    AnyBody,
    CatalogPublished,
    ClusterDelta,
    ClusterSnapshot,
    Event,
    ExecutionAborted,
    ExecutionCompleted,
    ObserverHeartbeat,
    Offer,
    Plan,
    PlanAccepted,
    StepFailed,
    StepSucceeded,
)
from kinema_core.model.cluster import Cluster, all_objects, difference, from_objects
from kinema_core.runtime.clock import Clock
from kinema_core.runtime.envelope import answer, origin
from kinema_core.runtime.health import Health
from kinema_core.runtime.settings import RuntimeSettings
from kinema_kubernetes.claim import ClusterClaim
from kinema_observer.logic.kubernetes import decode_object, is_read
from kinema_rescheduler.kubernetes.events import KubernetesEvents
from kinema_rescheduler.kubernetes.fenced import FencedClient, connect
from kinema_rescheduler.kubernetes.janitor import Janitor
from kinema_rescheduler.kubernetes.landing import LandingKeeper
from kinema_rescheduler.kubernetes.writer import KubernetesWriter
from kinema_rescheduler.leadership.fence import Fence
from kinema_rescheduler.plan.limits import Limits
from kinema_rescheduler.providers.base import Provider
from kinema_rescheduler.providers.sim import SimProvider
from kinema_rescheduler.service import Dependencies, Rescheduler
from kinema_rescheduler.settings import Settings, SimSettings
from kinema_sim.cluster import Cluster as SimCluster
from kinema_sim.engine.kinds import ALL_KINDS, DEPLOYMENT, STATEFUL_SET
from kinema_sim.front.server import Server, write_kubeconfig
from kinema_sim.memory_bus import MemoryBus

NAME = "sim"
_OURS = (
    b"kinema.io/disrupted",
    b"kinema.io/plan",
    b"kinema.io/fencing",
    b'"kinema.io/rolled"',
    b"kinema.io/resizing",
    b"kinema.io/rolling-update-before",
    b"kinema.io/replicas-limits-before",
    b"pod-deletion-cost",
)


class SimClock:
    """The simulated cluster's own time."""

    def __init__(self, server: Server, sim: SimCluster) -> None:
        self._server = server
        self._sim = sim

    def now(self) -> datetime:
        """The virtual time now."""
        self._server.driver.catch_up()
        return datetime.fromtimestamp(self._sim.loop.now_ms / 1000, UTC)

    async def sleep(self, seconds: float) -> None:
        """Wait in virtual time."""
        await asyncio.sleep(seconds / self._server.driver.speed)


class CrashError(Exception):
    """The process dies here."""


class ApiWorld(ABC):
    """A rescheduler beside an API server: streams in memory, everything else real."""

    look_seconds = 0.05
    """Real seconds between two observations."""

    def __init__(self, clock: Clock, kubeconfig: Path) -> None:
        self.bus = MemoryBus()
        self.clock = clock
        self.kubeconfig = kubeconfig
        self.name = NAME
        """Of the cluster, in events."""
        self.offers: tuple[Offer, ...] = ()
        self.crashes = 0
        self.claim: ClusterClaim | None = None
        """Without one, nobody disputes the cluster."""
        self._seen: Cluster | None = None
        self._read = 0
        """Events of the log that were looked at."""
        self._beat = datetime.min.replace(tzinfo=UTC)
        self._running: asyncio.Task[None]

    @abstractmethod
    def objects(self) -> Iterable[tuple[str, Any]]:
        """Kind and content of every object on the server."""

    @abstractmethod
    def provider(self, api: FencedClient, fence: Fence) -> Provider:
        """Who boots and deletes nodes here."""

    def cluster(self, version: int = 1) -> Cluster:
        """The cluster as an observer reads it."""
        raw = ((kind, msgspec.json.encode(item)) for kind, item in self.objects() if is_read(kind, ""))
        found = [item for kind, data in raw if (item := decode_object(kind, data)) is not None]
        return from_objects(found, version)

    async def publish(self, body: AnyBody, id_: str) -> Event:
        """An event of somebody else."""
        event = origin(body, id_=id_, cluster=self.name, iteration="it-1", now=self.clock.now())
        await self.bus.publish(event)
        return event

    async def observe(self) -> None:
        """Publish what changed."""
        if self._seen is None:
            self._seen, self._beat = self.cluster(), self.clock.now()
            await self.publish(ClusterSnapshot(version=1, objects=tuple(all_objects(self._seen))), "state-1")
            return
        now = self.cluster(self._seen.version + 1)
        upserts, deletes = difference(self._seen, now)
        if upserts or deletes:
            body = ClusterDelta(version=now.version, upserts=upserts, deletes=deletes)
            await self.publish(body, f"state-{now.version}")
            self._seen, self._beat = now, self.clock.now()
        elif self.clock.now() - self._beat > timedelta(seconds=10):
            self._beat = self.clock.now()
            await self.publish(ObserverHeartbeat(version=self._seen.version), f"heartbeat-{self._beat.isoformat()}")

    async def carry_out(
        self,
        make_plan: Callable[[Cluster, tuple[Offer, ...]], Plan],
        *,
        limits: Limits | None = None,
        crash_at: str = "",
        real_seconds: float = 60,
        provided: Callable[[FencedClient], Provider] | None = None,
    ) -> ExecutionCompleted | ExecutionAborted:
        """Start a rescheduler, have a plan made and accepted, and wait for its end; die once where `crash_at` says.

        `provided` makes the provider of each process; the world's own by default. An end may take `real_seconds`, and
        each one that `goes_on` so long again.
        """
        fence = Fence(self.claim.check) if self.claim is not None else Fence()
        api = await connect(str(self.kubeconfig), fence=fence)
        own = self.provider(api, fence)
        events = KubernetesEvents(api, "test")
        patience = (limits or Limits()).landing_seconds
        landing = LandingKeeper(api, clock=self.clock, patience_seconds=patience)

        def fault(name: str) -> None:
            if name == crash_at and not self.crashes:
                self.crashes += 1
                raise CrashError(name)

        def start() -> asyncio.Task[None]:
            service = Rescheduler(
                settings=Settings(
                    runtime=RuntimeSettings(cluster=NAME),
                    limits=limits or Limits(),
                    provider=SimSettings(url="http://127.0.0.1:8001"),
                    tick_seconds=0.05,
                ),
                bus=self.bus,
                clock=self.clock,
                health=Health("rescheduler", NAME),
                writer=KubernetesWriter(api),
                provider=provided(api) if provided is not None else own,
                dependencies=Dependencies(
                    fence=fence,
                    claim=self.claim,
                    landing=landing,
                    janitor=Janitor(api),
                    report=events.report,
                    fault=fault,
                ),
            )
            return asyncio.create_task(service.run())

        await self.observe()
        self._running = start()
        try:
            while True:
                async with asyncio.timeout(real_seconds):
                    end = await self._next_end(make_plan, start)
                    if not await self.goes_on(end):
                        return end
        finally:
            if events._open:  # a plan that ends at once ends before its story is told, which needs the lease
                await asyncio.wait(events._open, timeout=60)
            self._running.cancel()
            with suppress(asyncio.CancelledError):
                await self._running
            await events.close()
            if isinstance(own, SimProvider):
                await own.close()
            await api.close()

    async def goes_on(self, end: ExecutionCompleted | ExecutionAborted) -> bool:
        """Whether another plan was accepted after this end, whose own end is to be waited for."""
        return False

    async def _next_end(
        self, make_plan: Callable[[Cluster, tuple[Offer, ...]], Plan], start: Callable[[], asyncio.Task[None]]
    ) -> ExecutionCompleted | ExecutionAborted:
        while True:
            await asyncio.sleep(self.look_seconds)
            await self.observe()
            if self._running.done():
                with suppress(CrashError):
                    self._running.result()
                self._running = start()
            for event in tuple(self.bus.events("LOG"))[self._read :]:
                self._read += 1
                if isinstance(event.body, CatalogPublished) and not self.offers:
                    self.offers = event.body.offers
                    assert self._seen is not None
                    await self._accept(make_plan(self._seen, self.offers))
                if isinstance(event.body, ExecutionCompleted | ExecutionAborted):
                    return event.body

    async def _accept(self, plan: Plan) -> None:
        proposal = await self.publish(plan, "plan-1")
        body = PlanAccepted(plan=proposal.id, version=plan.base_version)
        accepted = answer(body, cause=proposal, service="decider", n=0, now=self.clock.now(), state=1)
        await self.bus.publish(accepted)

    def outcomes(self) -> dict[str, str]:
        """How each step ended."""
        bodies = [event.body for event in self.bus.events("LOG")]
        return {body.step: body.outcome for body in bodies if isinstance(body, StepSucceeded)}

    def failures(self) -> list[str]:
        """What went wrong, in words."""
        bodies = [event.body for event in self.bus.events("LOG")]
        return [f"{body.step} {body.reason} {body.detail}" for body in bodies if isinstance(body, StepFailed)]

    def marks_left(self) -> list[str]:
        """Everything of ours that is still on the cluster; what is being deleted takes its marks with it."""
        found: list[str] = []
        for kind, item in self.objects():
            if item["metadata"].get("deletionTimestamp"):
                continue
            metadata = {key: value for key, value in item["metadata"].items() if key != "managedFields"}
            text = msgspec.json.encode({"meta": metadata, "taints": item.get("spec", {}).get("taints")})
            name = f"{kind} {item['metadata']['name']}"
            found += [f"{name}: {key.decode()}" for key in _OURS if key in text]
            if kind == "ConfigMap" and item["metadata"]["name"] == "kinema-steering" and item.get("data"):
                found.append(f"steering: {item['data']}")
        return found


class SimWorld(ApiWorld):
    """The simulated cluster and its cloud."""

    def __init__(self, sim: SimCluster, server: Server, kubeconfig: Path, url: str) -> None:
        super().__init__(SimClock(server, sim), kubeconfig)
        self.sim = sim
        self.url = url
        self.least_ready: dict[str, int] = {}
        self.sim.store.subscribe(lambda _: self._watch())

    def _watch(self) -> None:
        """Least ready pods of every workload since the world began."""
        for kind in (DEPLOYMENT, STATEFUL_SET):
            for item in self.sim.store.each(kind):
                key = f"{kind.name}/{item['metadata']['namespace']}/{item['metadata']['name']}"
                ready = int((item.get("status") or {}).get("readyReplicas") or 0)
                self.least_ready[key] = min(ready, self.least_ready.get(key, ready))

    def objects(self) -> Iterable[tuple[str, Any]]:
        """All that the simulator holds."""
        return ((kind.name, item) for kind in ALL_KINDS for item in self.sim.store.sorted(kind))

    def provider(self, api: FencedClient, fence: Fence) -> Provider:
        """The simulated cloud, over HTTP."""
        return SimProvider(self.url, fence=fence)


@asynccontextmanager
async def sim_world(sim: SimCluster, directory: Path, *, speed: float = 40.0) -> AsyncIterator[SimWorld]:
    """Serve a simulated cluster and give the world around it."""
    server = Server(sim, speed=speed)
    address = await server.start()
    kubeconfig = directory / "kubeconfig"
    write_kubeconfig(kubeconfig, url=address.url, token="none")
    try:
        yield SimWorld(sim, server, kubeconfig, address.url)
    finally:
        await server.stop()
