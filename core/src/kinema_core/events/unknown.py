"""Values that a newer version wrote and this one does not know, kept as unknown.

Open unions may grow without a new version of their event: kinds of observed objects, `WorkloadKind`, `Strategy` and
`StepKind`. A value that is not known becomes `Unknown` or `"unknown"`, and nothing unknown is taken to be harmless.
Everything else is closed: it grows by a new version of the event.
"""

from __future__ import annotations

from typing import Any, Final, get_args

import msgspec

from kinema_core.events.bodies import ClusterDelta, ClusterSnapshot
from kinema_core.events.execution import StepKind, StepStarted
from kinema_core.events.objects import ClusterObject, Unknown, Workload, WorkloadKind
from kinema_core.events.plan import Plan, Strategy

UNKNOWN: Final = "unknown"
_LISTS: Final = {ClusterSnapshot.TYPE: "objects", ClusterDelta.TYPE: "upserts"}


_KINDS: Final = frozenset(each.__name__ for each in get_args(ClusterObject))


def with_unknown(type_: str, raw: bytes) -> bytes:
    """Return the JSON body of an event with `Unknown` and `"unknown"` in place of what this version does not know.

    Raises:
        msgspec.DecodeError: the body has another form altogether.
    """
    body = msgspec.json.decode(raw, type=dict[str, Any])
    if type_ in _LISTS:
        items = body.get(_LISTS[type_])
        body[_LISTS[type_]] = [_object(item) for item in items] if isinstance(items, list) else items
    elif type_ == Plan.TYPE:
        _replace(body.get("placements"), "strategy", get_args(Strategy))
    elif type_ == StepStarted.TYPE:
        _replace([body.get("step")], "kind", get_args(StepKind))
    return msgspec.json.encode(body)


def _replace(items: object, field: str, known: tuple[str, ...]) -> None:
    for item in items if isinstance(items, list) else ():
        if isinstance(item, dict) and isinstance(item.get(field), str) and item[field] not in known:
            item[field] = UNKNOWN


class _Named(msgspec.Struct):
    """Fields that objects of all kinds have."""

    kind: str
    name: str
    namespace: str | None = None
    type: str | None = None


def _object(item: object) -> object:
    try:
        named = msgspec.convert(item, _Named)
    except msgspec.ValidationError:
        return item
    if named.kind in _KINDS and not (named.kind == Workload.__name__ and named.type not in get_args(WorkloadKind)):
        return item
    key = "/".join(part for part in (named.type, named.namespace, named.name) if part is not None)
    return Unknown(of=named.kind, at=key, namespace=named.namespace)
