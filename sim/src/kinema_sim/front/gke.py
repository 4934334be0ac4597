"""Google Kubernetes Engine and Compute Engine over HTTP, under /gke: a fake for tests, demos and simulations.

Paths, bodies, states and errors are those of `container.googleapis.com/v1`, `compute.googleapis.com/compute/v1` and
`cloudresourcemanager.googleapis.com/v1`, as far as a provider of nodes uses them. Machines are the simulated cloud's:
its stock-outs, quotas and missing rights are what both APIs report. An instance keeps being tried while its group wants
it, as in Compute Engine: a stock-out is an error of the last attempt, not the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from aiohttp import web

from kinema_sim.cloud.machines import Offer
from kinema_sim.cloud.provider import CPUS, Cloud, CloudError, ErrorClass, Operation
from kinema_sim.engine.clock import Loop
from kinema_sim.engine.objects import Obj
from kinema_sim.front.replies import read_object, reply

PREFIX = "/gke"
POOL_MS = 20_000
"""From the order of a node pool to its end; one operation at a time for the cluster."""
RETRY_MS = 30_000
"""From a failed attempt to create an instance to the next."""
_USUAL_CPUS = 10_000
"""Quota of processors where no test sets one: every region reports that."""
_CLUSTER = "/gke/container/v1/projects/{project}/locations/{location}/clusters/{cluster}"
_GROUP = "/gke/compute/v1/projects/{project}/zones/{zone}/instanceGroupManagers/{group}"
_COMPUTE = "https://www.googleapis.com/compute/v1"
_CODES = {
    ErrorClass.STOCK_OUT: "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS",
    ErrorClass.QUOTA: "QUOTA_EXCEEDED",
}
_STATUSES = {
    400: "FAILED_PRECONDITION",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ALREADY_EXISTS",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
}


class GoogleError(Exception):
    """A request that is refused, as Google's APIs answer it. `reason`: machine-readable, as in `ErrorInfo`."""

    def __init__(self, status: int, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.reason = reason

    def response(self) -> web.Response:
        """Return the answer."""
        details = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": self.reason}] if self.reason else []
        error: Obj = {
            "code": self.status,
            "message": self.message,
            "status": _STATUSES.get(self.status, "UNKNOWN"),
            "errors": [{"message": self.message, "domain": "global", "reason": self.reason or "backendError"}],
            "details": details,
        }
        return reply({"error": error}, status=self.status)


@dataclass
class _Pool:
    """A node pool; its group of instances has its name."""

    name: str
    config: Obj
    zone: str
    offer: Offer
    status: str = "PROVISIONING"
    condition: Obj | None = None
    instances: dict[str, _Instance] = field(default_factory=dict)


@dataclass
class _Instance:
    """An instance that a group wants; `order` is the last attempt to create its machine."""

    name: str
    attempts: int = 0
    order: Operation | None = None
    failed: CloudError | None = None
    tried_ms: int = 0


class GkeFront:
    """Handlers for everything under /gke."""

    def __init__(self, cloud: Cloud, loop: Loop) -> None:
        self._cloud = cloud
        self._loop = loop
        self._pools: dict[str, _Pool] = {}
        self._operations: dict[str, Obj] = {}

    def install(self, app: web.Application) -> None:
        """Add the routes."""
        router = app.router
        router.add_get(_CLUSTER + "/nodePools", self._list_pools)
        router.add_post(_CLUSTER + "/nodePools", self._create_pool)
        router.add_get(_CLUSTER + "/nodePools/{pool}", self._get_pool)
        router.add_get(
            "/gke/container/v1/projects/{project}/locations/{location}/operations/{name}", self._get_operation
        )
        router.add_post(_GROUP + "/listManagedInstances", self._list_instances)
        router.add_post(_GROUP + "/createInstances", self._create_instances)
        router.add_post(_GROUP + "/deleteInstances", self._delete_instances)
        router.add_get("/gke/compute/v1/projects/{project}/regions/{region}", self._region)
        router.add_post("/gke/crm/v1/projects/{project}:testIamPermissions", self._rights)

    # --- container.googleapis.com

    async def _list_pools(self, _: web.Request) -> web.Response:
        return reply({"nodePools": [self._shown(pool) for pool in self._all_pools()]})

    async def _get_pool(self, request: web.Request) -> web.Response:
        name = request.match_info["pool"]
        found = next((pool for pool in self._all_pools() if pool.name == name), None)
        if found is None:
            raise GoogleError(404, f"Not found: {request.path.removeprefix('/gke/container/v1/')}.", "notFound")
        return reply(self._shown(found))

    async def _create_pool(self, request: web.Request) -> web.Response:
        body = (await read_object(request)).get("nodePool") or {}
        name, config = str(body.get("name", "")), body.get("config") or {}
        if self._cloud.denied:
            raise GoogleError(
                403, f'Required "container.clusters.update" permission(s) for "{_cluster_of(request)}".', "forbidden"
            )
        if any(pool.name == name for pool in self._all_pools()):
            raise GoogleError(409, f"Already exists: {_cluster_of(request)}/nodePools/{name}.", "alreadyExists")
        running = next((one for one in self._operations.values() if one["status"] == "RUNNING"), None)
        if running is not None:
            text = f"Cluster is running incompatible operation {running['name']}."
            raise GoogleError(400, text, "CLUSTER_ALREADY_HAS_OPERATION")
        (zone,) = body.get("locations") or [""]
        kind = "spot" if config.get("spot") else "on-demand"
        offer = self._cloud.offers.get(f"{config.get('machineType')}/{zone}/{kind}")
        if offer is None:
            raise GoogleError(
                400, f"Machine type with name '{config.get('machineType')}' does not exist in zone '{zone}'."
            )
        pool = self._pools[name] = _Pool(name, config, zone, offer)
        operation = self._begin("CREATE_NODE_POOL", name)
        self._loop.after(POOL_MS, lambda: self._end_pool(pool, operation))
        return reply(operation)

    async def _get_operation(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if name not in self._operations:
            raise GoogleError(404, f"Not found: {name}.", "notFound")
        return reply(self._operations[name])

    def _begin(self, kind: str, target: str) -> Obj:
        name = f"operation-{len(self._operations) + 1:013d}-{target}"
        self._operations[name] = {
            "name": name,
            "operationType": kind,
            "status": "RUNNING",
            "targetLink": target,
            "startTime": self._loop.now,
        }
        return self._operations[name]

    def _end_pool(self, pool: _Pool, operation: Obj) -> None:
        code = self._cloud.pool_error
        operation.update(status="DONE", endTime=self._loop.now)
        if not code:
            pool.status = "RUNNING"
            return
        pool.status = "ERROR"
        pool.condition = {"code": code, "message": f"node pool {pool.name} could not be created: {code}"}
        operation["error"] = {"code": 13, "message": pool.condition["message"]}

    def _all_pools(self) -> Iterator[_Pool]:
        """Yield the node pools: one for each kind of machine that was there before, then those created here."""
        known = {name for pool in self._pools.values() for name in pool.instances}
        before: dict[str, _Pool] = {}
        for machine in sorted(self._cloud.machines.values(), key=lambda one: one.name):
            if machine.name not in known:
                offer = machine.offer
                name = f"pool-{offer.machine_type}-{offer.zone}"
                pool = before.setdefault(
                    name, _Pool(name, {"machineType": offer.machine_type}, offer.zone, offer, "RUNNING")
                )
                pool.instances[machine.name] = _Instance(machine.name, order=machine.boot)
        yield from before.values()
        yield from self._pools.values()

    def _shown(self, pool: _Pool) -> Obj:
        group = f"{_COMPUTE}/projects/-/zones/{pool.zone}/instanceGroupManagers/{pool.name}"
        return {
            "name": pool.name,
            "config": pool.config,
            "locations": [pool.zone],
            "status": pool.status,
            "instanceGroupUrls": [group] if pool.status == "RUNNING" else [],
            "autoscaling": {},
            "conditions": [] if pool.condition is None else [pool.condition],
        }

    # --- compute.googleapis.com

    def _pool_of(self, request: web.Request) -> _Pool:
        zone, group = request.match_info["zone"], request.match_info["group"]
        for pool in self._all_pools():
            if (pool.name, pool.zone, pool.status) == (group, zone, "RUNNING"):
                return pool
        text = f"The resource '{request.path.removeprefix('/gke/compute/v1/')}' was not found"
        raise GoogleError(404, text, "notFound")

    def _check_update(self, request: web.Request) -> None:
        if self._cloud.denied:
            group = request.path.removeprefix("/gke/compute/v1/").rpartition("/")[0]
            text = f"Required 'compute.instanceGroupManagers.update' permission for '{group}'"
            raise GoogleError(403, text, "forbidden")

    async def _list_instances(self, request: web.Request) -> web.Response:
        pool = self._pool_of(request)
        found = [self._managed(pool, one) for one in list(pool.instances.values())]
        return reply({"managedInstances": [one for one in found if one is not None]})

    async def _create_instances(self, request: web.Request) -> web.Response:
        self._check_update(request)
        pool, body = self._pool_of(request), await read_object(request)
        names = [str(one.get("name", "")) for one in body.get("instances") or ()]
        taken = [name for name in names if name in self._cloud.machines or name in pool.instances]
        if taken:
            text = f"The resource 'projects/-/zones/{pool.zone}/instances/{taken[0]}' already exists"
            raise GoogleError(409, text, "alreadyExists")
        for name in names:
            pool.instances[name] = _Instance(name)
            self._try(pool, pool.instances[name])
        return reply(self._done("createInstances", pool))

    async def _delete_instances(self, request: web.Request) -> web.Response:
        self._check_update(request)
        pool, body = self._pool_of(request), await read_object(request)
        for url in body.get("instances") or ():
            name = str(url).rpartition("/")[2]
            if name not in pool.instances and not body.get("skipInstancesOnValidationError"):
                raise GoogleError(400, f"Invalid value for field 'instances': instance {name} is no member", "invalid")
            if name in self._cloud.machines:
                self._cloud.delete(name, f"gke-delete-{name}-{self._cloud.machines[name].boot.id}")
            elif name in pool.instances:
                del pool.instances[name]
        return reply(self._done("deleteInstances", pool))

    def _done(self, kind: str, pool: _Pool) -> Obj:
        """Return the operation of a group: accepted, and over at once, while its instances change over time."""
        return {"kind": "compute#operation", "operationType": kind, "status": "DONE", "targetLink": pool.name}

    def _try(self, pool: _Pool, instance: _Instance) -> None:
        """Attempt to create the machine of an instance."""
        instance.attempts += 1
        instance.tried_ms = self._loop.now_ms
        instance.failed = None
        labels = {"cloud.google.com/gke-nodepool": pool.name, **(pool.config.get("labels") or {})}
        taints = [{**taint, "effect": _EFFECTS[taint["effect"]]} for taint in pool.config.get("taints") or ()]
        try:
            identity = f"gke-{instance.name}-{instance.attempts}-{self._loop.now_ms}"
            instance.order = self._cloud.boot(
                instance.name, pool.offer, identity, labels=labels, taints=taints, disk=_disk(pool.config)
            )
        except CloudError as error:
            instance.failed = error

    def _managed(self, pool: _Pool, instance: _Instance) -> Obj | None:
        """Return an instance as its group lists it; None once its deletion is over."""
        machine, order = self._cloud.machines.get(instance.name), instance.order
        failed = instance.failed
        if order is not None and order.state == "failed" and order.error is not None:
            failed = CloudError(*order.error)
        if machine is None and (failed is None or failed.kind is ErrorClass.CONFLICT):  # it was deleted
            pool.instances.pop(instance.name, None)
            return None
        shown: Obj = {
            "instance": f"{_COMPUTE}/projects/-/zones/{pool.zone}/instances/{instance.name}",
            "name": instance.name,
            "instanceStatus": "RUNNING",
            "currentAction": "NONE",
        }
        if machine is not None and machine.state == "deleting":
            return {**shown, "instanceStatus": "STOPPING", "currentAction": "DELETING"}
        if machine is not None and machine.state == "running":
            return shown
        shown.update(instanceStatus="PROVISIONING", currentAction="CREATING")
        if failed is not None:
            shown["lastAttempt"] = {"errors": {"errors": [_attempt_error(failed, pool)]}}
            if self._loop.now_ms - instance.tried_ms > RETRY_MS:
                self._try(pool, instance)
        return shown

    async def _region(self, request: web.Request) -> web.Response:
        limits = {CPUS: _USUAL_CPUS, **self._cloud.quotas}
        quotas = [
            {"metric": metric, "limit": float(most), "usage": float(self._cloud.used(metric))}
            for metric, most in sorted(limits.items())
        ]
        return reply({"name": request.match_info["region"], "quotas": quotas, "status": "UP"})

    async def _rights(self, request: web.Request) -> web.Response:
        asked = (await read_object(request)).get("permissions") or []
        changing = (".update", ".actAs")
        granted = [one for one in asked if not (self._cloud.denied and one.endswith(changing))]
        return reply({"permissions": granted} if granted else {})


_EFFECTS = {
    "NO_SCHEDULE": "NoSchedule",
    "PREFER_NO_SCHEDULE": "PreferNoSchedule",
    "NO_EXECUTE": "NoExecute",
}


def _cluster_of(request: web.Request) -> str:
    match = request.match_info
    return f"projects/{match['project']}/locations/{match['location']}/clusters/{match['cluster']}"


def _disk(config: Obj) -> tuple[str, int]:
    """Return the metric that a boot disk counts against, and its gigabytes: 100 on `pd-balanced` unless named."""
    disk = config.get("bootDisk") or {}
    kind, gigabytes = disk.get("diskType") or config.get("diskType"), disk.get("sizeGb") or config.get("diskSizeGb")
    return "DISKS_TOTAL_GB" if kind == "pd-standard" else "SSD_TOTAL_GB", int(gigabytes or 100)


def _attempt_error(error: CloudError, pool: _Pool) -> Obj:
    """Return an error of a group's last attempt."""
    code = _CODES.get(error.kind, "INTERNAL_ERROR")
    if error.kind is ErrorClass.STOCK_OUT:
        text = (
            f"The zone 'projects/-/zones/{pool.zone}' does not have enough resources available to fulfill the "
            f"request.  '({pool.offer.machine_type}) {error.message}'."
        )
    elif error.kind is ErrorClass.QUOTA:
        text = f"Quota '{error.quota}' exceeded: {error.message}."
    else:
        text = error.message
    return {"code": code, "message": text}


def refused(status: int, message: str) -> web.Response:
    """Answer a request that a fault or the server itself refuses."""
    return GoogleError(status, message).response()
