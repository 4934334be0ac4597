"""`kinema pause`, `resume`, `approve` and `abort`: what an operator says to the pipeline."""

from __future__ import annotations

import asyncio
import getpass
from datetime import UTC

from rich.console import Console

from kinema_cli.broker import AddressError, settings_for
from kinema_core.events import AbortRequested, Approved, Paused, PlanHeld, Resumed
from kinema_core.runtime.bus import Bus, BusError, Stored
from kinema_core.runtime.clock import SystemClock
from kinema_core.runtime.envelope import origin
from kinema_core.runtime.nats_bus import connect

Word = Paused | Resumed | Approved | AbortRequested


def operator() -> str:
    """Who speaks: the name of the user of this machine."""
    return getpass.getuser()


def say(*, nats: str, cluster: str, word: Word) -> int:
    """Publish the operator's word; 0 said, 1 the broker refused, 3 no plan of that id is held."""
    errors = Console(stderr=True)
    try:
        if asyncio.run(_say(nats, cluster, word)):
            return 0
    except (AddressError, BusError) as error:
        errors.print(str(error), markup=False, soft_wrap=True)
        return 1
    errors.print("no plan of that id waits for approval: `kinema status` names the one that does", markup=False)
    return 3


async def _say(nats: str, cluster: str, word: Word) -> bool:
    bus = await connect(settings_for(nats, cluster))
    try:
        if isinstance(word, Approved) and not await _is_held(bus, word.plan):
            return False
        now = SystemClock().now()
        kind = word.TYPE.rpartition(".")[0]
        stamp = now.astimezone(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
        await bus.publish(
            origin(word, id_=f"{cluster}/operator/{kind}-{stamp}", cluster=cluster, iteration="", now=now)
        )
    finally:
        await bus.close()
    return True


async def _is_held(bus: Bus, plan: str) -> bool:
    async for item in bus.read("LOG", kinds=("plan-held",)):
        if isinstance(item, Stored) and isinstance(item.event.body, PlanHeld) and item.event.body.plan == plan:
            return True
    return False
