"""First-fit decreasing: over all nodes and machine types at once, or of pods onto given nodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import numpy as np

from kinema_core.events import Offer
from kinema_core.model.cluster import Cluster
from kinema_optimizer.policies.proposal import Proposal, Step, proposal
from kinema_optimizer.policies.topology import Flags, Ints
from kinema_optimizer.policies.world import World

_SCALE: Final = 10**6


def by_size(world: World, pods: Iterable[str], template: Ints) -> list[tuple[int, list[str]]]:
    """Return kinds and their pods, by the sum of their shares of a template's CPU and memory, largest first."""
    groups = world.by_kind(sorted(pods))
    return sorted(groups.items(), key=lambda item: (-_size(world, item[0], template), item[0]))


def _size(world: World, kind: int, template: Ints) -> int:
    shares = world.kinds[kind].requests[:2] * _SCALE // np.maximum(template[:2], 1)
    return int(shares.sum())


def place_in_order(world: World, pods: Sequence[str], allowed: Flags, *, start: int = 0) -> tuple[list[str], int]:
    """Place each pod on the first allowed node, going round from `start`; return the rest, and where it stopped.

    After a hit the search goes on at the next node, as the Cluster Autoscaler's does.
    """
    left = []
    for pod in pods:
        takes = np.flatnonzero(world.fits(world.kind_of[pod]) & allowed)
        if not len(takes):
            left.append(pod)
            continue
        later = takes[takes >= start]
        index = int(later[0] if len(later) else takes[0])
        world.place(pod, index)
        start = (index + 1) % len(world.sites)
    return left, start


@dataclass(frozen=True)
class FirstFit:
    """First-fit decreasing of every pod that may move, onto what must stay and then onto new nodes.

    A naive re-packing without regard to moves. New nodes are of the machine with the lowest price per pod that it
    would hold of the kind at hand, all remaining kinds filled up behind it in order.
    """

    name: str = "first-fit"

    def propose(self, cluster: Cluster, offers: Sequence[Offer], now: datetime) -> Proposal:
        """Empty every node that may be deleted and pack all pods again.

        Keeps all as it is where that would cost more, or leave a pod without a node or without pods that it needs.
        """
        world = World(cluster, offers, now)
        before = world.cost
        world.empties = True
        leaving = [i for i in world.live() if world.mobility.deletable.get(world.sites[i].name, "new") is None]
        evicted = len(world.evict(leaving))
        lost = world.waiting()
        while lost:  # a pod that needs another nearby waits for it
            count = len(lost)
            lost = [pod for kind, pods in self._order(world, lost) for pod in _pack(world, kind, pods)]
            if len(lost) == count:
                break
        after = world.cost
        running = any(world.pods[pod].node is not None for pod in lost)
        if (
            running
            or world.deserted()
            or (after >= before and not any(pod.node is None for pod in world.pods.values()))
        ):
            return proposal(World(cluster, offers, now), (), name=self.name)
        gone = tuple(site.name for i, site in enumerate(world.sites) if site.node is not None and not world.alive[i])
        come = tuple(site.name for i, site in enumerate(world.sites) if site.node is None and world.alive[i])
        return proposal(world, (Step("repack", gone, come, evictions=evicted),), name=self.name)

    @staticmethod
    def _order(world: World, pods: Sequence[str]) -> list[tuple[int, list[str]]]:
        largest = world.template_room.max(axis=0, initial=1)
        return by_size(world, pods, largest)


def _pack(world: World, kind: int, pods: list[str]) -> list[str]:
    """Place pods of one kind by first fit, buying where no node takes one; return those that no offer holds."""
    waiting = list(pods)
    while waiting:
        takes = np.flatnonzero(world.fits(kind))
        if len(takes):
            world.place(waiting.pop(0), int(takes[0]))
            continue
        offer = _cheapest(world, kind, len(waiting))
        if offer is None:
            return waiting
        index = world.buy(offer, "first-fit")
        if not world.fits(kind)[index]:
            world.remove(index)
            return waiting
    return waiting


def _cheapest(world: World, kind: int, pods: int) -> int | None:
    holds = np.where(world.offered(kind), world.most(kind, world.template_room), 0)
    rated = [
        (world.offers[offer].micro_usd_per_hour * _SCALE // min(int(holds[offer]), pods), offer)
        for offer in range(len(world.offers))
        if holds[offer] > 0 and world.left(offer) != 0 and world.fits_new(kind, offer)
    ]
    return min(rated)[1] if rated else None
