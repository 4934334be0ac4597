"""Events as the next minor version writes them, and as the one before did, derived from the types of this one."""

from __future__ import annotations

import json
import types
from typing import Any, Final, Union, get_args, get_origin

import msgspec

from kinema_core.events import BODIES, ClusterDelta, ClusterSnapshot, FrozenMap
from kinema_core.runtime.topology import PUBLISHES

ADDED: Final = {"added_by_the_next_minor": {"nested": [1, "two", None]}}
LATER: Final = {"kind": "KindOfTheNextMinor", "namespace": "later", "name": "one", **ADDED}
"""An observed object of a kind that this version does not know, in a namespace without pods."""
_BODIES: Final = {body.TYPE: body for body in BODIES}
_PUBLISHERS: Final = {body.TYPE: service for service, bodies in PUBLISHES.items() for body in bodies}
_OBJECTS: Final = {ClusterSnapshot.TYPE: "objects", ClusterDelta.TYPE: "upserts"}


def publisher(event: dict[str, Any]) -> str:
    """Return the service that published an event."""
    return str(event["body"].get("service") or _PUBLISHERS[event["type"]])


def next_minor(event: dict[str, Any]) -> dict[str, Any]:
    """Return an event with an unknown field in each object of its JSON, and with an unknown kind among objects."""
    body = _changed(event["body"], _BODIES[event["type"]], _with_more)
    if event["type"] in _OBJECTS:
        body[_OBJECTS[event["type"]]].append(LATER)
    return {**event, **ADDED, "body": body}


def previous_minor(event: dict[str, Any]) -> dict[str, Any]:
    """Return an event without the fields that are optional: each may be newer than the version that wrote it."""
    return {**event, "body": _changed(event["body"], _BODIES[event["type"]], _with_less)}


def _with_more(found: dict[str, Any], kind: type[msgspec.Struct]) -> dict[str, Any]:
    assert not kind.__struct_config__.forbid_unknown_fields, kind
    return {**found, **ADDED}


def _with_less(found: dict[str, Any], kind: type[msgspec.Struct]) -> dict[str, Any]:
    optional = {field.encode_name: field for field in msgspec.structs.fields(kind) if not field.required}
    return {name: value for name, value in found.items() if name not in optional or value != _default(optional[name])}


def _default(field: Any) -> Any:
    value = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    return json.loads(msgspec.json.encode(value))


def _changed(value: Any, kind: Any, change: Any) -> Any:
    """Return a JSON value with each of its objects changed that is a struct of the event's type."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in {Union, types.UnionType}:
        return _changed(value, _chosen(value, inner), change)
    if isinstance(value, list):
        one = inner[0] if inner else object
        return [_changed(item, one, change) for item in value]
    if isinstance(value, dict) and isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        fields = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
        return change({name: _changed(item, fields.get(name, object), change) for name, item in value.items()}, kind)
    if isinstance(value, dict) and (origin or kind) is FrozenMap and inner:
        return {name: _changed(item, inner[0], change) for name, item in value.items()}
    return value


def _chosen(value: Any, alternatives: tuple[Any, ...]) -> Any:
    """Return which of several types a JSON value has."""
    structs = [one for one in alternatives if isinstance(one, type) and issubclass(one, msgspec.Struct)]
    if isinstance(value, dict):
        tagged = [
            one for one in structs if one.__struct_config__.tag == value.get(one.__struct_config__.tag_field or "")
        ]
        return next(iter(tagged or structs), object)
    lists = [one for one in alternatives if get_origin(one) is tuple]
    return lists[0] if isinstance(value, list) and lists else object
