"""`kinema plan` from files to JSON, in a process of its own: time besides the time limit, memory, gap, cost of rules.

    python -m benchmarks.plan [--only NAME …] [--time-limit 10] [--keep DIR] [--out FILE]

Snapshots are as long as kubectl prints them. Every plan is read back and passes the checker on the cluster that was
written, not on the one that was read.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.clusters import NOW
from benchmarks.instances import large_scene, limit_scene
from benchmarks.kubectl import printed
from benchmarks.machine import write_result
from benchmarks.starts import constraint_rich
from benchmarks.traces import write_catalog
from kinema_cli.plan.table import rules_checked
from kinema_core.events import FrozenMap, Offer, Plan
from kinema_core.model.checker.check import check_plan
from kinema_core.model.cluster import Cluster, all_objects

TIME_LIMIT: Final = 10.0
_HELPS: Final = 7


def instances() -> Mapping[str, Callable[[], tuple[Cluster, tuple[Offer, ...]]]]:
    """The clusters by name: 12,000 pods, the same number with rules on a quarter of the workloads, and 150,000."""

    def rich() -> tuple[Cluster, tuple[Offer, ...]]:
        start = constraint_rich()
        return start.cluster, start.offers

    return {
        "large": lambda: large_scene(running=True).cluster(),
        "rich": rich,
        "limit": lambda: limit_scene(running=True).cluster(),
    }


def measure() -> dict[str, object]:
    """All of them, for `python -m benchmarks`."""
    return table(list(instances()), time_limit=TIME_LIMIT)


def table(names: Sequence[str], *, time_limit: float, keep: Path | None = None) -> dict[str, object]:
    """Start-up of the command, and a row for each instance."""
    found: dict[str, object] = {"help_seconds": _help_seconds()}
    for name in names:
        with tempfile.TemporaryDirectory() as directory:
            found[name] = _row(name, keep or Path(directory), time_limit)
        print(name, json.dumps(found[name]), file=sys.stderr, flush=True)
    return found


def _help_seconds() -> float:
    """Of `kinema --help`, the median of a few runs."""
    runs = sorted(_run(["--help"], Path(os.devnull)).seconds for _ in range(_HELPS))
    return round(runs[_HELPS // 2], 3)


def _row(name: str, directory: Path, time_limit: float) -> dict[str, object]:
    """USD per hour, seconds, MiB.

    Raises:
        AssertionError: the plan breaks a rule.
    """
    cluster, offers = instances()[name]()
    snapshot, catalog, out = (directory / f"{name}{ending}" for ending in (".json", ".csv", ".plan.json"))
    with snapshot.open("wb") as file:
        file.writelines(printed(all_objects(cluster)))
    write_catalog(offers, catalog)
    files = ["--snapshot", str(snapshot), "--catalog", str(catalog)]
    run = _run(["plan", *files, "--time-limit", f"{time_limit:g}", "-o", "json"], out)
    plan = msgspec.json.decode(out.read_bytes(), type=Plan, dec_hook=lambda _, value: FrozenMap(value))
    wrong = check_plan(plan, cluster, offers, NOW)
    assert not wrong, (name, wrong[:5])
    return {
        "pods": len(cluster.pods),
        "nodes": len(cluster.nodes),
        "offers": len(offers),
        "snapshot_mb": round(snapshot.stat().st_size / 1e6, 1),
        "time_limit_seconds": time_limit,
        "seconds": round(run.seconds, 2),
        "besides_seconds": round(run.seconds - time_limit, 2),
        "cpu_seconds": round(run.cpu_seconds, 2),
        "peak_rss_mib": round(run.peak_mib),
        "status": plan.status,
        "cost_before": plan.cost.before,
        "cost": plan.cost.after,
        "bound": plan.cost.lower_bound,
        "gap_percent": None if plan.cost.gap is None else round(100 * plan.cost.gap, 3),
        "moves": plan.moves,
        "unplaced": len(plan.unplaced),
        "held": len(plan.held),
        "constraint_costs": {one.constraint: one.usd_per_hour for one in plan.constraint_costs},
        "rules_checked": rules_checked(plan),
        "load_1min": round(os.getloadavg()[0], 2),
    }


@dataclass(frozen=True)
class _Ran:
    """Time and memory of a run of the command."""

    seconds: float
    cpu_seconds: float
    peak_mib: float


def _run(arguments: Sequence[str], out: Path) -> _Ran:
    """Run `kinema` with these arguments, its output to a file.

    Raises:
        SystemExit: it failed.
    """
    command = [str(Path(sys.executable).with_name("kinema")), *arguments]
    with out.open("wb") as file:
        began = time.perf_counter()
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.DEVNULL)  # noqa: S603 - our own command
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"`{' '.join(command)}` failed with {process.returncode}")
    return _Ran(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def main() -> None:
    """Entry point of `python -m benchmarks.plan`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(instances()), help="instances; by default all")
    parser.add_argument("--time-limit", type=float, default=TIME_LIMIT, help="seconds for the solver")
    parser.add_argument("--keep", type=Path, help="leave snapshots, catalogs and plans in this directory")
    parser.add_argument("--out", type=Path, default=Path("out/bench/plan.json"))
    given = parser.parse_args()
    if given.keep is not None:
        given.keep.mkdir(parents=True, exist_ok=True)
    result = table(given.only or list(instances()), time_limit=given.time_limit, keep=given.keep)
    write_result("plan", result, given.out)


if __name__ == "__main__":
    main()
