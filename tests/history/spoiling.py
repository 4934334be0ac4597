"""Changing a history so that an invariant does not hold, and the register of the ways to do so."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

from tests.history.record import Entry, History

HOUR: Final = timedelta(hours=1)
Spoil = Callable[[History], History]
SPOILED: Final[dict[str, list[Spoil]]] = {}
"""By invariant: what is done to a history, so that it does not hold."""


def spoils(invariant: str) -> Callable[[Spoil], Spoil]:
    """Register what breaks an invariant."""

    def register(spoil: Spoil) -> Spoil:
        SPOILED.setdefault(invariant, []).append(spoil)
        return spoil

    return register


def first(history: History, kind: str, step: str = "") -> Entry:
    """The first event of a kind, of a step of that kind where one is named."""
    return next(one for one in history.of(kind) if not step or step_kind(one) == step)


def step_kind(entry: Entry) -> str:
    """The kind of the step that an event is about."""
    step = entry.body["step"]
    return str(step["kind"] if isinstance(step, dict) else step.partition("/")[0])


def without(history: History, entry: Entry) -> History:
    """One event less."""
    return replace(history, log=tuple(one for one in history.log if one is not entry))


def after(history: History, entry: Entry, *more: Entry) -> History:
    """More events behind one."""
    at = history.log.index(entry) + 1
    return replace(history, log=(*history.log[:at], *more, *history.log[at:]))


def ahead_of(history: History, entry: Entry, *more: Entry) -> History:
    """More events before one."""
    at = history.log.index(entry)
    return replace(history, log=(*history.log[:at], *more, *history.log[at:]))


def instead(history: History, entry: Entry, other: Entry) -> History:
    """One event for another."""
    return replace(history, log=tuple(other if one is entry else one for one in history.log))


def changed(entry: Entry, **fields: Any) -> Entry:
    """An event with fields of its body changed; `step_…` are those of its step."""
    body = deepcopy(entry.body)
    for name, value in fields.items():
        if name.startswith("step_"):
            body["step"][name.removeprefix("step_")] = value
        else:
            body[name] = value
    return replace(entry, body=body)


def word(history: History, kind: str, **body: Any) -> Entry:
    """An event of an operator, at the time of the first one."""
    return Entry(0, f"operator/{kind}", kind, history.log[0].time, "", 0, body)
