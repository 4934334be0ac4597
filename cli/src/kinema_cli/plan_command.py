"""`kinema plan`: the cheapest cluster for what runs now, without touching anything."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kinema_cli.output import Format, complain

if TYPE_CHECKING:
    from kinema_cli.snapshot import Snapshot
    from kinema_core.events import Offer, Plan
    from kinema_optimizer.settings import PlanningSettings


@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """What to plan for, and how to say it."""

    catalog: Path
    snapshot: Path | None = None
    context: str | None = None
    objective: str = "cost"
    time_limit: float = 30.0
    move_jobs: bool = False
    allow_spot: bool = False
    output: Format = Format.TABLE
    html: Path | None = None


class UsageError(Exception):
    """The command line asks for something that does not exist; the text says what does."""


class InputError(Exception):
    """A file cannot be used; the text names it, the place in it and what to do."""


def plan(  # noqa: PLR0913, PLR0917 - typer makes an option of each parameter
    catalog: Annotated[Path, typer.Option("--catalog", help="CSV of machine types with their prices.")],
    snapshot: Annotated[
        Path | None,
        typer.Option("--snapshot", help="What `kubectl get … -A -o json` printed; .gz and .zst too, - for a pipe."),
    ] = None,
    context: Annotated[
        str | None, typer.Option("--context", help="A live cluster, by its context in the kubeconfig.")
    ] = None,
    objective: Annotated[
        str, typer.Option("--objective", help="cost, or cost:60 for nodes filled to 60 percent at most.")
    ] = "cost",
    time_limit: Annotated[float, typer.Option("--time-limit", help="Seconds for the solver.")] = 30.0,
    move_jobs: Annotated[bool, typer.Option("--move-jobs", help="Pods of Jobs may be moved.")] = False,
    allow_spot: Annotated[bool, typer.Option("--allow-spot", help="Any pod may be put on spot machines.")] = False,
    output: Annotated[Format, typer.Option("--output", "-o", help="How to print the plan.")] = Format.TABLE,
    html: Annotated[Path | None, typer.Option("--html", help="Also write a report to this file.")] = None,
) -> None:
    """Show the cheapest cluster, what would move, what it saves, and what blocks more. Changes nothing."""
    options = PlanOptions(
        catalog=catalog,
        snapshot=snapshot,
        context=context,
        objective=objective,
        time_limit=time_limit,
        move_jobs=move_jobs,
        allow_spot=allow_spot,
        output=output,
        html=html,
    )
    raise typer.Exit(run_plan(options))


def run_plan(options: PlanOptions) -> int:
    """Plan and print; returns 0 for any plan, 1 when none fits or an input cannot be used, 2 for wrong arguments."""
    from kinema_core.model.catalog import PriceError
    from kinema_optimizer.errors import OptimizerError

    try:
        settings = planning_settings(options)
        found = _snapshot(options)
        offers = _offers(options.catalog, found)
        _say_what_is_left_out(found)
        made = _solve(found, offers, settings)
    except UsageError as error:
        complain(str(error))
        return 2
    except (InputError, PriceError, OptimizerError) as error:
        complain(str(error))
        return 1
    _print(made, found, options.output)
    if options.html is not None and not _write_html(made, found, offers, options.html):
        return 1
    return _outcome(made)


def planning_settings(options: PlanOptions) -> PlanningSettings:
    """The optimizer's settings for these options; raises UsageError."""
    from kinema_optimizer.logic.windows import Window
    from kinema_optimizer.settings import PlanningSettings

    name, _, ceiling = options.objective.partition(":")
    if name != "cost" or (ceiling and not (ceiling.isdecimal() and 1 <= int(ceiling) <= 100)):
        raise UsageError(f"--objective {options.objective!r} is none of: cost, cost:PERCENT with 1 to 100")
    if not 0 < options.time_limit < float("inf"):
        raise UsageError(f"--time-limit {options.time_limit:g}: give seconds above 0")
    # A window without hours holds all week.
    windows = (Window(max_utilisation_percent=int(ceiling)),) if ceiling else ()
    return PlanningSettings(
        time_limit_seconds=options.time_limit,
        windows=windows,
        move_jobs=options.move_jobs,
        allow_spot=options.allow_spot,
    )


def _snapshot(options: PlanOptions) -> Snapshot:
    from kinema_cli.snapshot import SnapshotError, load_snapshot

    try:
        if options.snapshot is not None and options.context is None:
            return load_snapshot(options.snapshot)
        if options.context is not None and options.snapshot is None:
            from kinema_cli.live import live_snapshot

            return live_snapshot(options.context)
    except SnapshotError as error:
        raise InputError(str(error)) from error
    raise UsageError("give either --snapshot FILE or --context NAME: for which cluster shall it plan?")


def _offers(path: Path, snapshot: Snapshot) -> tuple[Offer, ...]:
    from kinema_core.model.catalog import CatalogError, offers_from, parse_catalog

    try:
        return offers_from(parse_catalog(path.read_text(encoding="utf-8-sig")), snapshot.cluster)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is no text in UTF-8: {error.reason} at byte {error.start}") from error
    except CatalogError as error:
        raise InputError(f"{path}: {error}") from error


_EXPECTED: Final = {
    "pods": "Pod",
    "controllers (replicasets, deployments, …)": "Workload",
    "poddisruptionbudgets": "DisruptionBudget",
    "namespaces": "Namespace",
}
"""What a whole snapshot nearly always holds, and whose absence makes a plan bolder."""


def _say_what_is_left_out(snapshot: Snapshot) -> None:
    if snapshot.ignored:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(snapshot.ignored.items()))
        complain(f"not read, as planning needs none of them: {kinds}")
    absent = [name for name, kind in _EXPECTED.items() if not snapshot.cluster.objects.get(kind)]
    if absent and not snapshot.live:
        complain(f"none in the file: {', '.join(absent)}; if the cluster has any, their rules are missing in this plan")
    count = len(snapshot.cluster.quarantined)
    if count:
        complain(f"{count} objects could not be read; what they might forbid is taken as forbidden")


def _solve(snapshot: Snapshot, offers: tuple[Offer, ...], settings: PlanningSettings) -> Plan:
    from rich.console import Console

    from kinema_optimizer.planner import plan_for

    nodes, pods = len(snapshot.cluster.nodes), len(snapshot.cluster.pods)
    console = Console(stderr=True, highlight=False)
    said = f"planning for {nodes} nodes and {pods} pods, up to {settings.time_limit_seconds:g} s"
    if not console.is_terminal:
        console.print(said, markup=False, soft_wrap=True)
        return plan_for(snapshot.cluster, offers, now=snapshot.now, settings=settings)
    with console.status(said):
        return plan_for(snapshot.cluster, offers, now=snapshot.now, settings=settings)


def _print(made: Plan, snapshot: Snapshot, form: Format) -> None:
    from kinema_cli.output import console, printed
    from kinema_cli.plan_table import plan_tables

    if form is Format.TABLE:
        console().print(plan_tables(made, snapshot.cluster))
    else:
        printed(made, form)


def _write_html(made: Plan, snapshot: Snapshot, offers: tuple[Offer, ...], path: Path) -> bool:
    from kinema_cli.report.build import build_report
    from kinema_cli.report.from_plan import plan_report

    data = plan_report(
        made,
        snapshot.cluster,
        offers,
        title="Kinema: plan",
        subtitle=f"For the cluster as it was at {snapshot.now:%Y-%m-%d %H:%M:%S} UTC",
    )
    try:
        build_report(data, path)
    except OSError as error:
        complain(f"{path}: the report cannot be written: {error.strerror}")
        return False
    complain(f"report written to {path}")
    return True


def _outcome(made: Plan) -> int:
    if made.status != "infeasible":
        return 0
    first = made.unplaced[0] if made.unplaced else None
    why = f": {first.pod}: {first.reason}" if first is not None else ""
    complain(f"no plan places all pods that run now, {len(made.unplaced)} are left over{why}")
    return 1
