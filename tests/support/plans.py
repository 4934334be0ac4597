"""A plan written by hand for tests: says who goes where, fills in the rest truthfully."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Literal

import msgspec
from tests.support.builders import NOW

from kinema_core.events import (
    Amounts,
    Cost,
    FrozenMap,
    Held,
    Mode,
    Offer,
    Placement,
    Plan,
    PlanNode,
    Pod,
    QuarantinedObject,
    Resize,
    Solve,
    Strategy,
    Unplaced,
)
from kinema_core.model.catalog import machine_of, node_prices
from kinema_core.model.cluster import Cluster
from kinema_core.model.mobility import Mobility, MobilityOptions, listed, mobility
from kinema_core.model.resizing import restarted
from kinema_core.model.strategy import strategy_of


def plan_for(
    cluster: Cluster,
    offers: Iterable[Offer] = (),
    *,
    to: Mapping[str, str] | None = None,
    boot: Mapping[str, str] | None = None,
    delete: Iterable[str] = (),
    unplaced: Mapping[str, str] | None = None,
    resizes: Mapping[str, Mapping[str, int]] | None = None,
    status: Literal["optimal", "feasible", "nothing-better", "infeasible"] = "feasible",
    mode: Mode = "reschedule",
    lower_bound: int | None = None,
    now: datetime = NOW,
    options: MobilityOptions | None = None,
) -> Plan:
    """A plan over the cluster; every statement in it is true, but nobody asked whether it is allowed.

    Args:
        cluster: what it is for; whoever is not mentioned stays.
        offers: what is on sale, for prices.
        to: pod key → node.
        boot: new node's name → offer's name.
        delete: names of nodes to delete.
        unplaced: pending pod's key → code.
        resizes: workload key → new requests of each pod.
        status: the plan's status.
        mode: the plan's mode.
        lower_bound: micro-USD per hour; the cost after it by default.
        now: when it is made.
        options: what the operator allows.
    """
    on_sale = {offer.name: offer for offer in offers}
    rules = mobility(cluster, now, options or MobilityOptions())
    nodes = _nodes(cluster, on_sale, boot or {}, frozenset(delete))
    before = sum(node_prices(cluster, on_sale.values()).values())
    after = sum(round(node.usd_per_hour * 10**6) for node in nodes if node.action != "delete")
    placements = _placements(cluster, to or {}, unplaced or {}, resizes or {})
    plan = Plan(
        status=status,
        cost=_cost(before, after, after if lower_bound is None else lower_bound),
        nodes=nodes,
        placements=placements,
        unplaced=_unplaced(cluster, unplaced or {}),
        quarantined=tuple(
            QuarantinedObject(object=item.object, path=item.path, reason=item.reason) for item in cluster.quarantined
        ),
        held=_held(cluster, rules),
        moves=sum(item.source is not None and item.source != item.to for item in placements),
        restarts=0,
        solve=Solve(seconds=0.1, first_feasible_seconds=0.1, method="by hand", seed=0),
        mode=mode,
        base_version=cluster.version,
        resizes=tuple(_resize(cluster, key, FrozenMap(requests)) for key, requests in (resizes or {}).items()),
    )
    return msgspec.structs.replace(plan, restarts=restarted(plan, cluster, options or MobilityOptions()))


def bare_plan(*nodes: PlanNode, before: float = 2.0, after: float = 1.0, **more: Any) -> Plan:
    """A plan of no cluster, for streams and texts; `more` replaces its fields."""
    plan = Plan(
        status="feasible",
        cost=Cost(before=before, after=after, lower_bound=after, gap=0.0),
        nodes=nodes,
        placements=(),
        moves=0,
        restarts=0,
        solve=Solve(seconds=0.1, first_feasible_seconds=0.1, method="search", seed=0),
    )
    return msgspec.structs.replace(plan, **more)


def plan_node(
    name: str, action: Literal["keep", "boot", "delete"] = "keep", *, usd: float = 0.17, machine: str = "m4"
) -> PlanNode:
    """An on-demand node of a plan, in zone a."""
    return PlanNode(
        name=name,
        machine_type=machine,
        zone="a",
        capacity_type="on-demand",
        offer=f"{machine}/a/on-demand",
        usd_per_hour=usd,
        action=action,
    )


def _cost(before: int, after: int, bound: int) -> Cost:
    gap = (after - bound) / bound if bound else None if after else 0.0
    return Cost(before=before / 10**6, after=after / 10**6, lower_bound=bound / 10**6, gap=gap)


def _nodes(
    cluster: Cluster, offers: Mapping[str, Offer], boot: Mapping[str, str], delete: frozenset[str]
) -> tuple[PlanNode, ...]:
    prices = node_prices(cluster, offers.values())
    nodes = []
    for node in cluster.nodes:
        machine, zone, capacity_type = machine_of(node)
        nodes.append(
            PlanNode(
                name=node.name,
                machine_type=machine,
                zone=zone,
                capacity_type=capacity_type,
                offer=f"{machine}/{zone}/{capacity_type}",
                usd_per_hour=prices[node.name] / 10**6,
                action="delete" if node.name in delete else "keep",
            )
        )
    for name, offer_name in boot.items():
        offer = offers[offer_name]
        nodes.append(
            PlanNode(
                name=name,
                machine_type=offer.machine_type,
                zone=offer.zone,
                capacity_type=offer.capacity_type,
                offer=offer.name,
                usd_per_hour=offer.micro_usd_per_hour / 10**6,
                action="boot",
            )
        )
    return tuple(nodes)


def _placements(
    cluster: Cluster,
    to: Mapping[str, str],
    unplaced: Mapping[str, str],
    resizes: Mapping[str, Mapping[str, int]],
) -> tuple[Placement, ...]:
    moved = (pod for pod in listed(cluster) if pod.key in to and pod.node is not None)
    rolled = {workload_of(cluster, pod) for pod in moved if strategy_of(cluster, pod) == "rolling"} | resizes.keys()
    placements = []
    for pod in listed(cluster):
        target = to.get(pod.key, pod.node)
        if target is None or pod.key in unplaced:
            continue
        workload = workload_of(cluster, pod)
        placements.append(
            Placement(
                pod=pod.key,
                uid=pod.uid,
                source=pod.node,
                to=target,
                strategy=_strategy(cluster, pod, target, rolled=workload in rolled),
                requests=FrozenMap({**pod.requests, **resizes.get(workload, {})}),
            )
        )
    return tuple(placements)


def workload_of(cluster: Cluster, pod: Pod) -> str:
    """The key of the pod's workload; empty without one."""
    workload = cluster.controller_of(pod)
    return "" if workload is None else workload.key


def _strategy(cluster: Cluster, pod: Pod, target: str, *, rolled: bool) -> Strategy:
    if pod.node is None:
        return "schedule"
    if rolled:
        return "rolling"
    return "stay" if pod.node == target else strategy_of(cluster, pod)


def _unplaced(cluster: Cluster, unplaced: Mapping[str, str]) -> tuple[Unplaced, ...]:
    return tuple(
        Unplaced(pod=pod.key, uid=pod.uid, code=unplaced[pod.key], reason=f"because of {unplaced[pod.key]}")
        for pod in listed(cluster)
        if pod.key in unplaced
    )


def _held(cluster: Cluster, rules: Mobility) -> tuple[Held, ...]:
    bound = {pod.key for pod in listed(cluster) if pod.node is not None}
    return tuple(rules.held[key] for key in sorted(rules.held) if key in bound)


def _resize(cluster: Cluster, key: str, after: Amounts) -> Resize:
    workload = cluster.workload(key)
    assert workload is not None, f"no workload {key} to resize"
    before = FrozenMap({name: workload.template_requests.get(name, 0) for name in after})
    return Resize(workload=key, requests_before=before, requests_after=after)


# --- changing a plan


def place(plan: Plan, key: str, **changes: Any) -> Plan:
    """The plan with one placement changed."""
    changed = tuple(msgspec.structs.replace(item, **changes) if item.pod == key else item for item in plan.placements)
    return msgspec.structs.replace(plan, placements=changed)


def without(plan: Plan, key: str) -> Plan:
    """The plan without one placement."""
    return msgspec.structs.replace(plan, placements=tuple(item for item in plan.placements if item.pod != key))


def plus(plan: Plan, item: Placement) -> Plan:
    """The plan with one placement more."""
    return msgspec.structs.replace(plan, placements=(*plan.placements, item))


def describe(plan: Plan, which: str, **changes: Any) -> Plan:
    """The plan with one node changed."""
    changed = tuple(msgspec.structs.replace(item, **changes) if item.name == which else item for item in plan.nodes)
    return msgspec.structs.replace(plan, nodes=changed)


def cost(plan: Plan, **changes: Any) -> Plan:
    """The plan with its cost changed."""
    return msgspec.structs.replace(plan, cost=msgspec.structs.replace(plan.cost, **changes))


def change(plan: Plan, **changes: Any) -> Plan:
    """The plan with fields changed."""
    return msgspec.structs.replace(plan, **changes)


def first(plan: Plan, key: str) -> Placement:
    """A pod's placement."""
    return next(item for item in plan.placements if item.pod == key)


def leave(plan: Plan, key: str, **changes: Any) -> Plan:
    """The plan with a pod unplaced instead."""
    item = first(plan, key)
    left = Unplaced(**{"pod": key, "uid": item.uid, "code": "no-room", "reason": "no room", **changes})
    return change(without(plan, key), unplaced=(left,))
