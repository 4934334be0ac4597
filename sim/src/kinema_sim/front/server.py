"""The server: one port, three APIs, faults and authentication in front of them."""

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from kinema_sim.api.errors import ApiError
from kinema_sim.api.faults import FaultType
from kinema_sim.api.listing import Lister
from kinema_sim.api.metrics import MetricsApi
from kinema_sim.cloud.provider import CloudError, ErrorClass
from kinema_sim.cluster import Cluster
from kinema_sim.front.cloud import CloudFront, refusal
from kinema_sim.front.gke import PREFIX as GKE
from kinema_sim.front.gke import GkeFront, GoogleError
from kinema_sim.front.gke import refused as google_refused
from kinema_sim.front.kube import KubeFront
from kinema_sim.front.replies import no_such_page, reply
from kinema_sim.front.simulator import Driver, SimulatorFront
from kinema_sim.front.watch import Watches

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_OPEN_PATHS = ("/readyz", "/livez", "/healthz", "/version", "/version/")
_MAX_BODY = 8 * 1024**2


def write_kubeconfig(path: Path, *, url: str, token: str) -> None:
    """Write a kubeconfig with one cluster, user and context named `kinema-sim` (JSON, which is YAML)."""
    name = "kinema-sim"
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{"name": name, "cluster": {"server": url}}],
        "users": [{"name": name, "user": {"token": token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


@dataclass(frozen=True)
class Address:
    """Address at which a running server listens."""

    url: str
    port: int


class Server:
    """Serves a cluster over HTTP on loopback.

    Args:
        cluster: what to serve; the server moves its time from now on.
        speed: virtual seconds per wall second.
        token: bearer token that callers must show; empty admits every client.
    """

    def __init__(self, cluster: Cluster, *, speed: float, token: str = "") -> None:
        self._cluster = cluster
        self._token = token
        self.driver = Driver(cluster.loop, speed)
        lister = Lister(cluster.store)
        self._watches = Watches(cluster.store, cluster.faults)
        self._app = web.Application(middlewares=[self._guard], client_max_size=_MAX_BODY)
        metrics = MetricsApi(cluster.store, cluster.meter)
        KubeFront(api=cluster.api, lister=lister, watches=self._watches, metrics=metrics).install(self._app)
        CloudFront(cluster.cloud).install(self._app)
        GkeFront(cluster.cloud, cluster.loop).install(self._app)
        SimulatorFront(cluster, driver=self.driver, watches=self._watches, lister=lister).install(self._app)
        self._runner = web.AppRunner(self._app, access_log=None, shutdown_timeout=1.0)
        self._ticking: asyncio.Task[None] | None = None

    async def start(self, port: int = 0, host: str = "127.0.0.1") -> Address:
        """Listen, and let virtual time run."""
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port)
        await site.start()
        taken = int(self._runner.addresses[0][1])
        self.driver.start()
        self._ticking = asyncio.create_task(self.driver.run())
        return Address(f"http://{host}:{taken}", taken)

    async def stop(self) -> None:
        """End all watches, stop listening and hold virtual time."""
        self._watches.end()
        if self._ticking is not None:
            self._ticking.cancel()
            with contextlib.suppress(asyncio.CancelledError):  # the end that was asked for
                await self._ticking
        await self._runner.cleanup()

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        self.driver.catch_up()
        if self._token and request.path not in _OPEN_PATHS and not self._is_known(request):
            return reply(ApiError(401, "Unauthorized").status(), status=401)
        faults, path = self._cluster.faults, request.path_qs
        is_sim = request.path.startswith("/sim/")
        fault = None if is_sim else faults.take((FaultType.API, FaultType.LOSE_REPLY), request.method, path)
        if fault is not None and fault.type is FaultType.API:
            if fault.status == 404 and not request.path.startswith(("/cloud/", GKE)):
                return no_such_page()
            return _refused(request, ApiError(fault.status, "injected fault"))
        try:
            response = await handler(request)
        except ApiError as error:
            response = _refused(request, error)
        except CloudError as error:
            response = refusal(error)
        except GoogleError as error:
            response = error.response()
        except web.HTTPNotFound:
            response = no_such_page()
        except web.HTTPException as error:
            response = _refused(request, ApiError(error.status, error.reason))
        if fault is not None and request.transport is not None:
            request.transport.close()
        return response

    def _is_known(self, request: web.Request) -> bool:
        return request.headers.get("Authorization", "") == f"Bearer {self._token}"


def _refused(request: web.Request, error: ApiError) -> web.Response:
    if request.path.startswith(GKE):
        return google_refused(error.code, error.message)
    if request.path.startswith("/cloud/"):
        kinds = {
            400: ErrorClass.CONFLICT,
            403: ErrorClass.PERMISSION,
            404: ErrorClass.NOT_FOUND,
            409: ErrorClass.CONFLICT,
        }
        kind = kinds.get(error.code, ErrorClass.TRANSIENT)
        return reply({"error": {"class": str(kind), "message": error.message}}, status=error.code)
    response = reply(error.status(), status=error.code)
    retry_after = (error.details or {}).get("retryAfterSeconds")
    if retry_after:
        response.headers["Retry-After"] = str(retry_after)
    return response
