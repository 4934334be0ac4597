"""Probes and metrics of a service, over HTTP.

`/livez` asks the event loop alone: a restart because the broker is away makes things worse. `/readyz` names
what is missing. Ready does not mean leader.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import version
from typing import Final

import msgspec
from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest

from kinema_core.events import AnyBody
from kinema_core.runtime.event_metrics import EventMetrics
from kinema_core.runtime.metric_table import counter, gauge, histogram
from kinema_core.runtime.spans import Spans

Probe = Callable[[], "str | None"]
"""Says what is wrong with a part, None when nothing is."""

_BEAT_SECONDS: Final = 1.0
_DEAD_SECONDS: Final = 30.0
_PLAIN: Final = "text/plain; version=0.0.4; charset=utf-8"


class HealthError(Exception):
    """Probes cannot be served; the text names host and port."""


class Metrics:
    """The metrics that every service has; labels are few and short."""

    def __init__(self, registry: CollectorRegistry, service: str, cluster: str) -> None:
        values = {"service": service, "cluster": cluster}
        build = gauge(registry, "kinema_build_info")
        build.labels(**values, version=version("kinema-core")).set(1)
        self._values = values
        self._events = counter(registry, "kinema_events_total")
        self._dead = counter(registry, "kinema_dead_letters_total")
        self._duration = histogram(registry, "kinema_stage_duration_seconds")
        self._of_events = EventMetrics(registry, service, cluster)
        self.lag = gauge(registry, "kinema_event_lag_seconds").labels(**values)
        self.pending = gauge(registry, "kinema_pending_events").labels(**values)
        self.loop_lag = gauge(registry, "kinema_loop_lag_seconds").labels(**values)

    def handled(self, kind: str, outcome: str, seconds: float) -> None:
        """Count an event: `answered`, `nothing`, `failed` or `dead-letter`."""
        self._events.labels(**self._values, kind=kind, outcome=outcome).inc()
        self._duration.labels(**self._values, kind=kind).observe(seconds)

    def published(self, body: AnyBody) -> None:
        """Count what an event that was published says about money, plans, verdicts and executions."""
        self._of_events.published(body)

    def dead_letter(self, reason: str) -> None:
        """Count an event that was dropped."""
        self._dead.labels(**self._values, reason=reason).inc()


class Health:
    """Health of a service. Other metrics may be registered on `registry`."""

    def __init__(self, service: str, cluster: str) -> None:
        self.registry = CollectorRegistry()
        self.metrics = Metrics(self.registry, service, cluster)
        self.spans = Spans()
        self._probes: dict[str, Probe] = {}
        self._problems: dict[str, str] = {}
        self._started = False
        self._beat = time.monotonic()
        self._beating: asyncio.Task[None] | None = None
        self._runner: web.AppRunner | None = None

    def started(self) -> None:
        """Say that the service has what it needs to begin."""
        self._started = True

    def report(self, part: str, problem: str | None) -> None:
        """Say what is wrong with a part, or None when it is well: the service is ready when all parts are."""
        if problem is None:
            self._problems.pop(part, None)
        else:
            self._problems[part] = problem

    def watch(self, part: str, probe: Probe) -> None:
        """Ask a part at each probe."""
        self._probes[part] = probe

    def problems(self) -> dict[str, str]:
        """Return what is wrong just now, by part; empty when ready."""
        found = dict(self._problems)
        if not self._started:
            found["start"] = "not started yet"
        for part, probe in self._probes.items():
            problem = probe()
            if problem is not None:
                found[part] = problem
        return found

    async def start(self, host: str, port: int) -> int:
        """Serve probes and metrics; gives the port. Raises HealthError when it cannot be had."""
        app = web.Application()
        app.add_routes(
            [
                web.get("/livez", self._livez),
                web.get("/readyz", self._readyz),
                web.get("/startupz", self._startupz),
                web.get("/metrics", self._metrics),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port)
        try:
            await site.start()
        except OSError as error:
            await self._runner.cleanup()
            raise HealthError(
                f"health_host and health_port: cannot listen on {host}:{port}: {error.strerror}"
            ) from error
        self._beating = asyncio.create_task(self._keep_beating())
        return int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        """Stop serving."""
        if self._beating is not None:
            self._beating.cancel()
            with suppress(asyncio.CancelledError):
                await self._beating
        if self._runner is not None:
            await self._runner.cleanup()

    async def _keep_beating(self) -> None:
        while True:
            await asyncio.sleep(_BEAT_SECONDS)
            now = time.monotonic()
            self.metrics.loop_lag.set(max(0.0, now - self._beat - _BEAT_SECONDS))
            self._beat = now

    async def _livez(self, _: web.Request) -> web.Response:
        silent = time.monotonic() - self._beat
        return _answer({} if silent < _DEAD_SECONDS else {"loop": f"no beat for {silent:.0f} s"})

    async def _readyz(self, _: web.Request) -> web.Response:
        return _answer(self.problems())

    async def _startupz(self, _: web.Request) -> web.Response:
        return _answer({} if self._started else {"start": "not started yet"})

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=generate_latest(self.registry), headers={"Content-Type": _PLAIN})


def _answer(problems: dict[str, str]) -> web.Response:
    body = msgspec.json.encode({"ok": not problems, "problems": problems})
    return web.Response(status=503 if problems else 200, body=body, content_type="application/json")
