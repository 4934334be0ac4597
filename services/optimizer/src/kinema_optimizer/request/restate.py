"""Restatement of a question in nodes, pods and prices alone, and of its plan in the terms of the question.

`framed` turns room that is kept free and nodes that have to remain into placeholder pods. `in_watts` puts the watts of
a node in place of its price, because a plan for the least energy is one for the least cost of a cluster in which a node
costs its watts; `in_usd` puts prices back into the plan. Where pods wait and more are expected to follow, machines cost
less what those will use (`growth`), and the plan gets what they cost. The solver and the checker see the restated
cluster; what leaves the service names neither placeholders nor restated prices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import msgspec

from kinema_core.events import ClusterObject, FrozenMap, Node, Offer, Plan, PlanNode, Pod
from kinema_core.model.catalog import machine_of, node_prices, unpriced_nodes
from kinema_core.model.cluster import Cluster
from kinema_core.model.power import micro_watts, watts_by_type
from kinema_core.model.vocabulary import PRICE
from kinema_optimizer.request.growth import NO_GROWTH, Growth, less_what_follows
from kinema_optimizer.request.headroom import ROOM, USABLE, placeholders, with_placeholders, without_placeholders
from kinema_optimizer.request.limits import NodeLimit, breaches, capped, floor_pods, millicores_of
from kinema_optimizer.request.objective import MICRO, Objective
from kinema_optimizer.request.usable import UsableResources, fill_after, room_needed


@dataclass(frozen=True)
class Frame:
    """A cluster and what is on sale, as the solver is to see them."""

    cluster: Cluster
    offers: tuple[Offer, ...]
    objective: Objective
    usable: UsableResources | None
    limits: tuple[NodeLimit, ...]
    _cluster: Cluster
    _offers: tuple[Offer, ...]
    _prices: Mapping[str, int]
    """Of the offers in millionths of the objective's unit, where the solver sees less; else empty."""

    def read(self, plan: Plan) -> Plan:
        """Return the plan in terms of the cluster as it is."""
        if len(self.cluster.pods) > len(self._cluster.pods):
            plan = without_placeholders(plan)
        if self._prices:
            plan = _at_prices(plan, self._prices)
        if self.limits:
            millicores = millicores_of(self._cluster, self._offers)
            broken = {"limits_broken": float(len(breaches(self.limits, plan, millicores)))}
            plan = msgspec.structs.replace(plan, figures=FrozenMap({**plan.figures, **broken}))
        if self.usable is not None and plan.status != "infeasible":
            fill = fill_after(plan, self._cluster, self._offers, rule=self.usable)
            shares = {f"usable_{name}_percent": round(fill[name].percent, 2) for name in self.usable.max_percent}
            plan = msgspec.structs.replace(plan, figures=FrozenMap({**plan.figures, **shares}))
        return in_usd(plan, self._cluster, self._offers) if self.objective.kind == "energy" else plan


def framed(
    cluster: Cluster,
    offers: Sequence[Offer],
    objective: Objective,
    *,
    limits: Sequence[NodeLimit] = (),
    usable: UsableResources | None = None,
    left: Sequence[Pod] = (),
    growth: Growth = NO_GROWTH,
) -> Frame:
    """Restate; where money counts and nothing is kept free or limited, cluster and offers are the ones given.

    `left` are the placeholders for room that the plan is to leave, `growth` the pods that are expected to follow.

    Raises:
        PriceError: energy is to be saved, and machine types have no watts.
    """
    given = (cluster, tuple(offers))
    seen, on_sale = in_watts(*given) if objective.kind == "energy" else given
    prices: Mapping[str, int] = {}
    if growth.fraction:
        prices = {one.name: one.micro_usd_per_hour for one in on_sale}
        seen, on_sale = _keeping_prices(seen, on_sale), less_what_follows(seen, on_sale, growth)
    added = [*left]
    added += [
        pod
        for index, one in enumerate(objective.headroom)
        for pod in placeholders(f"{ROOM}{index}-", one.amounts, one.count)
    ]
    if usable is not None:
        added += placeholders(USABLE, *room_needed(cluster, usable))
    added += floor_pods(limits)
    return Frame(
        with_placeholders(seen, added),
        capped(limits, cluster, on_sale),
        objective,
        usable,
        tuple(limits),
        *given,
        prices,
    )


def _keeping_prices(cluster: Cluster, offers: Sequence[Offer]) -> Cluster:
    """Return the cluster in which every live node has its price by itself, whatever machines cost."""
    unknown = unpriced_nodes(cluster, offers)
    return _repriced(
        cluster, {name: price for name, price in node_prices(cluster, offers).items() if name not in unknown}
    )


def _at_prices(plan: Plan, prices: Mapping[str, int]) -> Plan:
    """Return the plan with what its new machines cost; the bound holds, as no price that the solver saw was higher."""

    def priced(node: PlanNode) -> PlanNode:
        if node.action != "boot":
            return node
        return msgspec.structs.replace(node, usd_per_hour=round(prices[node.offer] / MICRO, 6))

    nodes, temporary = tuple(map(priced, plan.nodes)), tuple(map(priced, plan.temporary))
    taken = sum(round(MICRO * one.usd_per_hour) for one in plan.nodes if one.action == "boot")
    more = sum(prices[one.offer] for one in plan.nodes if one.action == "boot") - taken
    cost, bound = round(plan.cost.after * MICRO) + more, round(plan.cost.lower_bound * MICRO)
    return msgspec.structs.replace(
        plan,
        nodes=nodes,
        temporary=temporary,
        status="feasible" if more and plan.status == "optimal" else plan.status,
        cost=msgspec.structs.replace(
            plan.cost,
            after=round(cost / MICRO, 6),
            gap=round((cost - bound) / bound, 6) if bound else plan.cost.gap,
        ),
        figures=FrozenMap({**plan.figures, **({"expected_to_be_used_usd_per_hour": more / MICRO} if more else {})}),
    )


def in_watts(cluster: Cluster, offers: Sequence[Offer]) -> tuple[Cluster, tuple[Offer, ...]]:
    """Return the cluster and what is on sale, priced in watts.

    Raises:
        PriceError: machine types on sale or in use have no watts; all of them are named.
    """
    by_type = watts_by_type(cluster, offers)
    restated = tuple(msgspec.structs.replace(one, micro_usd_per_hour=micro_watts(one)) for one in offers)
    return _repriced(cluster, {node.name: by_type[machine_of(node)[0]] for node in cluster.nodes}), restated


def _repriced(cluster: Cluster, prices: Mapping[str, int]) -> Cluster:
    """Return the cluster with these prices of nodes, in millionths."""
    nodes: dict[str, ClusterObject] = {
        node.name: _priced(node, prices[node.name]) if node.name in prices else node for node in cluster.nodes
    }
    objects: Mapping[str, Mapping[str, ClusterObject]] = MappingProxyType({**cluster.objects, "Node": nodes})
    return Cluster(version=cluster.version, objects=objects)


def _priced(node: Node, price: int) -> Node:
    whole, part = divmod(price, MICRO)
    return msgspec.structs.replace(node, annotations=FrozenMap({**node.annotations, PRICE: f"{whole}.{part:06d}"}))


def in_usd(plan: Plan, cluster: Cluster, offers: Sequence[Offer]) -> Plan:
    """Return the plan with what its nodes cost; `cost` stays in watts and says so, the figures have the money.

    What constraints cost is watts too, and goes to the figures.

    Raises:
        PriceError: no live node has a price.
    """
    live, on_sale = node_prices(cluster, offers), {offer.name: offer.micro_usd_per_hour for offer in offers}

    def priced(node: PlanNode) -> int:
        return on_sale[node.offer] if node.action == "boot" else live[node.name]

    after = sum(priced(node) for node in plan.nodes if node.action != "delete")
    watts = {f"watts of {item.constraint}": item.usd_per_hour for item in plan.constraint_costs}
    money = {
        "usd_per_hour_before": round(sum(live.values()) / MICRO, 6),
        "usd_per_hour_after": round(after / MICRO, 6),
    }
    replace = msgspec.structs.replace
    return replace(
        plan,
        nodes=tuple(replace(node, usd_per_hour=round(priced(node) / MICRO, 6)) for node in plan.nodes),
        temporary=tuple(replace(node, usd_per_hour=round(priced(node) / MICRO, 6)) for node in plan.temporary),
        cost=replace(plan.cost, unit="W"),
        constraint_costs=(),
        figures=FrozenMap({**plan.figures, **money, **watts}),
    )
