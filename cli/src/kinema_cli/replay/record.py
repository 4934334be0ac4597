"""`kinema record`: write the events of the streams to a file."""

from __future__ import annotations

import asyncio
from importlib.metadata import version
from pathlib import Path
from typing import Final

from kinema_cli.broker import settings_for
from kinema_cli.inputs import InputError, UsageError, check_output, fail
from kinema_cli.output import Format, cell, counted, print_error, print_value, print_warning, show
from kinema_cli.replay.recording import Recorded, write
from kinema_core.runtime.bus import Bus, BusError, Stored, StreamName
from kinema_core.runtime.nats_bus import connect
from kinema_core.runtime.settings import RuntimeSettings

_STREAMS: Final[tuple[StreamName, ...]] = ("STATE", "LOG")


async def collect(bus: Bus) -> tuple[list[Recorded], int]:
    """Return all events of the streams in order, and the number of damaged messages."""
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
        return 0, damaged  # keep an older recording of that name
    return write(out, cluster=cluster, version=version("kinema-cli"), events=events), damaged


def run_record(*, nats: str, cluster: str, out: Path, output: Format = Format.TABLE) -> int:
    """Record from a broker; 0 done, 1 failed, 2 wrong arguments, 3 nothing there."""
    try:
        settings = settings_for(nats, cluster)
        check_output(out, "--out")
        count, damaged = asyncio.run(_record(settings, out))
    except OSError as error:
        print_error(f"--out {out}: cannot be written: {error.strerror or error}")
        return 1
    except (UsageError, BusError, InputError) as error:
        return fail(error)
    if damaged:
        print_warning(f"{counted(damaged, 'message')} could not be read and left out: see the dead letters")
    if count == 0:
        print_error(f'no events found for cluster "{settings.cluster}"')
        return 3
    if output is Format.TABLE:
        show(cell(f"{counted(count, 'event')} written to {out}"))
    else:
        print_value({"events": count, "damaged": damaged, "file": str(out)}, output)
    return 0


async def _record(settings: RuntimeSettings, out: Path) -> tuple[int, int]:
    bus = await connect(settings)
    try:
        return await record_to(bus, cluster=settings.cluster, out=out)
    finally:
        await bus.close()
