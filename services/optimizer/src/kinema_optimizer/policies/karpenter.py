"""Karpenter: provisioning, and consolidation by emptiness, of several nodes at once, and of single nodes.

Reproduced from its documented behavior (1.14 and later). `tick` is one of its loops: a command waits for its
validation, and disrupts a tenth of the nodes at most, the budget of a node pool that sets none. Nodes for which it has
nominated pods are left alone for a while, and no command counts on nodes that are on their way. `propose` runs it to
its end, where nothing is disrupted at once with anything else. Left out: batching, drift and expiry, the Balanced
policy, preferences.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final, Literal, NamedTuple

import numpy as np

from kinema_core.events import FrozenMap, Offer, Pod
from kinema_core.model.budgets import budgets_by_pod
from kinema_core.model.cluster import Cluster
from kinema_core.model.foreign import foreign_deletion
from kinema_core.model.match import HOSTNAME
from kinema_optimizer.policies.policy import Outcome, Tick
from kinema_optimizer.policies.proposal import Proposal, Step, proposal
from kinema_optimizer.policies.topology import Flags, Ints, Places
from kinema_optimizer.policies.world import NOWHERE, Score, Site, World, bind, in_turn

_MOST_COMMANDS: Final = 2_000
"""A bound on the loop, above what any cluster of the benchmarks takes."""
_PATIENCE: Final = 100
"""Commands without a new lowest cost, after which it goes in circles."""
_BINDING_ROUNDS: Final = 3
_EMPTY: Final = "delete-empty"
_REPLACES: Final = "replace"
NOMINATED: Final = "nominated/"
"""What is remembered besides the command that waits: when a node was last chosen for pods of others."""
_ONE: Final = 2**25
"""An ordinary eviction, in the unit in which priorities count."""
_EXACT: Final = 10**9


@dataclass(eq=False)
class Claim:
    """A node to be bought: its type is left open among those that hold its pods."""

    options: Flags
    """(O,): offers that would do."""
    load: Ints
    domains: dict[str, int]
    """Topology domains, as far as they are settled; the host name always is."""
    pods: list[str] = field(default_factory=list)
    counted: Counter[int] = field(default_factory=Counter)
    """Pods by kind that rules between pods count here."""


@dataclass(frozen=True)
class Simulated:
    """Result of a simulation. Pods on existing nodes are placed in the world already."""

    claims: tuple[Claim, ...]
    failed: tuple[str, ...]


class Simulation:
    """One simulation on a world; `forget` takes the claims' pods out of its counts again."""

    def __init__(self, world: World, most_claims: int | None = None, offers: Flags | None = None) -> None:
        self._world = world
        self._most = most_claims
        self._free_offers = world.to_be_had if offers is None else world.to_be_had & offers
        self._claims: list[Claim] = []

    def run(self, pods: Sequence[str], *, all_or_none: bool = False) -> Simulated:
        """Place waiting pods, the largest CPU request first, then memory; kinds keep together.

        Pods that fail try again as long as others found a place that they may need. With `all_or_none` it
        ends as soon as a pod fails that no other could help.
        """
        failed = list(pods)
        while failed:
            before = len(failed)
            failed = self._pass(failed, all_or_none=all_or_none)
            if len(failed) == before or (failed and all_or_none and self._hopeless(failed)):
                break
        return Simulated(tuple(self._claims), tuple(failed))

    def _pass(self, pods: Sequence[str], *, all_or_none: bool) -> list[str]:
        groups = self._world.by_kind(sorted(pods))
        failed: list[str] = []
        for kind in sorted(groups, key=self._size):
            left = self._existing(kind, groups[kind])
            if left and self._world.topology.concerns(kind):
                failed += self._claimed_ruled(kind, left)
            elif left:
                failed += self._claimed(kind, left)
                if failed and all_or_none and self._hopeless(failed):
                    break
        return failed

    def _hopeless(self, pods: Sequence[str]) -> bool:
        return any(not self._world.topology.concerns(self._world.kind_of[pod]) for pod in pods)

    def forget(self) -> None:
        """Stop counting the pods of the claims."""
        for claim in self._claims:
            for kind, count in claim.counted.items():
                self._world.topology.add(kind, claim.domains, -count)
        self._claims = []

    def _size(self, kind: int) -> tuple[int, int, int]:
        requests = self._world.kinds[kind].requests
        return -int(requests[0]), -int(requests[1]), kind

    def _existing(self, kind: int, pods: list[str]) -> list[str]:
        """Place pods by first fit over the nodes; return those that fit nowhere."""
        world, left = self._world, list(reversed(pods))
        if not world.topology.concerns(kind):
            room = world.room(kind)
            for index in self._in_order(room):
                for _ in range(min(int(room[index]), len(left))):
                    world.place(left.pop(), index)
                if not left:
                    break
            return left[::-1]
        while left:
            takes = self._in_order(world.fits(kind))
            if not takes:
                break
            world.place(left.pop(), takes[0])
        return left[::-1]

    def _in_order(self, takes: Flags | Ints) -> list[int]:
        """Return the nodes that take pods, by index; those that are on their way last."""
        found: list[int] = np.flatnonzero(takes).tolist()
        if self._world.coming:
            found.sort(key=self._world.coming.__contains__)
        return found

    # --- kinds that no rule between pods is about

    def _claimed(self, kind: int, pods: list[str]) -> list[str]:
        """Place each pod on the claim with the fewest pods, else on a new one; return those that fit on none."""
        world = self._world
        offered = world.offered(kind) & self._free_offers
        room = [self._room(kind, claim.options & offered, claim.load) for claim in self._claims]
        queue = [(len(claim.pods), index) for index, claim in enumerate(self._claims) if room[index]]
        heapq.heapify(queue)
        fresh: int | None = None
        touched: set[int] = set()
        for position, pod in enumerate(pods):
            if not queue:
                if fresh is None and len(self._claims) != self._most:
                    fresh = self._room(kind, offered, np.zeros_like(world.kinds[kind].requests))
                if not fresh or len(self._claims) == self._most:
                    self._narrow(kind, offered, touched)
                    return pods[position:]
                self._open(offered)
                room.append(fresh)
                queue.append((0, len(self._claims) - 1))
            count, index = heapq.heappop(queue)
            self._claims[index].pods.append(pod)
            self._claims[index].load += world.kinds[kind].requests
            touched.add(index)
            room[index] -= 1
            if room[index]:
                heapq.heappush(queue, (count + 1, index))
        self._narrow(kind, offered, touched)
        return []

    def _room(self, kind: int, options: Flags, load: Ints) -> int:
        """Return how many more pods of the kind a claim takes on the best of its options."""
        if not options.any():
            return 0
        return int(self._world.most(kind, self._world.template_room[options] - load).max())

    def _narrow(self, kind: int, offered: Flags, touched: set[int]) -> None:
        for index in sorted(touched):
            claim = self._claims[index]
            claim.options &= offered & (self._world.template_room >= claim.load).all(axis=1)

    def _open(self, options: Flags) -> Claim:
        name = f"claim-{len(self._claims)}"
        host = self._world.topology.domain(HOSTNAME, FrozenMap({HOSTNAME: name}))
        claim = Claim(options.copy(), np.zeros(len(self._world.resources), dtype=np.int64), {HOSTNAME: host})
        self._claims.append(claim)
        return claim

    # --- kinds that they are about

    def _claimed_ruled(self, kind: int, pods: list[str]) -> list[str]:
        for position, pod in enumerate(pods):
            ordered = sorted(self._claims, key=lambda claim: len(claim.pods))
            if any(self._join(claim, kind, pod) for claim in ordered):
                continue
            if len(self._claims) == self._most:
                return pods[position:]
            if not self._join(self._open(self._free_offers), kind, pod):
                self._claims.pop()
                return pods[position:]
        return []

    def _join(self, claim: Claim, kind: int, pod: str) -> bool:
        world = self._world
        load = claim.load + world.kinds[kind].requests
        options = claim.options & world.offered(kind) & (world.template_room >= load).all(axis=1)
        if not options.any():
            return False
        ruled = world.topology.admits(kind, self._places(claim), world.eligible(kind))
        options &= True if ruled is None else ruled
        if not options.any():
            return False
        if not world.topology.local(kind):
            options = self._settle(claim, options)
        claim.options, claim.load = options, load
        claim.pods.append(pod)
        claim.counted[kind] += 1
        world.topology.add(kind, claim.domains, 1)
        return True

    def _places(self, claim: Claim) -> Places:
        """Return the domains that the claim would be in with each offer."""
        count = len(self._world.offers)
        return {
            key: np.full(count, claim.domains[HOSTNAME])
            if key == HOSTNAME
            else np.array([site.domains[key] for site in self._world.templates], dtype=np.int64)
            for key in self._world.topology.keys
        }

    def _settle(self, claim: Claim, options: Flags) -> Flags:
        """Fix the claim's domains to those of its cheapest option: rules per zone need the zone."""
        world = self._world
        first = min(np.flatnonzero(options).tolist(), key=lambda offer: (world.templates[offer].price, offer))
        settled = {key: domain for key, domain in world.templates[first].domains.items() if key != HOSTNAME}
        claim.domains |= settled
        alike = [all(site.domains[key] == domain for key, domain in settled.items()) for site in self._world.templates]
        return np.asarray(options & np.array(alike, dtype=np.bool_))


def cheapest(world: World, options: Flags) -> int:
    """Return the offer that the provider launches: the lowest price, the first of equals."""
    return min(np.flatnonzero(options).tolist(), key=lambda offer: (world.templates[offer].price, offer))


@dataclass(frozen=True)
class Command:
    """A disruption: nodes that go, and the offers of which the cheapest replaces them; None: nothing does."""

    method: str
    nodes: tuple[int, ...]
    options: Flags | None
    targets: tuple[int, ...] = ()
    """Nodes that stay and that it chooses for pods."""

    def key(self, world: World) -> str:
        """Return the name by which it is remembered, of method, whether it replaces, and nodes."""
        names = ",".join(sorted(world.sites[index].name for index in self.nodes))
        return f"{self.method}/{'' if self.options is None else _REPLACES}/{names}"


class _Point(NamedTuple):
    """A state that can be gone back to."""

    price: int
    mark: int
    steps: int


@dataclass(frozen=True)
class Karpenter:
    """Its settings.

    Attributes:
        name: what it is called in reports.
        binds: `scheduled`: the scheduler binds evicted pods, as it really is; `planned`: they go where the
            simulation put them, which flatters it.
        score: how the scheduler binds.
        most_nodes: nodes that one command may remove.
        budget_percent: share of the nodes that may be disrupted at the same time.
        validation_seconds: how long after it was found a command has to hold to be executed.
        nominated_seconds: how long a node is left alone after it was chosen for pods of others.
        period_seconds: time between two loops.
        order: which of several orders nodes of equal price per disruption are in. 0 is by name; upstream's is that of a
            hash map, and so another one at each loop.
    """

    name: str = "karpenter"
    binds: Literal["scheduled", "planned"] = "scheduled"
    score: Score = "least-allocated"
    most_nodes: int = 100
    budget_percent: int = 10
    validation_seconds: float = 15.0
    nominated_seconds: float = 20.0
    period_seconds: float = 10.0
    order: int = 0

    def tick(self, tick: Tick) -> Outcome:
        """Return one loop: nodes for waiting pods, else a command that was found before and still holds."""
        world = tick.world()
        since = {key: at for key, at in tick.since.items() if tick.now < at + self._lasting(key)}
        found = next((key for key in tick.since if not key.startswith(NOMINATED)), None)
        left = bind(world, world.waiting(), self.score)
        if left:
            steps = self.provision(world, left)
            since |= {} if found is None else {found: tick.since[found]}
        elif found in since:
            steps = []
        else:
            steps, more = self._disrupt(world, tick, found, {key.removeprefix(NOMINATED) for key in since})
            since |= more
        due = min((at + self._lasting(key) for key, at in since.items()), default=None)
        return Outcome(proposal(world, steps, name=self.name), since, due)

    def _lasting(self, key: str) -> timedelta:
        nominated = key.startswith(NOMINATED)
        return timedelta(seconds=self.nominated_seconds if nominated else self.validation_seconds)

    def _disrupt(
        self, world: World, tick: Tick, found: str | None, nominated: Collection[str]
    ) -> tuple[list[Step], dict[str, datetime]]:
        """Execute the command whose time is up, else look for one; return the steps, and what to remember from now."""
        disrupting = {node.name for node in tick.cluster.nodes if foreign_deletion(node) is not None}
        allowed = -(-self.budget_percent * len(tick.cluster.nodes) // 100) - len(disrupting)
        mark = world.mark()
        room, chosen = _room_for_others(world, disrupting)
        # As long as a node is being emptied, the provisioner chooses nodes for its pods again and again.
        since = {NOMINATED + world.sites[index].name: tick.now for index in sorted(chosen)}
        if allowed <= 0 or not room:
            world.back_to(mark)
            return [], since
        within = replace(self, most_nodes=min(self.most_nodes, allowed))
        spared = {*nominated, *(world.sites[index].name for index in chosen)}
        nodes = [index for index in candidates(world, self.order) if world.sites[index].name not in spared]
        command = None if found is None else within._validated(world, nodes, found)
        other = within._within(world, nodes) if command is None else None
        world.back_to(mark)
        if command is None:
            return [], since if other is None else {**since, other.key(world): tick.now}
        steps = self._execute(world, command)
        targets = command.targets if steps else ()
        return steps, since | {NOMINATED + world.sites[index].name: tick.now for index in targets}

    def _validated(self, world: World, nodes: Sequence[int], key: str) -> Command | None:
        """Return a remembered command if it still holds: for empty nodes those that still are, else for all of them."""
        method, replaces, names = key.split("/")
        wanted = set(names.split(","))
        there = tuple(index for index in nodes if world.sites[index].name in wanted)
        if method == _EMPTY:
            empty = tuple(index for index in there if not world.sites[index].pods)[: self.most_nodes]
            return Command(method, empty, None) if empty else None
        if not len(wanted) == len(there) <= self.most_nodes:
            return None
        command = probe(world, there, method)
        same = command is not None and (command.options is not None) == (replaces == _REPLACES)
        return command if same else None

    def _within(self, world: World, nodes: Sequence[int]) -> Command | None:
        """Return the next command that removes no more nodes than it may."""
        command = self._next(world, nodes)
        if command is None or len(command.nodes) <= self.most_nodes:
            return command
        return replace(command, nodes=command.nodes[: self.most_nodes])  # empty nodes: each may go without the others

    def propose(self, cluster: Cluster, offers: Sequence[Offer], now: datetime) -> Proposal:
        """Buy nodes for pending pods, then consolidate until no method finds anything.

        Where the scheduler binds otherwise than was simulated, this need not end: nodes are removed and bought again.
        Then it is cut off when the cluster has not become cheaper for long, at the cheapest state that it was in.
        """
        world = World(cluster, offers, now)
        steps = self.provision(world, world.waiting())
        stuck: set[int] = set()
        cheapest_yet, idle = _Point(world.cost, world.mark(), len(steps)), 0
        while len(steps) < _MOST_COMMANDS and idle < _PATIENCE:
            command = self._next(world, [index for index in candidates(world, self.order) if index not in stuck])
            if command is None:
                break
            done = self._execute(world, command)
            steps += done
            stuck |= set(command.nodes) if not done else set()
            here = _Point(world.cost, world.mark(), len(steps))
            idle = 0 if here.price < cheapest_yet.price else idle + 1
            cheapest_yet = here if here.price < cheapest_yet.price else cheapest_yet
        if world.cost > cheapest_yet.price:
            world.back_to(cheapest_yet.mark)
            steps = steps[: cheapest_yet.steps]
        return proposal(world, steps, name=self.name)

    # --- provisioning

    def provision(self, world: World, pods: Sequence[str]) -> list[Step]:
        """Buy nodes for waiting pods: a claim each, then binding.

        Pods that the scheduler cannot place where it has put the others get another round; after two, the rest goes
        where the simulation says.
        """
        steps: list[Step] = []
        left = list(pods)
        for turn in range(_BINDING_ROUNDS):
            if not left:
                break
            planned = self.binds == "planned" or turn == _BINDING_ROUNDS - 1
            bought = self._buy(world, left, planned=planned)
            if bought:
                steps.append(Step("provision", bought=bought))
            if planned:
                break
            left = bind(world, left, self.score)
        return steps

    @staticmethod
    def _buy(world: World, pods: Sequence[str], *, planned: bool) -> tuple[str, ...]:
        """Buy the nodes that the simulation asks for; with `planned` the pods go where it says."""
        mark = world.mark()
        simulation = Simulation(world)
        claims = simulation.run(pods).claims
        simulation.forget()
        if not planned:
            world.back_to(mark)
        bought = []
        for claim in claims:
            index = world.buy(cheapest(world, claim.options), "karpenter")
            bought.append(world.sites[index].name)
            for pod in claim.pods if planned else ():
                world.place(pod, index)
        return tuple(bought)

    # --- consolidation

    def _next(self, world: World, nodes: Sequence[int]) -> Command | None:
        empty = tuple(index for index in nodes if not world.sites[index].pods)
        if empty:
            return Command(_EMPTY, empty, None)
        return self._several(world, nodes) or self._single(world, nodes)

    def _several(self, world: World, nodes: Sequence[int]) -> Command | None:
        """Return the longest prefix that a binary search finds; it assumes that feasibility is monotone."""
        found, low, high = None, 1, min(self.most_nodes - 1, len(nodes) - 1)
        while low <= high:
            middle = (low + high) // 2
            command = probe(world, nodes[: middle + 1], "consolidate-several")
            if command is None:
                high = middle - 1
            else:
                found, low = command, middle + 1
        return found

    @staticmethod
    def _single(world: World, nodes: Sequence[int]) -> Command | None:
        """Return the first node, not the best, that can go or be replaced by a cheaper one."""
        probes = (probe(world, (index,), "consolidate-single") for index in hopeful(world, nodes))
        return next((command for command in probes if command is not None), None)

    def _execute(self, world: World, command: Command) -> list[Step]:
        """Start the replacement, evict all pods, delete; pods that are left over get new nodes.

        No step when a pod would be left without a node because nothing more is on sale: all stays as it was.
        """
        mark = world.mark()
        names = tuple(world.sites[index].name for index in command.nodes)
        new = None if command.options is None else world.buy(cheapest(world, command.options), "karpenter")
        pods = world.evict(command.nodes)
        bought = () if new is None else (world.sites[new].name,)
        step = Step(command.method, names, bought, evictions=len(pods))
        if self.binds == "scheduled":
            left = bind(world, pods, self.score)
        else:
            left = list(Simulation(world, most_claims=0).run(pods).failed)
        steps = [step, *self.provision(world, left)]
        if world.deserted() or any(world.where[pod] == NOWHERE for pod in pods):
            world.back_to(mark)
            return []
        return steps


def _room_for_others(world: World, disrupting: Collection[str]) -> tuple[bool, set[int]]:
    """Take these nodes, which are being emptied, out of the world; return whether there is room for all their pods.

    Every simulation counts them: room that they need is no room for the pods of further nodes. Returns the nodes that
    it chooses for them as well.
    """
    pods = world.evict([index for index in world.live() if world.sites[index].name in disrupting])
    failed = Simulation(world, most_claims=0).run(pods).failed
    return not failed, {world.where[pod] for pod in pods} - {NOWHERE}


def candidates(world: World, order: int = 0) -> list[int]:
    """Return nodes that may be disrupted: the highest price for the least disruption first, equals in an order."""
    costs = [_cost(kind.pod) for kind in world.kinds]
    rated = [
        (
            -(site.price * _EXACT // (_ONE + sum(costs[world.kind_of[pod]] for pod in site.pods))),
            in_turn(site.name, order),
            index,
        )
        for index in world.live()
        for site in (world.sites[index],)
        if (site.node is None or world.mobility.deletable[site.name] is None) and _evictable(world, site)
    ]
    return [index for _, _, index in sorted(rated)]


def _evictable(world: World, site: Site) -> bool:
    if not world.cluster.budgets:
        return world.mobility.held.keys().isdisjoint(site.pods)
    budgets = budgets_by_pod(world.cluster)
    return all(
        pod not in world.mobility.held and all(budget.allowed >= 1 for budget in budgets.get(pod, ()))
        for pod in site.pods
    )


def _cost(pod: Pod) -> int:
    """Return the cost of evicting the pod, in parts of an ordinary eviction: more the higher its priority."""
    return min(10 * _ONE, max(0, _ONE + pod.priority))


def hopeful(world: World, nodes: Sequence[int]) -> Iterator[int]:
    """Yield the nodes but for those for which a count shows at once that a probe fails.

    More pods of a kind than all the other nodes have room for go to the one new node, and it has to be a cheaper one.
    """
    rooms = {kind.index: world.room(kind.index) for kind in world.kinds if not world.topology.concerns(kind.index)}
    everywhere = {kind: int(room.sum()) for kind, room in rooms.items()}
    for index in nodes:
        load = np.zeros(len(world.resources), dtype=np.int64)
        options = None
        for kind, count in Counter(world.kind_of[pod] for pod in world.sites[index].pods).items():
            left = count - everywhere[kind] + int(rooms[kind][index]) if kind in rooms else 0
            if left > 0:
                load += left * world.kinds[kind].requests
                options = world.offered(kind) if options is None else options & world.offered(kind)
        cheaper = world.template_price < world.sites[index].price
        if options is None or (options & cheaper & (world.template_room >= load).all(axis=1)).any():
            yield index


def probe(world: World, nodes: Sequence[int], method: str) -> Command | None:
    """Return the command that removes these nodes, with one cheaper node or none in their place; None: impossible.

    It is, too, where a pod would only find a place on a node that is on its way.
    """
    mark = world.mark()
    pods = world.evict(nodes)
    # What costs too much can be left out at once: a claim's options only ever shrink.
    cheaper = _below(
        world, sum(world.sites[index].price for index in nodes), np.ones(len(world.offers), dtype=np.bool_)
    )
    simulation = Simulation(world, most_claims=1, offers=cheaper)
    outcome = simulation.run(pods, all_or_none=True)
    deserted = not outcome.failed and world.deserted()
    targets = {world.where[pod] for pod in pods} - {NOWHERE}
    simulation.forget()
    world.back_to(mark)
    if outcome.failed or deserted or not world.coming.isdisjoint(targets):
        return None
    command = Command(method, tuple(nodes), None, tuple(sorted(targets)))
    if not outcome.claims:
        return command
    options = _cheaper(world, nodes, outcome.claims[0].options)
    return replace(command, options=options) if options.any() else None


def _cheaper(world: World, nodes: Sequence[int], options: Flags) -> Flags:
    """Return the options that cost less than the nodes together, whichever of a type's zones is had.

    A replacement for several nodes that is of a type among them must be of one cheaper than the cheapest such node:
    else keeping that node would do as well.
    """
    limit = sum(world.sites[index].price for index in nodes)
    spot = np.array([site.spot for site in world.templates], dtype=np.bool_)
    if (options & spot).any():
        if all(world.sites[index].spot for index in nodes):
            return np.zeros_like(options)  # spot for spot is behind a feature gate
        options = options & spot
    options = _below(world, limit, options)
    if len(nodes) > 1:
        machines = {world.templates[offer].machine for offer in np.flatnonzero(options).tolist()}
        same = [world.sites[index].price for index in nodes if world.sites[index].machine in machines]
        options = _below(world, min(same, default=limit), options)
    return options


def _below(world: World, limit: int, options: Flags) -> Flags:
    """Return the options of machine types that cost less in each of their zones."""
    worst = np.zeros(len(options), dtype=np.int64)
    np.maximum.at(worst, world.template_type[options], world.template_price[options])
    return np.asarray(options & (worst[world.template_type] < limit))
