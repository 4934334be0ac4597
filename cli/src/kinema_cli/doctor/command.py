"""`kinema doctor`: is everything there that Kinema needs, and what to do where it is not. Changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kinema_cli.options import Context, Kubeconfig, Output, ProviderOption
from kinema_cli.output import Format, cell, complain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from kinema_cli.doctor.examine import Subject
    from kinema_cli.doctor.finding import Finding

_STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def doctor(
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    provider: ProviderOption = "",
    accounts: Annotated[
        str,
        typer.Option("--accounts", metavar="NAMESPACE", help="Ask about the services' accounts there, not about you."),
    ] = "",
    nats: Annotated[str, typer.Option("--nats", envvar="KINEMA_NATS", help="Broker to look at too.")] = "",
    cluster: Annotated[str, typer.Option("--cluster", envvar="KINEMA_CLUSTER", help="Whose streams.")] = "local",
    output: Output = Format.TABLE,
) -> None:
    """Check rights, versions, metrics, steering, prices, clocks and the broker; exit 1 where one would not work."""
    from kinema_cli.broker import AddressError, settings_for
    from kinema_cli.doctor.examine import Subject
    from kinema_cli.inputs import InputError, UsageError, kubeconfig_file
    from kinema_cli.local.providers import provider_setting
    from kinema_core.runtime.yaml_files import current_context

    try:
        place = kubeconfig_file(kubeconfig)
        subject = Subject(
            kubeconfig=str(place),
            context=context or current_context(place),
            provider=provider_setting(provider) if provider else None,
            accounts=accounts,
            nats=settings_for(nats, cluster) if nats else None,
        )
    except (AddressError, UsageError) as error:
        complain(str(error))
        raise typer.Exit(2) from error
    except InputError as error:
        complain(str(error))
        raise typer.Exit(1) from error
    raise typer.Exit(run_doctor(subject, output))


def run_doctor(subject: Subject, output: Format) -> int:
    """Check and print; 0 when nothing failed, else 1."""
    import asyncio

    from kinema_cli.doctor.examine import examine
    from kinema_cli.output import console, printed

    found = asyncio.run(examine(subject))
    if output is Format.TABLE:
        console().print(findings_table(found))
    else:
        printed({"findings": found}, output)
    return 1 if any(finding.level == "fail" for finding in found) else 0


def findings_table(found: Sequence[Finding]) -> RenderableType:
    """One line for each finding, for a terminal."""
    from rich.table import Table

    table = Table(show_header=False, box=None, pad_edge=False)
    for name in ("level", "check", "said"):
        table.add_column(name, overflow="fold")
    for finding in found:
        said = f"{finding.said} → {finding.do}" if finding.do else finding.said
        table.add_row(cell(finding.level, style=_STYLES[finding.level]), cell(finding.check), cell(said))
    return table
