"""Price files: how old their prices are, and how often they are published."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kinema_core.model.cluster import Cluster
from kinema_rescheduler.providers.base import Catalog
from kinema_rescheduler.providers.catalog import catalog_event, read_prices

ROWS = "machine_type,vcpus,memory_gib,usd_per_hour\nm4,4,16,0.17\n"
WRITTEN = datetime(2026, 3, 2, tzinfo=UTC)


@pytest.mark.parametrize(
    ("remarks", "priced"),
    [
        ("", WRITTEN),
        ("# our own, see the wiki\n", WRITTEN),
        ("# list prices\n# as of 2024-06-01, in Frankfurt\n", datetime(2024, 6, 1, tzinfo=UTC)),
        ("# ticket 2024-99-01\n", WRITTEN),
    ],
)
async def test_prices_are_as_old_as_their_file_says(remarks: str, priced: datetime, tmp_path: Path) -> None:
    """A date in a remark counts, as a copy is newer than what it says; without one the file's own date does."""
    path = tmp_path / "prices.csv"
    path.write_text(remarks + ROWS)
    os.utime(path, (WRITTEN.timestamp(), WRITTEN.timestamp()))
    assert (await read_prices(str(path))).priced == priced


def test_an_unchanged_catalog_is_published_once() -> None:
    """However old the newest one is: the log states it again before it is dropped."""
    catalog, begun = Catalog(source="prices.csv", priced=None, rows=()), datetime(2026, 3, 2, tzinfo=UTC)
    first = catalog_event(catalog, Cluster(), before=None, cluster_name="c1", now=begun)
    assert first is not None
    later = begun + timedelta(days=30)
    assert catalog_event(catalog, Cluster(), before=first, cluster_name="c1", now=later) is None
