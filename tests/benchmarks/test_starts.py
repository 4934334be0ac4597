"""Starts after a peak, five with rules and five without, and time limits by a process' own time."""

from __future__ import annotations

import time

import pytest
from benchmarks.solver import deadline
from benchmarks.starts import SEEDS, peaks

from kinema_core.events import NO_RULES


def test_each_start_after_a_peak_has_a_seed_and_its_own_services() -> None:
    """Those with rules have some, the others none; no two are alike."""
    starts = {name: one for name, one in peaks().items() if name.startswith("deployments")}
    services = {name: one.services() for name, one in starts.items()}
    ruled = {name for name, found in services.items() if any(one.rules != NO_RULES for one in found)}
    assert ruled == {name for name in starts if "constrained" in name}
    assert sorted(one.seed for one in starts.values()) == sorted([*range(SEEDS), *range(SEEDS)])
    assert len({tuple((one.cpu, one.after) for one in found) for found in services.values()}) == 2 * SEEDS


def test_a_time_limit_by_processors_counts_what_the_process_worked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processors work two seconds in one."""
    worked = [100.0]
    monkeypatch.setattr(time, "process_time", lambda: worked[0])
    limit = deadline(10.0, processors=2.0)
    worked[0] += 6.0
    assert limit.left() == 7.0
    worked[0] += 20.0
    assert limit.left() == 0.0
