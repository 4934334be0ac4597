"""Settings of plans without the guards of an operator's defaults, for tests of what the guards would hide."""

from __future__ import annotations

from typing import Any, Final

from kinema_optimizer.settings import PlanningSettings

_UNGUARDED: Final[dict[str, Any]] = {
    "min_savings_fraction": 0.0,
    "max_moves_fraction": 1.0,
    "redundancy": False,
    "headroom": 0,
    "expected_use_fraction": 0.0,
}


def unguarded(**given: Any) -> PlanningSettings:
    """Return these settings; any number of pods may move, to any nodes, unless they say otherwise."""
    return PlanningSettings(**{**_UNGUARDED, **given})
