"""Machines of Cluster API: a boot raises a MachineDeployment by one, a deletion marks a Machine and lowers it by one.

Cluster API chooses the names of Machines. So that a process that takes over finds what was ordered before it, an order
stands in an annotation of its MachineDeployment, written by the patch that raises `spec.replicas`: either both are
there or none. The first Machine that was not there before the order fulfills it.

A MachineDeployment is lowered only while it has as many Machines as it asks for, on the version at which they were
counted, and raised only while it does not have more: the marked Machine is then the one that goes, even where other
clients scale (ADR 17).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, TypeAlias
from urllib.parse import quote

import msgspec

from kinema_core.events import FrozenMap, Labels, Node, Offer, Quota
from kinema_core.model.catalog import CatalogRow
from kinema_core.model.machines import INSTANCE_TYPE, UNKNOWN, ZONE, machine_of
from kinema_core.model.match import parse_taint, taint_text
from kinema_core.model.vocabulary import CAPACITY_TYPE, SPOT_VALUES
from kinema_kubernetes.objects import Json, annotations_of, generation, labels_of, node_path, terminating, uid
from kinema_rescheduler.errors import ConflictError, NotFoundError, PermanentError
from kinema_rescheduler.kubernetes.fenced import FencedClient
from kinema_rescheduler.providers.base import Catalog, Operation
from kinema_rescheduler.providers.catalog import catalog_of
from kinema_rescheduler.providers.causes import reason_of
from kinema_rescheduler.settings import ClusterApiSettings

API: Final = "/apis/cluster.x-k8s.io/v1beta2"
ORDERS: Final = "kinema.io/orders"
"""Annotation of a MachineDeployment: its orders by name of the plan's node, as JSON."""
DELETE_MACHINE: Final = "cluster.x-k8s.io/delete-machine"
"""Annotation of a Machine that goes first when its MachineDeployment is lowered."""
CLUSTER: Final = "cluster.x-k8s.io/cluster-name"
DEPLOYMENT: Final = "cluster.x-k8s.io/deployment-name"
"""Labels of a Machine."""
MIN_SIZE: Final = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size"
MAX_SIZE: Final = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size"
LABELS: Final = "capacity.cluster-autoscaler.kubernetes.io/labels"
TAINTS: Final = "capacity.cluster-autoscaler.kubernetes.io/taints"
"""Annotations of a MachineDeployment: its limits, and what new nodes have, as Cluster Autoscaler reads them."""

_SYNCED: Final = ("node-role.kubernetes.io/", "node-restriction.kubernetes.io/", "node.cluster.x-k8s.io/")
"""Beginnings of labels that Cluster API copies from a Machine to its node."""
_PLACING: Final = frozenset({*INSTANCE_TYPE, *ZONE, CAPACITY_TYPE, *SPOT_VALUES})
"""Labels that say which machine a node is, and where."""
_MARK: Final = "kinema"
"""Value of Kinema's own marks on Machines; to Cluster API any value is one."""
_BOOT: Final = "boot"
_DELETE: Final = "delete"
_TRIES: Final = 10
_PAUSE_SECONDS: Final = 0.5
"""Cluster seconds before a MachineDeployment is read again that its controller has just written, or is lowering."""


class Order(msgspec.Struct, frozen=True, omit_defaults=True):
    """A machine that was ordered of a MachineDeployment."""

    offer: str
    before: tuple[str, ...] = ()
    """Machines that were there already; those of earlier orders without a node count too, and are not repeated."""
    machine: str = ""
    """The Machine that fulfills it; empty: none yet."""
    done: bool = False
    """Whether that Machine has a node."""


Orders: TypeAlias = Mapping[str, Order]


@dataclass(frozen=True)
class Group:
    """A MachineDeployment, and all its Machines, which were read after it."""

    deployment: Json
    machines: Sequence[Json]

    @property
    def name(self) -> str:
        """Name of the MachineDeployment."""
        return _name(self.deployment)

    @property
    def replicas(self) -> int:
        """How many Machines it asks for."""
        return _replicas(self.deployment)

    @property
    def live(self) -> Sequence[Json]:
        """Its Machines that stay, in the order of their creation."""
        staying = (one for one in self.machines if not terminating(one))
        return sorted(staying, key=_created)

    @property
    def unsettled(self) -> str:
        """Why it is not lowered now; empty: it has exactly the Machines that it asks for, and replaces none of them."""
        status = self.deployment.get("status") or {}
        rollout = _condition(self.deployment, "RollingOut")
        if len(self.live) != self.replicas:
            return f"{_called(self.deployment)} has {len(self.live)} Machines and asks for {self.replicas}"
        if int(status.get("observedGeneration") or 0) < generation(self.deployment):
            return f"Cluster API has yet to read {_called(self.deployment)}"
        if rollout.get("status") == "True":
            return f"{_called(self.deployment)} rolls out{_said(rollout)}"
        return ""

    @property
    def shrinking(self) -> bool:
        """Whether it has more Machines than it asks for: it is about to delete some, or replaces them."""
        return len(self.live) > self.replicas

    @property
    def orders(self) -> Orders:
        """Its orders as they are written; raises PermanentError."""
        return _orders(self.deployment)

    def machine(self, name: str) -> Json | None:
        """Return its Machine of that name, if it stays."""
        return next((one for one in self.live if _name(one) == name), None)


class ClusterApiProvider:
    """Cluster API behind the API server of its management cluster.

    Args:
        api: the cluster whose nodes the Machines are.
        management: where its MachineDeployments are; often the same cluster.
        settings: see there.
    """

    def __init__(self, api: FencedClient, management: FencedClient, settings: ClusterApiSettings) -> None:
        self._api = api
        self._management = management
        self._settings = settings
        self._scaling = asyncio.Lock()
        """MachineDeployments are scaled one at a time: limits hold for boots side by side, and one mark is there."""

    async def catalog(self) -> Catalog:
        """Return what the file, or the tables that ship with Kinema, list of what MachineDeployments can boot.

        Raises:
            PermanentError: `not-found`, the Cluster has none; `invalid`, the file or an annotation cannot be read.
        """
        found = await catalog_of(self._settings.catalog, self._api)
        return replace(found, rows=sold(found.rows, await self._pools()))

    async def boot(self, name: str, offer: Offer, operation: str) -> Operation:
        """Raise a MachineDeployment for the order, or find it."""
        async with self._scaling:
            deployment = await self._ordered(name)
            if deployment is None:
                deployment = await self._order(name, offer)
        before = _orders(deployment)[name].offer
        if before != offer.name:
            raise PermanentError("conflict", f"{name} is ordered of {_called(deployment)} as {before}")
        return await self._standing(_name(deployment), name)

    async def delete(self, name: str, operation: str) -> Operation:
        """Mark the Machine of a node, or of an order for it, and lower its MachineDeployment by one."""
        deployment = await self._ordered(name)
        chosen = ""
        if deployment is not None:
            group = await self._take_back(_name(deployment), name)
            chosen = group.orders[name].machine if name in group.orders else ""
            if not chosen:
                return Operation(f"{_DELETE}/{group.name}///{name}", name, "done")
        machine = next((one for one in await self._machines() if chosen == _name(one) or _node(one) == name), None)
        if machine is None:
            with suppress(NotFoundError):
                await self._api.get(node_path(name))
                raise PermanentError("permission", f"node {name} has no Machine of Cluster {self._cluster}")
            raise PermanentError("not-found", f"there is no node {name}")
        of = labels_of(machine).get(DEPLOYMENT)
        if of is None:
            raise PermanentError("permission", f"Machine {_name(machine)} of node {name} has no MachineDeployment")
        return await self._leaving(f"{_DELETE}/{of}/{_name(machine)}/{uid(machine)}/{name}")

    async def nodes(self) -> tuple[str, ...]:
        """Names of the nodes of MachineDeployments; of an order without a node, its own name."""
        deployments = await self._deployments()
        machines = [one for one in await self._machines() if DEPLOYMENT in labels_of(one)]
        orders: dict[str, Order] = {}
        for one in deployments:
            of = [machine for machine in machines if labels_of(machine)[DEPLOYMENT] == _name(one)]
            orders.update(assigned(Group(one, of)))
        ordered = {order.machine: name for name, order in orders.items() if order.machine}
        there = {_node(one) or ordered.get(_name(one), _name(one)) for one in machines}
        return tuple(sorted(there | {name for name, order in orders.items() if not order.machine}))

    async def operation(self, id_: str) -> Operation:
        """Return how a boot or a deletion stands."""
        match id_.split("/"):
            case [kind, deployment, name] if kind == _BOOT:
                return await self._standing(deployment, name)
            case [kind, _, _, _, _] if kind == _DELETE:
                return await self._leaving(id_)
        raise PermanentError("not-found", f"there is no operation {id_}")

    # --- orders

    async def _order(self, name: str, offer: Offer) -> Json:
        """Raise the first MachineDeployment that sells an offer and has room, and return it."""
        pools = sorted((pool for pool in await self._pools() if sells(pool, offer)), key=_closest)
        if not pools:
            detail = f"no MachineDeployment of Cluster {self._cluster} sells {offer.name}"
            raise PermanentError("not-found", detail)
        free = [pool for pool in pools if pool.left != 0]
        if not free:
            names = ", ".join(pool.name for pool in pools)
            raise PermanentError("quota", f"no more of {offer.name}: {MAX_SIZE} of MachineDeployment {names}")

        def change(group: Group) -> tuple[Orders, int] | None:
            if name in group.orders:  # an order whose answer was lost
                return None
            if _left(group.deployment) == 0:
                raise PermanentError("quota", f"{_called(group.deployment)} has reached its {MAX_SIZE}")
            if group.shrinking:
                # Raised now, it would keep the Machine that is to go, and have none for this order.
                raise ConflictError("conflict", f"{_called(group.deployment)} has more Machines than it asks for")
            orders = assigned(group)
            stated = {machine for order in orders.values() for machine in order.before}
            before = {*map(_name, group.machines)} - stated
            return {**orders, name: Order(offer=offer.name, before=tuple(sorted(before)))}, group.replicas + 1

        return (await self._update(free[0].name, change)).deployment

    async def _standing(self, deployment: str, name: str) -> Operation:
        """Return how the boot of an order stands; one that cannot succeed is taken back."""
        id_ = f"{_BOOT}/{deployment}/{name}"
        try:
            group = await self._update(deployment, _assign)
        except NotFoundError:
            return Operation(id_, name, "failed", "conflict", f"MachineDeployment {deployment} is gone")
        order = group.orders.get(name)
        machine = group.machine(order.machine) if order is not None else None
        waits = f"{_called(group.deployment)} has made no Machine for it"
        if order is not None and machine is not None:
            if order.done:
                return Operation(id_, _node(machine), "done")
            waits = f"Machine {order.machine} has no node{_said(_condition(machine, 'InfrastructureReady'))}"
            reason, text = failure(machine)
            if reason:  # Cluster API would go on trying, and buy it later
                kept = await self._remove(deployment, order.machine)
                if not kept:
                    return Operation(id_, name, "failed", reason, f"Machine {order.machine}: {text}")
                waits = f"Machine {order.machine}: {text}; {kept}"
        elif order is None or (
            len(group.live) >= group.replicas and name not in (await self._take_back(deployment, name)).orders
        ):
            detail = f"another client has lowered {_called(group.deployment)} before {name} had a Machine"
            return Operation(id_, name, "failed", "conflict", detail)
        return Operation(id_, name, "running", message=waits)

    async def _take_back(self, deployment: str, name: str) -> Group:
        """End an order if it has no Machine; what is returned has it no more then.

        Should its Machine come at the same moment, Cluster API deletes one without a node before all others.
        """

        def change(group: Group) -> tuple[Orders, int] | None:
            orders = assigned(group)
            if name not in orders or orders[name].machine:
                return _assign(group)
            coming = len(group.live) < group.replicas
            return assigned(group, but=name), group.replicas - coming

        async with self._scaling:
            return await self._update(deployment, change)

    # --- deletions

    async def _leaving(self, id_: str) -> Operation:
        """Bring a deletion forward; it is over when Machine and node are gone."""
        _, deployment, name, order, node = id_.split("/")
        machine = await self._machine(name) if name else None
        if machine is None or uid(machine) != order:
            return Operation(id_, node, "done")
        waits = "" if terminating(machine) else await self._remove(deployment, name)
        waits = waits or f"Cluster API deletes Machine {name}{_said(_condition(machine, 'Deleting'))}"
        return Operation(id_, node, "running", message=waits)

    async def _remove(self, deployment: str, name: str) -> str:
        """Lower a MachineDeployment by one Machine; return why that cannot be done now, and nothing if it was."""
        async with self._scaling:
            group = await self._group(deployment)
            _check_may_change(group.deployment)
            if why := _kept(group, name):
                return why
            least = _size(group.deployment, MIN_SIZE)
            if least is not None and group.replicas <= least:
                raise PermanentError("quota", f"{_called(group.deployment)} has reached its {MIN_SIZE}, {least}")
            await self._mark(group, name)

            def change(group: Group) -> tuple[Orders, int] | None:
                nonlocal why
                why = _kept(group, name)
                ended = next((key for key, order in group.orders.items() if order.machine == name), "")
                return None if why else (assigned(group, but=ended), group.replicas - 1)

            await self._update(deployment, change)
            return why

    async def _mark(self, group: Group, name: str) -> None:
        """Mark one Machine of a MachineDeployment, and no other: of two that are marked, either may go.

        Kinema's own mark of another one is of a deletion that ended before the MachineDeployment was lowered.
        """
        marks = {_name(one): annotations_of(one).get(DELETE_MACHINE) for one in group.live if _name(one) != name}
        foreign = sorted(other for other, mark in marks.items() if mark not in {None, _MARK})
        if foreign:
            detail = f"another client has set {DELETE_MACHINE} on Machine {', '.join(foreign)} of {group.name}"
            raise ConflictError("conflict", detail)
        for other in sorted(other for other, mark in marks.items() if mark == _MARK):
            await self._annotate(other, None)
        await self._annotate(name, _MARK)

    async def _annotate(self, machine: str, mark: str | None) -> None:
        def change(found: Json) -> Json | None:
            if (DELETE_MACHINE in annotations_of(found)) == (mark is not None):
                return None
            return _annotation(DELETE_MACHINE, mark)

        await self._management.modify(self._path("machines", machine), change)

    # --- objects

    @property
    def _cluster(self) -> str:
        return f"{self._settings.namespace}/{self._settings.cluster}"

    def _path(self, resource: str, name: str = "") -> str:
        path = f"{API}/namespaces/{quote(self._settings.namespace, safe='')}/{resource}"
        return f"{path}/{quote(name, safe='')}" if name else path

    async def _deployments(self) -> list[Json]:
        found = await self._management.items(self._path("machinedeployments"))
        return [one for one in found if one["spec"].get("clusterName") == self._settings.cluster]

    async def _machines(self, **labels: str) -> list[Json]:
        selected = {CLUSTER: self._settings.cluster, **labels}
        selector = ",".join(f"{key}={value}" for key, value in selected.items())
        return await self._management.items(self._path("machines"), labelSelector=selector)

    async def _machine(self, name: str) -> Json | None:
        try:
            return await self._management.get(self._path("machines", name))
        except NotFoundError:
            return None

    async def _ordered(self, name: str) -> Json | None:
        """Return the MachineDeployment of which a node is ordered."""
        return next((one for one in await self._deployments() if name in _orders(one)), None)

    async def _group(self, deployment: str) -> Group:
        found = await self._management.get(self._path("machinedeployments", deployment))
        return Group(found, await self._machines(**{DEPLOYMENT: deployment}))

    async def _update(self, deployment: str, change: Callable[[Group], tuple[Orders, int] | None]) -> Group:
        """Write orders and replicas as `change` returns them (None: they stay) for the version that it was shown.

        Tried again where another client wrote in between, or `change` raises ConflictError.
        """
        for _ in range(_TRIES - 1):
            with suppress(ConflictError):
                return await self._write(deployment, change)
            await self._management.pause(_PAUSE_SECONDS)
        return await self._write(deployment, change)

    async def _write(self, deployment: str, change: Callable[[Group], tuple[Orders, int] | None]) -> Group:
        group = await self._group(deployment)
        wanted = change(group)
        if wanted is None:
            return group
        orders, replicas = wanted
        body = _annotation(ORDERS, msgspec.json.encode(orders).decode() if orders else None)
        body["metadata"]["resourceVersion"] = group.deployment["metadata"]["resourceVersion"]
        if replicas != group.replicas:
            _check_may_change(group.deployment)
            body["spec"] = {"replicas": replicas}
        path = self._path("machinedeployments", deployment)
        return replace(group, deployment=await self._management.patch(path, body))

    async def _pools(self) -> list[Pool]:
        """Return what each MachineDeployment that may be scaled boots; raises PermanentError where there is none."""
        deployments = await self._deployments()
        if not deployments:
            detail = f"there is no MachineDeployment of Cluster {self._cluster}: check namespace and cluster"
            raise PermanentError("not-found", detail)
        nodes = {_name(one): labels_of(one) for one in await self._api.items("/api/v1/nodes")}
        live: dict[str, Mapping[str, str]] = {}
        for machine in sorted(await self._machines(), key=_created, reverse=True):  # a rollout may change the type
            if _node(machine) in nodes:
                live.setdefault(labels_of(machine).get(DEPLOYMENT, ""), nodes[_node(machine)])
        pools = (
            pool_of(one, live.get(_name(one), {})) for one in deployments if not (terminating(one) or _paused(one))
        )
        return [pool for pool in pools if pool is not None]


@dataclass(frozen=True)
class Pool:
    """What a MachineDeployment boots."""

    name: str
    machine_type: str
    zone: str
    capacity_type: str
    labels: Labels
    taints: tuple[str, ...]
    left: int | None
    """How many more it may have; None: no limit."""


def pool_of(deployment: Json, live: Mapping[str, str]) -> Pool | None:
    """Return what a MachineDeployment boots, by its annotations and the labels of one of its nodes.

    None where nothing says of which machine type that is.

    Raises:
        PermanentError: `invalid`, an annotation cannot be read.
    """
    template = deployment["spec"]["template"]
    copied = (template.get("metadata") or {}).get("labels") or {}
    promised = {key: value for key, value in copied.items() if key.startswith(_SYNCED)}
    for pair in filter(None, annotations_of(deployment).get(LABELS, "").split(",")):
        key, _, value = pair.partition("=")
        promised[key.strip()] = value.strip()
    where = (template.get("spec") or {}).get("failureDomain")
    placing = {key: value for key, value in live.items() if key in _PLACING}
    known = {**({ZONE[0]: where} if where else {}), **promised, **placing}
    machine_type, zone, capacity_type = machine_of(Node(name="-", uid="-", labels=FrozenMap(known)))
    if machine_type == UNKNOWN:
        return None
    texts = (one for one in annotations_of(deployment).get(TAINTS, "").split(",") if one.strip())
    try:
        taints = [taint_text(parse_taint(one)) for one in texts]
    except ValueError as error:
        raise PermanentError("invalid", f"annotation {TAINTS} of {_called(deployment)}: {error}") from error
    for taint in (template.get("spec") or {}).get("taints") or ():
        if taint.get("propagation", "Always") == "Always":
            value = f"={taint['value']}" if taint.get("value") else ""
            taints.append(f"{taint['key']}{value}:{taint['effect']}")
    return Pool(
        name=_name(deployment),
        machine_type=machine_type,
        zone=zone,
        capacity_type=capacity_type,
        labels=FrozenMap({key: value for key, value in promised.items() if key not in _PLACING}),
        taints=tuple(dict.fromkeys(taints)),
        left=_left(deployment),
    )


def sold(rows: Iterable[CatalogRow], pools: Iterable[Pool]) -> tuple[CatalogRow, ...]:
    """Return the rows that MachineDeployments can boot; those that boot the same are sold together."""
    alike: dict[tuple[str, str, str, Labels, tuple[str, ...]], list[Pool]] = {}
    for pool in pools:
        key = (pool.machine_type, pool.zone, pool.capacity_type, pool.labels, pool.taints)
        alike.setdefault(key, []).append(pool)
    found = []
    for row in rows:
        for (machine_type, zone, capacity_type, labels, taints), same in alike.items():
            if (row.machine_type, row.capacity_type) != (machine_type, capacity_type) or row.zone not in {None, zone}:
                continue
            found.append(
                replace(
                    row,
                    zone=zone,
                    labels=FrozenMap({**labels, **row.labels}),
                    taints=tuple(dict.fromkeys((*taints, *row.taints))),
                    quotas=_quota(same),
                )
            )
    return tuple(found)


def _quota(pools: Sequence[Pool]) -> tuple[Quota, ...]:
    """Return how many machines several MachineDeployments may still boot together; none where one has no limit."""
    lefts = [pool.left for pool in pools if pool.left is not None]
    if len(lefts) < len(pools):
        return ()
    names = ", ".join(sorted(pool.name for pool in pools))
    return (Quota(name=f"MachineDeployment {names}: max-size", takes=1, left=sum(lefts)),)


def sells(pool: Pool, offer: Offer) -> bool:
    """Return whether a MachineDeployment boots what an offer is."""
    return (
        (pool.machine_type, pool.zone, pool.capacity_type) == (offer.machine_type, offer.zone, offer.capacity_type)
        and pool.labels.items() <= offer.labels.items()
        and set(pool.taints) <= set(offer.taints)
    )


def assigned(group: Group, but: str = "") -> Orders:
    """Return the orders with the Machines that fulfill them; without those whose Machine had a node and is gone.

    The order `but` is left out, too. What an order states for those after it goes to the next of them.
    """
    orders: dict[str, Order] = {}
    taken = {order.machine for order in group.orders.values()}
    before: set[str] = set()
    handed: tuple[str, ...] = ()
    for name, order in group.orders.items():
        before.update(order.before)
        handed = tuple(sorted({*handed, *order.before}))
        machine = group.machine(order.machine)
        if name == but or (machine is None and order.done):
            continue
        if machine is None:  # it may have been replaced before it had a node
            new = (one for one in group.live if _name(one) not in taken and _name(one) not in before)
            machine = next(new, None)
        chosen = _name(machine) if machine is not None else ""
        taken.add(chosen)
        done = machine is not None and bool(_node(machine))
        orders[name] = Order(offer=order.offer, before=() if done else handed, machine=chosen, done=done)
        handed = handed if done else ()
    return orders


def failure(machine: Json) -> tuple[str, str]:
    """Return why a Machine will not come, by its conditions, and their words; empty where none says so."""
    old = ((machine.get("status") or {}).get("deprecated") or {}).get("v1beta1") or {}
    final = f"{old.get('failureReason', '')}: {old.get('failureMessage', '')}"
    for kind in ("InfrastructureReady", "BootstrapConfigReady"):
        found = _condition(machine, kind)
        text = f"{found.get('reason', '')}: {found.get('message', '')}"
        if found.get("status") == "False" and (reason := reason_of(text)):
            return reason, text
    if old.get("failureReason"):
        return reason_of(final) or "invalid", final
    return "", ""


def _kept(group: Group, name: str) -> str:
    """Return why a MachineDeployment cannot be lowered by that Machine now; empty: it can."""
    return group.unsettled or ("" if group.machine(name) else f"Machine {name} does not stay in {group.name}")


def _assign(group: Group) -> tuple[Orders, int] | None:
    orders = assigned(group)
    return None if orders == group.orders else (orders, group.replicas)


def _orders(deployment: Json) -> Orders:
    text = annotations_of(deployment).get(ORDERS, "{}")
    try:
        return msgspec.json.decode(text, type=dict[str, Order])
    except msgspec.DecodeError as error:
        detail = f"annotation {ORDERS} of {_called(deployment)}: {error}: remove it"
        raise PermanentError("invalid", detail) from error


def _closest(pool: Pool) -> tuple[int, str]:
    """Order MachineDeployments that sell an offer: one that says more of its nodes first."""
    return -len(pool.labels) - len(pool.taints), pool.name


def _left(deployment: Json) -> int | None:
    most = _size(deployment, MAX_SIZE)
    return None if most is None else max(0, most - _replicas(deployment))


def _size(deployment: Json, annotation: str) -> int | None:
    text = annotations_of(deployment).get(annotation)
    if text is None:
        return None
    if not text.isdecimal():
        raise PermanentError("invalid", f"annotation {annotation} of {_called(deployment)} is {text!r}: no number")
    return int(text)


def _check_may_change(deployment: Json) -> None:
    if terminating(deployment):
        raise PermanentError("conflict", f"{_called(deployment)} is being deleted")
    if _paused(deployment):
        raise PermanentError("conflict", f"{_called(deployment)} or its Cluster is paused by another client")


def _paused(deployment: Json) -> bool:
    return _condition(deployment, "Paused").get("status") == "True"


def _replicas(deployment: Json) -> int:
    return int(deployment["spec"].get("replicas") or 0)


def _annotation(key: str, value: str | None) -> Json:
    return {"metadata": {"annotations": {key: value}}}


def _condition(item: Json, kind: str) -> Mapping[str, str]:
    conditions: Iterable[Mapping[str, str]] = (item.get("status") or {}).get("conditions") or ()
    return next((one for one in conditions if one.get("type") == kind), {})


def _said(condition: Mapping[str, str]) -> str:
    """Return the message of a condition in one line, behind a colon; empty where it has none."""
    words = " ".join((condition.get("message") or "").split())
    return f": {words}" if words else ""


def _created(machine: Json) -> tuple[str, str]:
    return str(machine["metadata"].get("creationTimestamp")), _name(machine)


def _called(deployment: Json) -> str:
    return f"MachineDeployment {_name(deployment)}"


def _name(item: Json) -> str:
    return str(item["metadata"]["name"])


def _node(machine: Json) -> str:
    return str(((machine.get("status") or {}).get("nodeRef") or {}).get("name") or "")
