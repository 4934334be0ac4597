"""A chart of cost over moves as an SVG file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from typing import Final

from kinema_cli.report.drawings import drawing, element, text

_WIDTH: Final = 820
_HEIGHT: Final = 480
_LEFT: Final = 76
_RIGHT: Final = 24
_TOP: Final = 46
_BOTTOM: Final = 56
_INK: Final = "#1f2933"
_PALE: Final = "#d6dde4"
_LINE: Final = "#1769aa"
_RIVAL: Final = "#b45309"
_LETTER: Final = 6.0
"""Width of a letter of the names, about."""


@dataclass(frozen=True)
class Point:
    """Moves and USD per hour."""

    moves: int
    cost: float
    name: str = ""


def frontier_chart(
    title: str, curve: Sequence[Point], rivals: Sequence[Point], *, limit: Sequence[Point], pods: int
) -> str:
    """The frontier as a line, the rivals as named points, and the limit that no plan is below as a dashed line."""
    top, bound = max(point.cost for point in (*curve, *rivals)), min(point.cost for point in limit)
    plot = _Plot(pods=pods, low=bound - 0.06 * (top - bound), high=top + 0.06 * (top - bound))
    parts = [
        element("rect", width=_WIDTH, height=_HEIGHT, fill="#ffffff"),
        _words(title, x=_LEFT, y=26, size=16, weight="600"),
        *plot.axes(),
        plot.line(limit, stroke=_INK, stroke_dasharray="6 4"),
        _words(f"no plan is below: lower bound {bound:,.2f}", x=_LEFT + 8, y=plot.y(bound) + 16),
        plot.line(curve, stroke=_LINE, stroke_width=2),
        *(
            element("circle", element("title", f"{p.moves} moves, {p.cost:,.2f} USD/h"), **_spot(plot, p, _LINE, 3.5))
            for p in curve
        ),
        _words("Kinema", x=_WIDTH - _RIGHT, y=26, fill=_LINE, weight="600", anchor="end"),
        element("line", x1=_WIDTH - _RIGHT - 84, x2=_WIDTH - _RIGHT - 54, y1=22, y2=22, stroke=_LINE, stroke_width=2),
        *_named(plot, rivals),
    ]
    return drawing(parts, width=_WIDTH, height=_HEIGHT, label=title) + "\n"


def _spot(plot: _Plot, point: Point, fill: str, radius: float) -> dict[str, float | str]:
    return {"cx": plot.x(point.moves), "cy": plot.y(point.cost), "r": radius, "fill": fill}


def _from(plot: _Plot, point: Point) -> dict[str, float]:
    return {"x1": plot.x(point.moves), "y1": plot.y(point.cost)}


def _named(plot: _Plot, rivals: Sequence[Point]) -> list[str]:
    """Points with their names beside them; a name that would lie over another goes above it, on a line to its point."""
    parts = []
    taken: list[tuple[float, float, float]] = []
    for point in sorted(rivals, key=lambda one: one.cost, reverse=True):
        left, y = plot.x(point.moves) + 10, plot.y(point.cost) + 4
        wide = len(point.name) * _LETTER
        if left + wide > _WIDTH - 4:
            left -= wide + 20
        while any(abs(y - other) < 14 and left < end and begin < left + wide for begin, end, other in taken):
            y -= 14
        taken.append((left, left + wide, y))
        if y < plot.y(point.cost) - 14:
            end = left - 2 if left > plot.x(point.moves) else left + wide
            parts.append(element("line", **_from(plot, point), x2=end, y2=y - 4, stroke=_RIVAL, stroke_width=0.7))
        parts.append(element("circle", **_spot(plot, point, _RIVAL, 5)))
        parts.append(_words(point.name, x=left, y=y, fill=_RIVAL))
    return parts


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers between the two, five or so."""
    rough = max(1e-9, high - low) / 5
    power = 10.0 ** floor(log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    return [step * number for number in range(ceil(low / step), floor(high / step) + 1)]


@dataclass(frozen=True)
class _Plot:
    """From moves and money to places."""

    pods: int
    low: float
    high: float

    def x(self, moves: float) -> float:
        """Of a number of moves."""
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * moves / max(1, self.pods)

    def y(self, cost: float) -> float:
        """Of a cost."""
        return _TOP + (_HEIGHT - _TOP - _BOTTOM) * (self.high - cost) / max(1e-9, self.high - self.low)

    def line(self, points: Sequence[Point], **style: float | str) -> str:
        """Through points."""
        places = " ".join(f"{self.x(point.moves):.1f},{self.y(point.cost):.1f}" for point in points)
        return element("polyline", points=places, fill="none", **style)

    def axes(self) -> list[str]:
        """Lines and numbers."""
        bottom = _HEIGHT - _BOTTOM
        parts = [element("line", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=bottom, y2=bottom, stroke=_INK)]
        for cost in _ticks(self.low, self.high):
            y = self.y(cost)
            parts.append(element("line", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=y, y2=y, stroke=_PALE))
            parts.append(_words(f"{cost:,.{0 if self.high >= 20 else 2}f}", x=_LEFT - 8, y=y + 4, anchor="end"))
        for moves in _ticks(0, self.pods):
            parts.append(element("line", x1=self.x(moves), x2=self.x(moves), y1=bottom, y2=bottom + 5, stroke=_INK))
            parts.append(_words(f"{moves:,.0f}", x=self.x(moves), y=bottom + 20, anchor="middle"))
        middle = (_LEFT + _WIDTH - _RIGHT) / 2
        parts.append(_words("pods moved (net)", x=middle, y=bottom + 42, anchor="middle"))
        parts.append(_words("USD/h", x=_LEFT - 8, y=_TOP - 10, anchor="end"))
        return parts


def _words(
    content: str,
    *,
    x: float,
    y: float,
    size: int = 12,
    fill: str = _INK,
    weight: str = "400",
    anchor: str = "start",
) -> str:
    style: dict[str, float | str] = {
        "font_family": "sans-serif",
        "font_size": size,
        "font_weight": weight,
        "fill": fill,
    }
    return element("g", text(content, x=x, y=y, anchor=anchor), **style)
