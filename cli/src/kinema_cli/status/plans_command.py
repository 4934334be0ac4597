"""`kinema plans`: what was proposed of late, and what became of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kinema_cli.options import BROKER, CLUSTER, ClusterName, Nats, Output
from kinema_cli.output import Format, cell

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from kinema_cli.status.plans import PlanLine
    from kinema_core.runtime.settings import RuntimeSettings

NOTHING_FOUND = 3
_TIME = "%Y-%m-%d %H:%M:%S"


def plans(
    nats: Nats = BROKER,
    cluster: ClusterName = CLUSTER,
    limit: Annotated[int, typer.Option("--limit", min=1, help="How many lines, the newest.")] = 20,
    output: Output = Format.TABLE,
) -> None:
    """List the newest plans with cost before and after, moves and fate. Equal refusals in a row are one line."""
    raise typer.Exit(run_plans(nats=nats, cluster=cluster, limit=limit, output=output))


def run_plans(*, nats: str, cluster: str, limit: int, output: Format) -> int:
    """Print the plans; returns 0, 1 (broker cannot be read), 2 (no address) or 3 (there is no plan yet)."""
    import asyncio

    from kinema_cli.broker import AddressError, settings_for
    from kinema_cli.output import complain, console, printed
    from kinema_core.runtime.bus import BusError

    try:
        found = asyncio.run(_read(settings_for(nats, cluster), limit))
    except AddressError as error:
        complain(str(error))
        return 2
    except BusError as error:
        complain(f"the broker cannot be read: {error}")
        return 1
    if not found:
        complain(f"no plan was proposed for cluster {cluster!r} yet: `kinema status` says what it waits for")
        return NOTHING_FOUND
    if output is Format.TABLE:
        console().print(plans_table(found))
    else:
        printed({"plans": found}, output)
    return 0


async def _read(settings: RuntimeSettings, limit: int) -> tuple[PlanLine, ...]:
    from kinema_cli.status.plans import read_plans
    from kinema_core.runtime.nats_bus import connect

    bus = await connect(settings)
    try:
        return await read_plans(bus, limit)
    finally:
        await bus.close()


def plans_table(found: Sequence[PlanLine]) -> RenderableType:
    """One line for each plan, or for equal refusals in a row, for a terminal."""
    from rich.table import Table

    table = Table(title="Plans", title_justify="left")
    table.add_column("plan", no_wrap=True, overflow="ignore")  # an id is there to be copied
    for heading in ("proposed", "status", "USD/h", "moves", "fate", "why"):
        table.add_column(heading, overflow="fold", justify="right" if heading in {"USD/h", "moves"} else "left")
    for line in found:
        cost = f"{line.usd_per_hour_before:.4f} → {line.usd_per_hour_after:.4f}"
        again = f", {line.times} times since {line.first_proposed:{_TIME}}" if line.times > 1 else ""
        fate = (line.fate + again, line.why)
        said = (f"{line.proposed:{_TIME}}", line.status, cost, str(line.moves), *fate)
        table.add_row(*(cell(one) for one in (line.id, *said)))
    return table
