"""The cloud API over HTTP, under /cloud/v1."""

from aiohttp import web

from kinema_sim.cloud.machines import MAX_PODS, PRICE_DATE, PRICE_SOURCE
from kinema_sim.cloud.provider import Cloud, CloudError, ErrorClass, Operation
from kinema_sim.engine.objects import Obj
from kinema_sim.front.replies import read_object, reply

_STATUS = {
    ErrorClass.STOCK_OUT: 503,
    ErrorClass.QUOTA: 403,
    ErrorClass.PERMISSION: 403,
    ErrorClass.CONFLICT: 409,
    ErrorClass.TRANSIENT: 503,
    ErrorClass.NOT_FOUND: 404,
}


class CloudFront:
    """Handlers for everything under /cloud/v1."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud

    def install(self, app: web.Application) -> None:
        """Add the routes."""
        app.router.add_get("/cloud/v1/offers", self._offers)
        app.router.add_get("/cloud/v1/nodes", self._nodes)
        app.router.add_post("/cloud/v1/nodes", self._boot)
        app.router.add_delete("/cloud/v1/nodes/{name}", self._delete)
        app.router.add_get("/cloud/v1/operations/{id}", self._operation)

    async def _offers(self, _: web.Request) -> web.Response:
        cloud = self._cloud
        offers = [
            {
                "machine_type": offer.machine_type,
                "zone": offer.zone,
                "capacity_type": offer.capacity_type,
                "vcpus": offer.vcpus,
                "memory_bytes": offer.memory_bytes,
                "usd_per_hour": offer.usd_micro / 1_000_000,
                "available": 0 if offer.name in cloud.sold_out else cloud.available.get(offer.name),
                "watts": offer.watts,
                "max_pods": MAX_PODS,
                "allocatable_cpu_m": offer.allocatable[0],
                "allocatable_memory_bytes": offer.allocatable[1],
                "labels": dict(offer.labels),
                "taints": list(offer.taints),
            }
            for offer in cloud.offers.values()
        ]
        return reply({"source": PRICE_SOURCE, "date": PRICE_DATE, "currency": "USD", "offers": offers})

    async def _nodes(self, _: web.Request) -> web.Response:
        machines = sorted(self._cloud.machines.values(), key=lambda machine: machine.name)
        return reply(
            [
                {
                    "name": machine.name,
                    "machine_type": machine.offer.machine_type,
                    "zone": machine.offer.zone,
                    "capacity_type": machine.offer.capacity_type,
                    "state": machine.state,
                    "operation": machine.boot.id,
                }
                for machine in machines
            ]
        )

    async def _boot(self, request: web.Request) -> web.Response:
        body = await read_object(request)
        texts: dict[str, str] = {}
        for field in ("name", "machine_type", "zone", "operation"):
            value = body.get(field)
            if not isinstance(value, str) or not value:
                raise CloudError(ErrorClass.CONFLICT, f"the order lacks {field}: give a text")
            texts[field] = value
        wanted = f"{texts['machine_type']}/{texts['zone']}/{body.get('capacity_type') or 'on-demand'}"
        offer = self._cloud.offers.get(wanted)
        if offer is None:
            raise CloudError(ErrorClass.NOT_FOUND, f"there is no offer {wanted}")
        operation = self._cloud.boot(
            texts["name"],
            offer,
            texts["operation"],
            labels=body.get("labels") or {},
            taints=body.get("taints") or [],
        )
        return reply({"operation": _shown(operation, texts["operation"])}, status=202)

    async def _delete(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        identity = request.query.get("operation") or f"delete-{name}"
        return reply({"operation": _shown(self._cloud.delete(name, identity), identity)}, status=202)

    async def _operation(self, request: web.Request) -> web.Response:
        identity = request.match_info["id"]
        found = self._cloud.operations.get(identity)
        if found is None:
            raise CloudError(ErrorClass.NOT_FOUND, f"there is no operation {identity}")
        return reply({"operation": _shown(found, identity)})


def _shown(operation: Operation, identity: str) -> Obj:
    """Show an operation under the name by which it was asked for: an adopted one has several."""
    error = operation.error
    return {
        "id": identity,
        "kind": operation.kind,
        "node": operation.node,
        "state": operation.state,
        "error": None if error is None else {"class": str(error[0]), "message": error[1]},
    }


def refusal(error: CloudError) -> web.Response:
    """Answer a request that the cloud refuses."""
    return reply({"error": {"class": str(error.kind), "message": error.message}}, status=_STATUS[error.kind])
