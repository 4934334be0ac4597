"""One iteration of the five services, from observed to executed, on a real control plane of 1,300 nodes.

    python -m benchmarks.scale [--nodes 1300] [--workloads 12000] [--pods-each 1] [--max-moves 3000] [--simulated]

As many nodes and workloads as in the thesis's experiment (6.2): Deployments of one pod each, spread over nodes that are
a quarter full. How many pods the plan may move decides how long its execution takes on this machine, which runs the
control plane, the fake nodes and the services alike. `--simulated` serves the cluster from Kinema's simulator instead,
and ends when the first step of the plan has begun: observed, forecast, planned, decided, and its order made.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import msgspec
from tests.controlplane.plane import Options
from tests.pipeline.pipeline_harness import Strikes, followed

from benchmarks.after_peak import PROGRAMS, EnoughError, Watchman, Wish, run_on
from benchmarks.faithful import as_recording
from benchmarks.machine import write_result
from benchmarks.starts import Start, e2_offers
from benchmarks.synthetic import cluster_objects
from kinema_cli.local.demo import DemoOptions, SimulatorAddress, start_pipeline
from kinema_cli.local.pipeline import LocalPipeline
from kinema_cli.local.processes import Child, first_line
from kinema_cli.local.settings import UNATTENDED, layered
from kinema_cli.local.simulator import Simulator
from kinema_core.model.cluster import from_objects
from kinema_core.runtime import starter
from kinema_sim.front.server import Server, write_kubeconfig
from kinema_sim.simulate.build import build

NODES: Final = 1_300
WORKLOADS: Final = 12_000
MAX_MOVES: Final = 3_000
_LARGE: Final = Options(
    only=PROGRAMS,
    node_silence_seconds=180,
    kubelets=32,
    flags={
        # As managed clusters of this size have them: the defaults are for small ones.
        "kube-controller-manager": (
            "--kube-api-qps=300",
            "--kube-api-burst=600",
            "--concurrent-deployment-syncs=20",
            "--concurrent-replicaset-syncs=20",
        ),
        "kwok": ("--node-lease-duration-seconds=240",),
    },
)


_STANDS_SECONDS: Final = 3600.0
"""Within which the simulator has to have started all pods."""


@dataclass(frozen=True)
class Size:
    """Size of the cluster."""

    nodes: int = NODES
    workloads: int = WORKLOADS
    pods_each: int = 1

    @property
    def start(self) -> Start:
        """The cluster itself."""
        pods = self.workloads * self.pods_each
        objects = cluster_objects(nodes=self.nodes, pods=pods, pods_per_workload=self.pods_each)
        return Start(from_objects(objects), e2_offers())


def measure() -> dict[str, object]:
    """At full size, for `python -m benchmarks`."""
    return run(Size(), Wish(max_moves=MAX_MOVES))


def run(size: Size, wish: Wish) -> dict[str, object]:
    """Set such a cluster up, and let the services work."""
    return {"workloads": size.workloads, **run_on(size.start, wish, _LARGE)}


def run_simulated(size: Size, wish: Wish) -> dict[str, object]:
    """Let the services plan such a cluster, which the simulator serves."""
    with tempfile.TemporaryDirectory() as directory:
        watchman = asyncio.run(_planned(size, replace(wish, planned=True), Path(directory)))
    whole = {"nodes": size.nodes, "workloads": size.workloads, "pods": size.workloads * size.pods_each}
    return {**whole, "api": "simulated", **watchman.figures(), "came_to_its_end": watchman.in_time}


async def _planned(size: Size, wish: Wish, folder: Path) -> Watchman:
    watchman = Watchman(wish)
    sizes = ("--nodes", size.nodes, "--workloads", size.workloads, "--pods-each", size.pods_each)
    serve = ("-m", "benchmarks.scale", "--serve", folder / "kubeconfig", *sizes)
    child = Child(name="simulator", arguments=tuple(map(str, serve)), log=folder / "logs" / "simulator.log")
    pipeline: LocalPipeline | None = None
    try:
        await child.start(read_output=True)
        address = msgspec.json.decode(await first_line(child, _STANDS_SECONDS), type=SimulatorAddress)
        print("the cluster stands", file=sys.stderr, flush=True)
        settings = layered(UNATTENDED, {"observer": {"stabilization_window_seconds": 30.0}}, wish.settings)
        pipeline = await start_pipeline(DemoOptions(out=folder), Simulator(address.url), settings=settings)
        with suppress(EnoughError):
            strikes = Strikes(chaos=watchman.look)
            await followed(pipeline, strikes, 2 * wish.most_seconds, until=lambda _: True)
    finally:
        if pipeline is not None:
            await pipeline.stop()
        await child.stop()
    return watchman


async def _serve(size: Size, kubeconfig: Path) -> None:
    """Serve the cluster until standard input ends."""
    cluster = build(as_recording("scale", size.start, 60), 0)
    while cluster.scheduler.books.pending:
        cluster.run_for(1)
    cluster.run_for(60)
    over = asyncio.Event()
    starter.call_when_gone(over.set)
    server = Server(cluster, speed=1.0)
    address = await server.start(0, "127.0.0.1")
    write_kubeconfig(kubeconfig, url=address.url, token="none")  # noqa: S106 - the simulator asks for none
    print(json.dumps({"url": address.url, "port": address.port}), flush=True)
    await over.wait()
    await server.stop()


def main() -> None:
    """Entry point of `python -m benchmarks.scale`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--workloads", type=int, default=WORKLOADS)
    parser.add_argument("--pods-each", type=int, default=1, help="pods of a workload")
    parser.add_argument("--max-moves", type=int, default=MAX_MOVES, help="pods that a plan moves at most")
    parser.add_argument(
        "--most-seconds",
        type=float,
        default=Wish.most_seconds,
        help="after which it is stopped, and what was reached is printed",
    )
    parser.add_argument("--solve-seconds", type=float, default=Wish.solve_seconds, help="time limit of a solve")
    parser.add_argument("--simulated", action="store_true", help="the simulator serves the cluster; ends with a plan")
    parser.add_argument("--serve", type=Path, metavar="KUBECONFIG", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=Path("out/bench/scale.json"))
    given = parser.parse_args()
    size = Size(given.nodes, given.workloads, given.pods_each)
    if given.serve is not None:
        asyncio.run(_serve(size, given.serve))
        return
    wish = Wish(max_moves=given.max_moves, most_seconds=given.most_seconds, solve_seconds=given.solve_seconds, plans=1)
    result = run_simulated(size, wish) if given.simulated else run(size, wish)
    print(json.dumps(result, indent=2))
    write_result("scale", result, given.out)


if __name__ == "__main__":
    main()
