"""`kinema plans`: recent plans and their outcome."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kinema_cli.options import BROKER, ClusterName, Nats, Output
from kinema_cli.output import Format, hourly, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from kinema_cli.status.plans import PlanLine
    from kinema_core.runtime.settings import RuntimeSettings

NOTHING_FOUND = 3
_TIME = "%Y-%m-%d %H:%M:%S"


def plans(
    nats: Nats = BROKER,
    cluster: ClusterName = "",
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="Number of newest plans.")] = 20,
    output: Output = Format.TABLE,
) -> None:
    """List recent plans with cost before and after, moves, phase and reason. Equal rejections in a row are one line."""
    raise typer.Exit(run_plans(nats=nats, cluster=cluster, limit=limit, output=output))


def run_plans(*, nats: str, cluster: str, limit: int, output: Format) -> int:
    """Print the plans; returns 0, 1 (broker cannot be read), 2 (no address) or 3 (no plan yet)."""
    import asyncio

    from kinema_cli.broker import settings_for
    from kinema_cli.inputs import UsageError, fail
    from kinema_cli.output import print_error, print_hint, print_value, show
    from kinema_core.runtime.bus import BusError

    try:
        settings = settings_for(nats, cluster)
        found = asyncio.run(_read(settings, limit))
    except (UsageError, BusError) as error:
        return fail(error)
    if not found:
        print_error(f'no plan was proposed for cluster "{settings.cluster}" yet')
        print_hint("`kinema status` shows what it waits for")
        return NOTHING_FOUND
    if output is Format.TABLE:
        show(plans_table(found))
    else:
        print_value({"plans": found}, output)
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
    """Return one line for each plan, or for equal rejections in a row; ids are short where they are unique."""
    ids = [line.short_id for line in found]
    rows = []
    for line in found:
        cost = f"{hourly(line.usd_per_hour_before)} → {hourly(line.usd_per_hour_after)}"
        again = f"{line.times} times since {line.first_proposed:{_TIME}}: " if line.times > 1 else ""
        name = line.short_id if ids.count(line.short_id) == 1 else line.id
        phase = (line.phase, again + line.why)
        rows.append((name, f"{line.proposed:{_TIME}}", line.status, cost, str(line.moves), *phase))
    return table(
        "Plans",
        ("plan", "proposed", "status", "cost", "moves", "phase", "reason"),
        rows,
        numbers=("moves",),
        whole="plan",
    )
