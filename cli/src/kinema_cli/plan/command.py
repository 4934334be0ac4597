"""`kinema plan`: the cheapest cluster for what runs now, without touching anything."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kinema_cli.inputs import (
    InputError,
    UsageError,
    age_of_prices,
    check_output,
    offers_of,
    say_what_is_left_out,
    snapshot_of,
)
from kinema_cli.options import AllowSpot, ContextName, LiveFile, MoveJobs, Output, SnapshotFile
from kinema_cli.output import Format, complain, counted

if TYPE_CHECKING:
    from kinema_cli.snapshot.file import Snapshot
    from kinema_core.events import Offer, Plan
    from kinema_optimizer.request.objective import Window
    from kinema_optimizer.settings import PlanningSettings
    from kinema_optimizer.solvers.stopping import Deadline


@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """What to plan for, and how to say it."""

    catalog: Path
    snapshot: Path | None = None
    context: str | None = None
    kubeconfig: Path | None = None
    objective: str = "cost"
    time_limit: float = 30.0
    move_jobs: bool = False
    allow_spot: bool = False
    move_price: float | None = None
    max_moves: int | None = None
    seed: int = 0
    workers: int = 2
    output: Format = Format.TABLE
    html: Path | None = None
    began: float | None = None
    """`time.monotonic()` when the command began, from which the time limit counts; by default it begins now."""


def plan(  # noqa: PLR0913, PLR0917 - typer makes an option of each parameter
    command: typer.Context,
    catalog: Annotated[Path, typer.Option("--catalog", help="CSV of machine types with their prices.")],
    snapshot: SnapshotFile = None,
    context: ContextName = None,
    kubeconfig: LiveFile = None,
    objective: Annotated[
        str,
        typer.Option("--objective", help="cost or energy; with :60 nodes are filled to 60 percent at most."),
    ] = "cost",
    time_limit: Annotated[float, typer.Option("--time-limit", help="Seconds for the whole command.")] = 30.0,
    move_jobs: MoveJobs = False,
    allow_spot: AllowSpot = False,
    move_price: Annotated[
        float | None,
        typer.Option("--move-price", help="USD per hour (watts for energy) that a plan has to save for each move."),
    ] = None,
    max_moves: Annotated[
        int | None,
        typer.Option(
            "--max-moves",
            help="Running pods that the plan moves at most, stops counted too; waiting ones that get a place do not "
            "count. The bound is that of plans with any number of moves; with 0, of those that move nothing.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the search.")] = 0,
    workers: Annotated[int, typer.Option("--workers", help="Processors for the search.")] = 2,
    output: Output = Format.TABLE,
    html: Annotated[Path | None, typer.Option("--html", help="Also write a report to this file.")] = None,
) -> None:
    """Show the cheapest cluster, what would move, what it saves, and what blocks more. Changes nothing."""
    options = PlanOptions(
        catalog=catalog,
        snapshot=snapshot,
        context=context,
        kubeconfig=kubeconfig,
        objective=objective,
        time_limit=time_limit,
        move_jobs=move_jobs,
        allow_spot=allow_spot,
        move_price=move_price,
        max_moves=max_moves,
        seed=seed,
        workers=workers,
        output=output,
        html=html,
        began=command.obj,
    )
    raise typer.Exit(run_plan(options))


def run_plan(options: PlanOptions) -> int:
    """Plan and print; returns 0 for any plan, 1 when none fits or an input cannot be used, 2 for wrong arguments."""
    from kinema_cli.plan.offer_gaps import say_what_offers_lack
    from kinema_core.model.catalog import PriceError
    from kinema_optimizer.errors import OptimizerError
    from kinema_optimizer.solvers.stopping import Deadline

    deadline = Deadline(options.time_limit, began=options.began)
    try:
        settings = planning_settings(options)
        check_output(options.html, "--html")
        found = snapshot_of(options.snapshot, options.context, options.kubeconfig)
        offers = offers_of(options.catalog, found)
        say_what_is_left_out(found)
        say_what_offers_lack(found, offers)
        made = _solve(found, offers, settings, deadline)
    except UsageError as error:
        complain(str(error))
        return 2
    except (InputError, PriceError, OptimizerError) as error:
        complain(str(error))
        return 1
    prices = age_of_prices(options.catalog)
    _print(made, found, form=options.output, settings=settings, prices=prices)
    if options.html is not None and not _write_html(made, found, offers, path=options.html, prices=prices):
        return 1
    return _outcome(made)


def planning_settings(options: PlanOptions) -> PlanningSettings:
    """The optimizer's settings for these options; raises UsageError."""
    from kinema_optimizer.settings import PlanningSettings

    if not 0 < options.time_limit < float("inf"):
        raise UsageError(f"--time-limit {options.time_limit:g}: give seconds above 0")
    windows = _windows(options)
    try:
        return PlanningSettings(
            time_limit_seconds=options.time_limit,
            windows=windows,
            move_jobs=options.move_jobs,
            allow_spot=options.allow_spot,
            seed=options.seed,
            workers=options.workers,
        )
    except ValueError as error:
        raise UsageError(f"--{error}") from error


def _windows(options: PlanOptions) -> tuple[Window, ...]:
    """One window without hours, which holds all week."""
    from kinema_optimizer.request.objective import Window

    kind, colon, ceiling = options.objective.partition(":")
    if kind not in ("cost", "energy") or (colon and not (ceiling.isdecimal() and 1 <= int(ceiling) <= 100)):
        raise UsageError(f"--objective {options.objective!r} is none of: cost, energy, or one with :PERCENT, 1 to 100")
    energy = kind == "energy"
    try:
        window = Window(
            objective="energy" if energy else "cost",
            max_utilisation_percent=int(ceiling) if colon else 100,
            move_price_usd=None if energy else options.move_price,
            move_price_watts=options.move_price if energy else None,
            max_moves=options.max_moves,
        )
    except ValueError as error:
        said = str(error).replace("move_price_usd", "--move-price").replace("move_price_watts", "--move-price")
        raise UsageError(said.replace("max_moves", "--max-moves")) from error
    return (window,)


def _solve(snapshot: Snapshot, offers: tuple[Offer, ...], settings: PlanningSettings, deadline: Deadline) -> Plan:
    from kinema_cli.plan.progress import told
    from kinema_optimizer.planning.planner import PRICING_SHARE, plan_for
    from kinema_optimizer.solvers.stopping import ClockStop

    nodes, pods = counted(len(snapshot.cluster.nodes), "node"), counted(len(snapshot.cluster.pods), "pod")
    said = f"planning for {nodes} and {pods}, up to {settings.time_limit_seconds:g} s"
    unit = "W" if settings.objective(snapshot.now).kind == "energy" else "USD/h"
    with told(said, unit) as progress:
        stop = ClockStop(deadline, pricing=PRICING_SHARE)
        return plan_for(snapshot.cluster, offers, now=snapshot.now, settings=settings, stop=stop, progress=progress)


def _print(made: Plan, snapshot: Snapshot, *, form: Format, settings: PlanningSettings, prices: str) -> None:
    from kinema_cli.output import console, printed
    from kinema_cli.plan.table import plan_tables
    from kinema_core.model.mobility import mobility

    if form is Format.TABLE:
        may = mobility(snapshot.cluster, snapshot.now, settings.mobility)
        console().print(plan_tables(made, snapshot.cluster, may.deletable, prices))
    else:
        printed(made, form)


def _write_html(made: Plan, snapshot: Snapshot, offers: tuple[Offer, ...], *, path: Path, prices: str) -> bool:
    from kinema_cli.report.build import build_report
    from kinema_cli.report.from_plan import plan_report

    data = plan_report(
        made,
        snapshot.cluster,
        offers,
        title="Kinema: plan",
        subtitle=f"For {_whose(snapshot)}; prices: {prices or 'undated'}",
    )
    try:
        build_report(data, path)
    except OSError as error:
        complain(f"--html {path}: the report cannot be written: {error.strerror}")
        return False
    complain(f"report written to {path}")
    return True


def _whose(snapshot: Snapshot) -> str:
    """The cluster and its time; nobody knows when a file was written, only the newest thing that it tells of."""
    when = f"{snapshot.now:%Y-%m-%d %H:%M:%S} UTC"
    return f"the cluster as it was at {when}" if snapshot.live else f"the cluster in a file whose newest time is {when}"


def _outcome(made: Plan) -> int:
    if made.status != "infeasible":
        return 0
    first = made.unplaced[0] if made.unplaced else None
    why = f": {first.pod}: {first.reason}" if first is not None else ""
    complain(f"no plan places all pods that run now, {len(made.unplaced)} are left over{why}")
    return 1
