"""Settings that services need alike: a plan is made by those of one and judged and executed by those of others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

APART: Final = frozenset({"windows", "refused_seconds"})
"""Of one name and two meanings: objectives by time, times of execution; how long a refusal counts, or is waited for."""
JUDGES: Final = ("decider", "rescheduler")
"""Services that judge and execute plans of the optimizer by `limits` of their own."""
REMEDY: Final = "give both the same values: what one plans by its own, the other may reject"


def disagreement(settings: Mapping[str, Mapping[str, Any]]) -> str:
    """Return where the whole settings of services differ that should not, by service; empty where they agree."""
    return "; ".join(_differences(settings))


def needed_alike(planning: Iterable[str], limits: Iterable[str]) -> list[str]:
    """Return the names of settings that optimizer and judge need alike, of those under `planning` and `limits`."""
    return sorted({*planning} & {*limits} - APART)


def _differences(settings: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    planning = settings.get("optimizer", {}).get("planning", {})
    for service in JUDGES:
        limits = settings.get(service, {}).get("limits", {})
        found = [
            f"{name} ({_shown(planning[name])} and {_shown(limits[name])})"
            for name in needed_alike(planning, limits)
            if planning[name] != limits[name]
        ]
        if found:
            yield f"optimizer and {service} differ in {', '.join(found)}"


def _shown(value: object) -> str:
    return msgspec.json.encode(value).decode()
