"""Drawings of the report as SVG: nodes with their pods, and the moves over time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Final
from xml.sax.saxutils import escape, quoteattr

from kinema_cli.report.data import Life, NodeBox, PodBox

SERIES: Final = tuple(f"var(--s{number})" for number in range(1, 9))
"""Eight hues in an order whose neighbors stay apart for color-blind eyes too."""

INK: Final = "#010203"
MUTED: Final = "#010204"
GRID: Final = "#010205"
SURFACE: Final = "#010206"
WINDOW: Final = "#010207"
BAD: Final = "#010208"
GOOD: Final = "#010209"
_STYLE_NAMES: Final = {
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    GRID: "var(--grid)",
    SURFACE: "var(--surface)",
    WINDOW: "var(--window)",
    BAD: "var(--bad)",
    GOOD: "var(--good)",
} | {f"#0203{number:02x}": name for number, name in enumerate(SERIES)}
CHARACTER = 0.6
"""Width of a character in multiples of the font size: generous, so that text that should fit does."""
BOXES_WIDTH: Final = 560
_LABEL: Final = 14
_BAR: Final = 26
_MEMORY: Final = 5
_ROW: Final = 62
_FONT: Final = 9.5
_NAME_FONT: Final = 11.5
"""A little more than it is: names are bold."""
_MACHINE: Final = 22.0
"""Room for type, zone and price of a node, in font sizes; its name has the rest of the line."""
MOST_NODES: Final = 60
"""Nodes in the picture; the rest is counted below it."""
_NAMED_APPS: Final = 7
_FATES: Final = {
    "stay": ", stays",
    "move": ", moves",
    "restart": ", restarts in place",
    "resize": ", is resized in place",
    "schedule": ", was pending",
    "system": ", belongs to the node",
}
_MOVES_WIDTH: Final = 1120
_LEFT: Final = 250
_LINE: Final = 9
_HEAD: Final = 22
_GAP: Final = 9
MOST_PODS: Final = 160
"""Lines in the picture; what does not fit is counted below it."""


def stand_in(index: int) -> str:
    """Return Matplotlib's stand-in for the series of that index; it starts again after eight."""
    return f"#0203{index % len(SERIES):02x}"


def series(index: int) -> str:
    """Return the style sheet's name for the series of that index; it starts again after eight."""
    return SERIES[index % len(SERIES)]


def themed(svg: str) -> str:
    """Return the SVG with the style sheet's names in place of the stand-ins.

    Matplotlib wants real colors. It gets stand-ins that occur nowhere else, so that one picture is readable on a light
    and on a dark page.
    """
    for color, name in _STYLE_NAMES.items():
        svg = svg.replace(color, name)
    return svg


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


def app_colors(boxes: Sequence[NodeBox]) -> Mapping[str, str]:
    """Return a color for each of the apps that take the most CPU; the rest share the last one."""
    weight: dict[str, int] = {}
    for box in boxes:
        for pod in box.pods:
            if pod.fate != "system":
                weight[pod.app] = weight.get(pod.app, 0) + pod.cpu
    ordered = sorted(weight, key=lambda app: (-weight[app], app))
    return {app: series(min(index, _NAMED_APPS)) for index, app in enumerate(ordered)}


def legend(boxes: Sequence[NodeBox], colors: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return (color, app) for the apps with a color of their own, and one entry each for all others and daemon sets."""
    named = list(colors.items())[:_NAMED_APPS]
    others = [(series(_NAMED_APPS), "other apps")] if len(colors) > _NAMED_APPS else []
    drawn = any(pod.fate == "system" and pod.cpu for box in boxes for pod in box.pods)
    system = [("var(--system)", "daemon sets")] if drawn else []
    return [(color, app) for app, color in named] + others + system


def boxes_picture(boxes: Sequence[NodeBox], colors: Mapping[str, str], *, longest: int, label: str) -> str:
    """Draw nodes below each other; `longest` is the CPU of a bar as wide as the picture (millicores)."""
    shown = boxes[:MOST_NODES]
    parts = [_row(box, colors, index * _ROW, longest) for index, box in enumerate(shown)]
    height = len(shown) * _ROW
    if len(boxes) > len(shown):
        height += 20
        rest = boxes[MOST_NODES:]
        parts.append(text(f"and {len(rest)} more nodes", x=0, y=height - 6, css="muted"))
    return drawing(parts, width=BOXES_WIDTH, height=max(height, 1), label=label)


def _row(box: NodeBox, colors: Mapping[str, str], top: float, longest: int) -> str:
    scale = BOXES_WIDTH / max(1, longest)
    width = box.cpu * scale
    bar = top + _LABEL + 4
    where = box.machine_type if box.zone == "-" else f"{box.machine_type}, {box.zone}"
    price = f" · ${box.usd_per_hour:.2f}/h"
    machine = fitting(where, _MACHINE - len(price) * CHARACTER) + price
    left_over = BOXES_WIDTH / _NAME_FONT - (len(machine) + 2) * CHARACTER
    sign = {"keep": "", "boot": "new: ", "delete": "leaves: "}[box.action]
    parts = [
        text(f"{sign}{box.name}", x=0, y=top + _LABEL - 2, css=f"name {box.action}", room=left_over),
        text(machine, x=BOXES_WIDTH, y=top + _LABEL - 2, css="muted", anchor="end"),
        element("rect", **{"class": f"node {box.action}"}, x=0.5, y=bar, width=max(1.0, width - 1), height=_BAR, rx=3),
    ]
    left = 1.5
    for pod in sorted(box.pods, key=lambda pod: (pod.fate == "system", pod.app, pod.pod)):
        share = min(pod.cpu * scale, max(0.0, width - 1.5 - left))
        parts.append(_pod_box(pod, colors, left=left, top=bar + 1.5, width=share))
        left += share
    parts.append(_memory(box, where, width, bar + _BAR + 2))
    return "".join(parts)


def _pod_box(pod: PodBox, colors: Mapping[str, str], *, left: float, top: float, width: float) -> str:
    fill = "var(--system)" if pod.fate == "system" else colors.get(pod.app, series(_NAMED_APPS))
    drawn = max(0.0, width - 1)
    about = f"{pod.pod}: {pod.cpu} millicores, {pod.memory / 1024**2:.0f} MiB{_FATES[pod.fate]}"
    parts = [
        element("rect", x=left, y=top, width=drawn, height=_BAR - 3, rx=2, fill=fill, **{"class": f"pod {pod.fate}"})
    ]
    if pod.fate != "system":
        parts.append(text(pod.app, x=left + 3, y=top + _BAR / 2 + 2, css="app", room=(drawn - 5) / _FONT))
    return titled(about, parts)


def _memory(box: NodeBox, where: str, width: float, top: float) -> str:
    taken = sum(pod.memory for pod in box.pods)
    share = min(1.0, taken / box.memory) if box.memory else 0.0
    cpu = sum(pod.cpu for pod in box.pods) / box.cpu if box.cpu else 0.0
    return titled(
        f"{box.name} ({where}): CPU {cpu:.0%} requested, memory {share:.0%} requested",
        [
            element("rect", **{"class": "trough"}, x=0.5, y=top, width=max(1.0, width - 1), height=_MEMORY, rx=2),
            element(
                "rect", **{"class": "memory"}, x=0.5, y=top, width=max(0.0, (width - 1) * share), height=_MEMORY, rx=2
            ),
        ],
    )


def minutes(seconds: float) -> str:
    """Return seconds as `m:ss`."""
    whole = round(seconds)
    return f"{whole // 60}:{whole % 60:02d}"


def timeline(nodes: Sequence[Life], pods: Sequence[Life], *, start: float, end: float) -> str:
    """Draw the lives of nodes and pods between `start` and `end` (seconds since the record began)."""
    scale = (_MOVES_WIDTH - _LEFT) / max(1.0, end - start)

    def at(moment: float | None) -> float:
        return _LEFT + (min(max(end if moment is None else moment, start), end) - start) * scale

    top = float(_HEAD)
    rows: list[str] = []
    for node in sorted(nodes, key=lambda life: (life.created, life.role, life.name)):
        about = f"{node.name} ({node.of}): booted {_moment(node.created)}, ready {_moment(node.ready)}"
        bar = _bar(at(node.created), at(node.ready), at(node.gone), top=top, css=f"life {node.role}")
        label = text(node.name, x=_LEFT - 8, y=top + _LINE - 1, css="lane", anchor="end", room=26)
        rows.append(titled(f"{about}, deleted {_moment(node.gone)}", [label, bar]))
        top += _LINE + 4
    top += _GAP if rows else 0
    ordered = sorted(pods, key=lambda life: (life.of, life.created, life.role, life.name))
    for workload, spans in groupby(ordered[:MOST_PODS], key=attrgetter("of")):
        name = workload.partition("/")[2] or workload
        rows.append(text(name, x=_LEFT - 8, y=top + _LINE - 1, css="lane", anchor="end", room=26))
        for span in spans:
            rows.append(_pod_line(span, at(span.created), at(span.ready), at(span.leaving), at(span.gone), top=top))
            top += _LINE
        top += _GAP
        rows.append(element("line", x1=0, x2=_MOVES_WIDTH, y1=top - _GAP / 2, y2=top - _GAP / 2, **{"class": "rule"}))
    if len(ordered) > MOST_PODS:
        rows.append(text(f"and {len(ordered) - MOST_PODS} more pods", x=0, y=top + 10, css="muted"))
        top += 16
    return drawing(
        [*_axis(start, end, top, scale), *rows],
        width=_MOVES_WIDTH,
        height=top + 2,
        label=f"Timeline of {len(pods)} pods and {len(nodes)} nodes that came or went",
    )


def _axis(start: float, end: float, bottom: float, scale: float) -> list[str]:
    span = end - start
    step = next((step for step in (5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600) if span / step <= 12), 7200)
    parts: list[str] = []
    tick = -(-start // step) * step
    while tick <= end:
        x = _LEFT + (tick - start) * scale
        parts.append(element("line", x1=x, x2=x, y1=_HEAD - 6, y2=bottom, **{"class": "grid"}))
        anchor = "end" if x > _MOVES_WIDTH - 14 else "middle"
        parts.append(text(minutes(tick), x=x, y=_HEAD - 10, css="muted", anchor=anchor))
        tick += step
    return parts


def _bar(begin: float, ready: float, gone: float, *, top: float, css: str) -> str:
    """Return the bar of a life: pale until ready, full from then on."""
    return _stretch(begin, ready, top, f"{css} starting") + _stretch(ready, gone, top, css)


def _stretch(begin: float, until: float, top: float, css: str) -> str:
    if until <= begin:
        return ""
    return element("rect", x=begin, y=top, width=until - begin, height=_LINE - 1.5, **{"class": css})


def _pod_line(span: Life, *moments: float, top: float) -> str:
    created, ready, leaving, gone = moments
    parts = [
        _bar(created, min(ready, leaving), leaving, top=top, css=f"life {span.role}"),
        _stretch(leaving, gone, top, f"life {span.role} leaving"),
    ]
    about = (
        f"{span.name} on {span.node or 'no node'}: created {_moment(span.created)}, ready {_moment(span.ready)}, "
        f"asked to leave {_moment(span.leaving)}, gone {_moment(span.gone)}"
    )
    return titled(about, parts)


def _moment(seconds: float | None) -> str:
    return "not seen" if seconds is None else "before the record" if seconds < 0 else f"at {minutes(seconds)}"
