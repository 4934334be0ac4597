"""Checks of a plan's nodes and of its money."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from kinema_core.events import Offer, PlanNode
from kinema_core.model.catalog import PriceError, machine_of, node_prices
from kinema_core.model.catalog_file import MICRO
from kinema_core.model.checker.view import PlanView, Violation
from kinema_core.model.mobility import in_scope
from kinema_core.model.stock import left_of

_DNS_LABEL: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_WITHIN_OPTIMUM: Final = Fraction(1, 1000)
"""The share above the bound that is given away for fewer moves."""


def check_nodes(view: PlanView) -> Iterator[Violation]:
    """Every live node once, and described as it is; nothing deleted that must stay; boots that can be had."""
    names = Counter(node.name for node in view.plan.nodes)
    for name in sorted(names):
        if names[name] > 1:
            yield Violation("node-duplicate", name, f"listed {names[name]} times")
    for node in view.cluster.nodes:
        if node.name not in names:
            yield Violation("node-missing", node.name, "a live node is in the plan, to keep or to delete")
    for planned in view.plan.nodes:
        yield from check_boot(view, planned) if planned.action == "boot" else _live(view, planned)
        if planned.action == "boot" and planned.name not in view.seats_by_node and planned.offer in view.offers:
            yield Violation("boot-empty", planned.name, "a node is booted and takes no pod")
    yield from check_availability(view)


def _live(view: PlanView, planned: PlanNode) -> Iterator[Violation]:
    node = view.cluster.node(planned.name)
    if node is None:
        yield Violation("node-unknown", planned.name, f"no live node of that name to {planned.action}")
        return
    yield from check_deletion(view, planned)
    machine = machine_of(node)
    yield from _description(planned, machine)
    if planned.offer and planned.offer.partition("#")[0] != "/".join(machine):
        yield Violation("node-description", planned.name, f"offer {planned.offer} is of another machine")


def check_deletion(view: PlanView, planned: PlanNode) -> Iterator[Violation]:
    """Check that a node to delete may be deleted."""
    reason = view.mobility.deletable.get(planned.name)
    if planned.action == "delete" and reason is not None:
        yield Violation("node-undeletable", planned.name, reason)


def _description(planned: PlanNode, machine: tuple[str, str, str]) -> Iterator[Violation]:
    said = (planned.machine_type, planned.zone, planned.capacity_type)
    if said != machine:
        yield Violation("node-description", planned.name, f"it is {'/'.join(machine)}, not {'/'.join(said)}")


def check_boot(view: PlanView, planned: PlanNode) -> Iterator[Violation]:
    """Check that a node to boot has a name of its own and is what its offer says, at its price."""
    yield from check_boot_name(view, planned)
    offer = view.offers.get(planned.offer)
    if offer is None:
        yield Violation("offer-unknown", planned.name, f"no offer is named {planned.offer!r}")
        return
    yield from check_scope(view, planned, offer)
    yield from _description(planned, (offer.machine_type, offer.zone, offer.capacity_type))
    if micro(planned.usd_per_hour) != offer.micro_usd_per_hour:
        detail = f"{planned.usd_per_hour} USD/h, the offer says {offer.micro_usd_per_hour} micro-USD/h"
        yield Violation("offer-price", planned.name, detail)


def check_scope(view: PlanView, planned: PlanNode, offer: Offer) -> Iterator[Violation]:
    """Check that a new node will be one that is Kinema's."""
    if not in_scope(offer.labels, view.options):
        yield Violation("boot-scope", planned.name, f"offer {offer.name} has no labels of a node that is Kinema's")


def check_boot_name(view: PlanView, planned: PlanNode) -> Iterator[Violation]:
    """Check that a new node's name can be given: a DNS label that no live node has."""
    if not _DNS_LABEL.fullmatch(planned.name):
        yield Violation("boot-name", planned.name, "a node's name is a DNS label")
    if view.cluster.node(planned.name) is not None:
        yield Violation("boot-clash", planned.name, "a live node has that name")


def left_over(
    view: PlanView, *, on_the_way: bool = False, more: Mapping[str, int] = MappingProxyType({})
) -> Mapping[str, int | None]:
    """Return how many more of each offer can be booted besides the plan's own; None where that is not limited.

    `on_the_way`: temporary nodes are there too. `more`: further machines by offer.
    """
    booted = Counter(node.offer for node in view.plan.nodes if node.action == "boot")
    booted.update(node.offer for node in view.plan.temporary if on_the_way)
    booted.update(more)
    return left_of(view.offers.values(), booted)


def check_availability(view: PlanView) -> Iterator[Violation]:
    """No more of an offer, of a pool of offers or of a quota than there is."""
    for name, left in sorted(left_over(view, on_the_way=True).items()):
        if left is not None and left < 0:
            yield Violation("offer-exhausted", name, f"{-left} more than are available")


@lru_cache(maxsize=4096)
def micro(usd: float) -> int | None:
    """USD as micro-USD; None when it is not finite or has more than six decimals."""
    if not math.isfinite(usd):
        return None
    nearest = round(Fraction(usd) * MICRO)
    return nearest if abs(Fraction(usd) * MICRO - nearest) < Fraction(1, 100) else None


def check_money(view: PlanView) -> Iterator[Violation]:
    """Prices of live nodes, the sums over all nodes, bound and gap: to six decimals."""
    try:
        prices = node_prices(view.cluster, view.offers.values())
    except PriceError as error:
        yield Violation("node-price", "cost", str(error))
        return
    for planned in view.plan.nodes:
        price = prices.get(planned.name)
        if planned.action != "boot" and price is not None and micro(planned.usd_per_hour) != price:
            yield Violation("node-price", planned.name, f"{planned.usd_per_hour} USD/h, not {price} micro-USD/h")
    yield from _sums(view, sum(prices.values()))


def _sums(view: PlanView, before: int) -> Iterator[Violation]:
    cost = view.plan.cost
    remaining = [micro(node.usd_per_hour) for node in view.plan.nodes if node.action != "delete"]
    after = sum(price for price in remaining if price is not None)
    if cost.unit != "USD/h":
        yield Violation("cost-unit", "cost.unit", f"{cost.unit!r} is not USD/h")
    if micro(cost.before) != before:
        yield Violation("cost-before", "cost.before", f"{cost.before}, the live nodes cost {before} micro-USD/h")
    if micro(cost.after) != after:
        yield Violation("cost-after", "cost.after", f"{cost.after}, the nodes that remain cost {after} micro-USD/h")
    bound = micro(cost.lower_bound)
    if bound is None or not 0 <= bound <= after:
        yield Violation("cost-bound", "cost.lower_bound", f"{cost.lower_bound} is no bound below {after} micro-USD/h")
        return
    gap = Fraction(after - bound, bound) if bound else None if after else Fraction(0)
    if not _same_gap(cost.gap, gap):
        yield Violation("cost-gap", "cost.gap", f"{cost.gap}, by the formula {None if gap is None else float(gap)}")
    if view.plan.status == "optimal" and (gap is None or gap > _WITHIN_OPTIMUM):
        yield Violation("status-optimal", "status", f"optimal with a gap of {None if gap is None else float(gap)}")


def _same_gap(said: float | None, exact: Fraction | None) -> bool:
    if said is None or exact is None:
        return said is None and exact is None
    return math.isfinite(said) and abs(Fraction(said) - exact) * MICRO <= max(Fraction(1), exact)
