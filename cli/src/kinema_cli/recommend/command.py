"""`kinema recommend`: requests by usage, as a table or as patches; `kinema forecast`: what led to one workload's."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kinema_cli.options import BROKER, ClusterName, Nats, Output
from kinema_cli.output import Format, counted, emit, print_error, print_hint, print_note, print_warning

if TYPE_CHECKING:
    from kinema_cli.recommend.judgements import Judgement
    from kinema_core.runtime.settings import RuntimeSettings


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
    from kinema_cli.recommend.table import recommendations_table, refusals_table
    from kinema_core.model.cluster import Cluster, fold
    from kinema_core.runtime.bus import BusError
    from kinema_core.runtime.follow import Follower, StateLostError

    try:
        settings = settings_for(nats, cluster)
        judged, refusals = asyncio.run(on_bus(settings, read_judgements))
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
    # By default no plan changes requests, of any workload: that is no news of one.
    refused = [one for _, one in sorted(refusals.items()) if one.reason != "recommend-only"]
    if judged or refused:
        form = Format.YAML if output is Form.KUSTOMIZE else Format(output.value)
        tables = [recommendations_table(found, len(judged))] if judged else []
        tables += [refusals_table(refused)] if refused else []
        emit({"recommendations": found, "refused": refused}, form, lambda: tables)
        return 0 if judged else 3
    return _nothing_judged(settings)


def _nothing_judged(settings: RuntimeSettings) -> int:
    """Say why: there is no such cluster on the broker, or it is too early; returns 3, or 1 without an answer."""
    import asyncio

    from kinema_cli.broker import on_bus
    from kinema_cli.inputs import fail
    from kinema_cli.status.command import print_nothing_found
    from kinema_cli.status.pipeline import read_status
    from kinema_core.runtime.bus import BusError

    name, now = settings.cluster, settings.clock().now()
    try:
        status = asyncio.run(on_bus(settings, lambda bus: read_status(bus, cluster=name, now=now)))
    except BusError as error:
        return fail(error)
    if status.empty:
        return print_nothing_found(name)
    print_error(f'no workload was judged in cluster "{name}" yet')
    print_hint("usage of 40 minutes is needed, and an iteration: `kinema status` shows what it waits for")
    return 3


def forecast(
    workload: Annotated[
        str, typer.Argument(metavar="WORKLOAD", help="Type/namespace/name, or the end of it where that is unique.")
    ],
    nats: Nats = BROKER,
    cluster: ClusterName = "",
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Also write an HTML page with history and band.")
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """Show what a workload's pods are expected to use, by which models, and how well those did in the back-test."""
    raise typer.Exit(run_forecast(workload=workload, nats=nats, cluster=cluster, html=html, output=output))


def run_forecast(*, workload: str, nats: str, cluster: str, html: Path | None, output: Format) -> int:
    """Print the judgement; returns 0, 1 (broker, usage or file), 2 (no address, several meant) or 3 (not judged)."""
    import asyncio

    from kinema_cli.broker import on_bus, settings_for
    from kinema_cli.inputs import InputError, UsageError, check_output, fail
    from kinema_cli.recommend.judgements import named, read_judgements
    from kinema_cli.recommend.table import forecast_tables
    from kinema_core.runtime.bus import BusError

    try:
        check_output(html, "--html")
        settings = settings_for(nats, cluster)
        judged, refused = asyncio.run(on_bus(settings, read_judgements))
    except (UsageError, InputError, BusError) as error:
        return fail(error)
    keys = named(judged, workload)
    if len(keys) > 1:
        return fail(UsageError(f"{workload} may be {' or '.join(keys[:5])}: write one of them"))
    if not judged and not refused:
        return _nothing_judged(settings)
    if not keys:
        print_error(f'workload "{workload}" was not judged in cluster "{settings.cluster}"')
        for key in named(refused, workload):
            print_hint(f"{key} has no forecast: {refused[key].reason}; docs/rightsizing.md says what that means")
        print_hint("`kinema recommend --all` lists those that were")
        return 3
    emit(judged[keys[0]], output, lambda: forecast_tables(judged[keys[0]]))
    return 0 if html is None else _write_page(judged[keys[0]], settings, html)


def _write_page(one: Judgement, settings: RuntimeSettings, path: Path) -> int:
    import asyncio

    from kinema_cli.broker import on_bus
    from kinema_cli.inputs import fail
    from kinema_cli.recommend.judgements import read_traces
    from kinema_cli.recommend.page import build_page
    from kinema_core.runtime.bus import BusError
    from kinema_core.runtime.follow import StateLostError

    try:
        traces = asyncio.run(on_bus(settings, lambda bus: read_traces(bus, one)))
        path.write_text(build_page(one, traces), encoding="utf-8")
    except BusError as error:
        return fail(error)
    except (StateLostError, ValueError) as error:
        print_error(f"--html {path}: {error}", "the next judgement is made within the hour")
        return 1
    except OSError as error:
        print_error(f"--html {path}: the page cannot be written: {error.strerror}")
        return 1
    print_note(f"page written to {path}")
    return 0
