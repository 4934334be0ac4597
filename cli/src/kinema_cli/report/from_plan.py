"""Report data from a plan and the cluster that it was made for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from kinema_cli.output import counted, listed
from kinema_cli.report.data import Headline, MachineRow, MoveRow, NodeBox, PodBox, ReportData
from kinema_cli.report.drawings import MOST_NODES
from kinema_cli.report.rules import rules_of
from kinema_core.events import EMPTY, Amounts, Offer, Placement, Plan, PlanNode, Resize
from kinema_core.model.catalog import new_node_labels
from kinema_core.model.cluster import Cluster
from kinema_core.model.daemons import daemon_requests, is_resident
from kinema_core.model.disruption_cost import ORDINARY, disruption_cost
from kinema_core.model.match import parse_taints
from kinema_core.model.pod_rules import MobilityOptions
from kinema_core.model.quantity import rounded_in_words
from kinema_core.model.resizing import disrupted

if TYPE_CHECKING:
    from kinema_optimizer.planning.frontier import FrontierPoint

Fate: TypeAlias = Literal["stay", "move", "restart", "resize", "schedule", "system"]
_MOST_RESIZES: Final = 3
"""Workloads that are named; the rest is counted."""
_ORDER: Final = {"keep": 0, "delete": 1, "boot": 2}
_CHANGES_FIRST: Final = {"delete": 0, "boot": 0, "keep": 1}


def fates_of(plan: Plan, cluster: Cluster) -> dict[str, Fate]:
    """Return what the plan does with its pods, by their keys."""
    replaced = {one.pod for one in disrupted(plan, cluster, MobilityOptions())}
    return {one.pod: _fate(one, is_replaced=one.pod in replaced) for one in plan.placements}


def _fate(placement: Placement, *, is_replaced: bool) -> Fate:
    if placement.source is None:
        return "schedule"
    if placement.source != placement.to:
        return "move"
    if is_replaced:
        return "restart"
    return "stay" if placement.strategy == "stay" else "resize"


def machines_of(plan: Plan) -> tuple[MachineRow, ...]:
    """Return the machines before and after, by type, zone, capacity type, price and whether they are committed."""
    kinds = Counter(
        (node.machine_type, node.zone, node.capacity_type, node.usd_per_hour, node.committed, node.action)
        for node in plan.nodes
    )
    rows = []
    for kind in sorted({key[:5] for key in kinds}):
        keep, boot, delete = (kinds[(*kind, action)] for action in ("keep", "boot", "delete"))
        rows.append(MachineRow(*kind, before=keep + delete, after=keep + boot))
    return tuple(rows)


def moves_of(plan: Plan, cluster: Cluster) -> tuple[MoveRow, ...]:
    """Return the pods that move, restart or get a place, by workload and strategy, those with most pods first."""
    fates = fates_of(plan, cluster)
    groups: dict[tuple[str, str], list[Placement]] = {}
    for placement in plan.placements:
        if fates[placement.pod] not in ("stay", "resize"):
            groups.setdefault((_workload(cluster, placement.pod), placement.strategy), []).append(placement)
    return tuple(
        MoveRow(
            workload=workload,
            namespace=placements[0].pod.partition("/")[0],
            pods=len(placements),
            strategy=strategy,
            sources=_counted_names(placement.source or "pending" for placement in placements),
            targets=_counted_names(placement.to for placement in placements),
            cost=_disruption_cost(cluster, placements),
        )
        for (workload, strategy), placements in sorted(groups.items(), key=lambda one: (-len(one[1]), one[0]))
    )


def _disruption_cost(cluster: Cluster, placements: Iterable[Placement]) -> str:
    pods = [pod for one in placements if one.source is not None and (pod := cluster.pod(one.pod)) is not None]
    costs = sorted({disruption_cost(cluster, pod) for pod in pods})
    shown = [f"{cost / ORDINARY:g}" for cost in (*costs[:1], *costs[1:][-1:])]
    return "" if costs == [ORDINARY] else " to ".join(shown)


def _workload(cluster: Cluster, key: str) -> str:
    """Return the workload's key; the pod's own where the cluster is not known, as for a plan from the log."""
    pod = cluster.pod(key)
    workload = None if pod is None else cluster.controller_of(pod)
    return key if not cluster.pods else f"Pod/{key}" if workload is None else workload.key


def _counted_names(names: Iterable[str]) -> str:
    counts = sorted(Counter(names).items())
    return listed([name if count == 1 else f"{name} ({count})" for name, count in counts])


def format_requests(plan: Plan, cluster: Cluster) -> tuple[tuple[str, str], ...]:
    """Return a heading and a line about the requests that a plan changes; the heading says where it costs more.

    Args:
        plan: has old and new requests of a pod of each workload.
        cluster: has the pods of workloads; of others the plan's pods are counted by their names.
    """
    if not plan.resizes:
        return ()
    pods = {one.workload: _resized_pods(one.workload, plan, cluster) for one in plan.resizes}
    changes = {one.workload: _change(one, pods[one.workload]) for one in plan.resizes}
    total, rises = Counter[str](), Counter[str]()
    for change in changes.values():
        total.update(change)
        rises.update({name: amount for name, amount in change.items() if amount > 0})

    def share(one: Resize) -> float:
        """Return the workload's part in what rises, of the resource of which that is most."""
        return max((amount / rises[name] for name, amount in changes[one.workload].items() if amount > 0), default=0.0)

    first = sorted(plan.resizes, key=lambda one: (-share(one), one.workload))
    named = "; ".join(_resize(one, pods[one.workload]) for one in first[:_MOST_RESIZES])
    more = f"; and {counted(len(first) - _MOST_RESIZES, 'workload')} more" if len(first) > _MOST_RESIZES else ""
    in_all = ", ".join(_signed(name, amount) for name, amount in sorted(total.items()) if amount) or "nothing"
    text = f"{in_all} in all: {named}{more}"
    dearer = plan.cost.after > plan.cost.before and any(amount > 0 for amount in total.values())
    return (("costs more", f"as requests rise, by {text}") if dearer else ("requests", f"change by {text}"),)


def _resized_pods(workload: str, plan: Plan, cluster: Cluster) -> int:
    """Return how many pods get the new requests; a Deployment's pods have its name as prefix."""
    known = sum(not pod.terminating for pod in cluster.pods_by_workload.get(workload, ()))
    _, _, deployment = workload.partition("/")
    return known or sum(one.pod.rsplit("-", 2)[0] == deployment for one in plan.placements)


def _change(one: Resize, pods: int) -> dict[str, int]:
    names = one.requests_before.keys() | one.requests_after.keys()
    return {name: (one.requests_after.get(name, 0) - one.requests_before.get(name, 0)) * pods for name in names}


def _resize(one: Resize, pods: int) -> str:
    before, after = one.requests_before, one.requests_after
    changed = [name for name in sorted(before.keys() | after.keys()) if before.get(name, 0) != after.get(name, 0)]
    amounts = ", ".join(
        f"{name} {rounded_in_words(name, before.get(name, 0))} → {rounded_in_words(name, after.get(name, 0))}"
        for name in changed
    )
    return f"{one.workload} {amounts} ({counted(pods, 'pod')})"


def _signed(name: str, amount: int) -> str:
    return f"{'+' if amount > 0 else '-'}{rounded_in_words(name, abs(amount))} {name}"


def plan_report(
    plan: Plan,
    cluster: Cluster,
    offers: Sequence[Offer],
    *,
    title: str,
    subtitle: str,
    warnings: Sequence[str] = (),
    frontier: Sequence[FrontierPoint] = (),
) -> ReportData:
    """Return everything that a plan alone can show."""
    before, after = boxes_of(plan, cluster, offers)
    return ReportData(
        title=title,
        subtitle=subtitle,
        headline=headline_of(plan, cluster),
        plan=plan,
        before=before,
        after=after,
        rules=rules_of(plan, cluster),
        warnings=tuple(warnings),
        machines=machines_of(plan),
        moves=moves_of(plan, cluster),
        frontier=tuple(frontier),
        facts=facts_of(plan, cluster),
    )


def headline_of(plan: Plan, cluster: Cluster) -> Headline:
    """Return the figures on top."""
    fates = fates_of(plan, cluster)
    strategies: dict[str, int] = {}
    for placement in plan.placements:
        if fates[placement.pod] in ("move", "restart", "schedule"):
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
    all_pods: dict[str, Counter[str]] = {name: Counter() for name in prices}
    new_pods: dict[str, Counter[str]] = {name: Counter() for name in prices}
    for placement in plan.placements:
        if placement.to in prices:
            all_pods[placement.to].update(placement.requests)
            new_pods[placement.to].update(placement.requests if placement.source is None else ())
    return round(sum(price * _part(new_pods[name], all_pods[name]) for name, price in prices.items()), 6)


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
    fates = fates_of(plan, cluster)
    was = _grouped(plan, cluster, fates, place=lambda placement: placement.source, drawn=first)
    will = _grouped(plan, cluster, fates, place=lambda placement: placement.to, drawn=first)
    return (
        tuple(_box(node, cluster, by_name, was, drawn=node.name in first) for node in before),
        tuple(_box(node, cluster, by_name, will, drawn=node.name in first) for node in after),
    )


def _grouped(
    plan: Plan,
    cluster: Cluster,
    fates: Mapping[str, Fate],
    *,
    place: Callable[[Placement], str | None],
    drawn: frozenset[str],
) -> Mapping[str, list[PodBox]]:
    found: dict[str, list[PodBox]] = {}
    for placement in plan.placements:
        name = place(placement)
        if name is not None and name in drawn:
            found.setdefault(name, []).append(
                _pod_box(placement.pod, app_of(cluster, placement.pod), placement.requests, fates[placement.pod])
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


def _pod_box(key: str, app: str, requests: Amounts, fate: Fate) -> PodBox:
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
            _pod_box(pod.key, app_of(cluster, pod.key), pod.requests, "system")
            for pod in cluster.pods_by_node.get(node.name, ())
            if is_resident(cluster, pod)
        ]
    elif offer is not None:
        room = offer.allocatable
        taken = daemon_requests(
            cluster, name=node.name, labels=new_node_labels(offer, node.name), taints=parse_taints(offer.taints)
        )
        mine.append(_pod_box("daemon sets", "daemon sets", taken, "system"))
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
