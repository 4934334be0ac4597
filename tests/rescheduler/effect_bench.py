"""A cluster writer and a provider beside the simulated cluster, for single effects."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
from tests.rescheduler.sim_world import SimWorld, sim_world

from kinema_core.events import Step, StepKind
from kinema_rescheduler.kubernetes.cluster import Made, Order
from kinema_rescheduler.kubernetes.fenced import FencedClient, connect
from kinema_rescheduler.kubernetes.writer import KubernetesWriter
from kinema_rescheduler.providers.sim import SimProvider
from kinema_sim.engine.kinds import DEPLOYMENT, NODE, POD
from kinema_sim.scenarios.registry import SCENARIOS

WEB = "Deployment/shop/web"


class Bench:
    """One writer and one provider beside the tiny cluster."""

    def __init__(self, world: SimWorld, api: FencedClient, provider: SimProvider) -> None:
        self.world = world
        self.api = api
        self.writer = KubernetesWriter(api)
        self.provider = provider

    async def perform(self, kind: StepKind, target: str = WEB, id_: str = "", **fields: Any) -> Made:
        """Make one step's effect, on the object that is there where no `uid` is given."""
        if "uid" not in fields:
            fields["uid"] = self.uid(self.web() if target == WEB else self.node(target))
        step = Step(id=id_ or f"{kind}/{target}/1", kind=kind, target=target, **fields)
        return await self.writer.perform(Order(step=step, plan="plan-1", iteration="it-1"))

    async def fault(self, **fields: Any) -> None:
        """Have the server misbehave."""
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{self.world.url}/sim/v1/faults", json=fields) as response,
        ):
            assert response.status < 300, await response.text()

    def node(self, name: str = "tiny-1") -> dict[str, Any]:
        """A node as the server has it."""
        found = self.world.sim.store.get(NODE, "", name)
        assert found is not None
        return found

    def web(self) -> dict[str, Any]:
        """The Deployment as the server has it."""
        found = self.world.sim.store.get(DEPLOYMENT, "shop", "web")
        assert found is not None
        return found

    def pods(self) -> list[dict[str, Any]]:
        """Web's pods as the server has them."""
        return [pod for pod in self.world.sim.store.sorted(POD, "shop") if pod["metadata"]["name"].startswith("web-")]

    def uid(self, item: dict[str, Any]) -> str:
        """Uid of an object."""
        return str(item["metadata"]["uid"])


@asynccontextmanager
async def bench_in(directory: Path) -> AsyncIterator[Bench]:
    """Serve the tiny cluster."""
    async with sim_world(SCENARIOS["tiny"](0), directory) as world:
        api, provider = await connect(str(world.kubeconfig)), SimProvider(world.url, timeout_seconds=2)
        yield Bench(world, api, provider)
        await provider.close()
        await api.close()


def alive(bench: Bench) -> set[str]:
    """Uids of web's pods that stay."""
    return {bench.uid(pod) for pod in bench.pods() if "deletionTimestamp" not in pod["metadata"]}


async def settled_for(bench: Bench, seconds: float) -> None:
    """Let virtual time pass."""
    end = bench.world.clock.now() + timedelta(seconds=seconds)
    async with asyncio.timeout(60):
        while bench.world.clock.now() < end:  # noqa: ASYNC110 - virtual time passes by itself
            await asyncio.sleep(0.02)


async def rolled(bench: Bench) -> None:
    """Wait until a rolling update has come to its end."""
    async with asyncio.timeout(60):
        while True:
            status = bench.web()["status"]
            seen = status.get("observedGeneration") == bench.web()["metadata"]["generation"]
            if seen and status.get("updatedReplicas") == status.get("replicas") == status.get("readyReplicas") == 3:
                return
            await asyncio.sleep(0.02)
