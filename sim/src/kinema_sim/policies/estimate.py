"""Estimate of the nodes of one offer that waiting pods need: the Cluster Autoscaler's first fit decreasing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kinema_sim.policies.first_fit import by_size
from kinema_sim.policies.topology import Ints
from kinema_sim.policies.world import World

MOST_NODES = 1000
"""Per scale-up."""


@dataclass(frozen=True)
class Option:
    """One offer, how many nodes of it, and the pods that would get a place."""

    offer: int
    nodes: int
    pods: tuple[str, ...]


def estimate(world: World, offer: int, pods: Sequence[str]) -> Option:
    """The option that this offer is; with no nodes where it would help no pod. The world is left as it was."""
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
        """Pods of one kind: onto any node of the estimate until one misses, then onto the last, adding nodes."""
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
        """One pod per node and turn, from where the last search ended."""
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
        """The same pod by pod, for kinds that rules between pods are about."""
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
