"""Snapshot files: what `kubectl get … -A -o json` printed, plain or compressed."""

from __future__ import annotations

import contextlib
import gzip
import io
import itertools
import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, Protocol, cast

import zstandard

from kinema_core.events import ClusterObject, Quarantined, kind_of
from kinema_core.model.cluster import Cluster, from_objects
from kinema_core.model.quarantine import NO_KIND
from kinema_observer.errors import UnreadableListError
from kinema_observer.logic.lists import decode_pieces

_GZIP: Final = b"\x1f\x8b"
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_UTF_16: Final = (b"\xff\xfe", b"\xfe\xff")
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_PIECE: Final = 2**20
_SHOWN: Final = 60
"""Characters of a file's first line that are shown where it is nothing that we know."""
_TAKEN: Final = "`kubectl get nodes,pods,… -A -o json`"
STANDARD_INPUT: Final = Path("-")


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


class SnapshotError(Exception):
    """The file is no snapshot; the text names it and says what to do."""


@dataclass(frozen=True)
class Snapshot:
    """A cluster as a file describes it."""

    cluster: Cluster
    now: datetime
    """The newest timestamp in the file: durations count to it."""
    ignored: Mapping[str, int]
    """Objects of kinds that are not read, by kind."""
    finished: frozenset[str] = frozenset()
    """Keys of the pods that have ended."""
    live: bool = False
    """Taken from a cluster, so that what is absent does not exist."""


def load_snapshot(path: Path) -> Snapshot:
    """Read a snapshot; `-` reads standard input.

    Raises:
        SnapshotError: missing, damaged, no list of Kubernetes objects, or one without nodes.
    """
    try:
        decoded = decode_pieces(_json(path))
    except UnreadableListError as error:
        raise SnapshotError(f"{path}: {error}") from error
    cluster = from_objects(decoded.objects)
    _refuse_two_of_a_name(path, decoded.objects, cluster)
    if not cluster.nodes and not decoded.quarantined:
        raise SnapshotError(f"{path}: there is no node in it: take the snapshot with {_TAKEN}")
    if all(map(_is_no_object, decoded.objects)):
        raise SnapshotError(
            f"{path}: this is no list of Kubernetes objects: nothing in it has a kind; take it with {_TAKEN}"
        )
    if decoded.newest is None:
        raise SnapshotError(f"{path}: no object in it has a timestamp: take the snapshot with `kubectl get … -o json`")
    return Snapshot(cluster=cluster, now=decoded.newest, ignored=decoded.ignored, finished=decoded.finished)


def _refuse_two_of_a_name(path: Path, objects: Sequence[ClusterObject], cluster: Cluster) -> None:
    """Refuse two unlike objects of one name; an object that is merely listed twice is no fault."""
    if len(objects) == sum(len(mine) for mine in cluster.objects.values()):
        return
    for item in objects:
        if _is_no_object(item):
            continue  # named after its text alone, and as good as any other
        if cluster.objects[kind_of(item)][item.key] != item:
            raise SnapshotError(
                f"{path}: two unlike objects of kind {kind_of(item)} are named {item.key}: take it again, in one call"
            )


def _is_no_object(item: ClusterObject) -> bool:
    return isinstance(item, Quarantined) and item.object.startswith(f"{NO_KIND} ")


def _json(path: Path) -> Iterator[bytes]:
    """Return the text of the file as JSON, a piece at a time."""
    pieces = _pieces(path)
    begin = next(pieces, b"")
    text = itertools.chain((begin,), pieces)
    start = begin.lstrip()
    if start and not start.startswith((b"{", b"[")):
        from kinema_cli.snapshot.yaml_file import YamlError, as_json, is_yaml

        if not is_yaml(start):
            line = start.splitlines()[0][:_SHOWN].decode(errors="replace")
            problem = "this is no JSON list of Kubernetes objects, nor YAML"
            raise SnapshotError(f"{path}: {problem}: it begins with {line!r}; take it with {_TAKEN}")
        try:
            yield from as_json(text)
        except YamlError as error:
            raise SnapshotError(f"{path}: as YAML, {error}") from error
    else:
        yield from text


def _pieces(path: Path) -> Iterator[bytes]:
    """Return the text of the file, a piece at a time: unpacked it may be ten times as large."""
    try:
        with contextlib.ExitStack() as stack:
            yield from _unpacked(path, stack)
    except (zlib.error, zstandard.ZstdError, EOFError, gzip.BadGzipFile) as error:
        raise SnapshotError(f"{path}: cannot be unpacked, the file is damaged or cut off: {error}") from error
    except OSError as error:
        raise SnapshotError(f"{path}: {error.strerror or error}") from error


def _unpacked(path: Path, stack: contextlib.ExitStack) -> Iterator[bytes]:
    file = _opened(path, stack)
    start = file.peek(4)
    source: _Readable = file
    # What the bytes are counts: a pipe has no name, and names lie.
    if start.startswith(_GZIP):
        source = stack.enter_context(gzip.GzipFile(fileobj=file))
    elif start.startswith(_ZSTD):
        unpacking = zstandard.ZstdDecompressor()
        source = stack.enter_context(unpacking.stream_reader(file, read_across_frames=True, closefd=False))
    elif start and path.suffix in (".gz", ".zst"):
        raise SnapshotError(f"{path}: is not compressed as its name says: rename it, or write it again")
    elif start.startswith(_UTF_16):
        raise SnapshotError(f"{path}: is in UTF-16: write it again in UTF-8 (PowerShell: `| Out-File -Encoding utf8`)")
    elif start.startswith(_BYTE_ORDER_MARK):
        file.read(len(_BYTE_ORDER_MARK))
    piece = source.read(_PIECE)
    if start and not piece:  # of a text that is cut off early, zstandard gives nothing and says nothing
        raise SnapshotError(f"{path}: cannot be unpacked, the file is damaged or cut off: nothing comes out")
    while piece:
        yield piece
        piece = source.read(_PIECE)


def _opened(path: Path, stack: contextlib.ExitStack) -> io.BufferedReader:
    if path != STANDARD_INPUT:
        return stack.enter_context(path.open("rb"))
    # Whatever stands for standard input, it may not be able to look ahead.
    file: io.BufferedReader = io.BufferedReader(cast("io.RawIOBase", sys.stdin.buffer), _PIECE)
    stack.callback(file.detach)  # or it would close standard input in the end
    return file
