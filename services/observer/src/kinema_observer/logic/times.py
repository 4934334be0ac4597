"""Newest timestamp of an object, as far as its timestamps can be read."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from functools import lru_cache
from typing import Final

import msgspec

from kinema_observer.logic import wire
from kinema_observer.logic.reading import text_of


class _ContainerTimes(msgspec.Struct, rename="camel", gc=False):
    running: dict[str, wire.Time | None] | None = None
    terminated: wire.Terminated | None = None


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


class _Dated(msgspec.Struct, rename="camel", gc=False):
    metadata: _MetaTimes | None = None
    status: _Times | None = None


_DATES: Final = msgspec.json.Decoder(_Dated)
_TIME: Final = msgspec.json.Decoder(wire.Time | None)
_RUNNING: Final = msgspec.json.Decoder(dict[str, wire.Time | None])


def newest_in(raw: bytes | msgspec.Raw) -> datetime | None:
    """Return the newest time in the text of an object; None where it has none, or cannot be read."""
    try:
        found = _DATES.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    status = found.status or _Times()
    states = [item.state for item in status.container_statuses or () if item.state is not None]
    candidates = [
        found.metadata.creation_timestamp if found.metadata is not None else None,
        status.start_time,
        *(time for item in status.conditions or () for time in (item.last_transition_time, item.last_heartbeat_time)),
        *(time for state in states for time in (state.running or {}).values()),
        *(state.terminated.finished_at for state in states if state.terminated is not None),
    ]
    return max((time for time in candidates if time is not None), default=None)


def newest_of_pod(pod: wire.Pod) -> datetime | None:
    """Return the newest time of a pod that was read already: lists hold a hundred thousand of them."""
    return max(_pod_times(pod), default=None)


def _pod_times(pod: wire.Pod) -> Iterator[datetime]:
    if pod.metadata.creation_timestamp is not None:
        yield pod.metadata.creation_timestamp
    status = pod.status
    if status is None:
        return
    if status.start_time is not None:
        yield status.start_time
    # The conditions of a pod mostly tell one time, some of them again and again.
    for text in {text_of(item.last_transition_time) for item in status.conditions or ()}:
        yield from _time(text)
    for item in status.container_statuses or ():
        state = item.state
        if state is not None:
            yield from _started(text_of(state.running))
            if state.terminated is not None and state.terminated.finished_at is not None:
                yield state.terminated.finished_at


@lru_cache(maxsize=4096)
def _time(text: bytes) -> tuple[datetime, ...]:
    try:
        time = _TIME.decode(text) if text else None
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return ()
    return () if time is None else (time,)


@lru_cache(maxsize=4096)
def _started(text: bytes) -> tuple[datetime, ...]:
    try:
        times = _RUNNING.decode(text).values() if text else ()
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ()
    return tuple(time for time in times if time is not None)
