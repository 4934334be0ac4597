"""The same pipeline on each bus, for the contract that both keep."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Protocol

from tests.support.nats_broker import Broker

from kinema_core.events import PREFIX, token
from kinema_core.runtime.bus import Bus, StreamName
from kinema_sim.memory_bus import MemoryBus

CLUSTER = "prod.eu"
ACK_WAIT = 1.0
DEDUP = 0.5
FAMILY: dict[StreamName, str] = {"STATE": "state", "LOG": "plan", "DLQ": "dlq"}


class Pipeline(Protocol):
    """A place where events are kept, and ways into it."""

    async def open(self) -> Bus:
        """One more connection, as of a process that starts anew."""

    async def send(self, stream: StreamName, kind: str, data: bytes, headers: Mapping[str, str] | None = None) -> None:
        """Store a message as somebody might send it, sound or not."""

    async def forget_ids(self) -> None:
        """Let the time pass in which the broker remembers message ids."""


def subject(stream: StreamName, kind: str) -> str:
    """Where a message of that kind goes."""
    return f"{PREFIX}.{token(CLUSTER)}.{FAMILY[stream]}.{kind}" + ("" if "." in kind else ".v1")


class MemoryPipeline:
    """One bus in memory."""

    def __init__(self) -> None:
        self._skipped = 0.0
        self.bus = MemoryBus(ack_wait=ACK_WAIT, dedup_seconds=DEDUP, monotonic=lambda: time.monotonic() + self._skipped)

    async def open(self) -> Bus:
        """The same bus: it is all there is."""
        return self.bus

    async def send(self, stream: StreamName, kind: str, data: bytes, headers: Mapping[str, str] | None = None) -> None:
        """Store a message."""
        self.bus.inject(stream, subject(stream, kind), data, headers)

    async def forget_ids(self) -> None:
        """Outlive the duplicate window."""
        self._skipped += DEDUP


class BrokerPipeline:
    """A real broker."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    async def open(self) -> Bus:
        """A new connection of a user with all rights; rights have tests of their own."""
        return await self.broker.bus()

    async def send(self, stream: StreamName, kind: str, data: bytes, headers: Mapping[str, str] | None = None) -> None:
        """Store a message."""
        await self.broker.send(subject(stream, kind), data, headers)

    async def forget_ids(self) -> None:
        """Outlive the duplicate window."""
        await asyncio.sleep(DEDUP * 3)
