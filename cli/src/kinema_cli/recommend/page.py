"""The page on one workload's forecast: one HTML file without external resources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes

from kinema_cli.output import percent
from kinema_cli.recommend.judgements import Judgement
from kinema_cli.recommend.table import TIME, TITLES, amount_text, band_rows
from kinema_cli.report.build import Plot, Tile, page_of
from kinema_cli.report.drawings import MUTED, stand_in
from kinema_cli.report.plots import Size, figure_of
from kinema_core.events import UsageBand, WorkloadJudged
from kinema_predictor.forecasting.competition import ENTER, LEAVE
from kinema_predictor.logic.retrace import Trace

_UNITS: Mapping[str, tuple[str, float]] = {
    "cpu": ("CPU of a pod, millicores", 1.0),
    "memory": ("memory of a pod, MiB", 2**20),
}


@dataclass(frozen=True)
class _Edge:
    """An end of the axis of time."""

    at: float
    """Seconds since the newest usage."""


@dataclass(frozen=True)
class _Rival:
    """A model in the back-test."""

    name: str
    loss: str
    beside_best: str
    is_chosen: bool


@dataclass(frozen=True)
class _Part:
    """What the page has of one resource."""

    title: str
    plot: Plot
    facts: list[tuple[str, str]]
    rivals: list[_Rival]


def build_page(one: Judgement, traces: Mapping[str, Trace]) -> str:
    """Return the page; the same judgement and traces, one for each of its resources, give the same text."""
    found = one.found
    return page_of(
        "forecast.html.j2",
        workload=found.workload,
        pods=found.pods,
        judged=f"{one.judged:{TIME}}",
        until=f"{max(trace.end for trace in traces.values()):{TIME}}",
        tiles=[tile for band in found.bands for tile in _tiles(found, band)],
        enter=percent(ENTER),
        leave=percent(LEAVE),
        parts=[_part(found, band, traces[band.resource]) for band in found.bands],
    )


def _tiles(found: WorkloadJudged, band: UsageBand) -> list[Tile]:
    name = band.resource
    before, after = found.requests.get(name, 0), found.recommended.get(name, found.requests.get(name, 0))
    title, kept = TITLES[name], found.kept.get(name)
    text = amount_text(name, before)
    less = found.pods * (before - after)
    note = f"stays: {kept}" if kept else f"{amount_text(name, abs(less))} {'less' if less > 0 else 'more'} in all pods"
    risk = 1 - band.quantile
    return [
        Tile(
            f"{title} request",
            text if after == before else f"{text} → {amount_text(name, after)}",
            note if less or kept else "no change",
            "good" if less > 0 else "",
        ),
        Tile(
            f"{title} above the band", percent(band.above, 1), f"of the back-test's steps; {percent(risk)} are allowed"
        ),
    ]


def _part(found: WorkloadJudged, band: UsageBand, trace: Trace) -> _Part:
    best = trace.losses[0][1]
    rivals = [
        _Rival(
            model,
            f"{loss / _UNITS[band.resource][1]:,.3g}",
            f"{percent(loss / best - 1)} above" if best and loss > best else "best",
            model in band.models,
        )
        for model, loss in trace.losses
    ]
    return _Part(TITLES[band.resource], _plot(found, band, trace), band_rows(found, band), rivals)


def _plot(found: WorkloadJudged, band: UsageBand, trace: Trace) -> Plot:
    name = band.resource
    label, unit = _UNITS[name]
    horizon, step = len(trace.upper), trace.step_seconds
    times = step * (np.arange(-len(trace.usage), 0) + 0.5)
    ahead, behind = step * (np.arange(horizon) + 0.5), step * (np.arange(-horizon, 0) + 0.5)
    request, recommended = found.requests.get(name), found.recommended.get(name)

    def draw(axes: Axes) -> None:
        axes.plot(times, trace.usage / unit, color=stand_in(0), linewidth=1.0, label="used")
        axes.plot(
            behind,
            trace.tested / unit,
            color=stand_in(4),
            linewidth=1.3,
            linestyle=(0, (1, 1.2)),
            label="band, back-test",
        )
        axes.fill_between(
            ahead,
            trace.middle / unit,
            trace.upper / unit,
            facecolor=stand_in(4),
            alpha=0.3,
            linewidth=0,
            label="band ahead",
        )
        axes.plot(ahead, trace.upper / unit, color=stand_in(4), linewidth=1.3)
        if request is not None:
            axes.axhline(request / unit, color=MUTED, linewidth=1.4, label="request now")
        if recommended is not None and recommended != request:
            axes.axhline(
                recommended / unit, color=stand_in(1), linewidth=1.6, linestyle=(0, (5, 2)), label="request recommended"
            )
        axes.axvline(0, color=MUTED, linewidth=0.8)
        axes.set_ylabel(label)
        axes.set_ylim(bottom=0)

    edges = (_Edge(-len(trace.usage) * step), _Edge(horizon * step))
    svg = figure_of(name, [draw], edges, None, size=Size([2.6]), since="the newest usage")
    return Plot(
        "Usage, band and request",
        f"{TITLES[name]} of a pod over time: usage of {band.days:.3g} days, at most {amount_text(name, _most(trace))}; "
        f"the band ahead reaches {amount_text(name, float(trace.upper.max()))}",
        svg,
    )


def _most(trace: Trace) -> float:
    return float(np.nanmax(trace.usage))
