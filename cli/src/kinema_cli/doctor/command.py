"""`kinema doctor`: checks of everything that Kinema needs, each with what to do; changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kinema_cli.options import ClusterName, Context, Kubeconfig, Output, ProviderOption
from kinema_cli.output import Format, cell, counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from kinema_cli.doctor.checks import Finding
    from kinema_cli.doctor.examine import Subject

_STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def doctor(  # noqa: PLR0913, PLR0917 - typer makes an option of each parameter
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    provider: ProviderOption = "",
    accounts: Annotated[
        str,
        typer.Option(
            "--service-account-namespace",
            metavar="NAME",
            help="Check the service accounts in this namespace instead of your own permissions.",
        ),
    ] = "",
    nats: Annotated[str, typer.Option("--nats", envvar="KINEMA_NATS", metavar="URL", help="Broker to check too.")] = "",
    monitor: Annotated[
        str,
        typer.Option("--nats-monitor", metavar="URL", help="HTTP monitoring address of the broker, to check its disk."),
    ] = "",
    settings: Annotated[
        Path | None,
        typer.Option("--settings", metavar="FILE", help="Settings by service: with Prometheus, its usage is checked."),
    ] = None,
    cluster: ClusterName = "",
    output: Output = Format.TABLE,
) -> None:
    """Check rights, versions, metrics, placement policy, prices, clocks and the broker; exit with 1 on a failure."""
    from kinema_cli.broker import settings_for
    from kinema_cli.doctor.examine import Subject
    from kinema_cli.inputs import InputError, UsageError, cluster_name, fail, kubeconfig_file
    from kinema_cli.local.settings import prometheus_setting, provider_setting, read_service_settings
    from kinema_kubernetes.kubeconfig import current_context

    try:
        usage = prometheus_setting(read_service_settings(settings, {})) if settings is not None else None
        place = kubeconfig_file(kubeconfig)
        subject = Subject(
            kubeconfig=str(place),
            context=context or current_context(place),
            provider=provider_setting(provider) if provider else None,
            accounts=accounts,
            nats=settings_for(nats, cluster_name(cluster, place, context)) if nats else None,
            nats_monitor=monitor,
            prometheus=usage,
        )
    except (InputError, UsageError) as error:
        raise typer.Exit(fail(error)) from error
    raise typer.Exit(run_doctor(subject, output))


def run_doctor(subject: Subject, output: Format) -> int:
    """Check and print; returns 0 when nothing failed, else 1."""
    import asyncio

    from kinema_cli.doctor.examine import examine
    from kinema_cli.output import emit

    found = asyncio.run(examine(subject))
    emit({"findings": found}, output, lambda: findings_table(found))
    return 1 if any(finding.level == "fail" for finding in found) else 0


def findings_table(found: Sequence[Finding]) -> list[RenderableType]:
    """Return one line for each finding, and their sum."""
    from rich.table import Table

    table = Table(show_header=False, box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("level", "check", "message"):
        table.add_column(name, overflow="fold")
    for finding in found:
        advice = f" → {finding.remediation}" if finding.remediation else ""
        level = cell(finding.level, style=_STYLES[finding.level])
        table.add_row(level, cell(finding.check), cell(finding.message + advice))
    levels = [finding.level for finding in found]
    total = f"{counted(levels.count('warn'), 'warning')}, {counted(levels.count('fail'), 'failure')}"
    return [table, cell(total, "bold")]
