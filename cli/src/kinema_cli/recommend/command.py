"""`kinema recommend`: requests by usage, as a table or as patches; `kinema forecast`: what led to one workload's."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kinema_cli.options import BROKER, ClusterName, Nats, Output
from kinema_cli.output import Format, cell, counted, emit, facts, percent, print_error, print_hint, print_warning, table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from kinema_cli.recommend.judgements import Judgement
    from kinema_core.events import UsageBand, WorkloadJudged

_MEBIBYTE: Final = 2**20
_TIME: Final = "%Y-%m-%d %H:%M:%S UTC"


class Form(StrEnum):
    """Form in which recommendations are printed."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    KUSTOMIZE = "kustomize"


def recommend(
    nats: Nats = BROKER,
    cluster: ClusterName = "",
    every: Annotated[bool, typer.Option("--all", help="Also list workloads whose requests are right.")] = False,
    output: Annotated[
        Form, typer.Option("--output", "-o", help="Output format; kustomize prints a component with patches.")
    ] = Form.TABLE,
) -> None:
    """List the requests that each workload's usage recommends, and why some stay. Nothing is changed."""
    raise typer.Exit(run_recommend(nats=nats, cluster=cluster, every=every, output=output))


def run_recommend(*, nats: str, cluster: str, every: bool, output: Form) -> int:
    """Print recommendations; returns 0, 1 (broker cannot be read), 2 (no address) or 3 (nothing was judged yet)."""
    import asyncio

    from kinema_cli.broker import on_bus, settings_for
    from kinema_cli.inputs import UsageError, fail
    from kinema_cli.recommend.judgements import component, read_judgements
    from kinema_core.model.cluster import Cluster, fold
    from kinema_core.runtime.bus import BusError
    from kinema_core.runtime.follow import Follower, StateLostError

    try:
        settings = settings_for(nats, cluster)
        judged = asyncio.run(on_bus(settings, read_judgements))
        found = [one for one in judged.values() if every or one.changes]
        if output is Form.KUSTOMIZE and found:
            state, _ = asyncio.run(on_bus(settings, lambda bus: Follower(bus, Cluster(), fold).latest()))
            whole, left_out = component(found, state)
            emit(whole, Format.YAML, list)
            if left_out:
                print_warning(f"{counted(len(left_out), 'workload')} left out, as no container states its requests")
            return 0
    except (UsageError, BusError) as error:
        return fail(error)
    except StateLostError as error:
        print_error(str(error), "the observer publishes the state again within minutes")
        return 1
    if not judged:
        print_error(f'no workload was judged in cluster "{settings.cluster}" yet')
        print_hint("usage of 40 minutes is needed, and an iteration: `kinema status` shows what it waits for")
        return 3
    form = Format.YAML if output is Form.KUSTOMIZE else Format(output.value)
    emit({"recommendations": found}, form, lambda: [recommendations_table(found, len(judged))])
    return 0


def recommendations_table(found: list[Judgement], judged: int) -> RenderableType:
    """Return one line for each workload."""
    if not found:
        return cell(f"{counted(judged, 'workload')} judged: all requests are right")
    rows = [
        (
            one.found.workload,
            str(one.found.pods),
            _change(one.found, "cpu"),
            _change(one.found, "memory"),
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


def _change(found: WorkloadJudged, name: str) -> str:
    before, after = found.requests.get(name, 0), found.recommended.get(name)
    if after is None:
        return _amount(name, before)
    share = f" ({(after / before - 1) * 100:+.0f}%)" if before else ""
    return _amount(name, before) if after == before else f"{_amount(name, before)} → {_amount(name, after)}{share}"


def _amount(name: str, amount: int) -> str:
    return f"{amount:,}m" if name == "cpu" else f"{amount / _MEBIBYTE:,.0f}Mi"


def forecast(
    workload: Annotated[
        str, typer.Argument(metavar="WORKLOAD", help="Type/namespace/name, or the end of it where that is unique.")
    ],
    nats: Nats = BROKER,
    cluster: ClusterName = "",
    output: Output = Format.TABLE,
) -> None:
    """Show what a workload's pods are expected to use, by which models, and how well those did in the back-test."""
    raise typer.Exit(run_forecast(workload=workload, nats=nats, cluster=cluster, output=output))


def run_forecast(*, workload: str, nats: str, cluster: str, output: Format) -> int:
    """Print the judgement; returns 0, 1 (broker cannot be read), 2 (no address, several meant) or 3 (not judged)."""
    import asyncio

    from kinema_cli.broker import on_bus, settings_for
    from kinema_cli.inputs import UsageError, fail
    from kinema_cli.recommend.judgements import named, read_judgements
    from kinema_core.runtime.bus import BusError

    try:
        settings = settings_for(nats, cluster)
        judged = asyncio.run(on_bus(settings, read_judgements))
    except (UsageError, BusError) as error:
        return fail(error)
    keys = named(judged, workload)
    if len(keys) > 1:
        return fail(UsageError(f"{workload} may be {' or '.join(keys[:5])}: write one of them"))
    if not keys:
        print_error(f'workload "{workload}" was not judged in cluster "{settings.cluster}"')
        print_hint("`kinema recommend --all` lists those that were")
        return 3
    emit(judged[keys[0]], output, lambda: forecast_tables(judged[keys[0]]))
    return 0


def forecast_tables(one: Judgement) -> list[RenderableType]:
    """Return the judgement as tables, one for each resource."""
    found = one.found
    head = [("judged", f"{one.judged:{_TIME}}"), ("pods", str(found.pods))]
    return [
        facts(found.workload, head),
        *(facts(_TITLES[band.resource], _band_rows(found, band)) for band in found.bands),
    ]


_TITLES: Final[Mapping[str, str]] = {"cpu": "CPU", "memory": "Memory"}


def _band_rows(found: WorkloadJudged, band: UsageBand) -> list[tuple[str, str]]:
    name = band.resource
    models = ", ".join(
        f"{model} {'+' if offset >= 0 else '-'} {_amount(name, abs(offset))}"
        for model, offset in zip(band.models, band.offsets, strict=True)
    )
    risk = percent(1 - band.quantile)
    rows = [
        ("request", _change(found, name)),
        ("need", f"{_amount(name, band.need)} over {band.horizon_seconds / 3600:.3g} h at a risk of {risk}"),
        ("models", models),
        ("back-test", f"{percent(band.above, 1)} of the steps above the band; {risk} are allowed"),
        ("history", f"{band.days:.3g} days, {percent(band.coverage)} of the steps with a sample"),
    ]
    if band.vpa_loss:
        rows.append(("loss", f"{percent(band.loss / band.vpa_loss)} of a histogram's with a half-life of a day"))
    if name in found.kept:
        rows.append(("kept", found.kept[name]))
    return rows
