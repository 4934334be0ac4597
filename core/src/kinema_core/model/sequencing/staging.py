"""Ways out where all pods wait for each other: a stop on another node, or on a node rented for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from kinema_core.events import Amounts, Labels, Offer
from kinema_core.model.catalog import ZONE
from kinema_core.model.sequencing.capacity import NodeSpec
from kinema_core.model.sequencing.movers import Mover
from kinema_core.model.sequencing.wave_builder import WaveBuilder

_TRIES: Final = 32
"""Nodes with room that one pod is tried on before another pod's turn comes."""
_STOPS: Final = 3
"""A pod that has made a stop may be in the way of another one that has: then it makes one more."""


class IntermediateStops:
    """Sends pods to stops. Each pod makes only so many, so that every circle comes to an end."""

    def __init__(self, builder: WaveBuilder, movers: Sequence[Mover], hopeless: Collection[str] = ()) -> None:
        """`hopeless`: keys of pods that are known to wait for each other in the end."""
        self._course = builder
        self._hopeless = hopeless
        self._stops_of: Counter[str] = Counter()
        self._closed: set[tuple[str, str]] = set()
        """Workload and node: where pods of the workload come, leave or stop, another one of them would be mistaken."""
        for mover in movers:
            self._closed |= {(mover.workload, mover.to), (mover.workload, mover.source or "")}
        self._smallest = _smallest([mover.takes for mover in movers if mover.steered])
        self._turns: dict[str, int] = {}
        """Number of each node among those of its zone, by name."""
        self._some: set[str] = set()
        """Nodes that had room for `_smallest` when they were looked at."""

    def take(self) -> bool:
        """Let one pod of every circle make way, on the nodes that are there, else one on a node rented for it.

        Where none can, pods at stops go to other ones: a rule may be against going on from where they are.
        """
        stops = self._stops()
        for most in (1, _STOPS):
            circles = self._circles(most)
            made_way = [circle for circle in circles if self._stop(circle, stops)]
            if made_way or any(self._rent(circle) for circle in circles):
                return True
        return False

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
            if closed and not self._stop(sorted(chain, key=self._least), stops):
                self._rent(sorted(chain, key=self._least))

    def _circles(self, most: int) -> list[list[Mover]]:
        """Chains of pods each of which waits for the next one's room, without a common node.

        Of pods that wait for no other pod's room, those that have made fewer than `most` stops.
        """
        leavers = self._course.leavers()
        seen: set[str] = set()
        found: list[list[Mover]] = []
        for start in sorted(self._course.waiting):
            chain, _ = self._chain(start, leavers, seen)
            # No pod has to leave the node: one that waits for it is kept off by a rule, and may come from elsewhere.
            waiting = [] if chain else self._course.waiting[start]
            chain += [mover for mover in waiting if mover.steered and self._stops_of[mover.key] < most]
            if chain:
                found.append(sorted(chain, key=self._least))
        return found

    def _chain(self, start: str, leavers: Mapping[str, list[Mover]], seen: set[str]) -> tuple[list[Mover], bool]:
        """Pods each of which waits for the next one's room, and whether the last one waits for one of them."""
        chain: list[Mover] = []
        passed: list[str] = []
        node = start
        while node not in seen:
            seen.add(node)
            passed.append(node)
            ways = [mover for mover in leavers.get(node, ()) if self._stops_of[mover.key] < _STOPS]
            if not ways:
                return chain, False
            mover = min(ways, key=self._least)
            chain.append(mover)
            node = mover.to
        return chain, node in passed

    def _stops(self) -> _Stops:
        """Return nodes with some room as they are tried: rented ones, those that no pod waits for, and zone by zone."""
        capacity, waiting = self._course.capacity, self._course.waiting
        rented = {node.name for node in capacity.temporary}
        if self._turns.keys() != capacity.specs.keys():
            self._turns = _turns(capacity.specs)
        self._some -= capacity.changed
        self._some |= {name for name in capacity.changed & self._turns.keys() if capacity.fits(name, self._smallest)}
        capacity.changed.clear()
        found = [
            (name not in rented, name in waiting, turn, name)
            for name, turn in self._turns.items()
            if name in self._some
        ]
        return _Stops(self._course, [name for *_, name in sorted(found)])

    def _stop(self, circle: list[Mover], stops: _Stops) -> bool:
        """Let the lightest pod that fits on another node stop there."""
        return any(self._try_some(mover, stops) for mover in circle)

    def _try_some(self, mover: Mover, stops: _Stops) -> bool:
        """Let the pod stop on the first node that takes it. What a rule forbids, it does in the whole domain."""
        if not self._may_stop(mover):
            return False
        refused: set[tuple[str, str | None]] = set()
        could = (name for name in stops.with_room(mover.requests) if self._could(mover, name))
        hopeful = (name for name in could if not any(self._domain(name, key) == place for key, place in refused))
        for name in islice(hopeful, _TRIES):
            if self._try(mover, name):
                return True
            refusal = self._course.refusal
            if refusal is not None:
                key = refusal.tally.topology_key
                refused.add((key, self._domain(name, key)))
        return False

    def _domain(self, name: str, key: str) -> str | None:
        return self._course.capacity.specs[name].labels.get(key)

    def _may_stop(self, mover: Mover) -> bool:
        """Return whether the pod may make one more stop. Volumes are not taken along to one."""
        return self._stops_of[mover.key] < _STOPS and not mover.pod.rules.claims

    def _could(self, mover: Mover, name: str) -> bool:
        """Return whether the node has room for the pod and admits it."""
        if (mover.workload, name) in self._closed:
            return False
        capacity = self._course.capacity
        return capacity.fits(name, mover.requests) and capacity.admits(name, mover.pod)

    def _try(self, mover: Mover, name: str) -> bool:
        if not self._course.try_move(mover, name):
            return False
        self._stops_of[mover.key] += 1
        self._closed.add((mover.workload, name))
        return True

    def _rent(self, circle: list[Mover]) -> bool:
        """Let the pod stop that the cheapest offer holds."""
        capacity = self._course.capacity
        for offer in capacity.on_sale():
            for mover in filter(self._may_stop, circle):
                if capacity.could_hold(offer, mover.pod, mover.requests) and self._rent_for(mover, offer):
                    return True
        return False

    def _rent_for(self, mover: Mover, offer: Offer) -> bool:
        builder, wave = self._course, self._course.wave
        spec = builder.capacity.rent(offer)
        if builder.welcome(spec):
            if self._could(mover, spec.name) and self._try(mover, spec.name):
                return True
            builder.dismiss(spec)
            builder.wave = wave
        builder.capacity.give_back(offer)
        return False

    def _least(self, mover: Mover) -> tuple[int, bool, int, int, str]:
        """Sort the pod first that one move more disturbs least: not stopped yet, ready before the old one goes."""
        requests = mover.requests
        evicted = mover.strategy == "evict"
        return (self._stops_of[mover.key], evicted, requests.get("cpu", 0), requests.get("memory", 0), mover.key)


class _Stops:
    """Nodes with some room, in the order in which they are tried; as stops are taken their room can only shrink."""

    def __init__(self, course: WaveBuilder, names: Sequence[str]) -> None:
        self._course = course
        self._names = names
        self._with_room: dict[Amounts, tuple[list[str], Iterator[str]]] = {}

    def with_room(self, requests: Amounts) -> Iterator[str]:
        """Yield the nodes that had room for these requests when they were looked at, once for all pods alike."""
        known, others = self._with_room.setdefault(requests, ([], iter(self._names)))
        yield from known
        for name in others:
            if self._course.capacity.fits(name, requests):
                known.append(name)
                yield name


def _turns(specs: Mapping[str, NodeSpec]) -> dict[str, int]:
    """Number the nodes of each zone by name."""
    turn: Counter[str] = Counter()
    found = {}
    for name in sorted(specs):
        zone = _zone(specs[name].labels)
        turn[zone] += 1
        found[name] = turn[zone]
    return found


def _smallest(requests: Sequence[Amounts]) -> Amounts:
    """Return what any of them asks for at least."""
    names = sorted({name for one in requests for name in one})
    return Amounts({name: min(one.get(name, 0) for one in requests) for name in names})


def _zone(labels: Labels) -> str:
    return next((labels[key] for key in ZONE if key in labels), "")
