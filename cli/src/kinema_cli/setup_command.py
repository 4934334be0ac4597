"""`kinema setup`: make what the services need on the broker."""

from __future__ import annotations

import asyncio
from typing import Final

from rich.console import Console

from kinema_cli.broker import AddressError, settings_for
from kinema_core.runtime.bus import BusError
from kinema_core.runtime.setup import Layout, SetupReport, setup

REPLICAS: Final = (1, 3, 5)


def run_setup(*, nats: str, clusters: list[str], replicas: int) -> int:
    """Create streams, consumers and the lease bucket.

    Returns:
        0 done, 1 refused, 2 wrong arguments, 4 something is there, but otherwise.
    """
    errors = Console(stderr=True)
    if replicas not in REPLICAS:
        errors.print(f"--replicas is {replicas}: use 1, 3 or 5", markup=False)
        return 2
    try:
        every = [settings_for(nats, cluster) for cluster in clusters]
    except AddressError as error:
        errors.print(str(error), markup=False, soft_wrap=True)
        return 2
    try:
        report = asyncio.run(setup(every[0], Layout(clusters=tuple(clusters), replicas=replicas)))
    except BusError as error:
        errors.print(str(error), markup=False, soft_wrap=True)
        return 1
    _print(report)
    return 4 if report.drift else 0


def _print(report: SetupReport) -> None:
    console = Console()
    for what in report.created:
        console.print(f"created {what}", markup=False)
    for what in report.drift:
        console.print(f"differs: {what}", markup=False)
    if not report.created and not report.drift:
        console.print("everything is there already")
