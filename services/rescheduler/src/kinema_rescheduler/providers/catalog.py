"""Catalogs of prices: a CSV file for providers without prices of their own, and the event that publishes a catalog.

`read_prices` reads the file afresh at every look. `catalog_event` returns an event when the catalog is not the one that
was published last.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

from kinema_core.events import CatalogPublished, Event, FrozenMap, Node, encode
from kinema_core.model.catalog import CatalogError, CatalogRow, dated, offers_from, parse_catalog
from kinema_core.model.cluster import Cluster
from kinema_core.model.price_table import table_catalog
from kinema_core.prices import price_tables
from kinema_core.runtime.envelope import origin
from kinema_kubernetes.objects import labels_of, uid
from kinema_rescheduler.errors import PermanentError
from kinema_rescheduler.kubernetes.fenced import FencedClient
from kinema_rescheduler.providers.base import Catalog


async def read_prices(path: str) -> Catalog:
    """Return the rows of a catalog file; its prices are of the date in its remarks, or else as old as the file.

    Raises:
        PermanentError: `invalid`, the file cannot be used; names file, line and column.
    """
    try:
        return await asyncio.to_thread(_read, Path(path))
    except OSError as error:
        raise PermanentError("invalid", f"catalog {path}: {error.strerror}") from error
    except (UnicodeDecodeError, CatalogError) as error:
        raise PermanentError("invalid", f"catalog {path}: {error}") from error


def _read(path: Path) -> Catalog:
    text = path.read_text(encoding="utf-8")
    rows: tuple[CatalogRow, ...] = parse_catalog(text)
    changed = datetime.fromtimestamp(path.stat().st_mtime, UTC).replace(microsecond=0)
    return Catalog(source=path.name, priced=dated(text) or changed, rows=rows)


async def catalog_of(path: str, api: FencedClient) -> Catalog:
    """Return a catalog file; without one, what the tables that ship with Kinema sell to the cluster.

    Raises:
        PermanentError: `invalid`, the file cannot be used.
    """
    if path:
        return await read_prices(path)
    items = await api.items("/api/v1/nodes")
    nodes = {
        item["metadata"]["name"]: Node(name=item["metadata"]["name"], uid=uid(item), labels=FrozenMap(labels_of(item)))
        for item in items
    }
    found = table_catalog(Cluster(objects={"Node": nodes}), price_tables())
    source = found.source or "no price table has a machine type of this cluster"
    return Catalog(source=source, priced=found.priced, rows=found.rows)


async def check_prices(path: str) -> None:
    """Check that a catalog file can be used, where one is named; raises PermanentError."""
    if path:
        await read_prices(path)


def catalog_event(
    catalog: Catalog, cluster: Cluster, *, before: Event | None, cluster_name: str, now: datetime
) -> Event | None:
    """Return the event that publishes a catalog; None when the last one says the same.

    What a live node of a type has for pods is known better than any formula, so offers depend on the cluster too.
    """
    body = CatalogPublished(
        source=catalog.source,
        priced=catalog.priced,
        offers=offers_from(catalog.rows, cluster),
        delegated=catalog.delegated,
    )
    if before is not None and before.body == body:
        return None
    cause = before.id if before is not None else ""
    named = origin(body, id_="-", cluster=cluster_name, iteration="", now=now)
    digest = sha256(cause.encode() + encode(named)).hexdigest()[:16]
    id_ = f"{cluster_name}/rescheduler/catalog-{digest}"
    return origin(body, id_=id_, cluster=cluster_name, iteration="", now=now, state=cluster.version)
