"""A plan as tables for a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kinema_cli.report.data import Headline
from kinema_cli.report.from_plan import fate_of, headline_of, held_by_code
from kinema_core.events import Placement, Plan
from kinema_core.model.cluster import Cluster

MOST_ROWS: Final = 40
"""Rows of one table; the rest is counted, and `-o json` has all."""

_STATUS: Final = {
    "optimal": "proven cheapest",
    "feasible": "the best found in time, not proven cheapest",
    "nothing-better": "nothing better: the cluster is as cheap as it can be",
    "infeasible": "infeasible: the pods that run now do not all fit",
}


def plan_tables(plan: Plan, cluster: Cluster) -> RenderableType:
    """Everything about a plan that fits a terminal."""
    parts: list[RenderableType] = [_summary(plan)]
    if plan.status != "infeasible":
        parts += [_machines(plan), *_some(_moves(plan, cluster))]
    parts += [*_some(_held(plan)), *_some(_unplaced(plan)), *_some(_quarantined(plan)), *_some(_binding(plan))]
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
        table.add_row(*(Text(cell) for cell in row))
    if len(rows) > MOST_ROWS:
        table.add_row(Text(f"… and {len(rows) - MOST_ROWS} more"))
    return table


def _summary(plan: Plan) -> Table:
    head = headline_of(plan)
    table = Table(title="Plan", title_justify="left", show_header=False)
    table.add_column("what", style="bold")
    table.add_column("value")
    table.add_row("status", _STATUS.get(plan.status, plan.status))
    if plan.status != "infeasible":
        table.add_row("nodes", f"{head.nodes_before} → {head.nodes_after}")
        table.add_row("cost", f"{head.usd_before:.4f} → {head.usd_after:.4f} USD/h")
        table.add_row("saves", f"{head.usd_saved_per_month:,.2f} USD a month")
        table.add_row("bound", _bound(head))
        table.add_row("moves", _how_many(head))
    first = plan.solve.first_feasible_seconds
    found = "" if first is None else f", first plan after {first:.2f} s"
    table.add_row("solved", f"in {plan.solve.seconds:.2f} s{found}, {plan.solve.method}")
    return table


def _bound(head: Headline) -> str:
    gap = "unknown" if head.gap is None else f"{head.gap:.2%}"
    return f"no plan costs less than {head.lower_bound or 0.0:.4f} USD/h; gap {gap}"


def _how_many(head: Headline) -> str:
    by_strategy = ", ".join(f"{count} by {name}" for name, count in sorted(head.strategies.items()))
    restarts = f", {head.restarts} restarts in place" if head.restarts else ""
    return f"{head.moves} pods{restarts}{f' ({by_strategy})' if by_strategy else ''}"


def _machines(plan: Plan) -> Table:
    table = _table("Machines", "type", "zone", "capacity", "before", "after", "USD/h each", numbers=_NUMBERS)
    kinds = Counter(
        (node.machine_type, node.zone, node.capacity_type, node.usd_per_hour, node.action) for node in plan.nodes
    )
    rows = []
    for kind in sorted({key[:4] for key in kinds}):
        keep, boot, delete = (kinds[(*kind, action)] for action in ("keep", "boot", "delete"))
        rows.append((*kind[:3], str(keep + delete), str(keep + boot), f"{kind[3]:.4f}"))
    return _fill(table, rows)


_NUMBERS: Final = ("before", "after", "USD/h each", "pods", "USD/h")


def _moves(plan: Plan, cluster: Cluster) -> Table:
    table = _table("Moves", "workload", "pods", "by", "from", "to", numbers=_NUMBERS)
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
        )
        for (workload, strategy), placements in sorted(groups.items())
    ]
    return _fill(table, rows)


def _workload(cluster: Cluster, key: str) -> str:
    pod = cluster.pod(key)
    workload = None if pod is None else cluster.controller_of(pod)
    return f"Pod/{key}" if workload is None else workload.key


def _names(names: Iterable[str]) -> str:
    """Up to three names with their counts."""
    counted = sorted(Counter(names).items())
    shown = [name if count == 1 else f"{name} ({count})" for name, count in counted[:3]]
    more = [f"{len(counted) - 3} more"] if len(counted) > 3 else []
    return ", ".join(shown + more)


def _held(plan: Plan) -> Table:
    table = _table("What may not move", "rule", "pods", "for example", numbers=_NUMBERS)
    return _fill(table, [(code, str(count), example) for code, example, count in held_by_code(plan)])


def _unplaced(plan: Plan) -> Table:
    table = _table("Pods without a place", "pod", "code", "reason")
    return _fill(table, [(item.pod, item.code, item.reason) for item in plan.unplaced])


def _quarantined(plan: Plan) -> Table:
    table = _table("Objects that could not be read", "object", "where", "reason")
    return _fill(table, [(item.object, item.path, item.reason) for item in plan.quarantined])


def _binding(plan: Plan) -> Table:
    table = _table("What rules cost", "rule", "USD/h", numbers=_NUMBERS)
    return _fill(table, [(item.constraint, f"{item.usd_per_hour:.4f}") for item in plan.binding])
