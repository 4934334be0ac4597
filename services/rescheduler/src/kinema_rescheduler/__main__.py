"""Start the rescheduler: `python -m kinema_rescheduler --settings FILE`."""

from __future__ import annotations

from contextlib import AsyncExitStack

from kinema_core.runtime.run import Runtime, ServiceError, run_service
from kinema_rescheduler.adapters.kubernetes_api import connect
from kinema_rescheduler.adapters.kubernetes_writer import KubernetesWriter
from kinema_rescheduler.adapters.providers import open_provider
from kinema_rescheduler.decisions import NAME
from kinema_rescheduler.errors import FinalError
from kinema_rescheduler.service import Rescheduler
from kinema_rescheduler.settings import Settings


async def start(settings: Settings, runtime: Runtime) -> None:
    """Carry out accepted plans until told to stop."""
    async with AsyncExitStack() as stack:
        try:
            api = await connect(settings.kubeconfig, timeout_seconds=settings.request_seconds)
            stack.push_async_callback(api.close)
            provider = await open_provider(settings, api, runtime.clock, stack)
        except FinalError as error:
            raise ServiceError(error.detail) from error
        rescheduler = Rescheduler(
            settings=settings,
            bus=runtime.bus,
            clock=runtime.clock,
            health=runtime.health,
            writer=KubernetesWriter(api),
            provider=provider,
        )
        await rescheduler.run()


def main() -> None:
    """Entry point."""
    run_service(NAME, Settings, start)


if __name__ == "__main__":
    main()
