"""Output of commands: tables, JSON, YAML and messages. Loads rich only when something is printed."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

PIPE_WIDTH = 2000
"""Columns where no terminal shows the output and `COLUMNS` is not set: nothing is folded."""
HOURS_PER_MONTH = 730
"""A year's 8,760 hours over twelve, as the clouds bill a month."""


class Format(StrEnum):
    """Form in which a command prints its result."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


def print_value(value: object, form: Format) -> None:
    """Print a value that msgspec knows as JSON or YAML, to standard output."""
    import msgspec

    if form is Format.JSON:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")
    else:
        sys.stdout.write(msgspec.yaml.encode(msgspec.to_builtins(value)).decode())


def emit(value: object, form: Format, tables: Callable[[], Iterable[RenderableType]]) -> None:
    """Print a result to standard output: as its tables, or as JSON or YAML."""
    if form is Format.TABLE:
        show(*tables())
    else:
        print_value(value, form)


def console(*, stderr: bool = False) -> Console:
    """Return a console that never reads data as markup or emoji codes, and honors NO_COLOR and COLUMNS."""
    from rich.console import Console

    terminal = (sys.stderr if stderr else sys.stdout).isatty()
    width = None if terminal or os.environ.get("COLUMNS", "").isdecimal() else PIPE_WIDTH
    return Console(stderr=stderr, highlight=False, markup=False, emoji=False, width=width)


def show(*parts: RenderableType) -> None:
    """Print tables and text to standard output; without a terminal no line ends with blanks."""
    screen = console()
    if screen.is_terminal:
        screen.print(*parts, sep="\n")
        return
    with screen.capture() as captured:
        screen.print(*parts, sep="\n")
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))


def table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    numbers: Iterable[str] = (),
    whole: str = "",
    most: int = 0,
) -> RenderableType:
    """Return a titled table of text as it is: lines on a terminal, plain columns elsewhere.

    Args:
        title: stands above the table.
        columns: their headings.
        rows: their cells.
        numbers: columns whose cells are aligned to the right.
        whole: column whose cells are never folded, as they are copied.
        most: rows that are shown; the rest is counted. 0 shows all.
    """
    made, right = _empty_table(header=True), set(numbers)
    for column in columns:
        kept = column == whole
        overflow: Literal["ignore", "fold"] = "ignore" if kept else "fold"
        justify: Literal["right", "left"] = "right" if column in right else "left"
        made.add_column(cell(column), justify=justify, overflow=overflow, no_wrap=kept)
    every = list(rows)
    for row in every[: most or None]:
        made.add_row(*(cell(text) for text in row))
    if most and len(every) > most:
        made.add_row(cell(f"… and {len(every) - most:,} more"))
    return _titled(title, made)


def facts(title: str, rows: Iterable[tuple[str, str]]) -> RenderableType:
    """Return a titled table of names and values."""
    made = _empty_table(header=False)
    made.add_column(style="bold", no_wrap=True)
    made.add_column(overflow="fold")
    for name, value in rows:
        made.add_row(cell(name), cell(value))
    return _titled(title, made)


def _empty_table(*, header: bool) -> Table:
    from rich import box
    from rich.table import Table

    if console().is_terminal:
        return Table(show_header=header, box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    return Table(show_header=header, box=None, pad_edge=False, padding=(0, 2, 0, 0))


def _titled(title: str, made: Table) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    return Group(cell(title, "bold"), made, Text()) if title else made


def print_error(message: str, hint: str = "") -> None:
    """Print why a command failed, and what to do, to standard error."""
    _message("error", "bold red", message)
    if hint:
        print_hint(hint)


def print_warning(*messages: str) -> None:
    """Print what the user should know before trusting the result, to standard error."""
    for message in messages:
        _message("warning", "yellow", message)


def print_hint(message: str) -> None:
    """Print what to do next, to standard error."""
    _message("hint", "cyan", message)


def print_note(message: str) -> None:
    """Print progress, to standard error."""
    console(stderr=True).print(cell(message), soft_wrap=True)


def _message(kind: str, style: str, message: str) -> None:
    from rich.text import Text

    console(stderr=True).print(Text.assemble((f"{kind}:", style), " ", cell(message)), soft_wrap=True)


def cell(text: str, style: str = "") -> Text:
    """Return text as it is: neither markup nor control characters in it have an effect."""
    from rich.text import Text

    return Text(_printable(text), style=style)


def _printable(text: str) -> str:
    """Replace control characters: an escape sequence in a name would command the terminal."""
    return "".join(character if character.isprintable() or character == "\n" else "�" for character in text)


def counted(count: int, what: str) -> str:
    """Return a number of things: `1 pod`, `1,200 pods`."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def listed(names: Sequence[str], most: int = 3) -> str:
    """Return the first names, and how many more there are."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def hourly(usd: float, decimals: int = 2) -> str:
    """Return USD per hour: `$0.71/h`."""
    return f"{_dollars(usd, decimals)}/h"


def monthly(usd_per_hour: float) -> str:
    """Return the cost of a month: `$518/month`."""
    usd = usd_per_hour * HOURS_PER_MONTH
    return f"{_dollars(usd, 0 if abs(usd) >= 10 or round(usd, 2) == 0 else 2)}/month"


def unit_price(usd: float) -> str:
    """Return the hourly price of one machine with two decimals, or four where they differ: `$0.0335/h`."""
    return hourly(usd, 2 if round(usd, 2) == round(usd, 4) else 4)


def _dollars(usd: float, decimals: int) -> str:
    text = f"{abs(usd):,.{decimals}f}"
    return f"{'-' if usd < 0 and text.strip('0.,') else ''}${text}"


def percent(share: float, decimals: int = 0) -> str:
    """Return a share without a blank: `80%`, `0.1%` where it is below one percent."""
    if not decimals and 0 < abs(share) < 0.01:
        decimals = 2 if abs(share) < 0.001 else 1
    return f"{share * 100:.{decimals}f}%"


def could_be_saved(cost: float, bound: float, unit: str = "USD/h", *, which: str = "no plan") -> str:
    """Return by how much a cost may lie above the least: `at most $2.77/h (19%) more could be saved`.

    Args:
        cost: of the plan, in USD per hour or watts.
        bound: what no plan can cost less than.
        unit: `USD/h` or `W`.
        which: the plans that the bound is of.
    """
    left = cost - bound
    if round(left, 6) <= 0:
        return f"{which} {'draws' if unit == 'W' else 'costs'} less"
    amount = f"{left:,.1f} W" if unit == "W" else hourly(left)
    return f"at most {amount} ({percent(left / cost)}) more could be saved"


def warning_box(warnings: Sequence[str]) -> RenderableType:
    """Return warnings as a box on a terminal, as lines elsewhere."""
    from rich.console import Group
    from rich.panel import Panel
    from rich.text import Text

    if not console().is_terminal:
        return Group(*(cell(f"warning: {text}") for text in warnings), Text())
    lines = Group(*(cell(f"• {text}") for text in warnings))
    return Panel(lines, title=Text(counted(len(warnings), "warning"), style="bold yellow"), border_style="yellow")
