"""Azure's Retail Prices API: one price for each machine type, region and capacity type; needs no account."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from fractions import Fraction
from typing import Final, Literal
from urllib.parse import urlencode

import msgspec

from kinema_core.model.price_table import PriceTable, fresh_table

URL: Final = "https://prices.azure.com/api/retail/prices"
"""Documented by Microsoft as Azure Retail Prices."""


class _Item(msgspec.Struct, frozen=True, rename="camel"):
    arm_sku_name: str = ""
    arm_region_name: str = ""
    sku_name: str = ""
    product_name: str = ""
    unit_of_measure: str = ""
    currency_code: str = ""
    retail_price: float = 0.0
    type: str = ""

    def is_linux(self) -> bool:
        """Return whether it is the price of an hour of a virtual machine without Windows."""
        an_hour = (self.type, self.currency_code, self.unit_of_measure) == ("Consumption", "USD", "1 Hour")
        return an_hour and self.retail_price > 0 and not self.product_name.endswith(("Windows", "CloudServices"))


class Page(msgspec.Struct, frozen=True, rename="pascal"):
    """A page of the list."""

    items: tuple[_Item, ...] = ()
    next_page_link: str | None = None


def page_of(data: bytes) -> Page:
    """Return a page; raises msgspec.DecodeError."""
    return msgspec.json.decode(data, type=Page)


def query(url: str, region: str) -> str:
    """Return the address of the first page of a region's virtual machines."""
    wanted = f"serviceName eq 'Virtual Machines' and priceType eq 'Consumption' and armRegionName eq '{region}'"
    return f"{url}?{urlencode({'$filter': wanted})}"


def retail_tables(pages: Iterable[Page], sizes: PriceTable, now: datetime) -> tuple[PriceTable, ...]:
    """Return the on-demand and the spot prices of the machine types whose sizes are known: Linux, no low priority."""
    found: dict[Literal["on-demand", "spot"], dict[str, dict[str, int]]] = {"on-demand": {}, "spot": {}}
    for item in (item for page in pages for item in page.items):
        if item.is_linux() and not item.sku_name.endswith("Low Priority"):
            prices = found["spot" if item.sku_name.endswith(" Spot") else "on-demand"]
            micro_usd = round(Fraction(str(item.retail_price)) * 10**6)
            prices.setdefault(item.arm_sku_name, {})[item.arm_region_name] = micro_usd
    return tuple(
        fresh_table(replace(sizes, capacity_type=capacity_type), prices, source="Azure Retail Prices API", now=now)
        for capacity_type, prices in found.items()
    )
