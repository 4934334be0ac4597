"""`kinema explain`: why a node stays and what that costs, why a pod is where it is or has no place."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kinema_cli.inputs import InputError, UsageError, offers_of, snapshot_of
from kinema_cli.options import AllowSpot, ContextName, LiveFile, MoveJobs, Output, SnapshotFile
from kinema_cli.output import Format, complain, counted

if TYPE_CHECKING:
    from kinema_cli.explain.table import Explanation
    from kinema_cli.snapshot.file import Snapshot
    from kinema_core.events import Offer, Pod, Quarantined
    from kinema_core.model.cluster import Cluster
    from kinema_core.model.mobility import MobilityOptions

NOTHING_FOUND = 3
NEAR = 5
"""Names that are offered instead of one that is not known."""


@dataclass(frozen=True, kw_only=True)
class ExplainOptions:
    """What to explain, of which cluster."""

    name: str
    catalog: Path | None = None
    snapshot: Path | None = None
    context: str | None = None
    kubeconfig: Path | None = None
    move_jobs: bool = False
    allow_spot: bool = False
    nats: str | None = None
    cluster: str = "local"
    output: Format = Format.TABLE


class UnknownNameError(Exception):
    """Nothing, or more than one thing, has the name; the text says what is near."""


def explain(  # noqa: PLR0913, PLR0917 - typer makes an option of each parameter
    name: Annotated[
        str,
        typer.Argument(metavar="NODE|POD|PLAN", help="A node, a pod as namespace/name, or with --nats a plan's id."),
    ],
    catalog: Annotated[Path | None, typer.Option("--catalog", help="CSV of machine types with their prices.")] = None,
    snapshot: SnapshotFile = None,
    context: ContextName = None,
    kubeconfig: LiveFile = None,
    move_jobs: MoveJobs = False,
    allow_spot: AllowSpot = False,
    nats: Annotated[
        str | None, typer.Option("--nats", help="Explain a plan of this broker's log: nats://user:password@host:port.")
    ] = None,
    cluster: Annotated[
        str, typer.Option("--cluster", envvar="KINEMA_CLUSTER", help="Whose log, with --nats.")
    ] = "local",
    output: Output = Format.TABLE,
) -> None:
    """Tell why a node stays and what that costs, or why a pod is where it is or has no place. Changes nothing."""
    options = ExplainOptions(
        name=name,
        catalog=catalog,
        snapshot=snapshot,
        context=context,
        kubeconfig=kubeconfig,
        move_jobs=move_jobs,
        allow_spot=allow_spot,
        nats=nats,
        cluster=cluster,
        output=output,
    )
    raise typer.Exit(run_explain(options))


def run_explain(options: ExplainOptions) -> int:
    """Explain and print; returns 0, 1 (an input cannot be used), 2 (wrong arguments) or 3 (nothing has that name)."""
    from kinema_cli.broker import AddressError
    from kinema_core.model.catalog import PriceError
    from kinema_core.runtime.bus import BusError

    try:
        if options.nats is not None:
            _tell_plan(options, options.nats)
        else:
            _tell_part(options)
    except (UsageError, AddressError) as error:
        complain(str(error))
        return 2
    except (InputError, PriceError, BusError) as error:
        complain(str(error))
        return 1
    except UnknownNameError as error:
        complain(str(error))
        return NOTHING_FOUND
    return 0


def _tell_plan(options: ExplainOptions, nats: str) -> None:
    from kinema_cli.explain.plan import explained_plan, plan_explanation_table
    from kinema_cli.output import console, printed

    if any(given is not None for given in (options.snapshot, options.context, options.kubeconfig)):
        raise UsageError("--nats is for a plan's id; --snapshot, --context and --kubeconfig are for nodes and pods")
    told = explained_plan(options.name, nats=nats, cluster=options.cluster)
    if told is None:
        raise UnknownNameError(f"no plan in the log of cluster {options.cluster!r} has the id {options.name!r}")
    if options.output is Format.TABLE:
        console().print(plan_explanation_table(told))
    else:
        printed(told, options.output)


def _tell_part(options: ExplainOptions) -> None:
    from kinema_cli.explain.table import explanation_table
    from kinema_cli.output import console, printed
    from kinema_core.model.mobility import MobilityOptions

    if options.catalog is None:
        raise UsageError(
            "give --catalog FILE with the prices, and --snapshot FILE, or a live cluster by --context or --kubeconfig; "
            "or --nats for a plan's id"
        )
    found = snapshot_of(options.snapshot, options.context, options.kubeconfig)
    offers = offers_of(options.catalog, found)
    may = MobilityOptions(move_jobs=options.move_jobs, allow_spot=options.allow_spot)
    told = _explained(options.name, found, offers, may=may)
    if options.output is Format.TABLE:
        console().print(explanation_table(told))
    else:
        printed(told, options.output)


def _explained(name: str, snapshot: Snapshot, offers: tuple[Offer, ...], *, may: MobilityOptions) -> Explanation:
    from msgspec.structs import replace

    from kinema_core.events import Pod, QuarantinedObject
    from kinema_optimizer.explain.explain import explain_node, explain_pod
    from kinema_optimizer.planning.unplaceable import with_waiting
    from kinema_optimizer.problem.compile import compiled
    from kinema_optimizer.problem.question import Question

    cluster = snapshot.cluster
    node = cluster.node(name)
    unread = None if node is not None else _unread(name, snapshot)
    if unread is not None:
        return QuarantinedObject(object=unread.object, path=unread.path, reason=unread.reason)
    named = _pod_named(name, snapshot) if node is None else node
    given = compiled(with_waiting(Question(cluster, offers, snapshot.now, "reschedule", options=may)))
    if not isinstance(named, Pod):
        return explain_node(given, named)
    told = explain_pod(given, named)
    return replace(told, caveat=_behind_a_plan(cluster)) if told.verdict == "placeable" else told


def _behind_a_plan(cluster: Cluster) -> str:
    """That a plan is being carried out, where nodes are marked for one: no other one begins before its end.

    What ended without cleaning up leaves marks too; whoever takes over goes on with that plan first.
    """
    from kinema_rescheduler.names import PLAN

    marked = [node for node in cluster.nodes if PLAN in node.annotations]
    if not marked:
        return ""
    plan, held = marked[0].annotations[PLAN], counted(len(marked), "node")
    return f"plan {plan} is being carried out, with {held} marked for it: a place for the pod is planned after its end"


def _unread(name: str, snapshot: Snapshot) -> Quarantined | None:
    """The object of that name that could not be read; its namespace may be left out where no pod has the name."""
    keys = [(item.object.partition(" ")[2], item) for item in snapshot.cluster.quarantined]
    exact = [item for key, item in keys if key == name]
    if exact or any(pod.name == name for pod in snapshot.cluster.pods):
        return exact[0] if exact else None
    return next((item for key, item in keys if key.rpartition("/")[2] == name), None)


def _pod_named(name: str, snapshot: Snapshot) -> Pod:
    """The pod that is meant; its namespace may be left out where that is clear."""
    import difflib

    cluster = snapshot.cluster
    exact = cluster.pod(name)
    same = [pod for pod in cluster.pods if pod.name == name] if exact is None else [exact]
    if len(same) == 1:
        return same[0]
    if same:
        keys = ", ".join(pod.key for pod in same[:NEAR])
        raise UnknownNameError(f"{len(same)} pods are named {name!r}: write one of {keys}")
    ended = sorted(key for key in snapshot.finished if name in (key, key.partition("/")[2]))
    if ended:
        raise UnknownNameError(
            f"pod {ended[0]} has ended (Succeeded or Failed): it has no place, and no plan counts it"
        )
    known = [*(node.name for node in cluster.nodes), *(pod.key for pod in cluster.pods)]
    near = [one for one in known if name in one][:NEAR] or difflib.get_close_matches(name, known, n=NEAR, cutoff=0.5)
    said = f": near are {', '.join(near)}" if near else ""
    raise UnknownNameError(f"no node and no pod is named {name!r}{said}")
