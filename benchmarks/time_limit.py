"""Check that `kinema plan` keeps its time limit: also with cold caches, on one processor, beside busy loops.

    python -m benchmarks.time_limit [--only NAME …] [--time-limit 1 2 10] [--cold] [--one-processor] [--busy 4]
        [--ruled DIR] [--out FILE]

A command ends in time within 1.25 times its limit and 5 seconds. The worst case is `--cold --one-processor --busy 4`:
no compiled kernels, a fifth of one processor. Python's byte code is compiled by the installation.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.kubectl import printed
from benchmarks.machine import write_result
from benchmarks.plan import instances
from benchmarks.traces import write_catalog
from kinema_core.events import FrozenMap, Plan
from kinema_core.model.cluster import all_objects
from kinema_optimizer.columns import compiled

LIMITS: Final = (1.0, 2.0, 10.0)
SHARE: Final = 1.25
SECONDS: Final = 5.0
"""A command may take so many times its limit, and so many seconds more."""
_LOOP: Final = "while True: pass"


@dataclass(frozen=True)
class Conditions:
    """Circumstances of a command."""

    cold: bool = False
    """No kernel is compiled."""
    one_processor: bool = False
    """The command and the busy loops have one processor together."""
    busy: int = 0
    """Processes that compute all the time."""


def table(files: Mapping[str, tuple[Path, Path]], limits: Sequence[float], conditions: Conditions) -> dict[str, object]:
    """Return a row for each input, a snapshot and a catalog, at each time limit."""
    found: dict[str, object] = {}
    for name, (snapshot, catalog) in files.items():
        for limit in limits:
            row = _row(snapshot, catalog, limit, conditions)
            found[f"{name} {limit:g} s"] = row
            print(name, json.dumps(row), file=sys.stderr, flush=True)
    return found


def _row(snapshot: Path, catalog: Path, limit: float, conditions: Conditions) -> dict[str, object]:
    files = ["--snapshot", str(snapshot), "--catalog", str(catalog)]
    command = [
        str(Path(sys.executable).with_name("kinema")),
        "plan",
        *files,
        "--time-limit",
        f"{limit:g}",
        "-o",
        "json",
    ]
    with tempfile.TemporaryDirectory() as directory, _without_kernels(conditions), _busy(conditions):
        environment = dict(os.environ)
        if conditions.cold:
            environment["NUMBA_CACHE_DIR"] = f"{directory}/numba"
        began = time.perf_counter()
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        ran = subprocess.run(  # noqa: S603 - our own command
            _pinned(command, conditions), env=environment, capture_output=True, check=False
        )
        elapsed, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    row: dict[str, object] = {
        "limit": limit,
        "elapsed": round(elapsed, 2),
        "allowed": SHARE * limit + SECONDS,
        "in_time": elapsed <= SHARE * limit + SECONDS,
        "processor_seconds": round(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime, 2),
        "exit_code": ran.returncode,
        "load_1min": round(os.getloadavg()[0], 2),
    }
    if not ran.stdout:
        return row | {"error": ran.stderr.decode(errors="replace").strip().splitlines()[-1:]}
    plan = msgspec.json.decode(ran.stdout, type=Plan, dec_hook=lambda _, value: FrozenMap(value))
    return row | {
        "status": plan.status,
        "cost_before": plan.cost.before,
        "cost": plan.cost.after,
        "bound": plan.cost.lower_bound,
        "moves": plan.moves,
        "unplaced": len(plan.unplaced),
        "rules_priced": len(plan.constraint_costs),
        "plan_seconds": plan.solve.seconds,
        "phases": {stop.phase: f"{stop.reason} {stop.iteration}" for stop in plan.solve.stops},
    }


def _pinned(command: Sequence[str], conditions: Conditions) -> list[str]:
    return [*(["taskset", "-c", "0"] if conditions.one_processor else []), *command]


@contextmanager
def _without_kernels(conditions: Conditions) -> Iterator[None]:
    """Hide the compiled kernels of the package for as long as the block lasts, where caches are cold."""
    kept = Path(compiled.__file__).parent / "__pycache__" / "kernels"
    aside = kept.with_name("kernels-aside")
    hidden = conditions.cold and kept.exists()
    if hidden:
        kept.rename(aside)
    try:
        yield
    finally:
        if hidden:
            shutil.rmtree(kept, ignore_errors=True)
            aside.rename(kept)


@contextmanager
def _busy(conditions: Conditions) -> Iterator[None]:
    """Run the busy loops for as long as the block lasts."""
    loop = _pinned([sys.executable, "-c", _LOOP], conditions)
    loops = [subprocess.Popen(loop) for _ in range(conditions.busy)]  # noqa: S603 - our own loop
    try:
        yield
    finally:
        for one in loops:
            one.kill()
            one.wait()


def inputs(names: Sequence[str], directory: Path, ruled: Path | None) -> dict[str, tuple[Path, Path]]:
    """Write snapshots and catalogs of the made clusters; those of `ruled` are unpacked."""
    found = {}
    for name in names:
        snapshot, catalog = directory / f"{name}.json", directory / f"{name}.csv"
        cluster, offers = instances()[name]()
        with snapshot.open("wb") as file:
            file.writelines(printed(all_objects(cluster)))
        write_catalog(offers, catalog)
        found[name] = snapshot, catalog
    for packed in sorted(ruled.glob("*.json.gz")) if ruled is not None else ():
        name = packed.name.removesuffix(".json.gz")
        snapshot = directory / f"{name}.json"
        snapshot.write_bytes(gzip.decompress(packed.read_bytes()))
        found[name] = snapshot, packed.with_name(f"{name}.catalog.csv")
    return found


def main() -> None:
    """Entry point of `python -m benchmarks.time_limit`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=list(instances()), default=["large", "rich"], help="made clusters")
    parser.add_argument("--ruled", type=Path, help="directory of NAME.json.gz with NAME.catalog.csv")
    parser.add_argument("--time-limit", nargs="+", type=float, default=LIMITS, help="seconds")
    parser.add_argument("--cold", action="store_true", help="without compiled kernels")
    parser.add_argument("--one-processor", action="store_true", help="the command and the loops on processor 0")
    parser.add_argument("--busy", type=int, default=0, help="busy loops beside the command")
    parser.add_argument("--out", type=Path, default=Path("out/bench/time_limit.json"))
    given = parser.parse_args()
    conditions = Conditions(given.cold, given.one_processor, given.busy)
    with tempfile.TemporaryDirectory() as directory:
        result = table(inputs(given.only, Path(directory), given.ruled), given.time_limit, conditions)
    write_result("time_limit", result, given.out, conditions=vars(conditions))


if __name__ == "__main__":
    main()
