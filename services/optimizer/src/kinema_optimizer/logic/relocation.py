"""Autoscaling that may move running pods: which ones, so that the exact model weighs them against new nodes.

A pending pod that fits nowhere may fit where others leave for room elsewhere, and a few moves may be cheaper than a
node. The exact model decides that with every rule and for all machine types at once, but for a few dozen pods: those
that wait, and those of the nodes with most free room, where least has to leave. Nodes are only added.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from kinema_core.events import Node, Pod
from kinema_core.model.cluster import Cluster
from kinema_core.model.mobility import Mobility
from kinema_optimizer.logic.compiled import Question, Sites
from kinema_optimizer.logic.movers import Mover, movers_of
from kinema_optimizer.logic.tiny import TinyProblem
from kinema_optimizer.logic.tiny_cluster import MOST_COLUMNS, MOST_PODS, tiny_problem_with

MOST_WAITING: Final = MOST_PODS // 2
"""Pending pods for which running ones are asked to move; where more wait, nodes are added."""
_NODES: Final = 24
"""Nodes that anybody may go to."""


def relocation(question: Question, sites: Sites) -> TinyProblem | None:
    """The exact problem of the pods that wait and some that may move for them; None where it is too large, or idle."""
    cluster, facts = question.cluster, sites.mobility
    waiting = movers_of(cluster, facts, "autoscale", ())
    if not waiting or len(waiting) > MOST_WAITING:
        return None
    roomy = sorted(
        (node for node in cluster.nodes if node.name in facts.open_nodes),
        key=lambda node: (-_free(cluster, node), node.name),
    )[:_NODES]
    movers = (*waiting, *_leaving(question, facts, roomy, MOST_PODS - len(waiting)))
    problem = tiny_problem_with(question, facts, sites.prices, tuple(sorted(movers, key=lambda one: one.pod.key)))
    among = {e for e, place in enumerate(problem.places) if place.name in {node.name for node in roomy}}
    kinds = tuple(replace(kind, nodes=kind.nodes & (among | set(kind.homes))) for kind in problem.kinds)
    problem = replace(problem, kinds=kinds)
    return problem if _columns(problem) <= MOST_COLUMNS else None


def _leaving(question: Question, facts: Mobility, nodes: Sequence[Node], most: int) -> Sequence[Mover]:
    """Movable pods of these nodes, node by node: the smallest first, for they find room elsewhere."""
    able = {mover.pod.key: mover for mover in movers_of(question.cluster, facts, "reschedule", ())}
    found: list[Mover] = []
    for node in nodes:
        here = [able[pod.key] for pod in question.cluster.pods_by_node.get(node.name, ()) if pod.key in able]
        found += sorted((mover for mover in here if mover.role == "stays"), key=lambda mover: _size(node, mover.pod))
    return found[:most]


def _size(node: Node, pod: Pod) -> tuple[int, str]:
    """The largest share of the node that the pod takes, in thousandths."""
    shares = [1000 * amount // max(1, node.allocatable.get(name, 0)) for name, amount in pod.requests.items()]
    return max(shares, default=0), pod.key


def _free(cluster: Cluster, node: Node) -> int:
    """Thousandths of the node that are free, in CPU and memory, whichever is less."""
    here = cluster.pods_by_node.get(node.name, ())
    free = 1000
    for name in ("cpu", "memory"):
        taken = sum(pod.requests.get(name, 0) for pod in here)
        free = min(free, 1000 * (node.allocatable.get(name, 0) - taken) // max(1, node.allocatable.get(name, 0)))
    return free


def _columns(problem: TinyProblem) -> int:
    """Columns of the model, those of rules aside; every pod that waits may have a machine of each type."""
    copies = sum(len(kind.pods) for kind in problem.kinds if kind.pending)
    return sum(len(kind.nodes) + len(set(kind.homes)) + copies * len(kind.machines) for kind in problem.kinds)
