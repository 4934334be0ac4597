"""Start the decider: `python -m kinema_decider --settings FILE`."""

from __future__ import annotations

from kinema_core.runtime.collector import quick_imports

with quick_imports():
    from kinema_core.runtime.run import Runtime, run_service
    from kinema_core.runtime.serve import serve
    from kinema_decider.service import NAME, Decider
    from kinema_decider.settings import Settings


async def start(settings: Settings, runtime: Runtime) -> None:
    """Judge plans until the process is stopped."""
    await serve(Decider(settings), runtime.bus, runtime.clock, runtime.health)


def main() -> None:
    """Entry point."""
    run_service(NAME, Settings, start)


if __name__ == "__main__":
    main()
