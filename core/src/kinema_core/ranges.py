"""Ranges of numbers in settings, each stated once: the annotation of a field is checked, and shown in schemas and docs.

class Limits(msgspec.Struct):
    missing_share: Share = 0.1
    attempts: Annotated[int, between(1)] = 3

    def __post_init__(self) -> None:
        check_ranges(self)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from types import UnionType
from typing import Annotated, Any, TypeAlias, Union, get_args, get_origin

import msgspec


def between(least: float, most: float = math.inf, *, above: bool = False) -> msgspec.Meta:
    """Return the annotation of a number from `least`, or above it, to `most`."""
    # Not msgspec's own bounds: their error does not name the value, and what Python code makes is not checked.
    lower = {"exclusiveMinimum" if above else "minimum": least}
    return msgspec.Meta(extra_json_schema=lower if math.isinf(most) else {**lower, "maximum": most})


Share: TypeAlias = Annotated[float, between(0, 1)]
NotNegative: TypeAlias = Annotated[float, between(0)]
Positive: TypeAlias = Annotated[float, between(0, above=True)]


def check_ranges(settings: msgspec.Struct, place: str = "") -> None:
    """Refuse a setting out of its range, or infinite; null has no range.

    Raises:
        ValueError: names the setting after the text of `place`, its value and the range.
    """
    for name, allowed in _ranges(type(settings)).items():
        value = getattr(settings, name)
        if value is not None and not _is_within(value, allowed):
            raise ValueError(f"{place}{name} is {value}: use {_words(allowed)}")


def range_text(kind: Any) -> str:  # noqa: ANN401 - any type
    """Return the range of a type in words, as `0 to 1`; empty without one."""
    allowed = _range(kind)
    return _words(allowed) if allowed else ""


def alternatives(kind: Any) -> tuple[Any, ...]:  # noqa: ANN401 - any type
    """Return the types that a value may have, without their ranges."""
    return tuple(one.__origin__ if get_origin(one) is Annotated else one for one in _members(kind))


def _members(kind: Any) -> tuple[Any, ...]:  # noqa: ANN401 - any type
    return get_args(kind) if get_origin(kind) in {Union, UnionType} else (kind,)


@cache
def _ranges(kind: type[msgspec.Struct]) -> Mapping[str, Mapping[str, float]]:
    found = {field.name: _range(field.type) for field in msgspec.structs.fields(kind)}
    return {name: allowed for name, allowed in found.items() if allowed}


def _range(kind: Any) -> Mapping[str, float]:  # noqa: ANN401 - any type
    """Return the range as JSON Schema names it."""
    notes = (note for one in _members(kind) for note in getattr(one, "__metadata__", ()))
    return next((note.extra_json_schema for note in notes), {})


def _is_within(value: float, allowed: Mapping[str, float]) -> bool:
    least, most = allowed.get("minimum", -math.inf), allowed.get("maximum", math.inf)
    return math.isfinite(value) and least <= value <= most and value > allowed.get("exclusiveMinimum", -math.inf)


def _words(allowed: Mapping[str, float]) -> str:
    most = f"{allowed['maximum']:.10g}" if "maximum" in allowed else ""
    if "exclusiveMinimum" in allowed:
        return f"more than {allowed['exclusiveMinimum']:.10g}{' and at most ' if most else ''}{most}"
    return f"{allowed['minimum']:.10g} {'to ' if most else 'or more'}{most}"
