"""Ordering of a solution's moves into a plan, and the comparison of such plans: `order_plan` and `key_of_plan`.

A limit on moves is one on restarts: a pod with an intermediate stop restarts twice, and counts twice.

`zone_keepers`: pods of a node that is not Ready count as running until they are gone, as most such nodes come back. But
a plan that leaves their zone without any node that takes pods depends on nothing: their successors, a volume's users,
or the next pod of a spread would find no place there. So one node that takes pods stays in such a zone, the cheapest,
if it has any now.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Final, TypeAlias

import msgspec

from kinema_core.events import FrozenMap, Node, Plan
from kinema_core.model.checker.rules import check_rules
from kinema_core.model.checker.view import Violation, view_of
from kinema_core.model.cluster import Cluster
from kinema_core.model.disruption_cost import disruption_cost
from kinema_core.model.sequencing.wave_builder import ROOM
from kinema_core.model.sequencing.waves import order_transition, with_steps
from kinema_optimizer.planning.leftovers import with_leftovers
from kinema_optimizer.planning.plan import Outcome, build_plan, keeping, node_cost, nothing, without_moves
from kinema_optimizer.planning.preferences import points_given_up
from kinema_optimizer.planning.redundancy import redundant
from kinema_optimizer.problem.compile import Compiled
from kinema_optimizer.request.objective import MICRO, ObjectiveKey, price_of_moves, worth
from kinema_optimizer.solvers.stopping import ORDER, WAVE, Over, StopRule

ATTEMPTS: Final = 8
"""Most attempts without the moves that have no order, before nothing is moved at all."""
_TWICE: Final = "the limit on moves"

Stuck: TypeAlias = Mapping[str, str]
"""Pods whose moves have no order, by key, each with the kind of what is against its move."""


def obstacles_of(stuck: Stuck) -> frozenset[str]:
    """Return what is to blame: what is against the moves of these pods, room only where nothing else is."""
    kinds = frozenset(kind for kind in stuck.values() if kind)
    return kinds - {ROOM} or kinds


def key_of(problem: Compiled, outcome: Outcome) -> ObjectiveKey:
    """Return what an outcome is compared by."""
    asked, paid = problem.question, node_cost(problem, outcome)
    pods = asked.cluster.pods_by_key
    moving = [key for key, to in outcome.targets.items() if pods[key].node not in {None, to}]
    points = points_given_up(problem, outcome) if asked.point_price else 0
    paid += asked.point_price * points
    if asked.move_price:
        paid += price_of_moves(asked.move_price, sum(disruption_cost(asked.cluster, pods[key]) for key in moving))
    over = 0 if asked.max_moves is None else max(0, len(moving) - asked.max_moves)
    return ObjectiveKey(over, len(outcome.lost), paid, len(moving), points)


def key_of_plan(problem: Compiled, plan: Plan, move_price: int | None = None) -> tuple[bool, ObjectiveKey]:
    """Return what a plan is compared by, whether its pods restart in no order first; preferences are not priced.

    A move has the price given, else the question's.
    """
    asked, moved = problem.question, _moved(plan)
    price = asked.move_price if move_price is None else move_price
    paid = round(plan.cost.after * MICRO)
    if price:
        pods = asked.cluster.pods_by_key
        cost = sum(disruption_cost(asked.cluster, pods[key]) * times for key, times in moved.items())
        paid += price_of_moves(price, cost)
    key = ObjectiveKey(_excess(problem, plan), len(plan.unplaced), paid, sum(moved.values()))
    return worth(plan)[0], key


def exceeds(problem: Compiled, plan: Plan) -> tuple[Violation, ...]:
    """Return what a plan has against it that moves more than it may, although no new requests make pods move."""
    if problem.resizes or not _excess(problem, plan):
        return ()
    said = f"{sum(_moved(plan).values())} moves, stops on the way counted; at most {problem.question.max_moves} may be"
    return (Violation("max-moves", "moves", said),)


def _excess(problem: Compiled, plan: Plan) -> int:
    """Return the moves above the limit; it is what restarts for new requests have left, so these do not count again."""
    most, cluster = problem.question.max_moves, problem.question.cluster
    if most is None:
        return 0
    renewed = {pod.key for one in problem.resizes for pod in cluster.pods_by_workload.get(one.workload, ())}
    return max(0, sum(times for key, times in _moved(plan).items() if key not in renewed) - most)


def _moved(plan: Plan) -> Mapping[str, int]:
    """Running pods whose node changes, by key, and how often."""
    times = Counter(step.pod for step in plan.steps if step.action == "move")
    moving = (one.pod for one in plan.placements if one.source is not None and one.source != one.to)
    return {key: max(1, times[key]) for key in moving}


def with_unordered_count(plan: Plan, stuck: Collection[str]) -> Plan:
    """Return the plan that says how many of these pods, whose moves had no order, it leaves where they are."""
    staying = {one.pod for one in plan.placements if one.source == one.to}
    figures = {**plan.figures, "kept_in_place_without_an_order": float(len(staying.intersection(stuck)))}
    return msgspec.structs.replace(plan, figures=FrozenMap(figures)) if stuck else plan


def order_plan(problem: Compiled, outcome: Outcome, stop: StopRule) -> tuple[Plan, Stuck]:
    """Return the plan with its steps in waves, and the pods whose moves had no order at first.

    Such moves are taken out. Where that does not help, or there is no time for it, no pod moves and only pending pods
    get a place.
    """
    return order_within(problem, outcome, stop.noted(ORDER))


def order_within(problem: Compiled, outcome: Outcome, over: Over) -> tuple[Plan, Stuck]:
    """Return the same until the time is `over`."""
    first: Stuck = {}
    for _ in range(ATTEMPTS):
        if over(ORDER):
            break
        plan, stuck = order_once(problem, outcome, over)
        if not stuck:
            return plan, first
        if over(WAVE):
            break
        first = first or stuck
        if outcome.targets.keys().isdisjoint(stuck):  # who was seated last has no order with what the others do
            break
        outcome = without_moves(problem, outcome, stuck)
    return unmoved(problem), first


def unmoved(problem: Compiled) -> Plan:
    """Return the plan that moves no pod and gives a place to each pending pod that can have one."""
    plan, stuck = order_once(problem, nothing(problem))
    return build_plan(problem, nothing(problem)) if stuck else plan


def order_once(problem: Compiled, outcome: Outcome, over: Over = lambda _: False) -> tuple[Plan, Stuck]:
    """Return the plan with its steps, and the pods whose moves have no order, or none within the limit on moves.

    Where the time is `over`, all pods that have no order until then are among these.
    """
    asked = problem.question
    plan = _complete(problem, outcome)
    transition = order_transition(
        plan, asked.cluster, asked.offers, now=asked.now, options=asked.options, over=lambda: over(WAVE)
    )
    found = with_steps(plan, transition)
    if transition.stuck or not _excess(problem, found):
        return found, transition.obstacles
    return found, {key: _TWICE for key, times in sorted(_moved(found).items()) if times > 1}


def _complete(problem: Compiled, outcome: Outcome) -> Plan:
    """Return the plan with pods placed that the solver left out needlessly, and with the nodes that zones need.

    Where nodes that were to go are kept for them, all others on these stay, if that is no worse.
    """
    asked = problem.question
    outcome = redundant(problem, outcome)

    def built(outcome: Outcome) -> Plan:
        plan = build_plan(problem, outcome)
        return with_leftovers(plan, asked.cluster, asked.offers, now=asked.now, options=asked.options)

    plan = built(outcome)
    needed = zone_keepers(plan, asked.cluster)
    if needed:
        outcome = redundant(problem, keeping(problem, outcome, needed))
        plan = built(outcome)
        view = view_of(plan, asked.cluster, asked.offers, now=asked.now, options=asked.options)
        if any(check_rules(view)):  # a spread counts the daemon sets' pods of a node that was to be deleted
            return built(nothing(problem))
    names = (node.name for node, keep in zip(asked.cluster.nodes, outcome.keep, strict=True) if not keep)
    kept = {node.name for node in plan.nodes if node.action == "keep"}.intersection(names)
    if not kept:
        return plan
    again = built(redundant(problem, keeping(problem, outcome, kept)))
    return min((plan, again), key=lambda one: key_of_plan(problem, one))


def zone_keepers(plan: Plan, cluster: Cluster) -> frozenset[str]:
    """Names of the nodes to keep: one for each zone that the plan leaves to nodes that are not Ready and hold pods."""
    absent, serving = _zones(plan, cluster)
    lost = absent.keys() - serving.keys()
    found: dict[str, tuple[float, str]] = {}
    for node in plan.nodes if lost else ():
        live = cluster.node(node.name)
        if node.action == "delete" and node.zone in lost and live is not None and _is_open(live):
            found[node.zone] = min(found.get(node.zone, (node.usd_per_hour, node.name)), (node.usd_per_hour, node.name))
    return frozenset(name for _, name in found.values())


def last_beside(plan: Plan, cluster: Cluster) -> Mapping[str, str]:
    """Nodes that the plan could not delete for this rule alone, each with one of its zone that is not Ready."""
    absent, serving = _zones(plan, cluster)
    return {nodes[0]: absent[zone] for zone, nodes in serving.items() if zone in absent and len(nodes) == 1}


def _zones(plan: Plan, cluster: Cluster) -> tuple[dict[str, str], dict[str, list[str]]]:
    """By zone: a node that stays, is not Ready and holds pods; and those that take pods after the plan."""
    absent: dict[str, str] = {}
    serving: dict[str, list[str]] = {}
    if all(node.ready for node in cluster.nodes):
        return absent, serving
    used = {place.to for place in plan.placements}
    for node in plan.nodes:
        live = cluster.node(node.name)
        if node.action == "delete":
            continue
        if live is None or _is_open(live):
            serving.setdefault(node.zone, []).append(node.name)
        elif node.name in used and not live.ready:
            absent.setdefault(node.zone, node.name)
    return absent, serving


def _is_open(node: Node) -> bool:
    return node.ready and not node.unschedulable
