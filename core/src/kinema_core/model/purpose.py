"""Purposes of plans: why one is made decides which rules judge it."""

from __future__ import annotations

from typing import Final, get_args

from kinema_core.events import IterationStarted, Plan, Purpose

EVERY: Final[frozenset[Purpose]] = frozenset(get_args(Purpose))
OPTIONAL: Final[frozenset[Purpose]] = frozenset({"saving", "balance", "policy"})
"""Purposes of plans that make a good cluster better, and so can wait; without the others a workload suffers."""


def purpose_of(asked: Plan | IterationStarted) -> Purpose:
    """Return the purpose; events of versions without purposes have the one of their mode."""
    if asked.purpose is not None:
        return asked.purpose
    return "room" if asked.mode == "autoscale" else "saving"
