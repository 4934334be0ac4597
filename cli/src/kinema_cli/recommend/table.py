"""Judgements as tables, and their amounts in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from kinema_cli.output import cell, counted, facts, percent, table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from kinema_cli.recommend.judgements import Judgement
    from kinema_core.events import ForecastRefused, UsageBand, WorkloadJudged

MEBIBYTE: Final = 2**20
TIME: Final = "%Y-%m-%d %H:%M:%S UTC"
TITLES: Final[Mapping[str, str]] = {"cpu": "CPU", "memory": "Memory"}


def recommendations_table(found: list[Judgement], judged: int) -> RenderableType:
    """Return one line for each workload."""
    if not found:
        return cell(f"{counted(judged, 'workload')} judged: all requests are right")
    rows = [
        (
            one.found.workload,
            str(one.found.pods),
            change(one.found, "cpu"),
            change(one.found, "memory"),
            ", ".join(f"{name} {reason}" for name, reason in sorted(one.found.kept.items())),
        )
        for one in found
    ]
    return table(
        "Recommended requests of a pod",
        ("workload", "pods", "CPU", "memory", "kept"),
        rows,
        numbers=("pods",),
        whole="workload",
    )


def refusals_table(refused: list[ForecastRefused]) -> RenderableType:
    """Return one line for each workload whose requests plans do not change, with the reason."""
    rows = [
        (one.workload, one.reason, ", ".join(f"{name} {value}" for name, value in sorted(one.figures.items())))
        for one in refused
    ]
    return table(
        "Left as they are (docs/rightsizing.md explains the reasons)",
        ("workload", "reason", "figures"),
        rows,
        whole="workload",
    )


def change(found: WorkloadJudged, name: str) -> str:
    """Return the request of a resource as it is, and as it is recommended."""
    before, after = found.requests.get(name, 0), found.recommended.get(name)
    if after is None:
        return amount_text(name, before)
    share = f" ({(after / before - 1) * 100:+.0f}%)" if before else ""
    return (
        amount_text(name, before)
        if after == before
        else f"{amount_text(name, before)} → {amount_text(name, after)}{share}"
    )


def amount_text(name: str, amount: float) -> str:
    """Return millicores or bytes as Kubernetes writes them."""
    return f"{amount:,.0f}m" if name == "cpu" else f"{amount / MEBIBYTE:,.0f}Mi"


def forecast_tables(one: Judgement) -> list[RenderableType]:
    """Return the judgement as tables, one for each resource."""
    found = one.found
    head = [("judged", f"{one.judged:{TIME}}"), ("pods", str(found.pods))]
    return [
        facts(found.workload, head),
        *(facts(TITLES[band.resource], band_rows(found, band)) for band in found.bands),
    ]


def band_rows(found: WorkloadJudged, band: UsageBand) -> list[tuple[str, str]]:
    """Return what is known of a band as names and values."""
    name = band.resource
    models = ", ".join(
        f"{model} {'+' if offset >= 0 else '-'} {amount_text(name, abs(offset))}"
        for model, offset in zip(band.models, band.offsets, strict=True)
    )
    risk = percent(1 - band.quantile)
    rows = [
        ("request", change(found, name)),
        ("need", f"{amount_text(name, band.need)} over {band.horizon_seconds / 3600:.3g} h at a risk of {risk}"),
        ("models", models),
        ("back-test", f"{percent(band.above, 1)} of the steps above the band; {risk} are allowed"),
        ("history", f"{band.days:.3g} days, {percent(band.coverage)} of the steps with a sample"),
    ]
    if band.vpa_loss:
        rows.append(("loss", f"{percent(band.loss / band.vpa_loss)} of a histogram's with a half-life of a day"))
    if name in found.kept:
        rows.append(("kept", found.kept[name]))
    return rows
