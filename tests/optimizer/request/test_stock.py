"""What could not be booted is left for a while: read from failed steps, whatever the catalog says."""

from __future__ import annotations

from datetime import timedelta

from tests.support.builders import NOW, offer

from kinema_core.events import Event, FrozenMap, Offer, Quota, StepFailed
from kinema_core.runtime.envelope import origin
from kinema_optimizer.request.stock import OFFER, StockOuts

ON_SALE = (
    *(offer("m4", zone=zone, cpu=4000, memory=16 * 1024, price=170_000) for zone in "abc"),
    offer("m2", zone="a", cpu=2000, memory=8 * 1024, price=90_000),
)
REST = 300.0


def failed(seconds: float, *, zone: str = "a", reason: str = "stock-out", retry: bool = False) -> Event:
    """A boot of an m4 that failed so long after `NOW`."""
    figures = FrozenMap[int | float | str]({OFFER: f"m4/{zone}/on-demand"})
    body = StepFailed(plan="p", step="boot/k1", fencing=1, reason=reason, detail="", retry=retry, figures=figures)
    at = NOW + timedelta(seconds=seconds)
    return origin(body, id_=f"failed-{seconds}", cluster="test", iteration="it-1", now=at)


def left(events: list[Event], seconds: float) -> set[str]:
    """Names of the offers that a plan made so long after `NOW` leaves alone."""
    found = StockOuts()
    for event in events:
        found = found.after(event, REST)
    shown = found.shown_in(ON_SALE, NOW + timedelta(seconds=seconds), REST)
    assert [one.name for one in shown] == [one.name for one in ON_SALE]
    return {one.name for one in shown if one.available == 0}


def test_an_offer_is_left_and_comes_back() -> None:
    """For the rest after a first failure, in its zone only."""
    assert left([failed(0)], 299) == {"m4/a/on-demand"}
    assert left([failed(0)], 300) == set()


def test_the_rest_doubles_with_each_failure_in_a_row() -> None:
    """300, 600, 1200 seconds; a failure long after the last rest is a first one again; four hours at most."""
    row = [failed(0), failed(310), failed(920)]
    assert left(row, 920 + 1199) == {"m4/a/on-demand"}
    assert left(row, 920 + 1201) == set()
    assert left([*row, failed(920 + 2401)], 920 + 2401 + 301) == set()
    many = [failed(n * 14_000.0) for n in range(12)]
    assert left(many, 11 * 14_000 + 4 * 3600 + 1) == set()


def test_a_machine_that_was_booted_and_is_no_use_is_left_too() -> None:
    """The rescheduler's verdict names the offer; the next plan buys another one."""
    for reason in ("node-never-ready", "less-allocatable", "pods-never-ready", "roll-stuck"):
        assert left([failed(0, reason=reason)], 299) == {"m4/a/on-demand"}


def test_a_type_that_is_sold_out_in_two_zones_is_left_in_all() -> None:
    """A third zone is not tried as well; other types are."""
    assert left([failed(0), failed(10, zone="b")], 20) == {f"m4/{zone}/on-demand" for zone in "abc"}


def test_other_failures_leave_the_offer_on_sale() -> None:
    """A boot that is tried again, or that met a node of its name, says nothing about the offer; a quota does."""
    assert left([failed(0, retry=True)], 1) == set()
    assert left([failed(0, reason="conflict")], 1) == set()
    assert left([failed(0, reason="quota")], 1) == {"m4/a/on-demand"}
    assert left([failed(0, reason="permission")], 1) == {"m4/a/on-demand"}


def test_what_a_quota_refused_limits_every_offer_that_takes_as_much() -> None:
    """Smaller machines, those under other quotas, and machines that were sold out by themselves are left on sale."""

    def sold(machine: str, cores: int, *quotas: str) -> Offer:
        return offer(machine, quotas=tuple(Quota(name=name, takes=cores, left=64) for name in quotas))

    on_sale = (sold("m4", 4, "CPUS"), sold("m8", 8, "CPUS"), sold("m2", 2, "CPUS"), sold("n4", 4, "N2_CPUS"))
    for reason, out in (("quota", {"m4/a/on-demand", "m8/a/on-demand"}), ("stock-out", {"m4/a/on-demand"})):
        known = StockOuts().after(failed(0, reason=reason), REST)
        shown = known.shown_in(on_sale, NOW + timedelta(seconds=1), REST)
        assert {one.name for one in shown if one.available == 0} == out
