"""Comparing what was decided then with what is decided now."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from kinema_core.events import Event


@dataclass(frozen=True)
class FieldDifference:
    """One field of an event that differs; `then` and `now` are None where the field is missing."""

    path: str
    then: object
    now: object
    pod: str = ""
    """The pod that the entry of a list is about."""


@dataclass(frozen=True)
class Difference:
    """An event that is not what it was: changed, missing now, or new."""

    stage: str
    sequence: int
    """Place in LOG of the recorded event, or of its cause when it is new."""
    event_id: str
    type: str
    kind: str
    """`changed`, `missing` (recorded, but not decided again) or `extra` (decided now, never recorded)."""
    fields: tuple[FieldDifference, ...] = ()


def field_differences(then: Event, now: Event) -> tuple[FieldDifference, ...]:
    """Return every leaf in which two events differ, in the order of their fields."""
    return tuple(_walk("", msgspec.to_builtins(then), msgspec.to_builtins(now)))


def _walk(path: str, then: object, now: object, pod: str = "") -> Iterator[FieldDifference]:
    if isinstance(then, dict) and isinstance(now, dict):
        for key in [*then, *(key for key in now if key not in then)]:
            yield from _walk(f"{path}.{key}" if path else str(key), then.get(key), now.get(key), pod)
    elif isinstance(then, list | tuple) and isinstance(now, list | tuple):
        for index in range(max(len(then), len(now))):
            old = then[index] if index < len(then) else None
            new = now[index] if index < len(now) else None
            yield from _walk(f"{path}[{index}]", old, new, _pod_of(old) or _pod_of(new) or pod)
    elif then != now or type(then) is not type(now):
        yield FieldDifference(path=path, then=then, now=now, pod=pod)


def _pod_of(entry: object) -> str:
    return str(entry.get("pod", "")) if isinstance(entry, dict) else ""
