"""Which nodes and offers admit a pod by its rules, and why none does."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from kinema_core.events import Amounts, Labels, Node, Offer, Pod, Taint
from kinema_core.model.catalog import machine_of, new_node_labels
from kinema_core.model.cluster import Cluster
from kinema_core.model.daemons import daemon_requests
from kinema_core.model.match import node_admits, parse_taints
from kinema_core.model.mobility import MobilityOptions, spot_allowed
from kinema_core.model.resources import lacking, subtract
from kinema_optimizer.logic.rooms import ceiled

_NEW_NODE: Final = "kinema-new-node"
"""Stands for the name of a node that does not exist yet; no rule can mean it."""


@dataclass(frozen=True)
class Site:
    """A node, or a node that an offer would become: what placement rules look at, and its room."""

    name: str
    """Node name or offer name."""
    labels: Labels
    taints: tuple[Taint, ...]
    room: Amounts
    """For pods, when everything else that is or will be on it is counted."""
    open: bool
    """Whether anybody may newly be placed there."""
    spot: bool
    spot_taints: frozenset[str]
    """Keys of its taints: to tolerate one of them is to ask for spot."""


def node_site(node: Node, *, room: Amounts, open_: bool) -> Site:
    """A live node."""
    spot = machine_of(node)[2] == "spot"
    asking = frozenset(taint.key for taint in node.taints)
    return Site(node.name, node.labels, node.taints, room=room, open=open_, spot=spot, spot_taints=asking)


def offer_site(offer: Offer, cluster: Cluster, *, percent: int) -> Site:
    """What an offer would be as a node of this cluster: its daemon sets' and mirror pods' room is taken.

    `percent` is the ceiling on its utilisation.
    """
    labels = new_node_labels(offer, _NEW_NODE)
    taints = parse_taints(offer.taints)
    daemons = daemon_requests(cluster, name=_NEW_NODE, labels=labels, taints=taints)
    room = subtract(ceiled(offer.allocatable, percent), daemons)
    spot = offer.capacity_type == "spot"
    asking = frozenset(taint.key for taint in taints)
    return Site(offer.name, labels, taints, room=room, open=True, spot=spot, spot_taints=asking)


class Admission:
    """Admission of pods by sites, worked out once per distinct set of rules."""

    def __init__(self, cluster: Cluster, options: MobilityOptions, sites: Sequence[Site]) -> None:
        self._cluster = cluster
        self._options = options
        self._sites = sites
        self._spot_taints = tuple(dict.fromkeys(site.spot_taints for site in sites if site.spot))
        self._known: dict[tuple[object, tuple[bool, ...]], tuple[bool, ...]] = {}

    def admits(self, pod: Pod) -> tuple[bool, ...]:
        """Per site, whether the pod may newly be placed there, room aside."""
        allowed = tuple(self._spot(pod, taints) for taints in self._spot_taints)
        key = (pod.rules, allowed)
        if key not in self._known:
            self._known[key] = tuple(self.forbids(pod, site) is None for site in self._sites)
        return self._known[key]

    def forbids(self, pod: Pod, site: Site) -> str | None:
        """The rule that keeps the pod from this site, or None."""
        if not site.open:
            return "it takes no new pods (cordoned, not Ready, or a new node would break a topology spread)"
        if site.spot and not self._spot(pod, site.spot_taints):
            return "spot capacity, for which the pod does not ask"
        return node_admits(pod.rules, name=site.name, labels=site.labels, taints=site.taints)

    def _spot(self, pod: Pod, taints: frozenset[str]) -> bool:
        return spot_allowed(self._cluster, pod, taint_keys=taints, options=self._options)

    def refusal(self, pod: Pod, requests: Amounts, offers: Iterable[Site]) -> tuple[str, str]:
        """Code and reason why no offer holds the pod: the nearest offer, and what is missing there.

        Nearest: no rule against it, then fewest resources missing, then least of them missing.
        """
        rated: list[tuple[int, int, float, str, str, str]] = []
        for site in offers:
            rule = self.forbids(pod, site)
            missing = lacking(requests, site.room)
            excess = sum(requests[name] / max(1, site.room.get(name, 0)) for name in missing)
            code, text = "sold-out", f"{site.name} would hold it and cannot be had"
            if missing:
                amounts = [f"{name}: {requests[name]} requested, {site.room.get(name, 0)} there" for name in missing]
                code, text = f"resource-{missing[0]}", f"{site.name} lacks {'; '.join(amounts)}"
            if rule is not None:
                code, text = "rule", f"{site.name} refuses it: {rule}"
            rated.append((int(rule is not None), len(missing), excess, site.name, code, text))
        if not rated:
            return "no-offer", "nothing is on sale, and no node has room for it"
        _, _, _, _, code, text = min(rated)
        return code, f"no node has room for it and no offer holds it; nearest: {text}"
