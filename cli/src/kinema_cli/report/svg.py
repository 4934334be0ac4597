"""A few helpers to write SVG by hand."""

from __future__ import annotations

from collections.abc import Iterable
from xml.sax.saxutils import escape, quoteattr

CHARACTER = 0.6
"""Width of a character in multiples of the font size: generous, so that text that should fit does."""


def element(name: str, content: str = "", /, **attributes: float | str) -> str:
    """Return an element; underscores in attribute names become hyphens, numbers are rounded to hundredths."""
    written = "".join(f" {key.replace('_', '-')}={quoteattr(_value(value))}" for key, value in attributes.items())
    return f"<{name}{written}>{content}</{name}>" if content else f"<{name}{written}/>"


def text(content: str, *, x: float, y: float, css: str = "", anchor: str = "start", room: float | None = None) -> str:
    """Return a line of text, shortened with an ellipsis to `room` (in font sizes, see `fitting`)."""
    shown = content if room is None else fitting(content, room)
    if not shown:
        return ""
    style: dict[str, float | str] = {"class": css} if css else {}
    return element("text", escape(shown), x=x, y=y, text_anchor=anchor, **style)


def fitting(content: str, room: float) -> str:
    """Return as much of the text as fits into `room` (font sizes); nothing when that is under three letters."""
    letters = int(room / CHARACTER)
    if letters >= len(content):
        return content
    return f"{content[: letters - 1]}…" if letters >= 4 else ""


def titled(tooltip: str, parts: Iterable[str], css: str = "") -> str:
    """Return a group with a tooltip."""
    attributes: dict[str, float | str] = {"class": css} if css else {}
    return element("g", element("title", escape(tooltip)) + "".join(parts), **attributes)


def drawing(parts: Iterable[str], *, width: float, height: float, label: str) -> str:
    """Return the whole picture; `label` is what a screen reader says instead."""
    return element(
        "svg",
        "".join(parts),
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {_value(width)} {_value(height)}",
        role="img",
        aria_label=label,
    )


def _value(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.2f}".rstrip("0").rstrip(".")
