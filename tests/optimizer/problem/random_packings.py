"""Random packings of a problem that break none of its rules, and the plans that they come to."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from tests.support.plans import plan_for

from kinema_core.events import Plan
from kinema_optimizer.problem.compile import Compiled
from kinema_optimizer.problem.instance import Content, Instance, Solution, content, displaced, enemies_of


@dataclass
class _Bin:
    """A kept or new node: who is there, and room for more."""

    row: int
    room: list[int]
    here: dict[int, int] = field(default_factory=dict)
    """Pods by class that stay."""
    new: dict[int, int] = field(default_factory=dict)
    left: dict[int, int] = field(default_factory=dict)
    """Pods by class that it gives up."""

    def changes(self) -> dict[int, int]:
        """Who comes, less who leaves."""
        return {c: self.new.get(c, 0) - self.left.get(c, 0) for c in {*self.new, *self.left}}


@dataclass
class _Filler:
    problem: Instance
    rng: random.Random
    enemies: Mapping[int, tuple[int, ...]]
    nodes: dict[int, _Bin]
    boots: list[tuple[int, _Bin]] = field(default_factory=list)

    def put(self, c: int) -> bool:
        """Put one pod of the class somewhere by chance, on a new machine if need be."""
        bins = [*self.nodes.values(), *(one for _, one in self.boots)]
        self.rng.shuffle(bins)
        if self.rng.random() < 0.3:
            bins = []
        for one in bins:
            if self._takes(one, c):
                self._add(one, c)
                return True
        machines = list(range(len(self.problem.machines)))
        self.rng.shuffle(machines)
        for m in machines:
            fresh = _Bin(int(self.problem.machine_row[m]), self.problem.machine_room[m].tolist())
            if self._left(m) > 0 and self._takes(fresh, c):
                self._add(fresh, c)
                self.boots.append((m, fresh))
                return True
        return False

    def _takes(self, one: _Bin, c: int) -> bool:
        request = self.problem.requests[c].tolist()
        return (
            bool(self.problem.admits[one.row, c])
            and all(need == 0 or need <= room for need, room in zip(request, one.room, strict=True))
            and one.here.get(c, 0) + one.new.get(c, 0) < self.problem.cap[c]
            and not any(d in one.here or d in one.new for d in self.enemies.get(c, ()))
        )

    def _add(self, one: _Bin, c: int) -> None:
        one.new[c] = one.new.get(c, 0) + 1
        one.room = [room - need for room, need in zip(one.room, self.problem.requests[c].tolist(), strict=True)]

    def _left(self, machine: int) -> int:
        booted = [m for m, _ in self.boots]
        own = int(self.problem.machine_available[machine]) - booted.count(machine)
        shared = []
        for pool in self.problem.pools:
            each = pool.weights
            if machine in each:
                shared.append((pool.limit - sum(each.get(m, 0) for m in booted)) // each[machine])
        return min([own, *shared])


def random_packing(problem: Instance, seed: int) -> Solution | None:
    """A packing that deletes some nodes, lets others give pods up, and puts everybody anywhere.

    None when some running pod found no place.
    """
    rng = random.Random(seed)
    share = rng.random()
    keep = np.array([bool(fixed) or rng.random() > share for fixed in problem.node_fixed], dtype=bool)
    nodes = {
        e: _Bin(int(problem.node_row[e]), problem.node_room[e].tolist(), dict(problem.stays.of(e)))
        for e in np.flatnonzero(keep).tolist()
    }
    leaving = _let_leave(problem, rng, nodes)
    filler = _Filler(problem, rng, enemies_of(problem), nodes)
    lost = np.zeros(len(problem.pending), dtype=np.int64)
    gone = Solution(keep, content([{} for _ in keep]), np.zeros(0, dtype=np.int64), content([]), lost)
    needy = [c for c, n in enumerate((displaced(problem, gone) + problem.rolled).tolist()) for _ in range(n)]
    needy += leaving
    rng.shuffle(needy)
    if not all(filler.put(c) for c in needy):
        return None
    for c, n in enumerate(problem.pending.tolist()):
        lost[c] = sum(not filler.put(c) for _ in range(n))
    return Solution(
        keep=keep,
        changes=content([nodes[e].changes() if e in nodes else {} for e in range(len(keep))]),
        boots=np.array([m for m, _ in filler.boots], dtype=np.int64),
        booted=content([one.new for _, one in filler.boots]),
        unplaced=lost,
    )


def _let_leave(problem: Instance, rng: random.Random, nodes: Mapping[int, _Bin]) -> list[int]:
    """Class of each pod that leaves a kept node; by chance."""
    share, found = rng.choice((0.0, 0.2, 0.7)), []
    for e, one in nodes.items():
        for c, count in list(one.here.items()) if problem.node_releases[e] else ():
            n = sum(rng.random() < share for _ in range(count)) if problem.releasable[c] else 0
            if n:
                one.left[c] = n
                one.here = {**one.here, c: count - n} if n < count else {d: m for d, m in one.here.items() if d != c}
                one.room = [room + n * need for room, need in zip(one.room, problem.requests[c].tolist(), strict=True)]
                found += [c] * n
    return found


def plan_of(compiled: Compiled, packing: Solution) -> Plan:
    """The plan that names pods for a packing's counts: pending, then replaced, then those that leave, by name."""
    compiled = compiled.grouped
    names = [node.name for node in compiled.question.cluster.nodes]
    boots = {f"new-{i}": compiled.offers[m][0].name for i, m in enumerate(packing.boots.tolist())}
    seats: dict[int, Iterator[str]] = {c: _seats(compiled, packing, c) for c in range(len(compiled.classes))}
    kept = {name for name, keep in zip(names, packing.keep.tolist(), strict=True) if keep}
    to: dict[str, str] = {}
    unplaced = {mover.pod.key: "no-room" for _, mover in compiled.homeless}
    for c, one in enumerate(compiled.classes):
        placed = len(one.pending) - int(packing.unplaced[c])
        unplaced |= {mover.pod.key: "no-room" for mover in one.pending[placed:]}
        gone = [mover for mover in (*one.stays, *one.updated) if mover.pod.node not in kept]
        for e in np.flatnonzero(packing.keep).tolist():
            left = -dict(packing.changes.of(e)).get(c, 0)
            gone += [mover for mover in one.stays if mover.pod.node == names[e]][: max(0, left)]
        for mover in (*one.pending[:placed], *one.rolled, *gone):
            seat = next(seats[c])
            to |= {pod.key: seat for pod in (mover.pod, *mover.others)}
    held = compiled.sites.mobility.held
    unplaced |= {key: held[key].code for key in held if compiled.question.cluster.pods_by_key[key].node is None}
    return plan_for(
        compiled.question.cluster,
        compiled.question.offers,
        to=to,
        boot=boots,
        delete=[name for name in names if name not in kept],
        unplaced=unplaced,
        resizes={one.workload: one.requests_after for one in compiled.resizes},
    )


def _seats(compiled: Compiled, packing: Solution, c: int) -> Iterator[str]:
    for e, node in enumerate(compiled.question.cluster.nodes):
        yield from [node.name] * max(0, dict(packing.changes.of(e)).get(c, 0))
    for i in range(len(packing.boots)):
        yield from [f"new-{i}"] * dict(packing.booted.of(i)).get(c, 0)


def taken_apart(compiled: Compiled, packing: Solution) -> Solution:
    """A packing of `compiled.packing` as one of `compiled.relaxed`, whose classes know no groups."""
    grouped, size = compiled.grouped, len(compiled.classes)
    parts = _parts(compiled)
    machine = {offer.name: m for m, alike in enumerate(compiled.offers) for offer in alike}

    def rows(given: Content) -> Content:
        found = []
        for node in range(given.nodes):
            row: Counter[int] = Counter()
            for c, count in given.of(node):
                row.update({part: count * n for part, n in parts[c].items()})
            found.append({c: n for c, n in row.items() if n})
        return content(found)

    return Solution(
        keep=packing.keep,
        changes=rows(packing.changes),
        boots=np.array([machine[grouped.offers[m][0].name] for m in packing.boots.tolist()], dtype=np.int64),
        booted=rows(packing.booted),
        unplaced=packing.unplaced[:size],
    )


def _parts(compiled: Compiled) -> list[Counter[int]]:
    """Of which classes one pod of each class is, groups taken apart."""
    own = {mover.pod.key: c for c, movers in enumerate(compiled.draft.members) for mover in movers}
    found = [Counter({c: 1}) for c in range(len(compiled.classes))]
    groups = (movers[0] for movers in compiled.grouped.draft.members[len(found) :])
    return [*found, *(Counter(own[pod.key] for pod in (one.pod, *one.others)) for one in groups)]
