"""Reading Kubernetes JSON: single objects, as they come over a watch and in lists.

Every object is decoded on its own. One that cannot be read becomes `Quarantined`: named, with the path and the reason,
and with the node or namespace that it freezes, because an unreadable object may forbid anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from hashlib import sha256
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec

from kinema_core.events import ClusterObject, Quarantined
from kinema_core.model.quarantine import NAMELESS, NO_KIND, UNNAMED
from kinema_observer.errors import UnreadableFieldError, UnreadableListError
from kinema_observer.logic import controllers, drivers, infrastructure, pods, wire
from kinema_observer.logic.drivers import Seen
from kinema_observer.logic.reading import fault_of, key_of
from kinema_observer.logic.times import newest_in, newest_of_pod

T = TypeVar("T")
W = TypeVar("W", bound=wire.Object)
UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, UnreadableFieldError, RecursionError)
"""What reading one object may raise."""


class Reading(msgspec.Struct, frozen=True, gc=False):
    """One object as read. `key` is unique within its kind; `item` is None when it is no part of the state."""

    key: str
    resource_version: str
    item: Seen | None


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a list. `more` is the token of the next one, `resource_version` the version that all pages share."""

    readings: list[Reading]
    resource_version: str
    more: str | None


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str | None = msgspec.field(name="continue", default=None)


class _List(msgspec.Struct, Generic[T], gc=False):
    metadata: _ListMeta
    items: list[T] | None = None


class _Part(msgspec.Struct, Generic[T], gc=False):
    metadata: _ListMeta | None = None
    items: list[T] | None = None


_POD_ARRAYS: Final = msgspec.json.Decoder(list[wire.ListedPod])
_RAW_LISTS: Final = msgspec.json.Decoder(_List[msgspec.Raw])
_SEAM: Final = b'},{"metadata":{'
"""What is between two items of a list as API servers write it, and in no text: there quotes are escaped."""
_PART_BYTES: Final = 2**17
"""Of a list that are read at a time: objects of more would leave the processor's cache before they are converted."""


def _parts(body: bytes) -> Iterator[bytes]:
    """Yield a list as shorter ones. Where a seam was inside an item, its two sides are no JSON."""
    opening, start, view = b"", 0, memoryview(body)  # a slice of it is no copy
    while (seam := body.find(_SEAM, start + _PART_BYTES)) >= 0:
        yield b"".join((opening, view[start : seam + 1], b"]}"))
        opening, start = b'{"items":[', seam + 2
    yield b"".join((opening, view[start:]))


class _Reader(NamedTuple):
    """Readers of one kind: of single objects, and of dozens of a list at once, which takes half the time."""

    one: Callable[[bytes | msgspec.Raw], tuple[wire.Object, Seen | None]]
    page: Callable[[bytes], Page]


def _reader(
    kind: type[W],
    convert: Callable[[W], Seen | None],
    odd: Callable[[bytes | msgspec.Raw], tuple[wire.Object, Seen | None]] | None = None,
) -> _Reader:
    """Of one kind; `odd` reads what is not of its shape."""
    decoder, lists = msgspec.json.Decoder(kind), msgspec.json.Decoder(_Part[kind])  # type: ignore[valid-type]  # at run time

    def one(raw: bytes | msgspec.Raw) -> tuple[wire.Object, Seen | None]:
        try:
            found = decoder.decode(raw)
        except msgspec.ValidationError:
            if odd is None:
                raise
            return odd(raw)
        return found, convert(found)

    def page(body: bytes) -> Page:
        meta: _ListMeta | None = None
        readings: list[Reading] = []
        for part in _parts(body):
            found: _Part[W] = lists.decode(part)
            meta = meta or found.metadata
            readings += [
                Reading(key_of(one.metadata), one.metadata.resource_version or "", convert(one))
                for one in found.items or ()
            ]
        if meta is None:
            raise UnreadableListError("the answer is no list: it has no `metadata`")
        return Page(readings, meta.resource_version, meta.continue_)

    return _Reader(one, page)


_KINDS: Final[Mapping[str, tuple[str, _Reader]]] = {
    "Node": ("", _reader(wire.Node, infrastructure.node_of)),
    "Pod": ("", _reader(wire.KnownPod, pods.pod_of, pods.odd_pod_of)),
    "Deployment": ("apps", _reader(wire.Controller, partial(controllers.workload_of, "Deployment"))),
    "ReplicaSet": ("apps", _reader(wire.Controller, partial(controllers.workload_of, "ReplicaSet"))),
    "StatefulSet": ("apps", _reader(wire.Controller, partial(controllers.workload_of, "StatefulSet"))),
    "DaemonSet": ("apps", _reader(wire.Controller, partial(controllers.workload_of, "DaemonSet"))),
    "Job": ("batch", _reader(wire.Controller, partial(controllers.workload_of, "Job"))),
    "ReplicationController": (
        "",
        _reader(wire.Controller, partial(controllers.workload_of, "ReplicationController")),
    ),
    "HorizontalPodAutoscaler": ("autoscaling", _reader(wire.Autoscaler, controllers.autoscaler_of)),
    "PodDisruptionBudget": ("policy", _reader(wire.Budget, controllers.budget_of)),
    "VerticalPodAutoscaler": (
        "autoscaling.k8s.io",
        _reader(wire.Vertical, controllers.recommendation_of),
    ),
    "PersistentVolume": ("", _reader(wire.Volume, infrastructure.volume_of)),
    "PersistentVolumeClaim": ("", _reader(wire.Claim, infrastructure.claim_of)),
    "CSINode": ("storage.k8s.io", _reader(wire.CSINode, drivers.limits_of)),
    "StorageClass": ("storage.k8s.io", _reader(wire.StorageClass, infrastructure.storage_class_of)),
    "PriorityClass": ("scheduling.k8s.io", _reader(wire.PriorityClass, infrastructure.priority_class_of)),
    "ResourceQuota": ("", _reader(wire.Quota, infrastructure.quota_of)),
    "Namespace": ("", _reader(wire.Namespace, infrastructure.namespace_object_of)),
}
"""Kubernetes kinds that are read: their API group, and how."""

_FREEZES_NAMESPACE: Final = frozenset(_KINDS) - {
    "Node",
    "Pod",
    "VerticalPodAutoscaler",
    "PersistentVolume",
    "CSINode",
    "StorageClass",
    "PriorityClass",
}
"""Kinds whose unreadable object may forbid something to any pod of its namespace."""
_NODES_OWN: Final = ("Node", "CSINode")
"""Kinds whose unreadable object may forbid something to the node of its name."""


def read(kind: str, raw: bytes | msgspec.Raw) -> Reading:
    """Read one object of a Kubernetes kind; what cannot be read is quarantined, never an error."""
    try:
        found, item = _KINDS[kind][1].one(raw)
        return Reading(key_of(found.metadata), found.metadata.resource_version or "", item)
    except UNREADABLE as error:
        return _quarantine(kind, raw, _fault(error))


def read_page(kind: str, body: bytes) -> Page:
    """Read one page of a list of a Kubernetes kind; items that cannot be read are quarantined.

    Raises:
        UnreadableListError: it is no list.
    """
    try:
        return _KINDS[kind][1].page(body)
    except UNREADABLE:
        # Something in it is odd: find out what, item by item.
        try:
            found = _RAW_LISTS.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise UnreadableListError(f"the answer is no list: {error}") from error
    readings = [read(kind, raw) for raw in found.items or ()]
    return Page(readings, found.metadata.resource_version, found.metadata.continue_)


def decode_object(kind: str, raw: bytes | msgspec.Raw) -> ClusterObject | None:
    """Read one object of a Kubernetes kind; None for what is no part of the state by itself, as a finished pod."""
    item = read(kind, raw).item
    return None if isinstance(item, drivers.DriverLimits) else item


def read_from_list(kind: str, raw: msgspec.Raw) -> tuple[str, Seen | None, datetime | None]:
    """Read one item of a list: its key, the object, and the newest time in it."""
    try:
        found, item = _KINDS[kind][1].one(raw)
    except UNREADABLE as error:
        reading = _quarantine(kind, raw, _fault(error))
        return reading.key, reading.item, newest_in(raw)
    newest = newest_of_pod(found) if isinstance(found, wire.Pod) else newest_in(raw)
    return key_of(found.metadata), item, newest


def read_pods(array: bytes) -> list[tuple[str, Seen | None, datetime | None]] | None:
    """Read an array of pods that name their kind, as `read_from_list` reads each, in half the time.

    None where anything in it is odd, or no pod.
    """
    try:
        return [(key_of(one.metadata), pods.pod_of(one), newest_of_pod(one)) for one in _POD_ARRAYS.decode(array)]
    except UNREADABLE:
        return None


def is_read(kind: str, api_version: str) -> bool:
    """Return whether objects of this kind are read, in this group if one is named."""
    return kind in _KINDS and (not api_version or api_version.rpartition("/")[0] == _KINDS[kind][0])


def no_object(raw: msgspec.Raw, path: str) -> Seen | None:
    """Return what stands for an item of a list that is not even an object of a kind."""
    return _quarantine(NO_KIND, raw, UnreadableFieldError(path, "is no object with a kind")).item


# --- quarantine


def _fault(error: BaseException) -> UnreadableFieldError:
    if isinstance(error, UnreadableFieldError):
        return error
    if isinstance(error, (msgspec.DecodeError, UnicodeDecodeError)):
        return fault_of(error)
    return UnreadableFieldError("", f"{type(error).__name__}: {error}")


def _quarantine(kind: str, raw: bytes | msgspec.Raw, fault: UnreadableFieldError) -> Reading:
    """Name the unreadable object as well as its text allows."""
    value, decoded = None, True
    try:
        value = msgspec.json.decode(raw)
    except UNREADABLE:
        decoded = False
    name, namespace = _text(value, "metadata", "name"), _text(value, "metadata", "namespace")
    if kind == "Pod" and _text(value, "status", "phase") in pods.FINISHED:
        return Reading(f"{namespace}/{name}", _text(value, "metadata", "resourceVersion") or "", None)
    # It states no name, or what it states cannot be read.
    stated = (
        decoded
        and isinstance(_at(value, "metadata"), (dict, type(None)))
        and _at(value, "metadata", "name") in (None, "")
    )
    # Without a name the text itself stands for it, so that the same object is quarantined once.
    known = name or f"{NAMELESS if stated else UNNAMED}{sha256(bytes(raw)).hexdigest()[:12]}"
    key = f"{namespace}/{known}" if namespace else known
    node = name if kind in _NODES_OWN else _text(value, "spec", "nodeName") if kind == "Pod" else None
    space = name if kind == "Namespace" else namespace
    spec = _at(value, "spec")
    # A pod without a node's name waits for one; where that cannot be read, it may run anywhere.
    lost = kind == "Pod" and node is None and not (isinstance(spec, dict) and spec.get("nodeName") in (None, ""))
    item = Quarantined(
        object=f"{kind} {key}",
        path=fault.path,
        reason=fault.reason,
        node=node,
        namespace=space or "" if kind in _FREEZES_NAMESPACE or lost else None,
    )
    return Reading(key, _text(value, "metadata", "resourceVersion") or "", item)


def _at(value: object, *path: str) -> object:
    for part in path:
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _text(value: object, *path: str) -> str | None:
    found = _at(value, *path)
    return found if isinstance(found, str) and found else None
