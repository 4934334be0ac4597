"""The clock of a process follows the machine's, and never goes back."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from kinema_core.runtime import clock as module
from kinema_core.runtime.clock import SystemClock


class Machine:
    """The module `time`, with both clocks set by hand."""

    def __init__(self) -> None:
        self.wall = 1_000_000.0
        self.passed = 50.0

    def time(self) -> float:
        """The wall clock."""
        return self.wall

    def monotonic(self) -> float:
        """The monotonic clock."""
        return self.passed

    def advance(self, seconds: float, *, wall: float | None = None) -> None:
        """Let time pass; the wall clock is corrected where `wall` differs."""
        self.passed += seconds
        self.wall += seconds if wall is None else wall


def test_a_clock_that_was_set_later_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that had no time yet, or was suspended: forward at once, back by going slowly until both agree."""
    machine = Machine()
    monkeypatch.setattr(module, "time", machine)
    clock = SystemClock()

    def now() -> float:
        return clock.now().timestamp()

    machine.advance(1, wall=90)
    assert now() == 1_000_090
    machine.advance(10, wall=0)
    assert now() == 1_000_095
    machine.advance(8)
    assert now() == 1_000_099
    machine.advance(10)
    assert now() == 1_000_108


def test_a_clock_of_another_epoch_advances_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of a simulated cluster has nothing to do with corrections of the machine's clock."""
    machine = Machine()
    monkeypatch.setattr(module, "time", machine)
    clock = SystemClock(speed=2.0, epoch=datetime(2026, 1, 1, tzinfo=UTC), started=machine.wall)
    machine.advance(10, wall=500)
    assert clock.now() == datetime(2026, 1, 1, 0, 0, 20, tzinfo=UTC)
