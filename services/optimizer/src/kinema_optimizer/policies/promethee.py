"""Reactive autoscaling of nodes with PROMETHEE II.

Source: Menouer, Cérin, Darmon: Reactive Autoscaling of Kubernetes Nodes (FRAME 2024). Every minute: a stopped node is
started for pending pods when the active nodes are loaded or a pod has waited for long; one active node is stopped when
all loads are low and no pod is pending. Which one, PROMETHEE II says. The paper stops the best-ranked node whatever
becomes of its pods; here, the best-ranked one whose pods fit on the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Final

from kinema_core.events import Offer
from kinema_core.model.power import micro_watts
from kinema_optimizer.policies.policy import Outcome, Tick, earliest
from kinema_optimizer.policies.proposal import Step, proposal
from kinema_optimizer.policies.world import World, bind
from kinema_optimizer.request.outranking import Criterion, ranking

RESOURCES: Final = ("cpu", "memory", "ephemeral-storage")


@dataclass(frozen=True)
class Promethee:
    """Its settings; loads in per cent of the active nodes' allocatable."""

    name: str = "promethee"
    load_up: int = 70
    load_down: int = 40
    pending_seconds: float = 120.0
    period_seconds: float = 60.0
    weights: tuple[float, ...] = (1.0, 1.0, 1.0, 1.0, 1.0)
    """Of CPU, memory, storage, energy, and number of pods."""

    def tick(self, tick: Tick) -> Outcome:
        """Return one node more, one less, or nothing."""
        world = tick.world()
        pending = bind(world, world.waiting(), "least-allocated")
        steps = self._start_one(world, tick, pending) if pending else self._stop_one(world)
        wait = timedelta(seconds=self.pending_seconds)
        due = earliest(*(at + wait for pod in pending if (at := world.pods[pod].created)), after=tick.now)
        return Outcome(proposal(world, steps, name=self.name), due=due)

    def _start_one(self, world: World, tick: Tick, pending: Sequence[str]) -> list[Step]:
        longest = any(self._has_waited(world.pods[pod].created, tick.now) for pod in pending)
        if not (longest or any(load >= self.load_up for load in loads(world))):
            return []
        stopped = [index for index in range(len(world.offers)) if world.left(index) != 0]
        if not stopped:
            return []
        offers = [world.offers[index] for index in stopped]
        best = stopped[ranking([offer.name for offer in offers], self._of_stopped(offers))[0]]
        index = world.buy(best, "promethee")
        bind(world, pending, "least-allocated")
        return [Step("start", bought=(world.sites[index].name,))]

    def _has_waited(self, created: datetime | None, now: datetime) -> bool:
        return created is not None and now - created > timedelta(seconds=self.pending_seconds)

    def _of_stopped(self, offers: Sequence[Offer]) -> list[Criterion]:
        sizes = [
            Criterion(tuple(offer.allocatable.get(name, 0) for offer in offers), "max", weight)
            for name, weight in zip(RESOURCES, self.weights, strict=False)
        ]
        return [*sizes, Criterion(tuple(map(micro_watts, offers)), "min", self.weights[3])]

    def _stop_one(self, world: World) -> list[Step]:
        live = world.live()
        if len(live) < 2 or any(load > self.load_down for load in loads(world)):
            return []
        able = [index for index in live if world.mobility.deletable.get(world.sites[index].name, "new") is None]
        names = [world.sites[index].name for index in able]
        for place in ranking(names, self._of_active(world, able)):
            mark = world.mark()
            pods = world.evict((able[place],))
            if not bind(world, pods, "least-allocated") and not world.deserted():
                return [Step("stop", removed=(names[place],), evictions=len(pods))]
            world.back_to(mark)
        return []

    def _of_active(self, world: World, nodes: Sequence[int]) -> list[Criterion]:
        watts = {offer.machine_type: micro_watts(offer) for offer in world.offers}
        sites = [world.sites[index] for index in nodes]
        sizes = [
            Criterion(tuple(site.allocatable.get(name, 0) for site in sites), "min", weight)
            for name, weight in zip(RESOURCES, self.weights, strict=False)
        ]
        energy = Criterion(tuple(watts.get(site.machine, 0) for site in sites), "max", self.weights[3])
        return [*sizes, energy, Criterion(tuple(len(site.pods) for site in sites), "min", self.weights[4])]


def loads(world: World) -> list[Fraction]:
    """Return the load of the active nodes in per cent, of each resource that they have: requests over allocatable."""
    live = world.live()
    found = []
    for name in RESOURCES:
        has = sum(world.sites[index].allocatable.get(name, 0) for index in live)
        if has and name in world.resources:
            column = world.resources.index(name)
            asked = int((world.total[live, column] - world.free[live, column]).sum())
            found.append(Fraction(100 * asked, has))
    return found
