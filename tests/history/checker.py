"""The history checker: names every invariant that a run has broken. It shares no code with the services.

What a moment looks like to users (ready counts, budgets, untouchable pods, leftovers) is the auditor's part
(`tests/e2e/auditor.py`); here is what can be told only from the events and the changes together.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from tests.history import of_cluster, of_copies, of_log, of_marks
from tests.history.of_log import Invariant
from tests.history.record import History

OF_LOG: Final[Mapping[str, Invariant]] = MappingProxyType({one.__name__: one for one in of_log.INVARIANTS})
OF_CLUSTER: Final[Mapping[str, Invariant]] = MappingProxyType(
    {one.__name__: one for one in (*of_cluster.INVARIANTS, *of_marks.INVARIANTS, *of_copies.INVARIANTS)}
)


@dataclass(frozen=True)
class Violation:
    """An invariant that was broken, and where."""

    invariant: str
    what: str

    def __str__(self) -> str:
        """For people."""
        return f"{self.invariant}: {self.what}"


def violations(history: History, *, but: Container[str] = ()) -> tuple[Violation, ...]:
    """Everything that was wrong; without changes of a cluster, of the events alone.

    `but` names invariants that are not asked for, as what was done to the run breaks them.
    """
    checks = {**OF_LOG, **(OF_CLUSTER if history.before else {})}
    asked = {name: check for name, check in checks.items() if name not in but}
    return tuple(Violation(name, what) for name, check in asked.items() for what in _each(check, history))


def _each(check: Invariant, history: History) -> Iterator[str]:
    yield from dict.fromkeys(check(history))
