"""Starting a service: settings, logs, probes, connection, signals, exit code.

Exit codes: 0 after SIGTERM, SIGINT or the end of its starter, 1 with one line on stderr for what a person must
mend (settings, rights, a missing stream, a broker that does not answer), 2 for wrong usage. A bug ends with its
traceback in the log and code 70.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from typing import Final, NoReturn, Protocol, TypeVar

import msgspec
import structlog

from kinema_core.runtime import logs, starter
from kinema_core.runtime.announce import announce
from kinema_core.runtime.bus import Bus, BusError
from kinema_core.runtime.clock import Clock
from kinema_core.runtime.collector import spare_the_collector
from kinema_core.runtime.health import Health, HealthError
from kinema_core.runtime.nats_bus import connect
from kinema_core.runtime.settings import OVERRIDE, RuntimeSettings, SettingsError, load, overrides
from kinema_core.runtime.spans import SpansError, spans_to

VARIABLE: Final = "KINEMA_SETTINGS"
EXIT_EXPECTED: Final = 1
EXIT_BUG: Final = 70


class ServiceError(Exception):
    """A service cannot go on for a reason that a person must mend; its text is the one line that is shown."""


class HasRuntime(Protocol):
    """Settings of a service: they hold those of the runtime."""

    @property
    def runtime(self) -> RuntimeSettings:
        """Return what a service needs to run at all."""


T = TypeVar("T", bound=HasRuntime)


@dataclass(frozen=True)
class Runtime:
    """Connections and clock of a service."""

    bus: Bus
    clock: Clock
    health: Health


Main = Callable[[T, Runtime], Awaitable[None]]
LoopMaker = Callable[[], asyncio.AbstractEventLoop]


def run_service(name: str, kind: type[T], main: Main[T], *, loop: LoopMaker | None = None) -> NoReturn:
    """Run a service from its command line, for ever, on a loop of asyncio's own or another; never returns."""
    sys.exit(run(name, kind, main, sys.argv[1:], loop=loop))


def run(name: str, kind: type[T], main: Main[T], arguments: list[str], *, loop: LoopMaker | None = None) -> int:
    """Run a service until it ends or is stopped; return its exit code."""
    spare_the_collector()
    parser = argparse.ArgumentParser(prog=f"kinema-{name}", description=f"Kinema's {name}.")
    parser.add_argument("--settings", default=os.environ.get(VARIABLE), help=f"JSON file; default: ${VARIABLE}")
    parser.add_argument(starter.FLAG, action="store_true", help=starter.MEANING)
    given = parser.parse_args(arguments)
    path = given.settings
    if not path and not overrides(os.environ):
        parser.error(f"--settings FILE is missing, and neither {VARIABLE} nor any {OVERRIDE}… is set")
    try:
        settings = load(kind, path, os.environ)
        logs.configure(name, settings.runtime.cluster, settings.runtime.log_format)
        with asyncio.Runner(loop_factory=loop) as runner:
            return runner.run(_live(name, settings, main, tied=given.until_stdin_ends))
    except (SettingsError, HealthError, BusError, ServiceError, SpansError) as error:
        sys.stderr.write(f"kinema-{name}: {' '.join(str(error).split())}\n")
        return EXIT_EXPECTED
    except Exception:  # noqa: BLE001 - the last resort, so that the traceback is in the log and the exit code says "bug"
        structlog.get_logger().exception("crashed")
        return EXIT_BUG


async def _live(name: str, settings: T, main: Main[T], *, tied: bool) -> int:
    """Live until `main` ends, a signal comes or, where tied to it, the starter is gone."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    if tied:
        starter.call_when_gone(stopped.set)
    living = asyncio.ensure_future(_with_runtime(name, settings, main))
    stopping = asyncio.ensure_future(stopped.wait())
    await asyncio.wait([living, stopping], return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not living.done():
        structlog.get_logger().info("stopping")
        living.cancel()
    with suppress(asyncio.CancelledError):
        await living
    return 0


async def _with_runtime(name: str, settings: T, main: Main[T]) -> None:
    async with AsyncExitStack() as stack:
        runtime = settings.runtime
        health = Health(name, runtime.cluster)
        port = await health.start(runtime.health_host, runtime.health_port)
        stack.push_async_callback(health.stop)
        log = structlog.get_logger()
        log.info("probes", host=runtime.health_host, port=port)
        health.spans = spans_to(runtime.traces_url, service=name, cluster=runtime.cluster)
        stack.callback(health.spans.close)
        bus = await connect(runtime)
        stack.push_async_callback(bus.close)
        log.info("connected", broker=runtime.nats_url, user=runtime.nats_user)
        health.watch("broker", lambda: None if bus.connected() else "not connected")
        clock = runtime.clock()
        if isinstance(settings, msgspec.Struct):
            await announce(bus, clock, service=name, cluster=runtime.cluster, settings=settings)
        await main(settings, Runtime(bus=bus, clock=clock, health=health))
