"""`kinema pause`, `resume`, `approve` and `abort`: what an operator says to the pipeline."""

from __future__ import annotations

import asyncio
import getpass
from datetime import UTC

from rich.console import Console

from kinema_cli.broker import AddressError, settings_for
from kinema_core.events import AbortRequested, Approved, Event, Paused, PlanHeld, Resumed
from kinema_core.runtime.bus import Bus, BusError, Stored
from kinema_core.runtime.clock import SystemClock
from kinema_core.runtime.envelope import origin
from kinema_core.runtime.nats_bus import connect
from kinema_core.runtime.settings import RuntimeSettings

Word = Paused | Resumed | Approved | AbortRequested


def operator() -> str:
    """Who speaks: the name of the user of this machine."""
    return getpass.getuser()


def say(*, nats: str, cluster: str, word: Word) -> int:
    """Publish the operator's word; 0 said, 1 the broker refused, 2 wrong arguments, 3 no plan of that id is held."""
    errors = Console(stderr=True)
    try:
        settings = settings_for(nats, cluster)
    except AddressError as error:
        errors.print(str(error), markup=False, soft_wrap=True)
        return 2
    try:
        if asyncio.run(_say(settings, word)):
            Console(highlight=False).print(f"{_told(word, cluster)} as {word.by}", markup=False, soft_wrap=True)
            return 0
    except BusError as error:
        errors.print(str(error), markup=False, soft_wrap=True)
        return 1
    errors.print("no plan of that id waits for approval: `kinema status` names the one that does", markup=False)
    return 3


def _told(word: Word, cluster: str) -> str:
    match word:
        case Paused():
            return f"paused cluster {cluster}"
        case Resumed():
            return f"resumed cluster {cluster}"
        case Approved():
            return f"approved plan {word.plan} of cluster {cluster}"
        case AbortRequested():
            return f"asked to abort the running plan of cluster {cluster}"


async def _say(settings: RuntimeSettings, word: Word) -> bool:
    cluster, iteration = settings.cluster, ""
    bus = await connect(settings)
    try:
        if isinstance(word, Approved):
            held = await _held(bus, word.plan)
            if held is None:
                return False
            iteration = held.iteration  # the approval belongs to what it approves, also in a trace
        now = SystemClock().now()
        kind = word.TYPE.rpartition(".")[0]
        stamp = now.astimezone(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
        await bus.publish(
            origin(word, id_=f"{cluster}/operator/{kind}-{stamp}", cluster=cluster, iteration=iteration, now=now)
        )
    finally:
        await bus.close()
    return True


async def _held(bus: Bus, plan: str) -> Event | None:
    """The event by which the plan was held back."""
    async for item in bus.read("LOG", kinds=("plan-held",)):
        if isinstance(item, Stored) and isinstance(item.event.body, PlanHeld) and item.event.body.plan == plan:
            return item.event
    return None
