"""Whole plans against all end states and all orders, on tiny clusters: how many are equal, and why the others are not.

    python -m tests.optimizer.exact.brute_orders [--instances 500] [--first 0] [--out FILE]

Brute force finds the best state after a plan. Where the optimizer's plan is not as good (as few pods without a place,
and within 0.1% of the cost), every better state is tried with every order of its moves, one at a time: straight to
their nodes, and with one stop of one pod on any other node. Nodes are deleted as soon as they are empty, or at the end.
The checker judges; it shares no code with the search for orders. A plan is equal where no better state has an order,
and a miss where one has. Workloads that are updated as a whole (`rolling`) are left out, as are clusters with too many
plans.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import combinations, count, islice
from pathlib import Path
from typing import Final, TypeAlias

import msgspec
from benchmarks.machine import write_result
from tests.optimizer.exact.brute_rules import Brute, TooLargeError
from tests.optimizer.planned import planned
from tests.optimizer.rule_instances import RuleInstance, rule_instance
from tests.support.builders import NOW
from tests.support.planning import unguarded

from kinema_core.events import Plan, PlanStep
from kinema_core.model.checker.check import check_plan
from kinema_core.model.cluster import Cluster
from kinema_core.model.mobility import mobility
from kinema_core.model.sequencing.waves import order_transition
from kinema_optimizer.planning.plan import Outcome, build_plan, new_names
from kinema_optimizer.problem.compile import Compiled, compiled
from kinema_optimizer.problem.question import Question
from kinema_optimizer.request.objective import MICRO, SLACK, Window

INSTANCES: Final = 500
WORK: Final = 20_000
"""Callbacks of a phase that no instance here comes near."""
MOST_CHECKS: Final = 6_000
"""Orders of an instance that are looked at before it counts as undecided."""
CHEAPEST: Final = unguarded(windows=(Window(objective="least-cost"),))


def by_priority(cluster: Cluster, lost: set[str]) -> tuple[int, ...]:
    """Pods left out, per priority of a pending pod that could be placed, the highest first."""
    held = mobility(cluster, NOW).held
    waiting = [pod for pod in cluster.pods if pod.node is None and not pod.terminating and pod.key not in held]
    levels = sorted({pod.priority for pod in waiting}, reverse=True)
    counts = Counter(pod.priority for pod in waiting if pod.key in lost)
    return tuple(counts[level] for level in levels)


Leg: TypeAlias = tuple[str, str]
"""A pod, and the node that it moves to."""
Legs: TypeAlias = tuple[Leg, ...]


@dataclass(frozen=True)
class EndState:
    """A state after a plan: pods left out by priority, cost, new places of pods, new nodes, and live ones that stay."""

    lost: tuple[int, ...]
    cost: int
    targets: Mapping[str, str]
    boots: tuple[str, ...]
    """By offer; the nth is `new-n` in the targets, from 0."""
    kept: frozenset[str]


class _Better(Brute):
    """Every lawful state that is worth more than a limit."""

    def __init__(self, instance: RuleInstance, limit: tuple[tuple[int, ...], int]) -> None:
        super().__init__(instance.cluster, instance.offers, None, 0, doubled=False)
        self.limit = limit
        self.found: list[EndState] = []
        self._try_all()

    def _value(self, lost: list[int], paid: int, moved: int) -> tuple[int, ...] | None:
        return (*lost, paid) if (tuple(lost), paid) < self.limit else None

    def _leaf(self, lost: list[int], paid: int, moved: int) -> None:
        idle = [spot for spot in self.spots if spot.stuck and not spot.fixed and not spot.seats]
        for kept in (some for size in range(len(idle) + 1) for some in combinations(idle, size)):
            price = paid + sum(spot.price for spot in kept)
            spots = [spot for spot in self.spots if spot.fixed or spot.seats or spot in kept] + self.boots
            if self._value(lost, price, moved) is None or not self._lawful(spots):
                continue
            targets = {pod.key: spot.name for spot in spots for pod, comes in spot.seats if comes}
            live = frozenset(spot.name for spot in spots if not spot.offer)
            self.found.append(EndState(tuple(lost), price, targets, tuple(one.offer for one in self.boots), live))


@dataclass
class _Orders:
    """Orders of the moves of one instance's states, tried one after another."""

    instance: RuleInstance
    problem: Compiled
    checks: int = 0
    refusals: Counter[str] = field(default_factory=Counter)
    """Codes of the rules that refused a state or an order, by how often."""

    def order_of(self, state: EndState) -> Legs | bool | None:
        """Return an order of moves that reaches the state, False where there is none; None where that is undecided."""
        plan = self._plan(state)
        beyond = self._wrong(plan, ordered=False)
        if beyond:
            self.refusals.update(beyond)
            return False
        legs = sorted((one.pod, one.to) for one in plan.placements if one.strategy != "stay")
        for way in (legs, *([*legs, stop] for stop in self._stops(plan, legs))):
            found = self._reached(plan, (), way)
            if found is not False:
                return found
        return False

    def is_found(self, state: EndState) -> bool:
        """Return whether the optimizer finds an order for this state when it is given it."""
        asked = self.problem.question
        plan = self._plan(state)
        return not order_transition(plan, asked.cluster, asked.offers, now=NOW, options=asked.options).stuck

    def _stops(self, plan: Plan, legs: Sequence[Leg]) -> Iterator[Leg]:
        pods = self.instance.cluster.pods_by_key
        for pod, to in legs:
            if (source := pods[pod].node) is not None:
                yield from ((pod, node.name) for node in plan.nodes if node.name not in {source, to})

    def _reached(self, plan: Plan, done: Legs, left: Sequence[Leg]) -> Legs | bool | None:
        """Return what is done and an order of the rest that is accepted; none that begins as one refused is tried."""
        if self.checks >= MOST_CHECKS:
            return None
        final = {one.pod: one.to for one in plan.placements}
        for index, leg in enumerate(left):
            rest = [*left[:index], *left[index + 1 :]]
            if leg[1] == final[leg[0]] and any(pod == leg[0] for pod, _ in rest):  # the stop comes before
                continue
            refused = self._refused(plan, (*done, leg), rest)
            if refused is None:
                return (*done, leg, *rest)
            if refused > len(done) and rest:  # waves of moves are counted from 0
                found = self._reached(plan, (*done, leg), rest)
                if found is not False:
                    return found
        return False

    def _refused(self, plan: Plan, done: Sequence[Leg], rest: Sequence[Leg]) -> int | None:
        """Return the number of the first move that is refused, in the better of two times to delete; None for none."""
        firsts, offset = [], int(any(node.action == "boot" for node in plan.nodes))
        for early in (False, True):
            self.checks += 1
            wrong = self._wrong(_with_steps(plan, [*done, *rest], self.instance.cluster, early=early), ordered=True)
            if not wrong:
                return None
            first = min(wrong.values())
            if first < offset + len(done):
                self.refusals.update(code for code, wave in wrong.items() if wave == first)
            firsts.append(first)
        return max(firsts) - offset

    def _wrong(self, plan: Plan, *, ordered: bool) -> dict[str, int]:
        """Return the codes of what is wrong, each with its first wave."""
        found: dict[str, int] = {}
        asked = self.problem.question
        for one in check_plan(plan, asked.cluster, asked.offers, NOW, asked.options, ordered=ordered):
            named = re.match(r"wave (\d+):", one.detail)
            wave = int(named[1]) if named else MOST_CHECKS
            found[one.code] = min(wave, found.get(one.code, wave))
        return found

    def _plan(self, state: EndState) -> Plan:
        cluster, problem = self.instance.cluster, self.problem
        offers = {offer.name: offer for offer in self.instance.offers}
        names = dict(zip((f"new-{n}" for n in range(len(state.boots))), new_names(cluster), strict=False))
        waiting = [mover for one in problem.classes for mover in one.pending]
        waiting += [mover for _, mover in problem.homeless]
        return build_plan(
            problem,
            Outcome(
                keep=tuple(node.name in state.kept for node in cluster.nodes),
                boots=tuple((offers[name],) for name in state.boots),
                targets={key: names.get(to, to) for key, to in state.targets.items()},
                lost=tuple(mover for mover in waiting if mover.pod.key not in state.targets),
            ),
        )


def _with_steps(plan: Plan, legs: Sequence[Leg], cluster: Cluster, *, early: bool) -> Plan:
    """Return the plan with its moves in this order, one a wave; nodes are booted before all of them."""
    boots = [node.name for node in plan.nodes if node.action == "boot"]
    steps = [PlanStep(wave=0, action="boot", node=name) for name in boots]
    first = 1 if boots else 0
    steps += [PlanStep(wave=first + n, action="move", node=to, pod=pod) for n, (pod, to) in enumerate(legs)]
    end = first + len(legs)
    at = {pod.key: pod.node for pod in cluster.pods if pod.node is not None}
    last: dict[str | None, int] = {}
    for number, (pod, to) in enumerate(legs):
        last[at.get(pod)] = last[to] = first + number
        at[pod] = to
    for node in plan.nodes:
        if node.action == "delete":
            wave = last.get(node.name, -1) + 1 if early else end
            steps.append(PlanStep(wave=wave, action="delete", node=node.name))
    waves = sorted({step.wave for step in steps})
    steps = [msgspec.structs.replace(step, wave=waves.index(step.wave)) for step in steps]
    rank = {"boot": 0, "move": 1, "delete": 2}
    return msgspec.structs.replace(plan, steps=tuple(sorted(steps, key=lambda one: (one.wave, rank[one.action]))))


@dataclass(frozen=True)
class Compared:
    """A plan beside the best that brute force finds. USD per hour."""

    seed: int
    lost: tuple[int, ...]
    cost: float
    best_lost: tuple[int, ...]
    best_cost: float
    equal: bool
    why: str
    better: int = 0
    """States that are better than the plan's."""
    reached_lost: tuple[int, ...] = ()
    reached_cost: float | None = None
    """Of the best state with an order, where that is better than the plan."""
    order: Legs = ()
    """Of its moves; a pod that is named twice makes a stop."""
    refused_by: tuple[str, ...] = ()
    """Rules of the checker that refuse the orders of better states, those that refuse most first."""


def compare(seed: int) -> Compared | None:
    """Return the comparison of an instance; None where it is left out."""
    instance = rule_instance(seed)
    try:
        brute = Brute(instance.cluster, instance.offers, None, 0, doubled=False)
        best = None if brute.rolling else brute.search()
        if best is None:
            return None
        plan = planned(instance.cluster, instance.offers, work=WORK, settings=CHEAPEST)
        lost = by_priority(instance.cluster, {one.pod for one in plan.unplaced})
        cost = round(plan.cost.after * MICRO)
        known = Compared(seed, lost, cost / MICRO, best.lost, best.cost / MICRO, True, "best state")
        if (lost, cost) <= (best.lost, best.cost + best.cost // SLACK):
            return known
        return _explained(instance, known, _Better(instance, (lost, cost - cost // SLACK)).found)
    except TooLargeError:
        return None


def _explained(instance: RuleInstance, known: Compared, states: Sequence[EndState]) -> Compared:
    question = Question(instance.cluster, instance.offers, NOW, "reschedule", options=CHEAPEST.mobility)
    orders = _Orders(instance, compiled(question))
    known, undecided = replace(known, better=len(states), why="no better state has an order"), False
    for state in sorted(states, key=lambda one: (one.lost, one.cost, sorted(one.targets.items()))):
        found = orders.order_of(state)
        if found:
            why = "the search does not try a better state" if orders.is_found(state) else "an order is not found"
            order = found if isinstance(found, tuple) else ()
            reached = replace(known, reached_lost=state.lost, reached_cost=state.cost / MICRO, order=order)
            return replace(reached, equal=False, why=why)
        undecided |= found is None
    refused = tuple(code for code, _ in orders.refusals.most_common())
    if undecided:
        known = replace(known, equal=False, why="undecided: too many orders")
    return replace(known, refused_by=refused)


def compared(first: int = 0) -> Iterator[Compared]:
    """Yield the comparisons of all instances from a seed on."""
    yield from (found for seed in count(first) if (found := compare(seed)) is not None)


def summary(found: Sequence[Compared]) -> dict[str, object]:
    """Return the share that is equal, and every plan that is not at the best state."""
    equal = sum(one.equal for one in found)
    return {
        "instances": len(found),
        "equal": equal,
        "equal_percent": round(100 * equal / len(found), 2),
        "at_the_best_state": sum(one.why == "best state" for one in found),
        "others": [asdict(one) for one in found if one.why != "best state"],
    }


def main() -> None:
    """Entry point of `python -m tests.optimizer.exact.brute_orders`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instances", type=int, default=INSTANCES)
    parser.add_argument("--first", type=int, default=0, help="seed")
    parser.add_argument("--out", type=Path, default=Path("out/bench/brute_orders.json"))
    given = parser.parse_args()
    found = []
    for one in islice(compared(given.first), given.instances):
        found.append(one)
        if one.why != "best state":
            sys.stderr.write(f"{one}\n")
    write_result("brute_orders", summary(found), given.out)


if __name__ == "__main__":
    main()
