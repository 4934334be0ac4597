"""`kinema plan`: the cheapest set of nodes for what runs now; changes nothing."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from kinema_cli.inputs import (
    InputError,
    PriceChoice,
    UsageError,
    check_output,
    check_prices,
    check_whole,
    cluster_name,
    fail,
    input_warnings,
    labels_in,
    prices_of,
    scope_warnings,
    snapshot_of,
)
from kinema_cli.options import (
    AllowSpot,
    Catalog,
    Context,
    Discounts,
    Kubeconfig,
    MoreOffers,
    MoveJobs,
    Scope,
    Seed,
    SnapshotFile,
)
from kinema_cli.output import Format, counted, print_error, print_note, print_warning

if TYPE_CHECKING:
    from kinema_cli.snapshot.file import Snapshot
    from kinema_core.events import Offer, Plan
    from kinema_optimizer.planning.frontier import FrontierPoint
    from kinema_optimizer.request.objective import Window
    from kinema_optimizer.settings import PlanningSettings
    from kinema_optimizer.solvers.stopping import Deadline


TIME_LIMIT: Final = 30.0
"""Seconds for the whole command, by default."""
_READING_SHARE: Final = 0.1
"""Part of the default limit that reading may take, else the limit is longer. 150,000 pods are read in 9 s."""
_ABOUT_OUTPUT: Final = frozenset({"output", "html", "out", "began"})


class PlanFormat(StrEnum):
    """Form in which a plan is printed; `wide` lists every move."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"


class Objective(StrEnum):
    """Quantity to minimize."""

    COST = "cost"
    LEAST_COST = "least-cost"
    ENERGY = "energy"


@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """Options of `kinema plan`."""

    catalog: Path | None = None
    discounts: Path | None = None
    offer: str = ""
    snapshot: Path | None = None
    context: str = ""
    kubeconfig: Path | None = None
    namespace: str = ""
    objective: Objective = Objective.COST
    max_utilization: int = 100
    time_limit: float | None = None
    """Seconds; by default `TIME_LIMIT`, or more where reading takes long."""
    work: int | None = None
    move_jobs: bool = False
    allow_spot: bool = False
    spot_max_share: float | None = None
    spot_max_share_per_pool: float | None = None
    scope: tuple[str, ...] = ()
    move_price: float | None = None
    max_moves: int | None = None
    redundancy: bool = True
    headroom: int = 1
    seed: int = 0
    threads: int = 2
    output: PlanFormat = PlanFormat.TABLE
    html: Path | None = None
    out: Path | None = None
    began: float | None = None
    """`time.monotonic()` when the command began, from which the time limit counts; by default it begins now."""


def plan(  # noqa: PLR0913, PLR0917 - typer makes an option of each parameter
    command: typer.Context,
    catalog: Catalog = None,
    discounts: Discounts = None,
    offer: MoreOffers = "",
    snapshot: SnapshotFile = None,
    context: Context = "",
    kubeconfig: Kubeconfig = None,
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", metavar="NAME", help="List every move of this namespace's pods.")
    ] = "",
    objective: Annotated[
        Objective, typer.Option("--objective", metavar="NAME", help="Cost, least-cost (moves have no price) or energy.")
    ] = Objective.COST,
    max_utilization: Annotated[
        int,
        typer.Option("--max-utilization", metavar="PERCENT", min=1, max=100, help="Fill nodes to this share at most."),
    ] = 100,
    time_limit: Annotated[
        float | None,
        typer.Option(
            "--time-limit",
            metavar="SECONDS",
            help=f"Seconds for the whole command; {TIME_LIMIT:g} by default, more above some 50,000 pods.",
        ),
    ] = None,
    work: Annotated[
        int | None,
        typer.Option("--work", metavar="N", min=1, help="Stop after N iterations instead of by the clock; repeatable."),
    ] = None,
    move_jobs: MoveJobs = False,
    allow_spot: AllowSpot = False,
    spot_max_share: Annotated[
        float | None,
        typer.Option("--spot-max-share", metavar="SHARE", help="Largest share of a workload's pods on spot machines."),
    ] = None,
    spot_max_share_per_pool: Annotated[
        float | None,
        typer.Option(
            "--spot-max-share-per-pool",
            metavar="SHARE",
            help="The same for one spot pool: a machine type in a zone, whose machines are reclaimed together.",
        ),
    ] = None,
    scope: Scope = None,
    move_price: Annotated[
        float | None,
        typer.Option(
            "--move-price", metavar="AMOUNT", help="USD per hour (watts for energy) that each move must save."
        ),
    ] = None,
    max_moves: Annotated[
        int | None,
        typer.Option(
            "--max-moves",
            metavar="N",
            help="Maximum number of running pods to move; a pod moved via a staging node counts twice, pending pods "
            "do not count.",
        ),
    ] = None,
    redundancy: Annotated[
        bool,
        typer.Option(
            "--redundancy/--no-redundancy",
            help="Keep every workload on two nodes, and in as many zones as now, where it is so.",
        ),
    ] = True,
    headroom: Annotated[
        int,
        typer.Option(
            "--headroom",
            metavar="N",
            help="Leave room for N more of the largest pods in every zone, where there is that room now; 0: none.",
        ),
    ] = 1,
    seed: Seed = 0,
    threads: Annotated[int, typer.Option("--threads", metavar="N", help="Threads of the search.")] = 2,
    output: Annotated[
        PlanFormat, typer.Option("--output", "-o", metavar="FORMAT", help="table, wide (every move), json or yaml.")
    ] = PlanFormat.TABLE,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Also write an HTML report.")] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Also keep the plan, for `kinema diff` and `kinema approve`."),
    ] = None,
) -> None:
    """Show the cheapest set of nodes, what it saves, which pods would move, and which rules cost most.

    Read-only. The cluster is that of the current context, or a file (--snapshot).
    """
    options = PlanOptions(
        catalog=catalog,
        discounts=discounts,
        offer=offer,
        snapshot=snapshot,
        context=context,
        kubeconfig=kubeconfig,
        namespace=namespace,
        objective=objective,
        max_utilization=max_utilization,
        time_limit=time_limit,
        work=work,
        move_jobs=move_jobs,
        allow_spot=allow_spot,
        spot_max_share=spot_max_share,
        spot_max_share_per_pool=spot_max_share_per_pool,
        scope=tuple(scope or ()),
        move_price=move_price,
        max_moves=max_moves,
        redundancy=redundancy,
        headroom=headroom,
        seed=seed,
        threads=threads,
        output=output,
        html=html,
        out=out,
        began=command.obj,
    )
    raise typer.Exit(run_plan(options))


def run_plan(options: PlanOptions) -> int:
    """Plan and print; returns 0 for any plan, 1 when none fits or an input cannot be used, 2 for wrong arguments."""
    began = time.monotonic() if options.began is None else options.began
    from kinema_cli.plan.offer_gaps import catalog_warnings
    from kinema_core.model.catalog import PriceError
    from kinema_optimizer.errors import OptimizerError
    from kinema_optimizer.planning import planner  # noqa: F401 - its import is what takes long
    from kinema_optimizer.solvers.stopping import Deadline

    imports, computed = time.monotonic() - began, time.process_time()  # not the time in which an API server answers
    warnings: list[str] = []
    try:
        settings = planning_settings(options)
        check_output(options.html, "--html")
        check_output(options.out, "--out")
        found = snapshot_of(options.snapshot, options.context, options.kubeconfig)
        limit = options.time_limit or max(TIME_LIMIT, float(ceil((time.process_time() - computed) / _READING_SHARE)))
        check_whole(found)
        prices = prices_of(PriceChoice(options.catalog, options.discounts, options.offer), found)
        warnings += [
            *check_prices(found, prices),
            *prices.warnings,
            *input_warnings(found),
            *scope_warnings(options.scope, found),
            *catalog_warnings(found, prices.offers),
        ]
        end = options.work or Deadline(limit, began=began, imports=imports)
        if options.work is None:  # counted work repeats the plan byte for byte, whatever reading takes
            options = replace(options, time_limit=limit)
        made, frontier, wanted = _solve(found, prices.offers, settings, end)
        warnings += filter(None, [_search_warning(made, wanted)])
    except (UsageError, InputError, PriceError, OptimizerError) as error:
        print_warning(*warnings)
        return fail(error)
    shown = _Shown(made, found, prices.offers, prices.said, tuple(warnings), frontier)
    _print(shown, options, settings)
    if options.out is not None and not _keep(shown, options):
        return 1
    if options.html is not None and not _write_html(shown, options.html):
        return 1
    return _outcome(made)


@dataclass(frozen=True)
class _Shown:
    """A plan with what it was made from."""

    plan: Plan
    snapshot: Snapshot
    offers: tuple[Offer, ...]
    prices: str
    warnings: tuple[str, ...]
    frontier: tuple[FrontierPoint, ...]


def planning_settings(options: PlanOptions) -> PlanningSettings:
    """Return the optimizer's settings for these options; raises UsageError."""
    from kinema_core.model.spot_share import SpotShare
    from kinema_optimizer.settings import PlanningSettings

    if options.time_limit is not None and not 0 < options.time_limit < float("inf"):
        raise UsageError(f"--time-limit {options.time_limit:g}: give seconds above 0")
    windows = (_window(options),)
    try:
        return PlanningSettings(
            windows=windows,
            move_jobs=options.move_jobs,
            allow_spot=options.allow_spot,
            spot=SpotShare(max_share=options.spot_max_share, max_share_per_pool=options.spot_max_share_per_pool),
            scope=tuple(map(labels_in, options.scope)),
            max_moves_fraction=1.0,
            redundancy=options.redundancy,
            headroom=options.headroom,
            seed=options.seed,
            workers=options.threads,
        )
    except ValueError as error:
        text = f"--{error}".replace("--workers", "--threads").replace("--spot.max_share", "--spot-max-share")
        raise UsageError(text.replace("share_per_pool", "share-per-pool")) from error


def _window(options: PlanOptions) -> Window:
    """Return a window without hours: it holds all week."""
    from kinema_optimizer.request.objective import Window

    energy = options.objective is Objective.ENERGY
    try:
        return Window(
            objective=options.objective.value,
            max_utilization_percent=options.max_utilization,
            move_price_usd=None if energy else options.move_price,
            move_price_watts=options.move_price if energy else None,
            max_moves=options.max_moves,
        )
    except ValueError as error:
        text = str(error).replace("move_price_usd", "--move-price").replace("move_price_watts", "--move-price")
        raise UsageError(text.replace("max_moves", "--max-moves")) from error


def _solve(
    snapshot: Snapshot, offers: tuple[Offer, ...], settings: PlanningSettings, end: Deadline | int
) -> tuple[Plan, tuple[FrontierPoint, ...], float]:
    """Plan until the deadline, or for a number of iterations.

    Also returns what parts of the plan cost, and the seconds with which a search begins; 0 where no clock ends it.
    """
    from kinema_cli.plan.progress import solve_progress
    from kinema_optimizer.planning.planner import PRICING_SHARE, plan_for
    from kinema_optimizer.solvers.stopping import ClockStop, WorkStop

    nodes, pods = counted(len(snapshot.cluster.nodes), "node"), counted(len(snapshot.cluster.pods), "pod")
    limit = counted(end, "iteration") if isinstance(end, int) else f"{end.seconds:g}s"
    begin = f"planning for {nodes} and {pods}, up to {limit}"
    unit = "W" if settings.objective(snapshot.now).kind == "energy" else "USD/h"
    stop = WorkStop(end) if isinstance(end, int) else ClockStop(end, pricing=PRICING_SHARE)
    points: list[FrontierPoint] = []
    with solve_progress(begin, limit=limit, unit=unit) as progress:
        made = plan_for(
            snapshot.cluster,
            offers,
            now=snapshot.now,
            settings=settings,
            stop=stop,
            progress=progress,
            frontier=points.extend,
        )
    return made, tuple(points), stop.wanted if isinstance(stop, ClockStop) else 0.0


def _print(shown: _Shown, options: PlanOptions, settings: PlanningSettings) -> None:
    from kinema_cli.output import print_value, show

    if options.output in (PlanFormat.JSON, PlanFormat.YAML):
        print_warning(*shown.warnings)  # who reads a part of the value, as with jq, learns of them too
        print_value(_as_value(shown, options), Format(options.output.value))
        return
    from kinema_cli.plan.table import plan_tables
    from kinema_core.model.catalog import keeping_unpriced
    from kinema_core.model.mobility import mobility

    cluster = shown.snapshot.cluster
    may = mobility(cluster, shown.snapshot.now, settings.mobility)
    may = keeping_unpriced(may, cluster, shown.offers)
    show(
        *plan_tables(
            shown.plan,
            shown.snapshot.cluster,
            deletable=may.deletable,
            prices=shown.prices,
            cluster_time=_state_of(shown.snapshot),
            warnings=shown.warnings,
            frontier=shown.frontier,
            namespace=options.namespace,
            every_move=options.output is PlanFormat.WIDE or bool(options.namespace),
        )
    )


def _as_value(shown: _Shown, options: PlanOptions) -> dict[str, Any]:
    """Return the plan with its warnings, and with what it was made from; the same inputs give the same value."""
    import msgspec

    from kinema_cli.versions import versions

    value: dict[str, Any] = msgspec.to_builtins(shown.plan)
    value["figures"] = {
        name: int(figure) if float(figure).is_integer() else figure for name, figure in value["figures"].items()
    }
    live = options.snapshot is None
    given = {
        name: item for name, item in asdict(options).items() if name not in _ABOUT_OUTPUT and item not in (None, "")
    }
    return {
        **value,
        "frontier": [asdict(point) for point in shown.frontier],
        "warnings": list(shown.warnings),
        "metadata": {
            "versions": versions(),
            "cluster": cluster_name("", options.kubeconfig, options.context) if live else "",
            "cluster_time": shown.snapshot.now,
            "prices": shown.prices,
            "options": {name: str(item) if isinstance(item, Path) else item for name, item in given.items()},
        },
    }


def _keep(shown: _Shown, options: PlanOptions) -> bool:
    """Write the plan to the file of --out."""
    from kinema_cli.plan.plan_file import write_plan
    from kinema_core.model.resizing import changed_pods

    assert options.out is not None
    try:
        write_plan(options.out, _as_value(shown, options))
    except InputError as error:
        print_error(str(error))
        return False
    plan = shown.plan
    idle = not (changed_pods(plan) or any(node.action != "keep" for node in plan.nodes))
    what = "it changes nothing" if idle else f"`kinema approve {options.out}` has it executed"
    print_note(f"plan written to {options.out}; {what}")
    return True


def _write_html(shown: _Shown, path: Path) -> bool:
    from kinema_cli.report.build import build_report
    from kinema_cli.report.from_plan import plan_report

    data = plan_report(
        shown.plan,
        shown.snapshot.cluster,
        shown.offers,
        title="Kinema plan",
        subtitle=f"{_state_of(shown.snapshot)}; prices: {shown.prices or 'undated'}",
        warnings=shown.warnings,
        frontier=shown.frontier,
    )
    try:
        build_report(data, path)
    except OSError as error:
        print_error(f"--html {path}: the report cannot be written: {error.strerror}")
        return False
    print_note(f"report written to {path}")
    return True


def _state_of(snapshot: Snapshot) -> str:
    """Return which state of the cluster it is; of a file only the newest time in it is known."""
    return f"{'cluster' if snapshot.live else 'snapshot'} of {snapshot.now:%Y-%m-%d %H:%M:%S} UTC"


def _search_warning(made: Plan, wanted: float) -> str:
    """Return why no search was made, empty where one was; `wanted`: seconds with which it would have begun."""
    from kinema_optimizer.planning.portfolio import WITHOUT_SEARCH
    from kinema_optimizer.solvers.stopping import KERNELS

    if made.solve.method not in WITHOUT_SEARCH:
        return ""
    if any(stop.phase.startswith(f"{KERNELS}-") for stop in made.solve.stops):
        compile_them = "compile them once with `python -m kinema_optimizer.search.kernels`"
        return f"no search was made: its kernels are not compiled; {compile_them}, or give a longer --time-limit"
    return f"no search was made: reading the input took up the time; give --time-limit {ceil(wanted)} or longer"


def _outcome(made: Plan) -> int:
    if made.status != "infeasible":
        return 0
    first = made.unplaced[0] if made.unplaced else None
    why = f": {first.pod}: {first.reason}" if first is not None else ""
    print_error(f"no plan places all pods that run now; {counted(len(made.unplaced), 'pod')} left over{why}")
    return 1
