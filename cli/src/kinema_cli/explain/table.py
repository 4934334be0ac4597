"""An explanation for a terminal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from kinema_cli.output import counted, facts, hourly, monthly, table, unit_price
from kinema_core.events import QuarantinedObject
from kinema_core.model.quantity import in_words
from kinema_optimizer.explain.explain import Elsewhere, NodeExplanation, PodExplanation

if TYPE_CHECKING:
    from rich.console import RenderableType


class WorkloadExplanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why the pods of a workload are where they are."""

    kind: str = "workload"
    name: str
    pods: tuple[PodExplanation, ...]


Explanation: TypeAlias = NodeExplanation | PodExplanation | WorkloadExplanation | QuarantinedObject

MOST_ROWS: Final = 40
_NO_PRICE: Final = "its price is missing"

_NODE: Final = {
    "own-rule": "kept: by a rule of its own",
    "held-pods": "kept: for pods that may not move",
    "no-place": "kept: no other place for its pods",
    "as-dear": "kept: no cheaper alternative for its pods",
    "could-go": "can be deleted",
}
_POD: Final = {
    "with-node": "goes with its node",
    "terminating": "terminating",
    "held": "may not move",
    "movable": "may move",
    "placeable": "pending, can be placed",
    "not-placed": "pending, not placed",
    "no-place": "pending, no place",
}


def explanation_table(found: Explanation) -> list[RenderableType]:
    """Return everything that an explanation says, as tables."""
    if isinstance(found, NodeExplanation):
        rows = [(one.pod, one.code, one.reason) for one in found.held]
        keepers = [table("Pods that keep it", ("pod", "rule", "reason"), rows, most=MOST_ROWS)] if rows else []
        return [facts(found.name, _of_node(found)), *keepers]
    if isinstance(found, PodExplanation):
        return [facts(found.name, _of_pod(found))]
    if isinstance(found, WorkloadExplanation):
        rows = [(pod.name, pod.node or "none", _verdict_of(pod)) for pod in found.pods]
        return [table(found.name, ("pod", "node", "verdict"), rows)]
    return [facts(found.object, [("could not be read", f"{found.path}: {found.reason}")])]


def _of_node(node: NodeExplanation) -> Iterable[tuple[str, str]]:
    paid = " (committed)" if node.committed else ""
    price = _NO_PRICE if node.usd_per_hour is None else f"{unit_price(node.usd_per_hour)}{paid}"
    yield "machine", f"{node.machine_type}, zone {node.zone}, {node.capacity_type}, {price}"
    yield "verdict", f"{_NODE[node.verdict]}: {node.reason}"
    if node.caveat:
        yield "but", node.caveat
    yield "pods", f"{node.movable} may move, {len(node.held)} may not"
    yield "elsewhere", _elsewhere(node.elsewhere)
    yield "deleting it saves", _saves(node)


def _elsewhere(found: Elsewhere) -> str:
    if not found.pods:
        return "none of its pods needs another place"
    parts = []
    if found.onto_nodes:
        names = ", ".join(f"{one.node} ({one.pods})" for one in found.onto[:3])
        more = f" and {found.onto_nodes - 3} more" if found.onto_nodes > 3 else ""
        parts.append(f"on {names}{more}")
    parts += [f"{one.count} new {one.offer} at {unit_price(one.usd_per_hour)} each" for one in found.boots]
    if found.homeless:
        parts.append(f"{counted(found.homeless, 'pod')} without a place")
    price = f"; new machines cost {hourly(found.usd_per_hour)}" if found.boots else ""
    return f"{counted(found.pods, 'pod')}: {', '.join(parts)}{price}"


def _saves(node: NodeExplanation) -> str:
    if node.usd_per_hour is None:
        return f"unknown: {_NO_PRICE}, which keeps it in any case"
    if node.saves_usd_per_hour is None:
        return "unknown, as not all of its pods have a place elsewhere"
    if node.saves_usd_per_hour <= 0:
        return "nothing"
    saving = f"{hourly(node.saves_usd_per_hour)}, {monthly(node.saves_usd_per_hour)}"
    return f"{saving}, if the node and its pods were free" if node.rule is not None or node.held else saving


def _verdict_of(pod: PodExplanation) -> str:
    return f"{_POD[pod.verdict]}{f' ({pod.code})' if pod.code else ''}: {pod.reason}"


def _of_pod(pod: PodExplanation) -> Iterable[tuple[str, str]]:
    yield "node", pod.node or "none"
    yield "verdict", _verdict_of(pod)
    if pod.caveat:
        yield "but", pod.caveat
    yield "requests", ", ".join(f"{name} {in_words(name, amount)}" for name, amount in pod.requests.items())
    if pod.strategy is not None:
        yield "moves by", pod.strategy
    if pod.rooms_in_all:
        more = f" and {pod.rooms_in_all - 3} more" if pod.rooms_in_all > 3 else ""
        yield "fits now on", f"{', '.join(pod.rooms[:3])}{more}"
    if pod.cheapest is not None:
        yield "cheapest machine", f"{pod.cheapest.offer} at {unit_price(pod.cheapest.usd_per_hour)}"
