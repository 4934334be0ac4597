"""From a small cluster and what is on sale to a `TinyProblem`."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import gcd
from typing import Final

from kinema_core.events import Amounts, FrozenMap, HostPort, Offer, Pod
from kinema_core.model.catalog import machine_of, new_node_labels
from kinema_core.model.checks.rules import Spot
from kinema_core.model.cluster import Cluster
from kinema_core.model.daemons import daemon_requests, is_resident, resident_requests, residents_of
from kinema_core.model.ending import ending_refuses
from kinema_core.model.match import node_admits, parse_taints, ports_clash
from kinema_core.model.mobility import Mobility, spot_allowed
from kinema_core.model.preferences import shunned, unmet_on_node
from kinema_core.model.resources import limited, subtract, total
from kinema_core.model.risk import ORDINARY, restart_risk
from kinema_core.model.volumes import attachments, volume_refuses
from kinema_optimizer.logic.compiled import Question, Sites
from kinema_optimizer.logic.movers import Mover, movers_of, resizes_of, stuck_updates
from kinema_optimizer.logic.rooms import ceiled
from kinema_optimizer.logic.tiny import Census, Kind, Machine, Place, TinyProblem, Zoning, columns_of
from kinema_optimizer.logic.tiny_rules import Ground, RuleBook

MOST_PODS: Final = 40
"""Movable and pending pods of the largest problem that is solved exactly."""
MOST_COLUMNS: Final = 6_000
"""Of its model."""
_NEW_NODE: Final = "kinema-new-node"
"""Stands for the name of a node that does not exist yet; no rule can mean it."""


def tiny_problem(question: Question, sites: Sites) -> TinyProblem | None:
    """The exact problem that a question comes to; None when it is too large for the exact model."""
    return tiny_problem_of(question, sites.mobility, sites.prices, sites.ties.restricted)


def tiny_problem_of(
    question: Question, facts: Mobility, prices: Mapping[str, int], restricted: Container[str] = ()
) -> TinyProblem | None:
    """As `tiny_problem`, from who may move and the micro-USD per hour of each live node.

    `restricted` pods may move here, but get no other size: the plan's new requests are those of the other models.
    """
    cluster = question.cluster
    forecasts = question.forecasts if question.mode == "reschedule" else ()
    resizes = resizes_of(cluster, facts, forecasts, restricted)
    movers = movers_of(cluster, facts, question.mode, resizes)
    if len(movers) > MOST_PODS:
        return None
    problem = tiny_problem_with(question, facts, prices, movers)
    return problem if columns_of(problem) <= MOST_COLUMNS else None


def tiny_problem_with(
    question: Question, facts: Mobility, prices: Mapping[str, int], movers: tuple[Mover, ...]
) -> TinyProblem:
    """The problem in which these pods may be anywhere and all others stay, however large it is."""
    return _Draft(question, facts, movers, prices).problem()


@dataclass(frozen=True, eq=False)
class _Draft:
    """A problem in the making."""

    question: Question
    facts: Mobility
    movers: tuple[Mover, ...]
    prices: Mapping[str, int]

    @property
    def _cluster(self) -> Cluster:
        return self.question.cluster

    @cached_property
    def _offers(self) -> tuple[Offer, ...]:
        return tuple(offer for offer in self.question.offers if offer.available != 0)

    @cached_property
    def _nodes(self) -> tuple[Ground, ...]:
        return tuple(Ground(node.name, node.labels, node.taints) for node in self._cluster.nodes)

    @cached_property
    def _grounds(self) -> tuple[Ground, ...]:
        """What the offers would be as nodes."""
        return tuple(
            Ground(_NEW_NODE, new_node_labels(offer, _NEW_NODE), parse_taints(offer.taints)) for offer in self._offers
        )

    @cached_property
    def _book(self) -> RuleBook:
        return RuleBook(self._cluster, self._nodes, self._grounds, wishes=self.question.point_price > 0)

    @cached_property
    def _moving(self) -> Mapping[str, Mover]:
        return {mover.pod.key: mover for mover in self.movers}

    @cached_property
    def _requests(self) -> Mapping[str, Amounts]:
        """What every mover requests, volumes attached included."""
        return {
            mover.pod.key: FrozenMap({**_plain(mover.requests), **attachments(self._cluster, mover.pod)})
            for mover in self.movers
        }

    @cached_property
    def _units(self) -> Mapping[str, int]:
        """Resources of which anything is requested, each with the unit that all requests are multiples of."""
        names = sorted({name for each in self._requests.values() for name, amount in each.items() if amount > 0})
        return {name: gcd(*(each.get(name, 0) for each in self._requests.values())) for name in names}

    def problem(self) -> TinyProblem:
        """The finished problem."""
        book, workloads = self._book, sorted({one.workload for one in self.movers if one.role == "updated"})
        rooms = [self._vector(room) for room in self._machine_rooms()]
        kinds: list[Kind] = []
        homeless: list[str] = []
        for members in self._alike():
            kind = self._kind(members, rooms, workloads)
            if kind.pending and not kind.nodes and not kind.machines:
                homeless += kind.pods
            else:
                kinds.append(kind)
        kinds.sort(key=lambda kind: (-_weight(kind, rooms), kind.pods))
        book.kinds = {key: index for index, kind in enumerate(kinds) for key in kind.pods}
        draft = TinyProblem(
            kinds=tuple(kinds),
            places=self._places(),
            machines=tuple(
                Machine((offer.name,), offer.micro_usd_per_hour, room, offer.available)
                for offer, room in zip(self._offers, rooms, strict=True)
            ),
            pools=(),
            rollouts=tuple(workloads),
            near=book.near(),
            apart=book.apart(),
            even=book.even(),
            homeless=tuple(sorted(homeless)),
            point_price=self.question.point_price,
            wishes=book.wishes(),
            priced=self.question.move_price is not None,
        )
        return merged(draft, [_share(offer) for offer in self._offers])

    # --- kinds

    def _alike(self) -> Iterable[list[Mover]]:
        found: dict[tuple[object, ...], list[Mover]] = {}
        for mover in self.movers:
            pod = mover.pod
            key = (
                mover.role,
                mover.workload if mover.role == "updated" else "",
                pod.priority if mover.role == "pending" else 0,
                self._requests[pod.key],
                self._admitting(mover),
                self._book.demands[pod.key],
                self._book.counted(pod),
                self._disliked(pod),
                self._move_price(mover),
            )
            found.setdefault(key, []).append(mover)
        return found.values()

    def _kind(self, members: Sequence[Mover], rooms: Sequence[tuple[int | None, ...]], workloads: list[str]) -> Kind:
        first = members[0]
        index = {node.name: e for e, node in enumerate(self._nodes)}
        requests = tuple(self._requests[first.pod.key].get(name, 0) // unit for name, unit in self._units.items())
        nodes, machines = self._admitting(first)
        return Kind(
            pods=tuple(mover.pod.key for mover in members),
            homes=() if first.role == "pending" else tuple(index[mover.pod.node or ""] for mover in members),
            requests=requests,
            nodes=frozenset(e for e in nodes if _fits(requests, self._places()[e].room)),
            machines=frozenset(m for m in machines if _fits(requests, rooms[m])),
            priority=first.pod.priority if first.role == "pending" else 0,
            replaced=first.role == "rolled",
            rollout=workloads.index(first.workload) if first.role == "updated" else None,
            disliked_nodes=self._disliked(first.pod)[: len(self._nodes)],
            disliked_machines=self._disliked(first.pod)[len(self._nodes) :],
            move_price=self._move_price(first),
        )

    def _move_price(self, mover: Mover) -> int:
        price = self.question.move_price
        return 0 if mover.role == "pending" or not price else price * restart_risk(self._cluster, mover.pod) // ORDINARY

    def _disliked(self, pod: Pod) -> tuple[int, ...]:
        """Weight points that the pod gives up on each live node and offer; empty when it is as well anywhere."""
        if not (self.question.point_price and (self._shuns or pod.rules.preferred_nodes)):
            return ()
        grounds = (*self._nodes, *self._grounds)
        spots = [(ground.name, Spot(ground.labels, ground.taints)) for ground in grounds]
        each = [sum(one.weight for one in unmet_on_node(pod.rules, name, spot)) for name, spot in spots]
        return tuple(each) if len(set(each)) > 1 else ()

    @cached_property
    def _shuns(self) -> bool:
        return any(shunned(taint) for ground in (*self._nodes, *self._grounds) for taint in ground.taints)

    def _admitting(self, mover: Mover) -> tuple[frozenset[int], frozenset[int]]:
        """Live nodes and offers where the pod may arrive, room and rules between pods aside."""
        pod = mover.pod
        nodes = frozenset(e for e, node in enumerate(self._nodes) if self._node_admits(pod, node))
        return nodes, frozenset(m for m, offer in enumerate(self._offers) if self._offer_admits(pod, m, offer))

    def _node_admits(self, pod: Pod, ground: Ground) -> bool:
        if ground.name not in self.facts.open_nodes:
            return False
        machine = machine_of(self._cluster.nodes[self._nodes.index(ground)])
        keys = {
            taint.key
            for offer in self.question.offers
            if (offer.machine_type, offer.zone, offer.capacity_type) == machine
            for taint in parse_taints(offer.taints)
        }
        here = self._cluster.pods_by_node.get(ground.name, ())
        taken = [port for other in here if other.key not in self._moving for port in other.rules.host_ports]
        spot = machine[2] == "spot" and pod.node != ground.name
        return self._admits(pod, ground, spot=spot, keys=frozenset(keys), taken=tuple(taken))

    def _offer_admits(self, pod: Pod, index: int, offer: Offer) -> bool:
        ground = self._grounds[index]
        landing = [
            port
            for daemon in residents_of(self._cluster).daemons
            if node_admits(daemon.rules, name=ground.name, labels=ground.labels, taints=ground.taints) is None
            for port in daemon.rules.host_ports
        ]
        keys = frozenset(taint.key for taint in ground.taints)
        return self._admits(pod, ground, spot=offer.capacity_type == "spot", keys=keys, taken=tuple(landing))

    def _admits(
        self, pod: Pod, ground: Ground, *, spot: bool, keys: frozenset[str], taken: tuple[HostPort, ...]
    ) -> bool:
        if spot and not spot_allowed(self._cluster, pod, taint_keys=keys, options=self.question.options):
            return False
        return (
            node_admits(pod.rules, name=ground.name, labels=ground.labels, taints=ground.taints) is None
            and volume_refuses(self._cluster, pod, name=ground.name, labels=ground.labels) is None
            and ending_refuses(self._cluster, pod, ground.labels) is None
            and self._book.admits_domain(pod, ground)
            and ports_clash(pod.rules.host_ports, taken) is None
        )

    # --- places and machines

    def _places(self) -> tuple[Place, ...]:
        return self._cached_places

    @cached_property
    def _cached_places(self) -> tuple[Place, ...]:
        stuck = stuck_updates(self._cluster, self.facts)
        pinned = {pod.node for key in stuck for pod in self._cluster.pods_by_workload[key]}
        adds_only = self.question.mode == "autoscale"
        return tuple(
            Place(
                name=node.name,
                price=self.prices[node.name],
                room=self._vector(self._room(node.name)),
                fixed=adds_only or self.facts.deletable[node.name] is not None or node.name in pinned,
            )
            for node in self._cluster.nodes
        )

    def _room(self, name: str) -> Amounts:
        """What a live node has for movers: its allocatable less everybody else who is on it."""
        node = self._cluster.node(name)
        assert node is not None, f"no node {name}"
        here = self._cluster.pods_by_node.get(name, ())
        others = [pod for pod in here if pod.key not in self._moving]
        staying = [pod.requests for pod in others if not is_resident(self._cluster, pod)]
        volumes = [FrozenMap(attachments(self._cluster, pod)) for pod in others]
        taken = total([resident_requests(self._cluster, node), *staying, *volumes])
        return subtract(ceiled(node.allocatable, self.question.percent), taken)

    def _machine_rooms(self) -> Iterable[Amounts]:
        for offer, ground in zip(self._offers, self._grounds, strict=True):
            daemons = daemon_requests(self._cluster, name=ground.name, labels=ground.labels, taints=ground.taints)
            yield subtract(ceiled(offer.allocatable, self.question.percent), daemons)

    def _vector(self, room: Amounts) -> tuple[int | None, ...]:
        return tuple(
            room.get(name, 0) // unit if name in room or limited(name) else None for name, unit in self._units.items()
        )


def _plain(requests: Amounts) -> dict[str, int]:
    """Requests without host ports: their addresses matter here, so that they are rules between pods."""
    return {name: amount for name, amount in requests.items() if not name.startswith("port:")}


def _fits(requests: Sequence[int], room: Sequence[int | None]) -> bool:
    return all(free is None or need == 0 or need <= free for need, free in zip(requests, room, strict=True))


def _weight(kind: Kind, rooms: Sequence[tuple[int | None, ...]]) -> float:
    """The largest share that one pod takes of the largest machine."""
    shares = [0.0]
    for r, need in enumerate(kind.requests):
        largest = max((room[r] or 0 for room in rooms), default=0)
        shares.append(need / largest if largest > 0 else 0.0)
    return max(shares)


def _share(offer: Offer) -> str:
    """Offers with the same text draw on the same stock; empty for those without limit."""
    return "" if offer.available is None else offer.pool or offer.name


def merged(problem: TinyProblem, shares: Sequence[str]) -> TinyProblem:
    """The problem with offers as one machine that nobody could tell apart; `shares` tells who draws on one stock."""
    censuses = [rule.census for rules in (problem.near, problem.apart, problem.even) for rule in rules]
    censuses += [wish.census for wish in problem.wishes]
    groups: dict[tuple[object, ...], list[int]] = {}
    for m, machine in enumerate(problem.machines):
        admitted = tuple(m in kind.machines for kind in problem.kinds)
        if any(admitted):
            zones = tuple(census.zoning.machines[m] for census in censuses)
            counts = tuple(m in rule.machines for rule in problem.even)
            disliked = tuple(kind.disliked_machines[m] for kind in problem.kinds if kind.disliked_machines)
            key = (machine.price, machine.room, shares[m], admitted, zones, counts, disliked)
            groups.setdefault(key, []).append(m)
    rows = [members[0] for members in groups.values()]
    renumbered = {m: new for new, m in enumerate(rows)}
    stocks: dict[str, list[int]] = {}
    for new, m in enumerate(rows):
        if shares[m]:
            stocks.setdefault(shares[m], []).append(new)
    return replace(
        problem,
        kinds=tuple(_sold(kind, rows, renumbered) for kind in problem.kinds),
        machines=tuple(
            replace(problem.machines[members[0]], offers=tuple(problem.machines[m].offers[0] for m in members))
            for members in groups.values()
        ),
        pools=tuple(
            (frozenset(members), problem.machines[rows[members[0]]].limit or 0)
            for members in stocks.values()
            if len(members) > 1
        ),
        near=tuple(replace(rule, census=_kept(rule.census, rows)) for rule in problem.near),
        apart=tuple(replace(rule, census=_kept(rule.census, rows)) for rule in problem.apart),
        even=tuple(
            replace(rule, census=_kept(rule.census, rows), machines=_renumber(rule.machines, renumbered))
            for rule in problem.even
        ),
        wishes=tuple(replace(rule, census=_kept(rule.census, rows)) for rule in problem.wishes),
    )


def _sold(kind: Kind, rows: Sequence[int], renumbered: Mapping[int, int]) -> Kind:
    """The kind in terms of the machines that are told apart."""
    disliked = tuple(kind.disliked_machines[m] for m in rows) if kind.disliked_machines else ()
    return replace(kind, machines=_renumber(kind.machines, renumbered), disliked_machines=disliked)


def _renumber(machines: frozenset[int], renumbered: Mapping[int, int]) -> frozenset[int]:
    return frozenset(renumbered[m] for m in machines if m in renumbered)


def _kept(census: Census, rows: Sequence[int]) -> Census:
    zoning = census.zoning
    return replace(census, zoning=Zoning(zoning.nodes, tuple(zoning.machines[m] for m in rows)))
