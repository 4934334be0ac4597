"""Checks of the broker: reachable, with all streams and consumers, and with events of the observer."""

from __future__ import annotations

from typing import Final

from kinema_cli.doctor.finding import Finding, shortened
from kinema_cli.status.pipeline import read_status
from kinema_core.runtime.bus import BusDeniedError, BusError
from kinema_core.runtime.nats_bus import connect
from kinema_core.runtime.settings import RuntimeSettings
from kinema_core.runtime.setup import missing

SILENT: Final = 900.0
"""Age of the state in seconds after which the rescheduler stops acting."""


async def broker(settings: RuntimeSettings) -> list[Finding]:
    """Check the broker with the operator's or the administrator's credentials."""
    where = settings.nats_url
    try:
        absent = await missing(settings)
    except BusDeniedError as error:
        return [Finding("broker", "fail", _about(where, error), "give the operator's user and password in KINEMA_NATS")]
    except BusError as error:
        return [Finding("broker", "fail", _about(where, error), "start nats-server with JetStream, or correct --nats")]
    if absent:
        do = f"kinema setup --nats nats://admin:…@… --cluster-name {settings.cluster}"
        return [Finding("broker", "fail", f"{where} lacks {shortened(', '.join(absent))}", do)]
    return [Finding("broker", "ok", f"{where} has all streams and consumers"), await _state(settings)]


def _about(where: str, error: BusError) -> str:
    """Return the error with the broker's address, which some errors name themselves."""
    return str(error) if where in str(error) else f"{where}: {error}"


async def _state(settings: RuntimeSettings) -> Finding:
    do = "start the observer, or look at its /readyz"
    bus = await connect(settings)
    try:
        state = (await read_status(bus, cluster=settings.cluster, now=settings.clock().now())).state
    finally:
        await bus.close()
    if state is None:
        return Finding("state", "warn", f"no events of cluster {settings.cluster} yet", do)
    said = f"version {state.version}, {state.age_seconds:.0f} s old"
    return Finding(
        "state", "warn" if state.age_seconds > SILENT else "ok", said, do if state.age_seconds > SILENT else ""
    )
