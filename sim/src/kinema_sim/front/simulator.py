"""The simulator's own API under /sim/v1: clock, history, faults, load."""

import asyncio
import re
import time

from aiohttp import web

from kinema_sim.api.errors import ApiError
from kinema_sim.api.faults import Fault, FaultType
from kinema_sim.api.listing import Lister
from kinema_sim.cloud.provider import CPUS
from kinema_sim.cluster import Cluster
from kinema_sim.engine.clock import Loop, parse_stamp
from kinema_sim.engine.kinds import ALL_KINDS
from kinema_sim.engine.objects import Obj
from kinema_sim.front.replies import read_object, reply
from kinema_sim.front.watch import Watches

TICK_SECONDS = 0.01


class Driver:
    """Advances a loop so that virtual time is `speed` times the wall time since the start.

    Args:
        loop: virtual time.
        speed: virtual seconds per wall second.
    """

    def __init__(self, loop: Loop, speed: float) -> None:
        self.speed = speed
        self._loop = loop
        self._virtual_start = loop.now_ms
        self._wall_start = time.monotonic()

    def start(self) -> None:
        """Let virtual time run from now on."""
        self._virtual_start = self._loop.now_ms
        self._wall_start = time.monotonic()

    def catch_up(self) -> None:
        """Run everything that is due by now."""
        passed = time.monotonic() - self._wall_start
        self._loop.run_until(self._virtual_start + int(passed * 1000 * self.speed))

    async def run(self) -> None:
        """Keep catching up until canceled."""
        while True:
            self.catch_up()
            await asyncio.sleep(TICK_SECONDS)


class SimulatorFront:
    """Handlers for everything under /sim/v1."""

    def __init__(self, cluster: Cluster, *, driver: Driver, watches: Watches, lister: Lister) -> None:
        self._cluster = cluster
        self._driver = driver
        self._watches = watches
        self._lister = lister

    def install(self, app: web.Application) -> None:
        """Add the routes."""
        app.router.add_get("/sim/v1/clock", self._clock)
        app.router.add_get("/sim/v1/history", self._history)
        app.router.add_post("/sim/v1/load", self._set_load)
        app.router.add_post("/sim/v1/faults", self._add_fault)
        app.router.add_delete("/sim/v1/faults", self._clear_faults)

    async def _clock(self, _: web.Request) -> web.Response:
        return reply({"now": self._cluster.loop.now, "speed": self._driver.speed})

    async def _history(self, request: web.Request) -> web.Response:
        text = request.query.get("since", "")
        try:
            since = parse_stamp(text) if text else 0
        except ValueError as error:
            raise ApiError(400, f"the parameter since is no RFC 3339 time: {text!r}") from error
        recorder = self._cluster.history
        found = {
            "samples": recorder.since(since),
            "moves": recorder.lives.moves(since),
            "created": recorder.lives.created(since),
        }
        return reply(found)

    async def _set_load(self, request: web.Request) -> web.Response:
        body = await read_object(request)
        load = self._cluster.load
        for app, users in body.items():
            if app not in load.apps:
                raise ApiError(404, f"there is no application {app}: choose from {', '.join(sorted(load.apps))}")
            if not isinstance(users, int) or users < 0:
                raise ApiError(400, f"users of {app} must be a natural number, not {users!r}")
        for app, users in body.items():
            load.hold(app, users)
        return reply({"users": {app: load.users(app) for app in sorted(load.apps)}})

    async def _add_fault(self, request: web.Request) -> web.Response:
        body = await read_object(request)
        match body.get("type"):
            case "stock-out":
                self._cluster.cloud.sold_out.add(str(body.get("offer", "")))
            case "cloud-permission":
                self._cluster.cloud.denied = True
            case "gke-pool-error":
                self._cluster.cloud.pool_error = str(body.get("code", "GKE_SERVICE_ACCOUNT_DELETED"))
            case "cloud-quota":
                self._cluster.cloud.quotas[CPUS] = int(body.get("vcpus", 0))
            case "pods-never-ready":
                self._cluster.kubelets.never_ready.add((str(body.get("namespace", "")), str(body.get("app", ""))))
            case "node-never-ready":
                self._cluster.cloud.never_ready.add(str(body.get("node", "")))
            case _:
                self._add_api_fault(body)
        return reply({"status": "ok"}, status=201)

    def _add_api_fault(self, body: Obj) -> None:
        try:
            kind = FaultType(body.get("type", "api"))
            pattern = re.compile(body.get("path", ""))
        except (ValueError, re.error) as error:
            raise ApiError(400, f"no such fault: {error}") from error
        count = int(body.get("count", 0 if kind is FaultType.WATCH_SILENT else 1))
        if kind is FaultType.HISTORY:
            self._lister.expire()
            for each in ALL_KINDS:
                self._cluster.store.forget(each)
        elif kind is FaultType.WATCH_CUT:
            self._watches.cut(pattern)
        else:
            if kind is FaultType.WATCH_SILENT:
                self._watches.silence(pattern)
            fault = Fault(kind, body.get("method", ""), pattern, int(body.get("status", 503)), count)
            self._cluster.faults.add(fault)

    async def _clear_faults(self, _: web.Request) -> web.Response:
        self._cluster.faults.clear()
        self._cluster.kubelets.release()
        cloud = self._cluster.cloud
        cloud.sold_out.clear()
        cloud.denied = False
        cloud.pool_error = ""
        cloud.quotas.clear()
        cloud.release()
        self._watches.end_silent()
        return reply({"status": "ok"})
