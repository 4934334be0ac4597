"""Rules that keep money from being saved: what lifting each saves, and the pods and nodes that it keeps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from kinema_cli.report.data import Rule
from kinema_core.events import Plan
from kinema_core.model.cluster import Cluster

_NODE_RULE: Final = "node rule"
_ZONE_RULE: Final = "zone with a node that is not Ready"
_GROUPS: Final = {"pdb": "pdb *", "limit": "limit *", "node": "node annotations"}
"""First word of the name of a single rule → the class that contains it."""
_TITLES: Final = {"pdb *": "disruption budgets (all)", "limit *": "offer limits (all)"}


@dataclass
class _Kept:
    pods: int = 0
    example: str = ""
    nodes: set[str] = field(default_factory=set)

    def add(self, example: str, node: str | None, *, pods: int) -> None:
        self.pods += pods
        self.example = min(example, self.example or example)
        if node is not None:
            self.nodes.add(node)


def rules_of(
    plan: Plan, cluster: Cluster, deletable: Mapping[str, str | None] = MappingProxyType({})
) -> tuple[Rule, ...]:
    """Return the rules that cost something or keep nodes, those first whose lifting saves most; single ones below all.

    Args:
        plan: names the pods that may not move, and what constraints cost.
        cluster: knows their nodes, where the plan does not.
        deletable: every node's reason to stay, or None; of a node without a held pod the reason is its own rule.
    """
    # Imported here: they load the solvers, which printing alone does not need.
    from kinema_optimizer.planning.constraint_prices import class_of
    from kinema_optimizer.solvers.stopping import PRICING

    kept: dict[str, _Kept] = {}
    by_node: dict[str, set[str]] = {}
    for name, example, node, pods in _keepers(plan, cluster, deletable):
        kept.setdefault(name, _Kept()).add(example, node, pods=pods)
        by_node.setdefault(node or "", set()).add(name)
    price = {node.name: node.usd_per_hour for node in plan.nodes if node.action == "keep"}
    costs = {item.constraint: item.usd_per_hour for item in plan.constraint_costs}
    complete = any(stop.phase == PRICING and stop.reason == "optimal" for stop in plan.solve.stops)
    classes = {class_of(item.code) for item in plan.held if class_of(item.code) != item.code}
    rows = []
    for name in kept.keys() | costs.keys():
        mine = kept.get(name, _Kept())
        nodes = sorted(mine.nodes & price.keys())
        alone = [node for node in nodes if by_node[node] == {name}]
        rows.append(
            Rule(
                name=name,
                example=mine.example,
                pods=mine.pods,
                nodes=len(nodes),
                alone=len(alone),
                usd_alone=round(sum(price[node] for node in alone), 6),
                saves=costs.get(name, 0.0 if complete and name in classes else None),
            )
        )
    return tuple(_below_their_class(sorted(rows, key=_rank)))


def _keepers(
    plan: Plan, cluster: Cluster, deletable: Mapping[str, str | None]
) -> Iterator[tuple[str, str, str | None, int]]:
    """Yield rule, example, node and number of pods of everything that keeps a node."""
    from kinema_optimizer.planning.constraint_prices import class_of
    from kinema_optimizer.planning.ordering import last_beside

    sources = {place.pod: place.source for place in plan.placements}
    taken = set()
    for item in plan.held:
        pod = cluster.pod(item.pod)
        node = sources.get(item.pod) or (None if pod is None else pod.node)
        taken.add(node or "")
        yield class_of(item.code), f"{item.pod}: {item.reason}", node, 1
    for name in sorted(deletable):
        reason = deletable[name]
        if reason is not None and name not in taken:
            taken.add(name)
            yield _NODE_RULE, f"{name}: {reason}", name, 0
    for name, silent in last_beside(plan, cluster).items():
        if cluster.node(name) is not None and name not in taken:
            why = f"node {silent} of its zone is not Ready and has pods, and this is the only one there that takes any"
            yield _ZONE_RULE, f"{name}: {why}", name, 0


def _rank(row: Rule) -> tuple[float, float, int, str]:
    return (-1.0 if row.saves is None else -row.saves - 1.0, -row.usd_alone, -row.pods, row.name)


def _below_their_class(rows: list[Rule]) -> Iterator[Rule]:
    """Yield the rows with readable names, each single rule below the class that contains it."""
    names = {row.name for row in rows}

    def group(row: Rule) -> str:
        start, _, single = row.name.partition(" ")
        found = _GROUPS.get(start, "")
        alone = " " in single or row.name == _NODE_RULE  # `node selectors and node affinity` is no single node
        return found if found in names - {row.name} and not alone else ""

    for row in rows:
        if not group(row):
            yield replace(row, name=_TITLES.get(row.name, row.name))
            yield from (replace(part, part=True) for part in rows if group(part) == row.name)
