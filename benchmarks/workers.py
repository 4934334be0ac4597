"""One search shared among worker processes over a real broker: time, and the same packing for any number of them.

All runs have the same seed and the same number of rounds. In the last one a worker is killed in the middle. Beside the
time on the clock, which others on the machine lengthen, stands what each process worked: with a processor for each of
them a run takes about as long as the search works and its busiest worker.

python -m benchmarks.workers [--pods N] [--rounds N]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from threading import Timer
from typing import Final

import msgspec

from benchmarks.instances import large
from benchmarks.solver import warm_up
from kinema_cli.local.nats_server import NatsServer
from kinema_core.runtime.nats_work import connect_work
from kinema_core.runtime.settings import RuntimeSettings
from kinema_core.runtime.setup import Layout, setup
from kinema_optimizer.problem.instance import Content, Instance, Solution, flaws
from kinema_optimizer.process.sharing import RemotePool
from kinema_optimizer.search.neighborhood import ThreadPool
from kinema_optimizer.search.search import SearchOptions, SearchResult, search
from kinema_optimizer.settings import NAME
from kinema_optimizer.solvers.stopping import WorkStop

CLUSTER: Final = "bench"
PODS: Final = 12_000
ROUNDS: Final = 12
"""Of every phase."""
KILL_SECONDS: Final = 4.0
READY_SECONDS: Final = 60.0


@dataclass(frozen=True)
class Run:
    """Number of worker processes, and whether one is killed."""

    workers: int
    killed: bool = False

    @property
    def name(self) -> str:
        """For people."""
        plural = "" if self.workers == 1 else "s"
        return f"{self.workers} worker{plural}" + (", one killed" if self.killed else "")


RUNS: Final = (Run(1), Run(2), Run(4), Run(2, killed=True))


def measure() -> dict[str, object]:
    """Seconds by number of workers, with two threads of one process for comparison."""
    return table(pods=PODS, rounds=ROUNDS)


def table(*, pods: int, rounds: int) -> dict[str, object]:
    """Results by run; raises AssertionError where two runs find different packings."""
    problem = large(pods, running=True)
    warm_up()
    rows: dict[str, object] = {"pods": pods, "nodes": len(problem.nodes), "rounds_of_a_phase": rounds}
    with ThreadPoolExecutor(max_workers=2) as pool:
        alone, row = _timed(problem, SearchOptions(task_pool=ThreadPool(pool)), rounds)
    rows["no worker, 2 threads"] = row
    for run in RUNS:
        with tempfile.TemporaryDirectory() as directory, _broker(Path(directory)) as settings:
            packing, rows[run.name] = _shared(problem, run, settings, directory=Path(directory), rounds=rounds)
        assert packing == alone, f"{run.name}: another packing"
    return rows


def _timed(problem: Instance, wish: SearchOptions, rounds: int) -> tuple[str, dict[str, object]]:
    began, worked = time.perf_counter(), time.process_time()
    found = search(problem, problem, wish, WorkStop(rounds))
    seconds, worked = time.perf_counter() - began, time.process_time() - worked
    assert flaws(problem, found.packing) == ()
    return _digest(found.packing), {"seconds": round(seconds, 2), "cpu_seconds": round(worked, 2), **_quality(found)}


def _worked(process: subprocess.Popen[bytes]) -> float | None:
    """Seconds that a process has worked; None where the system does not say (anything but Linux) or it is gone."""
    try:
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    ticks = int(fields[11]) + int(fields[12])
    return None if process.poll() is not None else ticks / os.sysconf("SC_CLK_TCK")


def _quality(found: SearchResult) -> dict[str, object]:
    gap = round(100 * (found.cost / found.bound.value - 1), 3)
    return {"cost": found.cost / 1e6, "gap_percent": gap, "moves": found.moves}


def _shared(
    problem: Instance, run: Run, settings: RuntimeSettings, *, directory: Path, rounds: int
) -> tuple[str, dict[str, object]]:
    with (
        _workers(run.workers, settings, directory) as processes,
        ThreadPoolExecutor(max_workers=2) as pool,
        RemotePool(partial(connect_work, settings, NAME), ThreadPool(pool)) as task_pool,
    ):
        timer = Timer(KILL_SECONDS, processes[0].kill)
        if run.killed:
            timer.start()
        before = [_worked(process) for process in processes]
        digest, row = _timed(problem, SearchOptions(task_pool=task_pool), rounds)
        timer.cancel()
        after = [_worked(process) for process in processes]
        row["cpu_seconds_of_workers"] = [
            round(b - a, 2) for a, b in zip(before, after, strict=True) if a is not None and b is not None
        ]
        if run.killed:
            assert processes[0].poll() is not None, f"the search ended before {KILL_SECONDS:g} s: no process was killed"
        return digest, {**row, "errands_by_workers": task_pool.answered, "errands_lost": task_pool.lost}


@contextmanager
def _broker(directory: Path) -> Iterator[RuntimeSettings]:
    server = NatsServer(directory / "nats")
    server.start()
    try:
        settings = RuntimeSettings(cluster=CLUSTER, nats_url=server.url, health_port=0)
        asyncio.run(setup(settings, Layout(clusters=(CLUSTER,))))
        yield settings
    finally:
        server.stop()


@contextmanager
def _workers(count: int, settings: RuntimeSettings, directory: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Worker processes that are waiting for work."""
    path = directory / "worker.json"
    path.write_bytes(msgspec.json.encode({"runtime": settings}))
    command = [sys.executable, "-m", "kinema_optimizer.process.worker", "--settings", str(path)]
    logs = [directory / f"worker-{index}.log" for index in range(count)]
    processes = []
    for log in logs:
        with log.open("wb") as out:
            processes.append(subprocess.Popen(command, stdout=out, stderr=out))  # noqa: S603 - our own module
    try:
        deadline = time.monotonic() + READY_SECONDS
        while not all(b'"working"' in log.read_bytes() for log in logs):
            assert time.monotonic() < deadline, "the workers were not ready in time"
            time.sleep(0.1)
        yield processes
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(20)


def _digest(packing: Solution) -> str:
    """Equal for equal packings."""
    arrays = [packing.keep, packing.boots, packing.unplaced]
    lists: tuple[Content, ...] = (packing.changes, packing.booted)
    for one in lists:
        arrays += [one.start, one.classes, one.counts]
    return sha256(b"|".join(array.tobytes() for array in arrays)).hexdigest()


def main() -> None:
    """Entry point of `python -m benchmarks.workers`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pods", type=int, default=PODS)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of every phase")
    given = parser.parse_args()
    print(
        json.dumps({**table(pods=given.pods, rounds=given.rounds), "load_1min": round(os.getloadavg()[0], 2)}, indent=2)
    )


if __name__ == "__main__":
    main()
