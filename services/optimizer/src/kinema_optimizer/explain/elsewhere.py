"""Places elsewhere for the pods of nodes that would be deleted, what those cost, and why such a plan may fail.

`without` answers at the level of sums: first fit, largest pods first, into the free room of other nodes, then onto new
machines. `seating` tries the pods of one node one after another by the rules themselves, as if they were pending: on
existing nodes, else on the cheapest new ones. The reduction holds a node against its pods more strictly than a spread
does, so it may see no room where the rules leave some. Both obey every rule, so what they find is feasible; a search
may find something cheaper. `unready_in_zone` and `without_order` name what may keep the node all the same: the zone
that it serves, and moves without an order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import msgspec
import numpy as np

from kinema_core.events import Node, Offer, Plan
from kinema_core.model.catalog import machine_of
from kinema_core.model.checker.check import check_plan
from kinema_core.model.cluster import Cluster
from kinema_core.model.daemons import is_resident
from kinema_core.model.sequencing.waves import order_transition
from kinema_optimizer.planning.leftovers import with_leftovers
from kinema_optimizer.planning.plan import Outcome, build_plan, new_names, nothing, of_packing
from kinema_optimizer.planning.relaxed_cluster import changed
from kinema_optimizer.problem.arrays import Ints, by_share, most_that_fit, pour, stock_left
from kinema_optimizer.problem.compile import Compiled, compiled
from kinema_optimizer.problem.instance import UNLIMITED, Instance, Solution, content, enemies_of


@dataclass(frozen=True)
class Alternative:
    """Places found for the pods of deleted nodes."""

    onto: Mapping[int, Mapping[int, int]]
    """Existing node → class → pods of it that the node takes."""
    boots: tuple[tuple[int, Mapping[int, int]], ...]
    """Machine of each new node, and what it takes in the same way."""
    price: int
    """Of the new nodes together, micro-USD per hour."""
    homeless: tuple[tuple[int, int], ...]
    """(class, pods) that neither node nor machine on sale can take."""


def without(problem: Instance, nodes: Sequence[int]) -> Alternative:
    """Return the cheaper of using free room first and of new machines alone; fewer pods without a place come first."""
    shop = _Shop(problem, frozenset(nodes))
    found = [shop.placed(use_room=True), shop.placed(use_room=False)]
    return min(found, key=lambda one: (sum(n for _, n in one.homeless), one.price, len(one.boots)))


@dataclass(frozen=True, eq=False)
class _Shop:
    problem: Instance
    gone: frozenset[int]

    def placed(self, *, use_room: bool) -> Alternative:
        """Place the pods of the nodes that go."""
        left = self._displaced()
        onto: dict[int, dict[int, int]] = {}
        if use_room:
            for c in by_share(self.problem.requests, self._largest):
                if left[c]:
                    left[c] -= self._poured(c, int(left[c]), onto)
        boots, left = self._bought(left)
        price = sum(int(self.problem.machine_price[machine]) for machine, _ in boots)
        homeless = tuple((int(c), int(left[c])) for c in np.flatnonzero(left))
        return Alternative(onto, tuple(boots), price, homeless)

    def _displaced(self) -> Ints:
        gone = np.zeros(len(self.problem.nodes), dtype=bool)
        gone[sorted(self.gone)] = True
        return self.problem.stays.totals(len(self.problem.pending), gone)

    @cached_property
    def _largest(self) -> Ints:
        rooms = np.concatenate([self.problem.machine_room, self.problem.node_room])
        return np.asarray(rooms.max(axis=0, initial=1), dtype=np.int64)

    @cached_property
    def _enemies(self) -> Mapping[int, tuple[int, ...]]:
        return enemies_of(self.problem)

    # --- free room on existing nodes; what is poured counts for the classes after it

    def _poured(self, c: int, left: int, onto: dict[int, dict[int, int]]) -> int:
        problem = self.problem
        may = problem.admits[problem.node_row, c].copy()
        may[sorted(self.gone)] = False
        for enemy in self._enemies.get(c, ()):
            may &= self._here[enemy] == 0 if enemy in self._here else self._count(enemy) == 0
        limit = np.where(may, left, 0)
        if problem.cap[c] < UNLIMITED:
            limit = np.minimum(limit, np.maximum(problem.cap[c] - self._count(c), 0))
        put = pour(problem.requests[c], self._spare, left, limit)
        self._spare[:] -= put[:, None] * problem.requests[c]
        self._count(c)[:] += put
        for e in np.flatnonzero(put).tolist():
            onto.setdefault(e, {})[c] = int(put[e])
        return int(put.sum())

    @cached_property
    def _spare(self) -> Ints:
        return self.problem.node_room.copy()

    @cached_property
    def _here(self) -> dict[int, Ints]:
        return {}

    def _count(self, c: int) -> Ints:
        """(E,): pods of a class on each node, newcomers included."""
        if c not in self._here:
            stays = self.problem.stays
            mine = stays.classes == c
            self._here[c] = np.bincount(
                stays.node_of[mine], weights=stays.counts[mine], minlength=len(self.problem.nodes)
            ).astype(np.int64)
        return self._here[c]

    # --- new machines: one for all the rest if that is cheaper than those that are filled best for their price

    def _bought(self, left: Ints) -> tuple[list[tuple[int, Mapping[int, int]]], Ints]:
        used = np.zeros(len(self.problem.machines), dtype=np.int64)
        bought: list[tuple[int, Mapping[int, int]]] = []
        spent = 0
        whole: tuple[int, list[tuple[int, Mapping[int, int]]]] | None = None
        left = left.copy()
        while left.any():
            stock = stock_left(self.problem.machine_available, self.problem.pools, used)
            fills = {m: self._fill(m, left) for m in np.flatnonzero(stock > 0).tolist()}
            fills = {m: counts for m, counts in fills.items() if counts.any()}
            if not fills:
                break
            for m, counts in fills.items():
                price = spent + int(self.problem.machine_price[m])
                if (counts == left).all() and (whole is None or price < whole[0]):
                    whole = (price, [*bought, (m, _named(counts))])
            machine = min(fills, key=lambda m: (*self._rate(m, fills[m]), m))
            bought.append((machine, _named(fills[machine])))
            used[machine] += 1
            spent += int(self.problem.machine_price[machine])
            left = left - fills[machine]
        if whole is not None and (left.any() or whole[0] <= spent):
            return whole[1], np.zeros_like(left)
        return bought, left

    def _rate(self, machine: int, counts: Ints) -> tuple[float, int]:
        """Price per worth of what it takes; smaller is better."""
        price = int(self.problem.machine_price[machine])
        return price / max(1.0, float(counts @ self._worth)), price

    @cached_property
    def _worth(self) -> Ints:
        """(C,): what one pod costs on the machine that is cheapest for it."""
        problem = self.problem
        share = (problem.requests[:, None, :] / np.maximum(problem.machine_room, 1)[None]).max(axis=2, initial=0.0)
        share = np.where(problem.admits[problem.machine_row].T, share, np.inf)
        worth = (share * np.maximum(problem.machine_price, 1)).min(axis=1, initial=np.inf)
        return np.where(np.isfinite(worth), np.ceil(worth), 0).astype(np.int64)

    def _fill(self, machine: int, left: Ints) -> Ints:
        """(C,): what one new machine takes of the pods left, largest share of it first."""
        problem = self.problem
        room = problem.machine_room[machine].copy()
        counts = np.zeros_like(left)
        wanted = [c for c in np.flatnonzero(left).tolist() if problem.admits[problem.machine_row[machine], c]]
        share = (problem.requests[wanted] / np.maximum(room, 1)).max(axis=1, initial=0.0)
        for _, c in sorted(zip((-share).tolist(), wanted, strict=True)):
            if any(counts[enemy] for enemy in self._enemies.get(c, ())):
                continue
            fits = int(most_that_fit(problem.requests[c : c + 1], room)[0])
            counts[c] = min(int(left[c]), int(problem.cap[c]), fits)
            room = room - counts[c] * problem.requests[c]
        return counts


def _named(counts: Ints) -> Mapping[int, int]:
    return {int(c): int(counts[c]) for c in np.flatnonzero(counts)}


_OF_OTHERS: Final = {"pending-placeable", "priority-inverted"}
"""Violations by pods that wait already; they are not asked about."""


@dataclass(frozen=True)
class Seating:
    """Places for the pods of a node."""

    outcome: Outcome
    onto: Mapping[str, int]
    """Nodes that are there, and how many pods each takes."""
    boots: Mapping[str, int]
    """Offers by name, and how many new nodes of each there are."""
    price: int
    """Of the new nodes together, micro-USD per hour."""


def seating(given: Compiled, node: Node) -> Seating | None:
    """Return where the node's pods that may move find a place by the rules; None where one of them finds none."""
    asked, cluster = given.question, given.question.cluster
    here = [pod.key for pod in cluster.pods_by_node.get(node.name, ()) if pod.key in given.sites.mobility.strategy]
    alone = compiled(replace(asked, cluster=_without(cluster, node, here), forecasts=()))
    stays = build_plan(alone, nothing(alone))
    found = with_leftovers(stays, alone.question.cluster, asked.offers, now=asked.now, options=asked.options)
    outcome = _outcome(given, node, found)
    if outcome.targets.keys() != set(here) or not _obeys(given, outcome):
        return None
    live, sold = {one.name for one in cluster.nodes}, [alike[0] for alike in outcome.boots]
    return Seating(
        outcome=outcome,
        onto=Counter(to for to in outcome.targets.values() if to in live),
        boots=Counter(one.name for one in sold),
        price=sum(one.micro_usd_per_hour for one in sold),
    )


def _without(cluster: Cluster, node: Node, here: list[str]) -> Cluster:
    """Return the cluster without the node and what goes with it; its pods wait, and no others do."""
    gone = [pod.key for pod in cluster.pods if pod.node in (None, node.name) and pod.key not in here]
    waiting = {key: msgspec.structs.replace(pod, node=None) for key in here if (pod := cluster.pod(key)) is not None}
    return changed(changed(cluster, "Node", {node.name: None}), "Pod", {**dict.fromkeys(gone), **waiting})


def _outcome(given: Compiled, node: Node, found: Plan) -> Outcome:
    cluster, offers = given.question.cluster, {one.name: one for one in given.question.offers}
    booted = [one for one in found.nodes if one.action == "boot"]
    names = {one.name: name for one, name in zip(booted, new_names(cluster), strict=False)}
    boots: list[tuple[Offer, ...]] = [(offers[one.offer],) for one in booted]
    return replace(
        nothing(given),
        keep=tuple(one.name != node.name for one in cluster.nodes),
        boots=tuple(boots),
        targets={one.pod: names.get(one.to, one.to) for one in found.placements if one.source is None},
    )


def _obeys(given: Compiled, outcome: Outcome) -> bool:
    asked = given.question
    wrong = check_plan(build_plan(given, outcome), asked.cluster, asked.offers, asked.now, asked.options)
    return all(one.code in _OF_OTHERS for one in wrong)


def unready_in_zone(given: Compiled, node: Node) -> str:
    """Return which node that is not Ready makes plans keep this one for their zone; see `ordering.last_beside`."""
    cluster, facts, prices = given.question.cluster, given.sites.mobility, given.sites.prices
    zone = machine_of(node)[1]
    here = [one for one in cluster.nodes if machine_of(one)[1] == zone]
    serving = [one for one in here if one.ready and not one.unschedulable]
    absent = [one.name for one in here if not one.ready and _holds_pods(cluster, one)]
    if not absent or node not in serving or any(facts.deletable[one.name] is not None for one in serving):
        return ""
    if min(serving, key=lambda one: (prices[one.name], one.name)) != node:
        return ""
    only = "this is the only one" if len(serving) == 1 else "this is the cheapest"
    return (
        f"node {absent[0]} of zone {zone} is not Ready and has pods: as long as it stays, so does a node of that zone "
        f"that takes pods, and {only}"
    )


def _holds_pods(cluster: Cluster, node: Node) -> bool:
    here = cluster.pods_by_node.get(node.name, ())
    return any(not pod.terminating and not is_resident(cluster, pod) for pod in here)


def as_outcome(given: Compiled, problem: Instance, node: int, found: Alternative) -> Outcome:
    """Return what became of a deleted node's pods, by name."""
    packing = Solution(
        keep=np.arange(len(problem.nodes)) != node,
        changes=content([dict(found.onto.get(e, {})) for e in range(len(problem.nodes))]),
        boots=np.array([machine for machine, _ in found.boots], dtype=np.int64),
        booted=content([dict(taken) for _, taken in found.boots]),
        unplaced=problem.pending,
    )
    return of_packing(given, packing)


def without_order(given: Compiled, outcome: Outcome) -> str:
    """Return the pods that no order of moves brings to the place that was found for them."""
    question, plan = given.question, build_plan(given, outcome)
    stuck = order_transition(plan, question.cluster, question.offers, now=question.now, options=question.options).stuck
    if not stuck:
        return ""
    places = {one.pod: one.to for one in plan.placements}
    more = f" and {len(stuck) - 1} more of its pods" if len(stuck) > 1 else ""
    return (
        f"no order of moves was found that brings {stuck[0]} to {places[stuck[0]]}{more}: rules, room, ports or "
        "volumes of old pods are in the way, and plans keep the node unless they find another place"
    )
