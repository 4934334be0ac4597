"""Faults that tests inject into the API: refused requests, lost replies, cut and silent watches."""

import re
from dataclasses import dataclass
from enum import StrEnum


class FaultType(StrEnum):
    """Kind of a fault.

    Attributes:
        API: matching requests are answered with a status and not executed.
        LOSE_REPLY: matching requests are executed, but the connection breaks before the answer.
        WATCH_CUT: open watches end at once, without a word.
        WATCH_SILENT: open watches stay open and never say anything again; so do the next `count` new ones.
        HISTORY: the watch history and all continue tokens are forgotten.
    """

    API = "api"
    LOSE_REPLY = "lose-reply"
    WATCH_CUT = "watch-cut"
    WATCH_SILENT = "watch-silent"
    HISTORY = "history"


@dataclass
class Fault:
    """One injected fault.

    Attributes:
        type: what goes wrong.
        method: HTTP method it is limited to, empty for all.
        path: pattern searched in path and query.
        status: HTTP status of an `api` fault.
        count: how many more requests it hits.
    """

    type: FaultType
    method: str
    path: re.Pattern[str]
    status: int
    count: int

    def hits(self, method: str, path: str) -> bool:
        """Return whether a request is one that the fault is meant for."""
        return self.count > 0 and self.method in ("", method) and self.path.search(path) is not None


class Faults:
    """The faults in force, oldest first."""

    def __init__(self) -> None:
        self.active: list[Fault] = []

    def add(self, fault: Fault) -> None:
        """Put a fault in force."""
        self.active.append(fault)

    def clear(self) -> None:
        """Lift all faults."""
        self.active.clear()

    def take(self, types: tuple[FaultType, ...], method: str, path: str) -> Fault | None:
        """Give the oldest fault of some types that hits a request, and count it down."""
        for fault in self.active:
            if fault.type in types and fault.hits(method, path):
                fault.count -= 1
                return fault
        return None
