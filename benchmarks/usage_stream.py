"""Usage of 10,000 workloads for 30 days: its size on the broker, and how long a restarted predictor takes to fold it.

    python -m benchmarks.usage_stream [--workloads 10000] [--days 30] [--out FILE]

Events are framed as they are stored, with their chunks; the broker's own bytes per message are not counted.
"""

from __future__ import annotations

import argparse
import json
import time
from datetime import timedelta
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.clusters import NOW
from benchmarks.machine import peak_rss_mib, write_result
from kinema_core.events import Event, UsageCompacted, UsageResampled
from kinema_core.model.usage import BLOCK_STEPS, checkpoint, step_start
from kinema_core.runtime.envelope import origin
from kinema_core.runtime.framing import Framed, frame, unpack
from kinema_core.runtime.setup import Layout
from kinema_predictor.forecasting.task import Array
from kinema_predictor.logic.history import History, remember

_STEP: Final = 300.0
_KEEP: Final = timedelta(days=21)


def measure(workloads: int = 10_000, days: int = 30) -> dict[str, object]:
    """Return sizes in MiB, seconds of a restart, and memory."""
    rng = np.random.default_rng(9)
    names = tuple(sorted(f"Deployment/team-{n % 97}/service-{n:05d}" for n in range(workloads)))
    levels = rng.lognormal(5, 1, workloads), rng.lognormal(12, 1, workloads)
    begin = step_start(NOW, _STEP, BLOCK_STEPS)
    stored: list[Framed] = []
    for day in range(days):
        start = begin - timedelta(days=days - day)
        table = _table(rng, levels, BLOCK_STEPS)
        body = checkpoint(table, names, start=start, step_seconds=_STEP)
        stored.append(frame(_event(body, f"row-{day}")))
    checkpoints = _mebibytes(stored)
    kept = Layout(clusters=("c",)).usage_steps
    for at in range(kept):
        start = begin + timedelta(seconds=_STEP * (at - BLOCK_STEPS))
        step = UsageResampled(start=start, step_seconds=_STEP, workloads=names, table=_table(rng, levels, 1))
        stored.append(frame(_event(step, f"step-{at}")))
    whole = _mebibytes(stored)
    before = peak_rss_mib()
    wall, began = time.perf_counter(), time.process_time()
    history = History()
    for framed in stored:
        payload = b"".join(chunk.payload for chunk in framed.chunks) or framed.payload
        encoding = framed.headers.get("Kinema-Encoding", "json") if not framed.chunks else "zstd"
        folded = unpack(encoding, payload)[0].body
        if isinstance(folded, UsageCompacted | UsageResampled):
            history = remember(history, folded, keep=_KEEP)
    return {
        "workloads": workloads,
        "days": days,
        "checkpoints_mib": checkpoints,
        "stream_mib": whole,
        "restart_cpu_seconds": round(time.process_time() - began, 2),
        "restart_seconds": round(time.perf_counter() - wall, 2),
        "steps_folded": history.steps,
        "peak_mib": round(peak_rss_mib()),
        "peak_before_restart_mib": round(before),
    }


def _event(body: UsageCompacted | UsageResampled, name: str) -> Event:
    return origin(body, id_=f"bench/observer/{name}", cluster="bench", iteration="", now=NOW)


def _table(rng: np.random.Generator, levels: tuple[Array, Array], steps: int) -> bytes:
    """Return codes of pods, CPU that follows the day with noise, and memory that wanders."""
    hour = np.sin(np.arange(steps) / BLOCK_STEPS * 2 * np.pi)
    cpu = levels[0][:, None] * (1.5 + hour + 0.1 * rng.normal(size=(len(levels[0]), steps)))
    memory = levels[1][:, None] * (1 + 0.01 * rng.normal(size=(len(levels[1]), steps)).cumsum(axis=1))
    amounts = np.stack([np.full(cpu.shape, 3.0), np.maximum(cpu, 0), np.maximum(memory, 1)])
    exponent = np.maximum(0, np.ceil(np.log2((amounts + 1) / 2048))).astype(np.int64)
    codes = (exponent << 11) | np.minimum(2047, np.ceil(amounts / 2.0**exponent)).astype(np.int64)
    table: bytes = codes.astype("<u2").tobytes()
    return table


def _mebibytes(stored: list[Framed]) -> float:
    size = sum(len(one.payload) + sum(len(chunk.payload) for chunk in one.chunks) for one in stored)
    return round(size / 2**20, 1)


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", type=int, default=10_000)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--out", type=Path, default=Path("out/bench/usage_stream.json"), help="file to write")
    arguments = parser.parse_args()
    result = measure(arguments.workloads, arguments.days)
    print(json.dumps(result, indent=2))
    write_result("usage_stream", result, arguments.out)


if __name__ == "__main__":
    main()
