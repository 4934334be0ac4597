"""`kinema setup`: make what the services need on the broker, and the admission policy that steers new pods."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console

from kinema_cli.broker import AddressError, settings_for
from kinema_core.runtime.bus import BusError
from kinema_core.runtime.setup import Layout, SetupReport, setup
from kinema_rescheduler.adapters.kubernetes_api import connect
from kinema_rescheduler.adapters.kubernetes_steering import install, remove
from kinema_rescheduler.errors import EffectError

REPLICAS: Final = (1, 3, 5)


@dataclass(frozen=True)
class Steering:
    """Whether new pods of a cluster shall be given a preference for the planned nodes."""

    kubeconfig: Path
    on: bool


def run_setup(*, nats: str, clusters: list[str], replicas: int, steering: Steering | None = None) -> int:
    """Create streams, consumers and the lease bucket; put steering into force on a cluster or take it away.

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
        told = asyncio.run(steer(steering)) if steering is not None else ""
    except (BusError, EffectError) as error:
        errors.print(str(error), markup=False, soft_wrap=True)
        return 1
    _print(report)
    if told:
        Console().print(told, markup=False, soft_wrap=True)
    return 4 if report.drift else 0


async def steer(wish: Steering) -> str:
    """Install or remove the admission policy of one cluster; says what came of it.

    Raises:
        EffectError: the cluster refused it, or cannot be reached.
    """
    api = await connect(str(wish.kubeconfig))
    try:
        found = await (install(api) if wish.on else remove(api))
    finally:
        await api.close()
    if found == "absent" and wish.on:
        return "steering: this Kubernetes has no mutating admission policies (1.36 has); pods land where they land"
    if found == "removed":
        return "steering: removed; after installing it again, restart the API server: until then it steers nothing"
    return f"steering: {found}"


def _print(report: SetupReport) -> None:
    console = Console()
    for what in report.created:
        console.print(f"created {what}", markup=False)
    for what in report.drift:
        console.print(f"differs: {what}", markup=False)
    if not report.created and not report.drift:
        console.print("everything is there already")
