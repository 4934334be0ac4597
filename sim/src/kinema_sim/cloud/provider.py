"""The cloud: operations that take time, limits, stock-outs, and the machines that exist."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from kinema_sim.cloud.machines import Offer, load_offers, make_ready, node_object
from kinema_sim.engine.clock import Loop, spread
from kinema_sim.engine.kinds import NODE
from kinema_sim.engine.objects import Obj
from kinema_sim.engine.store import Store

BOOT_MS = (30_000, 60_000)
"""From the order to the node's registration, inclusive bounds."""
READY_MS = (3_000, 6_000)
"""From registration to Ready."""
DELETE_MS = (8_000, 15_000)
STOCK_OUT_MS = 4_000
"""Time for which the cloud looks for capacity before it reports that there is none."""


CPUS = "CPUS"
SPOT_CPUS = "PREEMPTIBLE_CPUS"
INSTANCES = "INSTANCES"
"""Metrics of quotas, as Compute Engine names them."""
NO_DISK = ("", 0)


class ErrorClass(StrEnum):
    """Meaning of a failure for the caller."""

    STOCK_OUT = "stock-out"
    QUOTA = "quota"
    PERMISSION = "permission"
    CONFLICT = "conflict"
    TRANSIENT = "transient"
    NOT_FOUND = "not-found"


class CloudError(Exception):
    """A request that the cloud refuses at once. `quota`: the metric of the quota that it would exceed."""

    def __init__(self, kind: ErrorClass, message: str, quota: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.quota = quota


@dataclass
class Operation:
    """A boot or a deletion under way or over.

    Attributes:
        id: the caller's name for it.
        kind: `boot` or `delete`.
        node: node it is about.
        state: `running`, `done` or `failed`.
        error: class and message of a failure.
    """

    id: str
    kind: str
    node: str
    state: str = "running"
    error: tuple[ErrorClass, str] | None = None


@dataclass
class Machine:
    """A machine that is paid for.

    Attributes:
        name: node name.
        offer: what was bought.
        state: `booting`, `running`, `deleting` or `lost`.
        boot: operation that boots or booted it.
        labels: extra labels of its node.
        taints: extra taints of its node.
        disk: metric of the quota that its boot disk counts against, and gigabytes.
    """

    name: str
    offer: Offer
    state: str
    boot: Operation
    labels: dict[str, str] = field(default_factory=dict)
    taints: list[Obj] = field(default_factory=list)
    disk: tuple[str, int] = NO_DISK


class Cloud:
    """Sells and takes back machines.

    Args:
        store: where nodes register.
        seed: decides boot times.
        offers: what is on sale, the shipped price list when None.
    """

    def __init__(self, store: Store, seed: int, *, offers: tuple[Offer, ...] | None = None) -> None:
        self._store = store
        self._loop: Loop = store.loop
        self._seed = seed
        self.offers = {offer.name: offer for offer in (load_offers() if offers is None else offers)}
        self.quotas: dict[str, int] = {}
        """Limits of the region by metric; what is not listed has none."""
        self.available: dict[str, int] = {}
        self.sold_out: set[str] = set()
        self.never_ready: set[str] = set()
        self.denied = False
        self.pool_error = ""
        self.machines: dict[str, Machine] = {}
        self.operations: dict[str, Operation] = {}
        self._deletions: dict[str, Operation] = {}

    def boot(
        self,
        name: str,
        offer: Offer,
        operation: str,
        *,
        labels: dict[str, str],
        taints: list[Obj],
        disk: tuple[str, int] = NO_DISK,
    ) -> Operation:
        """Order a machine. The same operation, or the same machine under another operation, is the same order.

        Raises:
            CloudError: permission, quota, or conflict when the name is taken by something else.
        """
        if operation in self.operations:
            return self._same(operation, "boot", name)
        self._check_permission()
        existing = self.machines.get(name)
        if existing is not None:
            if existing.offer != offer or existing.state == "deleting":
                raise CloudError(ErrorClass.CONFLICT, f"{name} exists as {existing.offer.name}, {existing.state}")
            self.operations[operation] = existing.boot
            return existing.boot
        self._check_quotas(offer, disk)
        order = self.operations[operation] = Operation(operation, "boot", name)
        machine = Machine(name, offer, "booting", order, labels=dict(labels), taints=list(taints), disk=disk)
        self.machines[name] = machine
        if self._left(offer) == 0:
            self._loop.after(STOCK_OUT_MS, lambda: self._fail_for_stock(machine))
        else:
            self._take(offer)
            self._loop.after(spread("boot", self._seed, name, BOOT_MS), lambda: self._register(machine))
        return order

    def delete(self, name: str, operation: str) -> Operation:
        """Give a machine back. The same operation, or the same machine once more, is the same order.

        Raises:
            CloudError: permission, or not-found.
        """
        if operation in self.operations:
            return self._same(operation, "delete", name)
        self._check_permission()
        machine = self.machines.get(name)
        if machine is None and name not in self._deletions:
            raise CloudError(ErrorClass.NOT_FOUND, f"there is no machine {name}")
        if machine is None or machine.state == "deleting":
            self.operations[operation] = self._deletions[name]
            return self._deletions[name]
        order = self.operations[operation] = self._deletions[name] = Operation(operation, "delete", name)
        machine.state = "deleting"
        if machine.boot.state == "running":
            machine.boot.state = "failed"
            machine.boot.error = (ErrorClass.CONFLICT, f"{name} was deleted while it booted")
        self._loop.after(spread("delete", self._seed, name, DELETE_MS), lambda: self._vanish(machine, order))
        return order

    def adopt(self, name: str, offer: Offer, *, labels: dict[str, str], taints: Sequence[Obj] = ()) -> None:
        """Put a machine there that runs and is Ready already: how a scenario begins."""
        order = self.operations[f"initial-{name}"] = Operation(f"initial-{name}", "boot", name, state="done")
        self._deletions.pop(name, None)
        machine = Machine(name, offer, "running", order, labels=dict(labels), taints=list(taints))
        self.machines[name] = machine
        self._create_node(machine)
        self._make_ready(machine)

    def lose(self, name: str) -> None:
        """Take a machine away at once, as a failing zone does: its node and its pods are gone."""
        machine = self.machines.pop(name, None)
        if machine is None:
            return
        machine.state = "lost"
        if machine.offer.name in self.available:
            self.available[machine.offer.name] += 1
        self._store.remove(NODE, ("", name))

    def release(self) -> None:
        """Lift the faults on nodes: those held back until now become Ready."""
        held = sorted(self.never_ready)
        self.never_ready.clear()
        for name in held:
            machine = self.machines.get(name)
            if machine is not None:
                self._make_ready(machine)

    def _same(self, operation: str, kind: str, node: str) -> Operation:
        known = self.operations[operation]
        if (known.kind, known.node) != (kind, node):
            text = f"operation {operation} is {known.kind} {known.node}, not {kind} {node}"
            raise CloudError(ErrorClass.CONFLICT, text)
        return known

    def _check_permission(self) -> None:
        if self.denied:
            raise CloudError(ErrorClass.PERMISSION, "the caller may not change machines")

    def used(self, metric: str) -> int:
        """Return how much of a quota the machines use."""
        return sum(self._counted(machine.offer, machine.disk).get(metric, 0) for machine in self.machines.values())

    def _counted(self, offer: Offer, disk: tuple[str, int]) -> dict[str, int]:
        """Return what a machine counts in quotas; a Spot machine has its own of processors where the region has one."""
        spot = offer.capacity_type == "spot" and self.quotas.get(SPOT_CPUS, 0) > 0
        return {SPOT_CPUS if spot else CPUS: offer.vcpus, INSTANCES: 1, disk[0]: disk[1]}

    def _check_quotas(self, offer: Offer, disk: tuple[str, int]) -> None:
        for metric, needed in self._counted(offer, disk).items():
            most, used = self.quotas.get(metric), self.used(metric)
            if most is not None and used + needed > most:
                text = f"{used} of {most} {metric} are in use, {offer.machine_type} needs {needed}"
                raise CloudError(ErrorClass.QUOTA, text, metric)

    def _left(self, offer: Offer) -> int | None:
        return 0 if offer.name in self.sold_out else self.available.get(offer.name)

    def _take(self, offer: Offer) -> None:
        if offer.name in self.available:
            self.available[offer.name] -= 1

    def _fail_for_stock(self, machine: Machine) -> None:
        if machine.state != "booting":
            return
        machine.boot.state = "failed"
        machine.boot.error = (ErrorClass.STOCK_OUT, f"{machine.offer.name} is not available at the moment")
        del self.machines[machine.name]

    def _register(self, machine: Machine) -> None:
        if machine.state != "booting":
            return
        machine.state = "running"
        machine.boot.state = "done"
        self._deletions.pop(machine.name, None)
        self._create_node(machine)
        if machine.name not in self.never_ready:
            self._loop.after(spread("ready", self._seed, machine.name, READY_MS), lambda: self._make_ready(machine))

    def _create_node(self, machine: Machine) -> None:
        if self._store.get(NODE, "", machine.name) is not None:
            return
        draft = node_object(
            machine.name, machine.offer, labels=machine.labels, taints=machine.taints, now=self._loop.now
        )
        self._store.create(NODE, draft)

    def _make_ready(self, machine: Machine) -> None:
        if machine.state == "running":
            now = self._loop.now
            self._store.edit(NODE, ("", machine.name), lambda node: make_ready(node, now))

    def _vanish(self, machine: Machine, order: Operation) -> None:
        order.state = "done"
        if self.machines.get(machine.name) is not machine:  # lost in the meantime
            return
        del self.machines[machine.name]
        if machine.offer.name in self.available:
            self.available[machine.offer.name] += 1
        self._store.remove(NODE, ("", machine.name))
