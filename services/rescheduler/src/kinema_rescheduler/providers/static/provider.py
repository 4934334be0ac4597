"""Machines that are there for good (an on-premises inventory): boot is power on, delete is power off.

A machine registers under its own name, so a planned node is given a machine, and the ledger says which: whoever takes
over switches on the one that was chosen and no second one. Whether a machine runs is asked of the machine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, Literal

import msgspec

from kinema_core.events import Offer
from kinema_core.runtime.clock import Clock
from kinema_kubernetes.objects import node_path, uid
from kinema_rescheduler.errors import EffectError, NotFoundError, PermanentError, TransientError
from kinema_rescheduler.kubernetes.fenced import FencedClient
from kinema_rescheduler.leadership.fence import Fence
from kinema_rescheduler.providers.base import Catalog, Operation
from kinema_rescheduler.providers.ledger import Ledger
from kinema_rescheduler.providers.static.commands import run
from kinema_rescheduler.providers.static.inventory import Inventory, Machine, filled, read_inventory
from kinema_rescheduler.settings import StaticSettings

LEDGER: Final = "kinema-machines"
_AT_ONCE: Final = 8
"""How many machines are asked for their state at the same time."""

Power = Literal["on", "off"]


class _Claim(msgspec.Struct, frozen=True):
    """A machine was chosen to be this node."""

    node: str
    since: datetime


class StaticProvider:
    """The machines of an inventory file."""

    def __init__(self, api: FencedClient, settings: StaticSettings, clock: Clock, fence: Fence | None = None) -> None:
        self._api = api
        self._settings = settings
        self._clock = clock
        self._fence = fence or Fence()
        self._ledger = Ledger(api, LEDGER)
        self._choosing = asyncio.Lock()
        self._asking = asyncio.Semaphore(_AT_ONCE)

    async def catalog(self) -> Catalog:
        """Machines that are alike, with how many of them are off and not spoken for."""
        inventory = await self._inventory()
        powers = await self._powers(inventory)
        off = await self._unused(powers)
        changed = await asyncio.to_thread(lambda: Path(self._settings.inventory).stat().st_mtime)
        priced = datetime.fromtimestamp(changed, UTC).replace(microsecond=0)
        return Catalog(source=Path(self._settings.inventory).name, priced=priced, rows=inventory.rows(off))

    async def boot(self, name: str, offer: Offer, operation: str) -> Operation:
        """Switch on the machine that was chosen for this node, else choose one that is off."""
        inventory = await self._inventory()
        async with self._choosing:
            machine = await self._chosen(inventory, name, offer)
        if await self._power(machine, inventory) == "on":
            return Operation(f"on/{machine.name}", machine.name, "done")
        try:
            await self._switch(inventory.power_on, machine)
        except PermanentError:
            await self._ledger.drop(machine.name)  # it was not switched on, and never will be by this order
            raise
        return Operation(f"on/{machine.name}", machine.name, "running")

    async def delete(self, name: str, operation: str) -> Operation:
        """Switch a machine off; its node goes when it is."""
        inventory = await self._inventory()
        claims = await self._ledger.read(_Claim)
        named = next((machine for machine, claim in claims.items() if claim.node == name), name)
        machine = inventory.machine(named)
        if machine is None:
            raise PermanentError("not-found", f"there is no machine {name} in {self._settings.inventory}")
        if await self._power(machine, inventory) == "off":
            if not await self._forget(machine.name):
                raise PermanentError("not-found", f"machine {machine.name} is off")
            return Operation(f"off/{machine.name}", machine.name, "done")
        await self._switch(inventory.power_off, machine)
        return Operation(f"off/{machine.name}", machine.name, "running")

    async def nodes(self) -> tuple[str, ...]:
        """Names of the machines that are on."""
        inventory = await self._inventory()
        powers = await self._powers(inventory)
        return tuple(sorted(name for name, power in powers.items() if power == "on"))

    async def operation(self, id_: str) -> Operation:
        """Return whether a machine has come to the state that it was switched to."""
        wanted, _, name = id_.partition("/")
        inventory = await self._inventory()
        machine = inventory.machine(name)
        if wanted not in {"on", "off"} or machine is None:
            raise PermanentError("not-found", f"there is no operation {id_}")
        if await self._power(machine, inventory) != wanted:
            return Operation(id_, name, "running")
        if wanted == "off":
            await self._forget(name)
        return Operation(id_, name, "done")

    # --- choosing

    async def _chosen(self, inventory: Inventory, node: str, offer: Offer) -> Machine:
        """Return the machine of a node: chosen before, or now and written down."""
        claims = await self._ledger.read(_Claim)
        before = next((name for name, claim in claims.items() if claim.node == node), node)
        machine = inventory.machine(before)
        if machine is not None and not inventory.sold_as(machine, offer):
            raise PermanentError(
                "conflict", f"node {node} is machine {machine.name}, which is not sold as {offer.name}"
            )
        if machine is None or machine.name not in claims:
            machine = await self._free(inventory, offer, [machine] if machine is not None else inventory.machines)
            await self._ledger.drop(machine.name)  # a claim that is too old to mean anything
            await self._ledger.add(machine.name, _Claim(node=node, since=self._clock.now()))
        return machine

    async def _free(self, inventory: Inventory, offer: Offer, machines: Iterable[Machine]) -> Machine:
        """Return the first machine of an offer that is off and not spoken for."""
        powers = await self._powers(inventory)
        unused = await self._unused(powers)
        free = [machine for machine in machines if machine.name in unused and inventory.sold_as(machine, offer)]
        if not free:
            raise PermanentError("stock-out", f"every machine that is sold as {offer.name} is in use or out of reach")
        drawn = sum(one.watts for one in inventory.machines if one.name not in unused)
        if inventory.max_watts is not None and drawn + free[0].watts > inventory.max_watts:
            detail = f"{drawn:.0f} of {inventory.max_watts:.0f} W are drawn, {free[0].name} needs {free[0].watts:.0f}"
            raise PermanentError("quota", detail)
        return free[0]

    async def _unused(self, powers: dict[str, Power]) -> frozenset[str]:
        """Machines that are off, without a node, and not chosen lately: a boot may take a while to show."""
        oldest = self._clock.now() - timedelta(seconds=self._settings.reservation_seconds)
        claims = await self._ledger.read(_Claim)
        nodes = {str(node["metadata"]["name"]) for node in await self._api.items("/api/v1/nodes")}
        return frozenset(
            name
            for name, power in powers.items()
            if power == "off" and name not in nodes and (name not in claims or claims[name].since < oldest)
        )

    async def _forget(self, name: str) -> bool:
        """Remove node and claim of a machine that is off; return whether there was a node."""
        try:
            node = await self._api.get(node_path(name))
            await self._api.delete(node_path(name), uid(node))
            there = True
        except NotFoundError:
            there = False
        await self._ledger.drop(name)
        return there

    # --- machines

    async def _inventory(self) -> Inventory:
        return await asyncio.to_thread(read_inventory, Path(self._settings.inventory))

    async def _powers(self, inventory: Inventory) -> dict[str, Power]:
        """State by machine; those that do not answer are missing, as one broken controller must not stop the rest.

        Where none answers it is the command that is broken, and not the machines that are sold out.
        """

        async def ask(machine: Machine) -> Power | EffectError:
            try:
                return await self._power(machine, inventory)
            except EffectError as error:
                return error

        output = await asyncio.gather(*(ask(machine) for machine in inventory.machines))
        powers = {
            machine.name: power
            for machine, power in zip(inventory.machines, output, strict=True)
            if not isinstance(power, EffectError)
        }
        for failed in output if not powers else ():
            if isinstance(failed, EffectError):
                raise failed
        return powers

    async def _switch(self, command: tuple[str, ...], machine: Machine) -> None:
        self._fence.check()
        await run(filled(command, machine), self._settings.command_seconds)

    async def _power(self, machine: Machine, inventory: Inventory) -> Power:
        async with self._asking:
            output = await run(filled(inventory.power_status, machine), self._settings.command_seconds)
        match (output.lower().split() or [""])[-1].strip(".:"):
            case "on":
                return "on"
            case "off":
                return "off"
            case _:
                detail = f"power_status of {machine.name} printed {output[-80:]!r}: its last word must be on or off"
                raise TransientError("transient", detail)
