"""`kinema backup` and `kinema restore`: the streams of a broker in a directory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kinema_cli.options import Output
from kinema_cli.output import Format

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kinema_core.runtime.backup import Copied
    from kinema_core.runtime.settings import RuntimeSettings

_Broker = Annotated[
    str,
    typer.Option("--nats", envvar="KINEMA_NATS", metavar="URL", help="Broker, with an administrator's credentials."),
]


def backup(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="New directory for the copy.")],
    nats: _Broker,
    output: Output = Format.TABLE,
) -> None:
    """Copy the streams of a broker into a directory; the services go on.

    The copy holds every event with its sequence, and how far each service has read.
    """
    from kinema_core.runtime.backup import back_up

    raise typer.Exit(_run(back_up, nats, out, "copied", output))


def restore(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Directory that `kinema backup` has written.")],
    nats: _Broker,
    output: Output = Format.TABLE,
) -> None:
    """Make the streams of a backup on an empty broker. End all services first; run `kinema setup` afterwards."""
    from kinema_core.runtime.backup import restore

    raise typer.Exit(_run(restore, nats, directory, "restored", output))


def _run(
    call: Callable[[RuntimeSettings, Path], Awaitable[list[Copied]]], nats: str, place: Path, done: str, output: Format
) -> int:
    import asyncio

    from kinema_cli.broker import settings_for
    from kinema_cli.inputs import InputError, UsageError, fail
    from kinema_cli.output import cell, counted, emit
    from kinema_core.runtime.backup import BackupError
    from kinema_core.runtime.bus import BusError

    async def called() -> list[Copied]:
        return await call(settings_for(nats, "every"), place)

    try:
        found = asyncio.run(called())
    except (BackupError, OSError) as error:
        return fail(InputError(str(error)))
    except (UsageError, BusError) as error:
        return fail(error)
    streams = [{"stream": one.name, "messages": one.messages, "bytes": one.bytes} for one in found]
    lines = [f"{done} stream {one.name}: {counted(one.messages, 'message')}" for one in found]
    emit({"streams": streams}, output, lambda: map(cell, lines))
    return 0
