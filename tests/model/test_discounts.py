"""Contract prices and discounts over a catalog."""

from __future__ import annotations

import pytest

from kinema_core.model.catalog_file import CatalogError, parse_catalog
from kinema_core.model.discounts import parse_discounts, with_discounts, without_offer

ROWS = parse_catalog(
    "machine_type,vcpus,memory_gib,usd_per_hour,zone\nn2-standard-2,2,8,0.1,a\nn2-standard-4,4,16,0.2,a\ne2-standard-2,2,8,0.07,b\n"
)


def prices(text: str) -> dict[str, int]:
    """Micro-USD by machine type and capacity type."""
    found = with_discounts(ROWS, parse_discounts(text))
    return {f"{row.machine_type}/{row.capacity_type}": row.micro_usd_per_hour for row in found}


def test_first_line_that_matches_decides() -> None:
    """A contract price before a percentage holds; rows that no line matches keep their price."""
    found = prices("machine_type,percent_off,usd_per_hour\nn2-standard-4,,0.15\nn2-*,10,\n")
    assert found == {
        "n2-standard-2/on-demand": 90_000,
        "n2-standard-4/on-demand": 150_000,
        "e2-standard-2/on-demand": 70_000,
    }


def test_lines_without_an_offer_are_known() -> None:
    """A line for spot has one where there is an offer on demand: it adds the spot offer."""
    text = "machine_type,capacity_type,zone,percent_off\nn2-*,,,5\nn2-*,spot,,60\nn3-*,,,5\n*,,c,5\n"
    found = without_offer(ROWS, parse_discounts(text))
    assert [(one.machine_type, one.zone) for one in found] == [("n3-*", "*"), ("*", "c")]


def test_zone_is_a_pattern_too() -> None:
    """A line with a zone changes rows of that zone."""
    assert prices("machine_type,zone,percent_off\n*,b,50\n")["e2-standard-2/on-demand"] == 35_000
    assert prices("machine_type,zone,percent_off\n*,c,50\n")["e2-standard-2/on-demand"] == 70_000


def test_spot_is_estimated_from_on_demand() -> None:
    """A line for spot adds a spot row to each row that has none, and leaves on-demand alone."""
    found = prices("machine_type,capacity_type,percent_off\nn2-*,spot,70\n")
    assert found["n2-standard-2/on-demand"] == 100_000
    assert found["n2-standard-2/spot"] == 30_000
    assert "e2-standard-2/spot" not in found


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("machine_type,percent_off\nn2-*,100\n", "percent_off"),
        ("machine_type,percent_off\nn2-*,\n", "either percent_off or usd_per_hour"),
        ("machine_type,percent_off,usd_per_hour\nn2-*,5,0.1\n", "either percent_off or usd_per_hour"),
        ("machine_type,discount\nn2-*,5\n", "unknown column 'discount'"),
    ],
)
def test_faults_name_line_and_column(text: str, named: str) -> None:
    """One error that says what to write."""
    with pytest.raises(CatalogError, match=named):
        parse_discounts(text)
