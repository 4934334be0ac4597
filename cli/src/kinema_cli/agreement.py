"""Settings that optimizer and decider need alike: a plan is made by the one's and judged by the other's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

APART: Final = frozenset({"windows"})
"""Of one name and two meanings: objectives by time there, times of execution here."""
REMEDY: Final = "give both the same values: what one plans by its own, the other may reject"


def disagreement(optimizer: Mapping[str, Any], decider: Mapping[str, Any]) -> str:
    """Return where the whole settings of both services differ that should not; empty where they agree.

    The settings in question have the same name under `planning` of the optimizer and `limits` of the decider.
    """
    planning, limits = optimizer.get("planning", {}), decider.get("limits", {})
    found = [
        f"{name} ({_shown(planning[name])} and {_shown(limits[name])})"
        for name in sorted(planning.keys() & limits.keys() - APART)
        if planning[name] != limits[name]
    ]
    return f"optimizer and decider differ in {', '.join(found)}" if found else ""


def _shown(value: object) -> str:
    return msgspec.json.encode(value).decode()
