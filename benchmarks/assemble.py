"""From classes of pods, machine types and running nodes to a placement problem."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from benchmarks.machine_types import MachineType
from kinema_optimizer.problem.arrays import Flags, Ints
from kinema_optimizer.problem.instance import UNLIMITED, Instance, content


@dataclass(frozen=True)
class PodClass:
    """Pods that are alike."""

    requests: tuple[int, ...]
    count: int
    labels: tuple[str, ...] = ()
    """Machine labels that it may run on; empty: all."""
    zone: str = ""
    """The only zone that it may run in; empty: all."""
    cap: int = UNLIMITED


@dataclass
class Running:
    """A running node while it is being filled."""

    machine: MachineType
    pods: dict[int, int] = field(default_factory=dict)


def assemble(
    resources: tuple[str, ...],
    classes: Sequence[PodClass],
    machines: Sequence[MachineType],
    running: Sequence[Running] | None = None,
) -> Instance:
    """The problem: all pods pending when nothing runs, none of them when `running` nodes hold them."""
    found = tuple(running or ())
    kinds = sorted({(m.label, m.zone) for m in (*machines, *(node.machine for node in found))})
    row = {kind: index for index, kind in enumerate(kinds)}
    requests = _ints([one.requests for one in classes], (len(classes), len(resources)))
    stays = content([node.pods for node in found])
    room = _ints([node.machine.amounts for node in found], (len(found), len(resources)))
    counts = _ints([one.count for one in classes])
    if found and (stays.totals(len(classes)) != counts).any():
        message = "the running nodes do not hold every pod"
        raise ValueError(message)
    return Instance(
        resources=resources,
        requests=requests,
        pending=np.zeros_like(counts) if found else counts,
        rolled=np.zeros_like(counts),
        cap=_ints([one.cap for one in classes]),
        conflicts=_ints([], (0, 2)),
        disruption_cost=np.full(len(classes), 1000, dtype=np.int64),
        pods=np.ones(len(classes), dtype=np.int64),
        releasable=np.ones(len(classes), dtype=bool),
        admits=np.array([[admitted(one, *kind) for one in classes] for kind in kinds], dtype=np.bool_),
        nodes=tuple(f"node-{index:05d}" for index in range(len(found))),
        node_price=_ints([node.machine.micro_usd_per_hour for node in found]),
        node_room=room - stays.loads(requests),
        node_row=_ints([row[node.machine.label, node.machine.zone] for node in found]),
        node_fixed=np.zeros(len(found), dtype=np.bool_),
        node_keeps_all=np.zeros(len(found), dtype=np.bool_),
        stays=stays,
        old=content([{} for _ in found]),
        machines=tuple("/".join(filter(None, (m.name, m.zone))) for m in machines),
        machine_price=_ints([m.micro_usd_per_hour for m in machines]),
        machine_room=_ints([m.amounts for m in machines], (len(machines), len(resources))),
        machine_row=_ints([row[m.label, m.zone] for m in machines]),
        machine_available=np.full(len(machines), UNLIMITED, dtype=np.int64),
    )


def admitted(one: PodClass, label: str, zone: str) -> bool:
    """Return whether the class may run on machines with this label in this zone, room aside."""
    return (not one.labels or label in one.labels) and one.zone in ("", zone)


def could_hold(machine: MachineType, one: PodClass) -> bool:
    """Return whether one pod of the class fits on the machine while nothing else is on it."""
    fits = all(have >= want for have, want in zip(machine.amounts, one.requests, strict=True))
    return fits and admitted(one, machine.label, machine.zone)


def spread(
    classes: Sequence[PodClass],
    fleet: Sequence[MachineType],
    *,
    reserve: Sequence[MachineType],
    seed: int,
    chunk: int = 1,
) -> list[Running]:
    """Pods on the nodes of `fleet`, each on the least allocated one that takes it, as the default scheduler does.

    The largest pods come first, the others in a seeded order, `chunk` of a class at a time. Where nothing takes a pod,
    the cheapest machine of `reserve` that does is added.
    """
    books = _Books(classes, list(fleet), tuple(reserve))
    for c, count in _arrivals(classes, books.largest, seed=seed, chunk=chunk):
        books.place(c, count)
    return [node for node in books.nodes if node.pods]


def _arrivals(classes: Sequence[PodClass], largest: Ints, *, seed: int, chunk: int) -> list[tuple[int, int]]:
    big: list[tuple[float, int, int]] = []
    rest: list[tuple[int, int]] = []
    for c, one in enumerate(classes):
        share = float((np.array(one.requests) / largest).max())
        for first in range(0, one.count, chunk):
            count = min(chunk, one.count - first)
            if share > 0.2:
                big.append((-share, c, count))
            else:
                rest.append((c, count))
    random.Random(seed).shuffle(rest)
    return [(c, count) for _, c, count in sorted(big)] + rest


class _Books:
    def __init__(self, classes: Sequence[PodClass], fleet: list[MachineType], reserve: tuple[MachineType, ...]) -> None:
        self._classes = classes
        self._reserve = reserve
        self.largest = _ints([m.amounts for m in (*fleet, *reserve)]).max(axis=0)
        self.nodes = [Running(machine) for machine in fleet]
        self._room = _ints([m.amounts for m in fleet])
        self._free = self._room.copy()

    def place(self, c: int, count: int) -> None:
        """`count` pods of a class, at most one per node and turn."""
        one = self._classes[c]
        request = _ints(one.requests)
        while count:
            takes = self._takes(c, request)
            if not len(takes):
                self._buy(one)
                continue
            free = (self._free[takes, :2] / self._room[takes, :2]).sum(axis=1)
            best = takes[np.argsort(-free, kind="stable")[:count]]
            self._free[best] -= request
            for node in best.tolist():
                self.nodes[node].pods[c] = self.nodes[node].pods.get(c, 0) + 1
            count -= len(best)

    def _takes(self, c: int, request: Ints) -> Ints:
        one = self._classes[c]
        fits: Flags = np.asarray((self._free >= request).all(axis=1))
        if one.labels or one.zone:
            fits &= np.array([admitted(one, node.machine.label, node.machine.zone) for node in self.nodes])
        if one.cap < UNLIMITED:
            fits &= np.array([node.pods.get(c, 0) < one.cap for node in self.nodes])
        return np.flatnonzero(fits)

    def _buy(self, one: PodClass) -> None:
        fits = [machine for machine in self._reserve if could_hold(machine, one)]
        if not fits:
            message = f"no machine can hold a pod that requests {one.requests}"
            raise ValueError(message)
        machine = min(fits, key=lambda m: (m.micro_usd_per_hour, m.name, m.zone))
        self.nodes.append(Running(machine))
        self._room = np.vstack([self._room, machine.amounts])
        self._free = np.vstack([self._free, machine.amounts])


def _ints(values: object, shape: tuple[int, ...] | None = None) -> Ints:
    array: Ints = np.array(values, dtype=np.int64)
    return array if shape is None else array.reshape(shape)
