"""Envelope, encoding and decoding of events.

JSON with sorted map keys, so that equal events are equal bytes. The envelope is decoded first and the body by the
decoder of its type, after the upcasters have lifted an older version.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, cast, get_args, get_origin

import msgspec

from kinema_core.events.bodies import BODIES, AnyBody
from kinema_core.events.frozen import FrozenMap
from kinema_core.events.plan import Plan
from kinema_core.events.unknown import with_unknown
from kinema_core.events.upcast import UPCASTERS


class EventError(Exception):
    """A message is no usable event. `reason`: `bad-json`, `bad-envelope`, `unknown-type` or `bad-body`."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class _Head(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    type: str
    cluster: str
    time: datetime
    cause: str
    iteration: str
    traceparent: str
    state: int = 0


class Event(_Head, frozen=True, kw_only=True):
    """One event: envelope and body.

    `id` derives from what caused it (`<cause>/<service>/<n>`), so that the same decision made twice is one event.
    `state` is the version of the folded cluster state that the decision saw, 0 where it saw none.
    """

    body: AnyBody


class _Envelope(_Head, frozen=True, kw_only=True):
    body: msgspec.Raw


def _freeze(kind: Any, value: object) -> object:  # noqa: ANN401 - msgspec hands over the annotation as it stands
    """Build the annotated FrozenMap; msgspec checks what is in its own containers, not what a hook makes."""
    build, types = _frozen(kind)
    if not isinstance(value, dict):
        raise TypeError(f"expected an object, got {type(value).__name__}")
    if not types.issuperset(map(type, value.values())):
        raise TypeError(f"expected values of {' or '.join(sorted(each.__name__ for each in types))}")
    return build(value)


@lru_cache
def _frozen(kind: Any) -> tuple[type[FrozenMap[object]], frozenset[type]]:  # noqa: ANN401 - see above
    """Return the map's class and the types that its values may have; a whole number is a float, too."""
    build = get_origin(kind) or kind
    if not issubclass(build, FrozenMap):
        raise TypeError(f"cannot decode {kind}")
    [values] = get_args(kind)
    types = frozenset(get_args(values) or (values,))
    return build, types | {int} if float in types else types


_ENCODER: Final = msgspec.json.Encoder(order="deterministic", decimal_format="string")
_ENVELOPES: Final = msgspec.json.Decoder(_Envelope)
_RAW: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_DECODERS: Final[dict[str, Callable[[bytes | msgspec.Raw], AnyBody]]] = {
    body.TYPE: cast("Callable[[bytes | msgspec.Raw], AnyBody]", msgspec.json.Decoder(body, dec_hook=_freeze).decode)
    for body in BODIES
}


def encode(event: Event) -> bytes:
    """Encode an event as JSON; equal events give equal bytes.

    Raises:
        EventError: `bad-body` when a number in it is NaN or infinite.
    """
    _refuse_non_finite(event.body, event.type)
    return _ENCODER.encode(event)


def _refuse_non_finite(value: object, path: str) -> None:
    """Floats are few and sit in figures and costs: walk structs and small containers, skip bulk objects."""
    if isinstance(value, float):
        if not math.isfinite(value):
            raise EventError("bad-body", f"{path} is {value}, not a finite number")
    elif isinstance(value, dict):
        for key, item in value.items():
            _refuse_non_finite(item, f"{path}.{key}")
    elif isinstance(value, msgspec.Struct):
        for field in value.__struct_fields__:
            if field not in _BULK:
                _refuse_non_finite(getattr(value, field), f"{path}.{field}")
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            _refuse_non_finite(item, f"{path}[{index}]")


_BULK: Final = frozenset({"objects", "upserts", "deletes", "pods", "placements", "steps", "held", "unplaced"})
"""Fields that hold thousands of structs without a float in them."""


def decode_plan(data: bytes) -> Plan:
    """Decode a plan that stands alone, as `kinema plan -o json` prints it.

    Raises:
        EventError: the bytes are no plan; the detail names the path.
    """
    try:
        plan = _DECODERS[Plan.TYPE](data)
    except msgspec.DecodeError as error:
        raise EventError("bad-body", str(error)) from error
    assert isinstance(plan, Plan)
    return plan


def decode(data: bytes) -> Event:
    """Decode an event, lifting older versions of its body.

    Raises:
        EventError: the bytes are no event, its type is unknown, or its body does not fit; the detail names the path.
    """
    try:
        envelope = _ENVELOPES.decode(data)
    except msgspec.ValidationError as error:
        raise EventError("bad-envelope", str(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise EventError("bad-json", str(error)) from error
    kind, raw = envelope.type, bytes(envelope.body)
    while kind in UPCASTERS:
        kind, raw = UPCASTERS[kind](raw)
    decoder = _DECODERS.get(kind)
    if decoder is None:
        raise EventError("unknown-type", f"event type {envelope.type!r} is not known to this version")
    try:
        body = _decode_body(kind, raw, decoder)
    except (UnicodeDecodeError, RecursionError) as error:
        raise EventError("bad-json", f"{envelope.type}: {error}") from error
    except (msgspec.DecodeError, TypeError) as error:
        raise EventError("bad-body", f"{envelope.type}: {error}") from error
    return Event(**{**msgspec.structs.asdict(envelope), "type": kind, "body": body})


def _decode_body(kind: str, raw: bytes, decoder: Callable[[bytes | msgspec.Raw], AnyBody]) -> AnyBody:
    """Decode a body, with what this version does not know as unknown where its unions are open."""
    try:
        return decoder(raw)
    except msgspec.ValidationError as error:
        try:
            return decoder(with_unknown(kind, raw))
        except msgspec.DecodeError:
            raise error from None
