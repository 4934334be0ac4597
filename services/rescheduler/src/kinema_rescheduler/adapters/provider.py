"""A provider of nodes: what the rescheduler needs of it, for any implementation.

Refusals are errors with the reasons `stock-out`, `quota`, `permission`, `conflict`, `not-found` (FinalError) and
`transient` (PassingError).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

from kinema_core.events import Offer
from kinema_core.model.catalog import CatalogRow


@dataclass(frozen=True)
class Catalog:
    """What a provider sells, and how old its prices are."""

    source: str
    priced: datetime | None
    rows: tuple[CatalogRow, ...]


@dataclass(frozen=True)
class Operation:
    """Something that a provider does over time. `reason` and `message` say why it failed."""

    id: str
    node: str
    state: Literal["running", "done", "failed"]
    reason: str = ""
    message: str = ""


class Provider(Protocol):
    """Boots and deletes nodes."""

    async def catalog(self) -> Catalog:
        """What is on sale now."""

    async def boot(self, name: str, offer: Offer, operation: str) -> Operation:
        """Begin to boot a node. The same operation id, or the same name and offer, is the same operation again."""

    async def delete(self, name: str, operation: str) -> Operation:
        """Begin to delete a node; FinalError `not-found` when there is none of that name."""

    async def nodes(self) -> tuple[str, ...]:
        """Names of the nodes that the provider runs or boots, sorted."""

    async def operation(self, id_: str) -> Operation:
        """How an operation stands; FinalError `not-found`."""
