"""Framing: an event that was cut, compressed and put together again is the same event, or it is damaged aloud."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import msgspec
import pytest
import zstandard
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.support.bus_events import NOW, iteration, snapshot

from kinema_core.events import ClusterDelta, ClusterSnapshot, Event, EventError, ObjectKey, Pod, encode
from kinema_core.runtime import framing
from kinema_core.runtime.envelope import origin
from kinema_core.runtime.framing import (
    CHUNK_BYTES,
    COMPRESS_ABOVE,
    HEADER_ENCODING,
    HEADER_ID,
    HEADER_MANIFEST,
    HEADER_MESSAGE_ID,
    MAX_CHUNKS,
    Framed,
    FramingError,
    Manifest,
    assemble,
    chunk_index,
    frame,
    manifest_of,
    unframe,
    unpack,
)

names = st.text(min_size=1, max_size=40)
pods = st.builds(Pod, namespace=names, name=names, uid=names, ready=st.booleans())
events = st.builds(
    origin,
    st.builds(
        ClusterDelta,
        version=st.integers(min_value=1, max_value=2**53),
        upserts=st.lists(pods, max_size=30).map(tuple),
        deletes=st.lists(st.builds(ObjectKey, kind=st.just("Pod"), key=names), max_size=5).map(tuple),
    ),
    id_=st.text(min_size=1, max_size=60),
    cluster=names,
    iteration=names,
    now=st.just(NOW),
    state=st.integers(min_value=0, max_value=2**53),
)


def whole(framed: Framed) -> Event:
    """What a reader makes of the messages."""
    manifest = manifest_of(framed.headers, framed.payload)
    if manifest is None:
        return unframe(framed.headers, framed.payload)[0]
    chunks = {index: chunk.payload for index, chunk in enumerate(framed.chunks)}
    assert [chunk_index(chunk.headers) for chunk in framed.chunks] == list(chunks)
    return unpack(manifest.encoding, assemble(manifest, chunks))[0]


@settings(max_examples=150, deadline=None)
@given(event=events, compress_above=st.sampled_from([0, 200, 10**9]), chunk_bytes=st.sampled_from([1, 7, 100, 10**9]))
def test_an_event_survives_any_cut(event: Event, compress_above: int, chunk_bytes: int) -> None:
    """Whatever the sizes at which it is compressed and cut, the reader gets an equal event."""
    framed = frame(event, compress_above=compress_above, chunk_bytes=chunk_bytes)
    assume(len(framed.chunks) <= MAX_CHUNKS)
    assert whole(framed) == event
    assert framed.size == len(encode(event))
    assert all(len(chunk.payload) <= chunk_bytes for chunk in framed.chunks)


@settings(max_examples=80, deadline=None)
@given(event=events, data=st.data())
def test_any_harm_to_a_chunk_is_noticed(event: Event, data: st.DataObject) -> None:
    """A changed, shortened, lengthened or exchanged chunk is a wrong digest; a lost one is missing."""
    framed = frame(event, chunk_bytes=20)
    manifest = manifest_of(framed.headers, framed.payload)
    assert manifest is not None
    chunks = {index: chunk.payload for index, chunk in enumerate(framed.chunks)}
    index = data.draw(st.sampled_from(sorted(chunks)))
    harmed = data.draw(st.one_of(st.none(), st.binary(max_size=30).filter(lambda piece: piece != chunks[index])))
    if harmed is None:
        del chunks[index]
    else:
        chunks[index] = harmed
    with pytest.raises(FramingError) as caught:
        assemble(manifest, chunks)
    assert caught.value.reason == ("missing-chunk" if harmed is None else "bad-digest")


@settings(max_examples=100, deadline=None)
@given(data=st.binary(max_size=200), encoding=st.sampled_from(["json", "zstd", "lzma", ""]))
def test_bytes_from_anybody_never_crash(data: bytes, encoding: str) -> None:
    """Whatever the bytes, unframing gives an event or a FramingError."""
    with pytest.raises(FramingError):
        unframe({HEADER_ENCODING: encoding}, data)


@settings(max_examples=60, deadline=None)
@given(event=events)
def test_headers_cannot_be_broken_out_of(event: Event) -> None:
    """Header values hold neither line ends nor anything beyond ASCII."""
    for value in frame(event).headers.values():
        assert value.isascii()
        assert value.isprintable()


def test_small_events_are_plain_json() -> None:
    """Up to 32 KiB the payload is the event's JSON, readable with any client."""
    event = iteration(1)
    framed = frame(event)
    assert framed.payload == encode(event)
    assert framed.headers[HEADER_ENCODING] == "json"
    assert not framed.chunks


def test_larger_events_are_compressed() -> None:
    """Above 32 KiB the payload is compressed and stays one message while it is small enough."""
    framed = frame(snapshot(1, 1000))
    assert framed.size > COMPRESS_ABOVE
    assert framed.headers[HEADER_ENCODING] == "zstd"
    assert len(framed.payload) < framed.size
    assert not framed.chunks


def test_the_manifest_says_what_it_stands_for() -> None:
    """Digest, number of chunks, bytes, and the state version that a snapshot covers."""
    framed = frame(snapshot(7, 30_000))
    manifest = manifest_of(framed.headers, framed.payload)
    assert manifest is not None
    assert manifest.digest == framed.digest
    assert manifest.count == len(framed.chunks) > 1
    assert manifest.bytes == sum(len(chunk.payload) for chunk in framed.chunks)
    assert max(len(chunk.payload) for chunk in framed.chunks) == CHUNK_BYTES
    assert manifest.covers == 7
    assert framed.headers[HEADER_MANIFEST] == str(manifest.count)


def test_other_events_cover_the_state_they_were_decided_on() -> None:
    """A manifest of no state event names the envelope's state version."""
    body = ClusterSnapshot(version=3, objects=())
    event = origin(body, id_="x", cluster="c1", iteration="", now=NOW, state=9)
    assert '"covers":3' in frame(event, chunk_bytes=10).payload.decode()
    started = origin(iteration(4).body, id_="y", cluster="c1", iteration="", now=NOW, state=9)
    assert '"covers":9' in frame(started, chunk_bytes=10).payload.decode()


def test_ids_tell_clusters_apart() -> None:
    """Two clusters may use the same event id: the broker's message ids differ, the event's id does not."""
    one, other = frame(iteration(1, "a")), frame(iteration(1, "b"))
    assert one.headers[HEADER_MESSAGE_ID] != other.headers[HEADER_MESSAGE_ID]
    assert one.headers[HEADER_ID] == other.headers[HEADER_ID]


@pytest.mark.parametrize(
    "change",
    [
        lambda manifest: replace_in(manifest, count=10**9),
        lambda manifest: replace_in(manifest, count=0),
        lambda manifest: replace_in(manifest, bytes=10**15),
        lambda manifest: replace_in(manifest, digest="../.."),
        lambda manifest: replace_in(manifest, digest="*"),
    ],
)
def test_a_manifest_that_promises_too_much_is_refused(change: Callable[[Manifest], Manifest]) -> None:
    """Counts and sizes beyond any event, and digests that are none, are refused before anything is read."""
    framed = frame(snapshot(1, 10), chunk_bytes=100)
    manifest = manifest_of(framed.headers, framed.payload)
    assert manifest is not None
    changed = replace(framed, payload=msgspec.json.encode(change(manifest)))
    with pytest.raises(FramingError, match="bad-encoding"):
        manifest_of(changed.headers, changed.payload)


def replace_in(manifest: Manifest, **fields: int | str) -> Manifest:
    """The manifest with other fields."""
    return Manifest(**{name: getattr(manifest, name) for name in manifest.__struct_fields__} | fields)


def test_a_bomb_is_not_unpacked() -> None:
    """Compressed data that does not name its size, or names a huge one, is refused."""
    unsized = zstandard.ZstdCompressor(write_content_size=False).compress(b" " * 10**6)
    with pytest.raises(FramingError, match="bad-encoding"):
        unframe({HEADER_ENCODING: "zstd"}, unsized)


def test_an_event_has_at_most_64_mebibytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """What unpacks to more is refused by readers before it is allocated, and by the publisher before it is stored."""
    assert framing.MAX_EVENT_BYTES == 64 * 1024**2
    bomb = zstandard.ZstdCompressor().compress(bytes(framing.MAX_EVENT_BYTES + 1))
    assert len(bomb) < CHUNK_BYTES
    with pytest.raises(FramingError, match="bad-encoding"):
        unframe({HEADER_ENCODING: "zstd"}, bomb)
    monkeypatch.setattr(framing, "MAX_EVENT_BYTES", 10_000)
    with pytest.raises(EventError, match="more than 10000"):
        frame(snapshot(1, 1000))
