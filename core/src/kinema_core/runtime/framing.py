"""Framing of events as messages: compression, chunks, digest. Pure.

Up to 32 KiB an event is plain JSON. Above it is compressed; a result above 512 KiB is cut into chunks, and the event's
own subject gets a manifest in its place, after its chunks. A message without Kinema's headers is read as plain JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final, Literal
from urllib.parse import quote

import msgspec
import zstandard

from kinema_core.events import (
    ClusterDelta,
    ClusterSnapshot,
    Event,
    EventError,
    decode,
    encode,
    kind_of_type,
    subject_of,
    token,
)

COMPRESS_ABOVE: Final = 32 * 1024
CHUNK_BYTES: Final = 512 * 1024
"""Half of the broker's default limit for a message (ecosystem: chunks of half a megabyte need no larger limit)."""
MAX_EVENT_BYTES: Final = 64 * 1024**2
"""Largest event, as JSON: a snapshot of some 80,000 pods. No message makes a reader allocate more."""
MAX_CHUNKS: Final = 2048

HEADER_ID: Final = "Kinema-Id"
HEADER_TYPE: Final = "Kinema-Type"
HEADER_ENCODING: Final = "Kinema-Encoding"
HEADER_MANIFEST: Final = "Kinema-Manifest"
HEADER_CHUNK: Final = "Kinema-Chunk"
HEADER_TRACE: Final = "traceparent"
HEADER_MESSAGE_ID: Final = "Nats-Msg-Id"

_JSON: Final = "json"
_ZSTD: Final = "zstd"
_CHUNK_ID: Final = "chunk"


class FramingError(Exception):
    """Messages are no whole event.

    `reason`: `bad-digest`, `missing-chunk`, `bad-encoding`, `wrong-subject`, or an EventError's.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """Stand-in for an event whose body lies in chunks."""

    digest: str
    """SHA-256 of the encoded event, hexadecimal."""
    count: int
    bytes: int
    """Of the encoded event: the sum of its chunks."""
    encoding: Literal["json", "zstd"]
    covers: int
    """Version of the cluster state that the event carries or was decided on."""


@dataclass(frozen=True)
class Chunk:
    """One piece of a big event."""

    headers: Mapping[str, str]
    payload: bytes


@dataclass(frozen=True)
class Framed:
    """An event ready to be stored: its chunks first, then its own message."""

    headers: Mapping[str, str]
    payload: bytes
    size: int
    """Bytes of the event as JSON."""
    digest: str = ""
    chunks: tuple[Chunk, ...] = field(default=())


def header_id(event: Event) -> str:
    """Return the event's id as it stands in headers: quoted, so that no id can break out of its line."""
    return quote(event.id, safe="/:@+,;=")


def covers(event: Event) -> int:
    """Return the state version that the event carries, else the one that it was decided on."""
    if isinstance(event.body, ClusterSnapshot | ClusterDelta):
        return event.body.version
    return event.state


def frame(event: Event, *, compress_above: int = COMPRESS_ABOVE, chunk_bytes: int = CHUNK_BYTES) -> Framed:
    """Encode, compress and cut an event.

    Raises:
        EventError: `bad-body`, the event holds NaN or infinity, or is larger than any reader unpacks.
    """
    data = encode(event)
    size = len(data)
    if size > MAX_EVENT_BYTES:
        raise EventError("bad-body", f"{event.type} has {size} bytes as JSON, more than {MAX_EVENT_BYTES}")
    encoding: Literal["json", "zstd"] = _JSON
    if size > compress_above:
        data, encoding = zstandard.ZstdCompressor().compress(data), _ZSTD
    headers = {
        # Message ids are unique within a stream, and one stream holds several clusters.
        HEADER_MESSAGE_ID: f"{token(event.cluster)}|{header_id(event)}",
        HEADER_ID: header_id(event),
        HEADER_TYPE: event.type,
        HEADER_TRACE: quote(event.traceparent, safe=""),
        HEADER_ENCODING: encoding,
    }
    if len(data) <= chunk_bytes:
        return Framed(headers=headers, payload=data, size=size)
    digest = sha256(data).hexdigest()
    pieces = [data[start : start + chunk_bytes] for start in range(0, len(data), chunk_bytes)]
    manifest = Manifest(digest=digest, count=len(pieces), bytes=len(data), encoding=encoding, covers=covers(event))
    return Framed(
        headers={**headers, HEADER_MANIFEST: str(len(pieces))},
        payload=msgspec.json.encode(manifest),
        size=size,
        digest=digest,
        chunks=tuple(_chunk(event, digest, index, piece) for index, piece in enumerate(pieces)),
    )


def _chunk(event: Event, digest: str, index: int, piece: bytes) -> Chunk:
    message_id = f"{token(event.cluster)}|{_CHUNK_ID}|{digest}|{index}"
    return Chunk(headers={HEADER_MESSAGE_ID: message_id, HEADER_CHUNK: str(index)}, payload=piece)


def manifest_of(headers: Mapping[str, str], payload: bytes) -> Manifest | None:
    """Return the manifest that a message is, None for one that carries its event itself.

    Raises:
        FramingError: `bad-encoding`, the manifest cannot be read or promises more than an event may have.
    """
    if HEADER_MANIFEST not in headers:
        return None
    try:
        manifest = msgspec.json.decode(payload, type=Manifest)
    except msgspec.DecodeError as error:
        raise FramingError("bad-encoding", f"the manifest cannot be read: {error}") from error
    check_manifest(manifest)
    return manifest


def check_manifest(manifest: Manifest) -> None:
    """Raise FramingError `bad-encoding` for a manifest that promises more than an event may have."""
    if not (0 < manifest.count <= MAX_CHUNKS and 0 < manifest.bytes <= MAX_EVENT_BYTES and manifest.digest.isalnum()):
        detail = f"the manifest promises {manifest.count} chunks of {manifest.bytes} bytes, digest {manifest.digest!r}"
        raise FramingError("bad-encoding", detail)


def chunk_index(headers: Mapping[str, str]) -> int | None:
    """Return which chunk a message is, None when it does not say."""
    text = headers.get(HEADER_CHUNK, "")
    return int(text) if text.isascii() and text.isdigit() else None


def assemble(manifest: Manifest, chunks: Mapping[int, bytes]) -> bytes:
    """Put the chunks of an event together again.

    Raises:
        FramingError: `missing-chunk` or `bad-digest`.
    """
    missing = [index for index in range(manifest.count) if index not in chunks]
    if missing:
        shown = ", ".join(str(index) for index in missing[:5])
        raise FramingError("missing-chunk", f"{len(missing)} of {manifest.count} chunks are missing: {shown}")
    data = b"".join(chunks[index] for index in range(manifest.count))
    if len(data) != manifest.bytes:
        raise FramingError("bad-digest", f"the chunks have {len(data)} bytes, the manifest says {manifest.bytes}")
    found = sha256(data).hexdigest()
    if found != manifest.digest:
        raise FramingError("bad-digest", f"the chunks have digest {found}, the manifest says {manifest.digest}")
    return data


def unpack(encoding: str, data: bytes) -> tuple[Event, int]:
    """Decode an event from its encoded bytes; gives its size as JSON too.

    Raises:
        FramingError: `bad-encoding`, or the reason of the EventError (`bad-json`, `unknown-type`, …).
    """
    if encoding == _ZSTD:
        data = decompress(data)
    elif encoding != _JSON:
        raise FramingError("bad-encoding", f"encoding {encoding!r} is not known to this version")
    try:
        return decode(data), len(data)
    except EventError as error:
        raise FramingError(error.reason, error.detail) from error


def decompress(data: bytes) -> bytes:
    """Decompress what names its size; raises FramingError `bad-encoding`, before anything too large is allocated."""
    try:
        size = zstandard.get_frame_parameters(data).content_size
        if not 0 <= size <= MAX_EVENT_BYTES:
            raise FramingError("bad-encoding", f"the compressed event does not name a size up to {MAX_EVENT_BYTES}")
        return zstandard.ZstdDecompressor().decompress(data, max_output_size=size, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise FramingError("bad-encoding", f"the event cannot be decompressed: {error}") from error


def unframe(headers: Mapping[str, str], payload: bytes) -> tuple[Event, int]:
    """Decode a message that carries its event itself; see `unpack`."""
    return unpack(headers.get(HEADER_ENCODING, _JSON), payload)


def check_subject(event: Event, subject: str) -> None:
    """Refuse an event that lies on the subject of another cluster or kind; an older version may have been lifted.

    The broker grants rights by subject, so the subject is all that shows who published an event.

    Raises:
        FramingError: `wrong-subject`.
    """
    try:
        right = subject_of(event)
    except ValueError as error:
        raise FramingError("wrong-subject", str(error)) from error
    if kind_of_type(subject) != kind_of_type(right):
        raise FramingError("wrong-subject", f"an event of {right} lies on {subject}")
