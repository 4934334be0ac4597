"""A provider of nodes: what the rescheduler needs of it, for any implementation.

Refusals are errors with the reasons `stock-out`, `quota`, `permission` (of the provider), `denied` (of the API server),
`conflict`, `not-found`, `invalid` (PermanentError) and `transient`, `unavailable`, `throttled`, `time-out`
(TransientError).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

from kinema_core.events import Offer
from kinema_core.model.catalog import CatalogRow


@dataclass(frozen=True)
class Catalog:
    """Offers of a provider, and the age of its prices."""

    source: str
    priced: datetime | None
    rows: tuple[CatalogRow, ...]
    delegated: bool = False
    """Whether the cluster's own autoscaler boots and deletes."""


@dataclass(frozen=True)
class Operation:
    """Something that a provider does over time; ask for it by its `id`.

    `reason` and `message` say why it failed; while it runs, `message` may say what it waits for.
    """

    id: str
    node: str
    """Name under which the machine registers: another one than was asked for where machines have names of their own.

    Of a boot it may be known only when that is done.
    """
    state: Literal["running", "done", "failed"]
    reason: str = ""
    message: str = ""


class Provider(Protocol):
    """Boots and deletes nodes."""

    async def catalog(self) -> Catalog:
        """Return what is on sale now."""

    async def boot(self, name: str, offer: Offer, operation: str) -> Operation:
        """Begin to boot a node; `operation` is the caller's word for this order.

        The same word, or the same name and offer, is the same order again, also after a restart of the caller: nothing
        is bought twice.
        """

    async def delete(self, name: str, operation: str) -> Operation:
        """Begin to delete a node; PermanentError `not-found` when there is none of that name."""

    async def nodes(self) -> tuple[str, ...]:
        """Names of the nodes that the provider runs or boots, sorted."""

    async def operation(self, id_: str) -> Operation:
        """Return how an operation stands; PermanentError `not-found`."""
