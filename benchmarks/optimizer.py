"""Time to gap and memory of the search, on every instance and for every budget in a process of its own.

python -m benchmarks.optimizer --traces DIR [--only NAME] [--budgets 1 2 10 60] [--processors N] [--out FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.catalog import NoTraceError, scenes
from benchmarks.machine import TRACES, peak_rss_mib, write_result

BUDGETS: Final = (1.0, 2.0, 10.0, 60.0)


def measure() -> dict[str, object]:
    """All instances at all budgets: for `python -m benchmarks`."""
    given = os.environ.get(TRACES)
    return table(None if given is None else Path(given), BUDGETS, list(scenes(None)))


def table(
    traces: Path | None, budgets: Sequence[float], names: Sequence[str], processors: float | None = None
) -> dict[str, object]:
    """Results by instance: one for each budget, or the reason why there is none."""
    found: dict[str, object] = {}
    for name in names:
        rows: list[object] = []
        for budget in budgets:
            row = _in_a_process(name, traces, budget, processors)
            rows.append(row)
            print(name, json.dumps({k: v for k, v in row.items() if k != "curve"}), file=sys.stderr, flush=True)
            if "skipped" in row:
                break
        found[name] = rows
    return found


def _in_a_process(name: str, traces: Path | None, seconds: float, processors: float | None) -> dict[str, object]:
    command = [sys.executable, "-m", "benchmarks.optimizer", "--child", name, "--budgets", str(seconds)]
    if traces is not None:
        command += ["--traces", str(traces)]
    if processors is not None:
        command += ["--processors", str(processors)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own interpreter and module
    if done.returncode != 0:
        raise SystemExit(f"{name} at {seconds:g} s failed:\n{done.stderr}")
    row: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return row


def one(name: str, traces: Path | None, seconds: float, processors: float | None = None) -> dict[str, object]:
    """Solve one instance once in this process; see `solver.solve`. USD per hour, seconds, MiB."""
    began = time.perf_counter()
    try:
        problem = scenes(traces)[name]().problem()
    except NoTraceError as error:
        return {"skipped": str(error)}
    generated = round(time.perf_counter() - began, 3)
    before = round(peak_rss_mib())
    from benchmarks.solver import solve, warm_up  # noqa: PLC0415 - loads compiled code: its memory is the solver's

    warm = warm_up()
    solved = solve(problem, seconds=seconds, processors=processors)
    return {
        "budget_seconds": seconds,
        "seconds": solved.seconds,
        "pods": int(problem.total.sum()),
        "classes": len(problem.total),
        "nodes": len(problem.nodes),
        "machines": len(problem.machines),
        "cost_before": int(problem.node_price.sum()) / 1e6,
        "cost": solved.cost / 1e6,
        "bound": solved.bound / 1e6,
        "gap_percent": round(100 * solved.gap, 4),
        "least_gap_percent": round(100 * solved.least_gap, 4),
        "moves": solved.moves,
        "unplaced": solved.unplaced,
        "first_feasible_seconds": solved.curve[0][0] if solved.curve else None,
        "curve": [
            {"seconds": at, "gap_percent": round(100 * (cost / solved.bound - 1), 4), "moves": moves}
            for at, cost, moves in solved.curve
        ],
        "warm_up_seconds": warm,
        "generate_seconds": generated,
        "peak_rss_mib": round(peak_rss_mib()),
        "rss_before_solver_mib": before,
        "load_1min": round(os.getloadavg()[0], 2),
    }


def main() -> None:
    """Entry point of `python -m benchmarks.optimizer`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=Path, help="directory of the traces; without it their instances are skipped")
    parser.add_argument("--budgets", type=float, nargs="+", default=list(BUDGETS), help="seconds for the solve")
    parser.add_argument("--processors", type=float, help="count the process' own time on so many, not the clock")
    parser.add_argument("--only", nargs="+", choices=list(scenes(None)), help="instances; by default all")
    parser.add_argument("--out", type=Path, default=Path("out/bench/optimizer.json"))
    parser.add_argument("--child", choices=list(scenes(None)), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        print(json.dumps(one(given.child, given.traces, given.budgets[0], given.processors)))
        return
    result = table(given.traces, given.budgets, given.only or list(scenes(None)), given.processors)
    write_result("optimizer", result, given.out)


if __name__ == "__main__":
    main()
