"""Latency from an observed change to the decision on it, at 1,000 nodes and 10,000 pods, the solve aside.

Predictor, optimizer and decider run their real loops over a real nats-server. Each round publishes one delta and one
started iteration, as the observer does, and waits for the decision; the seconds that the solver reports are taken off.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.synthetic import MEBIBYTE, cluster_objects, touched
from kinema_cli.local.nats_server import NatsServer
from kinema_core.events import (
    AnyBody,
    CatalogPublished,
    ClusterDelta,
    ClusterSnapshot,
    Event,
    ExecutionCompleted,
    FrozenMap,
    IterationStarted,
    NoPlanFound,
    Offer,
    Plan,
    PlanAccepted,
    Pod,
)
from kinema_core.runtime.bus import Bus, Stored
from kinema_core.runtime.collector import spare_the_collector
from kinema_core.runtime.envelope import origin
from kinema_core.runtime.health import Health
from kinema_core.runtime.nats_bus import connect
from kinema_core.runtime.serve import serve
from kinema_core.runtime.settings import RuntimeSettings
from kinema_core.runtime.setup import Layout, setup
from kinema_decider.logic.limits import Limits
from kinema_decider.service import Decider
from kinema_decider.settings import Settings as DeciderSettings
from kinema_optimizer.service import Optimizer
from kinema_optimizer.settings import PlanningSettings
from kinema_optimizer.settings import Settings as OptimizerSettings
from kinema_predictor.service import Predictor
from kinema_predictor.settings import Settings as PredictorSettings

NODES: Final = 1_000
PODS: Final = 10_000
ROUNDS: Final = 20
CLUSTER: Final = "bench"
SOLVE_SECONDS: Final = 1.0
WAIT_SECONDS: Final = 120.0
DECISIONS: Final = ("plan-accepted", "plan-rejected", "plan-approval-requested", "no-plan-found")
POLL_SECONDS: Final = 0.01
"""Adds up to this much to every figure; looking more often would take the time away from the services."""


def measure() -> dict[str, object]:
    """Milliseconds from the change to the decision without the solve: median, 90th percentile, worst."""
    spare_the_collector()
    with tempfile.TemporaryDirectory() as directory:
        return asyncio.run(_measure(Path(directory)))


async def _measure(directory: Path) -> dict[str, object]:
    server = NatsServer(directory)
    await asyncio.to_thread(server.start)
    tasks: list[asyncio.Task[None]] = []
    settings = RuntimeSettings(cluster=CLUSTER, nats_url=server.url, health_port=0)
    buses: list[Bus] = []
    try:
        await setup(settings, Layout(clusters=(CLUSTER,)))
        bus = await connect(settings)
        buses.append(bus)
        objects = cluster_objects(nodes=NODES, pods=PODS)
        await _publish(bus, "snapshot-1", ClusterSnapshot(version=1, objects=objects))
        await _publish(bus, "catalog-1", _catalog())
        for stage in _stages():
            buses.append(await connect(settings))
            tasks.append(asyncio.create_task(serve(stage, buses[-1], settings.clock(), Health(stage.name, CLUSTER))))
        pods = [item for item in objects if isinstance(item, Pod)][:20]
        rounds = [await _round(bus, number, pods) for number in range(2, ROUNDS + 3)]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for each in buses:
            await each.close()
        await asyncio.to_thread(server.stop)
    aside = sorted(total - solve for total, solve in rounds[1:])  # the first round builds every stage's state
    return {
        "nodes": NODES,
        "pods": PODS,
        "rounds": len(aside),
        "p50_ms": round(median(aside) * 1000, 1),
        "p90_ms": round(aside[int(len(aside) * 0.9)] * 1000, 1),
        "worst_ms": round(aside[-1] * 1000, 1),
        "first_ms": round((rounds[0][0] - rounds[0][1]) * 1000, 1),
        "solve_seconds_median": round(median(solve for _, solve in rounds[1:]), 3),
    }


def _stages() -> list[Any]:
    runtime = RuntimeSettings(cluster=CLUSTER)
    planning = PlanningSettings(time_limit_seconds=SOLVE_SECONDS, max_moves_fraction=1.0, redundancy=False, headroom=0)
    limits = Limits(cooldown_seconds=0.0, approval="automatic", max_moves_fraction=1.0, redundancy=False)
    return [
        Predictor(PredictorSettings(runtime=runtime)),
        Optimizer(OptimizerSettings(runtime=runtime, planning=planning)),
        # No rest between plans: every one is to be judged by all rules.
        Decider(DeciderSettings(runtime=runtime, limits=limits)),
    ]


def _catalog() -> CatalogPublished:
    offers = tuple(
        Offer(
            name=f"e2-standard-32/europe-west3-{zone}/on-demand",
            machine_type="e2-standard-32",
            zone=f"europe-west3-{zone}",
            capacity_type="on-demand",
            micro_usd_per_hour=1_380_000,
            capacity=FrozenMap({"cpu": 32_000, "memory": 128 * 1024 * MEBIBYTE, "pods": 110}),
            allocatable=FrozenMap({"cpu": 31_850, "memory": 120_000 * MEBIBYTE, "pods": 110}),
            labels=FrozenMap({"topology.kubernetes.io/zone": f"europe-west3-{zone}"}),
        )
        for zone in "abc"
    )
    return CatalogPublished(source="benchmark", priced=None, offers=offers)


async def _publish(bus: Bus, name: str, body: AnyBody, iteration: str = "") -> int:
    event = origin(body, id_=f"{CLUSTER}/observer/{name}", cluster=CLUSTER, iteration=iteration, now=datetime.now(UTC))  # noqa: TID251 - measures real time
    return await bus.publish(event)


async def _round(bus: Bus, version: int, pods: list[Pod]) -> tuple[float, float]:
    """Seconds from the change to the decision, and seconds of the solve."""
    changed = tuple(touched(pod, version) for pod in pods)
    began = time.perf_counter()
    await _publish(bus, f"delta-{version}", ClusterDelta(version=version, upserts=changed))
    started = IterationStarted(mode="reschedule", version=version, reason="benchmark")
    after = await _publish(bus, f"iteration-{version}", started, iteration=f"it-{version}")
    while time.perf_counter() - began < WAIT_SECONDS:
        # The plan itself is read after the clock has stopped: decoding it here would hold up the decider, which shares
        # this process.
        async for item in bus.read("LOG", start=after + 1, kinds=DECISIONS):
            after = item.sequence
            if isinstance(item, Stored):
                seconds = time.perf_counter() - began
                solve = await _solve_seconds(bus, item.event)
                if isinstance(item.event.body, PlanAccepted):  # over at once, or the next one would not be judged
                    done = ExecutionCompleted(plan=item.event.body.plan, fencing=1)
                    await _publish(bus, f"done-{version}", done, iteration=f"it-{version}")
                return seconds, solve
        await asyncio.sleep(POLL_SECONDS)
    raise TimeoutError(f"no decision on version {version} within {WAIT_SECONDS:g} s")


async def _solve_seconds(bus: Bus, decision: Event) -> float:
    """Seconds of the solve behind a decision; raises RuntimeError when there was no plan to decide on."""
    if isinstance(decision.body, NoPlanFound):
        raise RuntimeError(f"no plan: {decision.body.reason} {decision.body.figures}")  # noqa: TRY004 - no wrong type
    proposal = await bus.last("LOG", "plan-proposed")
    assert isinstance(proposal, Stored)
    assert isinstance(proposal.event.body, Plan)
    assert proposal.event.id == decision.cause
    return proposal.event.body.solve.seconds
