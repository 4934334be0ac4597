"""The moves over time: a line for each pod that came or went, and for each node."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from typing import Final

from kinema_cli.report.data import NodeSpan, PodSpan
from kinema_cli.report.plots import minutes
from kinema_cli.report.svg import drawing, element, text, titled

WIDTH: Final = 1120
_LEFT: Final = 250
_LINE: Final = 9
_HEAD: Final = 22
_GAP: Final = 9
MOST_PODS: Final = 160
"""Lines in the picture; what does not fit is counted below it."""


def timeline(nodes: Sequence[NodeSpan], pods: Sequence[PodSpan], *, start: float, end: float) -> str:
    """Draw the lives of nodes and pods between `start` and `end` (seconds since the record began)."""
    scale = (WIDTH - _LEFT) / max(1.0, end - start)

    def at(moment: float | None) -> float:
        return _LEFT + (min(max(end if moment is None else moment, start), end) - start) * scale

    top = float(_HEAD)
    rows: list[str] = []
    for node in sorted(nodes, key=lambda span: (span.created, span.role, span.name)):
        about = f"{node.name} ({node.machine_type}): booted {_moment(node.created)}, ready {_moment(node.ready)}"
        bar = _bar(at(node.created), at(node.ready), at(node.gone), top=top, css=f"life {node.role}")
        label = text(node.name, x=_LEFT - 8, y=top + _LINE - 1, css="lane", anchor="end", room=26)
        rows.append(titled(f"{about}, deleted {_moment(node.gone)}", [label, bar]))
        top += _LINE + 4
    top += _GAP if rows else 0
    ordered = sorted(pods, key=lambda span: (span.workload, span.created, span.role, span.pod))
    for workload, spans in groupby(ordered[:MOST_PODS], key=attrgetter("workload")):
        name = workload.partition("/")[2] or workload
        rows.append(text(name, x=_LEFT - 8, y=top + _LINE - 1, css="lane", anchor="end", room=26))
        for span in spans:
            rows.append(_pod(span, at(span.created), at(span.ready), at(span.leaving), at(span.gone), top=top))
            top += _LINE
        top += _GAP
        rows.append(element("line", x1=0, x2=WIDTH, y1=top - _GAP / 2, y2=top - _GAP / 2, **{"class": "rule"}))
    if len(ordered) > MOST_PODS:
        rows.append(text(f"and {len(ordered) - MOST_PODS} more pods", x=0, y=top + 10, css="muted"))
        top += 16
    return drawing(
        [*_axis(start, end, top, scale), *rows],
        width=WIDTH,
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
        anchor = "end" if x > WIDTH - 14 else "middle"
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


def _pod(span: PodSpan, *moments: float, top: float) -> str:
    created, ready, leaving, gone = moments
    parts = [
        _bar(created, min(ready, leaving), leaving, top=top, css=f"life {span.role}"),
        _stretch(leaving, gone, top, f"life {span.role} leaving"),
    ]
    about = (
        f"{span.pod} on {span.node}: created {_moment(span.created)}, ready {_moment(span.ready)}, "
        f"asked to leave {_moment(span.leaving)}, gone {_moment(span.gone)}"
    )
    return titled(about, parts)


def _moment(seconds: float | None) -> str:
    return "not seen" if seconds is None else "before the record" if seconds < 0 else f"at {minutes(seconds)}"
