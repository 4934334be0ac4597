"""What a check found."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

Level: TypeAlias = Literal["ok", "warn", "fail"]


class Finding(msgspec.Struct, frozen=True):
    """One line: what was looked at, how it is, and what to do about it.

    `warn`: Kinema works, with something less. `fail`: it cannot work.
    """

    check: str
    level: Level
    said: str
    do: str = ""


def shortened(text: str, most: int = 400) -> str:
    """The text, cut where it names very many things."""
    return text if len(text) <= most else f"{text[:most]} …"
