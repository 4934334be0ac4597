"""Report data from a plan and the cluster that it was made for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Literal, TypeAlias

from kinema_cli.report.data import Headline, NodeBox, PodBox, ReportData
from kinema_core.events import EMPTY, Amounts, Offer, Placement, Plan, PlanNode
from kinema_core.model.catalog import new_node_labels
from kinema_core.model.cluster import Cluster
from kinema_core.model.daemons import daemon_requests, is_resident
from kinema_core.model.match import parse_taints

Fate: TypeAlias = Literal["stay", "move", "restart", "schedule", "system"]
_ORDER: Final = {"keep": 0, "delete": 1, "boot": 2}


def plan_report(plan: Plan, cluster: Cluster, offers: Sequence[Offer], *, title: str, subtitle: str) -> ReportData:
    """Everything that a plan alone can show."""
    before, after = boxes_of(plan, cluster, offers)
    return ReportData(
        title=title,
        subtitle=subtitle,
        headline=headline_of(plan),
        before=before,
        after=after,
        held=held_by_code(plan),
        unplaced=tuple((item.pod, item.code, item.reason) for item in plan.unplaced),
        quarantined=tuple((item.object, item.path, item.reason) for item in plan.quarantined),
        facts=facts_of(plan),
    )


def headline_of(plan: Plan) -> Headline:
    """The figures on top."""
    strategies: dict[str, int] = {}
    for placement in plan.placements:
        if fate_of(placement) in ("move", "restart", "schedule"):
            strategies[placement.strategy] = strategies.get(placement.strategy, 0) + 1
    actions = [node.action for node in plan.nodes]
    return Headline(
        nodes_before=len(actions) - actions.count("boot"),
        nodes_after=len(actions) - actions.count("delete"),
        usd_before=plan.cost.before,
        usd_after=plan.cost.after,
        lower_bound=plan.cost.lower_bound,
        gap=plan.cost.gap,
        status=plan.status,
        moves=plan.moves,
        restarts=plan.restarts,
        strategies=strategies,
    )


def fate_of(placement: Placement) -> Fate:
    """What the plan does with a pod."""
    if placement.source is None:
        return "schedule"
    if placement.source != placement.to:
        return "move"
    return "restart" if placement.strategy == "rolling" else "stay"


def held_by_code(plan: Plan) -> tuple[tuple[str, str, int], ...]:
    """Code, an example, and how many pods the rule holds; the rule that holds most comes first."""
    found: dict[str, list[str]] = {}
    for item in plan.held:
        found.setdefault(item.code, []).append(f"{item.pod}: {item.reason}")
    rows = [(code, min(examples), len(examples)) for code, examples in found.items()]
    return tuple(sorted(rows, key=lambda row: (-row[2], row[0])))


def facts_of(plan: Plan) -> tuple[tuple[str, str], ...]:
    """How the plan was found."""
    solve = plan.solve
    first = "" if solve.first_feasible_seconds is None else f", first plan after {solve.first_feasible_seconds:.2f} s"
    stops = "; ".join(f"{stop.phase}: {stop.reason} at {stop.iteration}" for stop in solve.stops)
    rows = [
        ("status", plan.status),
        ("objective", plan.objective),
        ("method", solve.method),
        ("solved in", f"{solve.seconds:.2f} s{first}, seed {solve.seed}"),
        ("stops", stops),
        ("state version", str(plan.base_version)),
        *((name.replace("_", " "), f"{value:g}") for name, value in sorted(plan.figures.items())),
        *((f"cost of {item.constraint}", f"{item.usd_per_hour:.2f} USD/h") for item in plan.binding),
    ]
    return tuple((name, value) for name, value in rows if value)


def boxes_of(plan: Plan, cluster: Cluster, offers: Sequence[Offer]) -> tuple[tuple[NodeBox, ...], tuple[NodeBox, ...]]:
    """The nodes with their pods before the plan, and after it."""
    by_name = {offer.name: offer for offer in offers}
    ordered = sorted(plan.nodes, key=lambda node: (_ORDER[node.action], node.machine_type, node.name))
    before = _grouped(plan.placements, cluster, lambda placement: placement.source)
    after = _grouped(plan.placements, cluster, lambda placement: placement.to)
    return (
        tuple(_box(node, cluster, by_name, before) for node in ordered if node.action != "boot"),
        tuple(_box(node, cluster, by_name, after) for node in ordered if node.action != "delete"),
    )


def _grouped(
    placements: Iterable[Placement], cluster: Cluster, place: Callable[[Placement], str | None]
) -> Mapping[str, list[PodBox]]:
    found: dict[str, list[PodBox]] = {}
    for placement in placements:
        name = place(placement)
        if name is not None:
            found.setdefault(name, []).append(
                _pod(placement.pod, app_of(cluster, placement.pod), placement.requests, fate_of(placement))
            )
    return found


def app_of(cluster: Cluster, key: str) -> str:
    """A short name of the workload that a pod belongs to; the pod's own where there is none."""
    pod = cluster.pod(key)
    workload = cluster.controller_of(pod) if pod is not None else None
    namespace, _, name = key.partition("/")
    if workload is not None:
        name = workload.name
    elif pod is not None and pod.owner is not None:
        name = pod.owner.name
    # `teastore/teastore-db` says nothing that `db` does not.
    return name.removeprefix(f"{namespace}-")


def _pod(key: str, app: str, requests: Amounts, fate: Fate) -> PodBox:
    return PodBox(pod=key, app=app, cpu=requests.get("cpu", 0), memory=requests.get("memory", 0), fate=fate)


def _box(node: PlanNode, cluster: Cluster, offers: Mapping[str, Offer], pods: Mapping[str, list[PodBox]]) -> NodeBox:
    live = cluster.node(node.name)
    offer = offers.get(node.offer)
    mine = list(pods.get(node.name, []))
    if live is not None:
        room = live.allocatable
        mine += [
            _pod(pod.key, app_of(cluster, pod.key), pod.requests, "system")
            for pod in cluster.pods_by_node.get(node.name, ())
            if is_resident(cluster, pod)
        ]
    elif offer is not None:
        room = offer.allocatable
        taken = daemon_requests(
            cluster, name=node.name, labels=new_node_labels(offer, node.name), taints=parse_taints(offer.taints)
        )
        mine.append(_pod("daemon sets", "daemon sets", taken, "system"))
    else:
        room = EMPTY
    return NodeBox(
        name=node.name,
        machine_type=node.machine_type,
        zone=node.zone,
        usd_per_hour=node.usd_per_hour,
        action=node.action,
        cpu=room.get("cpu", 0) or sum(pod.cpu for pod in mine),
        memory=room.get("memory", 0) or sum(pod.memory for pod in mine),
        pods=tuple(mine),
    )
