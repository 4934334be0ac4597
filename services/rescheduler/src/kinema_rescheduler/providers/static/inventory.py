"""An on-premises inventory: machines that are there for good, what they cost, and how they are switched."""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction
from itertools import count
from pathlib import Path
from typing import Final, Literal

import msgspec

from kinema_core.events import FrozenMap, Offer
from kinema_core.model.catalog import CatalogRow
from kinema_core.model.match import parse_taints, taint_text
from kinema_rescheduler.errors import PermanentError

_GIB: Final = 2**30
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_ADDRESS: Final = re.compile(r"[A-Za-z0-9\[][A-Za-z0-9.:\[\]_-]*")
_HOLE: Final = re.compile(r"\{([^{}]*)\}")
_HOLES: Final = frozenset({"machine", "address"})


class Machine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One machine; `name` is the name under which its node registers."""

    name: str
    machine_type: str
    vcpus: float
    memory_gib: float
    zone: str = "-"
    address: str = ""
    """Of its management controller, for the commands; its name where there is none."""
    watts: float = 0.0
    usd_per_hour: float = 0.0
    """What an hour costs beside the electricity: wear, room, care."""
    max_pods: int | None = None
    allocatable_cpu_m: int | None = None
    allocatable_memory_bytes: int | None = None
    labels: dict[str, str] = {}
    taints: tuple[str, ...] = ()


class Inventory(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The file. Commands are lists of words, run without a shell; `{machine}` and `{address}` are filled in."""

    schema: Literal["kinema.inventory/v1"]
    machines: tuple[Machine, ...]
    power_on: tuple[str, ...]
    power_off: tuple[str, ...]
    power_status: tuple[str, ...]
    """The last word that it prints is `on` or `off`."""
    usd_per_kwh: float = 0.0
    max_watts: float | None = None
    """How much all running machines may draw together; none: no limit."""

    def machine(self, name: str) -> Machine | None:
        """Return the machine of that name."""
        return next((machine for machine in self.machines if machine.name == name), None)

    def price(self, machine: Machine) -> int:
        """Micro-USD for an hour of a machine: electricity and what else it costs, rounded half up."""
        energy = _exact(machine.watts) / 1000 * _exact(self.usd_per_kwh)
        return int((energy + _exact(machine.usd_per_hour)) * 10**6 + Fraction(1, 2))

    def row(self, machine: Machine, line: int = 0, available: int = 0) -> CatalogRow:
        """Return the row under which machines like this one are sold."""
        return CatalogRow(
            line=line,
            machine_type=machine.machine_type,
            vcpus=_exact(machine.vcpus),
            memory=int(_exact(machine.memory_gib) * _GIB),
            micro_usd_per_hour=self.price(machine),
            zone=machine.zone,
            labels=FrozenMap(machine.labels),
            taints=tuple(taint_text(taint) for taint in parse_taints(machine.taints)),
            allocatable_cpu=machine.allocatable_cpu_m,
            allocatable_memory=machine.allocatable_memory_bytes,
            max_pods=machine.max_pods,
            watts=machine.watts or None,
            available=available,
        )

    def rows(self, off: frozenset[str]) -> tuple[CatalogRow, ...]:
        """Return what is on sale: machines that are alike make one row, of which those that are off can be had."""
        counts: dict[CatalogRow, int] = {}
        for machine in self.machines:
            row = self.row(machine)
            counts[row] = counts.get(row, 0) + (machine.name in off)
        found = zip(count(1), counts.items(), strict=False)
        return tuple(replace(row, line=line, available=left) for line, (row, left) in found)

    def sold_as(self, machine: Machine, offer: Offer) -> bool:
        """Return whether a machine is one of those that an offer means."""
        row = self.row(machine)
        return (
            (row.machine_type, row.zone, row.micro_usd_per_hour, row.taints)
            == (offer.machine_type, offer.zone, offer.micro_usd_per_hour, offer.taints)
            and (int(row.vcpus * 1000), row.memory) == (offer.capacity["cpu"], offer.capacity["memory"])
            and offer.capacity_type == row.capacity_type
            and row.labels.items() <= offer.labels.items()
        )


def filled(command: tuple[str, ...], machine: Machine) -> tuple[str, ...]:
    """Return a command with a machine's name and address in it."""
    values = {"machine": machine.name, "address": machine.address or machine.name}
    return tuple(_HOLE.sub(lambda hole: values[hole[1]], word) for word in command)


def read_inventory(path: Path) -> Inventory:
    """Read an inventory file.

    Raises:
        PermanentError: `invalid`, it cannot be used; names file, machine and field.
    """
    try:
        inventory = msgspec.json.decode(path.read_bytes(), type=Inventory)
        _check(inventory)
    except OSError as error:
        raise PermanentError("invalid", f"inventory {path}: {error.strerror}") from error
    except ValueError as error:
        raise PermanentError("invalid", f"inventory {path}: {error}") from error
    return inventory


def _check(inventory: Inventory) -> None:
    """Raise ValueError for what no type can refuse."""
    for field in ("power_on", "power_off", "power_status"):
        command: tuple[str, ...] = getattr(inventory, field)
        if not command:
            raise ValueError(f"{field} is empty: give a program and its arguments")
        unknown = sorted({hole for word in command for hole in _HOLE.findall(word)} - _HOLES)
        if unknown:
            raise ValueError(f"{field} has {{{unknown[0]}}}: only {{machine}} and {{address}} can be filled in")
    names = [machine.name for machine in inventory.machines]
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise ValueError(f"machine {doubled[0]} stands there twice: names are those of nodes")
    for machine in inventory.machines:
        _check_machine(inventory, machine)


def _check_machine(inventory: Inventory, machine: Machine) -> None:
    name = machine.name
    # Names and addresses become words of commands: none may look like an option.
    if not _NAME.fullmatch(name):
        raise ValueError(f"machine name {name!r}: write a node's name (lower case, digits, - and .)")
    if machine.address and not _ADDRESS.fullmatch(machine.address):
        raise ValueError(f"machine {name}, address {machine.address!r}: write a host name or an IP address")
    if machine.vcpus <= 0 or machine.memory_gib <= 0:
        raise ValueError(f"machine {name}: vcpus and memory_gib must be above 0")
    if machine.watts < 0 or machine.usd_per_hour < 0 or inventory.usd_per_kwh < 0:
        raise ValueError(f"machine {name}: watts, usd_per_hour and usd_per_kwh must not be below 0")
    if inventory.price(machine) <= 0:
        raise ValueError(f"machine {name} costs nothing: give it usd_per_hour, or watts and the file usd_per_kwh")
    try:
        parse_taints(machine.taints)
    except ValueError as error:
        raise ValueError(f"machine {name}, taints: {error}") from error


def _exact(number: float) -> Fraction:
    """Return the number as it was written."""
    return Fraction(str(number))
