"""Price tables that ship with Kinema, one CSV for each cloud; `tools/price_tables.py` writes them."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Final

from kinema_core.model.price_table import PriceTable, parse_table

CLOUDS: Final = ("azure", "ec2", "gce")


@cache
def price_tables() -> tuple[PriceTable, ...]:
    """Return the tables of all clouds."""
    return tuple(parse_table(cloud, files(__name__).joinpath(f"{cloud}.csv").read_text("utf-8")) for cloud in CLOUDS)
