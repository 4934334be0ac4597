"""What it saves to size requests, to place pods, and to do both: neighbors' rules and Kinema on the same series.

    python -m benchmarks.saving [--series DIR] [--workloads 12] [--replicas 2] [--days 2] [--past 7] [--seed 1]
                                [--policy NAME] [--work 2] [--out FILE]

Workloads follow series of CPU and memory: generated ones of many kinds, by seed, or with `--series` the folder's
`cpu/*.csv` and `memory.csv`, each workload with another one, shifted by hours and scaled by seed; memory, which was
measured for less than a day, is repeated. Their owners declare half more than the largest of the week before, which
every recommender knows as well. Everything begins on nodes that hold the declared requests.

`NAME` is as `kinema simulate --policy` takes it; `kinema+kinema@1` lets a request change by all of it at once, and
`kinema+kinema@1@0.01` does so at a `cpu_risk` of 1%. Each result is written when it is there; those in the file already
are not simulated again.
"""

from __future__ import annotations

import argparse
import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import structlog

from benchmarks.machine import write_result
from benchmarks.usage_series import CPU_KINDS, MEMORY_KINDS, Series, cpu_files, generated, memory_file
from kinema_predictor.forecasting.task import Array
from kinema_sim.simulate.run import Result, run
from kinema_sim.simulate.scenario import Loaded, load_scenario

STEP: Final = 300
DAY: Final = 86_400
CARE: Final = 1.5
"""Times the largest usage of the week before that owners declare."""
CPU: Final = (500, 3000)
MEMORY_MIB: Final = (1024, 6144)
"""Largest usage of a pod, drawn evenly."""
NODE: Final = ("e2-standard-8", 8000 * 0.9, 28 * 1024)
"""Of the nodes at the beginning, with about as many millicores and MiB as they have for pods."""
TYPES: Final = ("e2-standard-2", "e2-standard-4", "e2-standard-8", "e2-highcpu-4", "e2-highcpu-8")
POLICIES: Final = (
    "none",
    "kinema",
    "karpenter+vpa",
    "karpenter+krr",
    "kinema+vpa",
    "kinema+krr",
    "kinema+kinema",
    "kinema+kinema@1",
    "kinema+kinema@1@0.01",
    "kinema+thesis",
    "thesis+thesis",
)
HEADER: Final = (
    "| sized and placed by | cost | mean nodes | short of CPU | above request | killed | moved or restarted | resized "
    "| disrupted | pod-hours pending |"
)


def loads(series: Path | None, count: int, steps: int, seed: int) -> list[tuple[Array, Array]]:
    """Return millicores and MiB of a pod of each workload, in steps of five minutes."""
    rng = np.random.default_rng([seed, count])
    if series is None:
        each = -(-count // len(CPU_KINDS))
        cpu = generated(CPU_KINDS, each=each, step_seconds=STEP, steps=steps, seed=seed)
        memory = generated(MEMORY_KINDS, each=-(-count // len(MEMORY_KINDS)), step_seconds=STEP, steps=steps, seed=seed)
    else:
        cpu, memory = cpu_files(series / "cpu"), [_slower(one) for one in memory_file(series / "memory.csv")]
    found = []
    for index in range(count):
        shift = int(rng.integers(0, 24)) * 12 if series is not None else 0
        pair = [_fitted(some[index * 7 % len(some)].values, steps, shift) for some in (cpu, memory)]
        tops = rng.uniform(*CPU), rng.uniform(*MEMORY_MIB)
        scaled = [values / max(float(values.max()), 1e-9) * top for values, top in zip(pair, tops, strict=True)]
        found.append((scaled[0], scaled[1]))
    return found


def _slower(one: Series) -> Series:
    """Return a series of minutes in steps of five, each the largest of its minutes."""
    per = round(STEP / one.step_seconds)
    whole = one.values[: len(one.values) // per * per].reshape(-1, per)
    return Series(one.name, STEP, whole.max(axis=1))


def _fitted(values: Array, steps: int, shift: int) -> Array:
    """Return so many steps of a series from a shift on, repeated where it is too short."""
    found: Array = np.tile(values, -(-(steps + shift) // len(values)))[shift : shift + steps]
    return found


def scenario(usage: Sequence[tuple[Array, Array]], *, replicas: int, past: int, days: int) -> Loaded:
    """Return the scenario of all of it."""
    workloads: list[dict[str, Any]] = []
    sources: dict[str, bytes] = {}
    known = past * DAY // STEP
    asked = np.zeros(2)
    for index, (cpu, memory) in enumerate(usage):
        name = f"usage/{index}.csv"
        pairs = enumerate(zip(cpu, memory, strict=True))
        rows = (f"{n * STEP},{max(1, round(millicores))},{max(1, round(mib))}" for n, (millicores, mib) in pairs)
        sources[name] = "\n".join(["seconds,cpu_m,memory_mi", *rows]).encode()
        declared = max(50, round(CARE * float(cpu[:known].max()))), max(64, round(CARE * float(memory[:known].max())))
        asked += np.array(declared) * replicas
        workloads.append(
            {
                "name": f"w{index}",
                "cpu": f"{declared[0]}m",
                "memory": f"{declared[1]}Mi",
                "replicas": replicas,
                "usage": name,
                "max_unavailable": 1,
            }
        )
    nodes = int(np.ceil(1.15 * max(asked / np.array(NODE[1:])))) + 1
    whole = {
        "name": "saving",
        "duration": f"{days}d",
        "past": f"{past}d",
        "cloud": {"types": list(TYPES)},
        "nodes": [{"type": NODE[0], "count": nodes}],
        "workloads": workloads,
        "resize_in_place": True,
    }
    sources["saving.yaml"] = msgspec.yaml.encode(whole)
    return load_scenario("saving.yaml", sources.__getitem__, Path("saving.yaml"))


def figures(result: Result, seconds: float) -> dict[str, object]:
    """Return what is compared."""
    whole = result.whole
    return {
        "usd": round(whole.usd, 2),
        "mean_nodes": round(whole.mean_nodes, 2),
        "cpu_short_percent": whole.cpu_short_percent,
        "cpu_above_request_percent": whole.cpu_above_request_percent,
        "killed": whole.killed,
        "moved_or_restarted": result.evictions,
        "resized": result.resized,
        "disrupted": result.disruptions,
        "pending_pod_hours": round(whole.pending_pod_seconds / 3600, 2),
        "usd_per_hour_at_the_end": result.samples[-1].usd_per_hour,
        "processor_seconds": round(seconds, 1),
        "notes": result.notes,
    }


def row(name: str, one: dict[str, Any]) -> str:
    """Return a row of the table."""
    cells = (
        name,
        f"${one['usd']:,.2f}",
        f"{one['mean_nodes']:.2f}",
        f"{one['cpu_short_percent']:.2f}%",
        f"{one['cpu_above_request_percent']:.2f}%",
        f"{one['killed']:,}",
        f"{one['moved_or_restarted']:,}",
        f"{one['resized']:,}",
        f"{one['disrupted']:,}",
        f"{one['pending_pod_hours']:.2f}",
    )
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Simulate, print the table and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--series", type=Path, help="folder of measured series: cpu/*.csv and memory.csv")
    parser.add_argument("--workloads", type=int, default=12)
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--days", type=int, default=2)
    parser.add_argument("--past", type=int, default=7, help="days of the series that are known at the beginning")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--policy", action="append", help=f"may be repeated; default: {', '.join(POLICIES)}")
    parser.add_argument("--work", type=int, default=2, help="of each solve")
    parser.add_argument("--out", type=Path, default=Path("out/bench/saving.json"), help="file to write")
    given = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    usage = loads(given.series, given.workloads, (given.past + given.days) * DAY // STEP, given.seed)
    loaded = scenario(usage, replicas=given.replicas, past=given.past, days=given.days)
    about = {
        "series": "measured" if given.series is not None else "generated",
        **{name: getattr(given, name) for name in ("workloads", "replicas", "days", "past", "seed", "work")},
    }
    before = json.loads(given.out.read_text())["result"] if given.out.exists() else {}
    found: dict[str, Any] = before.get("policies", {}) if before.get("about") == about else {}
    print(HEADER, "|" + "---|" * (HEADER.count("|") - 1), sep="\n", flush=True)
    for name in given.policy or POLICIES:
        if name not in found:
            policy, change, risk = (*name.split("@"), "", "")[:3]
            asked = {"max_change": change, **({"cpu_risk": float(risk)} if risk else {})}
            found[name] = figures(*run(loaded, policy, seed=given.seed, work=given.work, **asked))
            write_result("saving", {"about": about, "policies": found}, given.out)
        print(row(name, found[name]), flush=True)


if __name__ == "__main__":
    main()
