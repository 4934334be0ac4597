"""Machines and moves of a plan as rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Literal, TypeAlias

from kinema_cli.output import listed
from kinema_cli.report.data import MachineRow, MoveRow
from kinema_core.events import Placement, Plan
from kinema_core.model.cluster import Cluster
from kinema_core.model.disruption_cost import ORDINARY, disruption_cost

Fate: TypeAlias = Literal["stay", "move", "restart", "schedule", "system"]


def fate_of(placement: Placement) -> Fate:
    """Return what the plan does with a pod."""
    if placement.source is None:
        return "schedule"
    if placement.source != placement.to:
        return "move"
    return "restart" if placement.strategy == "rolling" else "stay"


def machines_of(plan: Plan) -> tuple[MachineRow, ...]:
    """Return the machines before and after, by type, zone, capacity type and price."""
    kinds = Counter(
        (node.machine_type, node.zone, node.capacity_type, node.usd_per_hour, node.action) for node in plan.nodes
    )
    rows = []
    for kind in sorted({key[:4] for key in kinds}):
        keep, boot, delete = (kinds[(*kind, action)] for action in ("keep", "boot", "delete"))
        rows.append(MachineRow(*kind, before=keep + delete, after=keep + boot))
    return tuple(rows)


def moves_of(plan: Plan, cluster: Cluster) -> tuple[MoveRow, ...]:
    """Return the pods that move, restart or get a place, by workload and strategy, those with most pods first."""
    groups: dict[tuple[str, str], list[Placement]] = {}
    for placement in plan.placements:
        if fate_of(placement) != "stay":
            groups.setdefault((_workload(cluster, placement.pod), placement.strategy), []).append(placement)
    return tuple(
        MoveRow(
            workload=workload,
            namespace=placements[0].pod.partition("/")[0],
            pods=len(placements),
            strategy=strategy,
            sources=_names(placement.source or "pending" for placement in placements),
            targets=_names(placement.to for placement in placements),
            cost=_disruption_cost(cluster, placements),
        )
        for (workload, strategy), placements in sorted(groups.items(), key=lambda one: (-len(one[1]), one[0]))
    )


def _disruption_cost(cluster: Cluster, placements: Iterable[Placement]) -> str:
    pods = [pod for one in placements if one.source is not None and (pod := cluster.pod(one.pod)) is not None]
    costs = sorted({disruption_cost(cluster, pod) for pod in pods})
    shown = [f"{cost / ORDINARY:g}" for cost in (*costs[:1], *costs[1:][-1:])]
    return "" if costs == [ORDINARY] else " to ".join(shown)


def _workload(cluster: Cluster, key: str) -> str:
    """Return the workload's key; the pod's own where the cluster is not known, as for a plan from the log."""
    pod = cluster.pod(key)
    workload = None if pod is None else cluster.controller_of(pod)
    return key if not cluster.pods else f"Pod/{key}" if workload is None else workload.key


def _names(names: Iterable[str]) -> str:
    counts = sorted(Counter(names).items())
    return listed([name if count == 1 else f"{name} ({count})" for name, count in counts])
