"""`python -m kinema_observer --settings FILE`."""

from __future__ import annotations

import asyncio
import random

from kinema_core.runtime.collector import quick_imports

with quick_imports():
    import uvloop

    from kinema_core.runtime.run import Runtime, ServiceError, run_service
    from kinema_kubernetes.client import Client, connect
    from kinema_kubernetes.errors import SetupError
    from kinema_observer.adapters.metrics import MetricsApi
    from kinema_observer.adapters.prometheus import Prometheus, PrometheusUsage
    from kinema_observer.adapters.reflector import Patience
    from kinema_observer.adapters.source import KubernetesSource
    from kinema_observer.errors import AnotherClusterError, PrometheusError
    from kinema_observer.metrics import show_ages
    from kinema_observer.sampling import MeteredUsage, UsageSampler, UsageSource
    from kinema_observer.service import Observer
    from kinema_observer.settings import Settings


async def start(settings: Settings, runtime: Runtime) -> None:
    """Put the parts together and run them until the process is stopped."""
    try:
        client = await connect(settings.kubeconfig, context=settings.context)
    except SetupError as error:
        raise ServiceError(str(error)) from error
    # Jitter keeps many observers from asking at once; nothing that is decided depends on it.
    chance = random.Random()  # noqa: S311 - not cryptography
    source = KubernetesSource(client, patience=Patience(bookmark=settings.bookmark_seconds), chance=chance)
    bus, clock = runtime.bus, runtime.clock
    observer = Observer(bus=bus, source=source, clock=clock, health=runtime.health, settings=settings)
    client.on_answer = observer.metrics.answered
    show_ages(runtime.health.registry, settings.runtime.cluster, source.reflectors)
    try:
        server = Prometheus(settings.prometheus) if settings.usage_source == "prometheus" else None
    except PrometheusError as error:
        await client.close()
        raise ServiceError(str(error)) from error
    sampler = UsageSampler(
        bus=bus, source=_usage(settings, client, server), clock=clock, observer=observer, settings=settings
    )
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(source.run())
            group.create_task(observer.run())
            if settings.usage_seconds > 0:
                group.create_task(sampler.run())
    except BaseExceptionGroup as group:
        raise _first(group) from None
    finally:
        await client.close()
        if server is not None:
            await server.close()


def _usage(settings: Settings, client: Client, server: Prometheus | None) -> UsageSource:
    """Return the source of usage that the settings choose."""
    if server is None:
        return MeteredUsage(MetricsApi(client), settings.usage_step_seconds)
    lookback = settings.prometheus.lookback_seconds
    return PrometheusUsage(server, step_seconds=settings.usage_step_seconds, lookback_seconds=lookback)


def _first(error: BaseException) -> BaseException:
    """Return the failure that ended the tasks, so that its kind decides on message and exit code."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return ServiceError(str(error)) if isinstance(error, AnotherClusterError) else error


def main() -> None:
    """Run the observer.

    An API server writes a list in pieces of 4 KiB: to take them off the network costs less on this loop.
    """
    run_service("observer", Settings, start, loop=uvloop.new_event_loop)


if __name__ == "__main__":
    main()
