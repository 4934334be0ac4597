"""Karpenter: provisioning, and consolidation by emptiness, of several nodes at once, and of single nodes.

Reproduced from its documented behavior (1.14 and later). Left out: time (batching, validation), budgets of node pools
(nothing is disrupted at once with anything else), drift and expiry, the Balanced policy, and preferences.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, NamedTuple

import numpy as np

from kinema_core.events import Offer, Pod
from kinema_core.model.budgets import budgets_by_pod
from kinema_core.model.cluster import Cluster
from kinema_sim.policies.binding import Score, bind
from kinema_sim.policies.proposal import Proposal, Step, proposal
from kinema_sim.policies.provisioning import Simulation, cheapest
from kinema_sim.policies.reading import Site
from kinema_sim.policies.topology import Flags
from kinema_sim.policies.world import NOWHERE, World

_MOST_COMMANDS: Final = 2_000
"""A bound on the loop, above what any cluster of the benchmarks takes."""
_PATIENCE: Final = 100
"""Commands without a new lowest cost, after which it goes in circles."""
_BINDING_ROUNDS: Final = 3
_ONE: Final = 2**25
"""An ordinary eviction, in the unit in which priorities count."""
_EXACT: Final = 10**9


@dataclass(frozen=True)
class Command:
    """A disruption: nodes that go, and the offers of which the cheapest replaces them; None: nothing does."""

    method: str
    nodes: tuple[int, ...]
    options: Flags | None


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
    """

    name: str = "karpenter"
    binds: Literal["scheduled", "planned"] = "scheduled"
    score: Score = "least-allocated"
    most_nodes: int = 100

    def propose(self, cluster: Cluster, offers: Sequence[Offer], now: datetime) -> Proposal:
        """Nodes for pending pods, then one consolidation after the other until no method finds any.

        Where the scheduler binds otherwise than was simulated, this need not end: nodes are removed and bought again.
        Then it is cut off when the cluster has not become cheaper for long, at the cheapest state that it was in.
        """
        world = World(cluster, offers, now)
        steps = self.provision(world, world.waiting())
        stuck: set[int] = set()
        cheapest_yet, idle = _Point(_price(world), world.mark(), len(steps)), 0
        while len(steps) < _MOST_COMMANDS and idle < _PATIENCE:
            command = self._next(world, stuck)
            if command is None:
                break
            done = self._execute(world, command)
            steps += done
            stuck |= set(command.nodes) if not done else set()
            here = _Point(_price(world), world.mark(), len(steps))
            idle = 0 if here.price < cheapest_yet.price else idle + 1
            cheapest_yet = here if here.price < cheapest_yet.price else cheapest_yet
        if _price(world) > cheapest_yet.price:
            world.back_to(cheapest_yet.mark)
            steps = steps[: cheapest_yet.steps]
        return proposal(world, steps, name=self.name)

    # --- provisioning

    def provision(self, world: World, pods: Sequence[str]) -> list[Step]:
        """Nodes for waiting pods: a claim each, then binding.

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
        """The nodes that the simulation asks for; with `planned` the pods go where it says."""
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

    def _next(self, world: World, stuck: set[int]) -> Command | None:
        nodes = [index for index in candidates(world) if index not in stuck]
        empty = tuple(index for index in nodes if not world.sites[index].pods)
        if empty:
            return Command("delete-empty", empty, None)
        return self._several(world, nodes) or self._single(world, nodes)

    def _several(self, world: World, nodes: Sequence[int]) -> Command | None:
        """The longest prefix that a binary search finds; feasibility need not be monotone, the search assumes it."""
        found, low, high = None, 1, min(self.most_nodes, len(nodes) - 1)
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
        """The first node, not the best, that can go or be replaced by a cheaper one."""
        probes = (probe(world, (index,), "consolidate-single") for index in hopeful(world, nodes))
        return next((command for command in probes if command is not None), None)

    def _execute(self, world: World, command: Command) -> list[Step]:
        """Start the replacement, evict all pods, delete; pods that are left over get new nodes.

        No step when a pod would be left without a node because nothing more is on sale: all stays as it was.
        """
        mark = world.mark()
        names = tuple(world.sites[index].name for index in command.nodes)
        new = None if command.options is None else world.buy(cheapest(world, command.options), "karpenter")
        pods = [pod for index in command.nodes for pod in world.sites[index].pods]
        for pod in pods:
            world.unplace(pod)
        for index in command.nodes:
            world.remove(index)
        bought = () if new is None else (world.sites[new].name,)
        step = Step(command.method, names, bought, len(pods))
        if self.binds == "scheduled":
            left = bind(world, pods, self.score)
        else:
            left = list(Simulation(world, most_claims=0).run(pods).failed)
        steps = [step, *self.provision(world, left)]
        if world.deserted() or any(world.where[pod] == NOWHERE for pod in pods):
            world.back_to(mark)
            return []
        return steps


def _price(world: World) -> int:
    return sum(world.sites[index].price for index in world.live())


def candidates(world: World) -> list[int]:
    """Nodes that may be disrupted: the highest price for the least disruption first."""
    costs = [_cost(kind.pod) for kind in world.kinds]
    rated = [
        (-(site.price * _EXACT // (_ONE + sum(costs[world.kind_of[pod]] for pod in site.pods))), site.name, index)
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
    """What evicting the pod counts, in parts of an ordinary eviction: more the higher its priority."""
    return min(10 * _ONE, max(0, _ONE + pod.priority))


def hopeful(world: World, nodes: Sequence[int]) -> Iterator[int]:
    """The nodes without those for which a count shows at once that a probe fails.

    More pods of a kind than all the other nodes have room for go to the one new node, and it has to be a cheaper one.
    """
    rooms = {
        kind.index: world.most(kind.index, world.free) * (world.alive & world.admitted(kind.index))
        for kind in world.kinds
        if not world.topology.concerns(kind.index)
    }
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
    """Whether these nodes can go, at most one cheaper node in their place; the world is left as it was."""
    mark = world.mark()
    pods = [pod for index in nodes for pod in world.sites[index].pods]
    for pod in pods:
        world.unplace(pod)
    for index in nodes:
        world.remove(index)
    # What costs too much can be left out at once: a claim's options only ever shrink.
    cheaper = _below(
        world, sum(world.sites[index].price for index in nodes), np.ones(len(world.offers), dtype=np.bool_)
    )
    simulation = Simulation(world, most_claims=1, offers=cheaper)
    outcome = simulation.run(pods, all_or_none=True)
    deserted = not outcome.failed and world.deserted()
    simulation.forget()
    world.back_to(mark)
    if outcome.failed or deserted:
        return None
    if not outcome.claims:
        return Command(method, tuple(nodes), None)
    options = _cheaper(world, nodes, outcome.claims[0].options)
    return Command(method, tuple(nodes), options) if options.any() else None


def _cheaper(world: World, nodes: Sequence[int], options: Flags) -> Flags:
    """The options that cost less than the nodes together, whichever of a type's zones is had.

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
    """The options of machine types that cost less in each of their zones."""
    worst: dict[tuple[str, bool], int] = {}
    for offer in np.flatnonzero(options).tolist():
        site = world.templates[offer]
        worst[site.machine, site.spot] = max(worst.get((site.machine, site.spot), 0), site.price)
    kept = [worst.get((site.machine, site.spot), limit) < limit for site in world.templates]
    return np.asarray(options & np.array(kept, dtype=np.bool_))
