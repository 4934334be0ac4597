"""Start the rescheduler: `python -m kinema_rescheduler --settings FILE`."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

from kinema_core.runtime.run import Runtime, ServiceError, run_service
from kinema_rescheduler.adapters.kubernetes_api import connect
from kinema_rescheduler.adapters.kubernetes_writer import KubernetesWriter
from kinema_rescheduler.adapters.sim_provider import SimProvider
from kinema_rescheduler.decisions import NAME
from kinema_rescheduler.errors import FinalError
from kinema_rescheduler.service import Rescheduler
from kinema_rescheduler.settings import Settings


async def start(settings: Settings, runtime: Runtime) -> None:
    """Carry out accepted plans until told to stop."""
    async with AsyncExitStack() as stack:
        try:
            api = await connect(settings.kubeconfig, timeout_seconds=settings.request_seconds)
        except FinalError as error:
            raise ServiceError(error.detail) from error
        stack.push_async_callback(api.close)
        provider = SimProvider(settings.provider_url, token=_token(settings), timeout_seconds=settings.request_seconds)
        stack.push_async_callback(provider.close)
        rescheduler = Rescheduler(
            settings=settings,
            bus=runtime.bus,
            clock=runtime.clock,
            health=runtime.health,
            writer=KubernetesWriter(api),
            provider=provider,
        )
        await rescheduler.run()


def _token(settings: Settings) -> str:
    if not settings.provider_token_file:
        return settings.provider_token
    try:
        return Path(settings.provider_token_file).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ServiceError(f"provider_token_file {settings.provider_token_file}: {error.strerror}") from error


def main() -> None:
    """Entry point."""
    run_service(NAME, Settings, start)


if __name__ == "__main__":
    main()
