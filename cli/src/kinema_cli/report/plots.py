"""Plots over time, drawn by matplotlib as SVG that is the same for the same data."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from io import StringIO
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator, MultipleLocator
from matplotlib.typing import RcKeyType

from kinema_cli.report.data import Sample
from kinema_cli.report.drawings import BAD, GRID, INK, MUTED, SURFACE, WINDOW, minutes, stand_in, themed

if TYPE_CHECKING:
    from kinema_optimizer.planning.frontier import FrontierPoint

WIDTH: Final = 9.4
"""Inches; the page scales it to its own width."""
NARROW: Final = 4.3
"""Inches of the same for a phone, on which a scaled one could not be read."""

_STYLE: Final[dict[RcKeyType, object]] = {
    "svg.fonttype": "none",  # text stays text: selectable, readable by a screen reader, in the page's font
    "svg.hashsalt": "kinema",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9,
    "text.color": INK,
    "axes.edgecolor": GRID,
    "axes.labelcolor": MUTED,
    "axes.facecolor": "none",
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.major.size": 3,
    "ytick.major.size": 0,
    "legend.frameon": False,
    "legend.labelcolor": INK,
    "figure.facecolor": "none",
}
GIB: Final = 1024**3
_LONG: Final = 3 * 3600
"""Seconds beyond which an axis of time counts hours."""


_ONE_LINE: Final = 80
"""Characters of a legend that fit on a line."""


class Size(NamedTuple):
    """Size of a figure, in inches; no heights: the usual one for each panel."""

    heights: Sequence[float] = ()
    width: float = WIDTH


class Moment(Protocol):
    """Anything that was seen at a time."""

    @property
    def at(self) -> float:
        """Seconds since the record began."""


def nodes_plot(samples: Sequence[Sample], window: tuple[float, float] | None) -> str:
    """Draw nodes by machine type, stacked."""
    types = sorted({name for sample in samples for name, count in sample.machines.items() if count})

    def draw(axes: Axes) -> None:
        times = [sample.at for sample in samples]
        floor = [0] * len(samples)
        for index, name in enumerate(types):
            top = [base + sample.machines.get(name, 0) for base, sample in zip(floor, samples, strict=True)]
            axes.fill_between(
                times, floor, top, step="post", facecolor=stand_in(index), edgecolor=SURFACE, linewidth=0.8, label=name
            )
            floor = top
        axes.set_ylabel("nodes")
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))

    return figure_of("nodes", [draw], samples, window)


def cost_plot(samples: Sequence[Sample], window: tuple[float, float] | None, bound: float | None) -> str:
    """Draw cost per hour and lower bound."""

    def draw(axes: Axes) -> None:
        times = [sample.at for sample in samples]
        cost = [sample.usd_per_hour for sample in samples]
        axes.fill_between(times, 0, cost, step="post", facecolor=stand_in(0), alpha=0.15, linewidth=0)
        axes.step(times, cost, where="post", color=stand_in(0), linewidth=1.8, label="paid")
        if bound is not None:
            axes.axhline(bound, color=stand_in(5), linewidth=1.4, linestyle=(0, (5, 3)), label="lower bound")
        axes.set_ylabel("USD per hour")
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.2f}"))

    return figure_of("cost", [draw], samples, window)


def frontier_plot(points: Sequence[FrontierPoint], *, now: float, bound: float, unit: str) -> str:
    """Draw what parts of a plan cost over their moves, from the cluster as it is `now`; costs are per hour."""
    knee = [one for one in points if one.knee]

    def draw(axes: Axes) -> None:
        moves, cost = [0, *(one.moves for one in points)], [now, *(one.cost for one in points)]
        axes.plot(moves, cost, color=stand_in(0), linewidth=1.6, marker="o", markersize=5, label="parts of the plan")
        for x, y in zip(moves, cost, strict=True):
            axes.annotate(f"{y:,.2f}", (x, y), xytext=(5, 6), textcoords="offset points", fontsize=8)
        if knee:
            at = [one.moves for one in knee], [one.cost for one in knee]
            axes.plot(*at, marker="D", markersize=9, linestyle="none", color=stand_in(1), label="knee")
        axes.axhline(bound, color=stand_in(5), linewidth=1.4, linestyle=(0, (5, 3)), label="lower bound")
        axes.set_xlabel("pods moved")
        axes.set_ylabel(unit)
        axes.set_ylim(bottom=0)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.margins(x=0.06, y=0.12)

    return figure_of("frontier", [draw], (), None, size=Size([2.8]))


def load_plot(samples: Sequence[Sample], window: tuple[float, float] | None) -> str:
    """Draw what is allocatable, requested and used, CPU above memory."""

    def panel(label: str, resource: str, unit: float) -> Callable[[Axes], None]:
        def draw(axes: Axes) -> None:
            times = [sample.at for sample in samples]
            requested, allocatable, used = (
                [getattr(getattr(sample, what), resource) / unit for sample in samples]
                for what in ("requested", "allocatable", "used")
            )
            axes.fill_between(times, 0, requested, step="post", facecolor=stand_in(0), alpha=0.2, linewidth=0)
            axes.step(times, allocatable, where="post", color=MUTED, label="allocatable")
            axes.step(times, requested, where="post", color=stand_in(0), linewidth=1.6, label="requested")
            axes.plot(times, used, color=stand_in(1), linewidth=1.6, label="used")
            axes.set_ylabel(label)
            axes.set_ylim(bottom=0)
            axes.yaxis.set_major_locator(MaxNLocator(nbins=5))

        return draw

    panels = [
        panel("CPU, cores", "cpu_m", 1000),
        panel("memory, GiB", "memory_bytes", GIB),
    ]
    return figure_of("load", panels, samples, window)


def ready_plot(samples: Sequence[Sample], window: tuple[float, float] | None, names: Sequence[str]) -> str:
    """Draw a strip per workload: as many pods ready as its owner asks for, more, or fewer."""

    def draw(axes: Axes) -> None:
        end = samples[-1].at
        for row, name in enumerate(names):
            # Calm first: what happened for a moment only must stay visible above it.
            for begin, until, slack in sorted(_slack_runs(samples, name, end), key=lambda run: abs(run[2])):
                color = GRID if slack == 0 else stand_in(0) if slack > 0 else BAD
                axes.broken_barh(
                    [(begin, until - begin)],
                    (row - 0.34, 0.68),
                    facecolor=color,
                    edgecolor=color,
                    linewidth=0.0 if slack == 0 else 0.8,
                )
        axes.set_yticks(range(len(names)), [_short(name) for name in names])
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.grid(visible=False)
        axes.tick_params(axis="y", labelcolor=INK)

    legend = [
        Patch(facecolor=GRID, label="all ready"),
        Patch(facecolor=stand_in(0), label="surplus during a surge"),
        Patch(facecolor=BAD, label="some missing"),
    ]
    return figure_of("ready", [draw], samples, window, size=Size([0.6 + 0.24 * len(names)]), legend=legend)


def _slack_runs(samples: Sequence[Sample], name: str, end: float) -> list[tuple[float, float, int]]:
    """Return stretches of time with the same ready − replicas: (from, to, slack)."""
    runs: list[tuple[float, float, int]] = []
    for sample, until in zip(samples, [*(later.at for later in samples[1:]), end], strict=True):
        replicas = sample.workloads.get(name)
        if replicas is None:
            continue
        slack = replicas.ready - replicas.desired
        if runs and runs[-1][2] == slack and runs[-1][1] == sample.at:
            runs[-1] = (runs[-1][0], until, slack)
        else:
            runs.append((sample.at, until, slack))
    return runs


def _short(workload: str) -> str:
    """Return `shop/cart` for `Deployment/shop/cart`."""
    return workload.partition("/")[2] or workload


def figure_of(
    name: str,
    panels: Sequence[Callable[[Axes], None]],
    samples: Sequence[Moment],
    window: tuple[float, float] | None,
    *,
    size: Size = Size(),
    legend: Sequence[Patch] = (),
    since: str = "the record began",
) -> str:
    """Return panels one above the other as an SVG element; over time where there are samples.

    Args:
        name: of the figure, unique in a page.
        panels: draw what is in each.
        samples: the first and the last one bound the axis of time.
        window: when a plan was executed.
        size: of the panels.
        legend: in place of the labels of the first panel.
        since: what the axis of time counts from.
    """
    tall, width = list(size.heights) or [1.9 for _ in panels], size.width
    with mpl.rc_context(_STYLE):
        # The salt differs by figure: ids of clip paths would meet in the one page otherwise.
        mpl.rcParams["svg.hashsalt"] = f"kinema-{name}"
        figure = Figure(figsize=(width, sum(tall) + 0.7), layout="constrained")
        FigureCanvasSVG(figure)
        grid = figure.subplots(len(panels), 1, sharex=True, squeeze=False, gridspec_kw={"height_ratios": tall})
        rows = [grid[index, 0] for index in range(len(panels))]
        for axes, draw in zip(rows, panels, strict=True):
            draw(axes)
            if window is not None:
                axes.axvspan(*window, facecolor=WINDOW, alpha=1, linewidth=0, zorder=-1)
        if samples:
            _time_axis(rows[-1], samples, since, most=round(12 * width / WIDTH))
        handles, labels = rows[0].get_legend_handles_labels()
        shown: list[Patch | Line2D] = list(legend or handles)
        if window is not None:
            shown.append(Patch(facecolor=WINDOW, edgecolor=GRID, label="plan executed"))
        names = [str(item.get_label()) for item in shown] if legend or window else labels
        figure.legend(
            handles=shown,
            labels=names,
            loc="outside upper left",
            ncols=8 if sum(map(len, names)) <= _ONE_LINE * width / WIDTH else max(2, round(5 * width / WIDTH)),
            handlelength=1.4,
            columnspacing=1.6,
        )
        return _inline(figure, name)


def _time_axis(axes: Axes, samples: Sequence[Moment], since: str, most: int) -> None:
    first, last = samples[0].at, samples[-1].at
    axes.set_xlim(first, last if last > first else first + 1)
    steps = (10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14400, 43200, 86400)
    step = next((step for step in steps if (last - first) / step <= most), 604800)
    unit, form = "min:s", minutes
    if last - first > _LONG:
        unit, form = "hours", _hours
    elif last - first > 3600:
        unit, form = "h:min", _hours_and_minutes
    axes.xaxis.set_major_locator(MultipleLocator(step))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: form(value)))
    axes.set_xlabel(f"cluster time since {since}, {unit}")


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:g}"


def _hours_and_minutes(seconds: float) -> str:
    return minutes(seconds / 60)


def _inline(figure: Figure, name: str) -> str:
    """Return the figure as an SVG element for the page: no prologue, no metadata, ids that are unique in the page."""
    out = StringIO()
    figure.savefig(out, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    svg = out.getvalue()
    svg = svg[svg.index("<svg") :]
    head, _, rest = svg.partition(">")
    head = re.sub(r' (width|height)="[^"]*"', "", head)
    # Matplotlib's style element would speak to the whole page.
    rest = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", rest, count=1, flags=re.DOTALL)
    svg = head.replace("<svg", '<svg aria-hidden="true" class="plot"') + ">" + rest
    svg = re.sub(r'(?<=\sid=")', f"{name}-", svg)
    svg = re.sub(r'(?<=url\(#)|(?<=href="#)', f"{name}-", svg)
    return themed(svg)
