"""Fake nodes in a real API server, run by KWOK: boot is the node object after a while, delete is its end.

An order stands in the ledger until its node is there: a process that takes over finds it and goes on with it. An
annotation of a node names its offer.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

import msgspec

from kinema_core.events import Amounts, Offer
from kinema_core.model.catalog import CatalogRow, new_node_labels
from kinema_core.model.match import parse_taints
from kinema_core.runtime.clock import Clock
from kinema_kubernetes.objects import Json, annotations_of, node_path, uid
from kinema_rescheduler.errors import ConflictError, NotFoundError, PermanentError
from kinema_rescheduler.kubernetes.fenced import FencedClient
from kinema_rescheduler.providers.base import Catalog, Operation
from kinema_rescheduler.providers.catalog import read_prices
from kinema_rescheduler.providers.ledger import Ledger
from kinema_rescheduler.settings import KwokSettings

LEDGER: Final = "kinema-kwok"
FAKE: Final = "kwok.x-k8s.io/node"
OFFER: Final = "kinema.io/offer"
"""Annotation of a node that was booted here: the name of its offer."""
_NODES: Final = "/api/v1/nodes"
_BOOT: Final = "boot/"


class _Order(msgspec.Struct, frozen=True):
    """A node on its way: the name of its offer, when it registers, and as what."""

    offer: str
    due: datetime
    node: Json


class KwokProvider:
    """KWOK's nodes behind one API server."""

    def __init__(self, api: FencedClient, settings: KwokSettings, clock: Clock) -> None:
        self._api = api
        self._settings = settings
        self._clock = clock
        self._ledger = Ledger(api, LEDGER)
        self._ordering = asyncio.Lock()
        """Orders are counted and written one at a time: limits hold for boots side by side too."""

    async def catalog(self) -> Catalog:
        """Return what the file lists, less what is there already of rows with a limit."""
        prices = await read_prices(self._settings.catalog)
        if all(row.available is None for row in prices.rows):
            return prices
        there = await self._there()
        return replace(prices, rows=tuple(replace(row, available=_left(row, there)) for row in prices.rows))

    async def boot(self, name: str, offer: Offer, operation: str) -> Operation:
        """Order a node; it registers `boot_seconds` later."""
        async with self._ordering:
            there = await self._there()
            if there.get(name, offer.name) != offer.name:
                raise PermanentError("conflict", f"node {name} is there as {there[name]}, not as {offer.name}")
            if name not in there:
                await self._check_limits(offer, there)
                due = self._clock.now() + timedelta(seconds=self._settings.boot_seconds)
                await self._ledger.add(name, _Order(offer=offer.name, due=due, node=node_object(name, offer)))
        return await self._booting(name)

    async def delete(self, name: str, operation: str) -> Operation:
        """Take the order back and the node away."""
        ordered = name in await self._ledger.read(_Order)
        await self._ledger.drop(name)  # first: an order that outlived its node would bring it back
        try:
            node = await self._api.get(node_path(name))
        except NotFoundError:
            if not ordered:
                raise PermanentError("not-found", f"there is no node {name}") from None
            return Operation(f"delete/{name}", name, "done")
        if annotations_of(node).get(FAKE) is None:
            raise PermanentError(
                "permission", f"node {name} is none of KWOK's (no annotation {FAKE}): it is not deleted"
            )
        with suppress(NotFoundError):  # it went meanwhile
            await self._api.delete(node_path(name), uid(node))
        return Operation(f"delete/{name}", name, "done")

    async def nodes(self) -> tuple[str, ...]:
        """Names of the fake nodes that are there or ordered."""
        return tuple(sorted(await self._there()))

    async def operation(self, id_: str) -> Operation:
        """Return how a boot stands."""
        if not id_.startswith(_BOOT):
            raise PermanentError("not-found", f"there is no operation {id_}")
        return await self._booting(id_.removeprefix(_BOOT))

    async def _booting(self, name: str) -> Operation:
        """Bring a boot forward: once it is due, its node registers and the order is fulfilled."""
        order = (await self._ledger.read(_Order)).get(name)
        if order is None:
            if name not in await self._there():
                raise PermanentError("not-found", f"there is no order for node {name}")
            return Operation(_BOOT + name, name, "done")
        if self._clock.now() < order.due:
            return Operation(_BOOT + name, name, "running")
        try:
            await self._api.create(_NODES, order.node)
        except ConflictError:
            found = annotations_of(await self._api.get(node_path(name))).get(OFFER)
            if found != order.offer:
                await self._ledger.drop(name)
                return Operation(_BOOT + name, name, "failed", "conflict", f"another client created a node {name}")
        except PermanentError:
            await self._ledger.drop(name)
            raise
        await self._ledger.drop(name)
        return Operation(_BOOT + name, name, "done")

    async def _there(self) -> dict[str, str]:
        """Return the name of its offer by node, for fake nodes and for ordered ones; empty where none is known."""
        nodes = await self._api.items(_NODES)
        fakes = [node for node in nodes if FAKE in annotations_of(node)]
        there = {str(node["metadata"]["name"]): annotations_of(node).get(OFFER, "") for node in fakes}
        orders = await self._ledger.read(_Order)
        return {**{name: order.offer for name, order in orders.items()}, **there}

    async def _check_limits(self, offer: Offer, there: dict[str, str]) -> None:
        most = self._settings.max_nodes
        if most is not None and len(there) >= most:
            raise PermanentError("quota", f"{len(there)} fake nodes are there, max_nodes is {most}")
        rows = [row for row in (await read_prices(self._settings.catalog)).rows if _sells(row, offer.name)]
        if not rows:
            raise PermanentError("not-found", f"{offer.name} is not in {self._settings.catalog} any more")
        if all(_left(row, there) == 0 for row in rows):
            raise PermanentError("stock-out", f"no more of {offer.name}: {self._settings.catalog} limits it")


def _sells(row: CatalogRow, offer: str) -> bool:
    """Return whether an offer of that name (`machine_type/zone/capacity_type`, perhaps with `#2`) is of the row."""
    machine_type, _, rest = offer.partition("#")[0].partition("/")
    zone, _, capacity_type = rest.partition("/")
    return (machine_type, capacity_type) == (row.machine_type, row.capacity_type) and row.zone in {None, zone}


def _left(row: CatalogRow, there: dict[str, str]) -> int | None:
    """Return how many more of a row can be had; None: no limit."""
    if row.available is None:
        return None
    return max(0, row.available - sum(1 for offer in there.values() if _sells(row, offer)))


def node_object(name: str, offer: Offer) -> Json:
    """Return the node as its kubelet would register it; KWOK turns it Ready."""
    taints = [{"key": taint.key, "value": taint.value, "effect": taint.effect} for taint in parse_taints(offer.taints)]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {**new_node_labels(offer, name), "type": "kwok"},
            "annotations": {FAKE: "fake", OFFER: offer.name},
        },
        "spec": {"providerID": f"kwok://{name}", **({"taints": taints} if taints else {})},
        "status": {
            "capacity": _quantities(offer.capacity),
            "allocatable": _quantities(offer.allocatable),
        },
    }


def _quantities(amounts: Amounts) -> dict[str, str]:
    return {name: f"{amount}m" if name == "cpu" else str(amount) for name, amount in amounts.items()}
