"""The five services as processes of this machine, on a broker of their own or a given one.

Used by `kinema demo`, `kinema up` and the tests: whoever starts a pipeline gets its settings files, its logs, an
operator's connection to the bus, and a supervisor that restarts what dies.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec

from kinema_cli.local.nats_server import NatsServer, ServerError
from kinema_cli.local.processes import MOST_RESTARTS, WITHIN_SECONDS, Child, Starts, Supervisor
from kinema_core.runtime import starter
from kinema_core.runtime.bus import Bus
from kinema_core.runtime.nats_bus import connect
from kinema_core.runtime.rights import USERS, authorization
from kinema_core.runtime.settings import RuntimeSettings
from kinema_core.runtime.setup import Layout, setup
from kinema_kubernetes.kubeconfig import current_context

SERVICES: Final = ("observer", "predictor", "optimizer", "decider", "rescheduler")


@dataclass(frozen=True, kw_only=True)
class PipelineOptions:
    """Options of a local pipeline. Times are the cluster's: `clock_speed` of its seconds per second."""

    directory: Path
    cluster: str
    kubeconfig: Path
    context: str = ""
    """In the kubeconfig; empty: its current one when the services are started."""
    provider: Mapping[str, object]
    """The rescheduler's `provider` setting: its kind and what that needs."""
    clock_speed: float = 1.0
    clock_epoch: datetime | None = None
    clock_started: float | None = None
    settings: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """Service → settings that differ from the defaults; a `runtime` among them adds to what is supplied."""
    nats: RuntimeSettings | None = None
    """A broker that runs and was set up, with the user of all services; none: a broker of its own."""
    workers: int = 0
    """Processes that share the optimizer's solves."""
    environment: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Service → environment variables to add."""

    def runtime_of(self, service: str, supplied: RuntimeSettings) -> dict[str, object]:
        """Return the supplied settings of a service's runtime, with those that were given for it."""
        runtime = self.settings.get(service, {}).get("runtime", {})
        assert isinstance(runtime, dict)  # checked when the settings were read
        return {**msgspec.to_builtins(supplied), **runtime}


class LocalPipeline:
    """A broker and five services. `start` returns when all are started; `stop` ends what was started.

    They also end, by themselves and within seconds, when this process is killed.
    """

    def __init__(self, options: PipelineOptions) -> None:
        self.options = options
        self._passwords = {user: secrets.token_urlsafe(24) for user in USERS}
        self.server = NatsServer(
            options.directory / "nats",
            authorization=authorization(self._passwords, [options.cluster]),
            guarded=True,
        )
        self.server_starts = Starts()
        self._bus: Bus | None = None
        worker = "optimizer.process.worker"
        workers = [self._child(f"worker-{n + 1}", worker, "optimizer") for n in range(options.workers)]
        self.supervisor = Supervisor([*(self._child(name, name, name) for name in SERVICES), *workers])

    @property
    def bus(self) -> Bus:
        """The operator's connection; raises RuntimeError before `open`."""
        if self._bus is None:
            message = "the pipeline was not opened"
            raise RuntimeError(message)
        return self._bus

    def runtime(self, user: str) -> RuntimeSettings:
        """Return settings with which a user of the broker connects."""
        options = self.options
        own = RuntimeSettings(cluster=options.cluster, nats_url=self.server.url, nats_user=user)
        given = options.nats or msgspec.structs.replace(own, nats_password=self._passwords[user])
        return msgspec.structs.replace(
            given,
            nats_connect_seconds=own.nats_connect_seconds,
            health_port=0,
            log_format="json",
            clock_speed=options.clock_speed,
            clock_epoch=options.clock_epoch,
            clock_started=options.clock_started,
        )

    async def start(self) -> None:
        """Open it, and start the services."""
        if self._bus is None:
            await self.open()
        for service in SERVICES:
            self._write_settings(service)
        await self.supervisor.start()

    async def open(self) -> None:
        """Start the broker, make streams and consumers, and connect. A given broker is left as it is."""
        if self.options.nats is None:
            await self.start_server()
            await setup(self.runtime("admin"), Layout(clusters=(self.options.cluster,)))
        self._bus = await connect(self.runtime("operator"))

    async def start_server(self) -> None:
        """Start our own broker, or start it again; raises ServerError where it cannot be, or ends time after time."""
        self.server_starts.add()
        if self.server_starts.vain:
            often = f"{MOST_RESTARTS + 1} times within {WITHIN_SECONDS / 60:.0f} minutes"
            raise ServerError(f"the nats-server has ended {often}: its log {self.server.log} says why")
        await asyncio.to_thread(self.server.start)

    async def stop(self) -> None:
        """End services, connection and broker, in this order."""
        await self.supervisor.stop()
        if self._bus is not None:
            await self._bus.close()
        if self.options.nats is None:
            await asyncio.to_thread(self.server.stop)

    def _settings_path(self, service: str) -> Path:
        return self.options.directory / "settings" / f"{service}.json"

    def _child(self, name: str, module: str, service: str) -> Child:
        added = self.options.environment.get(service, {})
        return Child(
            name=name,
            arguments=("-m", f"kinema_{module}", "--settings", str(self._settings_path(service)), starter.FLAG),
            log=self.options.directory / "logs" / f"{name}.log",
            environment={"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", **added},
        )

    def _write_settings(self, service: str) -> None:
        given = dict(self.options.settings.get(service, {}))
        if service == "optimizer" and self.options.workers:
            solver = given.get("solver")
            given["solver"] = {"share": True, **(solver if isinstance(solver, dict) else {})}
        runtime = self.options.runtime_of(service, self.runtime(service))
        merged = {**self._places(service), **given, "runtime": runtime}
        path = self._settings_path(service)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)  # it holds the password for the broker
        path.write_text(json.dumps(merged, indent=2) + "\n", encoding="utf-8")

    def _places(self, service: str) -> Mapping[str, object]:
        options = self.options
        # A service that is started again must not follow when the file has been switched to another cluster.
        context = options.context or current_context(options.kubeconfig)
        cluster = {"kubeconfig": str(options.kubeconfig), "context": context}
        if service == "observer":
            return cluster
        if service == "rescheduler":
            return {**cluster, "provider": dict(options.provider)}
        return {}
