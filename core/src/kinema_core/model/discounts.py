"""Contract prices and discounts: lines that change the prices of a catalog's rows, the first that matches decides."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from fractions import Fraction
from typing import Final, Literal

from kinema_core.model.catalog_file import (
    CatalogError,
    CatalogLine,
    CatalogRow,
    decimal,
    read_capacity_type,
    read_price,
    read_rows,
)

_REQUIRED: Final = ("machine_type",)
_OPTIONAL: Final = ("zone", "capacity_type", "percent_off", "usd_per_hour")


@dataclass(frozen=True)
class Discount:
    """One line. `machine_type` and `zone` are patterns (`n2-*`); either a percentage is taken off, or a price given."""

    machine_type: str
    zone: str
    capacity_type: Literal["on-demand", "spot"]
    percent_off: Fraction | None
    micro_usd_per_hour: int | None

    def matches(self, row: CatalogRow) -> bool:
        """Return whether the row's price changes; a row for every zone matches no line for some."""
        return fnmatchcase(row.machine_type, self.machine_type) and fnmatchcase(row.zone or "", self.zone)

    def price(self, micro_usd: int) -> int:
        """Return micro-USD per hour, rounded half up, at least 1."""
        if self.percent_off is None:
            return self.micro_usd_per_hour or micro_usd
        return max(1, int(micro_usd * (100 - self.percent_off) / 100 + Fraction(1, 2)))


def parse_discounts(text: str) -> tuple[Discount, ...]:
    """Return the lines of a file of discounts, in file order.

    Raises:
        CatalogError: names line, column and what to write there.
    """
    return tuple(_discount(line) for line in read_rows(text, _REQUIRED, _OPTIONAL))


def _discount(line: CatalogLine) -> Discount:
    percent, price = line.optional("percent_off", _percent), line.optional("usd_per_hour", read_price)
    if (percent is None) == (price is None):
        raise CatalogError(f"catalog line {line.line}: give either percent_off or usd_per_hour")
    return Discount(
        machine_type=line.required("machine_type", str),
        zone=line.optional("zone", str) or "*",
        capacity_type=line.optional("capacity_type", read_capacity_type) or "on-demand",
        percent_off=percent,
        micro_usd_per_hour=price,
    )


def _percent(text: str) -> Fraction:
    found = decimal(text)
    if not 0 <= found < 100:
        raise ValueError("write a percentage from 0 to below 100, such as 17.5")
    return found


def with_discounts(rows: Iterable[CatalogRow], discounts: Sequence[Discount]) -> Iterator[CatalogRow]:
    """Yield the rows at their discounted prices.

    A line for spot also adds a spot row to each on-demand row that has none: a percentage off on-demand is how spot
    prices are estimated where a catalog has none.
    """
    listed = list(rows)
    spot = {(row.machine_type, row.zone) for row in listed if row.capacity_type == "spot"}
    for row in listed:
        yield _at_its_price(row, row.micro_usd_per_hour, discounts)
        if row.capacity_type == "on-demand" and (row.machine_type, row.zone) not in spot:
            as_spot = replace(row, capacity_type="spot")
            if any(_applies(one, as_spot) for one in discounts):
                yield _at_its_price(as_spot, row.micro_usd_per_hour, discounts)


def without_offer(rows: Sequence[CatalogRow], discounts: Iterable[Discount]) -> Iterator[Discount]:
    """Yield the lines that match no row; one for spot may match a row on demand, as it adds spot rows to those."""
    for one in discounts:
        if not any(one.matches(row) and one.capacity_type in {row.capacity_type, "spot"} for row in rows):
            yield one


def _applies(discount: Discount, row: CatalogRow) -> bool:
    return discount.capacity_type == row.capacity_type and discount.matches(row)


def _at_its_price(row: CatalogRow, micro_usd: int, discounts: Sequence[Discount]) -> CatalogRow:
    found = next((one for one in discounts if _applies(one, row)), None)
    return row if found is None else replace(row, micro_usd_per_hour=found.price(micro_usd))
