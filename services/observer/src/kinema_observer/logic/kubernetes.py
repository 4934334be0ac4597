"""Reading Kubernetes JSON: whole lists, and single objects as they come over a watch.

Every object is decoded on its own. One that cannot be read becomes `Quarantined`: named, with the path and the reason,
and with the node or namespace that it freezes, because an unreadable object may forbid anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from hashlib import sha256
from typing import Final, TypeAlias, TypeVar

import msgspec

from kinema_core.events import ClusterObject, Quarantined
from kinema_observer.errors import UnreadableFieldError, UnreadableListError
from kinema_observer.logic import controllers, infrastructure, pods, wire, wire_controllers, wire_pods
from kinema_observer.logic.reading import fault_of, key_of

W = TypeVar("W", bound=wire.Object)
_Read: TypeAlias = Callable[[bytes | msgspec.Raw], tuple[wire.Meta, ClusterObject | None]]
_UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, UnreadableFieldError, RecursionError)


@dataclass(frozen=True, slots=True)
class Reading:
    """One object as read. `key` is unique within its kind; `item` is None when it is no part of the state."""

    key: str
    resource_version: str
    item: ClusterObject | None


@dataclass(frozen=True)
class Decoded:
    """A list as read: `objects` are all that count, the quarantined among them; `newest` is its newest timestamp."""

    objects: tuple[ClusterObject, ...]
    newest: datetime | None
    ignored: Mapping[str, int]
    """How many objects of each other kind were passed over."""

    @property
    def quarantined(self) -> tuple[Quarantined, ...]:
        """The objects that could not be read."""
        return tuple(item for item in self.objects if isinstance(item, Quarantined))


def _reader(kind: type[W], convert: Callable[[W], ClusterObject | None]) -> _Read:
    decoder = msgspec.json.Decoder(kind)

    def read_(raw: bytes | msgspec.Raw) -> tuple[wire.Meta, ClusterObject | None]:
        found = decoder.decode(raw)
        return found.metadata, convert(found)

    return read_


_KINDS: Final[Mapping[str, tuple[str, _Read]]] = {
    "Node": ("", _reader(wire.Node, infrastructure.node_of)),
    "Pod": ("", _reader(wire_pods.Pod, pods.pod_of)),
    "Deployment": ("apps", _reader(wire_controllers.Controller, partial(controllers.workload_of, "Deployment"))),
    "ReplicaSet": ("apps", _reader(wire_controllers.Controller, partial(controllers.workload_of, "ReplicaSet"))),
    "StatefulSet": ("apps", _reader(wire_controllers.Controller, partial(controllers.workload_of, "StatefulSet"))),
    "DaemonSet": ("apps", _reader(wire_controllers.Controller, partial(controllers.workload_of, "DaemonSet"))),
    "Job": ("batch", _reader(wire_controllers.Controller, partial(controllers.workload_of, "Job"))),
    "ReplicationController": (
        "",
        _reader(wire_controllers.Controller, partial(controllers.workload_of, "ReplicationController")),
    ),
    "HorizontalPodAutoscaler": ("autoscaling", _reader(wire_controllers.Autoscaler, controllers.autoscaler_of)),
    "PodDisruptionBudget": ("policy", _reader(wire_controllers.Budget, controllers.budget_of)),
    "VerticalPodAutoscaler": (
        "autoscaling.k8s.io",
        _reader(wire_controllers.Vertical, controllers.recommendation_of),
    ),
    "PersistentVolume": ("", _reader(wire.Volume, infrastructure.volume_of)),
    "PersistentVolumeClaim": ("", _reader(wire.Claim, infrastructure.claim_of)),
    "StorageClass": ("storage.k8s.io", _reader(wire.StorageClass, infrastructure.storage_class_of)),
    "PriorityClass": ("scheduling.k8s.io", _reader(wire.PriorityClass, infrastructure.priority_class_of)),
    "Namespace": ("", _reader(wire.Namespace, infrastructure.namespace_object_of)),
}
"""Kubernetes kinds that are read: their API group, and how."""

_FREEZES_NAMESPACE: Final = frozenset(_KINDS) - {
    "Node",
    "Pod",
    "VerticalPodAutoscaler",
    "PersistentVolume",
    "StorageClass",
    "PriorityClass",
    "Namespace",
}
"""Kinds whose unreadable object may forbid something to any pod of its namespace."""


def read(kind: str, raw: bytes | msgspec.Raw) -> Reading:
    """Read one object of a Kubernetes kind; what cannot be read is quarantined, never an error."""
    try:
        meta, item = _KINDS[kind][1](raw)
        return Reading(key_of(meta), meta.resource_version or "", item)
    except _UNREADABLE as error:
        return _quarantine(kind, raw, _fault(error))


def decode_object(kind: str, raw: bytes | msgspec.Raw) -> ClusterObject | None:
    """Read one object of a Kubernetes kind; None for what is no part of the state, as a finished pod."""
    return read(kind, raw).item


# --- lists


class _List(msgspec.Struct, rename="camel", gc=False):
    kind: str
    items: list[msgspec.Raw] | None = None


class _ContainerTimes(msgspec.Struct, rename="camel", gc=False):
    running: dict[str, wire.Time | None] | None = None
    terminated: wire_pods.Terminated | None = None


class _StatusTimes(msgspec.Struct, rename="camel", gc=False):
    state: _ContainerTimes | None = None


class _ConditionTimes(msgspec.Struct, rename="camel", gc=False):
    last_transition_time: wire.Time | None = None
    last_heartbeat_time: wire.Time | None = None


class _Times(msgspec.Struct, rename="camel", gc=False):
    start_time: wire.Time | None = None
    conditions: list[_ConditionTimes] | None = None
    container_statuses: list[_StatusTimes] | None = None


class _MetaTimes(msgspec.Struct, rename="camel", gc=False):
    creation_timestamp: wire.Time | None = None


class _Head(msgspec.Struct, rename="camel", gc=False):
    kind: str
    api_version: str = ""


class _Dated(msgspec.Struct, rename="camel", gc=False):
    metadata: _MetaTimes | None = None
    status: _Times | None = None


_LISTS: Final = msgspec.json.Decoder(_List)
_HEADS: Final = msgspec.json.Decoder(_Head)
_DATES: Final = msgspec.json.Decoder(_Dated)


def decode_list(data: bytes) -> Decoded:
    """Read what `kubectl get … -o json` prints: a `List` of mixed kinds, a list of one kind, or a single object.

    Raises:
        UnreadableListError: the data as a whole is no such thing.
    """
    try:
        found = _LISTS.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        message = f"this is no JSON list of Kubernetes objects, as `kubectl get … -A -o json` prints: {error}"
        raise UnreadableListError(message) from error
    if found.kind.endswith("List"):
        items, kind = found.items or [], found.kind.removesuffix("List")
    else:
        items, kind = [msgspec.Raw(data)], found.kind
    objects: list[ClusterObject] = []
    ignored: dict[str, int] = {}
    dates: list[datetime] = []
    for index, raw in enumerate(items):
        name, known = _kind_of(raw, kind)
        if not known:
            ignored[name] = ignored.get(name, 0) + 1
            continue
        item = read(name, raw).item if name else _quarantine("Object", raw, _fault_at(index)).item
        dates += _dates(raw)
        if item is not None:
            objects.append(item)
    return Decoded(tuple(objects), max(dates, default=None), ignored)


def _kind_of(raw: msgspec.Raw, list_kind: str) -> tuple[str, bool]:
    """The kind of an item and whether we read it; no name when it is not even an object of a kind."""
    try:
        head = _HEADS.decode(raw)
    except _UNREADABLE:
        # The items of a list of one kind do not repeat it.
        return list_kind, list_kind == "" or list_kind in _KINDS
    group = head.api_version.rpartition("/")[0]
    return head.kind, head.kind in _KINDS and (not head.api_version or group == _KINDS[head.kind][0])


def _dates(raw: msgspec.Raw) -> Iterator[datetime]:
    """When something last happened to an object, as far as it can be read."""
    try:
        found = _DATES.decode(raw)
    except _UNREADABLE:
        return
    status = found.status or _Times()
    states = [item.state for item in status.container_statuses or () if item.state is not None]
    candidates = [
        found.metadata.creation_timestamp if found.metadata is not None else None,
        status.start_time,
        *(time for item in status.conditions or () for time in (item.last_transition_time, item.last_heartbeat_time)),
        *(time for state in states for time in (state.running or {}).values()),
        *(state.terminated.finished_at for state in states if state.terminated is not None),
    ]
    yield from (time for time in candidates if time is not None)


# --- quarantine


def _fault(error: BaseException) -> UnreadableFieldError:
    if isinstance(error, UnreadableFieldError):
        return error
    if isinstance(error, (msgspec.DecodeError, UnicodeDecodeError)):
        return fault_of(error)
    return UnreadableFieldError("", f"{type(error).__name__}: {error}")


def _fault_at(index: int) -> UnreadableFieldError:
    return UnreadableFieldError(f"items[{index}]", "is no object with a kind")


def _quarantine(kind: str, raw: bytes | msgspec.Raw, fault: UnreadableFieldError) -> Reading:
    """Name the unreadable object as well as its text allows."""
    try:
        value = msgspec.json.decode(raw)
    except _UNREADABLE:
        value = None
    name, namespace = _text(value, "metadata", "name"), _text(value, "metadata", "namespace")
    if kind == "Pod" and _text(value, "status", "phase") in pods.FINISHED:
        return Reading(f"{namespace}/{name}", _text(value, "metadata", "resourceVersion") or "", None)
    # Without a name the text itself stands for it, so that the same object is quarantined once.
    known = name or f"unnamed-{sha256(bytes(raw)).hexdigest()[:12]}"
    key = f"{namespace}/{known}" if namespace else known
    node = name if kind == "Node" else _text(value, "spec", "nodeName") if kind == "Pod" else None
    spec = _at(value, "spec")
    # A pod without a node's name waits for one; where that cannot even be told, it may run anywhere.
    lost = kind == "Pod" and node is None and not (isinstance(spec, dict) and spec.get("nodeName") in (None, ""))
    item = Quarantined(
        object=f"{kind} {key}",
        path=fault.path,
        reason=fault.reason,
        node=node,
        namespace=name if kind == "Namespace" else namespace if kind in _FREEZES_NAMESPACE or lost else None,
    )
    return Reading(key, _text(value, "metadata", "resourceVersion") or "", item)


def _at(value: object, *path: str) -> object:
    for part in path:
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _text(value: object, *path: str) -> str | None:
    found = _at(value, *path)
    return found if isinstance(found, str) and found else None
