"""Effect of new requests on a plan: which workloads, and by how much."""

from __future__ import annotations

from collections import Counter
from typing import Final

from kinema_cli.output import counted
from kinema_core.events import Plan, Resize
from kinema_core.model.cluster import Cluster
from kinema_core.model.quantity import rounded_in_words

_MOST: Final = 3
"""Workloads that are named; the rest is counted."""


def format_requests(plan: Plan, cluster: Cluster) -> tuple[tuple[str, str], ...]:
    """Return a heading and a line about the requests that a plan changes; the heading says where it costs more.

    Args:
        plan: has old and new requests of a pod of each workload.
        cluster: has the pods of workloads; of others the plan's pods are counted by their names.
    """
    if not plan.resizes:
        return ()
    pods = {one.workload: _pods(one.workload, plan, cluster) for one in plan.resizes}
    changes = {one.workload: _change(one, pods[one.workload]) for one in plan.resizes}
    total, rises = Counter[str](), Counter[str]()
    for change in changes.values():
        total.update(change)
        rises.update({name: amount for name, amount in change.items() if amount > 0})

    def share(one: Resize) -> float:
        """Return the workload's part in what rises, of the resource of which that is most."""
        return max((amount / rises[name] for name, amount in changes[one.workload].items() if amount > 0), default=0.0)

    first = sorted(plan.resizes, key=lambda one: (-share(one), one.workload))
    named = "; ".join(_named(one, pods[one.workload]) for one in first[:_MOST])
    more = f"; and {counted(len(first) - _MOST, 'workload')} more" if len(first) > _MOST else ""
    in_all = ", ".join(_signed(name, amount) for name, amount in sorted(total.items()) if amount) or "nothing"
    said = f"{in_all} in all: {named}{more}"
    dearer = plan.cost.after > plan.cost.before and any(amount > 0 for amount in total.values())
    return (("costs more", f"as requests rise, by {said}") if dearer else ("requests", f"change by {said}"),)


def _pods(workload: str, plan: Plan, cluster: Cluster) -> int:
    """Return how many pods get the new requests; a Deployment's pods have its name as prefix."""
    known = sum(not pod.terminating for pod in cluster.pods_by_workload.get(workload, ()))
    _, _, deployment = workload.partition("/")
    return known or sum(one.pod.rsplit("-", 2)[0] == deployment for one in plan.placements)


def _change(one: Resize, pods: int) -> dict[str, int]:
    names = one.requests_before.keys() | one.requests_after.keys()
    return {name: (one.requests_after.get(name, 0) - one.requests_before.get(name, 0)) * pods for name in names}


def _named(one: Resize, pods: int) -> str:
    before, after = one.requests_before, one.requests_after
    changed = [name for name in sorted(before.keys() | after.keys()) if before.get(name, 0) != after.get(name, 0)]
    told = ", ".join(
        f"{name} {rounded_in_words(name, before.get(name, 0))} → {rounded_in_words(name, after.get(name, 0))}"
        for name in changed
    )
    return f"{one.workload} {told} ({counted(pods, 'pod')})"


def _signed(name: str, amount: int) -> str:
    return f"{'+' if amount > 0 else '-'}{rounded_in_words(name, abs(amount))} {name}"
