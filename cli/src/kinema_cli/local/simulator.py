"""Talking to the simulated cluster's own API: its clock and its history."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from urllib.parse import quote

import aiohttp
import msgspec

_RECENT: Final = timedelta(seconds=30)
"""The history holds a sample at least every five seconds."""


class SimulatorError(Exception):
    """The simulated cluster does not answer."""


class ClockReading(msgspec.Struct, frozen=True, kw_only=True):
    """The simulated cluster's time and its pace."""

    now: datetime
    speed: float


class View(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster at one moment, as far as a headline needs it."""

    nodes: tuple[msgspec.Raw, ...] = ()
    usd_per_hour: float = 0.0
    pending: int = 0


class _Samples(msgspec.Struct, frozen=True):
    samples: tuple[View, ...] = ()


@dataclass(frozen=True)
class Simulator:
    """A running simulated cluster at `url`."""

    url: str

    async def _get(self, path: str) -> bytes:
        timeout = aiohttp.ClientTimeout(total=20)
        try:
            async with aiohttp.ClientSession(timeout=timeout) as session, session.get(self.url + path) as reply:
                reply.raise_for_status()
                return await reply.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise SimulatorError(f"the simulated cluster at {self.url} does not answer: {error}") from error

    async def clock(self) -> ClockReading:
        """Return its time."""
        return msgspec.json.decode(await self._get("/sim/v1/clock"), type=ClockReading)

    async def history(self) -> bytes:
        """Return everything that happened, as JSON."""
        return await self._get("/sim/v1/history")

    async def view(self) -> View:
        """Return the current cluster."""
        since = (await self.clock()).now - _RECENT
        data = await self._get(f"/sim/v1/history?since={quote(since.strftime('%Y-%m-%dT%H:%M:%S.000Z'))}")
        samples = msgspec.json.decode(data, type=_Samples).samples
        return samples[-1] if samples else View()
