"""Printing values as JSON or YAML, and consoles that suit terminals and pipes. Loads rich only when it prints."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

PIPE_WIDTH = 160
"""Columns of a table that no terminal shows: wide enough that nothing is cut."""


class Format(StrEnum):
    """How a command prints its result."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


def printed(value: object, form: Format) -> None:
    """Print a value that msgspec knows as JSON or YAML, to standard output."""
    import msgspec

    if form is Format.JSON:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")
    else:
        sys.stdout.write(msgspec.yaml.encode(msgspec.to_builtins(value)).decode())


def console() -> Console:
    """A console on standard output; honours NO_COLOR, and cuts nothing when a pipe reads it."""
    from rich.console import Console

    return Console(highlight=False, width=None if sys.stdout.isatty() else PIPE_WIDTH)


def complain(message: str) -> None:
    """One line on standard error."""
    from rich.console import Console

    Console(stderr=True, highlight=False).print(_harmless(message), markup=False, soft_wrap=True)


def cell(text: str, style: str = "") -> Text:
    """Text of a table as it is: neither markup in it nor a terminal's control characters count."""
    from rich.text import Text

    return Text(_harmless(text), style=style)


def _harmless(text: str) -> str:
    """A name in a file may hold anything; an escape sequence in it would command the terminal."""
    return "".join(character if character.isprintable() or character == "\n" else "�" for character in text)


def counted(count: int, what: str) -> str:
    """A number of things: `1 pod`, `1,200 pods`."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"
