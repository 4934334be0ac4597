"""Proposal of a policy: the plan it ends at, checked like any other, and the steps that it takes to get there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Final, Literal, Protocol

from kinema_core.events import (
    Cost,
    Held,
    Offer,
    Placement,
    Plan,
    PlanNode,
    QuarantinedObject,
    Solve,
    Strategy,
    Unplaced,
)
from kinema_core.model.catalog import machine_of
from kinema_core.model.cluster import Cluster
from kinema_optimizer.policies.world import NOWHERE, World

MICRO: Final = 1_000_000


@dataclass(frozen=True)
class Step:
    """One action of a policy."""

    action: str
    """Such as `scale-up`, `delete-empty`, `drain`, `replace`."""
    removed: tuple[str, ...] = ()
    """Nodes that go."""
    bought: tuple[str, ...] = ()
    """Nodes that come."""
    emptied: tuple[str, ...] = ()
    """Nodes that pods are evicted from and that stay."""
    evictions: int = 0


@dataclass(frozen=True, eq=False)
class Proposal:
    """Result of a policy: the steps that it takes, and the state of the cluster after them, which is not changed again.

    The plan counts net moves; the evictions of the steps may be more.
    """

    world: World
    steps: tuple[Step, ...]
    name: str
    """Of the policy."""
    solve: Solve | None = None
    """Of a policy that solves a model."""

    def __eq__(self, other: object) -> bool:
        """Compare what is proposed: plan and steps."""
        return isinstance(other, Proposal) and (self.plan, self.steps) == (other.plan, other.steps)

    def __hash__(self) -> int:
        """Return a hash of the steps, which are few."""
        return hash((self.name, self.steps))

    @cached_property
    def plan(self) -> Plan:
        """Return the plan that leads from the cluster to that state, made when it is asked for."""
        return _plan(self.world, name=self.name, solve=self.solve)

    @property
    def bought(self) -> Mapping[str, str]:
        """Return the offers of the new nodes that are there in the end, by node."""
        sites = enumerate(self.world.sites)
        return {
            site.name: site.offer.name
            for index, site in sites
            if site.node is None and site.offer is not None and self.world.alive[index]
        }

    @property
    def evictions(self) -> int:
        """Pods that are evicted, a pod that moves twice counted twice."""
        return sum(step.evictions for step in self.steps)


class Repacking(Protocol):
    """A policy that can also be run to its end in one go: all waiting times are taken as over."""

    @property
    def name(self) -> str:
        """Name in reports."""

    def propose(self, cluster: Cluster, offers: Sequence[Offer], now: datetime) -> Proposal:
        """Return its plan for the cluster; the same for the same arguments.

        Raises:
            PriceError: no live node has a price.
        """


def proposal(world: World, steps: Sequence[Step], *, name: str, solve: Solve | None = None) -> Proposal:
    """Return what a policy proposes that has taken these steps in the world; `solve` of one that solves a model."""
    return Proposal(world, tuple(steps), name, solve)


def _plan(world: World, *, name: str, solve: Solve | None) -> Plan:
    placements = _placements(world)
    nodes = _nodes(world)
    before = sum(_micro(node) for node in nodes if node.action != "boot")
    after = sum(_micro(node) for node in nodes if node.action != "delete")
    moves = sum(item.source is not None and item.source != item.to for item in placements)
    changed = moves > 0 or any(node.action != "keep" for node in nodes)
    return Plan(
        status="feasible" if changed else "nothing-better",
        cost=Cost(before=before / MICRO, after=after / MICRO, lower_bound=0.0, gap=None if after else 0.0),
        nodes=nodes,
        placements=placements,
        unplaced=_unplaced(world),
        quarantined=tuple(
            QuarantinedObject(object=item.object, path=item.path, reason=item.reason)
            for item in world.cluster.quarantined
        ),
        held=_held(world),
        moves=moves,
        restarts=sum(item.strategy == "rolling" and item.source == item.to for item in placements),
        solve=solve or Solve(seconds=0.0, first_feasible_seconds=None, method=f"policy {name}", seed=0),
        objective="cost",
        base_version=world.cluster.version,
    )


def _micro(node: PlanNode) -> int:
    return round(node.usd_per_hour * MICRO)


def _nodes(world: World) -> tuple[PlanNode, ...]:
    """Return live nodes, then new ones; one that was bought and removed again is left out."""
    found = []
    for index, site in enumerate(world.sites):
        there = bool(world.alive[index])
        if site.node is not None:
            machine = machine_of(site.node)
            offer, committed = "", site.name in world.covered
            action: Literal["keep", "boot", "delete"] = "keep" if there else "delete"
        elif site.offer is not None and there:
            machine = (site.offer.machine_type, site.offer.zone, site.offer.capacity_type)
            offer, committed, action = site.offer.name, site.offer.committed is not None, "boot"
        else:
            continue
        found.append(
            PlanNode(
                name=site.name,
                machine_type=machine[0],
                zone=machine[1],
                capacity_type=machine[2],
                offer=offer,
                usd_per_hour=site.price / MICRO,
                action=action,
                committed=committed,
            )
        )
    return tuple(found)


def _placements(world: World) -> tuple[Placement, ...]:
    targets = {key: _name(world, key) for key in world.pods}
    rolled = {
        workload.key
        for key, pod in world.pods.items()
        if pod.node is not None and targets[key] != pod.node and world.mobility.strategy.get(key) == "rolling"
        for workload in (world.cluster.controller_of(pod),)
        if workload is not None
    }
    found = []
    for key, pod in world.pods.items():
        to = targets[key]
        if to is None:
            continue
        strategy: Strategy = "stay"
        workload = world.cluster.controller_of(pod)
        if pod.node is None:
            strategy = "schedule"
        elif workload is not None and workload.key in rolled:
            strategy = "rolling"
        elif to != pod.node:
            strategy = world.mobility.strategy[key]
        found.append(Placement(pod=key, uid=pod.uid, source=pod.node, to=to, strategy=strategy, requests=pod.requests))
    return tuple(found)


def _name(world: World, pod: str) -> str | None:
    index = world.where[pod]
    return world.pods[pod].node if index == NOWHERE else world.sites[index].name


def _unplaced(world: World) -> tuple[Unplaced, ...]:
    found = []
    for key, pod in world.pods.items():
        if pod.node is None and world.where[key] == NOWHERE:
            held = world.mobility.held.get(key)
            code, reason = (
                ("no-room", "no node has room for it and the policy buys none")
                if held is None
                else (held.code, held.reason)
            )
            found.append(Unplaced(pod=key, uid=pod.uid, code=code, reason=reason))
    return tuple(found)


def _held(world: World) -> tuple[Held, ...]:
    return tuple(
        world.mobility.held[key]
        for key, pod in world.pods.items()
        if pod.node is not None and key in world.mobility.held
    )
