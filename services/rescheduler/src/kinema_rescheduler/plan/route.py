"""The order that a plan asks for: what moves in which wave, and which nodes are there for a while."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from kinema_core.events import Plan


class Leg(NamedTuple):
    """One move of a pod: in which wave, and where to."""

    wave: int
    to: str


class Stay(NamedTuple):
    """The life of a temporary node: its offer, and the waves in which it is booted and deleted."""

    offer: str
    boot: int
    delete: int


@dataclass(frozen=True)
class Route:
    """A plan's steps. Without steps everything goes in one wave, 0."""

    legs: Mapping[str, tuple[Leg, ...]]
    """By uid of the pod as planned, in order; more than one leg where it makes stops. Pods that stay are missing."""
    temporary: Mapping[str, Stay]
    """By node name, sorted."""
    last: int
    """The last wave."""

    @cached_property
    def unplanned(self) -> int:
        """Return the wave in which pods move that the plan does not know: after those that it knows in several."""
        waves = {leg.wave for legs in self.legs.values() for leg in legs}
        return waves.pop() if len(waves) == 1 else self.last

    @cached_property
    def straight(self) -> bool:
        """Return whether every pod goes to its planned node at once, and none to a temporary one."""
        return not self.temporary and all(len(legs) == 1 for legs in self.legs.values())

    @property
    def end(self) -> int:
        """Return what comes after the last wave."""
        return self.last + 1


def route_of(plan: Plan) -> Route:
    """Return the order of a plan."""
    offers = {node.name: node.offer for node in plan.temporary}
    moves: dict[str, list[Leg]] = {}
    boots: dict[str, int] = {}
    deletes: dict[str, int] = {}
    for step in plan.steps:
        if step.action == "move":
            moves.setdefault(step.pod, []).append(Leg(step.wave, step.node))
        elif step.node in offers:
            (boots if step.action == "boot" else deletes)[step.node] = step.wave
    last = max((step.wave for step in plan.steps), default=0)
    legs = {
        place.uid: tuple(sorted(moves.get(place.pod, ()))) or (Leg(last, place.to),)
        for place in plan.placements
        if place.source != place.to or place.strategy == "rolling"
    }
    temporary = {name: Stay(offers[name], boots.get(name, 0), deletes.get(name, last)) for name in sorted(offers)}
    return Route(legs, temporary, last)
