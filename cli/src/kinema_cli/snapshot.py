"""Snapshot files: what `kubectl get … -A -o json` printed, plain or compressed."""

from __future__ import annotations

import gzip
import io
import sys
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

import zstandard

from kinema_core.model.cluster import Cluster, from_objects
from kinema_observer.errors import UnreadableListError
from kinema_observer.logic.kubernetes import decode_list

_GZIP: Final = b"\x1f\x8b"
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
STANDARD_INPUT: Final = Path("-")


class SnapshotError(Exception):
    """The file is no snapshot; the text names it and says what to do."""


@dataclass(frozen=True)
class Snapshot:
    """A cluster as a file tells it."""

    cluster: Cluster
    now: datetime
    """The newest timestamp in the file: durations count to it."""
    ignored: Mapping[str, int]
    """Objects of kinds that are not read, by kind."""
    live: bool = False
    """Taken from a cluster, so that what is absent does not exist."""


def load_snapshot(path: Path) -> Snapshot:
    """Read a snapshot; `-` reads standard input.

    Raises:
        SnapshotError: missing, damaged, no list of Kubernetes objects, or one without nodes.
    """
    try:
        decoded = decode_list(_unpacked(path))
    except UnreadableListError as error:
        raise SnapshotError(f"{path}: {error}") from error
    cluster = from_objects(decoded.objects)
    if not cluster.nodes and not decoded.quarantined:
        raise SnapshotError(
            f"{path}: there is no node in it: take the snapshot with `kubectl get nodes,pods,… -A -o json`"
        )
    if decoded.newest is None:
        raise SnapshotError(f"{path}: no object in it has a timestamp: take the snapshot with `kubectl get … -o json`")
    return Snapshot(cluster=cluster, now=decoded.newest, ignored=decoded.ignored)


def _unpacked(path: Path) -> bytes:
    try:
        data = sys.stdin.buffer.read() if path == STANDARD_INPUT else path.read_bytes()
    except OSError as error:
        raise SnapshotError(f"{path}: {error.strerror}") from error
    try:
        # What the bytes are counts: a pipe has no name, and names lie.
        if data.startswith(_GZIP):
            return gzip.decompress(data)
        if data.startswith(_ZSTD):
            with zstandard.ZstdDecompressor().stream_reader(io.BytesIO(data), read_across_frames=True) as reader:
                return bytes(reader.read())
    except (OSError, EOFError, zlib.error, zstandard.ZstdError) as error:
        raise SnapshotError(f"{path}: cannot be unpacked, the file is damaged or cut off: {error}") from error
    if path.suffix in (".gz", ".zst"):
        raise SnapshotError(f"{path}: is not compressed as its name says: rename it, or write it again")
    return data
