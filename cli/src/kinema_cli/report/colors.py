"""Colors of the report: names that the page's style sheet gives their light and dark values.

Matplotlib wants real colors. It gets stand-ins that occur nowhere else, and `themed` swaps them for the names in
the finished SVG, so that one picture is readable on a light and on a dark page.
"""

from __future__ import annotations

from typing import Final

SERIES: Final = tuple(f"var(--s{number})" for number in range(1, 9))
"""Eight hues in an order whose neighbors stay apart for color-blind eyes too."""

INK: Final = "#010203"
MUTED: Final = "#010204"
GRID: Final = "#010205"
SURFACE: Final = "#010206"
WINDOW: Final = "#010207"
BAD: Final = "#010208"
GOOD: Final = "#010209"
_NAMES: Final = {
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    GRID: "var(--grid)",
    SURFACE: "var(--surface)",
    WINDOW: "var(--window)",
    BAD: "var(--bad)",
    GOOD: "var(--good)",
} | {f"#0203{number:02x}": name for number, name in enumerate(SERIES)}


def stand_in(index: int) -> str:
    """Matplotlib's stand-in for the series of that index; it starts again after eight."""
    return f"#0203{index % len(SERIES):02x}"


def series(index: int) -> str:
    """Return the style sheet's name for the series of that index; it starts again after eight."""
    return SERIES[index % len(SERIES)]


def themed(svg: str) -> str:
    """Return the SVG with the style sheet's names in place of the stand-ins."""
    for color, name in _NAMES.items():
        svg = svg.replace(color, name)
    return svg
