"""Admission of pods by nodes and offers: where the placement rules of a pod let it run, and why nowhere.

`Admission` answers for one pod and one site, `SiteIndex` for one rule and all sites at once. A rule looks at one label,
one field or the taints. Sites are indexed by the values of each key that a rule mentions, so that a rule costs a few
operations on arrays instead of an evaluation for each of thousands of nodes. `NodePreferences` rates the sites by the
preferred rules: node affinity, and untolerated taints `PreferNoSchedule`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from kinema_core.events import (
    Amounts,
    Labels,
    Node,
    NodeTerm,
    Offer,
    PlacementRules,
    Pod,
    PreferredNodeTerm,
    Requirement,
    Taint,
    Toleration,
)
from kinema_core.model.catalog import machine_of, new_node_labels
from kinema_core.model.cluster import Cluster
from kinema_core.model.daemons import daemon_ports, daemon_requests
from kinema_core.model.ending import Barred, barred, ending_refuses
from kinema_core.model.match import node_admits, parse_taints, requirement_matches, tolerates
from kinema_core.model.mobility import MobilityOptions, spot_allowed
from kinema_core.model.pod_locations import Spot
from kinema_core.model.preferences import has_preferences, shunned, unmet_on_node
from kinema_core.model.quantity import in_words
from kinema_core.model.resources import lacking, subtract
from kinema_core.model.volumes import volume_refuses, volume_terms
from kinema_optimizer.problem.arrays import Flags, Ints
from kinema_optimizer.problem.pods import ceiled, port_of, without_ports

NEW_NODE: Final = "kinema-new-node"
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
    """A pod may newly be placed there."""
    spot: bool
    spot_taints: frozenset[str]
    """Keys of its offer's taints: to tolerate one of them is to ask for spot."""


def taint_keys(offers: Iterable[Offer]) -> Mapping[tuple[str, str, str], frozenset[str]]:
    """Keys of the taints of what is on sale, by machine type, zone and capacity type."""
    found: dict[tuple[str, str, str], frozenset[str]] = {}
    for offer in offers:
        machine = (offer.machine_type, offer.zone, offer.capacity_type)
        found[machine] = found.get(machine, frozenset()) | {taint.key for taint in parse_taints(offer.taints)}
    return found


def node_site(
    node: Node, *, room: Amounts, open_: bool, on_sale: Mapping[tuple[str, str, str], frozenset[str]]
) -> Site:
    """Return a live node as a site; `on_sale` has the taints of its offer by which a pod asks for spot capacity."""
    machine = machine_of(node)
    asking = on_sale.get(machine, frozenset())
    return Site(
        node.name, node.labels, node.taints, room=room, open=open_, spot=machine[2] == "spot", spot_taints=asking
    )


def offer_site(offer: Offer, cluster: Cluster, *, percent: int) -> Site:
    """Return what an offer would be as a node of this cluster: its daemon sets' and mirror pods' room is taken.

    `percent` is the ceiling on its utilization.
    """
    labels = new_node_labels(offer, NEW_NODE)
    taints = parse_taints(offer.taints)
    daemons = daemon_requests(cluster, name=NEW_NODE, labels=labels, taints=taints)
    ports = daemon_ports(cluster, name=NEW_NODE, labels=labels, taints=taints)
    room = without_ports(subtract(ceiled(offer.allocatable, percent), daemons), ports)
    spot = offer.capacity_type == "spot"
    asking = frozenset(taint.key for taint in taints)
    return Site(offer.name, labels, taints, room=room, open=True, spot=spot, spot_taints=asking)


class _Rules(NamedTuple):
    """All that decides at which nodes a pod may be, other pods aside."""

    node_selector: Labels
    node_terms: tuple[NodeTerm, ...] | None
    tolerations: tuple[Toleration, ...]
    spot: tuple[bool, ...]
    """Per distinct set of taints of spot sites, whether the pod may be there."""
    volumes: tuple[tuple[NodeTerm, ...], ...]
    """Demands of each of its volumes on a node: one of these alternatives."""
    barred: Barred
    """Places from which pods that are ending keep it away."""


class Admission:
    """Admission of pods by sites, worked out once per distinct set of rules about nodes."""

    def __init__(self, cluster: Cluster, options: MobilityOptions, sites: Sequence[Site]) -> None:
        self._cluster = cluster
        self._options = options
        self._open = np.array([site.open for site in sites], dtype=bool)
        self._index = SiteIndex(
            [site.name for site in sites], [site.labels for site in sites], [site.taints for site in sites]
        )
        self._spot_taints = tuple(dict.fromkeys(site.spot_taints for site in sites if site.spot))
        self._spot = {
            taints: np.array([site.spot and site.spot_taints == taints for site in sites], dtype=bool)
            for taints in self._spot_taints
        }
        self._rows: dict[_Rules, int] = {}
        self._row_of: dict[tuple[object, ...], int] = {}
        self._kept: list[object] = []
        self._vectors: list[Flags] = []

    def row(self, pod: Pod) -> int:
        """Number of the pod's admission: pods with one number may be at the same sites, room and other pods aside."""
        owner = pod.owner.uid if pod.owner is not None and self._spot_taints else ""
        alike = (
            id(pod.rules),
            owner,
            pod.annotations if self._spot_taints else None,
            self._volumes_of(pod),
            barred(self._cluster, pod),
        )
        if alike not in self._row_of:
            self._kept.append(pod.rules)  # as long as it lives, its id is its own
            self._row_of[alike] = self._row(pod)
        return self._row_of[alike]

    def vector(self, row: int) -> Flags:
        """(S,): per site, whether pods of this admission may newly be placed there."""
        return self._vectors[row]

    @property
    def index(self) -> SiteIndex:
        """Return the sites by their labels."""
        return self._index

    def _volumes_of(self, pod: Pod) -> tuple[tuple[NodeTerm, ...], ...]:
        return volume_terms(self._cluster, pod) if pod.rules.claims else ()

    def _row(self, pod: Pod) -> int:
        rules = pod.rules
        allowed = tuple(self._may_be_spot(pod, taints) for taints in self._spot_taints)
        volumes, away = self._volumes_of(pod), barred(self._cluster, pod)
        key = _Rules(rules.node_selector, rules.node_terms, rules.tolerations, allowed, volumes, away)
        if key not in self._rows:
            self._rows[key] = len(self._vectors)
            self._vectors.append(self._evaluate(key))
        return self._rows[key]

    def _evaluate(self, rules: _Rules) -> Flags:
        found = self._open & self._index.with_labels(rules.node_selector) & self._index.tolerated(rules.tolerations)
        for terms in (rules.node_terms, *rules.volumes):
            if terms is not None:
                found = found & self._index.with_any(terms)
        for label, value in rules.barred:
            found = found & ~self._index.labeled(label, value)
        for taints, allowed in zip(self._spot_taints, rules.spot, strict=True):
            if not allowed:
                found = found & ~self._spot[taints]
        return found

    def forbids(self, pod: Pod, site: Site) -> str | None:
        """Return the rule that keeps the pod from this site, or None."""
        if not site.open:
            return "it takes no new pods (cordoned or not Ready)"
        if site.spot and not self._may_be_spot(pod, site.spot_taints):
            return "spot capacity, for which the pod does not ask, or of which its workload may have none"
        refused = node_admits(pod.rules, name=site.name, labels=site.labels, taints=site.taints)
        refused = refused or ending_refuses(self._cluster, pod, site.labels)
        if refused is not None or not pod.rules.claims:
            return refused
        return volume_refuses(self._cluster, pod, name=site.name, labels=site.labels)

    def _may_be_spot(self, pod: Pod, taints: frozenset[str]) -> bool:
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
                code = "host-port" if port_of(missing[0]) else f"resource-{missing[0]}"
                text = f"{site.name} {_shortages(requests, site.room, missing)}"
            if rule is not None:
                code, text = "rule", f"{site.name} refuses it: {rule}"
            rated.append((int(rule is not None), len(missing), excess, site.name, code, text))
        if not rated:
            return "no-offer", "nothing is on sale, and no node has room for it"
        _, _, _, _, code, text = min(rated)
        return code, f"no node has room for it and no offer holds it; nearest: {text}"


def _shortages(requests: Amounts, room: Amounts, missing: Iterable[str]) -> str:
    """Return what a site has too little of; a host port is there once, and another pod has it."""
    ports = [port for name in missing if (port := port_of(name)) is not None]
    amounts = [_shortage(name, requests[name], room.get(name, 0)) for name in missing if port_of(name) is None]
    parts = [f"lacks {'; '.join(amounts)}"] if amounts else []
    parts += [f"has a daemon set's pod on host port {', '.join(ports)}"] if ports else []
    return " and ".join(parts)


def _shortage(name: str, requested: int, there: int) -> str:
    return f"{name}: {in_words(name, requested)} requested, {in_words(name, there)} there"


class SiteIndex:
    """Names, labels and taints of sites, by value; sites keep their order. All answers are (S,) truth values."""

    def __init__(self, names: Sequence[str], labels: Sequence[Labels], taints: Sequence[tuple[Taint, ...]]) -> None:
        self._labels = labels
        self._size = len(names)
        self._fields: list[Labels] = [Labels({"metadata.name": name}) for name in names]
        self._by_value: dict[tuple[bool, str], dict[str, Ints]] = {}
        self._taints = {
            held: np.array([held == other for other in taints], dtype=bool) for held in dict.fromkeys(taints)
        }

    def everywhere(self) -> Flags:
        """Return all sites."""
        return np.ones(self._size, dtype=bool)

    def with_labels(self, wanted: Labels) -> Flags:
        """Sites that have all of these labels."""
        found = self.everywhere()
        for key in sorted(wanted):
            found &= self.labeled(key, wanted[key])
        return found

    def labeled(self, key: str, value: str | None) -> Flags:
        """Sites with this value of a label, or without the label for None."""
        found = np.zeros(self._size, dtype=bool)
        values = self._values(key, field=False)
        if value is None:
            for places in values.values():
                found[places] = True
            return ~found
        found[values.get(value, _NOWHERE)] = True
        return found

    def with_any(self, terms: Sequence[NodeTerm]) -> Flags:
        """Sites that meet one of these alternatives; an empty alternative is met by none."""
        found = np.zeros(self._size, dtype=bool)
        for term in terms:
            if term.expressions or term.fields:
                met = self.everywhere()
                for req in term.expressions:
                    met &= self._meets(req, field=False)
                for req in term.fields:
                    met &= self._meets(req, field=True)
                found |= met
        return found

    def tolerated(self, tolerations: tuple[Toleration, ...]) -> Flags:
        """Sites none of whose taints keeps out a pod with these tolerations."""
        found = self.everywhere()
        for taints, places in self._taints.items():
            if any(taint.effect != "PreferNoSchedule" and not tolerates(tolerations, taint) for taint in taints):
                found &= ~places
        return found

    def _values(self, key: str, *, field: bool) -> dict[str, Ints]:
        if (field, key) not in self._by_value:
            found: dict[str, list[int]] = {}
            for index, labels in enumerate(self._fields if field else self._labels):
                if key in labels:
                    found.setdefault(labels[key], []).append(index)
            self._by_value[field, key] = {value: np.array(places) for value, places in found.items()}
        return self._by_value[field, key]

    def _meets(self, req: Requirement, *, field: bool) -> Flags:
        """Sites that meet one expression; those without the key meet what an absent value meets."""
        values = self._values(req.key, field=field)
        absent = requirement_matches(req, _NO_LABELS)
        found = np.full(self._size, absent)
        if req.operator in ("In", "NotIn"):
            decisive = [value for value in dict.fromkeys(req.values) if value in values]
            if req.operator == "In":
                for value in decisive:
                    found[values[value]] = True
            else:
                for value in decisive:
                    found[values[value]] = False
            return found
        for value, places in values.items():
            found[places] = requirement_matches(req, Labels({req.key: value}))
        return found


_NOWHERE: Ints = np.zeros(0, dtype=np.int64)
_NO_LABELS = Labels()


class NodePreferences:
    """Weight points that a pod loses at each site: nodes, then offers. Computed once per set of preferences."""

    def __init__(self, nodes: Sequence[Site], offers: Sequence[Site]) -> None:
        self._spots = [(site.name, Spot(site.labels, site.taints)) for site in nodes]
        self._spots += [(NEW_NODE, Spot(site.labels, site.taints)) for site in offers]
        self._shuns = any(shunned(taint) for _, spot in self._spots for taint in spot.taints)
        self._known: dict[tuple[tuple[PreferredNodeTerm, ...], tuple[Toleration, ...]], Ints | None] = {}

    def points(self, pod: Pod) -> Ints | None:
        """(S,): of each site; None when the pod is as well anywhere."""
        rules = pod.rules
        if not (self._shuns or rules.preferred_nodes):  # most pods
            return None
        key = (rules.preferred_nodes, rules.tolerations if self._shuns else ())
        if key not in self._known:
            self._known[key] = self._rated(PlacementRules(preferred_nodes=key[0], tolerations=key[1]))
        return self._known[key]

    def asks(self, pod: Pod) -> bool:
        """Return whether the pod prefers anything, of nodes or of other pods."""
        return has_preferences(pod.rules) or self.points(pod) is not None

    def _rated(self, rules: PlacementRules) -> Ints | None:
        each = [sum(one.weight for one in unmet_on_node(rules, name, spot)) for name, spot in self._spots]
        found = np.array(each, dtype=np.int64)
        return found if (found != found[:1]).any() else None
