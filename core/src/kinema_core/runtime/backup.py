"""Copies of the streams in a directory, and brokers that begin with such a copy.

The broker makes the copy, with sequences, message ids and the positions of consumers. LOG is copied before STATE and
USAGE: every state and all usage that an event in the copy refers to is then in the copy. The bucket of leases is not
copied: a new one gives tokens above all that were given before, and so above the marks that are on nodes and pods.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final

import msgspec

from kinema_core.runtime.bus import BusSetupError, BusUnavailableError
from kinema_core.runtime.nats_connection import Connection, fault_error, fault_of
from kinema_core.runtime.settings import RuntimeSettings
from kinema_core.runtime.topology import STREAMS

COPIED: Final = (STREAMS["LOG"], STREAMS["STATE"], STREAMS["USAGE"], STREAMS["DLQ"])
"""Streams of a backup, in the order in which they are copied."""
MANIFEST: Final = "backup.json"
"""Written last: without it a directory holds no whole backup."""
_CHUNK: Final = 128 * 1024
_QUIET_SECONDS: Final = 30.0


class BackupError(Exception):
    """A directory cannot be used; the text names it and what to do."""


class Copied(msgspec.Struct, frozen=True):
    """A stream in a backup, as the broker described it."""

    config: dict[str, Any]
    state: dict[str, Any]
    bytes: int = 0
    """Size of its file."""

    @property
    def name(self) -> str:
        """Name of the stream."""
        return str(self.config["name"])

    @property
    def messages(self) -> int:
        """Return the number of messages."""
        return int(self.state.get("messages", 0))


class _Target(msgspec.Struct, frozen=True):
    """Subject that takes the chunks of a restored stream."""

    deliver_subject: str


async def back_up(settings: RuntimeSettings, directory: Path) -> list[Copied]:
    """Copy the streams into an empty directory; `settings` name the broker and its admin user.

    Raises:
        BackupError: the directory holds something. BusError.
    """
    _make_empty(directory)
    connection = Connection("kinema-backup")
    await connection.open(settings)
    try:
        found = [await _snapshot(connection, name, directory / f"{name}.s2") for name in COPIED]
    finally:
        await connection.close()
    (directory / MANIFEST).write_bytes(msgspec.json.encode(found))
    return found


def _make_empty(directory: Path) -> None:
    """Make a directory; raises BackupError if it holds something."""
    directory.mkdir(parents=True, exist_ok=True)
    if any(directory.iterdir()):
        raise BackupError(f"{directory} is not empty: name another directory")


async def _snapshot(connection: Connection, name: str, file: Path) -> Copied:
    async with connection.inbox() as (inbox, arrived):
        body = {"deliver_subject": inbox, "chunk_size": _CHUNK, "jsck": True}
        what = f"stream {name}"
        described = await connection.info(f"STREAM.SNAPSHOT.{name}", what, Copied, body)
        size = 0
        with file.open("wb") as out:
            while True:
                try:
                    message = await asyncio.wait_for(arrived.get(), _QUIET_SECONDS)
                except TimeoutError as error:
                    raise BusUnavailableError(f"{what}: the broker stopped sending its copy") from error
                if message is None:
                    raise BusUnavailableError(f"{what}: the connection broke in the middle of its copy")
                if not message.data:
                    _check_end(message.headers or {}, what)
                    return msgspec.structs.replace(described, bytes=size)
                size += out.write(message.data)
                if message.reply:
                    await connection.send(message.reply, b"")


def _check_end(headers: dict[str, str], what: str) -> None:
    """Raise BusUnavailableError unless the broker has sent all."""
    if headers.get("Status", "204") != "204":
        raise BusUnavailableError(f"{what}: its copy ended early: {headers.get('Description', headers)}")


async def restore(settings: RuntimeSettings, directory: Path) -> list[Copied]:
    """Make the streams of a backup on a broker that has none of them; the rest is made by `setup`.

    Raises:
        BackupError: the directory holds no whole backup. BusSetupError: a stream exists. BusError.
    """
    copies = read_manifest(directory)
    connection = Connection("kinema-restore")
    await connection.open(settings)
    try:
        for name in COPIED:
            fault = fault_of(await connection.api(f"STREAM.INFO.{name}"), name)
            if fault is None:
                raise BusSetupError(f"stream {name} is there: restore into an empty broker, or delete it first")
        for copied in copies:
            await _restore(connection, copied, directory / f"{copied.name}.s2")
    finally:
        await connection.close()
    return copies


def read_manifest(directory: Path) -> list[Copied]:
    """Return the streams of a backup; raises BackupError when it is not whole."""
    try:
        found = msgspec.json.decode((directory / MANIFEST).read_bytes(), type=list[Copied])
        torn = [one.name for one in found if (directory / f"{one.name}.s2").stat().st_size != one.bytes]
    except (OSError, msgspec.DecodeError) as error:
        raise BackupError(f"{directory} holds no whole backup: {error}") from error
    if torn:
        raise BackupError(f"{directory} holds no whole backup: {', '.join(torn)} has another size")
    return found


async def _restore(connection: Connection, copied: Copied, file: Path) -> None:
    what = f"stream {copied.name}"
    body = {"config": copied.config, "state": copied.state}
    target = (await connection.info(f"STREAM.RESTORE.{copied.name}", what, _Target, body)).deliver_subject
    with file.open("rb") as source:
        while chunk := source.read(_CHUNK):
            _check_stored((await connection.request(target, chunk)).data, what)
    _check_stored((await connection.request(target, b"", seconds=_QUIET_SECONDS)).data, what)


def _check_stored(data: bytes, what: str) -> None:
    fault = fault_of(data, what) if data.startswith(b"{") else None  # a chunk that was taken is answered by `+OK`
    if fault is not None:
        raise fault_error(fault, what)
