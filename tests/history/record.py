"""What happened, as plain JSON: the events of a run, and every change of the cluster as its API server told it."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import zstandard
from tests.e2e.follower import Change, Objects

JSON = dict[str, Any]
VERDICTS: Final = ("abort", "replan", "skip/", "keep/", "unfit/")
"""Beginnings of the `step` of a `step-failed` that tells of a decision and not of an effect."""


@dataclass(frozen=True)
class Entry:
    """One event."""

    position: int
    """Its place in the log."""
    id: str
    kind: str
    """Its type without the version."""
    time: datetime
    cause: str
    state: int
    body: JSON

    @property
    def plan(self) -> str:
        """The plan that it is about."""
        return str(self.body.get("plan", ""))

    @property
    def is_verdict(self) -> bool:
        """Whether it tells that something is given up."""
        return self.kind == "step-failed" and str(self.body["step"]).startswith(VERDICTS)

    @property
    def is_outcome(self) -> bool:
        """Whether it tells how an effect ended."""
        return self.kind in {"step-succeeded", "step-failed"} and not self.is_verdict


@dataclass(frozen=True)
class History:
    """Everything that a check may look at."""

    log: tuple[Entry, ...]
    state: tuple[Entry, ...] = ()
    before: Objects = field(default_factory=dict)
    """The cluster when the first change was followed."""
    changes: tuple[Change, ...] = ()
    others: frozenset[str] = frozenset()
    """Workloads (`Kind/namespace/name`) whose pods, replicas or templates other clients change."""

    def of(self, *kinds: str) -> Iterator[Entry]:
        """Events of the log of these kinds, in order."""
        return (entry for entry in self.log if entry.kind in kinds)

    @cached_property
    def plans(self) -> dict[str, JSON]:
        """Proposed plans by id."""
        return {entry.id: entry.body for entry in self.of("plan-proposed")}

    @cached_property
    def intents(self) -> tuple[Entry, ...]:
        """Every effect that was about to be tried."""
        return tuple(self.of("step-started"))

    @cached_property
    def done(self) -> frozenset[tuple[str, str]]:
        """Plan and step of every effect that was made."""
        return frozenset((entry.plan, str(entry.body["step"])) for entry in self.of("step-succeeded"))

    @cached_property
    def ends(self) -> dict[str, Entry]:
        """How each plan ended."""
        return {entry.plan: entry for entry in self.of("execution-completed", "execution-aborted")}


def entries(events: Iterable[JSON]) -> tuple[Entry, ...]:
    """Events as they were published, in order."""
    return tuple(
        Entry(
            position=position,
            id=event["id"],
            kind=event["type"].rpartition(".")[0],
            time=datetime.fromisoformat(event["time"]),
            cause=event.get("cause", ""),
            state=event.get("state", 0),
            body=event["body"],
        )
        for position, event in enumerate(events)
    )


def recorded(path: Path) -> History:
    """The history in a recording of `kinema record`: what the services said, without what the cluster did."""
    with zstandard.ZstdDecompressor().stream_reader(io.BytesIO(path.read_bytes()), read_across_frames=True) as reader:
        _, *lines = (json.loads(line) for line in reader.read().splitlines() if line.strip())
    of = {name: entries(line["event"] for line in lines if line["stream"] == name) for name in ("LOG", "STATE")}
    return History(of["LOG"], of["STATE"])


def write(history: History, path: Path) -> None:
    """Write events and changes in the order of time, one JSON line each: what people read of a run that went wrong."""
    told = [(one.time, {"event": one.kind, "id": one.id, "state": one.state, **one.body}) for one in history.log]
    told += [
        (one.at, {"change": one.type, "kind": one.kind, "key": one.key, "object": one.item}) for one in history.changes
    ]
    told.sort(key=lambda pair: pair[0])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"at": at.isoformat(), **line}) + "\n" for at, line in told))
