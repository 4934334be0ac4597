"""Building of exact instances: `exact_instance` of a small question, `relocation` of a part of an autoscale question.

Both hold the pods that are alike, places for them, and the rules that concern them. Classes, admission, rooms and rules
between pods come from `problem`, as for the reduced instance; host ports keep their addresses here, and pods that a
reduction would pin move like all others.

In an autoscale iteration that may move running pods, a pending pod without a place may get one where other pods leave
for room elsewhere, and a few moves may be cheaper than a node. `relocation` takes the pending pods and those of the
nodes with most free room, where least has to leave. Nodes are only added.

Where no order of a solution's moves is found, the problem is solved again with fewer solutions, so that what was a
lower bound remains one. On the way a pod that surges has two copies, and a rule may keep the new one from where it
should go while the old one is still there. `hold_spreads_in_transit` asks spreads over nodes to hold with all copies
there, old and new: then new ones can come in turn, wherever there are fewest. `forbid_moves` excludes single moves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import gcd
from typing import Final, NamedTuple, TypeVar

import numpy as np

from kinema_core.events import Amounts, HostPort, Node, Pod
from kinema_core.model.catalog import UNKNOWN, machine_of
from kinema_core.model.cluster import Cluster
from kinema_core.model.daemons import daemon_ports
from kinema_core.model.match import ports_clash
from kinema_core.model.mobility import Mobility
from kinema_core.model.neighbors import selects
from kinema_core.model.redundancy import Redundancy, live_zone, redundancy_of
from kinema_core.model.resources import limited
from kinema_core.model.spot_share import (
    SpotLimits,
    SpotPool,
    counted_pods,
    limits_spot,
    live_pool,
    spot_limits_of,
)
from kinema_core.model.stock import draws, most_of
from kinema_core.model.volumes import attachments
from kinema_optimizer.exact.model import (
    ALONE,
    NOWHERE,
    ExactAffinity,
    ExactAntiAffinity,
    ExactClass,
    ExactInstance,
    ExactMachine,
    ExactNode,
    ExactPreference,
    ExactRedundancy,
    ExactShare,
    ExactSpread,
    PodCount,
    Topology,
    columns_of,
)
from kinema_optimizer.problem.admission import NEW_NODE, NodePreferences
from kinema_optimizer.problem.node_types import pools_of
from kinema_optimizer.problem.pods import Mover, movers_of, port_of, resizes_of, stuck_updates
from kinema_optimizer.problem.question import Question, Sites
from kinema_optimizer.problem.rules.read import (
    Census,
    Counted,
    PodAffinity,
    PodAntiAffinity,
    Preferred,
    Rule,
    TopologySpread,
    preferred,
    read_rules,
)
from kinema_optimizer.problem.rules.reduce import closed_by_spread
from kinema_optimizer.problem.rules.spot_share import pool_of_site
from kinema_optimizer.problem.solution import NamedSolution
from kinema_optimizer.request.objective import price_of_moves

MOST_PODS: Final = 40
"""Movable and pending pods of the largest instance that is solved exactly."""
MOST_COLUMNS: Final = 6_000
"""Of its model, those of rules aside."""
MOST_CELLS: Final = 12_000
"""Nodes times rules of the largest instance: each rule has rows for each of its domains."""
MOST_WAITING: Final = MOST_PODS // 2
"""Pending pods for which running ones are asked to move; where more wait, nodes are added."""
_OPEN_NODES: Final = 24
"""Nodes that any pod may go to when running pods move for pending ones."""


def exact_instance(question: Question, sites: Sites) -> ExactInstance | None:
    """Return the exact instance of a question; None when it is too large for the exact model.

    Pods that the reduction of rules restricts may move here, but get no other size: the plan's new requests are those
    of the other models.
    """
    forecasts = question.forecasts if question.mode == "reschedule" else ()
    resizes = resizes_of(question.cluster, sites.mobility, forecasts, sites.ties.restricted)
    movers = movers_of(question.cluster, sites.mobility, question.mode, resizes)
    return _instance(question, sites, movers) if len(movers) <= MOST_PODS else None


def relocation(question: Question, sites: Sites) -> ExactInstance | None:
    """Return the instance of the pods that wait and some that may move for them; None if too large, or none waits."""
    cluster, facts = question.cluster, sites.mobility
    waiting = movers_of(cluster, facts, "autoscale", ())
    if not waiting or len(waiting) > MOST_WAITING:
        return None
    roomy = sorted(
        (node for node in cluster.nodes if node.name in facts.open_nodes),
        key=lambda node: (-_free(cluster, node), node.name),
    )[:_OPEN_NODES]
    leaving = _leaving(question, facts, roomy, MOST_PODS - len(waiting))
    movers = tuple(sorted((*waiting, *leaving), key=lambda one: one.pod.key))
    return _instance(question, sites, movers, among=frozenset(node.name for node in roomy))


def _leaving(question: Question, facts: Mobility, nodes: Sequence[Node], most: int) -> Sequence[Mover]:
    """Return movable pods of these nodes, node by node: the smallest first, for they find room elsewhere."""
    able = {mover.pod.key: mover for mover in movers_of(question.cluster, facts, "reschedule", ())}
    found: list[Mover] = []
    for node in nodes:
        here = [able[pod.key] for pod in question.cluster.pods_by_node.get(node.name, ()) if pod.key in able]
        found += sorted((mover for mover in here if mover.role == "stays"), key=lambda mover: _size(node, mover.pod))
    return found[:most]


def _size(node: Node, pod: Pod) -> tuple[int, str]:
    """Return the largest share of the node that the pod takes, in thousandths, and its key."""
    shares = [1000 * amount // max(1, node.allocatable.get(name, 0)) for name, amount in pod.requests.items()]
    return max(shares, default=0), pod.key


def _free(cluster: Cluster, node: Node) -> int:
    """Return the thousandths of the node that are free, in CPU and memory, whichever is less."""
    here = cluster.pods_by_node.get(node.name, ())
    free = 1000
    for name in ("cpu", "memory"):
        taken = sum(pod.requests.get(name, 0) for pod in here)
        free = min(free, 1000 * (node.allocatable.get(name, 0) - taken) // max(1, node.allocatable.get(name, 0)))
    return free


def _instance(
    question: Question, sites: Sites, movers: tuple[Mover, ...], *, among: frozenset[str] | None = None
) -> ExactInstance | None:
    """Return the instance in which these pods may be anywhere and all others stay; None when it is too large.

    Where nodes are given, pods arrive at no other live node, but may come back to their own.
    """
    building = _Building(question, sites, movers, among)
    if len(building.rules.every) * len(sites.nodes) > MOST_CELLS or columns_of(building.unruled) > MOST_COLUMNS:
        return None
    return building.instance()


class _Rules(NamedTuple):
    """The rules between pods that a move, a boot or a deletion can break, and what pods prefer."""

    affinities: tuple[PodAffinity, ...]
    anti_affinities: tuple[PodAntiAffinity, ...]
    spreads: tuple[TopologySpread, ...]
    preferred: tuple[Preferred, ...]
    closed: frozenset[str]
    """Offers of which a new node would break a spread among pods that all stay; that spread is not in `even`."""

    @property
    def every(self) -> tuple[Rule, ...]:
        """All of them."""
        return (*self.affinities, *self.anti_affinities, *self.spreads, *self.preferred)


class _Alike(NamedTuple):
    """Pods that are interchangeable in every rule and amount."""

    members: tuple[Mover, ...]
    requests: tuple[int, ...]
    nodes: frozenset[int]
    """Live nodes where one may arrive and has room, other pods aside."""
    offers: frozenset[int]
    disliked: tuple[int, ...]
    """Weight points that one loses, by live node, then by offer; empty where all are as good."""

    @property
    def homeless(self) -> bool:
        """Whether they run nowhere and nothing could hold one."""
        return self.members[0].role == "pending" and not self.nodes and not self.offers


@dataclass(frozen=True, eq=False)
class _Building:
    """An instance in the making."""

    question: Question
    sites: Sites
    movers: tuple[Mover, ...]
    among: frozenset[str] | None

    def instance(self) -> ExactInstance:
        """Return the finished instance."""
        rules = self.rules
        return replace(
            self.unruled,
            affinities=tuple(self._affinity(rule) for rule in rules.affinities),
            anti_affinities=(*(self._anti_affinity(rule) for rule in rules.anti_affinities), *self._port_rules()),
            spreads=tuple(self._topology_spread(rule) for rule in rules.spreads),
            preferences=tuple(
                ExactPreference(self._counted(rule.counted), owners, rule.weight, rule.near)
                for rule in rules.preferred
                if (owners := self._owners(rule))
            ),
            redundancies=tuple(self._redundancy(key, needed) for key, needed in self._redundancies.items()),
            shares=tuple(share for key, limits in self._spot_limits.items() for share in self._shares(key, limits)),
        )

    @cached_property
    def unruled(self) -> ExactInstance:
        """The instance without rules between pods."""
        offers = self.question.offers
        machines = tuple(
            ExactMachine(
                offers=tuple(offers[o].name for o in members),
                price=offers[members[0]].micro_usd_per_hour,
                room=self._rooms[len(self.sites.nodes) + members[0]],
                limit=most_of(offers[members[0]]),
            )
            for members in self._machines
        )
        return ExactInstance(
            kinds=tuple(self._kind(one) for one in self._classes),
            nodes=tuple(
                ExactNode(name=site.name, price=self.sites.prices[site.name], room=room, fixed=fixed)
                for site, room, fixed in zip(self.sites.nodes, self._rooms, self._fixed, strict=False)
            ),
            machines=machines,
            pools=pools_of([offers[members[0]] for members in self._machines]),
            rollouts=self._workloads,
            affinities=(),
            anti_affinities=(),
            spreads=(),
            homeless=tuple(sorted(mover.pod.key for one in self._groups if one.homeless for mover in one.members)),
            point_price=self.question.point_price,
            priced=self.question.move_price is not None,
        )

    # --- places

    @cached_property
    def _index(self) -> Mapping[str, int]:
        return {site.name: e for e, site in enumerate(self.sites.nodes)}

    def _node(self, pod: Pod) -> int | None:
        return self._index.get(pod.node or "")

    @cached_property
    def _fixed(self) -> tuple[bool, ...]:
        """(E,): live nodes that must stay."""
        cluster, facts = self.question.cluster, self.sites.mobility
        stuck = stuck_updates(cluster, facts)
        pinned = {pod.node for key in stuck for pod in cluster.pods_by_workload[key]}
        adds_only = self.question.mode == "autoscale"
        return tuple(
            adds_only or facts.deletable[site.name] is not None or site.name in pinned for site in self.sites.nodes
        )

    @cached_property
    def _units(self) -> Mapping[str, int]:
        """Resources of which anything is requested, each with the unit that all requests are multiples of.

        Host ports are not among them: their addresses matter here, so that they are rules between pods.
        """
        names = sorted({name for one in self.movers for name, amount in one.requests.items() if amount > 0})
        plain = [name for name in names if port_of(name) is None]
        return {name: gcd(*(one.requests.get(name, 0) for one in self.movers)) for name in plain}

    @cached_property
    def _rooms(self) -> tuple[tuple[int | None, ...], ...]:
        """(S,): what sites have for movers: live nodes with what movers take of them now, then offers."""
        taken: dict[str, Counter[str]] = {}
        for mover in self.movers:
            here = taken.setdefault(mover.pod.node or "", Counter())
            here.update(mover.pod.requests)
            here.update(attachments(self.question.cluster, mover.pod))
        live = [self._vector(site.room, taken.get(site.name, {})) for site in self.sites.nodes]
        return (*live, *(self._vector(site.room, {}) for site in self.sites.offers))

    def _vector(self, room: Amounts, taken: Mapping[str, int]) -> tuple[int | None, ...]:
        return tuple(
            (room.get(name, 0) + taken.get(name, 0)) // unit if name in room or limited(name) else None
            for name, unit in self._units.items()
        )

    # --- pods

    @cached_property
    def _movers_by_key(self) -> Mapping[str, Mover]:
        return {mover.pod.key: mover for mover in self.movers}

    @cached_property
    def _workloads(self) -> tuple[str, ...]:
        return tuple(sorted({one.workload for one in self.movers if one.role == "updated"}))

    @cached_property
    def _groups(self) -> tuple[_Alike, ...]:
        held: dict[str, list[int]] = {key: [] for key in self._movers_by_key}
        for number, rule in enumerate(self.rules.every):
            for pod in rule.owners:
                if pod.key in held:
                    held[pod.key].append(number)
        topologies = [
            rule.counted.key if isinstance(rule, PodAffinity | TopologySpread) else "" for rule in self.rules.every
        ]
        scopes = tuple(dict.fromkeys(rule.counted.scope for rule in self.rules.every))
        found: dict[tuple[object, ...], _Alike] = {}
        for mover in self.movers:
            pod, requests = mover.pod, tuple(mover.requests.get(name, 0) // unit for name, unit in self._units.items())
            nodes, offers = self._admitting(pod, {topologies[number] for number in held[pod.key]} - {""})
            key = (
                mover.role,
                mover.workload if mover.role == "updated" else "",
                pod.priority if mover.role == "pending" else 0,
                requests,
                nodes,
                offers,
                tuple(held[pod.key]),
                pod.rules.host_ports,
                tuple(selects(scope, pod) for scope in scopes),
                self._disliked(pod),
                self._move_price(mover),
                self._workload_of(pod, self._redundancies),
                self._workload_of(pod, self._spot_limits),
            )
            known = found.get(key)
            if known is None:
                live = len(self.sites.nodes)
                found[key] = _Alike(
                    members=(mover,),
                    requests=requests,
                    nodes=frozenset(e for e in nodes if _fits(requests, self._rooms[e])),
                    offers=frozenset(o for o in offers if _fits(requests, self._rooms[live + o])),
                    disliked=self._disliked(pod),
                )
            else:
                found[key] = known._replace(members=(*known.members, mover))
        return tuple(found.values())

    def _admitting(self, pod: Pod, topologies: Iterable[str]) -> tuple[frozenset[int], frozenset[int]]:
        """Return live nodes and offers where the pod may arrive, room and rules that count pods aside.

        A rule over a topology lets no pod arrive on a node without its label.
        """
        admission, nodes, offers = self.sites.admission, self.sites.nodes, self.sites.offers
        found = admission.vector(admission.row(pod)).copy()
        home = self._node(pod)
        if home is not None and nodes[home].spot:  # its replacement may come back whether or not it asks for spot
            found[home] = admission.forbids(pod, replace(nodes[home], spot=False)) is None
        for key in topologies:
            found &= ~admission.index.labeled(key, None)
        for index in np.flatnonzero(found).tolist() if pod.rules.host_ports else ():
            found[index] = ports_clash(pod.rules.host_ports, self._ports_at(index)) is None
        on_sale = [most_of(offer) != 0 and offer.name not in self.rules.closed for offer in self.question.offers]
        return (
            frozenset(np.flatnonzero(found[: len(nodes)]).tolist()),
            frozenset(o for o in np.flatnonzero(found[len(nodes) :]).tolist() if on_sale[o] and o < len(offers)),
        )

    def _ports_at(self, index: int) -> tuple[HostPort, ...]:
        """Return the host ports that pods which do not move take of a site."""
        cluster, live = self.question.cluster, len(self.sites.nodes)
        if index < live:
            here = cluster.pods_by_node.get(self.sites.nodes[index].name, ())
            return tuple(port for pod in here if pod.key not in self._movers_by_key for port in pod.rules.host_ports)
        site = self.sites.offers[index - live]
        return daemon_ports(cluster, name=NEW_NODE, labels=site.labels, taints=site.taints)

    @cached_property
    def _liking(self) -> NodePreferences:
        return NodePreferences(self.sites.nodes, self.sites.offers)

    def _disliked(self, pod: Pod) -> tuple[int, ...]:
        points = self._liking.points(pod) if self.question.point_price else None
        return () if points is None else tuple(points.tolist())

    def _move_price(self, mover: Mover) -> int:
        """Return the price of moving one pod, rounded down by pod: a sum over pods may be less than that of a plan."""
        cost = 0 if mover.role == "pending" else mover.disruption_cost
        return price_of_moves(self.question.move_price, cost)

    @cached_property
    def _classes(self) -> tuple[_Alike, ...]:
        """Pods that have a place or may get one: those first that take the largest share of the largest machine."""
        live, offers = len(self.sites.nodes), self.question.offers
        rooms = [self._rooms[live + o] for o, offer in enumerate(offers) if most_of(offer) != 0]
        largest = [max((room[r] or 0 for room in rooms), default=0) for r in range(len(self._units))]

        def order(one: _Alike) -> tuple[float, list[str]]:
            shares = [need / most if most > 0 else 0.0 for need, most in zip(one.requests, largest, strict=True)]
            return -max(shares, default=0.0), [mover.pod.key for mover in one.members]

        return tuple(sorted((one for one in self._groups if not one.homeless), key=order))

    @cached_property
    def _class_of(self) -> Mapping[str, int]:
        return {mover.pod.key: index for index, one in enumerate(self._classes) for mover in one.members}

    def _kind(self, alike: _Alike) -> ExactClass:
        first, live = alike.members[0], len(self.sites.nodes)
        homes = () if first.role == "pending" else tuple(self._index[one.pod.node or ""] for one in alike.members)
        nodes = alike.nodes
        if self.among is not None:
            nodes &= frozenset(e for name, e in self._index.items() if name in self.among).union(homes)
        return ExactClass(
            pods=tuple(mover.pod.key for mover in alike.members),
            homes=homes,
            requests=alike.requests,
            nodes=nodes,
            machines=frozenset(m for m, members in enumerate(self._machines) if members[0] in alike.offers),
            priority=first.pod.priority if first.role == "pending" else 0,
            replaced=first.role == "rolled",
            rollout=self._workloads.index(first.workload) if first.role == "updated" else None,
            disliked_nodes=alike.disliked[:live],
            disliked_machines=tuple(alike.disliked[live + members[0]] for members in self._machines)
            if alike.disliked
            else (),
            move_price=self._move_price(first),
        )

    # --- machines

    @cached_property
    def _machines(self) -> tuple[tuple[int, ...], ...]:
        """Return groups of offers that have the same price, room and stock, and that no pod or rule distinguishes."""
        live = len(self.sites.nodes)
        topologies = dict.fromkeys(rule.counted.key for rule in self.rules.every)
        zoned = any(one.zones > 1 for one in self._redundancies.values())
        found: dict[tuple[object, ...], list[int]] = {}
        for o, (offer, site) in enumerate(zip(self.question.offers, self.sites.offers, strict=True)):
            admitted = tuple(o in one.offers for one in self._classes)
            if any(admitted):
                key = (
                    offer.micro_usd_per_hour,
                    self._rooms[live + o],
                    draws(offer),
                    admitted,
                    tuple(site.labels.get(topology) for topology in topologies),
                    offer.zone if zoned else "",
                    pool_of_site(site) if self._spot_limits else None,
                    tuple(rule.admits(site) for rule in self.rules.spreads),
                    tuple(one.disliked[live + o] for one in self._classes if one.disliked),
                )
                found.setdefault(key, []).append(o)
        return tuple(tuple(members) for members in found.values())

    # --- rules between pods

    @cached_property
    def _census(self) -> Census:
        return Census(self.question.cluster, self.sites.nodes)

    @cached_property
    def rules(self) -> _Rules:
        """The rules that concern movers, or nodes that may go with their daemon sets' pods; others never change."""
        between, loose = read_rules(self.question.cluster), not all(self._fixed)
        movers = [mover.pod for mover in self.movers]
        spreads = tuple(rule for rule in between.spreads if loose or self._concerns(rule))
        rest = tuple(rule for rule in between.spreads if not loose and not self._concerns(rule))
        return _Rules(
            affinities=tuple(rule for rule in between.affinities if loose or self._concerns(rule)),
            anti_affinities=tuple(rule for rule in between.anti_affinities if self._concerns(rule)),
            spreads=spreads,
            preferred=preferred(self.question.cluster, movers) if self.question.point_price else (),
            closed=closed_by_spread(rest, self._census, self.sites.offers),
        )

    def _concerns(self, rule: Rule) -> bool:
        pods = (*rule.owners, *self._census.pods(rule.counted.scope))
        return any(pod.key in self._movers_by_key for pod in pods)

    @cached_property
    def _topologies(self) -> dict[str, Topology]:
        return {}

    def _topology(self, topology: str) -> Topology:
        """Return the domains by number. An offer whose nodes get the label from their name is `ALONE`."""
        if topology not in self._topologies:
            numbers: dict[str | None, int] = {None: NOWHERE}
            live = [site.labels.get(topology) for site in self.sites.nodes]
            new = [self.sites.offers[members[0]].labels.get(topology) for members in self._machines]
            for value in (*live, *new):
                numbers.setdefault(value, len(numbers) - 1)
            self._topologies[topology] = Topology(
                nodes=tuple(numbers[value] for value in live),
                machines=tuple(ALONE if value == NEW_NODE else numbers[value] for value in new),
            )
        return self._topologies[topology]

    def _counted(self, counted: Counted) -> PodCount:
        return self._count(self._census.pods(counted.scope), self._topology(counted.key))

    def _count(self, pods: Iterable[Pod], topology: Topology) -> PodCount:
        kinds: set[int] = set()
        others = [0] * len(self.sites.nodes)
        for pod in pods:
            node = self._node(pod)
            if pod.key in self._class_of:
                kinds.add(self._class_of[pod.key])
            elif node is not None:
                others[node] += 1
        return PodCount(topology, frozenset(kinds), tuple(others))

    def _owners(self, rule: Rule) -> frozenset[int]:
        return frozenset(self._class_of[pod.key] for pod in rule.owners if pod.key in self._class_of)

    def _affinity(self, rule: PodAffinity) -> ExactAffinity:
        owners: dict[int, set[int]] = {}
        others: list[tuple[int, bool]] = []
        for pod in rule.owners:
            node = self._node(pod)
            obeys = self._census.company(pod, rule.counted) > 0 or self._census.first(pod, rule.counted)
            if pod.key in self._class_of:
                homes = owners.setdefault(self._class_of[pod.key], set())
                homes |= {node} if node is not None and obeys else set()
            elif node is not None and obeys:
                others.append((node, selects(rule.counted.scope, pod)))
        return ExactAffinity(
            census=self._counted(rule.counted),
            owners=tuple((kind, frozenset(homes)) for kind, homes in owners.items()),
            others=tuple(others),
        )

    def _anti_affinity(self, rule: PodAntiAffinity) -> ExactAntiAffinity:
        others = {self._node(pod) for pod in rule.owners if pod.key not in self._class_of}
        topology = self._topology(rule.counted.key)
        broken = {
            topology.nodes[node]
            for pod in rule.owners
            if pod.key in self._class_of and (node := self._node(pod)) is not None
            if self._census.company(pod, rule.counted) > 0
        }
        return ExactAntiAffinity(
            census=self._counted(rule.counted),
            owners=self._owners(rule),
            others=tuple(sorted(node for node in others if node is not None)),
            broken=frozenset(broken),
        )

    def _port_rules(self) -> Iterable[ExactAntiAffinity]:
        """Return a rule for each set of host ports, which are had once per node; those of others are in admission."""
        ports = {kind: one.members[0].pod.rules.host_ports for kind, one in enumerate(self._classes)}
        topology = Topology(tuple(range(len(self.sites.nodes))), (ALONE,) * len(self._machines))
        for wanted in dict.fromkeys(held for held in ports.values() if held):
            owners = frozenset(kind for kind, held in ports.items() if held == wanted)
            clashing = frozenset(kind for kind, held in ports.items() if ports_clash(wanted, held) is not None)
            now = Counter(
                self._node(mover.pod)
                for kind in sorted(clashing)
                for mover in self._classes[kind].members
                if mover.pod.node
            )
            broken = {
                node
                for kind in sorted(owners)
                for mover in self._classes[kind].members
                if (node := self._node(mover.pod)) is not None and now[node] > int(kind in clashing)
            }
            census = PodCount(topology, clashing, (0,) * len(self.sites.nodes))
            yield ExactAntiAffinity(census, owners, (), frozenset(broken))

    @cached_property
    def _redundancies(self) -> Mapping[str, Redundancy]:
        """What workloads of movers have to keep, by key."""
        if not self.question.options.redundancy:
            return {}
        cluster = self.question.cluster
        zone_of = live_zone(cluster)
        owners = {key for mover in self.movers if (key := cluster.controller_key_of(mover.pod)) is not None}
        needs = {key: redundancy_of(cluster, key, zone_of) for key in sorted(owners)}
        return {key: needed for key, needed in needs.items() if needed is not None}

    def _workload_of(self, pod: Pod, among: Container[str]) -> str:
        key = self.question.cluster.controller_key_of(pod)
        return key if key is not None and key in among else ""

    @cached_property
    def _spot_limits(self) -> Mapping[str, SpotLimits]:
        """Limits of the workloads of movers on spot capacity, by key."""
        cluster, options = self.question.cluster, self.question.options
        if not limits_spot(cluster, options):
            return {}
        owners = {key for mover in self.movers if (key := cluster.controller_key_of(mover.pod)) is not None}
        found = {key: spot_limits_of(cluster, key, options) for key in sorted(owners)}
        return {key: limits for key, limits in found.items() if limits is not None}

    def _shares(self, workload: str, limits: SpotLimits) -> Iterator[ExactShare]:
        """Return the limit on all spot capacity, which is one domain, and that on each pool."""
        cluster = self.question.cluster
        pods, pool_of = counted_pods(cluster, workload), live_pool(cluster)
        now = Counter(pool for pod in pods if (pool := pool_of(pod.node or "")) is not None)
        numbers = {pool: number for number, pool in enumerate(dict.fromkeys(filter(None, self._pools)))}
        live = len(self.sites.nodes)
        pools = tuple(NOWHERE if pool is None else numbers[pool] for pool in self._pools)
        for topology, most in (
            (pools, tuple(max(limits.pool, now[pool]) for pool in numbers)),
            (tuple(min(number, 0) for number in pools), (max(limits.total, now.total()),)),
        ):
            yield ExactShare(self._count(pods, Topology(topology[:live], topology[live:])), most)

    @cached_property
    def _pools(self) -> tuple[SpotPool | None, ...]:
        """Spot pools of the live nodes, then of the machines; None where one is no spot capacity."""
        new = (self.sites.offers[members[0]] for members in self._machines)
        return tuple(map(pool_of_site, (*self.sites.nodes, *new)))

    def _redundancy(self, workload: str, needed: Redundancy) -> ExactRedundancy:
        hosts = Topology(tuple(range(len(self.sites.nodes))), (ALONE,) * len(self._machines))
        count = self._count(self.question.cluster.pods_by_workload[workload], hosts)
        return ExactRedundancy(count, replace(count, topology=self._zones), needed.zones)

    @cached_property
    def _zones(self) -> Topology:
        """Zones as domains; nodes whose zone is not known are in none."""
        numbers: dict[str, int] = {UNKNOWN: NOWHERE}
        live = [machine_of(node)[1] for node in self.question.cluster.nodes]
        new = [self.question.offers[members[0]].zone for members in self._machines]
        for zone in (*live, *new):
            numbers.setdefault(zone, len(numbers) - 1)
        return Topology(tuple(numbers[zone] for zone in live), tuple(numbers[zone] for zone in new))

    def _topology_spread(self, rule: TopologySpread) -> ExactSpread:
        return ExactSpread(
            census=self._counted(rule.counted),
            nodes=frozenset(e for e, site in enumerate(self.sites.nodes) if rule.admits(site)),
            machines=frozenset(
                m for m, members in enumerate(self._machines) if rule.admits(self.sites.offers[members[0]])
            ),
            max_skew=rule.max_skew,
            allowed=max(rule.max_skew, self._census.skew(rule)),
            min_domains=rule.min_domains,
            owners=self._owners(rule),
        )


def _fits(requests: Sequence[int], room: Sequence[int | None]) -> bool:
    return all(free is None or need == 0 or need <= free for need, free in zip(requests, room, strict=True))


def hold_spreads_in_transit(problem: ExactInstance, stuck: Iterable[str]) -> ExactInstance | None:
    """Return the problem in which spreads over nodes hold on the way.

    None where they do already, or no stuck pod has one.
    """
    spread = frozenset[int]().union(*(rule.owners for rule in problem.spreads if rule.doubles))
    waiting = {key for kind in spread for key in problem.kinds[kind].pods}
    return None if problem.doubled or waiting.isdisjoint(stuck) else replace(problem, doubled=True)


def forbid_moves(problem: ExactInstance, stuck: Iterable[str], solution: NamedSolution) -> ExactInstance:
    """Return the problem in which none of these pods (keys), nor one like it on its node, may go where it was sent."""
    for key in sorted(stuck):
        to = solution.assignment.get(key)
        index = next((number for number, kind in enumerate(problem.kinds) if key in kind.pods), None)
        if to is not None and index is not None:
            problem = _without(problem, index, key, to=to, offers=solution.boots.get(to, ()))
    return problem


def _without(problem: ExactInstance, index: int, key: str, *, to: str, offers: tuple[str, ...]) -> ExactInstance:
    kind = problem.kinds[index]
    machines = frozenset(m for m, machine in enumerate(problem.machines) if machine.offers == offers)
    nodes = frozenset(e for e, node in enumerate(problem.nodes) if node.name == to)
    like = [pod for pod in kind.pods if _home(kind, pod) == _home(kind, key)]
    fewer = replace(_part(kind, like), nodes=kind.nodes - nodes, machines=kind.machines - machines)
    rest = [pod for pod in kind.pods if pod not in like]
    if not rest:
        return replace(problem, kinds=(*problem.kinds[:index], fewer, *problem.kinds[index + 1 :]))
    twin = len(problem.kinds)
    return replace(
        problem,
        kinds=(*problem.kinds[:index], _part(kind, rest), *problem.kinds[index + 1 :], fewer),
        affinities=tuple(_split_affinity(rule, index, twin) for rule in problem.affinities),
        anti_affinities=tuple(_split(rule, index, twin) for rule in problem.anti_affinities),
        spreads=tuple(_split(rule, index, twin) for rule in problem.spreads),
        preferences=tuple(_split(rule, index, twin) for rule in problem.preferences),
        redundancies=tuple(
            replace(rule, nodes=_split_count(rule.nodes, index, twin), zones=_split_count(rule.zones, index, twin))
            for rule in problem.redundancies
        ),
        shares=tuple(replace(rule, census=_split_count(rule.census, index, twin)) for rule in problem.shares),
    )


def _home(kind: ExactClass, pod: str) -> int | None:
    return kind.homes[kind.pods.index(pod)] if kind.homes else None


def _part(kind: ExactClass, pods: list[str]) -> ExactClass:
    """Return some pods of a class as a class."""
    homes = tuple(kind.homes[kind.pods.index(pod)] for pod in pods) if kind.homes else ()
    return replace(kind, pods=tuple(pods), homes=homes)


def _split_affinity(rule: ExactAffinity, index: int, twin: int) -> ExactAffinity:
    more = tuple((twin, homes) for kind, homes in rule.owners if kind == index)
    return replace(rule, census=_split_count(rule.census, index, twin), owners=(*rule.owners, *more))


_Split = TypeVar("_Split", ExactAntiAffinity, ExactSpread, ExactPreference)


def _split(rule: _Split, index: int, twin: int) -> _Split:
    more = {twin} if index in rule.owners else set()
    return replace(rule, census=_split_count(rule.census, index, twin), owners=rule.owners | more)


def _split_count(census: PodCount, index: int, twin: int) -> PodCount:
    return replace(census, kinds=census.kinds | {twin}) if index in census.kinds else census
