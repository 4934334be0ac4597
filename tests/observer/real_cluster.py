"""An observer that follows a real API server through a proxy, and the truth to compare it with."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
from tests.controlplane.access import Access
from tests.controlplane.plane import ControlPlane
from tests.controlplane.proxy import FaultyProxy
from tests.observer.scripted_source import folded
from tests.support.waiting import eventually

from kinema_core.model.cluster import Cluster, from_objects
from kinema_core.runtime.clock import SystemClock
from kinema_core.runtime.health import Health
from kinema_core.runtime.settings import RuntimeSettings
from kinema_kubernetes.client import Client, connect
from kinema_observer.adapters.reflector import Patience
from kinema_observer.adapters.source import RESOURCES, KubernetesSource
from kinema_observer.logic.changes import Changes
from kinema_observer.logic.drivers import Seen, assembled
from kinema_observer.logic.kubernetes import read
from kinema_observer.service import Observer
from kinema_observer.settings import Settings
from kinema_sim.memory_bus import MemoryBus

QUICK: Final = Patience(bookmark=30, shortest=0.05, longest=0.5, denied=0.5, missing=1)


class DatedSource(KubernetesSource):
    """Notes at which version of the cluster each kind stood when the observer last asked for changes."""

    versions: dict[str, str]

    def drain(self) -> Changes:
        """What changed, and the versions."""
        self.versions = {item.resource.path: item.version for item in self.reflectors if not item.off}
        return super().drain()


@dataclass
class Observed:
    """A real cluster with an observer that follows it through a proxy."""

    plane: ControlPlane
    proxy: FaultyProxy
    source: DatedSource
    observer: Observer
    api: Client
    bus: MemoryBus = field(default_factory=MemoryBus)

    async def do(self, method: str, path: str, body: Any = None, **more: str) -> Any:
        """Change something in the cluster, past the proxy."""
        return await asyncio.to_thread(self.plane.admin.request, method, path, body, **more)

    async def truth(self, versions: dict[str, str] | None = None) -> Cluster:
        """What a full list shows: just now, or at the version given for each path."""
        found: list[Seen] = []
        for resource in RESOURCES:
            at = ""
            if versions is not None:
                if resource.path not in versions:
                    continue
                at = f"?resourceVersion={versions[resource.path]}&resourceVersionMatch=Exact"
            elif any(item.off for item in self.source.reflectors if item.resource == resource):
                continue
            body = await self.do("GET", resource.path + at)
            items = (read(resource.kind, msgspec.json.encode(item)).item for item in body["items"])
            found += [item for item in items if item is not None]
        return from_objects(assembled(found))

    async def converged(self) -> None:
        """Wait until what readers fold equals a fresh list, and everything is followed."""

        async def same() -> bool:
            return not self.source.missing() and folded(self.bus).objects == (await self.truth()).objects

        await eventually(same)


@asynccontextmanager
async def observing(
    plane: ControlPlane,
    access: Access,
    directory: Path,
    *,
    patience: Patience = QUICK,
    as_client: Callable[[Client], Client] = lambda client: client,
) -> AsyncIterator[Observed]:
    """An observer with `access`, as a service has it, but for ticks: those a test makes, or `ticking`."""
    async with FaultyProxy(plane.admin).running() as proxy:
        file = proxy.through(access).write_kubeconfig(directory / "kubeconfig")
        api = as_client(await connect(str(file)))
        source = DatedSource(api, patience=patience, chance=random.Random(1))
        bus, clock = MemoryBus(), SystemClock()
        settings = Settings(runtime=RuntimeSettings(cluster="c1"), snapshot_deltas=5)
        observer = Observer(bus=bus, source=source, clock=clock, health=Health("observer", "c1"), settings=settings)
        following = asyncio.create_task(source.run())
        try:
            yield Observed(plane, proxy, source, observer, api, bus)
        finally:
            await _ended(following)
            await api.close()


@asynccontextmanager
async def ticking(observed: Observed) -> AsyncIterator[None]:
    """The observer publishes every tenth of a second within the block."""

    async def tick() -> None:
        while True:
            await observed.observer.tick()
            await asyncio.sleep(0.1)

    task = asyncio.create_task(tick())
    try:
        yield
    finally:
        await _ended(task)


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
