"""The provider's catalog as an event, published when it is not the one that was published last."""

from __future__ import annotations

from datetime import datetime
from hashlib import sha256

from kinema_core.events import CatalogPublished, Event, encode
from kinema_core.model.catalog import offers_from
from kinema_core.model.cluster import Cluster
from kinema_core.runtime.envelope import origin
from kinema_rescheduler.adapters.provider import Catalog


def catalog_event(
    catalog: Catalog, cluster: Cluster, *, before: Event | None, cluster_name: str, now: datetime
) -> Event | None:
    """The event that tells of a catalog; None when the last one says the same.

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
