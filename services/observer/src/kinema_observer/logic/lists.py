"""Reading lists, as `kubectl get … -A -o json` prints them, in pieces: the text of a large one is never held whole."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from kinema_core.events import ClusterObject, Quarantined
from kinema_observer.errors import UnreadableListError
from kinema_observer.logic.drivers import DriverLimits, Seen, assembled
from kinema_observer.logic.faults import no_list
from kinema_observer.logic.kubernetes import UNREADABLE, is_read, no_object, read_from_list, read_pods

WINDOW: Final = 8 * 2**20
"""Bytes of text that are taken apart at a time: few enough to stay near the processor, many enough to be few."""

_OPENING: Final = re.compile(rb'"items"\s*:\s*\[\s*(?:\{\s*("[^"\\]*"))?')
_HEAD: Final = re.compile(rb'\s*\{\s*"apiVersion"\s*:\s*"([^"\\]*)"\s*,\s*"kind"\s*:\s*"([^"\\]*)"')
_BYTE: Final = re.compile(r"\(byte (\d+)\)")
_NAMES_KIND: Final = (b'"apiVersion"', b'"kind"')
_TAIL: Final = b'{"items":['
_NO_LIST: Final = "this is no JSON list of Kubernetes objects, as `kubectl get … -A -o json` prints"
_TRIES: Final = 4
"""Places to cut that are tried in a window before more text is read."""


@dataclass(frozen=True)
class Decoded:
    """A list as read: `objects` are all that count, the quarantined among them; `newest` is its newest timestamp."""

    objects: tuple[ClusterObject, ...]
    newest: datetime | None
    ignored: Mapping[str, int]
    """How many objects of each other kind were passed over."""
    finished: frozenset[str] = frozenset()
    """Keys of the pods that have ended: they count for nothing."""
    limits: tuple[DriverLimits, ...] = ()
    """What drivers say of nodes; those of this list have it already."""

    @property
    def quarantined(self) -> tuple[Quarantined, ...]:
        """The objects that could not be read."""
        return tuple(item for item in self.objects if isinstance(item, Quarantined))


def decode_list(data: bytes) -> Decoded:
    """Read what `kubectl get … -o json` prints: a `List` of mixed kinds, a list of one kind, or a single object.

    Lists in a list count with what is in them, and so does an array of objects without any list around it.

    Raises:
        UnreadableListError: the data as a whole is no such thing.
    """
    return decode_pieces((data,))


def decode_pieces(pieces: Iterable[bytes], window: int = WINDOW) -> Decoded:
    """Return the same for a text that comes in pieces, cut anywhere; about `window` bytes of it are held at a time.

    Raises:
        UnreadableListError: the text as a whole is no list of Kubernetes objects.
    """
    found = _Found()
    try:
        for batch in _batches(pieces, window):
            for pod in batch.pods:
                found.add("Pod", *pod)
            for raw in batch.items:
                found.take(raw, batch.kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableListError(f"{_NO_LIST}: {no_list(error)}") from error
    limits = tuple(item for item in found.objects if isinstance(item, DriverLimits))
    return Decoded(
        tuple(assembled(found.objects)), found.newest, found.ignored, frozenset(found.finished), limits=limits
    )


# --- taking the text apart


class _Head(msgspec.Struct, rename="camel", gc=False):
    kind: str
    api_version: str = ""


class _List(msgspec.Struct, gc=False):
    kind: str
    items: list[msgspec.Raw] | None = None


class _Part(msgspec.Struct, gc=False):
    kind: str = ""
    items: list[msgspec.Raw] | None = None


class _Batch(NamedTuple):
    """Some items of a list, and the kind of each that does not name its own; or pods that are read already."""

    items: list[msgspec.Raw]
    kind: str
    pods: Sequence[tuple[str, Seen | None, datetime | None]] = ()


class _Opening(NamedTuple):
    """Beginning of a list: whether its kind comes first, where its items begin, and what is between two of them."""

    kind: str
    """Of items that do not name their own; empty for a list of mixed kinds, and where the kind comes last."""
    named: bool
    """Whether the kind comes first."""
    end: int
    between: re.Pattern[bytes]


class _Status(msgspec.Struct, gc=False):
    message: str | None = None
    reason: str | None = None


_STATUS: Final = msgspec.json.Decoder(_Status)
_HEADS: Final = msgspec.json.Decoder(_Head)
_LISTS: Final = msgspec.json.Decoder(_List)
_PARTS: Final = msgspec.json.Decoder(_Part)
_ITEMS: Final = msgspec.json.Decoder(list[msgspec.Raw])


def _batches(pieces: Iterable[bytes], window: int) -> Iterator[_Batch]:
    """Yield the items of the list, a window at a time; what cannot be cut is read as a whole."""
    text, wanted, passed = bytearray(), window, 0
    opening: _Opening | None = None
    for piece in pieces:
        text += piece
        while len(text) > wanted:
            opening = opening or _opening(text)
            start = 0 if passed or opening is None else opening.end
            cut = None if opening is None else _cut(text, start, opening)
            if cut is None:
                wanted = 2 * len(text)
                break
            batch, end = cut
            yield batch
            del text[:end]
            passed, wanted = passed + end, window
    if opening is None or not passed:
        yield _whole(bytes(text))
    else:
        yield _rest(bytes(text), opening, passed)


def _opening(text: bytearray) -> _Opening | None:
    """Return the beginning of a list whose items come in objects of the same first field; None for anything else."""
    found = _OPENING.search(text)
    if found is None or found[1] is None:
        return None
    end = found.start(1)
    end = text.rindex(b"{", 0, end)
    try:
        part = _PARTS.decode(bytes(text[:end]) + b"]}")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None  # these items are further inside
    if part.items != [] or (part.kind and not part.kind.endswith("List")):
        return None
    if not part.kind and found[1] not in _NAMES_KIND:
        return None  # their kind follows after them
    between = re.compile(rb"\}\s*,\s*(?=\{\s*" + re.escape(found[1]) + rb")")
    return _Opening(part.kind.removesuffix("List"), bool(part.kind), end, between)


def _cut(text: bytearray, start: int, opening: _Opening) -> tuple[_Batch, int] | None:
    """Return the items up to one of the last places between two, and where the next one begins.

    Between parts of an item it may look alike: only what can be read as a list of whole values ends with an item.
    """
    tail = max(start, len(text) - len(text) // 8)
    for found in [*opening.between.finditer(text, tail)][: -_TRIES - 1 : -1]:
        with memoryview(text) as view:  # a slice of it is no copy
            array = b"".join((b"[", view[start : found.start() + 1], b"]"))
        head = _HEAD.match(array, 1)
        read = read_pods(array) if head is not None and head[2] == b"Pod" else None
        if read is not None:
            return _Batch([], opening.kind, read), found.end()
        try:
            return _Batch(_ITEMS.decode(array), opening.kind), found.end()
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
    return None


def _rest(text: bytes, opening: _Opening, passed: int) -> _Batch:
    """Return the last items; in some lists the kind stands only at the end of the text."""
    try:
        part = _PARTS.decode(_TAIL + text)
    except msgspec.DecodeError as error:
        said = _BYTE.sub(lambda at: f"(byte {int(at[1]) - len(_TAIL) + passed})", str(error))
        raise msgspec.DecodeError(said) from error
    if not opening.named and not part.kind.endswith("List"):
        raise UnreadableListError(f"this is no list of Kubernetes objects: its kind is {part.kind!r}")
    return _Batch(part.items or [], opening.kind or part.kind.removesuffix("List"))


def _whole(text: bytes) -> _Batch:
    if not text.strip():
        raise UnreadableListError("is empty: take it again with `kubectl get … -A -o json`, and see what that says")
    if text.lstrip().startswith(b"["):
        items = _ITEMS.decode(text)
        if not items:
            raise UnreadableListError(f"{_NO_LIST}: it is an array without any object; take it again")
        return _Batch(items, "")
    found = _LISTS.decode(text)
    if found.kind.endswith("List"):
        return _Batch(found.items or [], found.kind.removesuffix("List"))
    if found.kind == "Status":
        said = _STATUS.decode(text)
        raise UnreadableListError(
            f"{_NO_LIST}, but the API server's answer {said.message or said.reason!r}: see to that, and take it again"
        )
    return _Batch([msgspec.Raw(text)], found.kind)


# --- what is in it


@dataclass
class _Found:
    """Objects read so far."""

    objects: list[Seen] = field(default_factory=list)
    ignored: dict[str, int] = field(default_factory=dict)
    finished: list[str] = field(default_factory=list)
    newest: datetime | None = None
    _seen: int = 0

    def take(self, raw: msgspec.Raw, list_kind: str) -> None:
        """Read one item."""
        name, known = _kind_of(raw, list_kind)
        if name.endswith("List"):
            inner = _inside(raw)
            for one in inner or ():
                self.take(one, name.removesuffix("List"))
            if inner is not None:
                return
        if not known:
            self._seen += 1
            self.ignored[name] = self.ignored.get(name, 0) + 1
            return
        self.add(name, *read_from_list(name, raw) if name else ("", no_object(raw, f"items[{self._seen}]"), None))

    def add(self, kind: str, key: str, item: Seen | None, newest: datetime | None) -> None:
        """Take an object that is read already."""
        self._seen += 1
        if newest is not None and (self.newest is None or newest > self.newest):
            self.newest = newest
        if item is not None:
            self.objects.append(item)
        elif kind == "Pod":
            self.finished.append(key)


def _inside(raw: msgspec.Raw) -> list[msgspec.Raw] | None:
    """Return the items of a list in a list; None for an object that is merely called so."""
    try:
        return _PARTS.decode(raw).items
    except msgspec.ValidationError:
        return None


def _kind_of(raw: msgspec.Raw, list_kind: str) -> tuple[str, bool]:
    """Return the kind of an item and whether it is read; no name when it is not even an object of a kind."""
    head = _HEAD.match(raw)  # as kubectl prints it: spares a walk through the object
    if head is not None:
        return _known(head[2], head[1])
    try:
        found = _HEADS.decode(raw)
    except UNREADABLE:
        # The items of a list of one kind do not repeat it.
        return list_kind, list_kind == "" or is_read(list_kind, "")
    return found.kind, is_read(found.kind, found.api_version)


@lru_cache(maxsize=4096)
def _known(kind: bytes, api_version: bytes) -> tuple[str, bool]:
    name = kind.decode(errors="replace")
    return name, is_read(name, api_version.decode(errors="replace"))
