"""A plan adapted to the present state: what is gone is dropped, what is new is placed or named."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Final

import msgspec

from kinema_core.events import Cost, Node, Placement, Plan, PlanNode, Pod, Strategy, Unplaced
from kinema_core.model.catalog import machine_of
from kinema_core.model.cluster import Cluster
from kinema_core.model.mobility import MobilityOptions, listed
from kinema_core.model.resizing import restarted

_DEFAULTS: Final = MobilityOptions()


@dataclass(frozen=True)
class Drift:
    """Pods and nodes that came or went since the plan's own state (algorithms 1.5)."""

    pods_appeared: int
    pods_gone: int
    nodes_appeared: int
    nodes_gone: int
    base: int
    """Pods and nodes at the plan's state."""

    @property
    def changed(self) -> int:
        """Return how many pods and nodes came or went."""
        return self.pods_appeared + self.pods_gone + self.nodes_appeared + self.nodes_gone

    @property
    def lost(self) -> int:
        """Return how much of what the plan relied on is gone."""
        return self.pods_gone + self.nodes_gone


@dataclass(frozen=True)
class Adapted:
    """The plan on the present state."""

    plan: Plan
    drift: Drift
    stranded: tuple[str, ...]
    """New pods on nodes that the plan deletes, for which it has no place."""


def adapt(
    plan: Plan,
    cluster: Cluster,
    prices: Mapping[str, int],
    offer_prices: Mapping[str, int],
    options: MobilityOptions = _DEFAULTS,
) -> Adapted:
    """Adapt a plan to `cluster`.

    A pod that is new since the plan's state stays where it runs. If that is a node to be deleted, or if it is pending,
    it takes the place of a vanished pod of the same owner. The generated names of pods show which owner they have.

    Args:
        plan: as proposed.
        cluster: the state of now.
        prices: of every live node, in millionths of the unit of the plan's cost.
        offer_prices: the same of every offer that the plan boots.
        options: what the operator allows.
    """
    live = {pod.uid: pod for pod in listed(cluster)}
    nodes, deleted = _nodes(plan, cluster, prices)
    known = _listed_uids(plan)
    free = _vacancies(plan, live)
    placements = [_replaced(place, live[place.uid], deleted) for place in plan.placements if place.uid in live]
    unplaced = [item for item in plan.unplaced if item.uid in live and live[item.uid].node is None]
    stranded: list[str] = []
    newcomers = [pod for uid, pod in live.items() if uid not in known]
    newcomers += [live[item.uid] for item in plan.unplaced if item.uid in live and live[item.uid].node is not None]
    for pod in newcomers:
        place = _place_newcomer(pod, deleted, free)
        if place is not None:
            placements.append(place)
        elif pod.node is None:
            unplaced.append(Unplaced(pod=pod.key, uid=pod.uid, code="appeared", reason="came after the plan was made"))
        else:
            stranded.append(pod.key)
    rebuilt = _rebuilt(plan, nodes, placements, unplaced, prices, offer_prices)
    return Adapted(
        plan=msgspec.structs.replace(rebuilt, restarts=restarted(rebuilt, cluster, options)),
        drift=_drift(plan, cluster, live.keys(), known),
        stranded=tuple(stranded),
    )


def _listed_uids(plan: Plan) -> frozenset[str]:
    return frozenset([place.uid for place in plan.placements] + [item.uid for item in plan.unplaced])


def _drift(plan: Plan, cluster: Cluster, live: Set[str], pods: Set[str]) -> Drift:
    """Return what came and went between the pods of the plan and those that are live, both by uid."""
    nodes = {node.name for node in plan.nodes if node.action != "boot"}
    present = {node.name for node in cluster.nodes}
    return Drift(
        pods_appeared=len(live - pods),
        pods_gone=len(pods - live),
        nodes_appeared=len(present - nodes),
        nodes_gone=len(nodes - present),
        base=len(pods) + len(nodes),
    )


def _nodes(plan: Plan, cluster: Cluster, prices: Mapping[str, int]) -> tuple[list[PlanNode], frozenset[str]]:
    planned = {node.name for node in plan.nodes if node.action != "boot"}
    nodes = [node for node in plan.nodes if node.action == "boot" or cluster.node(node.name) is not None]
    nodes += [_kept(node, prices) for node in cluster.nodes if node.name not in planned]
    return nodes, frozenset(node.name for node in nodes if node.action == "delete")


def _kept(node: Node, prices: Mapping[str, int]) -> PlanNode:
    machine_type, zone, capacity_type = machine_of(node)
    return PlanNode(
        name=node.name,
        machine_type=machine_type,
        zone=zone,
        capacity_type=capacity_type,
        offer=f"{machine_type}/{zone}/{capacity_type}",
        usd_per_hour=round(prices[node.name] / 1e6, 6),
        action="keep",
    )


def _owner_of_name(pod_key: str) -> str:
    """Return the controller's part of a pod's name: `shop/cart-5d9f-x2x` → `shop/cart-5d9f`."""
    return pod_key.rpartition("-")[0]


def _vacancies(plan: Plan, live: Mapping[str, Pod]) -> dict[str, list[Placement]]:
    """Return the places of vanished pods by the name of their owner, in order."""
    free: dict[str, list[Placement]] = {}
    vanished = [place for place in plan.placements if place.uid not in live]
    for place in sorted(vanished, key=lambda place: (place.to, place.pod)):
        free.setdefault(_owner_of_name(place.pod), []).append(place)
    return free


def _replaced(place: Placement, pod: Pod, deleted: frozenset[str]) -> Placement:
    """Return the place of a pod that is still there; one that was pending and is bound now stays."""
    if pod.node == place.source:
        return place
    if pod.node in deleted:
        return _at(place, pod, to=place.to, strategy="surge")
    return _at(place, pod, to=pod.node or place.to, strategy="stay" if pod.node else "schedule")


def _at(place: Placement, pod: Pod, *, to: str, strategy: Strategy) -> Placement:
    return Placement(
        pod=pod.key, uid=pod.uid, source=pod.node, to=to, strategy=strategy, requests=place.requests or pod.requests
    )


def _place_newcomer(pod: Pod, deleted: frozenset[str], free: dict[str, list[Placement]]) -> Placement | None:
    """Return where a pod goes that the plan does not know; take its place out of `free`."""
    if pod.node is not None and pod.node not in deleted:
        return Placement(pod=pod.key, uid=pod.uid, source=pod.node, to=pod.node, strategy="stay", requests=pod.requests)
    vacancies = free.get(_owner_of_name(pod.key)) if pod.owner is not None else None
    if not vacancies:
        return None
    place = vacancies.pop(0)
    if pod.node is None:
        return _at(place, pod, to=place.to, strategy="schedule")
    return _at(place, pod, to=place.to, strategy=place.strategy if place.strategy != "stay" else "surge")


def _rebuilt(
    plan: Plan,
    nodes: list[PlanNode],
    placements: list[Placement],
    unplaced: list[Unplaced],
    prices: Mapping[str, int],
    offer_prices: Mapping[str, int],
) -> Plan:
    """Return the plan with these parts and its figures recounted."""
    before = sum(prices.values())
    after = sum(
        offer_prices[node.offer] if node.action == "boot" else prices[node.name]
        for node in nodes
        if node.action != "delete"
    )
    bound = min(plan.cost.lower_bound, after / 1e6)
    gap = (after / 1e6 - bound) / bound if bound else (0.0 if after == 0 else None)
    return msgspec.structs.replace(
        plan,
        cost=Cost(
            before=round(before / 1e6, 6), after=round(after / 1e6, 6), lower_bound=bound, gap=gap, unit=plan.cost.unit
        ),
        nodes=tuple(sorted(nodes, key=lambda node: node.name)),
        placements=tuple(sorted(placements, key=lambda place: place.pod)),
        unplaced=tuple(sorted(unplaced, key=lambda item: item.pod)),
        moves=sum(1 for place in placements if place.source is not None and place.source != place.to),
    )
