"""Start the predictor: `python -m kinema_predictor --settings FILE`."""

from __future__ import annotations

from kinema_core.runtime.collector import quick_imports

with quick_imports():
    from kinema_core.runtime.run import Runtime, run_service
    from kinema_core.runtime.serve import serve
    from kinema_predictor.service import NAME, Predictor
    from kinema_predictor.settings import Settings


async def start(settings: Settings, runtime: Runtime) -> None:
    """Forecast until the process is stopped."""
    await serve(
        Predictor(settings),
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
