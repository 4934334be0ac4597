"""The plan as a picture: nodes as bars as long as their CPU, filled with their pods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from kinema_cli.report.colors import series
from kinema_cli.report.data import NodeBox, PodBox
from kinema_cli.report.svg import CHARACTER, drawing, element, fitting, text, titled

WIDTH: Final = 560
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

_NAMED: Final = 7


def app_colors(boxes: Sequence[NodeBox]) -> Mapping[str, str]:
    """Return a color for each of the apps that take the most CPU; the rest share the last one."""
    weight: dict[str, int] = {}
    for box in boxes:
        for pod in box.pods:
            if pod.fate != "system":
                weight[pod.app] = weight.get(pod.app, 0) + pod.cpu
    ordered = sorted(weight, key=lambda app: (-weight[app], app))
    return {app: series(min(index, _NAMED)) for index, app in enumerate(ordered)}


def legend(boxes: Sequence[NodeBox], colors: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return (color, app) for the apps with a color of their own, and one entry each for all others and daemon sets."""
    named = list(colors.items())[:_NAMED]
    others = [(series(_NAMED), "other apps")] if len(colors) > _NAMED else []
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
    return drawing(parts, width=WIDTH, height=max(height, 1), label=label)


def _row(box: NodeBox, colors: Mapping[str, str], top: float, longest: int) -> str:
    scale = WIDTH / max(1, longest)
    width = box.cpu * scale
    bar = top + _LABEL + 4
    where = box.machine_type if box.zone == "-" else f"{box.machine_type}, {box.zone}"
    price = f" · ${box.usd_per_hour:.2f}/h"
    machine = fitting(where, _MACHINE - len(price) * CHARACTER) + price
    left_over = WIDTH / _NAME_FONT - (len(machine) + 2) * CHARACTER
    sign = {"keep": "", "boot": "new: ", "delete": "leaves: "}[box.action]
    parts = [
        text(f"{sign}{box.name}", x=0, y=top + _LABEL - 2, css=f"name {box.action}", room=left_over),
        text(machine, x=WIDTH, y=top + _LABEL - 2, css="muted", anchor="end"),
        element("rect", **{"class": f"node {box.action}"}, x=0.5, y=bar, width=max(1.0, width - 1), height=_BAR, rx=3),
    ]
    left = 1.5
    for pod in sorted(box.pods, key=lambda pod: (pod.fate == "system", pod.app, pod.pod)):
        share = min(pod.cpu * scale, max(0.0, width - 1.5 - left))
        parts.append(_pod(pod, colors, left=left, top=bar + 1.5, width=share))
        left += share
    parts.append(_memory(box, where, width, bar + _BAR + 2))
    return "".join(parts)


def _pod(pod: PodBox, colors: Mapping[str, str], *, left: float, top: float, width: float) -> str:
    fill = "var(--system)" if pod.fate == "system" else colors.get(pod.app, series(_NAMED))
    drawn = max(0.0, width - 1)
    about = f"{pod.pod}: {pod.cpu} millicores, {pod.memory / 1024**2:.0f} MiB{_FATES[pod.fate]}"
    parts = [
        element("rect", x=left, y=top, width=drawn, height=_BAR - 3, rx=2, fill=fill, **{"class": f"pod {pod.fate}"})
    ]
    if pod.fate != "system":
        parts.append(text(pod.app, x=left + 3, y=top + _BAR / 2 + 2, css="app", room=(drawn - 5) / _FONT))
    return titled(about, parts)


_FATES: Final = {
    "stay": ", stays",
    "move": ", moves",
    "restart": ", restarts in place",
    "schedule": ", was pending",
    "system": ", belongs to the node",
}


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
