"""Check of spot shares: no more of a workload's pods come to spot capacity, or to one spot pool, than may be there."""

from __future__ import annotations

from collections.abc import Iterator

from kinema_core.model.checker.view import PlanView, Site, Violation
from kinema_core.model.machines import machine_type, zone_in
from kinema_core.model.spot_share import SpotBooks, SpotPool


def check_spot_share(view: PlanView) -> Iterator[Violation]:
    """No workload exceeds its limits, or exceeds them by more than now."""
    for one in spot_books(view).excesses():
        yield Violation("spot-share", one.workload, one.text)


def spot_books(view: PlanView) -> SpotBooks:
    """Return where the plan leaves the pods of workloads with limits."""
    pools = {name: spot_pool(site) for name, site in view.sites.items()}
    return SpotBooks(view.cluster, view.options, {seat.key: seat.to for seat in view.seats}, pools.get)


def spot_pool(site: Site) -> SpotPool | None:
    """Return the spot pool of a node that remains or is booted; None where it is no spot capacity."""
    return SpotPool(machine_type(site.labels), zone_in(site.labels)) if site.spot else None
