"""`kinema setup`: make what the services need on the broker."""

from __future__ import annotations

import asyncio

from rich.console import Console

from kinema_cli.broker import AddressError, settings_for
from kinema_core.runtime.bus import BusError
from kinema_core.runtime.setup import Layout, SetupReport, setup


def run_setup(*, nats: str, clusters: list[str], replicas: int) -> int:
    """Create streams, consumers and the lease bucket; 0 done, 1 refused, 4 something is there, but otherwise."""
    errors = Console(stderr=True)
    try:
        report = asyncio.run(
            setup(settings_for(nats, clusters[0]), Layout(clusters=tuple(clusters), replicas=replicas))
        )
    except (AddressError, BusError) as error:
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
