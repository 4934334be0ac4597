"""Wrapping bodies into events: deterministic ids and trace context."""

from __future__ import annotations

from datetime import datetime
from hashlib import sha256

from kinema_core.events import AnyBody, Event


def trace_parent(trace_seed: str, span_seed: str) -> str:
    """Return a W3C `traceparent` whose trace and span ids are hashes of the seeds: the same in a replay."""
    trace = sha256(trace_seed.encode()).hexdigest()[:32]
    span = sha256(span_seed.encode()).hexdigest()[:16]
    return f"00-{trace}-{span}-01"


def answer(body: AnyBody, *, cause: Event, service: str, n: int | str, now: datetime, state: int) -> Event:
    """Return the event with which `service` answers `cause`; `n` numbers several answers."""
    id_ = f"{cause.id}/{service}/{n}"
    trace = cause.traceparent.split("-")
    span = sha256(id_.encode()).hexdigest()[:16]
    parent = f"00-{trace[1]}-{span}-01" if len(trace) == 4 else trace_parent(cause.id, id_)
    return Event(
        id=id_,
        type=body.TYPE,
        cluster=cause.cluster,
        time=now,
        cause=cause.id,
        iteration=cause.iteration,
        traceparent=parent,
        state=state,
        body=body,
    )


def origin(
    body: AnyBody, *, id_: str, cluster: str, iteration: str, now: datetime, state: int = 0, cause: str = ""
) -> Event:
    """Return an event that no other event caused: an observation, an operator's word, a new iteration."""
    return Event(
        id=id_,
        type=body.TYPE,
        cluster=cluster,
        time=now,
        cause=cause,
        iteration=iteration,
        traceparent=trace_parent(iteration or id_, id_),
        state=state,
        body=body,
    )
