"""Which machine a figure comes from."""

from __future__ import annotations

import os
import platform
import resource
from importlib.metadata import version
from pathlib import Path
from typing import Final

TRACES: Final = "KINEMA_TRACES"
"""Environment variable by which `python -m benchmarks` tells each benchmark where the traces are."""


def describe() -> dict[str, object]:
    """Processor, memory and versions, as facts beside every result."""
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
    """Peak resident memory of this process so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
