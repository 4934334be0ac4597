"""A week of a real trace under several policies: pods that arrive and leave, and workloads that use what was recorded.

    python -m benchmarks.week --pods pods-default.csv [--series cpu/] [--days 7] [--every 1] [--policy NAME]

Arrivals are those of a week of a production cluster (Alibaba cluster-trace-gpu-v2023: `creation_time`, `deletion_time`,
`cpu_milli`, `memory_mib`), CPU and memory alone; pods that are larger than the largest machine on sale are left out and
counted. `--every N` takes one pod in N, and so fewer nodes, where a whole week would take too long. Each file of the
directory of series (columns `timestamp`, `value` in percent) is the CPU of a Deployment.
"""

from __future__ import annotations

import argparse
import csv
import logging
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog

from benchmarks.load_tests import POLICIES
from kinema_cli.inputs import UsageError, policy_named
from kinema_sim.simulate.run import run
from kinema_sim.simulate.scenario import Loaded, load_scenario

DAY: Final = 86_400
LARGEST: Final = (31_000, 120_000)
"""Millicores and MiB that a pod may request."""
SERVICE_CPU: Final = 2000
"""Millicores that a pod of a series requests; 100% of the series are as many."""
REPLICAS: Final = 3
HEADER: Final = (
    "| policy | cost | mean nodes | evicted | disrupted | pod-hours pending | missing | hours simulated an hour |"
)


def arrivals(pods: Path, first: int, last: int, every: int = 1) -> tuple[bytes, int]:
    """Return a trace of one in `every` pods that run between two times (s), and how many were left out as too large."""
    rows, left = [], 0
    with pods.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            created, gone = int(row["creation_time"]), int(row["deletion_time"] or last)
            if created >= last or gone <= first:
                continue
            cpu, memory = int(row["cpu_milli"]), int(row["memory_mib"])
            if cpu > LARGEST[0] or memory > LARGEST[1]:
                left += 1
                continue
            rows.append((max(0, created - first), gone - max(first, created), cpu, memory))
    lines = ["at,lasts,cpu_m,memory_mi", *(",".join(map(str, row)) for row in sorted(rows)[::every])]
    return "\n".join(lines).encode(), left


def series(file: Path) -> bytes:
    """Return a recorded series as a pod's usage."""
    with file.open(encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    began = datetime.fromisoformat(rows[0]["timestamp"])
    found: dict[int, int] = {}
    for row in rows:
        at = int((datetime.fromisoformat(row["timestamp"]) - began).total_seconds())
        found[at] = min(SERVICE_CPU, round(float(row["value"]) * SERVICE_CPU / 100))
    lines_out = ["seconds,cpu_m", *(f"{at},{found[at]}" for at in sorted(found))]
    return "\n".join(lines_out).encode()


def scenario(trace: bytes, usage: Sequence[tuple[str, bytes]], days: int) -> Loaded:
    """Return the scenario of all of it."""
    whole: dict[str, Any] = {
        "name": "week",
        "duration": f"{days}d",
        "nodes": [{"type": "e2-standard-8", "count": 3}],
        "traces": [{"file": "pods.csv"}],
        "workloads": [
            {"name": f"service-{n}", "cpu": f"{SERVICE_CPU}m", "memory": "4Gi", "replicas": REPLICAS, "usage": name}
            for n, (name, _) in enumerate(usage)
        ],
    }
    sources = {"week.yaml": msgspec.yaml.encode(whole), "pods.csv": trace, **dict(usage)}
    return load_scenario("week.yaml", sources.__getitem__, Path("week.yaml"))


def main() -> None:
    """Simulate, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.week", description=__doc__)
    parser.add_argument("--pods", type=Path, required=True)
    parser.add_argument("--series", type=Path)
    parser.add_argument("--start-day", type=int, default=126)
    parser.add_argument("--days", type=int, default=7)
    parser.add_argument("--every", type=int, default=1, help="take one pod in so many")
    parser.add_argument("--policy", action="append", help="may be repeated; default: all but the thesis")
    parser.add_argument("--work", type=int, default=5)
    given = parser.parse_args()
    missing = [str(one) for one in (given.pods, given.series) if one is not None and not one.exists()]
    if missing:
        print(f"skipped: {', '.join(missing)} does not exist", file=sys.stderr)
        return
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    first = given.start_day * DAY
    trace, left = arrivals(given.pods, first, first + given.days * DAY, given.every)
    files = sorted(given.series.glob("*.csv")) if given.series else []
    loaded = scenario(trace, [(f"usage/{one.name}", series(one)) for one in files], given.days)
    print(f"{len(loaded.arrivals)} pods, {left} left out as too large; {len(files)} series", flush=True)
    try:
        policies = [policy_named(name) for name in given.policy or [one for one in POLICIES if one != "thesis"]]
    except UsageError as error:
        parser.error(str(error))
    print(HEADER, "|" + "---|" * (HEADER.count("|") - 1), sep="\n", flush=True)
    for policy in policies:
        result, seconds = run(loaded, policy, work=given.work)
        whole = result.whole
        cells = (
            policy,
            f"${whole.usd:,.0f}",
            f"{whole.mean_nodes:.1f}",
            str(result.evictions),
            str(result.disruptions),
            f"{whole.pending_pod_seconds / 3600:,.1f}",
            f"{whole.missing_pod_seconds / 3600:,.1f}",
            f"{given.days * DAY / seconds:,.0f}",
        )
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
