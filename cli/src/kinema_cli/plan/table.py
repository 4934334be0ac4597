"""A plan as tables for a terminal; the result comes last."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from kinema_cli.output import cell, counted, facts, hourly, listed, monthly, percent, table, unit_price, warning_box
from kinema_cli.report.data import WAITED, Headline, Rule
from kinema_cli.report.from_plan import format_requests, headline_of, machines_of, moves_of
from kinema_cli.report.rules import rules_of
from kinema_core.events import Plan
from kinema_core.model.cluster import Cluster

if TYPE_CHECKING:
    from rich.console import RenderableType

    from kinema_optimizer.planning.frontier import FrontierPoint

MOST_ROWS: Final = 40
"""Rows of one table; the rest is counted, and `-o json` has all."""
_PRICING: Final = "rule-prices"
_UNORDERED: Final = "kept_in_place_without_an_order"
_LEAST_WORK: Final = 100
"""Iterations below which a search finds little."""
_STATUS: Final = {
    "optimal": "proven best: least cost, and fewest moves within 0.1% of it",
    "feasible": "best plan found",
    "nothing-better": "nothing better than the current cluster was found",
    "infeasible": "infeasible: the pods that run now do not all fit",
}


def plan_tables(  # noqa: PLR0913 - all but the plan and its cluster are named
    plan: Plan,
    cluster: Cluster,
    *,
    deletable: Mapping[str, str | None] = MappingProxyType({}),
    prices: str = "",
    cluster_time: str = "",
    warnings: Sequence[str] = (),
    frontier: Sequence[FrontierPoint] = (),
    namespace: str = "",
    every_move: bool = False,
) -> list[RenderableType]:
    """Return the tables of a plan, its warnings, and the result.

    Args:
        plan: what is shown.
        cluster: it was made for; empty for a plan of the log.
        deletable: as in `rules_of`.
        prices: their date.
        cluster_time: which state of the cluster it is.
        warnings: what the plan could not take into account.
        frontier: what parts of the plan cost.
        namespace: the only one whose moves are listed; empty: all.
        every_move: list moves by workload instead of by namespace.
    """
    parts: list[RenderableType] = []
    if plan.status != "infeasible":
        parts += [
            _machines(plan, every=every_move),
            *(_moves(plan, cluster, namespace) if every_move else _moves_by_namespace(plan, cluster)),
        ]
    parts += [
        *_rules(rules_of(plan, cluster, deletable)),
        *_some("Pods without a place", ("pod", "code", "reason"), [(i.pod, i.code, i.reason) for i in plan.unplaced]),
        *_some(
            "Objects that could not be read",
            ("object", "where", "reason"),
            [(item.object, item.path, item.reason) for item in plan.quarantined],
        ),
        *_preferences(plan),
        *_frontier(plan, frontier),
    ]
    head = headline_of(plan, cluster)
    rows = [*([("cluster", cluster_time)] if cluster_time else []), *_summary_rows(plan, cluster, head, prices)]
    parts.append(facts("Plan", rows))
    every = [*warnings, *([redundancy_warning(plan)] if plan.redundancy_loss else [])]
    if every:
        parts.append(warning_box(every))
    parts.append(cell(headline(plan, head), "bold"))
    return parts


def headline(plan: Plan, head: Headline) -> str:
    """Return the result in one line."""
    if plan.status == "infeasible":
        return "No plan: the pods that run now do not all fit."
    nodes = f"{head.nodes_before} → {head.nodes_after} nodes"
    if not head.usd_saved and not head.moves:
        proven = plan.status == "optimal" or plan.cost.gap == 0
        result = "Nothing to save" if proven else "Nothing better found"
        return f"{result}: {hourly(head.usd_after)}, {counted(head.nodes_after, 'node')}; {_bound(head)}."
    cost = f"{hourly(head.usd_before)} → {hourly(head.usd_after)}"
    return f"{_saving(head)}: {cost}, {nodes}, {counted(head.moves, 'pod')} moved."


def redundancy_warning(plan: Plan) -> str:
    """Return the warning about workloads that end with all replicas on one node, the largest by name."""
    names = listed([f"{one.workload} ({one.pods:,} replicas)" for one in plan.redundancy_loss])
    count = len(plan.redundancy_loss)
    loses = "loses" if count == 1 else "lose"
    return (
        f"{counted(count, 'workload')} {loses} node redundancy (all replicas on one node): {names}. "
        "Add topologySpreadConstraints to prevent this."
    )


def _some(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Sequence[str] = ()
) -> Iterator[RenderableType]:
    if rows:
        yield table(title, columns, rows, numbers=numbers, most=MOST_ROWS)


def _status(plan: Plan) -> str:
    from kinema_optimizer.planning.portfolio import WITHOUT_SEARCH

    if plan.solve.method in WITHOUT_SEARCH:
        found = "only nodes go whose pods fit on others" if plan.moves else "no running pod moves"
        return f"no search was made: {found}"
    if plan.status == "nothing-better" and plan.cost.gap == 0:
        still = " without moving a pod" if plan.figures.get("bound_without_moves") else ""
        return f"nothing better: proven, no plan costs less{still}"
    if plan.status == "optimal" and plan.figures.get(_UNORDERED):
        less = "0.1% less" if plan.cost.gap else "less"
        return f"proven: no plan costs {less}; fewer moves may suffice, as moves without an order were removed"
    text = _STATUS[plan.status]
    stopped = [stop for stop in plan.solve.stops if stop.reason == "time-limit" and stop.phase != _PRICING]
    if stopped and plan.status in {"feasible", "nothing-better"}:
        work = max(_LEAST_WORK, *(stop.iteration for stop in stopped))
        return f"{text}; stopped by the clock, so another run may differ: repeat with --work {work}"
    return text


def _summary_rows(plan: Plan, cluster: Cluster, head: Headline, prices: str) -> Iterable[tuple[str, str]]:
    yield "status", _status(plan)
    if plan.objective != "cost":
        yield "objective", plan.objective
    if plan.status != "infeasible":
        unreadable = sum(item.object.startswith("Node ") for item in plan.quarantined)
        besides = f"; {counted(unreadable, 'unreadable node')} neither counted nor priced" if unreadable else ""
        yield "nodes", f"{head.nodes_before} → {head.nodes_after}{besides}"
        if head.watts is not None:
            yield "power", f"{head.watts[0]:,.1f} → {head.watts[1]:,.1f} W"
        yield (
            "cost",
            f"{hourly(head.usd_before)} → {hourly(head.usd_after)} "
            f"({monthly(head.usd_before)} → {monthly(head.usd_after)})",
        )
        if head.usd_waiting:
            yield "pending pods", f"cost {monthly(head.usd_waiting)}: their share of the new machines"
        if prices:
            yield "prices", prices
        yield from format_requests(plan, cluster)
        yield "bound", _bound(head)
        yield "moves", _how_many(head)
        if unmoved := int(plan.figures.get(_UNORDERED, 0)):
            yield "not moved", f"{counted(unmoved, 'more pod')}, for which no order of moves was found"
        if plan.steps:
            yield "order", _order(plan)
        checked = rules_checked(plan)
        if checked and not plan.constraint_costs:
            yield "rules", f"no rule increases the cost ({checked} checked)"
    missing = plan.figures.get("placeholders_missing", 0)
    if missing:
        asked = plan.figures["placeholders"]
        yield "not kept", f"{missing:,.0f} of the {asked:,.0f} requested spare rooms and nodes cannot be had"
    first = plan.solve.first_feasible_seconds
    found = "" if first is None else f", first plan after {first:.1f} s"
    yield "solved", f"in {plan.solve.seconds:.1f} s{found}"


def rules_checked(plan: Plan) -> int:
    """Return the number of rules, classes and single ones, without which the bound was computed."""
    return max((max(0, stop.iteration - 1) for stop in plan.solve.stops if stop.phase == _PRICING), default=0)


def _order(plan: Plan) -> str:
    """Return what happens in which order; waves are those in which pods move."""
    booted = sum(node.action == "boot" for node in plan.nodes)
    deleted = sum(node.action == "delete" for node in plan.nodes)
    moving = {step.pod for step in plan.steps if step.action == "move"}
    waves = len({step.wave for step in plan.steps if step.action == "move"})
    parts = [f"launch {counted(booted, 'node')}"] if booted else []
    if moving:
        evicted = sum(place.pod in moving and place.strategy == "evict" for place in plan.placements)
        how = f" in {waves:,} waves" if waves > 1 else ""
        how += " (evictions of a workload one at a time)" if evicted > 1 else ""
        parts.append(f"move {counted(len(moving), 'pod')}{how}")
    if deleted:
        parts.append(f"delete {counted(deleted, 'node')}")
    text = ", then ".join(parts)
    if not plan.temporary:
        return text
    price = sum(node.usd_per_hour for node in plan.temporary)
    return f"{text}; {counted(len(plan.temporary), 'extra node')} on the way ({hourly(price)} together)"


def _saving(head: Headline) -> str:
    share = head.usd_saved / head.usd_before if head.usd_before else 0.0
    apart = ", not counting pending pods" if head.usd_waiting else ""
    what = "Saves" if head.usd_saved >= 0 else "Costs more:"
    return f"{what} {monthly(abs(head.usd_saved))} ({percent(abs(share))}){apart}"


def _bound(head: Headline) -> str:
    """Return what no plan can cost less than, and what could still be saved, in money."""
    if head.gap is None or head.lower_bound is None:
        return "no bound is known"
    which = "no plan without moves" if head.still else "no plan"
    bound = hourly(head.lower_bound) if head.watts is None else f"{head.lower_bound:,.1f} W"
    least = f"{which} {'costs' if head.watts is None else 'draws'} less than {bound}"
    beside = f", without {head.beside}" if head.beside else ""
    return least if head.after <= head.lower_bound else f"{least}: {head.could_be_saved}{beside}"


def _how_many(head: Headline) -> str:
    ways = {name: count for name, count in sorted(head.strategies.items()) if name != WAITED}
    by_strategy = ", ".join(f"{count:,} by {name}" for name, count in ways.items())
    restarts = f", {head.restarts} restarts in place" if head.restarts else ""
    placed = head.strategies.get(WAITED, 0)
    more = f"; {counted(placed, 'pending pod')} placed" if placed else ""
    return f"{counted(head.moves, 'pod')}{restarts}{f' ({by_strategy})' if by_strategy else ''}{more}"


def _machines(plan: Plan, *, every: bool) -> RenderableType:
    """Return the machines; without `every` those whose number does not change are one row."""
    machines = machines_of(plan)
    committed = any(row.committed for row in machines)
    rows = [
        (
            row.machine_type,
            row.zone,
            row.capacity_type,
            *(["yes" if row.committed else ""] if committed else []),
            f"{row.before:,}",
            f"{row.after:,}",
            unit_price(row.usd_per_hour),
            f"{'+' if row.change > 0 else ''}{monthly(row.change)}" if row.change else "",
        )
        for row in machines
        if row.change or every
    ]
    same = [row for row in machines if not row.change]
    if same and not every:
        count = f"{sum(row.before for row in same):,}"
        rows.append(("unchanged", "", "", *([""] if committed else []), count, count, "", ""))
    numbers = ("before", "after", "price", "change")
    columns = ("type", "zone", "capacity", *(["committed"] if committed else []), *numbers)
    return table("Machines", columns, rows, numbers=numbers, most=MOST_ROWS)


def _moves(plan: Plan, cluster: Cluster, namespace: str) -> Iterator[RenderableType]:
    """Yield every move; the log knows no workloads."""
    moves = [row for row in moves_of(plan, cluster) if namespace in ("", row.namespace)]
    columns = ["workload" if cluster.pods else "pod", "pods", "by", "from", "to"]
    rows = [[row.workload, str(row.pods), row.strategy, row.sources, row.targets] for row in moves]
    if any(row.cost for row in moves):
        columns.append("disruption cost")
        rows = [[*cells, row.cost] for cells, row in zip(rows, moves, strict=True)]
    if rows:
        yield table("Moves", columns, rows, numbers=("pods", "disruption cost"))


def _moves_by_namespace(plan: Plan, cluster: Cluster) -> Iterator[RenderableType]:
    pods: Counter[str] = Counter()
    workloads: dict[str, set[str]] = {}
    ways: dict[str, Counter[str]] = {}
    for row in moves_of(plan, cluster):
        pods[row.namespace] += row.pods
        workloads.setdefault(row.namespace, set()).add(row.workload)
        ways.setdefault(row.namespace, Counter())[row.strategy] += row.pods
    rows = [
        (
            name,
            f"{len(workloads[name]):,}",
            f"{count:,}",
            ", ".join(f"{n:,} {way}" for way, n in sorted(ways[name].items())),
        )
        for name, count in sorted(pods.items(), key=lambda one: (-one[1], one[0]))
    ]
    if rows:
        columns = ("namespace", "workloads" if cluster.pods else "pods listed", "pods", "by")
        title = "Moves (all of them: -o wide)" if cluster.pods else "Moves"
        yield table(title, columns, rows, numbers=columns[1:3], most=MOST_ROWS)


def _rules(rules: Sequence[Rule]) -> Iterator[RenderableType]:
    """Yield one table of all rules: what lifting one saves is an estimate, and the savings do not add up."""
    columns = ("rule", "saves if lifted", "pods", "nodes", "kept by it alone", "example")
    rows = [
        (
            f"  {row.name}" if row.part else row.name,
            "not priced" if row.saves is None else monthly(row.saves),
            f"{row.pods:,}" if row.pods else "",
            f"{row.nodes:,}" if row.nodes else "",
            f"{counted(row.alone, 'node')}, {monthly(row.usd_alone)}" if row.alone else "",
            row.example,
        )
        for row in rules
    ]
    yield from _some("Rules (estimates; they do not add up)", columns, rows, numbers=columns[1:5])


def _frontier(plan: Plan, frontier: Sequence[FrontierPoint]) -> Iterator[RenderableType]:
    """Yield what parts of the plan cost, and how much of its saving each has."""
    saved = plan.cost.before - plan.cost.after
    rows = [
        (
            f"{one.moves:,}",
            percent(one.moves / plan.moves),
            hourly(one.cost) if plan.cost.unit != "W" else f"{one.cost:,.1f} W",
            percent((plan.cost.before - one.cost) / saved) if saved > 0 else "",
            "knee" if one.knee else "",
        )
        for one in frontier
    ]
    columns = ("moves", "of all moves", "cost", "of the saving", "")
    title = "Frontier (parts of the moves, and what the cluster costs after them)"
    yield from _some(title, columns, rows, numbers=columns[:4])


def _preferences(plan: Plan) -> Iterator[RenderableType]:
    columns = ("workload", "preference", "weight", "pods", f"worth {plan.cost.unit}")
    dearest = sorted(plan.violated_preferences, key=lambda one: (-one.weight * one.pods, one.workload, one.preference))
    rows = [(one.workload, one.preference, f"{one.weight}", f"{one.pods:,}", f"{one.price:.6f}") for one in dearest]
    yield from _some("Preferences that the plan violates", columns, rows, numbers=columns[2:])
