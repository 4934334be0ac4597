"""Results of checks."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

Level: TypeAlias = Literal["ok", "warn", "fail"]


class Finding(msgspec.Struct, frozen=True):
    """Result of a check, and what to do about it.

    `warn`: Kinema works with less than it could have. `fail`: it cannot work.
    """

    check: str
    level: Level
    message: str
    remediation: str = ""


def shortened(text: str, most: int = 400) -> str:
    """Return the text, cut where it names very many things."""
    return text if len(text) <= most else f"{text[:most]} …"
