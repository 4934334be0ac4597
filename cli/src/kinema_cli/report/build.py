"""The report: one HTML file without external resources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from kinema_cli.output import HOURS_PER_MONTH, hourly, monthly, unit_price
from kinema_cli.report.data import WAITED, Headline, NodeBox, ReportData
from kinema_cli.report.drawings import app_colors, boxes_picture, legend, minutes, timeline
from kinema_cli.report.plots import cost_plot, frontier_plot, load_plot, nodes_plot, ready_plot

MOST_STRIPS = 40
"""Workloads in the plot of ready replicas; the caption says when there are more."""

MOST_ROWS = 200
"""Rows of a table of pods or objects; a note counts the rest."""


@dataclass(frozen=True)
class Tile:
    """One figure of the summary; `tone` is `good`, `bad` or nothing."""

    what: str
    figure: str
    note: str
    tone: str = ""


@dataclass(frozen=True)
class Plot:
    """A plot with its caption."""

    caption: str
    label: str
    svg: str
    narrow: str = ""
    """The same for a phone, where the page has it."""


def page_of(template: str, **parts: object) -> str:
    """Return the page of a template of this package with the style sheet in it. The same parts give the same text."""
    environment = Environment(
        loader=PackageLoader("kinema_cli", "report"),
        autoescape=select_autoescape(default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    css = environment.get_template("report.css").render()
    return environment.get_template(template).render(css=css, **parts)


def build_report(data: ReportData, out: Path) -> Path:
    """Write the report to `out` and return `out`. The same data gives the same bytes."""
    colors = app_colors((*data.before, *data.after))
    longest = max((box.cpu for box in (*data.before, *data.after)), default=1)
    html = page_of(
        "report.html.j2",
        data=data,
        tiles=_tiles(data),
        before=_boxes(data.before, colors, longest, "Nodes and pods before the plan"),
        after=_boxes(data.after, colors, longest, "Nodes and pods after the plan"),
        apps=legend((*data.before, *data.after), colors),
        plots=_plots(data),
        frontier=_frontier(data),
        timeline=_moves(data),
        hourly=hourly,
        monthly=monthly,
        unit_price=unit_price,
        most=MOST_ROWS,
        short=lambda workload: workload.partition("/")[2] or workload,
        clock=minutes,
        span=lambda start, end: f"{minutes(start)} to {minutes(end)}",
    )
    out.write_text(html, encoding="utf-8")
    return out


def _boxes(boxes: Sequence[NodeBox], colors: Mapping[str, str], longest: int, label: str) -> str:
    return boxes_picture(boxes, colors, longest=longest, label=label) if boxes else ""


def _tiles(data: ReportData) -> list[Tile]:
    head = data.headline
    tiles = [
        Tile("Nodes", f"{head.nodes_before} → {head.nodes_after}", _fewer(head)),
        Tile("Cost per hour", f"${head.usd_before:.2f} → ${head.usd_after:.2f}", _percent(head)),
        Tile("Saved per month", f"${head.usd_saved_per_month:,.0f}", _saved(head), _tone(head.usd_saved_per_month)),
    ]
    if head.usd_waiting:
        cost = f"${head.usd_waiting * HOURS_PER_MONTH:,.0f}"
        tiles.append(Tile("Pending pods cost per month", cost, "their share of the new machines"))
    if head.lower_bound is not None and head.gap is not None:
        bound = f"${head.lower_bound:.2f}/h" if head.watts is None else f"{head.lower_bound:,.0f} W"
        tiles.append(Tile("Lower bound", bound, _how_good(head)))
    if head.watts is not None:
        tiles.append(Tile("Power", f"{head.watts[0]:,.0f} → {head.watts[1]:,.0f} W", "of all nodes"))
    ways = [(name, count) for name, count in sorted(head.strategies.items()) if count and name != WAITED]
    strategies = ", ".join(f"{count:,} {name}" for name, count in ways)
    restarts = f"{head.restarts} restarts in place" if head.restarts else ""
    placed = f"{head.strategies[WAITED]:,} pending pods placed" if head.strategies.get(WAITED) else ""
    how = ", ".join(part for part in (strategies, restarts, placed) if part)
    tiles.append(Tile("Pods moved", f"{head.moves:,}", how or "none"))
    if data.audit is not None:
        tone = "bad" if data.audit.violations else "good"
        note = f"workloads below their floor of ready pods; {data.audit.unready_pod_seconds:.0f} unready pod-seconds"
        tiles.append(Tile("Disruption violations", str(data.audit.violations), note, tone))
    return tiles


def _fewer(head: Headline) -> str:
    fewer = head.nodes_before - head.nodes_after
    return "no change" if not fewer else f"{fewer} fewer" if fewer > 0 else f"{-fewer} more"


def _how_good(head: Headline) -> str:
    if head.status == "infeasible":
        return "no plan fits the limits"
    beside = f" without {head.beside}" if head.beside else ""
    return f"{head.could_be_saved}{beside}"


def _percent(head: Headline) -> str:
    if head.usd_before <= 0 or head.usd_after == head.usd_before:
        return "no change"
    share = (head.usd_before - head.usd_after) / head.usd_before
    return f"{share:.0%} less" if share > 0 else f"{-share:.0%} more"


def _saved(head: Headline) -> str:
    """Return how the saving relates to the bill."""
    if not head.usd_waiting:
        return f"at {HOURS_PER_MONTH} hours"
    less = (head.usd_before - head.usd_after) * HOURS_PER_MONTH
    waiting = head.usd_waiting * HOURS_PER_MONTH
    bill = f"{'falls' if less >= 0 else 'rises'} by ${abs(less):,.0f}"
    return f"at {HOURS_PER_MONTH} hours, not counting ${waiting:,.0f} for pending pods; the bill {bill}"


def _tone(saved: float) -> str:
    return "good" if saved > 0 else ""


def _plots(data: ReportData) -> list[Plot]:
    if len(data.samples) < 2:
        return []
    samples, window = data.samples, data.window
    names = sorted({name for sample in samples for name in sample.workloads}, key=lambda name: name.partition("/")[2])
    shown = names[:MOST_STRIPS]
    more = f" (first {MOST_STRIPS} of {len(names)} workloads)" if len(names) > len(shown) else ""
    first, last = samples[0], samples[-1]
    plots = [
        Plot(
            "Nodes by machine type",
            f"Nodes over time, from {sum(first.machines.values())} to {sum(last.machines.values())}",
            nodes_plot(samples, window),
        ),
        Plot(
            "Cost and lower bound",
            f"Cost per hour over time, from {first.usd_per_hour:.2f} to {last.usd_per_hour:.2f} USD",
            cost_plot(samples, window, data.headline.lower_bound),
        ),
        Plot(
            "CPU and memory: allocatable, requested and used",
            "CPU and memory of the cluster over time: allocatable, requested by pods and used by them",
            load_plot(samples, window),
        ),
    ]
    if shown:
        worst = min(r.ready - r.desired for s in samples for r in s.workloads.values())
        plots.append(
            Plot(
                f"Ready pods against replicas{more}",
                f"Ready pods of each workload against its replicas over time; at worst {max(0, -worst)} missing",
                ready_plot(samples, window, shown),
            )
        )
    return plots


def _frontier(data: ReportData) -> Plot | None:
    """Return the cost over the moves of the plan's parts; None where none was worked out."""
    plan = data.plan
    if plan is None or not data.frontier:
        return None
    unit = "watts" if plan.cost.unit == "W" else "USD per hour"
    points = "; ".join(f"{one.moves:,} moves, {one.cost:.2f}" for one in data.frontier)
    label = f"{unit} over moves, from {plan.cost.before:.2f} with none: {points}"
    svg = frontier_plot(data.frontier, now=plan.cost.before, bound=plan.cost.lower_bound, unit=unit)
    return Plot("Cost over moves", label, svg)


def _moves(data: ReportData) -> str:
    lives = [*data.pod_lives, *data.node_lives]
    if not lives:
        return ""
    found = (moment for life in lives for moment in (life.created, life.ready, life.gone))
    moments = [moment for moment in found if moment is not None and moment >= 0]
    start, end = min(moments, default=0.0), max(moments, default=1.0)
    if data.window is not None:
        start, end = min(start, data.window[0]), max(end, data.window[1])
    room = (end - start) * 0.03 + 1
    return timeline(data.node_lives, data.pod_lives, start=max(0.0, start - room), end=end + room)
