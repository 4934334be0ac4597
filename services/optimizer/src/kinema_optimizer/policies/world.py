"""A cluster as the policies change it: nodes with room, pods by kind, a scheduler, and a way back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import Final, Literal, TypeAlias

import numpy as np

from kinema_core.events import Amounts, FrozenMap, HostPort, Labels, Node, NodeTerm, Offer, Pod, Taint
from kinema_core.model.catalog import keeping_unpriced, machine_of, new_node_labels, node_prices
from kinema_core.model.cluster import Cluster
from kinema_core.model.commitments import covered_nodes
from kinema_core.model.daemons import daemon_requests, is_resident, resident_requests
from kinema_core.model.match import HOSTNAME, node_admits, node_term_matches, parse_taints
from kinema_core.model.mobility import Mobility, MobilityOptions, listed, mobility, spot_allowed
from kinema_core.model.resources import limited, subtract, total
from kinema_core.model.stock import draws, left_of, most_of
from kinema_optimizer.policies.topology import Flags, Ints, Places, Topology

NEW_NODE: Final = "policy-new-node"
"""Stands for the name of a node that does not exist yet."""

_PLENTY: Final = 2**60
"""Stands for no limit."""
NOWHERE: Final = -1
_NO_OPTIONS: Final = MobilityOptions(hold_restless=False)
_Change: TypeAlias = tuple[str, int, int]
"""Pod key (empty: the node itself), node before, node after."""
Score: TypeAlias = Literal["least-allocated", "most-allocated"]


@dataclass(eq=False)
class Site:
    """A node that exists, or would if its offer were bought."""

    name: str
    labels: Labels
    taints: tuple[Taint, ...]
    price: int
    """Micro-USD per hour."""
    allocatable: Amounts
    room: Amounts
    """For pods that are no daemons."""
    open: bool
    spot: bool
    node: Node | None = None
    offer: Offer | None = None
    domains: dict[str, int] = field(default_factory=dict)
    """Topology key → number of the domain."""
    pods: dict[str, None] = field(default_factory=dict)
    """Keys of the pods here, in order of arrival."""

    @property
    def machine(self) -> str:
        """The machine type."""
        if self.node is not None:
            return machine_of(self.node)[0]
        return self.offer.machine_type if self.offer is not None else ""


@dataclass(frozen=True, eq=False)
class Kind:
    """Pods that the scheduler cannot distinguish."""

    index: int
    pod: Pod
    requests: Ints
    asks: Ints
    """Indices of the resources that it requests."""
    places: tuple[tuple[NodeTerm, ...], ...]
    """Nodes from which its volumes can be reached: one alternative of each has to match."""


def is_spot(node: Node) -> bool:
    """Return whether a live node is spot capacity."""
    return machine_of(node)[2] == "spot"


def resources_of(pods: Iterable[Pod]) -> tuple[str, ...]:
    """Return CPU, memory, then every other resource and host port that some pod requests, by name."""
    named = {name for pod in pods for name, amount in asked(pod).items() if amount}
    return ("cpu", "memory", *sorted(named - {"cpu", "memory"}))


def asked(pod: Pod) -> Amounts:
    """Return the pod's requests; host ports are resources of which each node has one."""
    if not pod.rules.host_ports:
        return pod.requests
    return FrozenMap({**pod.requests, **{_port(port): 1 for port in pod.rules.host_ports}})


def _port(port: HostPort) -> str:
    return f"port:{port.protocol}/{port.port}"


def kinds_of(
    cluster: Cluster, pods: Iterable[Pod], resources: Sequence[str]
) -> tuple[tuple[Kind, ...], dict[str, int]]:
    """Return the kinds, and the kind of each pod key."""
    known: dict[tuple[object, ...], int] = {}
    kinds: list[Kind] = []
    kind_of: dict[str, int] = {}
    last: dict[str, int] = {}
    for pod in pods:
        owner = pod.owner.uid if pod.owner else pod.uid
        before = last.get(owner)  # most pods are like the one before: to compare takes less than to hash
        if before is None or not _alike(kinds[before].pod, pod):
            key = (pod.namespace, owner, pod.labels, pod.annotations, pod.rules, pod.requests, pod.priority)
            if key not in known:
                amounts = asked(pod)
                requests = np.array([amounts.get(name, 0) for name in resources], dtype=np.int64)
                known[key] = len(kinds)
                kinds.append(Kind(known[key], pod, requests, np.flatnonzero(requests), _volume_places(cluster, pod)))
            last[owner] = known[key]
        kind_of[pod.key] = last[owner]
    return tuple(kinds), kind_of


def _alike(one: Pod, other: Pod) -> bool:
    """Return whether the scheduler cannot distinguish two pods of one owner."""
    return (
        one.namespace == other.namespace
        and one.labels == other.labels
        and one.annotations == other.annotations
        and one.rules == other.rules
        and one.requests == other.requests
        and one.priority == other.priority
    )


def _volume_places(cluster: Cluster, pod: Pod) -> tuple[tuple[NodeTerm, ...], ...]:
    volumes = {volume.name: volume for volume in cluster.volumes} if pod.rules.claims else {}
    claims = {claim.key: claim for claim in cluster.claims} if pod.rules.claims else {}
    found = []
    for name in pod.rules.claims:
        claim = claims.get(f"{pod.namespace}/{name}")
        volume = None if claim is None else volumes.get(claim.volume or "")
        if volume is not None and volume.node_terms is not None:
            found.append(volume.node_terms)
    return tuple(found)


def live_site(cluster: Cluster, node: Node, *, price: int, open_: bool) -> Site:
    """Read a live node: its resident and terminating pods keep their room."""
    here = cluster.pods_by_node.get(node.name, ())
    leaving = [pod for pod in here if pod.terminating and not is_resident(cluster, pod)]
    taken = total([resident_requests(cluster, node), *(pod.requests for pod in leaving)])
    ports = {
        _port(port): 0 for pod in here if is_resident(cluster, pod) or pod.terminating for port in pod.rules.host_ports
    }
    return Site(
        name=node.name,
        labels=node.labels,
        taints=node.taints,
        price=price,
        allocatable=node.allocatable,
        room=FrozenMap({**subtract(node.allocatable, taken), **ports}),
        open=open_,
        spot=is_spot(node),
        node=node,
    )


def new_site(cluster: Cluster, offer: Offer, name: str = NEW_NODE) -> Site:
    """Return a node of the offer without the room of its daemons."""
    labels, taints = new_node_labels(offer, name), parse_taints(offer.taints)
    daemons = daemon_requests(cluster, name=name, labels=labels, taints=taints)
    return Site(
        name=name,
        labels=labels,
        taints=taints,
        price=offer.micro_usd_per_hour,
        allocatable=offer.allocatable,
        room=subtract(offer.allocatable, daemons),
        open=True,
        spot=offer.capacity_type == "spot",
        offer=offer,
    )


def vector(room: Amounts, resources: Sequence[str]) -> list[int]:
    """Return a node's amounts in the order of the resources."""
    return [room.get(name, _default(name)) for name in resources]


def _default(name: str) -> int:
    if name.startswith("port:"):
        return 1
    return 0 if limited(name) else _PLENTY


class World:
    """The state of a simulation. Nodes keep their index; those that are gone are no longer `alive`."""

    def __init__(
        self,
        cluster: Cluster,
        offers: Sequence[Offer],
        now: datetime,
        options: MobilityOptions = _NO_OPTIONS,
        coming: Collection[str] = (),
    ) -> None:
        """`coming`: names of nodes of the cluster that are on their way, shown as they will be."""
        self.cluster = cluster
        self.mobility: Mobility = keeping_unpriced(mobility(cluster, now, options), cluster, offers)
        self.pods: dict[str, Pod] = {pod.key: pod for pod in listed(cluster)}
        self.resources = resources_of(self.pods.values())
        self.kinds, self.kind_of = kinds_of(cluster, self.pods.values(), self.resources)
        self.topology = Topology(cluster, [kind.pod for kind in self.kinds], self.kind_of)
        self.covered = frozenset(covered_nodes(cluster, offers))
        """Live nodes that a commitment covers."""
        self.offers = tuple(self._open_offers(offers))
        self.templates = tuple(new_site(cluster, offer) for offer in self.offers)
        self.template_room: Ints = np.array(
            [vector(site.room, self.resources) for site in self.templates], dtype=np.int64
        ).reshape(-1, len(self.resources))
        self.template_price: Ints = np.array([site.price for site in self.templates], dtype=np.int64)
        types: dict[tuple[str, bool], int] = {}
        self.template_type: Ints = np.array(
            [types.setdefault((site.machine, site.spot), len(types)) for site in self.templates], dtype=np.int64
        )
        """(O,): numbers that are equal for offers of one machine type and capacity type."""
        self._limited = any(draws(offer) for offer in self.offers)
        self.empties = False
        """Nodes are emptied first and bought later: what is on sale counts as a domain for spread, too."""
        self.sites: list[Site] = []
        self.where: dict[str, int] = dict.fromkeys(self.pods, NOWHERE)
        self.bought: Counter[str] = Counter()
        """New nodes by the name of their offer."""
        self._left: dict[str, int | None] | None = None
        self._options = options
        self._size = max(64, 2 * len(cluster.nodes))
        self._free: Ints = np.zeros((self._size, len(self.resources)), dtype=np.int64)
        self._total: Ints = np.ones((self._size, len(self.resources)), dtype=np.int64)
        self._alive: Flags = np.zeros(self._size, dtype=np.bool_)
        self._places = {key: np.full(self._size, -1, dtype=np.int64) for key in self.topology.keys}
        self._admitted: dict[tuple[object, ...], Flags] = {}
        self._offered: dict[int, Flags] = {}
        self._log: list[_Change] = []
        self._new = 0
        self._spot = any(site.spot for site in self.templates) or any(is_spot(node) for node in cluster.nodes)
        self._of_kind = self.by_kind(self.pods)
        self._lacking: frozenset[tuple[int, int]] = frozenset()
        self._fill(node_prices(cluster, offers))
        self.coming = frozenset(index for index, site in enumerate(self.sites) if site.name in coming)
        """Nodes that are on their way."""

    def _fill(self, prices: Mapping[str, int]) -> None:
        for site in self.templates:
            site.domains = self._domains(site)
        index = {}
        for node in self.cluster.nodes:
            open_ = node.name in self.mobility.open_nodes
            index[node.name] = self._add(live_site(self.cluster, node, price=prices[node.name], open_=open_))
        for pod in self.pods.values():
            if pod.node in index:
                self._put(pod.key, index[pod.node])
        self._lacking = frozenset(
            (kind, index)
            for kind in self.topology.needing()
            for index in {self.where[pod] for pod in self._of_kind[kind]} - {NOWHERE}
            if self.topology.deserted(kind, self.sites[index].domains)
        )

    def _open_offers(self, offers: Sequence[Offer]) -> Iterable[Offer]:
        """Yield offers on sale, but none in a domain without a node: it would break the spread of running pods."""
        keys = {key for kind in range(len(self.kinds)) for key in self.topology.spread_keys(kind)}
        known = {key: {node.labels.get(key) for node in self.cluster.nodes} for key in sorted(keys - {HOSTNAME})}
        for offer in offers:
            closed = any(domains and offer.labels.get(key) not in domains for key, domains in known.items())
            if most_of(offer) != 0 and not closed:
                yield offer

    # --- nodes

    @property
    def alive(self) -> Flags:
        """(S,): the nodes that are there."""
        return self._alive[: len(self.sites)]

    @property
    def free(self) -> Ints:
        """(S, R): what each node has left."""
        return self._free[: len(self.sites)]

    @property
    def total(self) -> Ints:
        """(S, R): what each node has for everything on it, daemons included."""
        return self._total[: len(self.sites)]

    def live(self) -> list[int]:
        """Return the nodes that exist, by index."""
        return [int(index) for index in np.flatnonzero(self.alive)]

    @property
    def cost(self) -> int:
        """Micro-USD per hour of the nodes that exist."""
        return sum(self.sites[index].price for index in self.live())

    def buy(self, offer: int, prefix: str) -> int:
        """Buy a node of an offer; return its index."""
        self._new += 1
        while self.cluster.node(name := f"{prefix}-{self.cluster.version}-{self._new}") is not None:
            self._new += 1
        self.bought[self.offers[offer].name] += 1
        self._left = None
        index = self._add(new_site(self.cluster, self.offers[offer], name))
        self._log.append(("", NOWHERE, index))
        return index

    @property
    def to_be_had(self) -> Flags:
        """(O,): offers that are not sold out."""
        if not self._limited:
            return np.ones(len(self.offers), dtype=np.bool_)
        return np.array([self.left(offer) != 0 for offer in range(len(self.offers))], dtype=np.bool_)

    def left(self, offer: int) -> int | None:
        """Return how many more of an offer can be bought; None: any number."""
        if not self._limited:
            return None
        if self._left is None:
            self._left = left_of(self.offers, self.bought)
        return self._left[self.offers[offer].name]

    def remove(self, index: int) -> None:
        """Remove a node; its pods must have gone before."""
        self._alive[index] = False
        self._log.append(("", index, NOWHERE))

    def _add(self, site: Site) -> int:
        index = len(self.sites)
        if index == self._size:
            self._grow()
        self.sites.append(site)
        self._free[index] = vector(site.room, self.resources)
        self._total[index] = np.maximum(vector(site.allocatable, self.resources), 1)
        self._alive[index] = True
        site.domains = self._domains(site)
        for key, domain in site.domains.items():
            self._places[key][index] = domain
        return index

    def _domains(self, site: Site) -> dict[str, int]:
        return {key: self.topology.domain(key, site.labels) for key in self.topology.keys}

    def _grow(self) -> None:
        self._size *= 2
        self._free = np.concatenate([self._free, np.zeros_like(self._free)])
        self._total = np.concatenate([self._total, np.ones_like(self._total)])
        self._alive = np.concatenate([self._alive, np.zeros_like(self._alive)])
        self._places = {key: np.concatenate([old, np.full_like(old, -1)]) for key, old in self._places.items()}

    # --- fitting

    def fits(self, kind: int, since: int = 0) -> Flags:
        """Return (S - since,): whether each node, from that index on, takes one more pod of the kind."""
        mine = self.kinds[kind]
        found: Flags = self.alive[since:] & self.admitted(kind)[since:]
        for resource in mine.asks:
            found &= self.free[since:, resource] >= mine.requests[resource]
        if self.topology.concerns(kind):
            places = {key: domains[since:] for key, domains in self.places.items()}
            ruled = self.topology.admits(kind, places, self.eligible(kind))
            if ruled is not None:
                found &= ruled
        return found

    def fits_new(self, kind: int, offer: int) -> bool:
        """Return whether rules between pods allow the kind on an empty new node of an offer."""
        domains = self.templates[offer].domains
        places = {key: np.array([domains[key]]) for key in self.topology.keys}
        found = self.topology.admits(kind, places, self.eligible(kind))
        return found is None or bool(found[0])

    def deserted(self) -> bool:
        """Return whether a pod lacks one that its required affinity needs and that it had at the start."""
        return any(
            self.topology.deserted(kind, self.sites[index].domains)
            for kind in self.topology.needing()
            for index in sorted({self.where[pod] for pod in self._of_kind[kind]})
            if index != NOWHERE and (kind, index) not in self._lacking
        )

    @property
    def places(self) -> Places:
        """Domains of every node."""
        return {key: domains[: len(self.sites)] for key, domains in self._places.items()}

    def eligible(self, kind: int) -> Places:
        """Return domains that count for the kind's spread: those of the nodes that its own rules allow."""
        keys = self.topology.spread_keys(kind)
        if not keys:
            return {}
        counts = self.alive & self.admitted(kind)
        found = {key: np.unique(self._places[key][: len(self.sites)][counts]) for key in keys}
        for key in keys if self.empties else ():
            more = [
                site.domains[key] for site, admits in zip(self.templates, self.offered(kind), strict=True) if admits
            ]
            found[key] = np.unique([*found[key].tolist(), *more]).astype(np.int64)
        return {key: domains[domains >= 0] for key, domains in found.items()}

    def most(self, kind: int, free: Ints) -> Ints:
        """Return how many pods of the kind each row of `free` holds, by resources alone."""
        mine = self.kinds[kind]
        if not len(mine.asks):
            return np.full(len(free), 2**31, dtype=np.int64)
        first, *more = (np.maximum(free[:, resource], 0) // mine.requests[resource] for resource in mine.asks)
        found: Ints = np.minimum(first, 2**31)
        for room in more:
            np.minimum(found, room, out=found)
        return found

    def room(self, kind: int) -> Ints:
        """Return (S,): how many more pods of the kind each node takes, rules between pods aside."""
        return self.most(kind, self.free) * (self.alive & self.admitted(kind))

    def admitted(self, kind: int) -> Flags:
        """Return (S,): nodes that the pod's own rules and the nodes' taints allow, room aside."""
        rule = self._rule(kind)
        known = self._admitted.get(rule)
        have = 0 if known is None else len(known)
        if known is None or have < len(self.sites):
            more = np.array([self._allows(kind, site) for site in self.sites[have:]], dtype=np.bool_)
            known = more if known is None else np.concatenate([known, more])
            self._admitted[rule] = known
        return known

    def offered(self, kind: int) -> Flags:
        """Return (O,): offers that would hold a pod of the kind on an empty node, rules between pods aside."""
        if kind not in self._offered:
            allowed = np.array([self._allows(kind, site) for site in self.templates], dtype=np.bool_)
            self._offered[kind] = allowed & (self.template_room >= self.kinds[kind].requests).all(axis=1)
        return self._offered[kind]

    def _allows(self, kind: int, site: Site) -> bool:
        mine, pod = self.kinds[kind], self.kinds[kind].pod
        if not site.open:
            return False
        if site.spot:
            asking = frozenset(taint.key for taint in site.taints)
            if not spot_allowed(self.cluster, pod, taint_keys=asking, options=self._options):
                return False
        if node_admits(pod.rules, name=site.name, labels=site.labels, taints=site.taints) is not None:
            return False
        return all(
            any(node_term_matches(term, name=site.name, labels=site.labels) for term in terms) for terms in mine.places
        )

    def _rule(self, kind: int) -> tuple[object, ...]:
        """Return a key that kinds admitted by the same nodes share; with spot capacity each kind has its own."""
        mine = self.kinds[kind]
        rules = mine.pod.rules
        alone = kind if self._spot else NOWHERE
        return (rules.node_selector, rules.node_terms, rules.tolerations, mine.places, alone)

    # --- pods

    def place(self, pod: str, index: int) -> None:
        """Put a pod, waiting or running elsewhere, on a node."""
        before = self.where[pod]
        if before != NOWHERE:
            self._take(pod)
        self._put(pod, index)
        self._log.append((pod, before, index))

    def unplace(self, pod: str) -> None:
        """Take a pod off its node; it waits."""
        before = self.where[pod]
        self._take(pod)
        self._log.append((pod, before, NOWHERE))

    def evict(self, nodes: Sequence[int]) -> list[str]:
        """Take all pods off these nodes and remove them; return the pods."""
        pods = [pod for index in nodes for pod in self.sites[index].pods]
        for pod in pods:
            self.unplace(pod)
        for index in nodes:
            self.remove(index)
        return pods

    def _put(self, pod: str, index: int) -> None:
        kind = self.kind_of[pod]
        self._free[index] -= self.kinds[kind].requests
        self.topology.add(kind, self.sites[index].domains, 1)
        self.sites[index].pods[pod] = None
        self.where[pod] = index

    def _take(self, pod: str) -> None:
        index, kind = self.where[pod], self.kind_of[pod]
        self._free[index] += self.kinds[kind].requests
        self.topology.add(kind, self.sites[index].domains, -1)
        del self.sites[index].pods[pod]
        self.where[pod] = NOWHERE

    def waiting(self) -> list[str]:
        """Return keys of pods without a node that may be placed."""
        return [pod for pod in self.pods if self.where[pod] == NOWHERE and pod not in self.mobility.held]

    def by_kind(self, pods: Iterable[str]) -> dict[int, list[str]]:
        """Group pods by kind, both in the order given."""
        found: dict[int, list[str]] = {}
        for pod in pods:
            found.setdefault(self.kind_of[pod], []).append(pod)
        return found

    # --- the way back

    def mark(self) -> int:
        """Return a point to come back to."""
        return len(self._log)

    def back_to(self, mark: int) -> None:
        """Undo every change since the mark, bought nodes included."""
        while len(self._log) > mark:
            pod, before, after = self._log.pop()
            if not pod:
                self._back_on_nodes(before, after)
                continue
            if after != NOWHERE:
                self._take(pod)
            if before != NOWHERE:
                self._put(pod, before)

    def _back_on_nodes(self, before: int, after: int) -> None:
        if before != NOWHERE:
            self._alive[before] = True
            return
        site = self.sites.pop()
        self._new -= 1
        self._alive[after] = False
        for domains in self._places.values():
            domains[after] = NOWHERE
        if site.offer is not None:
            self.bought[site.offer.name] -= 1
            self._left = None
        for rule, known in self._admitted.items():
            self._admitted[rule] = known[: len(self.sites)]


def in_turn(name: str, order: int) -> bytes:
    """Return by what equals are sorted: their name in order 0, in others a hash, as chance orders them upstream."""
    return sha256(f"{order}/{name}".encode()).digest() if order else name.encode()


def bind(world: World, pods: Iterable[str], score: Score, avoid: Flags | None = None) -> list[str]:
    """Bind waiting pods by priority and name; gives those that fit nowhere, however often they try.

    The score is that of kube-scheduler's fit plugin: the mean free share of CPU and memory with the pod on the node,
    highest or lowest first; ties by the node's index. Nodes to `avoid` (a taint PreferNoSchedule) come last. Other
    scores are left out.
    """
    left = sorted(pods, key=lambda key: (-world.pods[key].priority, key))
    while left:
        before = len(left)
        left = [pod for pod in left if not _bound(world, pod, score, avoid)]
        if len(left) == before or not any(world.topology.concerns(world.kind_of[pod]) for pod in left):
            break
    return left


def _bound(world: World, pod: str, score: Score, avoid: Flags | None) -> bool:
    index = best(world, world.kind_of[pod], score, avoid)
    if index is not None:
        world.place(pod, index)
    return index is not None


def best(world: World, kind: int, score: Score, avoid: Flags | None = None) -> int | None:
    """Return the node that the scheduler would choose; None when none takes the pod."""
    takes = np.flatnonzero(world.fits(kind))
    if not len(takes):
        return None
    if avoid is not None:
        wanted = takes[~avoid[takes]]
        takes = wanted if len(wanted) else takes
    # In thousandths, as whole numbers: no comparison hangs on a float's last digit.
    left = world.free[takes, :2] - world.kinds[kind].requests[:2]
    share = (1000 * left // world.total[takes, :2]).sum(axis=1)
    chosen = share.argmax() if score == "least-allocated" else share.argmin()
    return int(takes[int(chosen)])
