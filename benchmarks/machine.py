"""Description of the machine that a figure comes from, and results beside it."""

from __future__ import annotations

import json
import os
import platform
import resource
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Final

TRACES: Final = "KINEMA_TRACES"
"""Environment variable by which `python -m benchmarks` passes the directory of the traces."""


def describe() -> dict[str, object]:
    """Return processor, memory and versions, as facts beside every result."""
    model = "unknown"
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line.partition(":")[2].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        model = names[0] if names else model
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "processor": model,
        "cores": os.cpu_count(),
        "memory_gib": round(pages / 2**30, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
        "msgspec": version("msgspec"),
        "highspy": version("highspy"),
        "numpy": version("numpy"),
        "numba": version("numba"),
        "nats-py": version("nats-py"),
        "load_1min": os.getloadavg()[0],
    }


def peak_rss_mib() -> float:
    """Return the peak resident memory of this process so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def write_result(name: str, result: object, path: Path, **facts: object) -> None:
    """Write a result and the machine's description to a file, and print where."""
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = {"benchmark": name, "machine": describe(), **facts, "result": result}
    path.write_text(json.dumps(whole, indent=2) + "\n")
    print(f"written to {path}", file=sys.stderr)
