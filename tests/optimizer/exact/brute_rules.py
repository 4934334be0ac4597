"""The best plan by trying everything, with every rule: for tiny clusters only, sharing nothing with the models.

Rules are judged on plain lists of pods and nodes, as their documentation reads: whoever arrives must be accepted by
kube-scheduler; who stays must not be worse off than now; a topology spread is never less even than now, or wanted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations, pairwise, product
from math import floor
from typing import NamedTuple

from tests.optimizer.exact.brute_laws import Laws, Scene, Spot, alive, hard
from tests.support.builders import NOW

from kinema_core.events import Node, NodeTerm, Offer, Pod
from kinema_core.model.catalog import machine_of, new_node_labels, node_prices
from kinema_core.model.cluster import Cluster
from kinema_core.model.daemons import daemon_requests, is_resident, resident_requests, residents_of
from kinema_core.model.disruption_cost import ORDINARY, disruption_cost
from kinema_core.model.match import HOSTNAME, node_admits, node_term_matches, parse_taints, ports_clash
from kinema_core.model.mobility import MobilityOptions, listed, mobility, spot_allowed
from kinema_core.model.resources import limited
from kinema_core.model.strategy import strategy_of

NO_LEAVE = MobilityOptions()
ZONE = "topology.kubernetes.io/zone"
MOST_STEPS = 40_000
"""Partial plans looked at before an instance is called too large to try everything."""


class TooLargeError(Exception):
    """There are too many plans to try them all."""


class Best(NamedTuple):
    """What no plan does better: pods left out by priority (the highest first), cost, moves within 0.1 % of it."""

    lost: tuple[int, ...]
    cost: int
    moves: int


class Brute:
    """All plans of one cluster."""

    def __init__(
        self,
        cluster: Cluster,
        offers: tuple[Offer, ...],
        most_moves: int | None,
        move_price: int,
        *,
        doubled: bool,
        options: MobilityOptions = NO_LEAVE,
    ) -> None:
        self.cluster = cluster
        self.options = options
        self.doubled = doubled
        """Whether spreads over nodes must let arrivals in while nobody has left."""
        self.most_moves = len(cluster.pods) if most_moves is None else most_moves
        self.offers = {one.name: one for one in offers}
        facts = mobility(cluster, NOW)
        self.held = facts.held.keys()
        self.rolling = self._rolling()
        stuck = {key for key in self.rolling if any(pod.key in self.held for pod in cluster.pods_by_workload[key])}
        frozen = {pod.key for key in stuck for pod in cluster.pods_by_workload[key] if pod.node and self._rolls(pod)}
        self.movers = [pod for pod in listed(cluster) if pod.key not in self.held | frozen]
        self.moving = {pod.key for pod in self.movers}
        self.rolling = sorted(set(self.rolling) - stuck)
        pinned = {pod.node for key in stuck for pod in cluster.pods_by_workload[key]}
        prices = node_prices(cluster, offers)
        self.spots = [self._live(node, prices[node.name], node.name in pinned) for node in cluster.nodes]
        self.opened = facts.open_nodes
        self.levels = sorted({pod.priority for pod in self.movers if pod.node is None}, reverse=True)
        self.where_now = [
            (pod, spot.labels) for spot in self.spots for pod in cluster.pods_by_node.get(spot.name, ()) if alive(pod)
        ]
        self.boots: list[Spot] = []
        self.booted: Counter[str] = Counter()
        self.best: tuple[int, ...] | None = None
        self.best_moves = 0
        """Of the plan that is the best so far."""
        self.budget: tuple[tuple[int, ...], int] | None = None
        self.rolled: frozenset[str] = frozenset()
        self.steps = 0
        self.order = sorted(self.movers, key=lambda pod: (pod.node is None, -pod.requests["cpu"], pod.key))
        self.alike = [False, *(_same(a, b) for a, b in pairwise(self.order))]
        """Whether a pod is like the one before it in the order."""
        self.taken = [0] * len(self.movers)
        self.fresh: dict[tuple[str, int], Spot] = {}
        self.pools = {
            one.name: [other.name for other in self.offers.values() if one.pool and other.pool == one.pool]
            or [one.name]
            for one in offers
        }
        self.needs = {id(pod): {**pod.requests, **self._attached(pod)} for pod in self.movers}
        self.homes_first = {
            id(pod): sorted(enumerate(self.spots), key=lambda one: one[1].name != pod.node) for pod in self.movers
        }
        self.by_roll = {pod.key: self._by_roll(pod) for pod in self.movers}
        self.move_prices = {pod.key: move_price * disruption_cost(cluster, pod) // ORDINARY for pod in self.movers}
        """Micro-USD per hour, paid like a node."""
        self.laws = Laws(cluster)
        at = {node.name: node.labels for node in cluster.nodes}
        self.spreads = [(pod, one) for pod in cluster.pods if alive(pod) for one in hard(pod)]
        going = [one for one in cluster.pods if one.terminating and one.node in at]
        self.going = [(one, at[one.node or ""]) for one in going]
        self.bound_on_spot = list(self._bound_on_spot())
        self.near_others = any(term.weight == 0 for pod in cluster.pods for term in pod.rules.affinity)
        self.admitted: dict[tuple[str, str, str], bool] = {}
        """Whether a node by itself admits a pod, by pod, node and offer."""

    # --- who may move

    def _volume_terms(self, pod: Pod, name: str) -> list[NodeTerm] | None:
        """Alternatives for the claim: none for anywhere, None when it is not known."""
        claims = {one.key: one for one in self.cluster.claims}
        claim = claims.get(f"{pod.namespace}/{name}")
        if claim is None:
            return None
        if claim.volume is not None:
            terms = [one.node_terms for one in self.cluster.volumes if one.name == claim.volume]
        else:
            terms = [
                one.node_terms
                for one in self.cluster.storage_classes
                if one.name == claim.storage_class and one.wait_for_consumer
            ]
        return None if not terms else list(terms[0] or ())

    def _rolls(self, pod: Pod) -> bool:
        return pod.key not in self.held and strategy_of(self.cluster, pod) == "rolling"

    def _rolling(self) -> list[str]:
        found = set()
        for pod in listed(self.cluster):
            workload = self.cluster.controller_of(pod)
            if pod.node is not None and workload is not None and self._rolls(pod):
                found.add(workload.key)
        return sorted(found)

    def _by_roll(self, pod: Pod) -> str:
        """The rolling workload whose update alone may move the pod; empty for none."""
        workload = self.cluster.controller_of(pod)
        rolls = workload is not None and workload.key in self.rolling and pod.node is not None and self._rolls(pod)
        return workload.key if workload is not None and rolls else ""

    # --- nodes

    def _live(self, node: Node, price: int, pinned: bool) -> Spot:
        here = self.cluster.pods_by_node.get(node.name, ())
        others = [pod for pod in here if pod.key not in self.moving]
        room = dict(node.allocatable)
        self._take(room, dict(resident_requests(self.cluster, node)))
        for pod in others:
            self._take(room, self._attached(pod))
            if not is_resident(self.cluster, pod):
                self._take(room, dict(pod.requests))
        facts = mobility(self.cluster, NOW)
        machine = machine_of(node)
        keys = {
            taint.key
            for one in self.offers.values()
            if (one.machine_type, one.zone, one.capacity_type) == machine
            for taint in parse_taints(one.taints)
        }
        return Spot(
            name=node.name,
            labels=node.labels,
            taints=node.taints,
            room=room,
            price=price,
            fixed=facts.deletable[node.name] is not None or pinned,
            open=node.name in facts.open_nodes,
            spot=machine[2] == "spot",
            spot_keys=frozenset(keys),
            ports=tuple(port for pod in others for port in pod.rules.host_ports),
            stuck=[pod for pod in others if alive(pod)],
        )

    def _next(self, one: Offer) -> Spot:
        """The new node that would be opened next, if of this offer."""
        key = (one.name, len(self.boots))
        if key not in self.fresh:
            self.fresh[key] = self._new(one)
        return self.fresh[key]

    def _new(self, one: Offer) -> Spot:
        name = f"new-{len(self.boots)}"
        labels, taints = new_node_labels(one, name), parse_taints(one.taints)
        room = dict(one.allocatable)
        self._take(room, dict(daemon_requests(self.cluster, name=name, labels=labels, taints=taints)))
        daemons = [
            daemon
            for daemon in residents_of(self.cluster).daemons
            if node_admits(daemon.rules, name=name, labels=labels, taints=taints) is None
        ]
        return Spot(
            name=name,
            labels=labels,
            taints=taints,
            room=room,
            price=one.micro_usd_per_hour,
            spot=one.capacity_type == "spot",
            spot_keys=frozenset(taint.key for taint in taints),
            ports=tuple(port for daemon in daemons for port in daemon.rules.host_ports),
            offer=one.name,
        )

    @staticmethod
    def _take(room: dict[str, int], amounts: dict[str, int]) -> None:
        for name, amount in amounts.items():
            if name in room or limited(name):
                room[name] = room.get(name, 0) - amount

    def _attached(self, pod: Pod) -> dict[str, int]:
        volumes = {one.name: one for one in self.cluster.volumes}
        found: Counter[str] = Counter()
        for claim in self.cluster.claims:
            if claim.namespace == pod.namespace and claim.name in pod.rules.claims and claim.volume in volumes:
                driver = volumes[claim.volume].driver
                found.update([f"attachable-volumes-csi-{driver}"] if driver else [])
        return dict(found)

    # --- trying

    def search(self) -> Best | None:
        """The best of all plans; None when there is none."""
        self._try_all()
        if self.best is None:
            return None
        *lost, cost = self.best
        self.budget = (tuple(lost), cost + cost // 1000)
        self.best = (self.best_moves,)
        self._try_all()
        return Best(tuple(lost), cost, self.best[0])

    def _try_all(self) -> None:
        paid = sum(spot.price for spot in self.spots if spot.fixed)
        for choice in product([False, True], repeat=len(self.rolling)):
            self.rolled = frozenset(key for key, roll in zip(self.rolling, choice, strict=True) if roll)
            self._place(0, lost=[0] * len(self.levels), paid=paid, moved=0)

    def _value(self, lost: list[int], paid: int, moved: int) -> tuple[int, ...] | None:
        """What the part of a plan is worth, at best; None when it is too dear."""
        if self.budget is None:
            return (*lost, paid)
        return (moved,) if (tuple(lost), paid) <= self.budget and tuple(lost) == self._least(lost) else None

    def _least(self, lost: list[int]) -> tuple[int, ...]:
        assert self.budget is not None
        return tuple(min(a, b) for a, b in zip(lost, self.budget[0], strict=True))

    def _place(self, at: int, *, lost: list[int], paid: int, moved: int) -> None:
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise TooLargeError
        value = self._value(lost, paid, moved)
        if value is None or moved > self.most_moves or (self.best is not None and value >= self.best):
            return
        if at == len(self.order):
            self._leaf(lost, paid, moved)
            return
        pod = self.order[at]
        least = self.taken[at - 1] if self.alike[at] else -1
        rolls = self.by_roll[pod.key] in self.rolled
        may_go = rolls or not self.by_roll[pod.key]
        for rank, spot in self._candidates(pod):
            if rank < least:  # one of two pods that nobody can tell apart: the other way round was tried
                continue
            self.taken[at] = rank
            stays = spot.name == pod.node and not rolls
            if not (stays or may_go) or not self._may_sit(pod, spot, arrives=not stays):
                continue
            price = spot.price if not spot.seats and not spot.fixed else 0
            new = spot.offer != "" and not spot.seats
            if new:
                self.boots.append(spot)
                self.booted[spot.offer] += 1
            spot.seats.append((pod, not stays))
            gone = int(pod.node is not None and spot.name != pod.node)
            price += gone * self.move_prices[pod.key]
            self._place(at + 1, lost=lost, paid=paid + price, moved=moved + gone)
            spot.seats.pop()
            if new:
                self.boots.pop()
                self.booted[spot.offer] -= 1
        if pod.node is None:
            self.taken[at] = len(self.spots) + len(self.order)
            level = self.levels.index(pod.priority)
            more = [n + (index == level) for index, n in enumerate(lost)]
            self._place(at + 1, lost=more, paid=paid, moved=moved)

    def _candidates(self, pod: Pod) -> Iterator[tuple[int, Spot]]:
        """Nodes and their ranks: live ones in order, then new ones in the order in which they were opened."""
        yield from self.homes_first[id(pod)]
        yield from list(enumerate(self.boots, len(self.spots)))
        for one in self.offers.values():
            counted = one.available is None or sum(self.booted[name] for name in self.pools[one.name]) < one.available
            if counted and all(self._under(quota.name) + quota.takes <= quota.left for quota in one.quotas):
                yield len(self.spots) + len(self.boots), self._next(one)

    def _under(self, quota: str) -> int:
        """What new nodes take of a quota."""
        return sum(
            one.takes * self.booted[offer.name]
            for offer in self.offers.values()
            for one in offer.quotas
            if one.name == quota
        )

    def _may_sit(self, pod: Pod, spot: Spot, *, arrives: bool) -> bool:
        if arrives and not self._admitted(pod, spot):
            return False
        wanted = dict(self.needs[id(pod)])
        asked = {name for name, amount in wanted.items() if amount > 0} if arrives else set()
        for other, comes in spot.seats:
            for name, amount in self.needs[id(other)].items():
                wanted[name] = wanted.get(name, 0) + amount
                if comes and amount > 0:
                    asked.add(name)
        room = spot.room
        for name in asked:
            if wanted[name] > room.get(name, 0) and (name in room or limited(name)):
                return False
        ports = pod.rules.host_ports
        if ports and any(
            (comes or arrives) and ports_clash(ports, other.rules.host_ports) for other, comes in spot.seats
        ):
            return False
        return self._keeps_apart(pod, spot, arrives=arrives)

    def _admitted(self, pod: Pod, spot: Spot) -> bool:
        key = (pod.key, spot.name, spot.offer)
        if key not in self.admitted:
            self.admitted[key] = self._admits(pod, spot)
        return self.admitted[key]

    def _admits(self, pod: Pod, spot: Spot) -> bool:
        if not spot.open or ports_clash(pod.rules.host_ports, spot.ports):
            return False
        spotty = spot.spot and spot.name != pod.node
        if spotty and not spot_allowed(self.cluster, pod, taint_keys=spot.spot_keys, options=self.options):
            return False
        if node_admits(pod.rules, name=spot.name, labels=spot.labels, taints=spot.taints) is not None:
            return False
        if any(self.laws.shun(pod, spot.labels, other, there) for other, there in self.going):
            return False  # it is about to go, but there until then
        for claim in pod.rules.claims:
            terms = self._volume_terms(pod, claim)
            assert terms is not None, "a pod with unknown volumes is held"
            if terms and not any(node_term_matches(term, name=spot.name, labels=spot.labels) for term in terms):
                return False
        keys = [one.topology_key for one in pod.rules.spread if one.when_unsatisfiable == "DoNotSchedule"]
        return all(key in spot.labels for key in keys)

    def _keeps_apart(self, pod: Pod, spot: Spot, *, arrives: bool) -> bool:
        """Anti-affinity against everybody who has a seat already, and those that cannot move."""
        if not self.laws.rivals(pod):
            return True
        for other_spot in [*self.spots, *self.boots]:
            held = other_spot.stuck if other_spot.fixed else []
            for other, comes in [*other_spot.seats, *((one, False) for one in held)]:
                if (arrives or comes) and self.laws.shun(pod, spot.labels, other, other_spot.labels):
                    return False
        return True

    # --- whole plans

    def _leaf(self, lost: list[int], paid: int, moved: int) -> None:
        """A complete placement. Empty nodes go, unless the pods that go with them are needed."""
        idle = [spot for spot in self.spots if spot.stuck and not spot.fixed and not spot.seats]
        for size in range(len(idle) + 1):
            for kept in combinations(idle, size):
                price = paid + sum(spot.price for spot in kept)
                value = self._value(lost, price, moved)
                if value is None or (self.best is not None and value >= self.best):
                    continue
                spots = [spot for spot in self.spots if spot.fixed or spot.seats or spot in kept] + self.boots
                if self._lawful(spots) and self._shares_spot(spots):
                    self.best, self.best_moves = value, moved

    def _lawful(self, spots: list[Spot]) -> bool:
        seated = [(pod, spot.labels, comes) for spot in spots for pod, comes in spot.seats]
        stuck = [(pod, spot.labels, False) for spot in spots for pod in spot.stuck]
        beside = [(pod, spot.labels) for spot in spots if not spot.fixed for pod in spot.stuck]
        for pod, at, comes in seated:  # each other they were held against when they sat down
            if comes and self.laws.rivals(pod) and any(self.laws.shun(pod, at, *other) for other in beside):
                return False
        after = seated + stuck
        people = [(pod, at) for pod, at, _ in after]
        for pod, at, comes in after if self.near_others else ():
            for term in pod.rules.affinity:
                if term.weight == 0 and not self.laws.near(pod, at, term, people):
                    now = [labels for other, labels in self.where_now if other is pod]
                    if comes or not now or self.laws.near(pod, now[0], term, self.where_now):
                        return False
        if not self.spreads:
            return True
        scene, before = Scene(spots, after), Scene(self.spots, [(pod, at, False) for pod, at in self.where_now])
        meanwhile = Scene([*self.spots, *self.boots], before.people + [one for one in after if one[2]])
        return all(
            self.laws.even(pod, one, scene, before)
            and (not (self.doubled and self._by_node(one.topology_key)) or self.laws.lets_in(pod, one, meanwhile))
            for pod, one in self.spreads
        )

    def _bound_on_spot(self) -> Iterator[tuple[list[Pod], int, int, Counter[str]]]:
        """Of workloads with a share: pods, most on spot capacity, most in a pool of it, and how many are there now."""
        live = {spot.name: spot for spot in self.spots}
        known = listed(self.cluster)
        for workload, members in self.cluster.pods_by_workload.items():
            pods = [pod for pod in members if pod in known]
            shares = (
                _share_of(self.cluster, workload, self.options.spot_share, pooled=False),
                _share_of(self.cluster, workload, self.options.spot_pool_share, pooled=True),
            )
            if shares != (None, None):
                most = [len(pods) if share is None else floor(Fraction(share) * len(pods)) for share in shares]
                yield pods, most[0], most[1], _on_spot([live.get(pod.node or "") for pod in pods])

    def _shares_spot(self, spots: list[Spot]) -> bool:
        """Whether spot capacity, and each machine type of it in a zone, holds no more of a workload than it may.

        It may hold as many as now.
        """
        if not self.bound_on_spot:
            return True
        where = {id(pod): spot for spot in spots for pod in [*spot.stuck, *(one for one, _ in spot.seats)]}
        return all(
            count <= max(most if part == "spot" else most_of_pool, now[part])
            for pods, most, most_of_pool, now in self.bound_on_spot
            for part, count in _on_spot([where.get(id(pod)) for pod in pods]).items()
        )

    def _by_node(self, key: str) -> bool:
        """Whether every node is a domain by itself."""
        places = [spot.labels.get(key) for spot in self.spots]
        return len(set(places)) == len(places) and (key == HOSTNAME or not self.offers)


def _pool(spot: Spot) -> str:
    return f"{spot.labels['node.kubernetes.io/instance-type']}/{spot.labels.get(ZONE, '-')}"


def _on_spot(where: list[Spot | None]) -> Counter[str]:
    """How many of some pods are on spot capacity, and in each pool of it."""
    return Counter(part for spot in where if spot is not None and spot.spot for part in ("spot", _pool(spot)))


def _share_of(cluster: Cluster, workload: str, default: float | None, *, pooled: bool) -> str | None:
    """The share that the workload's annotation states, else the operator's, as text."""
    owner = cluster.workload(workload)
    key = f"kinema.io/spot-max-share{'-per-pool' if pooled else ''}"
    assert owner is not None
    return owner.annotations.get(key, None if default is None else str(default))


def _same(a: Pod, b: Pod) -> bool:
    """Whether nothing but the name tells two pods apart."""
    facts = [(one.requests, one.rules, one.labels, one.annotations, one.namespace, one.node) for one in (a, b)]
    return facts[0] == facts[1] and a.priority == b.priority and a.owner is not None and a.owner == b.owner


def best_plan(
    cluster: Cluster,
    offers: tuple[Offer, ...],
    most_moves: int | None = None,
    move_price: int = 0,
    *,
    doubled: bool = False,
    options: MobilityOptions = NO_LEAVE,
) -> Best | None:
    """What no plan does better that moves at most so many pods; None when there is no plan at all.

    The cost is that of nodes and moves; an ordinary move costs `move_price` micro-USD per hour. With `doubled` topology
    spreads over nodes let everybody in also while all old copies are there.

    Raises:
        TooLargeError: there are too many plans.
    """
    return Brute(cluster, offers, most_moves, move_price, doubled=doubled, options=options).search()
