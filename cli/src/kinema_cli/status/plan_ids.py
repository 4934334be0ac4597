"""Short ids of plans: `it-83` for `prod/observer/it-83/predictor/0/optimizer/0`, the time for one from a file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

LATEST: Final = "latest"
_CYCLE: Final = re.compile(r"(?:^|/)(it-\d[^/]*|\d{8}T\d{6}[^/]*)")
_NEAR: Final = 5


class UnknownPlanError(Exception):
    """No plan, or more than one, has the id; the text names those that are near."""


def short_id(plan: str) -> str:
    """Return the part of a plan's id that is unique in nearly all logs; the id itself where it has another form."""
    found = _CYCLE.search(plan)
    return found[1] if found is not None else plan


def is_plan_id(name: str) -> bool:
    """Return whether a name has the form of a plan's id."""
    return name == LATEST or _CYCLE.search(name) is not None


def matching_id(given: str, plans: Sequence[str], none: str = "no plan was proposed yet") -> str:
    """Return the id of the plan that is named by its id, its short id, a unique prefix of one, or `latest`.

    Args:
        given: the name.
        plans: ids of all plans, the newest last.
        none: said where there is no plan at all.

    Raises:
        UnknownPlanError: no plan or several match.
    """
    if not plans:
        raise UnknownPlanError(none)
    if given == LATEST:
        return plans[-1]
    for matches in (
        [plan for plan in plans if given == plan],
        [plan for plan in plans if given == short_id(plan)],
        [plan for plan in plans if plan.startswith(given) or short_id(plan).startswith(given)],
    ):
        if len(matches) == 1:
            return matches[0]
        if matches:
            raise UnknownPlanError(f"{len(matches)} plans match {given!r}: {', '.join(matches[-_NEAR:])}")
    recent = ", ".join(short_id(plan) for plan in plans[-_NEAR:])
    raise UnknownPlanError(f"no plan has the id {given!r}; the newest are {recent}")
