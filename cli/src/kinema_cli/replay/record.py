"""`kinema record`: write what the streams hold to a file."""

from __future__ import annotations

import asyncio
from importlib.metadata import version
from pathlib import Path
from typing import Final

from rich.console import Console

from kinema_cli.broker import AddressError, settings_for
from kinema_cli.inputs import InputError, check_output
from kinema_cli.replay.recording import Recorded, write
from kinema_core.runtime.bus import Bus, BusError, Stored, StreamName
from kinema_core.runtime.nats_bus import connect
from kinema_core.runtime.settings import RuntimeSettings

_STREAMS: Final[tuple[StreamName, ...]] = ("STATE", "LOG")


async def collect(bus: Bus) -> tuple[list[Recorded], int]:
    """All events of the streams in order, and the number of damaged messages that were left out."""
    events: list[Recorded] = []
    damaged = 0
    for stream in _STREAMS:
        async for item in bus.read(stream):
            if isinstance(item, Stored):
                events.append(Recorded(stream=stream, sequence=item.sequence, event=item.event))
            else:
                damaged += 1
    return events, damaged


async def record_to(bus: Bus, *, cluster: str, out: Path) -> tuple[int, int]:
    """Write a recording, if there is anything to record.

    Returns:
        How many events it holds, and how many messages could not be read.
    """
    events, damaged = await collect(bus)
    if not events:
        return 0, damaged  # an older recording of that name is worth more than an empty one
    return write(out, cluster=cluster, version=version("kinema-cli"), events=events), damaged


def run_record(*, nats: str, cluster: str, out: Path) -> int:
    """Record from a broker; 0 done, 1 failed, 2 wrong arguments, 3 nothing there."""
    errors = Console(stderr=True)
    try:
        settings = settings_for(nats, cluster)
    except AddressError as error:
        errors.print(str(error), markup=False, soft_wrap=True)
        return 2
    try:
        check_output(out, "--out")
        count, damaged = asyncio.run(_record(settings, out))
    except OSError as error:
        errors.print(f"--out {out}: cannot be written: {error.strerror or error}", markup=False, soft_wrap=True)
        return 1
    except (BusError, InputError) as error:
        errors.print(str(error), markup=False, soft_wrap=True)
        return 1
    if damaged:
        errors.print(f"{damaged} messages could not be read and are not in the recording: see the dead letters")
    if count == 0:
        errors.print(f"the streams hold no event of cluster {cluster!r}", markup=False)
        return 3
    Console().print(f"{count} events written to {out}", markup=False)
    return 0


async def _record(settings: RuntimeSettings, out: Path) -> tuple[int, int]:
    bus = await connect(settings)
    try:
        return await record_to(bus, cluster=settings.cluster, out=out)
    finally:
        await bus.close()
