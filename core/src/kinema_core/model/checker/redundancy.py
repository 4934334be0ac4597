"""Check of redundancy: workloads stay on two nodes at least, and in as many zones as now."""

from __future__ import annotations

from collections.abc import Iterator

from kinema_core.model.catalog import UNKNOWN, zone_in
from kinema_core.model.checker.view import PlanView, Violation
from kinema_core.model.redundancy import shortfalls


def check_redundancy(view: PlanView) -> Iterator[Violation]:
    """No workload whose pods move loses its redundancy, where the operator keeps it."""
    if not view.options.redundancy:
        return

    def zone_after(name: str) -> str:
        return zone_in(view.sites[name].labels) if name in view.sites else UNKNOWN

    places = {seat.key: seat.to for seat in view.seats}
    for one in shortfalls(view.cluster, places, zone_after):
        yield Violation("redundancy-lost", one.workload, one.text)
