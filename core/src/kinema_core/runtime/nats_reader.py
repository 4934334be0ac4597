"""Reading the streams without a consumer: batches of direct gets, checked against the leader.

A direct get may be answered by a follower that is behind. So the head is taken from the leader first, and where a
follower says "no more" short of it, the leader is asked for the next message before the end is believed.
"""

from __future__ import annotations

import asyncio
from base64 import b64decode
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec
from nats.aio.msg import Msg

from kinema_core.runtime.bus import BusSetupError, BusUnavailableError, Damaged, Extent, Stored, StreamName
from kinema_core.runtime.framing import (
    FramingError,
    Manifest,
    assemble,
    check_subject,
    chunk_index,
    manifest_of,
    unframe,
    unpack,
)
from kinema_core.runtime.nats_connection import NO_MESSAGE, REQUEST_SECONDS, Connection, fault_error, fault_of
from kinema_core.runtime.topology import STREAMS, all_events, chunk_subject, subjects

BATCH: Final = 256
BATCH_BYTES: Final = 16 * 1024 * 1024
_LARGE: Final = 64 * 1024
"""Bytes of an event from which on decoding it takes milliseconds."""


@dataclass(frozen=True)
class Raw:
    """A message as it is stored."""

    sequence: int
    subject: str
    headers: Mapping[str, str]
    data: bytes


class _Got(msgspec.Struct, frozen=True):
    subject: str
    seq: int
    hdrs: str = ""
    data: str = ""


class _GotAnswer(msgspec.Struct, frozen=True):
    message: _Got | None = None


class _State(msgspec.Struct, frozen=True):
    first_seq: int = 0
    last_seq: int = 0
    bytes: int = 0


class _Config(msgspec.Struct, frozen=True):
    max_bytes: int = -1
    max_age: int = 0


class _InfoAnswer(msgspec.Struct, frozen=True):
    state: _State = _State()
    config: _Config = _Config()
    created: str = ""


class Reader:
    """Reads the streams of one cluster."""

    def __init__(self, connection: Connection, cluster: str) -> None:
        self._connection = connection
        self._cluster = cluster

    async def extent(self, stream: str) -> Extent:
        """Return what the stream holds, as the leader knows it."""
        info = await self._info(stream)
        bound = info.config.max_bytes
        return Extent(
            first=info.state.first_seq,
            last=info.state.last_seq,
            filled=info.state.bytes / bound if bound > 0 else 0.0,
            max_age_seconds=info.config.max_age / 1e9 or None,
        )

    async def made(self, stream: str) -> str:
        """Return when the stream was made, as the broker writes it."""
        return (await self._info(stream)).created

    async def _info(self, stream: str) -> _InfoAnswer:
        return await self._connection.info(f"STREAM.INFO.{stream}", f"stream {stream}", _InfoAnswer)

    async def from_leader(self, stream: str, query: Mapping[str, str | int]) -> Raw | None:
        """One message, read from the leader: never stale. None where there is none."""
        what = f"STREAM.MSG.GET.{stream}"
        data = await self._connection.api(what, query)
        fault = fault_of(data, what)
        if fault is not None:
            if fault.err_code == NO_MESSAGE:
                return None
            raise fault_error(fault, f"stream {stream}")
        got = msgspec.json.decode(data, type=_GotAnswer).message
        if got is None:
            raise BusUnavailableError(f"{what}: the answer holds neither message nor error")
        headers = parse_headers(b64decode(got.hdrs))
        return Raw(sequence=got.seq, subject=got.subject, headers=headers, data=b64decode(got.data))

    async def last(self, stream: str, subject_: str) -> Raw | None:
        """Return the newest message of a subject, read from the leader."""
        return await self.from_leader(stream, {"last_by_subj": subject_})

    async def messages(self, stream: str, filter_: str, *, start: int, end: int) -> AsyncIterator[Raw]:
        """Messages of the filter with sequences from `start` to `end`, in order and without a gap."""
        following = start
        while following <= end:
            batch = await self._batch(stream, filter_, following, min(BATCH, end - following + 1))
            for raw in batch:
                if raw.sequence > end:
                    return
                following = raw.sequence + 1
                yield raw
            if batch:
                continue
            # The follower says there is no more. Only the leader knows.
            sure = await self.from_leader(stream, {"seq": following, "next_by_subj": filter_})
            if sure is None or sure.sequence > end:
                return
            following = sure.sequence + 1
            yield sure

    async def items(
        self, name: StreamName, *, start: int, end: int, kinds: tuple[str, ...]
    ) -> AsyncIterator[Stored | Damaged]:
        """Whole events of these kinds (all, when none is named) with sequences from `start` to `end`."""
        stream = STREAMS[name]
        wanted = subjects(self._cluster, kinds)
        filter_ = wanted[0] if len(wanted) == 1 else all_events(self._cluster)
        async for raw in self.messages(stream, filter_, start=max(1, start), end=end):
            if kinds and raw.subject not in wanted:
                continue
            item = await self.whole(name, raw)
            if isinstance(item, Damaged) or item.size > _LARGE:
                await asyncio.sleep(0)  # a lease may have to be renewed between two of them
            yield item

    async def whole(self, name: StreamName, raw: Raw) -> Stored | Damaged:
        """Return the event that a message is or stands for, or how it is damaged."""
        try:
            manifest = manifest_of(raw.headers, raw.data)
            if manifest is None:
                event, size = unframe(raw.headers, raw.data)
            else:
                chunks = await self._chunks(STREAMS[name], raw, manifest)
                event, size = unpack(manifest.encoding, assemble(manifest, chunks))
            check_subject(event, raw.subject)
        except FramingError as error:
            return Damaged(name, raw.sequence, raw.subject, error.reason, error.detail, raw.data)
        return Stored(name, raw.sequence, raw.subject, event, size)

    async def _chunks(self, stream: str, raw: Raw, manifest: Manifest) -> dict[int, bytes]:
        family = raw.subject.split(".")[3]
        filter_ = chunk_subject(self._cluster, family, manifest.digest)
        chunks: dict[int, bytes] = {}
        async for piece in self.messages(stream, filter_, start=1, end=raw.sequence - 1):
            index = chunk_index(piece.headers)
            if index is not None:
                chunks[index] = piece.data
        return chunks

    async def _batch(self, stream: str, filter_: str, start: int, limit: int) -> list[Raw]:
        """Fetch one batch of direct gets; it ends early where a message was lost on the way."""
        self._connection.check()
        query = {"seq": start, "batch": limit, "max_bytes": BATCH_BYTES, "next_by_subj": filter_}
        batch: list[Raw] = []
        async with self._connection.inbox() as (inbox, arrived):
            await self._connection.send(f"$JS.API.DIRECT.GET.{stream}", msgspec.json.encode(query), reply=inbox)
            while True:
                message = await self._next(arrived, stream)
                headers = message.headers or {}
                if "Nats-Sequence" not in headers:
                    _check_end(headers, stream)
                    return batch
                if batch and int(headers.get("Nats-Last-Sequence", "0")) != batch[-1].sequence:
                    return batch
                sequence = int(headers["Nats-Sequence"])
                batch.append(Raw(sequence, headers.get("Nats-Subject", ""), headers, message.data))

    async def _next(self, arrived: asyncio.Queue[Msg | None], stream: str) -> Msg:
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                message = await arrived.get()
        except TimeoutError:
            self._connection.check()
            raise BusUnavailableError(f"stream {stream}: reading was not answered in {REQUEST_SECONDS:g} s") from None
        if message is None:
            raise BusUnavailableError(f"stream {stream}: the connection broke while reading")
        return message


def _check_end(headers: Mapping[str, str], stream: str) -> None:
    """204: the end of the batch. 404: nothing more. 503: no server answers direct gets."""
    status = headers.get("Status", "")
    if status in {"204", "404"}:
        return
    if status == "503":
        raise BusUnavailableError(f"stream {stream} answers no direct get: it does not exist or has no leader just now")
    raise BusSetupError(f"stream {stream}: direct get failed with status {status} {headers.get('Description', '')}")


def parse_headers(data: bytes) -> dict[str, str]:
    """Headers as the broker stores them: a version line, then `name: value` lines."""
    headers: dict[str, str] = {}
    for line in data.decode(errors="replace").split("\r\n")[1:]:
        name, colon, value = line.partition(":")
        if colon:
            headers[name.strip()] = value.strip()
    return headers
