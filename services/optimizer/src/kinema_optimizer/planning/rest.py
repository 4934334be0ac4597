"""The rest of a plan from its goal, without a solve: `outcomes_left` says what is left to do in the cluster as it is.

Pods that came since, other marks on nodes or a miss may have made the goal dear or out of reach. So what is left is
ordered and checked as any plan is, and is only one candidate beside what the solvers find.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from kinema_core.events import Pod
from kinema_core.model.pod_rules import listed_by_key
from kinema_optimizer.planning.plan import Outcome, in_turn, keeping, new_names, pending_movers
from kinema_optimizer.problem.compile import Compiled
from kinema_optimizer.request.goal import Goal


def outcomes_left(problem: Compiled, goal: Goal) -> Iterator[Outcome]:
    """Yield what is left to do for a goal, with ever more moves; nothing where a machine of it is not on sale.

    First pods that landed on another node than planned stay there, if that node stays; then they go on to a place of
    the goal, too.
    """
    seen: list[Outcome] = []
    for stay in (True, False):
        found = _outcome_left(problem, goal, stay=stay)
        if found is not None and found not in seen:
            seen.append(found)
            yield found


def _outcome_left(problem: Compiled, goal: Goal, *, stay: bool) -> Outcome | None:
    cluster = problem.question.cluster
    offers = {offer.name: offer for offer in problem.question.offers}
    missing = [name for name in goal.boots if cluster.node(name) is None]
    if any(goal.boots[name] not in offers for name in missing):
        return None
    names = dict(zip(missing, new_names(cluster), strict=False))
    listed, movable = listed_by_key(cluster), problem.sites.mobility.strategy
    gone = goal.deleted
    targets: dict[str, str] = {}
    updates: set[str] = set()
    for workload, wanted in goal.seats.items():
        pods = [pod for pod in cluster.pods_by_workload.get(workload, ()) if pod.key in listed]
        free = Counter({names.get(name, name): count for name, count in wanted.items()})
        going = [pod for pod in _without_seats(pods, free) if pod.node is None or pod.key in movable]
        if stay:
            going = [pod for pod in going if pod.node is None or pod.node in gone or pod.key in goal.unmoved]
        found = {pod.key: name for pod, name in zip(going, in_turn(free), strict=False)}
        if workload in problem.updates and found:
            updates.add(workload)
            targets |= {pod.key: pod.node for pod in pods if pod.node is not None}
        targets |= found
    lost = tuple(mover for mover in pending_movers(problem) if mover.pod.key not in targets)
    outcome = Outcome(
        keep=tuple(node.name not in gone for node in cluster.nodes),
        boots=tuple((offers[goal.boots[name]],) for name in missing),
        targets=targets,
        lost=lost,
        updates=frozenset(updates),
    )
    needed = {pod.node for key, pod in listed.items() if pod.node in gone and key not in targets}
    needed |= {node.name for node in cluster.nodes if node.name in gone and problem.sites.mobility.deletable[node.name]}
    return keeping(problem, outcome, needed) if needed else outcome


def _without_seats(pods: list[Pod], free: Counter[str]) -> list[Pod]:
    """Return the pods that have no seat where they are; `free` loses the seats of the others."""
    found = list[Pod]()
    for pod in pods:
        if pod.node is not None and free[pod.node] > 0:
            free[pod.node] -= 1
        else:
            found.append(pod)
    return found
