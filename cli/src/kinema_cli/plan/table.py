"""A plan as tables for a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table

from kinema_cli.output import cell, counted
from kinema_cli.report.blocked import blocked
from kinema_cli.report.data import HOURS_PER_MONTH, WAITED, Blocked, Headline
from kinema_cli.report.from_plan import fate_of, headline_of
from kinema_cli.report.resizes import told_requests
from kinema_core.events import Placement, Plan
from kinema_core.model.cluster import Cluster
from kinema_core.model.risk import ORDINARY, restart_risk
from kinema_optimizer.solvers.stopping import PRICING

_FEW: Final = 3
MOST_ROWS: Final = 40
"""Rows of one table; the rest is counted, and `-o json` has all."""

_UNORDERED: Final = "kept_in_place_without_an_order"

_STATUS: Final = {
    "optimal": "proven best: least cost, and within 0.1 % of it fewest moves",
    "feasible": "the best found; the gap says how much a better one could save at most",
    "nothing-better": "nothing better was found than the cluster as it is",
    "infeasible": "infeasible: the pods that run now do not all fit",
}


def plan_tables(
    plan: Plan, cluster: Cluster, deletable: Mapping[str, str | None] = MappingProxyType({}), prices: str = ""
) -> RenderableType:
    """Everything about a plan that fits a terminal; `deletable` as in `blocked`, `prices`: from when they are."""
    parts: list[RenderableType] = [_summary(plan, cluster, prices)]
    if plan.status != "infeasible":
        parts += [_machines(plan), *_some(_moves(plan, cluster))]
    parts += [
        *_some(_blocked(plan, cluster, deletable)),
        *_some(_unplaced(plan)),
        *_some(_quarantined(plan)),
        *_some(_given_up(plan)),
        *_some(_binding(plan)),
    ]
    return Group(*parts)


def _some(table: Table) -> list[RenderableType]:
    return [table] if table.row_count else []


def _table(title: str, *columns: str, numbers: Sequence[str] = ()) -> Table:
    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column, justify="right" if column in numbers else "left", overflow="fold")
    return table


def _fill(table: Table, rows: Sequence[Sequence[str]]) -> Table:
    for row in rows[:MOST_ROWS]:
        table.add_row(*(cell(text) for text in row))
    if len(rows) > MOST_ROWS:
        table.add_row(cell(f"… and {len(rows) - MOST_ROWS} more"))
    return table


def _summary(plan: Plan, cluster: Cluster, prices: str) -> Table:
    head = headline_of(plan)
    table = Table(title="Plan", title_justify="left", show_header=False)
    table.add_column("what", style="bold")
    table.add_column("value")
    for what, value in _summary_rows(plan, head, told_requests(plan, cluster), prices):
        table.add_row(what, cell(value))
    return table


def _status(plan: Plan) -> str:
    if plan.status == "nothing-better" and plan.cost.gap == 0:
        still = " without moving a pod" if plan.figures.get("bound_without_moves") else ""
        return f"nothing better: proven, nothing costs less{still}"
    if plan.status == "optimal" and plan.figures.get(_UNORDERED):
        less = "0.1 % less" if plan.cost.gap else "less"
        return f"proven: nothing costs {less}; fewer moves may do, as moves without an order were taken out"
    if plan.status == "nothing-better" and any(stop.phase == "start" for stop in plan.solve.stops):
        return "nothing better than the cluster as it is was found so soon: a longer --time-limit may find it"
    return _STATUS.get(plan.status, plan.status)


def _summary_rows(
    plan: Plan, head: Headline, requests: Iterable[tuple[str, str]], prices: str
) -> Iterable[tuple[str, str]]:
    yield "status", _status(plan)
    if plan.objective != "cost":
        yield "objective", plan.objective
    if plan.status != "infeasible":
        unreadable = sum(item.object.startswith("Node ") for item in plan.quarantined)
        besides = f"; {counted(unreadable, 'unreadable node')}, neither counted nor priced" if unreadable else ""
        yield "nodes", f"{head.nodes_before} → {head.nodes_after}{besides}"
        if head.watts is not None:
            yield "power", f"{head.watts[0]:,.1f} → {head.watts[1]:,.1f} W"
        yield "cost", f"{head.usd_before:,.4f} → {head.usd_after:,.4f} USD/h"
        month = HOURS_PER_MONTH
        yield "a month", f"{head.usd_before * month:,.2f} → {head.usd_after * month:,.2f} USD"
        yield "saves", _saving(head)
        if head.usd_waiting:
            yield "waiting pods", f"cost {head.usd_waiting * month:,.2f} USD a month: their part of the new machines"
        if prices:
            yield "prices", prices
        yield from requests
        yield "bound", _bound(head)
        yield "moves", _how_many(head)
        yield from _notes(plan)
    missing = plan.figures.get("placeholders_missing", 0)
    if missing:
        asked = plan.figures["placeholders"]
        yield "not kept", f"{missing:,.0f} of the {asked:,.0f} rooms and nodes asked for cannot be had"
    first = plan.solve.first_feasible_seconds
    found = "" if first is None else f", first plan after {first:.2f} s"
    yield "solved", f"in {plan.solve.seconds:.2f} s{found}, {plan.solve.method}"


def _notes(plan: Plan) -> Iterable[tuple[str, str]]:
    """What else there is to say of moves and rules."""
    if unmoved := int(plan.figures.get(_UNORDERED, 0)):
        yield "stay", f"{counted(unmoved, 'more pod')}, for which no order of moves was found"
    if plan.redundancy_loss:
        yield "on one node", _gathered(plan)
    looked = 0 if plan.constraint_costs else rules_looked_at(plan)
    if looked:
        yield (
            "rules",
            f"none costs anything by the bound, of {counted(looked, 'rule')} that it was computed without",
        )
    if plan.steps:
        yield "order", _order(plan)


def _order(plan: Plan) -> str:
    """What comes after what; waves are those in which pods go, as who has only one of them has no order to mind."""
    booted = sum(node.action == "boot" for node in plan.nodes)
    deleted = sum(node.action == "delete" for node in plan.nodes)
    moving = {step.pod for step in plan.steps if step.action == "move"}
    waves = len({step.wave for step in plan.steps if step.action == "move"})
    parts = [_is(booted, "booted")] if booted else []
    if moving:
        evicted = sum(place.pod in moving and place.strategy == "evict" for place in plan.placements)
        how = f" in {waves:,} waves" if waves > 1 else " at once" if len(moving) > 1 and evicted < 2 else ""
        how += " (evictions of a workload one at a time)" if evicted > 1 else ""
        goes = "goes to its node" if len(moving) == 1 else "go to their nodes"
        parts.append(f"{counted(len(moving), 'pod')} {goes}{how}")
    if deleted:
        parts.append(_is(deleted, "deleted"))
    said = ", then ".join(parts)
    if not plan.temporary:
        return said
    price = sum(node.usd_per_hour for node in plan.temporary)
    return f"{said}; with {counted(len(plan.temporary), 'node')} for a while, {price:,.4f} USD/h together"


def _is(nodes: int, done: str) -> str:
    return f"{counted(nodes, 'node')} {'is' if nodes == 1 else 'are'} {done}"


def _gathered(plan: Plan) -> str:
    """A word on workloads that come together, the largest by name."""
    first = ", ".join(f"{one.workload} ({one.pods:,})" for one in plan.redundancy_loss[:_FEW])
    more = f" and {len(plan.redundancy_loss) - _FEW:,} more" if len(plan.redundancy_loss) > _FEW else ""
    has = "is on several nodes now and has" if len(plan.redundancy_loss) == 1 else "are on several nodes now and have"
    return (
        f"{counted(len(plan.redundancy_loss), 'workload')} {has} all pods on one afterwards: {first}{more}; a topology "
        "spread over hosts would prevent it"
    )


def _saving(head: Headline) -> str:
    share = head.usd_saved / head.usd_before if head.usd_before else 0.0
    apart = ", without what waiting pods cost" if head.usd_waiting else ""
    return f"{head.usd_saved_per_month:,.2f} USD a month ({share:.1%}){apart}"


def _bound(head: Headline) -> str:
    if head.gap is None:
        return "none is known, so the gap is not either"
    least = head.lower_bound or 0.0
    said = f"costs less than {least:,.4f} USD/h" if head.watts is None else f"draws less than {least:,.1f} W"
    if head.still:
        return f"no plan that moves nothing {said}; gap {head.gap:.2%}"
    beside = f": {head.beside} is not in it" if head.beside else ""
    return f"no plan {said}, whatever it moves{beside}; gap {head.gap:.2%}"


def _how_many(head: Headline) -> str:
    ways = {name: count for name, count in sorted(head.strategies.items()) if name != WAITED}
    by_strategy = ", ".join(f"{count:,} by {name}" for name, count in ways.items())
    restarts = f", {head.restarts} restarts in place" if head.restarts else ""
    placed = head.strategies.get(WAITED, 0)
    more = f"; {counted(placed, 'pod')} that wait{'s gets' if placed == 1 else ' get'} a place" if placed else ""
    return f"{counted(head.moves, 'pod')}{restarts}{f' ({by_strategy})' if by_strategy else ''}{more}"


def _machines(plan: Plan) -> Table:
    table = _table(
        "Machines", "type", "zone", "capacity", "before", "after", "USD/h each", "USD a month", numbers=_NUMBERS
    )
    kinds = Counter(
        (node.machine_type, node.zone, node.capacity_type, node.usd_per_hour, node.action) for node in plan.nodes
    )
    rows = []
    for kind in sorted({key[:4] for key in kinds}):
        keep, boot, delete = (kinds[(*kind, action)] for action in ("keep", "boot", "delete"))
        now, then = keep + delete, keep + boot
        saved = f"{kind[3] * (then - now) * HOURS_PER_MONTH:+,.2f}" if now != then else ""
        rows.append((*kind[:3], f"{now:,}", f"{then:,}", f"{kind[3]:.4f}", saved))
    return _fill(table, rows)


_NUMBERS: Final = (
    "before",
    "after",
    "USD/h each",
    "USD a month",
    "pods",
    "nodes",
    "by it alone",
    "USD a month of those",
    "USD/h",
    "risk each",
)


def _moves(plan: Plan, cluster: Cluster) -> Table:
    whose = "workload" if cluster.pods else "pod"  # the log tells no workloads, only a state does
    table = _table("Moves", whose, "pods", "by", "from", "to", "risk each", numbers=_NUMBERS)
    groups: dict[tuple[str, str], list[Placement]] = {}
    for placement in plan.placements:
        if fate_of(placement) != "stay":
            groups.setdefault((_workload(cluster, placement.pod), placement.strategy), []).append(placement)
    rows = [
        (
            workload,
            str(len(placements)),
            strategy,
            _names(placement.source or "pending" for placement in placements),
            _names(placement.to for placement in placements),
            _risk(cluster, placements),
        )
        for (workload, strategy), placements in sorted(groups.items(), key=lambda one: (-len(one[1]), one[0]))
    ]
    return _fill(table, rows)


def _risk(cluster: Cluster, placements: Iterable[Placement]) -> str:
    """What each restart counts, in ordinary ones; nothing for ordinary ones and for pods that run nowhere yet."""
    pods = [pod for one in placements if one.source is not None and (pod := cluster.pod(one.pod)) is not None]
    risks = sorted({restart_risk(cluster, pod) for pod in pods})
    shown = [f"{risk / ORDINARY:g}" for risk in (*risks[:1], *risks[1:][-1:])]
    return "" if risks == [ORDINARY] else " to ".join(shown)


def _workload(cluster: Cluster, key: str) -> str:
    pod = cluster.pod(key)
    workload = None if pod is None else cluster.controller_of(pod)
    return key if not cluster.pods else f"Pod/{key}" if workload is None else workload.key


def _names(names: Iterable[str]) -> str:
    """Up to three names with their counts."""
    counted = sorted(Counter(names).items())
    shown = [name if count == 1 else f"{name} ({count})" for name, count in counted[:3]]
    more = [f"{len(counted) - 3} more"] if len(counted) > 3 else []
    return ", ".join(shown + more)


def _blocked(plan: Plan, cluster: Cluster, deletable: Mapping[str, str | None]) -> Table:
    columns = ("rule", "pods", "nodes", "by it alone", "USD a month of those", "for example")
    table = _table(
        "What blocks more: nodes that stay for pods that may not move, and the price of those that one rule alone "
        "holds. To lift the rule may save less than that, or more, where the room of its pods lets other nodes go",
        *columns,
        numbers=_NUMBERS,
    )
    rows = [
        (row.rule, *(f"{n:,}" for n in (row.pods, row.nodes, row.alone)), _a_month(row), row.example)
        for row in blocked(plan, cluster, deletable)
    ]
    return _fill(table, rows)


def _a_month(row: Blocked) -> str:
    return f"{row.usd_per_hour * HOURS_PER_MONTH:,.2f}"


def _unplaced(plan: Plan) -> Table:
    table = _table("Pods without a place", "pod", "code", "reason")
    return _fill(table, [(item.pod, item.code, item.reason) for item in plan.unplaced])


def _quarantined(plan: Plan) -> Table:
    table = _table("Objects that could not be read", "object", "where", "reason")
    return _fill(table, [(item.object, item.path, item.reason) for item in plan.quarantined])


def _given_up(plan: Plan) -> Table:
    table = _table(
        "Preferences given up", "workload", "preference", "weight", "pods", f"worth {plan.cost.unit}", numbers=_GIVEN
    )
    dearest = sorted(plan.violated_preferences, key=lambda one: (-one.weight * one.pods, one.workload, one.preference))
    return _fill(
        table,
        [(one.workload, one.preference, f"{one.weight}", f"{one.pods:,}", f"{one.price:.6f}") for one in dearest],
    )


_GIVEN: Final = ("weight", "pods", "worth USD/h", "worth W")


def rules_looked_at(plan: Plan) -> int:
    """Without how many rules, whole classes or single ones, the bound was computed to tell what they cost."""
    return next((max(0, stop.iteration - 1) for stop in plan.solve.stops if stop.phase == PRICING), 0)


def _binding(plan: Plan) -> Table:
    table = _table(
        "What rules cost: by how much the bound falls without one of them, on whichever nodes; they do not add up",
        "rule",
        "USD/h",
        "USD a month",
        numbers=_NUMBERS,
    )
    dearest = sorted(plan.constraint_costs, key=lambda item: (-item.usd_per_hour, item.constraint))
    rows = [
        (item.constraint, f"{item.usd_per_hour:.4f}", f"{item.usd_per_hour * HOURS_PER_MONTH:,.2f}") for item in dearest
    ]
    return _fill(table, rows)
