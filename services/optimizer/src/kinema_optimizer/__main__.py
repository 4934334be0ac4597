"""Start the optimizer: `python -m kinema_optimizer --settings FILE`."""

from __future__ import annotations

from kinema_core.runtime.collector import quick_imports

with quick_imports():
    from kinema_core.runtime.run import Runtime, run_service
    from kinema_core.runtime.serve import serve
    from kinema_optimizer.process.client import InChild
    from kinema_optimizer.service import Optimizer
    from kinema_optimizer.settings import NAME, Settings


async def start(settings: Settings, runtime: Runtime) -> None:
    """Propose plans until the service stops."""
    async with InChild(settings.solver) as solving:
        await serve(
            Optimizer(settings, solving),
            runtime.bus,
            runtime.clock,
            runtime.health,
            stale_seconds=settings.stale_event_seconds,
        )


def main() -> None:
    """Entry point."""
    run_service(NAME, Settings, start)


if __name__ == "__main__":
    main()
