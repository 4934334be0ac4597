"""The dense form of the problem, for the exact models of small clusters: every class on every node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from kinema_core.events import Amounts
from kinema_core.model.resources import largest
from kinema_optimizer.aggregated.problem import DenseProblem, unbound
from kinema_optimizer.problem.arrays import Flags, Ints, frozen, most_that_fit
from kinema_optimizer.problem.assemble import caps, conflict_pairs, true_caps
from kinema_optimizer.problem.classes import Draft
from kinema_optimizer.problem.node_types import Machines, most_useful, sizes_of
from kinema_optimizer.problem.pods import PodClass


class Dense:
    """Makes the dense problems of one draft."""

    def __init__(self, draft: Draft, classes: Sequence[PodClass], machines: Machines, updates: Sequence[str]) -> None:
        self._draft = draft
        self._classes = classes
        self._machines = machines
        self._updates = updates
        self._totals = frozen([one.size for one in classes], (len(classes),))
        self._pairs = conflict_pairs(draft, classes)

    def problem(self, fixed: Flags) -> DenseProblem:
        """Every rule; `fixed` (E,) are nodes that must be kept."""
        draft, kinds = self._draft, len(self._classes)
        nodes, offers = draft.question.cluster.nodes, list(self._machines.rows)
        stays, old, rollouts = self._counts()
        present = stays + old + rollouts.sum(axis=0)
        limits = self._machine_limits(caps(draft.marks, draft.sites.ties.most), self._admits()[len(nodes) :][offers])
        firsts = [same[0] for same in self._machines.offers]
        return DenseProblem(
            resources=draft.resources,
            requests=draft.requests,
            pending=frozen([len(one.pending) for one in self._classes], (kinds,)),
            rolled=frozen([len(one.rolled) for one in self._classes], (kinds,)),
            nodes=tuple(node.name for node in nodes),
            node_price=frozen([draft.sites.prices[node.name] for node in nodes], (len(nodes),)),
            node_room=draft.node_room,
            node_limit=self._node_limits(stays + rollouts.sum(axis=0)),
            node_stays=frozen(stays, stays.shape),
            node_old=frozen(old, old.shape),
            rollouts=frozen(rollouts, rollouts.shape),
            node_fixed=fixed,
            node_replaceable=self._replaceable(fixed, present),
            node_size=frozen(self._sizes([node.allocatable for node in nodes]), (len(nodes),)),
            machines=tuple(first.name for first in firsts),
            machine_price=frozen([first.micro_usd_per_hour for first in firsts], (len(firsts),)),
            machine_room=frozen(draft.offer_room[offers], (len(offers), len(draft.resources))),
            machine_limit=limits,
            machine_count=self._machine_counts(limits),
            machine_size=frozen(self._sizes([first.allocatable for first in firsts]), (len(firsts),)),
            pools=self._machines.pools,
            conflicts=tuple((int(a), int(b)) for a, b in self._pairs.tolist()),
        )

    def unbound(self, problem: DenseProblem, fixed: Flags) -> DenseProblem:
        """The problem without the rule that pods on kept nodes stay, and with none that this reduction adds."""
        draft, nodes = self._draft, len(problem.nodes)
        room = np.maximum(draft.node_room, 0) + draft.taken
        fits = np.array([most_that_fit(draft.requests, one) for one in room], dtype=np.int64)
        could = draft.could[draft.kinds].T
        cap = true_caps(draft.marks, problem.movable.max(axis=0, initial=0))
        limit = np.where(could[:nodes], np.minimum(fits.reshape(problem.node_limit.shape), cap), 0)
        limit = np.maximum(limit, problem.movable)
        machine_limit = self._machine_limits(cap, could[nodes:][list(self._machines.rows)])
        return replace(
            unbound(problem, stay_room=frozen(room, room.shape), stay_limit=frozen(limit, limit.shape)),
            node_fixed=fixed,
            machine_limit=machine_limit,
            machine_count=self._machine_counts(machine_limit),
            conflicts=(),
        )

    def _admits(self) -> Flags:
        """(S, C): which classes each site admits by every rule."""
        draft = self._draft
        return np.array([draft.admitted(index) for index in range(draft.admits.shape[1])], dtype=bool).reshape(
            draft.admits.shape[1], len(self._classes)
        )

    def _node_limits(self, staying: Ints) -> Ints:
        """(E, C): what fits and every rule admits beside what stays on the node when it is kept."""
        draft, nodes = self._draft, len(self._draft.node_room)
        fits = np.array([most_that_fit(draft.requests, room) for room in draft.node_room], dtype=np.int64)
        left = np.maximum(caps(draft.marks, draft.sites.ties.most) - staying, 0)
        admits = self._admits()[:nodes]
        for a, b in self._pairs.tolist():
            admits[:, a] &= staying[:, b] == 0
            admits[:, b] &= staying[:, a] == 0
        found = np.where(admits, np.minimum(fits.reshape(left.shape), left), 0)
        return frozen(found, found.shape)

    def _machine_limits(self, cap: Ints, admits: Flags) -> Ints:
        """(M, C): most pods of each class on a new machine."""
        fits = np.minimum(self._draft.offer_fits[list(self._machines.rows)], cap)
        return frozen(np.where(admits, fits, 0), fits.shape)

    def _machine_counts(self, limits: Ints) -> Ints:
        draft = self._draft
        apart = np.zeros(len(self._classes), dtype=bool)
        apart[self._pairs.ravel()] = True
        found = []
        for row, same, limit in zip(self._machines.rows, self._machines.offers, limits, strict=True):
            n = most_useful(draft.requests, self._totals, room=draft.offer_room[row], limit=limit, apart=apart)
            found.append(n if same[0].available is None else min(n, same[0].available))
        return frozen(found, (len(found),))

    def _sizes(self, allocatables: Sequence[Amounts]) -> Sequence[int]:
        return sizes_of(allocatables, biggest(self._draft))

    def _counts(self) -> tuple[Ints, Ints, Ints]:
        """Movable pods by where they are: staying and replaced ones (E, C), and those of rolling updates (U, E, C)."""
        index = {node.name: e for e, node in enumerate(self._draft.question.cluster.nodes)}
        workloads = {key: u for u, key in enumerate(self._updates)}
        stays = np.zeros((len(index), len(self._classes)), dtype=np.int64)
        old = np.zeros_like(stays)
        rollouts = np.zeros((len(workloads), *stays.shape), dtype=np.int64)
        for c, one in enumerate(self._classes):
            for mover in one.stays:
                stays[index[mover.pod.node or ""], c] += 1
            for mover in one.rolled:
                old[index[mover.pod.node or ""], c] += 1
            for mover in one.updated:
                rollouts[workloads[mover.workload], index[mover.pod.node or ""], c] += 1
        return stays, old, rollouts

    def _replaceable(self, fixed: Flags, present: Ints) -> Flags:
        """(E,): deletable nodes of which the like, or better for no more money, can be bought without limit."""
        draft, rows = self._draft, list(self._machines.rows)
        every = self._admits()
        price = np.array([draft.question.offers[row].micro_usd_per_hour for row in rows], dtype=np.int64)
        room = np.maximum(draft.node_room, 0) + draft.taken
        nodes = len(draft.node_room)
        admits = every[:nodes] | (present > 0)
        found = np.zeros(len(fixed), dtype=bool)
        for e, node in enumerate(draft.question.cluster.nodes):
            like = (
                self._machines.ample
                & (price <= draft.sites.prices[node.name])
                & (draft.offer_room[rows] >= room[e]).all(axis=1)
                & (every[nodes:][rows] | ~admits[e]).all(axis=1)
            )
            found[e] = bool(like.any()) and not fixed[e]
        return found


def biggest(draft: Draft) -> Amounts:
    """The largest amount of each resource of any node or offer."""
    live = [node.allocatable for node in draft.question.cluster.nodes]
    return largest([*live, *(offer.allocatable for offer in draft.question.offers)])
