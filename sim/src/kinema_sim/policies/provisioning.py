"""Karpenter's provisioning simulation: pods onto existing nodes first, then onto claims for nodes of any type."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from kinema_core.events import FrozenMap
from kinema_core.model.match import HOSTNAME
from kinema_sim.policies.topology import Flags, Ints, Places
from kinema_sim.policies.world import World


@dataclass(eq=False)
class Claim:
    """A node to be bought: its type is left open among those that hold its pods."""

    options: Flags
    """(O,): offers that would do."""
    load: Ints
    domains: dict[str, int]
    """Where it counts as being, as far as that is settled; the host name always is."""
    pods: list[str] = field(default_factory=list)
    counted: Counter[int] = field(default_factory=Counter)
    """Pods by kind that rules between pods count here."""


@dataclass(frozen=True)
class Outcome:
    """What a simulation found. Pods on existing nodes are placed in the world already."""

    claims: tuple[Claim, ...]
    failed: tuple[str, ...]


class Simulation:
    """One simulation on a world; `forget` takes the claims' pods out of its counts again."""

    def __init__(self, world: World, most_claims: int | None = None, offers: Flags | None = None) -> None:
        self._world = world
        self._most = most_claims
        self._free_offers = world.to_be_had if offers is None else world.to_be_had & offers
        self._claims: list[Claim] = []

    def run(self, pods: Sequence[str], *, all_or_none: bool = False) -> Outcome:
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
        return Outcome(tuple(self._claims), tuple(failed))

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
        """First fit over the nodes by index; gives the pods that fit nowhere."""
        world, left = self._world, list(reversed(pods))
        if not world.topology.concerns(kind):
            takes = np.flatnonzero(world.fits(kind))
            room = world.most(kind, world.free[takes])
            for index, count in zip(takes.tolist(), room.tolist(), strict=True):
                for _ in range(min(count, len(left))):
                    world.place(left.pop(), index)
                if not left:
                    break
            return left[::-1]
        while left:
            takes = np.flatnonzero(world.fits(kind))
            if not len(takes):
                break
            world.place(left.pop(), int(takes[0]))
        return left[::-1]

    # --- kinds that no rule between pods is about

    def _claimed(self, kind: int, pods: list[str]) -> list[str]:
        """Onto the claim with the fewest pods that can still take one; else a new claim. Gives who fits on none."""
        world = self._world
        offered = world.offered(kind) & self._free_offers
        room = [self._room(kind, claim.options & offered, claim.load) for claim in self._claims]
        queue = [(len(claim.pods), index) for index, claim in enumerate(self._claims) if room[index]]
        heapq.heapify(queue)
        fresh = self._room(kind, offered, np.zeros_like(world.kinds[kind].requests))
        touched: set[int] = set()
        for position, pod in enumerate(pods):
            if not queue:
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
        """How many more pods of the kind a claim takes on the best of its options."""
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
        """Domains that the claim would be in with each offer."""
        count = len(self._world.offers)
        return {
            key: np.full(count, claim.domains[HOSTNAME])
            if key == HOSTNAME
            else np.array([site.domains[key] for site in self._world.templates], dtype=np.int64)
            for key in self._world.topology.keys
        }

    def _settle(self, claim: Claim, options: Flags) -> Flags:
        """Fix the claim's domains to those of its cheapest option: what counts per zone has to know the zone."""
        world = self._world
        first = min(np.flatnonzero(options).tolist(), key=lambda offer: (world.templates[offer].price, offer))
        settled = {key: domain for key, domain in world.templates[first].domains.items() if key != HOSTNAME}
        claim.domains |= settled
        alike = [all(site.domains[key] == domain for key, domain in settled.items()) for site in self._world.templates]
        return np.asarray(options & np.array(alike, dtype=np.bool_))


def cheapest(world: World, options: Flags) -> int:
    """The offer that the provider launches: the lowest price, the first of equals."""
    return min(np.flatnonzero(options).tolist(), key=lambda offer: (world.templates[offer].price, offer))
