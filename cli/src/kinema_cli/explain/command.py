"""`kinema explain`: why a node stays and what that costs, why a pod is where it is or has no place."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kinema_cli.inputs import (
    MOST_NAMES,
    InputError,
    PriceChoice,
    UsageError,
    check_prices,
    fail,
    labels_in,
    near_names,
    prices_of,
    scope_warnings,
    snapshot_of,
)
from kinema_cli.options import (
    BROKER,
    AllowSpot,
    Catalog,
    ClusterName,
    Context,
    Kubeconfig,
    MoveJobs,
    Namespace,
    Nats,
    Output,
    Scope,
    SnapshotFile,
)
from kinema_cli.output import Format, counted, print_error, print_warning
from kinema_cli.status.plan_ids import UnknownPlanError, is_plan_id

if TYPE_CHECKING:
    from kinema_cli.explain.table import Explanation
    from kinema_cli.snapshot.file import Snapshot
    from kinema_core.events import Offer, Pod, Quarantined
    from kinema_core.model.cluster import Cluster
    from kinema_core.model.mobility import MobilityOptions
    from kinema_optimizer.explain.explain import PodExplanation
    from kinema_optimizer.problem.compile import Compiled

NOTHING_FOUND = 3
_KINDS: Final = {
    "node": ("no", "node", "nodes"),
    "pod": ("po", "pod", "pods"),
    "plan": ("plan", "plans"),
    "Deployment": ("deploy", "deployment", "deployments"),
    "StatefulSet": ("sts", "statefulset", "statefulsets"),
    "DaemonSet": ("ds", "daemonset", "daemonsets"),
    "ReplicaSet": ("rs", "replicaset", "replicasets"),
    "Job": ("job", "jobs"),
}
"""Kind → its names before the slash of `TYPE/NAME`, as kubectl has them."""


@dataclass(frozen=True, kw_only=True)
class ExplainOptions:
    """Subject of an explanation, and its cluster."""

    name: str
    namespace: str = ""
    catalog: Path | None = None
    snapshot: Path | None = None
    context: str = ""
    kubeconfig: Path | None = None
    move_jobs: bool = False
    allow_spot: bool = False
    scope: tuple[str, ...] = ()
    nats: str = BROKER
    cluster: str = ""
    output: Format = Format.TABLE


class UnknownNameError(Exception):
    """Nothing, or more than one thing, has the name; the text suggests similar ones."""


def explain(  # noqa: PLR0913, PLR0917 - typer makes an option of each parameter
    name: Annotated[
        str,
        typer.Argument(
            metavar="TYPE/NAME",
            help="node/NAME, pod/NAME, deploy/NAME or plan/ID; without a type a node, a pod or a plan.",
        ),
    ],
    namespace: Namespace = "",
    catalog: Catalog = None,
    snapshot: SnapshotFile = None,
    context: Context = "",
    kubeconfig: Kubeconfig = None,
    move_jobs: MoveJobs = False,
    allow_spot: AllowSpot = False,
    scope: Scope = None,
    nats: Nats = BROKER,
    cluster: ClusterName = "",
    output: Output = Format.TABLE,
) -> None:
    """Explain why a node stays and what that costs, why a pod is where it is, or what a plan proposed. Read-only.

    Plans are read from the broker (--nats), all else from the cluster or a snapshot.
    """
    options = ExplainOptions(
        name=name,
        namespace=namespace,
        catalog=catalog,
        snapshot=snapshot,
        context=context,
        kubeconfig=kubeconfig,
        move_jobs=move_jobs,
        allow_spot=allow_spot,
        scope=tuple(scope or ()),
        nats=nats,
        cluster=cluster,
        output=output,
    )
    raise typer.Exit(run_explain(options))


def run_explain(options: ExplainOptions) -> int:
    """Explain and print; returns 0, 1 (an input cannot be used), 2 (wrong arguments) or 3 (nothing has that name)."""
    from kinema_core.model.catalog import PriceError
    from kinema_core.runtime.bus import BusError

    try:
        kind, name = _parsed(options.name)
        if kind == "plan":
            _explain_plan(options, name)
        else:
            _explain_part(options, kind, name)
    except (UsageError, InputError, PriceError, BusError) as error:
        return fail(error)
    except (UnknownNameError, UnknownPlanError) as error:
        print_error(str(error))
        return NOTHING_FOUND
    return 0


def _parsed(given: str) -> tuple[str, str]:
    """Return kind and name of `TYPE/NAME`; an empty kind where it is a node or a pod."""
    start, slash, rest = given.partition("/")
    kind = next((kind for kind, names in _KINDS.items() if start in names), "") if slash else ""
    if kind:
        return kind, rest
    return ("plan", given) if is_plan_id(given) else ("", given)


def _explain_plan(options: ExplainOptions, name: str) -> None:
    from kinema_cli.explain.plan import explained_plan, plan_explanation
    from kinema_cli.output import emit

    if options.snapshot is not None:
        raise UsageError("a plan is explained from the broker's log; --snapshot is for nodes and pods")
    found = explained_plan(name, nats=options.nats, cluster=options.cluster)
    emit(found, options.output, lambda: plan_explanation(found))


def _explain_part(options: ExplainOptions, kind: str, name: str) -> None:
    from kinema_cli.explain.table import explanation_table
    from kinema_cli.output import emit
    from kinema_core.events import FrozenMap
    from kinema_core.model.mobility import MobilityOptions

    scope = tuple(FrozenMap(labels_in(text)) for text in options.scope)
    found = snapshot_of(options.snapshot, options.context, options.kubeconfig)
    prices = prices_of(PriceChoice(options.catalog), found)
    print_warning(*check_prices(found, prices), *scope_warnings(options.scope, found))
    may = MobilityOptions(move_jobs=options.move_jobs, allow_spot=options.allow_spot, scope=scope)
    names = (kind, f"{options.namespace}/{name}" if options.namespace and "/" not in name else name)
    explanation = _explained(names, found, prices.offers, may=may)
    emit(explanation, options.output, lambda: explanation_table(explanation))


def _explained(
    names: tuple[str, str], snapshot: Snapshot, offers: tuple[Offer, ...], *, may: MobilityOptions
) -> Explanation:
    from kinema_cli.explain.table import WorkloadExplanation
    from kinema_core.events import QuarantinedObject
    from kinema_optimizer.explain.explain import explain_node
    from kinema_optimizer.planning.task import with_unplaceable
    from kinema_optimizer.problem.compile import compiled
    from kinema_optimizer.problem.question import Question

    kind, name = names
    cluster = snapshot.cluster
    node = cluster.node(name) if kind in ("", "node") else None
    unread = None if node is not None else _unread(name, snapshot)
    if unread is not None:
        return QuarantinedObject(object=unread.object, path=unread.path, reason=unread.reason)
    pods = () if node is not None else _pods_named(kind, name, snapshot)
    given = compiled(with_unplaceable(Question(cluster, offers, snapshot.now, "reschedule", options=may)))
    if node is not None:
        return explain_node(given, node)
    if kind in ("", "pod"):
        return _explained_pod(given, pods[0])
    return WorkloadExplanation(name=f"{kind}/{name}", pods=tuple(_explained_pod(given, pod) for pod in pods))


def _explained_pod(given: Compiled, pod: Pod) -> PodExplanation:
    from msgspec.structs import replace

    from kinema_optimizer.explain.explain import explain_pod

    found = explain_pod(given, pod)
    return replace(found, caveat=_running_plan(given.question.cluster)) if found.verdict == "placeable" else found


def _running_plan(cluster: Cluster) -> str:
    """Return that a plan is running, where nodes have its markers: no other plan begins before its end.

    A plan that was interrupted leaves markers too; it is continued first.
    """
    from kinema_rescheduler.names import PLAN

    marked = [node for node in cluster.nodes if PLAN in node.annotations]
    if not marked:
        return ""
    plan, nodes = marked[0].annotations[PLAN], counted(len(marked), "node")
    return f"plan {plan} is running, with {nodes} marked for it; the pod is placed after its end"


def _unread(name: str, snapshot: Snapshot) -> Quarantined | None:
    """Return the unreadable object of that name; its namespace may be left out where no pod has the name."""
    keys = [(item.object.partition(" ")[2], item) for item in snapshot.cluster.quarantined]
    exact = [item for key, item in keys if key == name]
    if exact or any(pod.name == name for pod in snapshot.cluster.pods):
        return exact[0] if exact else None
    return next((item for key, item in keys if key.rpartition("/")[2] == name), None)


def _pods_named(kind: str, name: str, snapshot: Snapshot) -> tuple[Pod, ...]:
    """Return the pod, or the pods of the workload; the namespace may be left out where that is clear."""
    cluster = snapshot.cluster
    if kind in ("", "pod"):
        return (_pod_named(name, snapshot),)
    known = [] if kind == "node" else [item for item in cluster.workloads if item.key.startswith(f"{kind}/")]
    found = [item for item in known if name in (item.name, f"{item.namespace}/{item.name}")]
    if len(found) == 1:
        return tuple(sorted(cluster.pods_by_workload.get(found[0].key, ()), key=lambda pod: pod.key))
    if found:
        namespaces = ", ".join(item.namespace for item in found)
        raise UnknownNameError(f"{len(found)} workloads are named {name!r}; give -n, one of {namespaces}")
    every = [node.name for node in cluster.nodes] if kind == "node" else sorted({item.name for item in known})
    raise UnknownNameError(f"no {kind} is named {name!r}{near_names(name.rpartition('/')[2], every)}")


def _pod_named(name: str, snapshot: Snapshot) -> Pod:
    cluster = snapshot.cluster
    exact = cluster.pod(name)
    same = [pod for pod in cluster.pods if pod.name == name] if exact is None else [exact]
    if len(same) == 1:
        return same[0]
    if same:
        keys = ", ".join(pod.key for pod in same[:MOST_NAMES])
        raise UnknownNameError(f"{len(same)} pods are named {name!r}: write one of {keys}")
    ended = sorted(key for key in snapshot.finished if name in (key, key.partition("/")[2]))
    if ended:
        raise UnknownNameError(f"pod {ended[0]} has ended (Succeeded or Failed); no plan counts it")
    known = [item.key for item in cluster.workloads]
    known += [*(node.name for node in cluster.nodes), *(pod.key for pod in cluster.pods)]
    start, slash, _ = name.partition("/")
    if slash and start not in {pod.namespace for pod in cluster.pods}:
        types = ", ".join(names[0] if len(names[0]) > 2 else names[1] for names in _KINDS.values())
        raise UnknownNameError(f"{start!r} in {name!r} is neither a type ({types}) nor a namespace with pods")
    raise UnknownNameError(f"no node and no pod is named {name!r}{near_names(name, known)}")
