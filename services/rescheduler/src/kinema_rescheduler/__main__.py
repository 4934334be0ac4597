"""Start the rescheduler: `python -m kinema_rescheduler --settings FILE`."""

from __future__ import annotations

from contextlib import AsyncExitStack
from os import getpid
from socket import gethostname

from kinema_core.runtime.collector import quick_imports

with quick_imports():
    from kinema_core.runtime.run import Runtime, ServiceError, run_service
    from kinema_kubernetes import client
    from kinema_kubernetes.claim import ClusterClaim
    from kinema_kubernetes.errors import SetupError
    from kinema_rescheduler.errors import PermanentError
    from kinema_rescheduler.journal.decisions import NAME
    from kinema_rescheduler.kubernetes.events import KubernetesEvents
    from kinema_rescheduler.kubernetes.fenced import connect
    from kinema_rescheduler.kubernetes.janitor import Janitor
    from kinema_rescheduler.kubernetes.landing import LandingKeeper
    from kinema_rescheduler.kubernetes.writer import KubernetesWriter
    from kinema_rescheduler.leadership.fence import Fence
    from kinema_rescheduler.providers.open import open_provider
    from kinema_rescheduler.service import Dependencies, Rescheduler
    from kinema_rescheduler.settings import Settings


async def start(settings: Settings, runtime: Runtime) -> None:
    """Execute accepted plans until the process is stopped."""
    async with AsyncExitStack() as stack:
        process = f"{NAME}-{gethostname()}-{getpid()}"
        try:
            kubeconfig, context = settings.kubeconfig, settings.context
            unfenced = await client.connect(
                kubeconfig, context=context, timeout_seconds=settings.cluster_lease_duration_seconds / 3
            )
            stack.push_async_callback(unfenced.close)
            holder = await runtime.bus.identity()
            instance_name = settings.instance_name or f"the rescheduler on {gethostname()} (process {getpid()})"
            claim = ClusterClaim(
                unfenced, holder, process=instance_name, seconds=settings.cluster_lease_duration_seconds
            )
            fence = Fence(claim.check)
            api = await connect(kubeconfig, context=context, timeout_seconds=settings.request_seconds, fence=fence)
            stack.push_async_callback(api.close)
            provider = await open_provider(settings, api, clock=runtime.clock, fence=fence, stack=stack)
        except (PermanentError, SetupError) as error:
            raise ServiceError(error.detail) from error
        events = KubernetesEvents(api, process)
        stack.push_async_callback(events.close)
        landing = None
        if settings.steering:
            landing = LandingKeeper(api, clock=runtime.clock, patience_seconds=settings.limits.landing_seconds)
        rescheduler = Rescheduler(
            settings=settings,
            bus=runtime.bus,
            clock=runtime.clock,
            health=runtime.health,
            writer=KubernetesWriter(api, steering=settings.steering),
            provider=provider,
            dependencies=Dependencies(
                fence=fence, claim=claim, landing=landing, janitor=Janitor(api), report=events.report
            ),
        )
        for connection in (unfenced, api.client):
            connection.on_answer = rescheduler.metrics.answered
        await rescheduler.run()


def main() -> None:
    """Entry point."""
    run_service(NAME, Settings, start)


if __name__ == "__main__":
    main()
