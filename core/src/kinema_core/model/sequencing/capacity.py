"""Room on the nodes while pods move: counted, not yet checked against rules between pods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kinema_core.events import Amounts, Labels, Offer, Plan, PlanNode, Pod, Taint
from kinema_core.model.catalog import machine_of, new_node_labels, taint_keys
from kinema_core.model.cluster import Cluster
from kinema_core.model.daemons import daemon_requests, room_left
from kinema_core.model.ending import ending_refuses
from kinema_core.model.match import node_admits, parse_taints
from kinema_core.model.mobility import Mobility, MobilityOptions, spot_allowed
from kinema_core.model.resources import fits, shift, subtract, times
from kinema_core.model.stock import left_of


@dataclass(frozen=True)
class NodeSpec:
    """A node that takes pods: one that stays, is booted, or is there for a while."""

    name: str
    labels: Labels
    taints: tuple[Taint, ...]
    spot: bool
    spot_keys: frozenset[str]
    """Keys of the taints of its offer."""


class Capacity:
    """The nodes that remain after the plan, and what each has free right now. Room is looked up when first asked for.

    A pod that stays counts with what it requests now; one that restarts in place is a mover and comes again.
    """

    def __init__(
        self, plan: Plan, cluster: Cluster, offers: Iterable[Offer], facts: Mobility, options: MobilityOptions
    ) -> None:
        self._cluster = cluster
        self._facts = facts
        self._options = options
        self._offers = {offer.name: offer for offer in offers}
        self._keys = taint_keys(self._offers.values())
        self._booted = Counter(node.offer for node in plan.nodes if node.action == "boot")
        self._taken = {node.name for node in plan.nodes}
        self._rooms: dict[str, Amounts] = {}
        self._free: dict[str, dict[str, int]] = {}
        self._specs: dict[str, NodeSpec] = {}
        self.changed: set[str] = set()
        """Nodes that are new, or whose room has changed, since this was emptied."""
        self.temporary: list[PlanNode] = []
        for node in plan.nodes:
            self._know(node)

    def _know(self, node: PlanNode) -> None:
        self.changed.add(node.name)
        live, offer = self._cluster.node(node.name), self._offers.get(node.offer)
        if node.action == "keep" and live is not None:
            machine = machine_of(live)
            keys = self._keys.get(machine, frozenset())
            self._specs[node.name] = NodeSpec(node.name, live.labels, live.taints, machine[2] == "spot", keys)
        elif node.action == "boot" and offer is not None:
            self._specs[node.name] = _node_spec(offer, node.name)
            self._free[node.name] = dict(self._room_of(offer))

    # --- what is there

    @property
    def specs(self) -> Mapping[str, NodeSpec]:
        """Nodes that take pods, by name: those that stay, then those that are booted, in the plan's order."""
        return self._specs

    def admits(self, name: str, pod: Pod) -> bool:
        """Return whether the pod may stop on the node, room aside."""
        spec = self._specs[name]
        if self._cluster.node(name) is not None and name not in self._facts.open_nodes:
            return False
        return self._suits(spec, pod)

    def _suits(self, spec: NodeSpec, pod: Pod) -> bool:
        if node_admits(pod.rules, name=spec.name, labels=spec.labels, taints=spec.taints) is not None:
            return False
        if ending_refuses(self._cluster, pod, spec.labels) is not None:
            return False
        return not spec.spot or spot_allowed(self._cluster, pod, taint_keys=spec.spot_keys, options=self._options)

    # --- room

    def free(self, name: str) -> dict[str, int]:
        """Return what the node has free; to be changed by `take` and `give` only."""
        if name not in self._free:
            self._free[name] = dict(room_left(self._cluster).get(name, {}))
        return self._free[name]

    def fits(self, name: str, requests: Amounts) -> bool:
        """Return whether the node has room for one more such pod now."""
        return fits(requests, self.free(name))

    def times(self, name: str, requests: Amounts, most: int) -> int:
        """Return how many such pods the node has room for now, up to `most`."""
        return times(requests, self.free(name), most)

    def take(self, name: str, requests: Amounts) -> None:
        """Take room for a new copy that comes to the node."""
        self.changed.add(name)
        shift(self.free(name), requests, -1)

    def give(self, name: str, requests: Amounts) -> None:
        """Give back the room of a copy that has left. Room of a node that the plan deletes is not counted."""
        if name in self._specs:
            self.changed.add(name)
            shift(self.free(name), requests, 1)

    # --- nodes for a while

    def on_sale(self) -> list[Offer]:
        """Offers of which one more node can be had, the cheapest first."""
        left = left_of(self._offers.values(), self._booted)
        able = [offer for offer in self._offers.values() if (more := left[offer.name]) is None or more > 0]
        return sorted(able, key=lambda offer: (offer.micro_usd_per_hour, offer.name))

    def could_hold(self, offer: Offer, pod: Pod, requests: Amounts) -> bool:
        """Return whether an empty node of the offer takes the pod."""
        spec = _node_spec(offer, self._next_name())
        return self._suits(spec, pod) and fits(requests, self._room_of(offer))

    def rent(self, offer: Offer) -> NodeSpec:
        """One more node, for a while."""
        node = PlanNode(
            name=self._next_name(),
            machine_type=offer.machine_type,
            zone=offer.zone,
            capacity_type=offer.capacity_type,
            offer=offer.name,
            usd_per_hour=round(offer.micro_usd_per_hour / 1e6, 6),
            action="boot",
        )
        self.temporary.append(node)
        self._taken.add(node.name)
        self._booted[offer.name] += 1
        self._know(node)
        return self._specs[node.name]

    def give_back(self, offer: Offer) -> None:
        """Give back the node rented last, of this offer."""
        node = self.temporary.pop()
        self._taken.remove(node.name)
        self._booted[offer.name] -= 1
        del self._specs[node.name], self._free[node.name]

    def _next_name(self) -> str:
        number = len(self.temporary) + 1
        while f"kinema-{self._cluster.version}-way-{number}" in self._taken:
            number += 1
        return f"kinema-{self._cluster.version}-way-{number}"

    def _room_of(self, offer: Offer) -> Amounts:
        """Return what an empty node of the offer has beside its daemon sets: the same for each, worked out once."""
        if offer.name not in self._rooms:
            spec = _node_spec(offer, "new")
            landing = daemon_requests(self._cluster, name="new", labels=spec.labels, taints=spec.taints)
            self._rooms[offer.name] = subtract(offer.allocatable, landing)
        return self._rooms[offer.name]


def _node_spec(offer: Offer, name: str) -> NodeSpec:
    taints = parse_taints(offer.taints)
    keys = frozenset(taint.key for taint in taints)
    return NodeSpec(name, new_node_labels(offer, name), taints, offer.capacity_type == "spot", keys)
