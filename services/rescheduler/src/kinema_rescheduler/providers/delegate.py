"""Nodes that the cluster's own autoscaler boots and deletes: here they are only handed over.

The taint of a node that goes keeps new pods off, and its pods are moved. An empty node is what Cluster Autoscaler and
Karpenter delete by themselves: a deletion here is over when they have. Until then the taint stays.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from kinema_core.events import Offer
from kinema_kubernetes.objects import node_path
from kinema_rescheduler.errors import NotFoundError, PermanentError
from kinema_rescheduler.kubernetes.fenced import FencedClient
from kinema_rescheduler.providers.base import Catalog, Operation
from kinema_rescheduler.providers.catalog import read_prices
from kinema_rescheduler.settings import DelegateSettings

_DELETE: Final = "delete/"


class DelegateProvider:
    """The cluster's own autoscaler, as far as it can be relied on."""

    def __init__(self, api: FencedClient, settings: DelegateSettings) -> None:
        self._api = api
        self._settings = settings

    async def catalog(self) -> Catalog:
        """Return prices of what is there; nothing is on sale, as Kinema cannot boot it."""
        prices = await read_prices(self._settings.catalog)
        return replace(prices, rows=tuple(replace(row, available=0) for row in prices.rows), delegated=True)

    async def boot(self, name: str, offer: Offer, operation: str) -> Operation:
        """Refuse: which node an autoscaler boots, and when, is its own affair."""
        raise PermanentError("permission", f"node {name}: only the cluster's own autoscaler boots nodes here")

    async def delete(self, name: str, operation: str) -> Operation:
        """Leave a node that is empty and closed to the autoscaler."""
        found = await self._deletion(name)
        if found.state == "done":
            raise PermanentError("not-found", f"there is no node {name}")
        return found

    async def nodes(self) -> tuple[str, ...]:
        """Names of the cluster's nodes."""
        return tuple(sorted(str(node["metadata"]["name"]) for node in await self._api.items("/api/v1/nodes")))

    async def operation(self, id_: str) -> Operation:
        """Return whether the autoscaler has deleted a node."""
        if not id_.startswith(_DELETE):
            raise PermanentError("not-found", f"there is no operation {id_}")
        return await self._deletion(id_.removeprefix(_DELETE))

    async def _deletion(self, name: str) -> Operation:
        try:
            await self._api.get(node_path(name))
        except NotFoundError:
            return Operation(_DELETE + name, name, "done")
        return Operation(_DELETE + name, name, "running")
