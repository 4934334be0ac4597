"""The five services as processes on a real control plane, until there is nothing more to do."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Final

from tests.controlplane.access import Access

from kinema_cli.pipeline import LocalPipeline, PipelineOptions
from kinema_cli.progress import Progress
from kinema_core.runtime.bus import BusError, Stored
from kinema_observer.adapters.source import RESOURCES

CLUSTER: Final = "e2e"
SECONDS: Final = 420.0
"""Real seconds until a run counts as stuck."""
SETTINGS: Final[Mapping[str, Mapping[str, object]]] = {
    "observer": {"settle_seconds": 8.0, "reschedule_interval_seconds": 8.0, "usage_seconds": 5.0},
    "optimizer": {"planning": {"time_limit_seconds": 15.0}},
}


@dataclass(frozen=True)
class Run:
    """What the services did."""

    progress: Progress
    seconds: float
    """From their start until nothing was left to do."""


def catalog(folder: Path) -> Path:
    """Prices of the machines on sale, as a file: the simulator's, without its remarks."""
    lines = (resources.files("kinema_sim.data") / "gke-e2-europe-west3.csv").read_text().splitlines()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "catalog.csv"
    path.write_text("\n".join(line for line in lines if not line.startswith("#")) + "\n")
    return path


def optimum(access: Access, folder: Path) -> Any:
    """What `kinema plan` says of the cluster as it is, as JSON: told by a listing, without any service."""
    items = []
    for resource in RESOURCES:
        with contextlib.suppress(Exception):  # a kind that this cluster does not have
            found = access.request("GET", resource.path)
            version, kind = found["apiVersion"], found["kind"].removesuffix("List")
            items += [{"apiVersion": version, "kind": kind, **item} for item in found["items"]]
    listing = folder / "listing.json"
    listing.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    command = [
        "plan",
        "--snapshot",
        str(listing),
        "--catalog",
        str(catalog(folder)),
        "-o",
        "json",
        "--time-limit",
        "30",
    ]
    done = subprocess.run(
        [Path(sys.executable).with_name("kinema"), *command], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


async def carried_out(
    folder: Path, access: Access, *, environment: Mapping[str, Mapping[str, str]] | None = None
) -> Run:
    """Run the services until they have carried out what they accepted and found nothing more to do."""
    began = time.monotonic()
    pipeline = LocalPipeline(
        PipelineOptions(
            directory=folder,
            cluster=CLUSTER,
            kubeconfig=access.write_kubeconfig(folder / "kubeconfig"),
            provider={"kind": "kwok", "catalog": str(catalog(folder)), "boot_seconds": 3.0},
            settings=SETTINGS,
        )
    )
    try:
        await pipeline.start()
        progress = await _settled(pipeline)
    finally:
        await pipeline.stop()
    return Run(progress, time.monotonic() - began)


async def _settled(pipeline: LocalPipeline) -> Progress:
    progress, position = Progress(), 0
    deadline = time.monotonic() + SECONDS
    while not progress.settled:
        if time.monotonic() > deadline:
            tails = "\n".join(f"{name}: {child.tail(3)}" for name, child in pipeline.supervisor.children.items())
            raise AssertionError(f"not settled, waiting {progress.waiting}; failed: {progress.failed[-3:]}\n{tails}")
        with contextlib.suppress(BusError):
            async for item in pipeline.bus.read("LOG", start=position + 1):
                position = item.sequence
                if isinstance(item, Stored):
                    progress.fold(item.event)
        await asyncio.sleep(0.2)
    return progress
