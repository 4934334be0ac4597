"""Which rules keep money from being saved: pods that may not move, and the nodes that stay for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from kinema_cli.report.data import Blocked
from kinema_core.events import Plan
from kinema_core.model.cluster import Cluster

_NODE_RULE: Final = "node rule"
_ZONE_RULE: Final = "zone with a node that is not Ready"


@dataclass
class _Rule:
    pods: int = 0
    example: str = ""
    nodes: set[str] = field(default_factory=set)

    def add(self, example: str, node: str | None, *, pods: int) -> None:
        self.pods += pods
        self.example = min(example, self.example or example)
        if node is not None:
            self.nodes.add(node)


def blocked(
    plan: Plan, cluster: Cluster, deletable: Mapping[str, str | None] = MappingProxyType({})
) -> tuple[Blocked, ...]:
    """The rules behind the nodes that stay, named as in `constraint_costs` of the plan, dearest first.

    Args:
        plan: names the pods that may not move.
        cluster: tells where they are, where the plan does not.
        deletable: every node's reason to stay, or None; of a node without a held pod the reason is its own rule.
    """
    from kinema_optimizer.planning.ordering import last_beside  # loads the solvers, which printing alone does not need
    from kinema_optimizer.planning.rule_prices import class_of

    rules: dict[str, _Rule] = {}
    by_node: dict[str, set[str]] = {}
    sources = {place.pod: place.source for place in plan.placements}
    for item in plan.held:
        pod, rule = cluster.pod(item.pod), class_of(item.code)
        node = sources.get(item.pod) or (None if pod is None else pod.node)
        rules.setdefault(rule, _Rule()).add(f"{item.pod}: {item.reason}", node, pods=1)
        by_node.setdefault(node or "", set()).add(rule)
    for name in sorted(deletable):
        reason = deletable[name]
        if reason is not None and name not in by_node:
            rules.setdefault(_NODE_RULE, _Rule()).add(f"{name}: {reason}", name, pods=0)
            by_node[name] = {_NODE_RULE}
    for name, silent in last_beside(plan, cluster).items():
        if cluster.node(name) is not None and name not in by_node:
            why = f"node {silent} of its zone is not Ready and has pods, and this is the only one there that takes any"
            rules.setdefault(_ZONE_RULE, _Rule()).add(f"{name}: {why}", name, pods=0)
            by_node[name] = {_ZONE_RULE}
    price = {node.name: node.usd_per_hour for node in plan.nodes if node.action == "keep"}
    rows = [_row(name, rule, by_node=by_node, price=price) for name, rule in rules.items()]
    return tuple(sorted(rows, key=lambda row: (-row.usd_per_hour, -row.pods, row.rule)))


def _row(name: str, rule: _Rule, *, by_node: Mapping[str, set[str]], price: Mapping[str, float]) -> Blocked:
    nodes = sorted(rule.nodes & price.keys())
    alone = [node for node in nodes if by_node[node] == {name}]
    return Blocked(
        rule=name,
        example=rule.example,
        pods=rule.pods,
        nodes=len(nodes),
        alone=len(alone),
        usd_per_hour=round(sum(price[node] for node in alone), 6),
    )
