"""An explanation for a terminal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

from rich.console import Group, RenderableType
from rich.table import Table

from kinema_cli.output import cell, counted
from kinema_core.events import QuarantinedObject
from kinema_core.model.quantity import in_words
from kinema_optimizer.explain.explain import Elsewhere, Keeper, NodeExplanation, PodExplanation

Explanation: TypeAlias = NodeExplanation | PodExplanation | QuarantinedObject

MOST_ROWS: Final = 40

_NODE: Final = {
    "own-rule": "stays, by a rule of its own",
    "held-pods": "stays, for pods that may not move",
    "no-place": "stays, as its pods have no other place",
    "as-dear": "stays, as nothing cheaper holds its pods",
    "could-go": "could go",
}
_POD: Final = {
    "with-node": "goes with its node",
    "terminating": "is ending",
    "held": "may not move",
    "movable": "may move",
    "placeable": "waits, and can be placed",
    "not-placed": "waits, and is not placed",
    "no-place": "waits, and has no place",
}


def explanation_table(told: Explanation) -> RenderableType:
    """Everything that an explanation says."""
    if isinstance(told, NodeExplanation):
        parts: list[RenderableType] = [_facts(told.name, _of_node(told))]
        return Group(*parts, *([_keepers(told.held)] if told.held else []))
    if isinstance(told, PodExplanation):
        return _facts(told.name, _of_pod(told))
    return _facts(told.object, [("could not be read", f"{told.path}: {told.reason}")])


def _facts(title: str, rows: Iterable[tuple[str, str]]) -> Table:
    table = Table(title=cell(title, "table.title"), title_justify="left", show_header=False)
    table.add_column("what", style="bold")
    table.add_column("value", overflow="fold")
    for what, value in rows:
        table.add_row(what, cell(value))
    return table


def _of_node(told: NodeExplanation) -> Iterable[tuple[str, str]]:
    yield "machine", f"{told.machine_type}, zone {told.zone}, {told.capacity_type}, {told.usd_per_hour:.4f} USD/h"
    yield "verdict", f"{_NODE[told.verdict]}: {told.reason}"
    if told.caveat:
        yield "but", told.caveat
    yield "pods", f"{told.movable} may move, {len(told.held)} may not"
    yield "elsewhere", _elsewhere(told.elsewhere)
    yield "deleting it saves", _saves(told)


def _elsewhere(found: Elsewhere) -> str:
    if not found.pods:
        return "no pod of it would need another place"
    parts = []
    if found.onto_nodes:
        names = ", ".join(f"{one.node} ({one.pods})" for one in found.onto[:3])
        more = f" and {found.onto_nodes - 3} more" if found.onto_nodes > 3 else ""
        parts.append(f"on {names}{more}")
    parts += [f"{one.count} new {one.offer} at {one.usd_per_hour:.4f} USD/h each" for one in found.boots]
    if found.homeless:
        parts.append(f"{counted(found.homeless, 'pod')} without a place")
    price = f"; new machines cost {found.usd_per_hour:.4f} USD/h" if found.boots else ""
    return f"{counted(found.pods, 'pod')}: {', '.join(parts)}{price}"


def _saves(told: NodeExplanation) -> str:
    if told.saves_usd_per_hour is None:
        return "unknown, as not all of its pods have a place elsewhere"
    if told.saves_usd_per_hour <= 0:
        return "nothing"
    said = f"{told.saves_usd_per_hour:.4f} USD/h, {told.saves_usd_per_month:,.2f} USD a month"
    return f"{said}, if it and its pods were free to go" if told.rule is not None or told.held else said


def _keepers(held: tuple[Keeper, ...]) -> Table:
    table = Table(title="Pods that keep it", title_justify="left")
    for column in ("pod", "rule", "reason"):
        table.add_column(column, overflow="fold")
    for one in held[:MOST_ROWS]:
        table.add_row(cell(one.pod), cell(one.code), cell(one.reason))
    if len(held) > MOST_ROWS:
        table.add_row(cell(f"… and {len(held) - MOST_ROWS} more"))
    return table


def _of_pod(told: PodExplanation) -> Iterable[tuple[str, str]]:
    yield "node", told.node or "none"
    yield "verdict", f"{_POD[told.verdict]}{f' ({told.code})' if told.code else ''}: {told.reason}"
    if told.caveat:
        yield "but", told.caveat
    yield "requests", ", ".join(f"{name} {in_words(name, amount)}" for name, amount in told.requests.items())
    if told.strategy is not None:
        yield "moves by", told.strategy
    if told.rooms_in_all:
        more = f" and {told.rooms_in_all - 3} more" if told.rooms_in_all > 3 else ""
        yield "room now on", f"{', '.join(told.rooms[:3])}{more}"
    if told.cheapest is not None:
        yield "cheapest machine", f"{told.cheapest.offer} at {told.cheapest.usd_per_hour:.4f} USD/h"
