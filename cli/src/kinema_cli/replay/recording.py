"""Recordings: the streams of one cluster in a file that anyone can read, and `kinema record`, which writes it.

JSON lines: a header, then one line per event in the order of the streams, STATE and USAGE first by need: a line holds
the stream, the sequence and the event as it was published. Plain, `.gz` or `.zst` by the file's name.
"""

from __future__ import annotations

import asyncio
import gzip
import io
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Final, cast

import msgspec
import zstandard

from kinema_cli.broker import on_bus, settings_for
from kinema_cli.inputs import InputError, UsageError, check_output, fail
from kinema_cli.output import Format, cell, counted, emit, print_error, print_warning
from kinema_core.events import Event, EventError, decode, encode
from kinema_core.runtime.bus import Bus, BusError, Stored, StreamName

FORMAT: Final = "kinema.recording/v1"
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Errors of decoding for bytes that are no JSON, no text, or nested too deeply."""
_STREAMS: Final[tuple[StreamName, ...]] = ("STATE", "USAGE", "LOG")


class RecordingError(Exception):
    """The file is no recording that can be read; the text names line and reason."""


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """First line of a recording."""

    format: str = FORMAT
    cluster: str
    kinema: str


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One event with its place."""

    stream: StreamName
    sequence: int
    event: msgspec.Raw


@dataclass(frozen=True)
class Recorded:
    """An event of a recording and its place in its stream."""

    stream: str
    sequence: int
    event: Event


@dataclass(frozen=True)
class Recording:
    """A whole recording, each stream in order."""

    cluster: str
    state: tuple[Recorded, ...]
    log: tuple[Recorded, ...]
    usage: tuple[Recorded, ...] = ()

    @property
    def seconds(self) -> float:
        """Cluster time from the first event to the last."""
        times = [item.event.time for item in (*self.state, *self.log)]
        return (max(times) - min(times)).total_seconds() if times else 0.0


def write(path: Path, *, cluster: str, version: str, events: Iterable[Recorded]) -> int:
    """Write a recording and return how many events it holds. The file appears whole or not at all."""
    parts = [msgspec.json.encode(Header(cluster=cluster, kinema=version))]
    count = 0
    for item in events:
        line = Line(
            stream=cast("StreamName", item.stream),
            sequence=item.sequence,
            event=msgspec.Raw(encode(item.event)),
        )
        parts.append(msgspec.json.encode(line))
        count += 1
    data = b"\n".join(parts) + b"\n"
    if path.suffix == ".zst":
        data = zstandard.ZstdCompressor(level=6).compress(data)
    elif path.suffix == ".gz":
        data = gzip.compress(data, mtime=0)
    partial = path.with_name(path.name + ".part")
    partial.write_bytes(data)
    partial.replace(path)
    return count


def _lines(path: Path) -> Iterator[bytes]:
    try:
        data = path.read_bytes()
        if path.suffix == ".zst":
            with zstandard.ZstdDecompressor().stream_reader(io.BytesIO(data), read_across_frames=True) as reader:
                data = reader.read()
        elif path.suffix == ".gz":
            data = gzip.decompress(data)
    except FileNotFoundError as error:
        raise RecordingError(f"{path}: no such file") from error
    except (EOFError, zlib.error, gzip.BadGzipFile, zstandard.ZstdError) as error:
        raise RecordingError(f"{path}: cannot be unpacked: {error}") from error
    except OSError as error:
        raise RecordingError(f"{path}: cannot be read: {error.strerror or error}") from error
    yield from (line for line in data.split(b"\n") if line.strip())


def read(path: Path) -> Recording:
    """Read a recording.

    Raises:
        RecordingError: missing, damaged, of another format, or an event in it cannot be decoded; names the line.
    """
    lines = _lines(path)
    first = next(lines, None)
    if first is None:
        raise RecordingError(f"{path}: is empty; a recording has a header at least")
    try:
        header = msgspec.json.decode(first, type=Header)
    except _UNREADABLE as error:
        raise RecordingError(f"{path}: line 1 is no header of a recording: {error}") from error
    if header.format != FORMAT:
        raise RecordingError(f"{path}: format {header.format!r} is not {FORMAT!r}: record again with this version")
    streams: dict[str, list[Recorded]] = {"STATE": [], "LOG": [], "DLQ": [], "USAGE": []}
    decoder = msgspec.json.Decoder(Line)
    for number, text in enumerate(lines, start=2):
        try:
            line = decoder.decode(text)
            event = decode(bytes(line.event))
        except (*_UNREADABLE, EventError) as error:
            raise RecordingError(f"{path}: line {number}: {error}") from error
        mine = streams[line.stream]
        if mine and line.sequence <= mine[-1].sequence:
            raise RecordingError(f"{path}: line {number}: sequence {line.sequence} of {line.stream} is out of order")
        mine.append(Recorded(stream=line.stream, sequence=line.sequence, event=event))
    state, log, usage = (tuple(streams[name]) for name in ("STATE", "LOG", "USAGE"))
    return Recording(cluster=header.cluster, state=state, log=log, usage=usage)


async def collect(bus: Bus) -> tuple[list[Recorded], int]:
    """Return all events of the streams in order, and the number of damaged messages.

    LOG is read first: services go on, and publish every state and usage before the events that refer to it.
    """
    found: dict[StreamName, list[Recorded]] = {}
    damaged = 0
    for stream in reversed(_STREAMS):
        events = found.setdefault(stream, [])
        async for item in bus.read(stream):
            if isinstance(item, Stored):
                events.append(Recorded(stream=stream, sequence=item.sequence, event=item.event))
            else:
                damaged += 1
    return [item for stream in _STREAMS for item in found[stream]], damaged


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
        count, damaged = asyncio.run(on_bus(settings, lambda bus: record_to(bus, cluster=settings.cluster, out=out)))
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
    emit(
        {"events": count, "damaged": damaged, "file": str(out)},
        output,
        lambda: [cell(f"{counted(count, 'event')} written to {out}")],
    )
    return 0
