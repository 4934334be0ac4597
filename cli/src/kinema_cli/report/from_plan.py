"""Report data from a plan and the cluster that it was made for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from kinema_cli.report.boxes import MOST_NODES
from kinema_cli.report.data import Headline, NodeBox, PodBox, ReportData
from kinema_cli.report.moves import Fate, fate_of, machines_of, moves_of
from kinema_cli.report.resizes import format_requests
from kinema_cli.report.rules import rules_of
from kinema_core.events import EMPTY, Amounts, Offer, Placement, Plan, PlanNode
from kinema_core.model.catalog import new_node_labels
from kinema_core.model.cluster import Cluster
from kinema_core.model.daemons import daemon_requests, is_resident
from kinema_core.model.match import parse_taints

_ORDER: Final = {"keep": 0, "delete": 1, "boot": 2}
_CHANGES_FIRST: Final = {"delete": 0, "boot": 0, "keep": 1}


def plan_report(
    plan: Plan, cluster: Cluster, offers: Sequence[Offer], *, title: str, subtitle: str, warnings: Sequence[str] = ()
) -> ReportData:
    """Return everything that a plan alone can show."""
    before, after = boxes_of(plan, cluster, offers)
    return ReportData(
        title=title,
        subtitle=subtitle,
        headline=headline_of(plan),
        before=before,
        after=after,
        rules=rules_of(plan, cluster),
        warnings=tuple(warnings),
        machines=machines_of(plan),
        moves=moves_of(plan, cluster),
        unplaced=tuple((item.pod, item.code, item.reason) for item in plan.unplaced),
        quarantined=tuple((item.object, item.path, item.reason) for item in plan.quarantined),
        violated_preferences=tuple(
            (one.workload, one.preference, one.weight, one.pods) for one in plan.violated_preferences
        ),
        redundancy_loss=tuple((one.workload, one.pods, one.nodes_before, one.node) for one in plan.redundancy_loss),
        facts=facts_of(plan, cluster),
    )


def headline_of(plan: Plan) -> Headline:
    """Return the figures on top."""
    strategies: dict[str, int] = {}
    for placement in plan.placements:
        if fate_of(placement) in ("move", "restart", "schedule"):
            strategies[placement.strategy] = strategies.get(placement.strategy, 0) + 1
    actions = [node.action for node in plan.nodes]
    watts = (plan.cost.before, plan.cost.after) if plan.cost.unit == "W" else None
    before, after = (plan.cost.before, plan.cost.after) if watts is None else _money(plan)
    return Headline(
        nodes_before=len(actions) - actions.count("boot"),
        nodes_after=len(actions) - actions.count("delete"),
        usd_before=before,
        usd_after=after,
        lower_bound=plan.cost.lower_bound,
        gap=plan.cost.gap,
        status=plan.status,
        moves=plan.moves,
        restarts=plan.restarts,
        strategies=strategies,
        watts=watts,
        usd_waiting=_waiting(plan),
        still=bool(plan.figures.get("bound_without_moves")),
        beside=_beside_the_bound(plan),
    )


def _beside_the_bound(plan: Plan) -> str:
    """Return what limits a plan and not its bound, by how the plan names its objective."""
    if plan.figures.get("bound_without_moves"):
        return ""
    named = plan.objective.split(", ")
    limited = any(one.startswith("at most ") and one.endswith((" move", " moves")) for one in named)
    priced = any(one.endswith(" per move") for one in named)
    return " and ".join(["the limit on moves"] * limited + ["the price of moves"] * priced)


def _waiting(plan: Plan) -> float:
    """Return what new machines cost for pods that wait now: by their part of the CPU and memory requested there."""
    prices = {node.name: node.usd_per_hour for node in plan.nodes if node.action == "boot"}
    everybody: dict[str, Counter[str]] = {name: Counter() for name in prices}
    newcomers: dict[str, Counter[str]] = {name: Counter() for name in prices}
    for placement in plan.placements:
        if placement.to in prices:
            everybody[placement.to].update(placement.requests)
            newcomers[placement.to].update(placement.requests if placement.source is None else ())
    return round(sum(price * _part(newcomers[name], everybody[name]) for name, price in prices.items()), 6)


def _part(some: Counter[str], every: Counter[str]) -> float:
    """Return the mean share of CPU and memory; the share of pods where none requests either."""
    counted = [name for name in ("cpu", "memory") if every[name]] or [name for name in ("pods",) if every[name]]
    return sum(some[name] / every[name] for name in counted) / len(counted) if counted else 0.0


def _money(plan: Plan) -> tuple[float, float]:
    """Return USD per hour before and after of a plan that counts watts."""
    before = sum(node.usd_per_hour for node in plan.nodes if node.action != "boot")
    return round(before, 6), round(sum(node.usd_per_hour for node in plan.nodes if node.action != "delete"), 6)


def facts_of(plan: Plan, cluster: Cluster) -> tuple[tuple[str, str], ...]:
    """Return what the plan does to requests, and details of the solve."""
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
    ]
    return (*format_requests(plan, cluster), *((name, value) for name, value in rows if value))


def boxes_of(plan: Plan, cluster: Cluster, offers: Sequence[Offer]) -> tuple[tuple[NodeBox, ...], tuple[NodeBox, ...]]:
    """Return the nodes with their pods before the plan, and after it.

    Where there are more than a picture shows, those that go and come are first, and the others have no pods.
    """
    by_name = {offer.name: offer for offer in offers}
    order = _ORDER if len(plan.nodes) <= MOST_NODES else _CHANGES_FIRST
    ordered = sorted(plan.nodes, key=lambda node: (order[node.action], node.machine_type, node.name))
    before = [node for node in ordered if node.action != "boot"]
    after = [node for node in ordered if node.action != "delete"]
    first = frozenset(node.name for node in (*before[:MOST_NODES], *after[:MOST_NODES]))
    was = _grouped(plan.placements, cluster, place=lambda placement: placement.source, drawn=first)
    will = _grouped(plan.placements, cluster, place=lambda placement: placement.to, drawn=first)
    return (
        tuple(_box(node, cluster, by_name, was, drawn=node.name in first) for node in before),
        tuple(_box(node, cluster, by_name, will, drawn=node.name in first) for node in after),
    )


def _grouped(
    placements: Iterable[Placement],
    cluster: Cluster,
    *,
    place: Callable[[Placement], str | None],
    drawn: frozenset[str],
) -> Mapping[str, list[PodBox]]:
    found: dict[str, list[PodBox]] = {}
    for placement in placements:
        name = place(placement)
        if name is not None and name in drawn:
            found.setdefault(name, []).append(
                _pod(placement.pod, app_of(cluster, placement.pod), placement.requests, fate_of(placement))
            )
    return found


def app_of(cluster: Cluster, key: str) -> str:
    """Return a short name of the workload that a pod belongs to; the pod's own where there is none."""
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


def _box(
    node: PlanNode, cluster: Cluster, offers: Mapping[str, Offer], pods: Mapping[str, list[PodBox]], *, drawn: bool
) -> NodeBox:
    live = cluster.node(node.name)
    offer = offers.get(node.offer)
    mine = list(pods.get(node.name, []))
    if not drawn:
        room = EMPTY
    elif live is not None:
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
