"""The observer on a real API server with 150,000 pods on 5,000 nodes: reading them all, and 20 changes a second.

Only etcd and the API server run, on this machine; the objects are written into etcd, as creating them one by one would
take an hour. What is measured is this process: it lists, decodes, folds and publishes as the service does.
"""

from __future__ import annotations

import asyncio
import random
import resource
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

import uvloop
from tests.controlplane.build import BuildError
from tests.controlplane.plane import ControlPlane, Options, running

from benchmarks.etcd_objects import Writer, changed, node, pod
from benchmarks.machine import peak_rss_mib
from kinema_core.runtime.clock import SystemClock
from kinema_core.runtime.collector import spare_the_collector
from kinema_core.runtime.health import Health
from kinema_core.runtime.settings import RuntimeSettings
from kinema_kubernetes.client import connect
from kinema_observer.adapters.reflector import Patience
from kinema_observer.adapters.source import KubernetesSource
from kinema_observer.service import Observer
from kinema_observer.settings import Settings
from kinema_sim.memory_bus import MemoryBus

NODES: Final = 5_000
PODS: Final = 150_000
RATE: Final = 20
SECONDS: Final = 30
"""Of steady state."""
_ETCD: Final = ("--quota-backend-bytes=8000000000", "--max-txn-ops=512", "--max-request-bytes=8000000")


def measure() -> dict[str, object]:
    """CPU seconds and memory of this process; says why when there is no control plane."""
    options = Options(only=("etcd", "kube-apiserver"), flags={"etcd": _ETCD})
    with tempfile.TemporaryDirectory() as folder:
        try:
            with (
                running(Path(folder) / "plane", options) as plane,
                asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,  # as the service does
            ):
                return runner.run(_measure(plane, Path(folder)))
        except BuildError as error:
            return {"skipped": str(error)}


async def _measure(plane: ControlPlane, folder: Path) -> dict[str, object]:
    spare_the_collector()
    writer = Writer(plane.etcd)
    began = time.perf_counter()
    writer.put(node(number) for number in range(NODES))
    size = writer.put(pod(number, NODES) for number in range(PODS))
    filled = time.perf_counter() - began
    await _warm(plane)
    api = await connect(str(plane.admin.write_kubeconfig(folder / "kubeconfig")), context="")
    source = KubernetesSource(api, patience=Patience(), chance=random.Random(1))
    settings = Settings(runtime=RuntimeSettings(cluster="bench"))
    observer = Observer(
        bus=MemoryBus(), source=source, clock=SystemClock(), health=Health("observer", "bench"), settings=settings
    )
    baseline = peak_rss_mib()
    wall, cpu = time.perf_counter(), time.process_time()
    following = asyncio.create_task(source.run())
    while not source.listed():  # noqa: ASYNC110 - the source has no event for it
        await asyncio.sleep(0.1)  # the service looks once a second: looking is not to be measured
    listed_wall, listed = time.perf_counter() - wall, time.process_time() - cpu
    listed_rss = peak_rss_mib()
    await observer.tick()
    folded = time.process_time() - cpu
    first = {
        "pods": PODS,
        "nodes": NODES,
        "bytes_per_pod": round(size / PODS),
        "filled_seconds": round(filled, 1),
        "list_and_decode_wall_seconds": round(listed_wall, 2),
        "list_and_decode_cpu_seconds": round(listed, 2),
        "first_publication_cpu_seconds": round(folded - listed, 2),
        "rss_before_mib": round(baseline),
        "rss_listed_mib": round(listed_rss),
        "rss_published_mib": round(peak_rss_mib()),
    }
    steady = await _steady(observer, writer)
    following.cancel()
    with suppress(asyncio.CancelledError):
        await following
    await api.close()
    return {**first, **steady, "peak_rss_mib": round(peak_rss_mib())}


async def _warm(plane: ControlPlane) -> None:
    """Wait until the API server has its own copy: its work is not ours."""
    await asyncio.to_thread(plane.admin.request, "GET", "/api/v1/pods?limit=1")


async def _steady(observer: Observer, writer: Writer) -> dict[str, object]:
    """Twenty pods change each second, and the observer ticks each second as it does by default."""
    chance = random.Random(2)
    used = children = 0.0
    before = observer.cluster.version if observer.cluster else 0
    for second in range(SECONDS):
        began = time.perf_counter()
        numbers = chance.sample(range(PODS), RATE)
        changes = [changed(number, NODES, second) for number in numbers]
        writing = time.process_time()
        await asyncio.to_thread(writer.put, changes)
        children += time.process_time() - writing
        cpu = time.process_time()
        await observer.tick()
        await asyncio.sleep(max(0.0, began + 1 - time.perf_counter()))
        used += time.process_time() - cpu
    assert observer.cluster is not None
    return {
        "steady_changes_per_second": RATE,
        "steady_cpu_percent_of_a_core": round(100 * used / SECONDS, 1),
        "steady_deltas": observer.cluster.version - before,
        "writer_cpu_percent_of_a_core": round(100 * children / SECONDS, 1),
        "kernel_share_percent": round(100 * resource.getrusage(resource.RUSAGE_SELF).ru_stime / time.process_time()),
    }
