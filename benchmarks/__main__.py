"""Runs the benchmarks, each in a process of its own, and writes one JSON file per benchmark."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from benchmarks.machine import TRACES, write_result

BENCHMARKS: Final = (
    "fold",
    "observing",
    "latency",
    "replay",
    "optimizer",
    "frontier",
    "defaults",
    "rivals",
    "workers",
    "plan",
    "rest",
    "deciding",
    "forecast",
    "restless",
)


def run_one(name: str, traces: Path | None = None) -> dict[str, object]:
    """Measure in a fresh process, so that memory peaks do not mix."""
    environment = dict(os.environ) if traces is None else {**os.environ, TRACES: str(traces.resolve())}
    code = f"import json; from benchmarks.{name} import measure; print(json.dumps(measure()))"
    done = subprocess.run(  # noqa: S603 - our own interpreter with our own module
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment
    )
    if done.returncode != 0:
        raise SystemExit(f"benchmark {name} failed:\n{done.stderr}")
    result: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return result


def main() -> None:
    """Entry point of `python -m benchmarks`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out/bench"), help="directory for the JSON files")
    parser.add_argument("--only", choices=BENCHMARKS, help="run a single benchmark")
    parser.add_argument("--traces", type=Path, help="directory of the traces; without it what needs them is skipped")
    arguments = parser.parse_args()
    for name in BENCHMARKS if arguments.only is None else (arguments.only,):
        result = run_one(name, arguments.traces)
        print(json.dumps(result, indent=2))
        write_result(name, result, arguments.out / f"{name}.json")


if __name__ == "__main__":
    main()
