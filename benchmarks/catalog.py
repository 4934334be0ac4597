"""The placement problems that are measured, by name; those of the trace only where its files are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from benchmarks.instances import Scene, large_scene, limit_scene, openb_scene
from benchmarks.served import dlrm_like, dlrm_scene, dlrm_trace


class NoTraceError(Exception):
    """The files of a trace are not there; the text says which."""


def scenes(traces: Path | None) -> Mapping[str, Callable[[], Scene]]:
    """Makers of every instance: `-new` from nothing, `-running` from a running cluster.

    `mixed` has hundreds of classes, `wide` thousands: both are `limit` with fewer deployments.

    `served` is generated like the trace `dlrm`. `traces` is the directory that has `openb/pods-default.csv`,
    `openb/pods-gpuspec33.csv`, `openb/nodes.csv` and `dlrm/disaggregated_DLRM_trace.csv`.
    """

    def files(*names: str) -> list[Path]:
        if traces is None:
            raise NoTraceError("no --traces DIR given")
        found = [traces / name for name in names]
        missing = [str(path) for path in found if not path.exists()]
        if missing:
            raise NoTraceError(f"not there: {', '.join(missing)}")
        return found

    def trace(*, gpu: bool, running: bool) -> Scene:
        pods, nodes = files(f"openb/pods-{'gpuspec33' if gpu else 'default'}.csv", "openb/nodes.csv")
        return openb_scene(pods, nodes, gpu=gpu, running=running)

    def dlrm(*, running: bool) -> Scene:
        return dlrm_scene(dlrm_trace(*files("dlrm/disaggregated_DLRM_trace.csv")), running=running)

    return {
        "openb-new": lambda: trace(gpu=False, running=False),
        "openb-running": lambda: trace(gpu=False, running=True),
        "openb-gpu-new": lambda: trace(gpu=True, running=False),
        "openb-gpu-running": lambda: trace(gpu=True, running=True),
        "dlrm-new": lambda: dlrm(running=False),
        "dlrm-running": lambda: dlrm(running=True),
        "served-new": lambda: dlrm_scene(dlrm_like()),
        "served-running": lambda: dlrm_scene(dlrm_like(), running=True),
        "large-new": large_scene,
        "large-running": lambda: large_scene(running=True),
        "mixed-new": partial(limit_scene, 16_000, deployments=340),
        "mixed-running": partial(limit_scene, 16_000, deployments=340, nodes=533, running=True),
        "wide-new": partial(limit_scene, 165_000, deployments=2_040),
        "wide-running": partial(limit_scene, 165_000, deployments=2_040, nodes=5_500, running=True),
        "limit-new": limit_scene,
        "limit-running": lambda: limit_scene(running=True),
    }
