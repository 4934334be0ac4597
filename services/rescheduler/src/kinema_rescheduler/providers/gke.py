"""Google Kubernetes Engine: a node pool for each machine type, zone and capacity type, and instances by name within it.

GKE's API only takes a number of nodes and chooses itself which go. The groups of instances behind node pools take
names: `createInstances` makes exactly the planned node, under the plan's name, and `deleteInstances` ends exactly that
one. The node pools have no autoscaling, and stay when they are empty, as they cost nothing. An order stands in the
ledger until its instance runs, so that a process that takes over finds it.

GKE runs one operation on a cluster's node pools at a time: one that it refuses for another is tried again.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, Final, TypeVar

import msgspec

from kinema_core.events import FrozenMap, Offer, Quota
from kinema_core.model.catalog import CatalogRow
from kinema_core.model.match import parse_taints
from kinema_core.model.resources import limited
from kinema_rescheduler.errors import PermanentError, TransientError
from kinema_rescheduler.kubernetes.fenced import FencedClient
from kinema_rescheduler.providers.base import Catalog, Operation
from kinema_rescheduler.providers.catalog import catalog_of
from kinema_rescheduler.providers.google import GoogleApi, reason_of_code
from kinema_rescheduler.providers.ledger import Ledger
from kinema_rescheduler.settings import GkeSettings

T = TypeVar("T")

LEDGER: Final = "kinema-gke"
RIGHTS: Final = (
    "compute.instanceGroupManagers.get",
    "compute.instanceGroupManagers.update",
    "compute.regions.get",
    "container.clusters.get",
    "container.clusters.update",
    "container.operations.get",
)
"""What the account needs in the project; `iam.serviceAccounts.actAs` on the nodes' service account comes beside."""
_BOOT: Final = "boot/"
_DELETE: Final = "delete/"
_NAME: Final = re.compile(r"[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?")
_LONGEST_POOL: Final = 40
_EFFECTS: Final = {"NoSchedule": "NO_SCHEDULE", "PreferNoSchedule": "PREFER_NO_SCHEDULE", "NoExecute": "NO_EXECUTE"}
_COPIED: Final = (
    "diskSizeGb",
    "diskType",
    "bootDisk",
    "imageType",
    "kubeletConfig",
    "linuxNodeConfig",
    "metadata",
    "oauthScopes",
    "resourceLabels",
    "serviceAccount",
    "shieldedInstanceConfig",
    "tags",
    "workloadMetadataConfig",
)
"""Parts of the template pool's configuration that new pools have too."""
_GPU: Final = "nvidia.com/gpu"
_ACCELERATOR: Final = "cloud.google.com/gke-accelerator"
_DISKS: Final = {"pd-standard": "DISKS_TOTAL_GB", "pd-balanced": "SSD_TOTAL_GB", "pd-ssd": "SSD_TOTAL_GB"}
"""Type of a boot disk → the quota of gigabytes that it counts against; of Hyperdisks regions list none."""
_DEFAULT_DISK: Final = "pd-balanced"
_DEFAULT_GIGABYTES: Final = 100
_OF_CLOUD: Final = (
    "kubernetes.io/",
    "beta.kubernetes.io/",
    "failure-domain.beta.kubernetes.io/",
    "node.kubernetes.io/",
    "topology.kubernetes.io/",
    "cloud.google.com/",
)
"""Beginnings of labels that GKE sets itself and refuses in a configuration."""


class _Order(msgspec.Struct, frozen=True):
    """A node on its way: its node pool, and where."""

    offer: str
    pool: str
    zone: str


class _Config(msgspec.Struct, frozen=True, rename="camel"):
    machine_type: str = ""
    spot: bool = False
    labels: dict[str, str] = {}
    taints: tuple[dict[str, str], ...] = ()


class _Condition(msgspec.Struct, frozen=True, rename="camel"):
    code: str = ""
    canonical_code: str = ""
    message: str = ""


class _Pool(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    status: str = ""
    config: dict[str, Any] = {}
    instance_group_urls: tuple[str, ...] = ()
    conditions: tuple[_Condition, ...] = ()

    def settings(self) -> _Config:
        return msgspec.convert(self.config, _Config)


class _Pools(msgspec.Struct, frozen=True, rename="camel"):
    node_pools: tuple[_Pool, ...] = ()


class _Error(msgspec.Struct, frozen=True):
    code: str = ""
    message: str = ""


class _Errors(msgspec.Struct, frozen=True):
    errors: tuple[_Error, ...] = ()


class _Attempt(msgspec.Struct, frozen=True):
    errors: _Errors = _Errors()


class _Managed(msgspec.Struct, frozen=True, rename="camel"):
    instance: str
    current_action: str = "NONE"
    instance_status: str = ""
    last_attempt: _Attempt = _Attempt()

    @property
    def name(self) -> str:
        return self.instance.rpartition("/")[2]


class _ManagedList(msgspec.Struct, frozen=True, rename="camel"):
    managed_instances: tuple[_Managed, ...] = ()
    next_page_token: str = ""


class _Quota(msgspec.Struct, frozen=True):
    metric: str = ""
    limit: float = 0.0
    usage: float = 0.0


class _Region(msgspec.Struct, frozen=True):
    quotas: tuple[_Quota, ...] = ()


class _Granted(msgspec.Struct, frozen=True):
    permissions: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Found:
    """An instance, and the group that it is of."""

    group: str
    pool: str
    managed: _Managed


class GkeProvider:
    """One cluster of GKE. Close the Google API when done."""

    def __init__(self, api: FencedClient, settings: GkeSettings, google: GoogleApi) -> None:
        self._api = api
        self._settings = settings
        self._google = google
        self._ledger = Ledger(api, LEDGER)
        self._ordering = asyncio.Lock()
        """Orders are made one at a time, as GKE takes them."""
        at = f"projects/{settings.project}/locations/{settings.location}/clusters/{settings.cluster}"
        self._pools_path = f"{settings.container_url}/v1/{at}/nodePools"

    async def catalog(self) -> Catalog:
        """Return what the file, or the tables that ship with Kinema, list: no more than the region's quotas leave."""
        found = await catalog_of(self._settings.catalog, self._api)
        pool = await self._template()
        template, quotas = pool.settings(), await self._quotas()
        labels = FrozenMap({key: value for key, value in template.labels.items() if not key.startswith(_OF_CLOUD)})
        taints = tuple(_taint_text(taint) for taint in template.taints)
        rows = (
            replace(
                row,
                labels=FrozenMap({**labels, **row.labels}),
                taints=(*taints, *row.taints),
                quotas=quotas_of(row, quotas, pool.config),
            )
            for row in found.rows
        )
        return replace(found, rows=tuple(rows))

    async def boot(self, name: str, offer: Offer, operation: str) -> Operation:
        """Order an instance of that name; makes the node pool for it where there is none yet."""
        if not _NAME.fullmatch(name):
            raise PermanentError(
                "invalid", f"node {name}: Compute Engine takes lower case, digits and dashes, up to 63"
            )
        order = _Order(offer=offer.name, pool=pool_name(offer), zone=offer.zone)
        if self._settings.dry_run:
            what = f"instance {name} of node pool {order.pool} ({offer.name})"
            raise PermanentError("permission", f"provider.dry_run is set: {what} would be created")
        async with self._ordering:
            there = await self._instance(name)
            if there is not None and there.pool != order.pool:
                raise PermanentError(
                    "conflict", f"instance {name} is there in node pool {there.pool}, not {order.pool}"
                )
            if there is not None and there.managed.current_action == "DELETING":
                raise TransientError("conflict", f"instance {name} of an earlier order is still being deleted")
            if there is None:
                await self._ledger.add(name, order)
                try:
                    await self._ensure_pool(order.pool, offer)
                except PermanentError:
                    await self._ledger.drop(name)
                    raise
        return await self._advanced(name)

    async def delete(self, name: str, operation: str) -> Operation:
        """Take an order back, and end the instance of that name alone."""
        if self._settings.dry_run:
            raise PermanentError("permission", f"provider.dry_run is set: instance {name} would be deleted")
        async with self._ordering:
            ordered = name in await self._ledger.read(_Order)
            await self._ledger.drop(name)  # first: an order that outlived its instance would bring it back
            there = await self._instance(name)
            if there is None:
                if not ordered:
                    raise PermanentError("not-found", f"no node pool of the cluster has an instance {name}")
                return Operation(_DELETE + name, name, "done")
            if there.managed.current_action != "DELETING":
                await self._delete_instance(there)
        return Operation(_DELETE + name, name, "running")

    async def nodes(self) -> tuple[str, ...]:
        """Names of the instances of all node pools, and of those that are ordered."""
        found = await self._instances()
        return tuple(sorted({one.managed.name for one in found} | (await self._ledger.read(_Order)).keys()))

    async def operation(self, id_: str) -> Operation:
        """Return how a boot or a deletion stands; brings a boot forward."""
        name = id_.partition("/")[2]
        if id_.startswith(_DELETE):
            there = await self._instance(name)
            return Operation(id_, name, "done" if there is None else "running")
        if not id_.startswith(_BOOT):
            raise PermanentError("not-found", f"there is no operation {id_}")
        async with self._ordering:
            return await self._advanced(name)

    async def _advanced(self, name: str) -> Operation:
        """Return how an order stands, after its next step."""
        id_ = _BOOT + name
        order = (await self._ledger.read(_Order)).get(name)
        there = await self._instance(name)
        if order is None and there is None:
            raise PermanentError("not-found", f"there is no order for instance {name}")
        if there is not None:
            return await self._standing(id_, name, there)
        assert order is not None
        pool = await self._pool(order.pool)
        if pool is None:
            await self._ledger.drop(name)
            return Operation(id_, name, "failed", "not-found", f"node pool {order.pool} was deleted by another client")
        if pool.status in {"ERROR", "RUNNING_WITH_ERROR"} and pool.conditions:
            said = pool.conditions[-1]
            reason = reason_of_code(said.code or said.canonical_code, said.message) or "invalid"
            await self._ledger.drop(name)
            return Operation(id_, name, "failed", reason, f"node pool {order.pool}: {said.message or pool.status}")
        group = next((url for url in pool.instance_group_urls if f"/zones/{order.zone}/" in url), None)
        if group is not None and pool.status != "PROVISIONING":
            try:
                await self._google.post(f"{self._group(group)}/createInstances", {"instances": [{"name": name}]}, dict)
            except PermanentError as error:
                if error.reason != "conflict":  # its answer was lost, and it is being created
                    await self._ledger.drop(name)
                    raise
        return Operation(id_, name, "running")

    async def _standing(self, id_: str, name: str, there: _Found) -> Operation:
        """Return how an instance stands; one that cannot be had for now is taken back."""
        managed = there.managed
        if managed.current_action == "DELETING":
            await self._ledger.drop(name)
            return Operation(id_, name, "failed", "conflict", f"instance {name} is being deleted")
        if managed.current_action == "NONE" and managed.instance_status == "RUNNING":
            await self._ledger.drop(name)
            return Operation(id_, name, "done")
        for error in managed.last_attempt.errors.errors:
            reason = reason_of_code(error.code, error.message)
            if reason:
                await self._ledger.drop(name)
                await self._delete_instance(there)  # its group would go on trying, and buy it later
                return Operation(id_, name, "failed", reason, f"{error.code}: {error.message}")
        return Operation(id_, name, "running")

    async def _ensure_pool(self, pool: str, offer: Offer) -> None:
        if await self._pool(pool) is not None:
            return
        body = {"nodePool": pool_object(pool, offer, (await self._template()).config)}
        try:
            await self._google.post(self._pools_path, body, dict)
        except PermanentError as error:
            if error.reason != "conflict":  # there by now: an order whose answer was lost
                raise

    async def _pool(self, name: str) -> _Pool | None:
        try:
            return await self._google.get(f"{self._pools_path}/{name}", _Pool)
        except PermanentError as error:
            if error.reason == "not-found":
                return None
            raise

    async def _template(self) -> _Pool:
        name = self._settings.template_pool
        if not name:
            return _Pool(name="")
        found = await self._pool(name)
        if found is None:
            raise PermanentError(
                "invalid", f"provider.template_pool: the cluster has no node pool {name}: name another"
            )
        return found

    async def _instance(self, name: str) -> _Found | None:
        return next((found for found in await self._instances() if found.managed.name == name), None)

    async def _instances(self) -> list[_Found]:
        pools = await self._google.get(self._pools_path, _Pools)
        groups = [(pool.name, self._group(url)) for pool in pools.node_pools for url in pool.instance_group_urls]
        return [_Found(group, pool, one) for pool, group in groups for one in await self._managed(group)]

    async def _managed(self, group: str) -> list[_Managed]:
        found: list[_Managed] = []
        token = ""
        while True:
            path = f"{group}/listManagedInstances?pageToken={token}"
            try:
                page = await self._google.post(path, {}, _ManagedList, writes=False)
            except PermanentError as error:
                if error.reason == "not-found":  # its node pool was deleted in between
                    return found
                raise
            found += page.managed_instances
            token = page.next_page_token
            if not token:
                return found

    async def _delete_instance(self, found: _Found) -> None:
        body = {"instances": [found.managed.instance], "skipInstancesOnValidationError": True}
        await self._google.post(f"{found.group}/deleteInstances", body, dict)

    def _group(self, url: str) -> str:
        """Return the group's address at the API that the settings name; GKE reports `instanceGroups` in some places."""
        tail = url.partition("/zones/")[2].replace("/instanceGroups/", "/instanceGroupManagers/")
        return f"{self._settings.compute_url}/projects/{self._settings.project}/zones/{tail}"

    async def _quotas(self) -> Mapping[str, float]:
        """Return what is left of the region's quotas."""
        region = re.sub(r"-[a-z]$", "", self._settings.location)
        url = f"{self._settings.compute_url}/projects/{self._settings.project}/regions/{region}"
        found = await self._google.get(url, _Region)
        return {quota.metric: quota.limit - quota.usage for quota in found.quotas}


async def read_missing_rights(settings: GkeSettings, google: GoogleApi) -> tuple[str, ...]:
    """Return those of `RIGHTS` that the account lacks in the project."""
    url = f"{settings.resource_manager_url}/v1/projects/{settings.project}:testIamPermissions"
    granted = await google.post(url, {"permissions": list(RIGHTS)}, _Granted, writes=False)
    return tuple(right for right in RIGHTS if right not in granted.permissions)


def pool_name(offer: Offer) -> str:
    """Return the name of the node pool of an offer: the same for the same machine, place, labels and taints."""
    identity = [offer.machine_type, offer.zone, offer.capacity_type, sorted(offer.labels.items()), list(offer.taints)]
    digest = sha256(msgspec.json.encode(identity)).hexdigest()[:8]
    return f"kinema-{offer.machine_type[: _LONGEST_POOL - 16]}-{digest}"


def pool_object(name: str, offer: Offer, template: Mapping[str, Any]) -> dict[str, Any]:
    """Return the node pool of an offer, empty and without autoscaling."""
    taints = [{"key": t.key, "value": t.value, "effect": _EFFECTS[t.effect]} for t in parse_taints(offer.taints)]
    devices = {key: amount for key, amount in offer.allocatable.items() if key == _GPU and limited(key)}
    accelerators = [
        {"acceleratorCount": str(amount), "acceleratorType": offer.labels[_ACCELERATOR]}
        for amount in devices.values()
        if amount and _ACCELERATOR in offer.labels
    ]
    config = {
        **{key: template[key] for key in _COPIED if key in template},
        "machineType": offer.machine_type,
        "spot": offer.capacity_type == "spot",
        "labels": {key: value for key, value in offer.labels.items() if not key.startswith(_OF_CLOUD)},
        "taints": taints,
        **({"accelerators": accelerators} if accelerators else {}),
    }
    return {
        "name": name,
        "config": config,
        "initialNodeCount": 0,
        "locations": [offer.zone],
        "autoscaling": {"enabled": False},
        "management": {"autoRepair": True, "autoUpgrade": True},
    }


def quotas_of(row: CatalogRow, left: Mapping[str, float], config: Mapping[str, Any]) -> tuple[Quota, ...]:
    """Return the quotas of the region that a row's machines count against: vCPUs in thousandths, all else in ones.

    Compute Engine counts the vCPUs of E2, N1 and others as `CPUS`, those of newer families apart, and GPUs by model.
    Spot machines count against the quotas of that name with `PREEMPTIBLE_`, where the project has them. Boot disks are
    those of the template's `config`, by gigabytes: 100 on `pd-balanced` where it names none, as GKE's default.

    Source: https://cloud.google.com/compute/quotas.
    """
    family = row.machine_type.partition("-")[0].upper()
    cpus = f"{family}_CPUS" if f"{family}_CPUS" in left else "CPUS"
    gpus = _metric_of_gpus(row, left)
    disk, gigabytes = _boot_disk(config)
    takes = {
        _counted_as(cpus, "PREEMPTIBLE_CPUS", row, left): (row.capacity["cpu"], 1000),
        "INSTANCES": (1, 1),
        _counted_as(gpus, f"PREEMPTIBLE_{gpus}", row, left): (row.extended.get(_GPU, 0), 1),
        disk: (gigabytes, 1),
    }
    return tuple(
        Quota(name=f"quota {name}", takes=each, left=max(0, int(left[name] * unit)))
        for name, (each, unit) in takes.items()
        if each and name in left
    )


def _counted_as(metric: str, of_spot: str, row: CatalogRow, left: Mapping[str, float]) -> str:
    """Return the quota that a row counts against: that of spot machines, where it is one and the project has any."""
    return of_spot if row.capacity_type == "spot" and left.get(of_spot, 0) > 0 else metric


def _metric_of_gpus(row: CatalogRow, left: Mapping[str, float]) -> str:
    """Return the name of the quota of a row's GPU model; empty where the row names no model, or there is none.

    `nvidia-tesla-t4` is counted as `NVIDIA_T4_GPUS`. Models of which Google has had one size only are counted without
    it (`nvidia-h100-80gb` as `NVIDIA_H100_GPUS`), others with it (`NVIDIA_A100_80GB_GPUS`).
    """
    model = row.labels.get(_ACCELERATOR, "").replace("tesla-", "").upper().replace("-", "_")
    names = (f"{model}_GPUS", f"{re.sub('_[0-9]+GB$', '', model)}_GPUS")
    return next((name for name in names if model and name in left), "")


def _boot_disk(config: Mapping[str, Any]) -> tuple[str, int]:
    """Return the quota that a new node's boot disk counts against, and its size in gigabytes."""
    given = {"diskType": config.get("diskType"), "sizeGb": config.get("diskSizeGb"), **(config.get("bootDisk") or {})}
    metric = _DISKS.get(given["diskType"] or _DEFAULT_DISK, "")
    return metric, int(given["sizeGb"] or _DEFAULT_GIGABYTES)


def _taint_text(taint: Mapping[str, str]) -> str:
    effect = next((usual for usual, google in _EFFECTS.items() if google == taint.get("effect")), "NoSchedule")
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{taint.get('key', '')}{value}:{effect}"
