"""Google's Cloud Billing Catalog: prices of cores and memory, from which those of machine types follow.

A SKU has the price of a core or of a GiB of one family in some regions. Pages are answers of
`services/6F81-5844-456A/skus` (Compute Engine) as JSON.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from fractions import Fraction
from typing import Final, Literal

import msgspec

from kinema_core.model.price_table import PriceTable, TableMachine, fresh_table

URL: Final = "https://cloudbilling.googleapis.com/v1/services/6F81-5844-456A/skus"
_GIB: Final = 2**30
_DESCRIPTION: Final = re.compile(
    r"(?:Spot Preemptible )?"
    r"(?:(?P<family>[A-Z]\d[A-Z]?)(?: AMD| Arm| Predefined)? Instance|Compute optimized(?: Instance)?)"
    r" (?P<part>Core|Ram) running in .*"
)
_USAGE: Final[Mapping[str, Literal["on-demand", "spot"]]] = {"OnDemand": "on-demand", "Preemptible": "spot"}
"""Commitments are left out: they are no price of a machine, but of capacity that is paid for anyway."""
_BILLED_CORES: Final[Mapping[str, Fraction]] = {
    "e2-micro": Fraction(1, 4),
    "e2-small": Fraction(1, 2),
    "e2-medium": Fraction(1),
}
"""Cores that shared-core types are billed as. Source: Google's price list, shared-core machine types."""


class _Money(msgspec.Struct, frozen=True, rename="camel"):
    currency_code: str = "USD"
    units: str = "0"
    nanos: int = 0

    def micro(self) -> Fraction:
        return Fraction(int(self.units) * 10**9 + self.nanos, 1000)


class _Rate(msgspec.Struct, frozen=True, rename="camel"):
    unit_price: _Money


class _Expression(msgspec.Struct, frozen=True, rename="camel"):
    tiered_rates: tuple[_Rate, ...] = ()


class _Pricing(msgspec.Struct, frozen=True, rename="camel"):
    pricing_expression: _Expression


class _Category(msgspec.Struct, frozen=True, rename="camel"):
    usage_type: str = ""


class _Sku(msgspec.Struct, frozen=True, rename="camel"):
    description: str
    category: _Category
    service_regions: tuple[str, ...] = ()
    pricing_info: tuple[_Pricing, ...] = ()

    def micro_usd(self) -> Fraction | None:
        """Return the newest price; None where there is none in USD."""
        rates = self.pricing_info[-1].pricing_expression.tiered_rates if self.pricing_info else ()
        if not rates or rates[-1].unit_price.currency_code != "USD":
            return None
        return rates[-1].unit_price.micro()


class Page(msgspec.Struct, frozen=True, rename="camel"):
    """A page of the list."""

    skus: tuple[_Sku, ...] = ()
    next_page_token: str = ""


def page_of(data: bytes) -> Page:
    """Return a page; raises msgspec.DecodeError."""
    return msgspec.json.decode(data, type=Page)


def billing_tables(pages: Iterable[Page], sizes: PriceTable, now: datetime) -> tuple[PriceTable, ...]:
    """Return the on-demand and the spot prices of the machine types whose sizes are known."""
    parts: dict[tuple[str, str, str], dict[str, Fraction]] = {}
    for sku in (sku for page in pages for sku in page.skus):
        found, capacity_type = _DESCRIPTION.fullmatch(sku.description), _USAGE.get(sku.category.usage_type)
        price = sku.micro_usd()
        if found is not None and capacity_type is not None and price is not None:
            key = (capacity_type, (found["family"] or "C2").lower(), found["part"])
            parts.setdefault(key, {}).update(dict.fromkeys(sku.service_regions, price))
    return tuple(
        fresh_table(
            replace(sizes, capacity_type=capacity_type),
            {
                name: _prices(
                    machine,
                    parts.get((capacity_type, name.partition("-")[0], "Core"), {}),
                    parts.get((capacity_type, name.partition("-")[0], "Ram"), {}),
                )
                for name, machine in sizes.machines.items()
            },
            source="Google Cloud Billing Catalog",
            now=now,
        )
        for capacity_type in _USAGE.values()
    )


def _prices(machine: TableMachine, cores: Mapping[str, Fraction], gibs: Mapping[str, Fraction]) -> dict[str, int]:
    """Return micro-USD per hour by region, rounded half up."""
    billed, memory = _BILLED_CORES.get(machine.machine_type, machine.vcpus), Fraction(machine.memory, _GIB)
    both = sorted(cores.keys() & gibs.keys())
    return {region: int(billed * cores[region] + memory * gibs[region] + Fraction(1, 2)) for region in both}
