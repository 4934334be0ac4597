"""The page that compares policies: one HTML file without external resources."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec
from matplotlib.axes import Axes

from kinema_cli.report.build import Plot, page_of
from kinema_cli.report.drawings import MUTED, stand_in
from kinema_cli.report.plots import NARROW, Size, figure_of

if TYPE_CHECKING:
    from kinema_sim.simulate.course import Figures, Sample
    from kinema_sim.simulate.run import Result
    from kinema_sim.simulate.scenario import Loaded

_DASHES: Final = ("solid", (0, (5, 2)), (0, (1, 1.2)), (0, (4, 1.5, 1, 1.5)), (0, (8, 2)))
"""Lines differ by their dashes as well as by color."""
_MARKS: Final = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">", "h")
_SINCE: Final = "the simulation began"
_MOST_POINTS: Final = 4_000
"""Samples of a line in a plot; of more, the first of each stretch of time is drawn."""


@dataclass(frozen=True)
class Row:
    """A figure, a row of the page's tables; `best` says which end is good."""

    title: str
    note: str
    value: Callable[[Figures], float]
    form: str
    best: Callable[[Sequence[float]], float] | None = min


ROWS: Final = (
    Row("cost", "paid in all", lambda f: f.usd, "${:,.2f}"),
    Row("mean", "per hour", lambda f: f.mean_usd_per_hour, "${:,.3f}"),
    Row("least", "per hour", lambda f: f.min_usd_per_hour, "${:,.3f}"),
    Row("nodes", "mean", lambda f: f.mean_nodes, "{:,.2f}"),
    Row("energy", "kWh", lambda f: f.kwh, "{:,.3f}"),
    Row("CPU used", "of allocatable", lambda f: f.cpu_used_percent, "{:.1f}%", max),
    Row("CPU requested", "of allocatable", lambda f: f.cpu_requested_percent, "{:.1f}%", max),
    Row("memory requested", "of allocatable", lambda f: f.memory_requested_percent, "{:.1f}%", max),
    Row("throughput", "requests per second", lambda f: f.mean_rps, "{:,.1f}", max),
    Row("pending", "pod-seconds", lambda f: f.pending_pod_seconds, "{:,.0f}"),
    Row("missing", "pod-seconds not Ready", lambda f: f.missing_pod_seconds, "{:,.0f}"),
    Row("short of CPU", "of pods' time", lambda f: f.cpu_short_percent, "{:.2f}%"),
    Row("killed", "pods, for memory", lambda f: f.killed, "{:,.0f}"),
    Row("ready floor", "worst workload", lambda f: 100 * f.floor, "{:.0f}%", max),
    Row("moved", "pods, by the policy", lambda f: f.evictions, "{:,.0f}"),
    Row("resized", "pods, each time", lambda f: f.resized, "{:,.0f}"),
    Row("disrupted", "pods below replicas", lambda f: f.disruptions, "{:,.0f}"),
)


@dataclass(frozen=True)
class Cell:
    """A figure of a policy; `best` where none in its row is better."""

    text: str
    best: bool


@dataclass(frozen=True)
class Table:
    """Figures of a part of the time: a row for each, a column for each policy."""

    title: str
    policies: tuple[str, ...]
    rows: tuple[tuple[Row, tuple[Cell, ...]], ...]


def build_page(loaded: Loaded, results: Sequence[Result], command: str) -> str:
    """Return the page; the same results give the same text."""
    return page_of(
        "simulation.html.j2",
        scenario=loaded.scenario,
        results=results,
        tables=_tables(results),
        plots=_plots(results),
        frontier=_frontier(results),
        command=command,
        files=sorted(loaded.sources),
    )


# --- tables


def _tables(results: Sequence[Result]) -> list[Table]:
    policies = tuple(one.policy for one in results)
    return [
        _table("The whole time", policies, [one.whole for one in results]),
        *(_table(f"Phase {phase}", policies, [one.phases[phase] for one in results]) for phase in results[0].phases),
    ]


def _table(title: str, policies: tuple[str, ...], found: Sequence[Figures]) -> Table:
    """Return a table without the rows in which every policy has nothing."""
    rows = []
    for row in ROWS:
        values = [row.value(one) for one in found]
        if any(values):
            rows.append((row, tuple(_cell(row, value, values) for value in values)))
    return Table(title, policies, tuple(rows))


def _cell(row: Row, value: float, all_: Sequence[float]) -> Cell:
    differs = row.best is not None and len({row.form.format(one) for one in all_}) > 1
    best = row.best(all_) if row.best is not None else value
    return Cell(row.form.format(value), differs and row.form.format(value) == row.form.format(best))


# --- plots


def _plots(results: Sequence[Result]) -> list[Plot]:
    loaded = any(sample.users or sample.rps for one in results for sample in one.samples)
    used = any(sample.used_cpu for one in results for sample in one.samples)
    found = [
        _over_time("cost", "Cost per hour", "USD per hour", results, lambda s: s.usd_per_hour),
        _over_time("nodes", "Nodes that are paid for", "nodes", results, lambda s: s.nodes),
        _over_time(
            "requested", "CPU that pods request", "% of allocatable", results, lambda s: _share(s, s.requested_cpu)
        ),
    ]
    if used:
        found.append(
            _over_time("used", "CPU that pods use", "% of allocatable", results, lambda s: _share(s, s.used_cpu))
        )
    if loaded:
        found.append(_over_time("rps", "Throughput", "requests per second", results, lambda s: s.rps))
    found += [
        _over_time("pending", "Pods that wait for a node", "pods", results, lambda s: s.pending),
        _over_time("floor", "Ready pods of the worst workload", "% of its replicas", results, lambda s: 100 * s.floor),
    ]
    return found


def _share(sample: Sample, part: int) -> float:
    return 100 * part / sample.allocatable_cpu if sample.allocatable_cpu else 0.0


def _over_time(name: str, caption: str, unit: str, results: Sequence[Result], value: Callable[[Sample], float]) -> Plot:
    def draw(axes: Axes) -> None:
        for index, one in enumerate(results):
            times, values = _line(one.samples, one.whole.seconds, value)
            axes.step(
                times,
                values,
                where="post",
                color=stand_in(index),
                linestyle=_DASHES[index % len(_DASHES)],
                linewidth=1.7,
                label=one.policy,
            )
        axes.set_ylabel(unit)
        axes.set_ylim(bottom=0)

    ends = ", ".join(f"{one.policy} ends at {value(one.samples[-1]):.4g}" for one in results)
    first = results[0].samples[0]
    edges = first, msgspec.structs.replace(first, at=results[0].whole.seconds)
    return Plot(
        caption,
        f"{caption} over time by policy: {ends}",
        figure_of(name, [draw], edges, None, since=_SINCE),
        figure_of(f"{name}-narrow", [draw], edges, None, size=Size(width=NARROW), since=_SINCE),
    )


def _line(samples: Sequence[Sample], end: float, value: Callable[[Sample], float]) -> tuple[list[float], list[float]]:
    stride = -(-len(samples) // _MOST_POINTS)
    shown = samples[::stride]
    return [*(one.at for one in shown), end], [*(value(one) for one in shown), value(samples[-1])]


def _frontier(results: Sequence[Result]) -> Plot:
    """Draw what each policy costs over how many pods it moved; what lies to the left and below is better."""

    def draw(axes: Axes) -> None:
        points = [(one.evictions, one.whole.usd) for one in results]
        front = sorted(p for p in points if not any(q != p and q[0] <= p[0] and q[1] <= p[1] for q in points))
        axes.step(
            [x for x, _ in front],
            [y for _, y in front],
            where="post",
            color=MUTED,
            linewidth=1.0,
            linestyle=(0, (3, 3)),
        )
        for index, (one, (x, y)) in enumerate(zip(results, points, strict=True)):
            mark = _MARKS[index % len(_MARKS)]
            axes.plot([x], [y], marker=mark, markersize=8, linestyle="none", color=stand_in(index), label=one.policy)
            axes.annotate(one.policy, (x, y), xytext=(7, 5), textcoords="offset points", fontsize=8)
        axes.set_xlabel("pods moved or restarted by the policy")
        axes.set_ylabel("USD in all")
        axes.margins(x=0.12, y=0.18)

    label = "; ".join(f"{one.policy}: {one.evictions} pods moved, {one.whole.usd:.2f} USD" for one in results)
    return Plot(
        "Cost over disruption",
        f"Cost over disruption by policy: {label}",
        figure_of("frontier", [draw], (), None, size=Size([3.2])),
        figure_of("frontier-narrow", [draw], (), None, size=Size([3.2], NARROW)),
    )
