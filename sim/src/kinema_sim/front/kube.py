"""The Kubernetes API over HTTP."""

from aiohttp import web

from kinema_sim.api.errors import ApiError
from kinema_sim.api.kube import KubeApi, Patch
from kinema_sim.api.listing import Lister, Query
from kinema_sim.api.metrics import MetricsApi
from kinema_sim.api.paths import METRICS_GROUP, Target, discovery, parse_path
from kinema_sim.api.subresources import evict, read_scale, resize, write_scale
from kinema_sim.engine.kinds import POD
from kinema_sim.front.replies import flag, no_such_page, number, read_json, read_object, reply
from kinema_sim.front.watch import Watches

_VERSION = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.3+kinema-sim",
    "gitCommit": "simulated",
    "gitTreeState": "clean",
    "buildDate": "2026-01-01T00:00:00Z",
    "goVersion": "none",
    "compiler": "none",
    "platform": "linux/amd64",
}


class KubeFront:
    """Handlers for everything under /api and /apis."""

    def __init__(self, *, api: KubeApi, lister: Lister, watches: Watches, metrics: MetricsApi) -> None:
        self._api = api
        self._lister = lister
        self._watches = watches
        self._metrics = metrics

    def install(self, app: web.Application) -> None:
        """Add the routes."""
        for plural in ("selfsubjectaccessreviews", "subjectaccessreviews"):
            app.router.add_post(f"/apis/authorization.k8s.io/v1/{plural}", self._review)
        for prefix in ("/api", "/apis"):
            app.router.add_route("*", prefix, self.handle)
            app.router.add_route("*", prefix + "/{tail:.*}", self.handle)
        for path in ("/version", "/version/"):
            app.router.add_get(path, self._version)
        for probe in ("/readyz", "/livez", "/healthz"):
            app.router.add_get(probe, self._healthy)

    async def _version(self, _: web.Request) -> web.Response:
        return reply(_VERSION)

    async def _healthy(self, _: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def _review(self, request: web.Request) -> web.Response:
        """A client with the token may do everything."""
        return reply({**await read_object(request), "status": {"allowed": True}}, status=201)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer any request to the Kubernetes API."""
        found = discovery(request.path)
        if found is not None:
            return reply(found)
        if request.path.startswith(f"/apis/{METRICS_GROUP}/"):
            return reply(self._metrics.answer(request.path, labels=request.query.get("labelSelector", "")))
        target = parse_path(request.path)
        return no_such_page() if target is None else await self._target(request, target)

    async def _target(self, request: web.Request, target: Target) -> web.StreamResponse:
        if not target.name:
            return await self._collection(request, target)
        if target.part in ("", "status"):
            return await self._object(request, target)
        if target.part == "scale" and target.kind.scale:
            return await self._scale(request, target)
        if target.part == "eviction" and target.kind is POD and request.method == "POST":
            body = await read_object(request)
            if flag(request, "dryRun") or request.query.get("dryRun") == "All":
                body = {**body, "dryRun": ["All"]}
            return reply(evict(self._api, target.namespace or "", target.name, body=body), status=201)
        if target.part == "resize" and target.kind is POD and request.method == "PATCH":
            patch = Patch(await read_json(request), request.content_type)
            return reply(resize(self._api, target.namespace or "", target.name, patch=patch))
        raise ApiError(404, "the server could not find the requested resource", reason="NotFound", details={})

    async def _collection(self, request: web.Request, target: Target) -> web.StreamResponse:
        if request.method == "POST":
            body = await read_object(request)
            dry_run = request.query.get("dryRun") == "All"
            return reply(self._api.create(target.kind, target.namespace or "", body, dry_run=dry_run), status=201)
        if request.method != "GET":
            raise ApiError(405, f"{request.method} is not supported on {target.kind.qualified}")
        query = Query(target.namespace, request.query.get("labelSelector", ""), request.query.get("fieldSelector", ""))
        if flag(request, "watch"):
            return await self._watches.serve(request, target.kind, query)
        limit, token = number(request, "limit"), request.query.get("continue", "")
        return reply(self._lister.page(target.kind, query, limit=limit, token=token))

    async def _object(self, request: web.Request, target: Target) -> web.Response:
        kind, namespace, name = target.kind, target.namespace or "", target.name
        match request.method:
            case "GET":
                return reply(self._api.get(kind, namespace, name))
            case "PUT":
                body = await read_object(request)
                return reply(self._api.replace(kind, namespace, name, body=body, part=target.part))
            case "PATCH":
                patch = Patch(await read_json(request), request.content_type)
                return reply(self._api.patch(kind, namespace, name, patch=patch, part=target.part))
            case "DELETE" if not target.part:
                options = await read_object(request)
                if "gracePeriodSeconds" in request.query:
                    options["gracePeriodSeconds"] = number(request, "gracePeriodSeconds")
                dry_run = request.query.get("dryRun") == "All" or bool(options.get("dryRun"))
                return reply(self._api.delete(kind, namespace, name, options=options, dry_run=dry_run))
            case method:
                raise ApiError(405, f"{method} is not supported on {kind.qualified}")

    async def _scale(self, request: web.Request, target: Target) -> web.Response:
        kind, key = target.kind, (target.namespace or "", target.name)
        match request.method:
            case "GET":
                return reply(read_scale(self._api, kind, key))
            case "PUT":
                body = await read_json(request)
                return reply(write_scale(self._api, kind, key, body=body, content_type=None))
            case "PATCH":
                patch = Patch(await read_json(request), request.content_type)
                scale = write_scale(self._api, kind, key, body=patch.body, content_type=patch.content_type)
                return reply(scale)
            case method:
                raise ApiError(405, f"{method} is not supported on {kind.qualified}/scale")
