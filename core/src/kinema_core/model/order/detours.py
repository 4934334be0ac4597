"""Ways out where everybody waits for somebody else: a stop on another node, or on a node rented for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from itertools import islice
from typing import Final

from kinema_core.events import Offer
from kinema_core.model.catalog import ZONE
from kinema_core.model.order.course import Course
from kinema_core.model.order.movers import Mover

_TRIES: Final = 32
"""Nodes with room that one pod is tried on before another pod's turn comes."""


class Detours:
    """Sends pods to stops. Each pod makes one stop at most, so that every circle comes to an end."""

    def __init__(self, course: Course, movers: Iterable[Mover], hopeless: Collection[str] = ()) -> None:
        """`hopeless`: keys of pods that are known to wait for each other in the end."""
        self._course = course
        self._hopeless = hopeless
        self._stopped: set[str] = set()
        self._closed: set[tuple[str, str]] = set()
        """Workload and node: where pods of the workload come, leave or stop, another one of them would be mistaken."""
        for mover in movers:
            self._closed |= {(mover.workload, mover.to), (mover.workload, mover.source or "")}

    def take(self) -> bool:
        """Let one pod of every circle make way, on the nodes that are there, else one on a node rented for it."""
        circles, stops = self._circles(), self._stops()
        made_way = [circle for circle in circles if self._stop(circle, stops)]
        return bool(made_way) or any(self._rent(circle) for circle in circles)

    def foresee(self) -> None:
        """Let one pod of every circle of hopeless ones make way while others still move."""
        if not self._hopeless:
            return
        thinning = self._course.thinning
        leavers = {
            name: [mover for mover in movers if mover.key in self._hopeless]
            for name, movers in self._course.leavers().items()
            if name not in thinning
        }
        stops, seen = self._stops(), set[str]()
        for start in sorted(self._course.waiting):
            chain, closed = self._chain(start, leavers, seen)
            if closed and not self._stop(sorted(chain, key=_lightest), stops):
                self._rent(sorted(chain, key=_lightest))

    def _circles(self) -> list[list[Mover]]:
        """Chains of pods each of which waits for the next one's room, without a common node."""
        leavers = self._course.leavers()
        seen: set[str] = set()
        found: list[list[Mover]] = []
        for start in sorted(self._course.waiting):
            chain, _ = self._chain(start, leavers, seen)
            # Nobody has to leave the node: who waits for it is kept off by a rule, and may come from elsewhere.
            waiting = [] if chain else self._course.waiting[start]
            chain += [mover for mover in waiting if mover.steered and mover.key not in self._stopped]
            if chain:
                found.append(sorted(chain, key=_lightest))
        return found

    def _chain(self, start: str, leavers: Mapping[str, list[Mover]], seen: set[str]) -> tuple[list[Mover], bool]:
        """Pods each of which waits for the next one's room, and whether the last one waits for one of them."""
        chain: list[Mover] = []
        passed: list[str] = []
        node = start
        while node not in seen:
            seen.add(node)
            passed.append(node)
            ways = [mover for mover in leavers.get(node, ()) if mover.key not in self._stopped]
            if not ways:
                return chain, False
            mover = min(ways, key=_lightest)
            chain.append(mover)
            node = mover.to
        return chain, node in passed

    def _stops(self) -> list[str]:
        """Nodes in the order in which they are tried: rented ones, those that nobody waits for, and zone by zone.

        A rule that keeps a pod off one node of a zone mostly keeps it off all of them.
        """
        yard, waiting = self._course.yard, self._course.waiting
        rented = {node.name for node in yard.temporary}
        turn: Counter[str] = Counter()
        found: list[tuple[bool, bool, int, str]] = []
        for name in sorted(yard.grounds):
            zone = next((yard.grounds[name].labels[key] for key in ZONE if key in yard.grounds[name].labels), "")
            turn[zone] += 1
            found.append((name not in rented, name in waiting, turn[zone], name))
        return [name for *_, name in sorted(found)]

    def _stop(self, circle: list[Mover], stops: list[str]) -> bool:
        """Let the lightest pod that fits on another node stop there."""
        for mover in circle:
            could = (name for name in stops if self._could(mover, name))
            if any(self._try(mover, name) for name in islice(could, _TRIES)):
                return True
        return False

    def _could(self, mover: Mover, name: str) -> bool:
        """Whether the node has room for the pod and admits it. Volumes are not taken along to a stop."""
        if mover.key in self._stopped or mover.pod.rules.claims or (mover.workload, name) in self._closed:
            return False
        yard = self._course.yard
        return yard.fits(name, mover.requests) and yard.admits(name, mover.pod)

    def _try(self, mover: Mover, name: str) -> bool:
        if not self._course.try_move(mover, name):
            return False
        self._stopped.add(mover.key)
        self._closed.add((mover.workload, name))
        return True

    def _rent(self, circle: list[Mover]) -> bool:
        """Let the pod stop that the cheapest offer holds."""
        yard = self._course.yard
        for offer in yard.on_sale():
            for mover in circle:
                if yard.could_hold(offer, mover.pod, mover.requests) and self._rent_for(mover, offer):
                    return True
        return False

    def _rent_for(self, mover: Mover, offer: Offer) -> bool:
        course, wave = self._course, self._course.wave
        ground = course.yard.rent(offer)
        if course.welcome(ground):
            if self._could(mover, ground.name) and self._try(mover, ground.name):
                return True
            course.dismiss(ground)
            course.wave = wave
        course.yard.give_back(offer)
        return False


def _lightest(mover: Mover) -> tuple[bool, int, int, str]:
    """Whoever is least disturbed by moving twice: with a new copy ready before the old one goes, and small."""
    requests = mover.requests
    return (mover.strategy == "evict", requests.get("cpu", 0), requests.get("memory", 0), mover.key)
