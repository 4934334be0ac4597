"""Settings that services need alike: a plan is made by those of one and judged and executed by those of others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

APART: Final = frozenset({"windows", "refused_seconds"})
"""Of one name and two meanings: objectives by time, times of execution; how long a refusal counts, or is waited for."""
REMEDY: Final = "give both the same values: what one plans by its own, the other may reject"


def disagreement(settings: Mapping[str, Mapping[str, Any]]) -> str:
    """Return where the whole settings of services differ that should not, by service; empty where they agree.

    The settings in question have the same name under `planning` of the optimizer and `limits` of the other service.
    """
    return "; ".join(_differences(settings))


def _differences(settings: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    planning = settings.get("optimizer", {}).get("planning", {})
    for service in ("decider", "rescheduler"):
        limits = settings.get(service, {}).get("limits", {})
        found = [
            f"{name} ({_shown(planning[name])} and {_shown(limits[name])})"
            for name in sorted(planning.keys() & limits.keys() - APART)
            if planning[name] != limits[name]
        ]
        if found:
            yield f"optimizer and {service} differ in {', '.join(found)}"


def _shown(value: object) -> str:
    return msgspec.json.encode(value).decode()
