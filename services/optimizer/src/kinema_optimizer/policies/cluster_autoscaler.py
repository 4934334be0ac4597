"""The Cluster Autoscaler: scale-up by one group at a time, scale-down of underused nodes.

Reproduced from its documented behavior: one machine type in one zone is a node group. `tick` is one of its loops, with
its timers; `propose` runs it to its end, every node having been unneeded for long enough. Left out: node groups that
fail and its back-off from them, limits of the whole cluster, least sizes of groups.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal, TypeAlias

import numpy as np

from kinema_core.events import Amounts, Offer
from kinema_core.model.budgets import budgets_by_pod
from kinema_core.model.catalog import ZONE, machine_of
from kinema_core.model.cluster import Cluster
from kinema_core.model.match import HOSTNAME
from kinema_core.model.vocabulary import SAFE_TO_EVICT, is_true
from kinema_optimizer.policies.first_fit import by_size, place_in_order
from kinema_optimizer.policies.policy import Outcome, Since, Tick, earliest
from kinema_optimizer.policies.proposal import Proposal, Step, proposal
from kinema_optimizer.policies.topology import Flags, Ints
from kinema_optimizer.policies.world import Score, World, bind, in_turn

_TOLERANCE: Final = 5
"""Per cent by which allocatable and free amounts may differ."""
MOST_NODES = 1000
"""Per scale-up."""
Expander: TypeAlias = Literal["least-waste", "least-nodes", "most-pods", "price"]
_EXACT: Final = 10**9
_MOST_EMPTY: Final = 10
"""Empty nodes that one loop deletes (`--max-empty-bulk-delete`)."""
ADDED: Final = "added"
UNNEEDED: Final = "unneeded/"
"""What is remembered: when nodes were last added, and since when each node has been unneeded."""
DRAINING: Final = "ToBeDeletedByClusterAutoscaler"
"""The taint of a node that it is draining."""
_MOST_ROUNDS: Final = 100
"""Scale-ups and scale-down simulations at most; a bound on the loops, far above what they take."""


def balanced(sizes: Sequence[int], most: Sequence[int | None], new: int) -> tuple[int, ...]:
    """Split `new` nodes over groups: always one to the smallest, the first of equals, never above its most.

    `sizes` are the groups' nodes now; `most` how many each may have, None: any number.
    """
    after = list(sizes)
    for _ in range(new):
        open_ = [(size, group) for group, size in enumerate(after) if most[group] is None or size < (most[group] or 0)]
        if not open_:
            break
        after[min(open_)[1]] += 1
    return tuple(now - before for now, before in zip(after, sizes, strict=True))


def similar(a: Offer, b: Offer, *, free_a: Amounts, free_b: Amounts) -> bool:
    """Return whether two offers are alike: all but zone and host name equal, allocatable and free within 5%."""
    return (
        a.capacity == b.capacity
        and a.capacity_type == b.capacity_type
        and a.taints == b.taints
        and _labels(a) == _labels(b)
        and _near(a.allocatable, b.allocatable)
        and _near(free_a, free_b)
    )


def _labels(offer: Offer) -> dict[str, str]:
    return {key: value for key, value in offer.labels.items() if key not in (*ZONE, HOSTNAME)}


def _near(a: Amounts, b: Amounts) -> bool:
    return all(
        100 * abs(a.get(name, 0) - b.get(name, 0)) <= _TOLERANCE * max(a.get(name, 0), b.get(name, 0))
        for name in sorted(a.keys() | b.keys())
    )


@dataclass(frozen=True)
class Option:
    """One offer, how many nodes of it, and the pods that would get a place."""

    offer: int
    nodes: int
    pods: tuple[str, ...]


def estimate(world: World, offer: int, pods: Sequence[str]) -> Option:
    """Return the option of an offer; without nodes where it would help no pod. The world is left as it was."""
    left = world.left(offer)
    run = _Run(world, offer, MOST_NODES if left is None else min(left, MOST_NODES))
    mark = world.mark()
    for kind, members in by_size(world, pods, world.template_room[offer]):
        if world.offered(kind)[offer]:
            run.group(kind, members)
    placed = tuple(pod for site in world.sites[run.first :] for pod in site.pods)
    nodes = sum(1 for site in world.sites[run.first :] if site.pods)
    world.back_to(mark)
    return Option(offer, nodes, placed)


class _Run:
    """One estimate: the nodes from index `first` on are its own."""

    def __init__(self, world: World, offer: int, limit: int) -> None:
        self._world = world
        self._offer = offer
        self._limit = limit
        self._turn = 0
        self.first = len(world.sites)

    def group(self, kind: int, pods: Sequence[str]) -> None:
        """Place pods of one kind: on any node of the estimate until one misses, then on the last, adding nodes."""
        if self._world.topology.concerns(kind):
            self._ruled(kind, list(pods))
        else:
            self._plain(kind, list(pods))

    def _plain(self, kind: int, pods: list[str]) -> None:
        world = self._world
        room = np.where(world.admitted(kind)[self.first :], world.most(kind, world.free[self.first :]), 0)
        taken = self._round_robin(room, len(pods))
        for index, count in enumerate(taken.tolist()):
            for _ in range(count):
                world.place(pods.pop(), self.first + index)
        while pods and len(world.sites) - self.first < self._limit:
            index = world.buy(self._offer, "estimate")
            holds = int(world.most(kind, world.free[index:])[0])
            if not holds:
                return
            for _ in range(min(holds, len(pods))):
                world.place(pods.pop(), index)

    def _round_robin(self, room: Ints, count: int) -> Ints:
        """Return the pods per node, one per node and turn, from where the last search ended."""
        taken = np.zeros_like(room)
        order = np.roll(np.arange(len(room)), -self._turn)
        while count:
            takers = order[room[order] > taken[order]][:count]
            if not len(takers):
                break
            taken[takers] += 1
            count -= len(takers)
            self._turn = (int(takers[-1]) + 1) % len(room)
        return taken

    def _ruled(self, kind: int, pods: list[str]) -> None:
        """Place pods one by one, for kinds that rules between pods are about."""
        world = self._world
        while pods:
            takes = np.flatnonzero(world.fits(kind, self.first))
            if not len(takes):
                if len(world.sites) - self.first >= self._limit or not world.fits_new(kind, self._offer):
                    return
                world.buy(self._offer, "estimate")
                takes = np.flatnonzero(world.fits(kind, self.first))
                if not len(takes):
                    return
            later = takes[takes >= self._turn]
            index = int(later[0] if len(later) else takes[0])
            world.place(pods.pop(), self.first + index)
            self._turn = index + 1


@dataclass(frozen=True)
class ClusterAutoscaler:
    """Its settings; the defaults are upstream's.

    Attributes:
        name: what it is called in reports.
        expander: which option wins; ties go to the first offer (upstream: to chance).
        balance: spread new nodes over similar groups.
        threshold: share of a node's allocatable, in thousandths, up to which it counts as underused.
        score: how the scheduler binds the pods.
        unneeded_seconds: how long a node has to be unneeded before it goes (`--scale-down-unneeded-time`).
        after_add_seconds: rest after nodes were added (`--scale-down-delay-after-add`); timers go on during it.
        most_drains: nodes with pods that one loop begins to drain (`--max-drain-parallelism`).
        period_seconds: time between two loops (`--scan-interval`).
        order: which of several orders nodes are considered in. 0 is by name; upstream's is that of a hash map.
    """

    name: str = "cluster-autoscaler"
    expander: Expander = "least-waste"
    balance: bool = False
    threshold: int = 500
    score: Score = "least-allocated"
    unneeded_seconds: float = 600.0
    after_add_seconds: float = 600.0
    most_drains: int = 1
    period_seconds: float = 10.0
    order: int = 0

    def tick(self, tick: Tick) -> Outcome:
        """Return one loop: one scale-up where pods wait, else the nodes that were unneeded for long enough.

        Empty nodes go together, others so many at a time; none while another one is being drained. A loop that does
        neither has the scheduler take unneeded nodes last, and so does none in the moment before pods are bound.
        """
        world = tick.world()
        settled = not world.waiting()
        steps = self.scale_up(world, most=1)
        unneeded = [world.sites[index].name for index in self._unneeded(world)]
        since = {UNNEEDED + name: tick.held_since(UNNEEDED + name) for name in unneeded}
        added = tick.now if steps else tick.since.get(ADDED)
        since |= {} if added is None else {ADDED: added}
        rested = added is None or (tick.now - added).total_seconds() >= self.after_add_seconds
        if not steps and rested:
            steps = self._remove_ripe(world, tick)
        shunned = unneeded if settled and not steps else None
        return Outcome(proposal(world, steps, name=self.name), since, self._due(since, tick.now), shunned)

    def _due(self, since: Since, now: datetime) -> datetime | None:
        lasting = {ADDED: self.after_add_seconds}
        moments = [at + timedelta(seconds=lasting.get(key, self.unneeded_seconds)) for key, at in since.items()]
        return earliest(*moments, after=now)

    def _remove_ripe(self, world: World, tick: Tick) -> list[Step]:
        def is_ripe(index: int) -> bool:
            return tick.has_lasted(UNNEEDED + world.sites[index].name, self.unneeded_seconds)

        unneeded = self._unneeded(world)
        ripe = [index for index in unneeded if is_ripe(index)]
        empty = [index for index in ripe if not world.sites[index].pods][:_MOST_EMPTY]
        if empty:
            world.evict(empty)
            return [Step("delete-empty", removed=tuple(world.sites[index].name for index in empty))]
        if any(taint.key == DRAINING for node in world.cluster.nodes for taint in node.taints):
            return []
        waiting = np.zeros(len(world.sites), dtype=np.bool_)
        waiting[unneeded] = True
        steps: list[Step] = []
        for index in ripe:
            if len(steps) == self.most_drains:
                break
            waiting[index] = False
            step = self._drain(world, index, waiting)
            steps += [] if step is None else [step]
        return steps

    def propose(self, cluster: Cluster, offers: Sequence[Offer], now: datetime) -> Proposal:
        """Buy nodes for pending pods, then remove underused nodes whose pods fit elsewhere."""
        world = World(cluster, offers, now)
        steps = [*self.scale_up(world), *self.scale_down(world)]
        for index in world.live():
            if world.sites[index].node is None and not world.sites[index].pods:
                world.remove(index)
        return proposal(world, steps, name=self.name)

    # --- scale-up

    def scale_up(self, world: World, most: int = _MOST_ROUNDS) -> list[Step]:
        """Buy one option after the other until no waiting pod can be helped, or `most` were bought."""
        steps: list[Step] = []
        waiting = bind(world, world.waiting(), self.score)
        for _ in range(most):
            options = [estimate(world, offer, waiting) for offer in range(len(world.offers)) if waiting]
            best = self._best(world, [option for option in options if option.nodes and option.pods])
            if best is None:
                break
            bought = [world.buy(offer, "autoscaler") for offer, count in self._split(world, best) for _ in range(count)]
            steps.append(Step("scale-up", bought=tuple(world.sites[index].name for index in bought)))
            left = bind(world, waiting, self.score)
            if len(left) == len(waiting):
                break
            waiting = left
        return steps

    def _best(self, world: World, options: Sequence[Option]) -> Option | None:
        return min(options, key=lambda option: (self._rate(world, option), option.offer)) if options else None

    def _rate(self, world: World, option: Option) -> int:
        """Return the expander's figure, lower is better."""
        if self.expander == "least-nodes":
            return option.nodes
        if self.expander == "most-pods":
            return -len(option.pods)
        wanted = sum(world.kinds[world.kind_of[pod]].requests[:2] for pod in option.pods)
        room = world.template_room[option.offer][:2] * option.nodes
        if self.expander == "price":
            price = world.offers[option.offer].micro_usd_per_hour * option.nodes
            dearest = world.template_room.max(axis=0)[:2]
            return price * _EXACT // max(1, int((wanted * _EXACT // np.maximum(dearest, 1)).sum()))
        return int(((room - wanted) * _EXACT // np.maximum(room, 1)).sum())

    def _split(self, world: World, option: Option) -> list[tuple[int, int]]:
        """Return offers and how many nodes of each to buy."""
        if not self.balance:
            return [(option.offer, option.nodes)]
        kinds = sorted({world.kind_of[pod] for pod in option.pods})
        mine = world.offers[option.offer]
        group = [
            offer
            for offer, other in enumerate(world.offers)
            if similar(mine, other, free_a=world.templates[option.offer].room, free_b=world.templates[offer].room)
            and all(world.offered(kind)[offer] for kind in kinds)
        ]
        sizes = Counter(_group(world, index) for index in world.live())
        now = [sizes[_identity(world.offers[offer])] for offer in group]
        most = [
            None if (left := world.left(offer)) is None else size + left for offer, size in zip(group, now, strict=True)
        ]
        return list(zip(group, balanced(now, most, option.nodes), strict=True))

    # --- scale-down

    def scale_down(self, world: World) -> list[Step]:
        """Remove what is empty, then drain one unneeded node after the other, until none is left.

        A drain whose pods the scheduler cannot bind, though the simulation found places, is taken back.
        """
        steps: list[Step] = []
        stuck: set[int] = set()
        for _ in range(_MOST_ROUNDS):
            unneeded = [index for index in self._unneeded(world) if index not in stuck]
            if not unneeded:
                break
            waiting = np.zeros(len(world.sites), dtype=np.bool_)
            waiting[unneeded] = True
            for index in unneeded:
                waiting[index] = False
                step = self._drain(world, index, waiting)
                if step is None:
                    stuck.add(index)
                else:
                    steps.append(step)
        return steps

    def _unneeded(self, world: World) -> list[int]:
        """Return nodes that could all go together, empty ones first; the world is left as it was."""
        mark = world.mark()
        budgets = _Budgets(world)
        candidates = [
            index for index in world.live() if self._underused(world, index) and has_removable_pods(world, index)
        ]
        allowed = world.alive.copy()
        found: list[int] = []
        start = 0
        sites = world.sites
        for index in sorted(candidates, key=lambda i: (bool(sites[i].pods), in_turn(sites[i].name, self.order))):
            pods = list(world.sites[index].pods)
            if allowed.sum() < 2 or not budgets.allow(pods):
                continue
            before = world.mark()
            allowed[index] = False
            left, start = place_in_order(world, pods, allowed, start=start)
            if left or _deserts(world, pods):
                world.back_to(before)
                allowed[index] = True
            else:
                budgets.take(pods)
                found.append(index)
        world.back_to(mark)
        return found

    def _underused(self, world: World, index: int) -> bool:
        used = world.total[index, :2] - world.free[index, :2]
        return bool((1000 * used <= self.threshold * world.total[index, :2]).all())

    def _drain(self, world: World, index: int, unneeded: Flags) -> Step | None:
        """Evict and delete, when it still holds that the pods fit on nodes that stay."""
        mark, pods = world.mark(), list(world.sites[index].pods)
        if not self._underused(world, index) or not has_removable_pods(world, index) or not _Budgets(world).allow(pods):
            return None
        allowed = world.alive & ~unneeded
        allowed[index] = False
        left, _ = place_in_order(world, pods, allowed)
        world.back_to(mark)
        if left:
            return None
        world.evict((index,))
        if bind(world, pods, self.score, avoid=unneeded) or _deserts(world, pods):
            world.back_to(mark)
            return None
        action = "drain" if pods else "delete-empty"
        return Step(action, removed=(world.sites[index].name,), evictions=len(pods))


OPTIMIZE_UTILIZATION: Final = ClusterAutoscaler(
    name="optimize-utilization", threshold=850, score="most-allocated", unneeded_seconds=60.0, after_add_seconds=60.0
)
"""GKE's other profile. Its constants are not public: this is a model of it, with a packing scheduler."""


class _Budgets:
    """Disruptions that budgets still allow."""

    def __init__(self, world: World) -> None:
        self._of = budgets_by_pod(world.cluster)
        self._left = {budget.key: budget.allowed for budget in world.cluster.budgets}

    def allow(self, pods: Sequence[str]) -> bool:
        """Return whether each pod alone could be evicted; exceeding a budget together only makes the drain slow."""
        return all(self._left[budget.key] >= 1 for pod in pods for budget in self._of.get(pod, ()))

    def take(self, pods: Sequence[str]) -> None:
        """Count evictions of these pods."""
        for pod in pods:
            for budget in self._of.get(pod, ()):
                self._left[budget.key] -= 1


def has_removable_pods(world: World, index: int) -> bool:
    """Return whether no rule and no pod on it keeps a live node."""
    site = world.sites[index]
    if site.node is None or world.mobility.deletable[site.name] is not None:
        return False
    return not any(_blocks(world, pod) for pod in site.pods)


def _blocks(world: World, key: str) -> bool:
    """Return whether a pod blocks a drain: one with files on its node, or one of the system without a budget.

    None that is marked as safe to evict does.
    """
    pod = world.pods[key]
    if is_true(pod.annotations, SAFE_TO_EVICT):
        return False
    if pod.local_storage:
        return True
    return pod.namespace == "kube-system" and not budgets_by_pod(world.cluster).get(key)


def _deserts(world: World, moved: Sequence[str]) -> bool:
    """Return whether a pod that needs one of the moved pods now lacks it. Upstream does not look; Kinema must not."""
    return bool(moved) and world.deserted()


def _group(world: World, index: int) -> tuple[str, str, str]:
    site = world.sites[index]
    if site.offer is not None:
        return _identity(site.offer)
    return machine_of(site.node) if site.node is not None else ("", "", "")


def _identity(offer: Offer) -> tuple[str, str, str]:
    return offer.machine_type, offer.zone, offer.capacity_type
