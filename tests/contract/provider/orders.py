"""What tests ask a provider for on real controllers: what is on sale, and an operation's end."""

from __future__ import annotations

import asyncio

from kinema_core.events import Offer
from kinema_core.model.catalog import offers_from
from kinema_core.model.cluster import Cluster
from kinema_rescheduler.providers.base import Operation, Provider


async def ended(provider: Provider, operation: Operation) -> Operation:
    """The operation once it is over."""
    async with asyncio.timeout(120):
        while operation.state == "running":
            await asyncio.sleep(0.2)
            operation = await provider.operation(operation.id)
    return operation


async def offer(provider: Provider, machine_type: str = "m2", zone: str = "zone-a") -> Offer:
    """What is on sale of a machine type."""
    offers = offers_from((await provider.catalog()).rows, Cluster())
    return next(item for item in offers if (item.machine_type, item.zone) == (machine_type, zone))
