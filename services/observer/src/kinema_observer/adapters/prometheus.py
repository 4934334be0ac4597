"""Prometheus as a source of usage, and what speaks its API: Thanos, Mimir, VictoriaMetrics.

A thin client on the HTTP library that is there anyway. `prometheus-api-client` blocks, waits for ever unless asked, and
drops the `warnings` of an answer, so that a part of the data looks like all of it.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import aiohttp
import structlog

from kinema_core.events import UsageResampled, UsageSampled
from kinema_core.model.cluster import Cluster
from kinema_core.model.usage import BLOCK_STEPS, step_start
from kinema_observer.errors import PartialError, PrometheusError, TimedOutError, TooMuchError
from kinema_observer.logic.prometheus import Pods, Samples, queries, reading_of, samples_of, steps_of
from kinema_observer.logic.usage import Collected
from kinema_observer.settings import PrometheusSettings

POINTS: Final = 1_000_000
"""Samples that a query may ask for."""
INGESTED: Final = timedelta(seconds=60)
"""Age of a step from which all of its samples are stored; a shorter step waits for its own length."""
PATIENCE: Final = timedelta(hours=1)
"""Age of a step that can be read only in part, or not at all for its size, from which it becomes a gap."""
_LARGEST: Final = 2**28
"""Bytes of an answer that are taken."""
_PIECE: Final = 2**20
_CONNECT_SECONDS: Final = 10.0


class Prometheus:
    """Range queries to one server."""

    def __init__(self, settings: PrometheusSettings) -> None:
        """Begin a session.

        Raises:
            PrometheusError: the authority's file cannot be used.
        """
        self._settings = settings
        try:
            tls = ssl.create_default_context(cafile=settings.ca_file or None)
        except (OSError, ValueError) as error:
            raise PrometheusError(f"prometheus.ca_file {settings.ca_file}: {error}") from error
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=tls),
            timeout=aiohttp.ClientTimeout(total=settings.timeout_seconds, sock_connect=_CONNECT_SECONDS),
        )

    @property
    def url(self) -> str:
        """The server's address."""
        return self._settings.url.rstrip("/")

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()

    async def usage(self, first: datetime, last: datetime, step: timedelta) -> tuple[Samples, Samples]:
        """Return CPU and memory of each pod in the steps that end at `first`, each `step` later, and `last`.

        Raises:
            TooMuchError, TimedOutError: a shorter span may do. PrometheusError: no answer, or one that cannot be used.
        """
        cpu, memory = queries(step, self._settings.matchers)
        return await self.range(cpu, first, last, step), await self.range(memory, first, last, step)

    async def range(self, query: str, first: datetime, last: datetime, step: timedelta) -> Samples:
        """Return what a query gives for each pod at each of these instants; raises as `usage` does."""
        asked: dict[str, str | float] = {"query": query, "start": first.timestamp(), "end": last.timestamp()}
        asked["step"] = step.total_seconds()
        try:
            status, body = await self._get(f"{self.url}/api/v1/query_range", asked)
            return await asyncio.to_thread(samples_of, body, status=status, first=first, step=step)
        except (aiohttp.ConnectionTimeoutError, aiohttp.ClientConnectorError) as error:
            raise PrometheusError(f"{self.url} cannot be reached: {error}") from error
        except TimeoutError as error:
            text = f"{self.url}: no answer within {self._settings.timeout_seconds:g} s (prometheus.timeout_seconds)"
            raise TimedOutError(text) from error
        except aiohttp.ClientError as error:
            raise PrometheusError(f"{self.url}: connection lost: {error or type(error).__name__}") from error
        except PrometheusError as error:
            raise type(error)(f"{self.url}: {error}") from error

    async def _get(self, url: str, asked: Mapping[str, str | float]) -> tuple[int, bytes]:
        # A redirect leads to a login page, which has no use for the token.
        async with self._session.get(url, params=asked, headers=self._headers(), allow_redirects=False) as response:
            body = bytearray()
            while piece := await response.content.read(_PIECE):
                body += piece
                if len(body) > _LARGEST:
                    raise TooMuchError(f"an answer has more than {_LARGEST >> 20} MiB")
            return response.status, bytes(body)

    def _headers(self) -> Mapping[str, str]:
        settings = self._settings
        found = {"X-Scope-OrgID": settings.tenant} if settings.tenant else {}
        if settings.token_file:
            try:
                found["Authorization"] = f"Bearer {Path(settings.token_file).read_text().strip()}"
            except OSError as error:
                raise PrometheusError(f"prometheus.token_file {settings.token_file}: {error.strerror}") from error
        return found


class PrometheusUsage:
    """Steps as Prometheus has them: of the past, of the time while no process observed, and of now."""

    def __init__(self, server: Prometheus, *, step_seconds: float, lookback_seconds: float) -> None:
        self._server = server
        self._step = timedelta(seconds=step_seconds)
        self._lookback = timedelta(seconds=lookback_seconds)
        self._asked: datetime | None = None
        """Until when the server was asked: a step without samples leaves nothing in the stream."""
        self._page = BLOCK_STEPS
        """Steps that are asked for at once."""
        self._log = structlog.get_logger()

    async def collect(self, cluster: Cluster, since: datetime | None, now: datetime) -> Collected:
        """See `UsageSource`: the steps until the end of a row, or until now."""
        seconds = self._step.total_seconds()
        ready = step_start(now - min(INGESTED, self._step), seconds)
        begin = step_start(max(since or now - self._lookback, self._asked or now - self._lookback), seconds)
        end = min(ready, step_start(begin, seconds, BLOCK_STEPS) + BLOCK_STEPS * self._step)
        self._page = min(self._page, BLOCK_STEPS, max(1, POINTS // max(1, len(cluster.pods))))
        pods, reading = Pods(cluster), None
        steps: list[UsageResampled] = []
        while begin < end:
            until = min(begin + self._page * self._step, end)
            try:
                found, reading = await self._read(begin, until, pods)
                steps += found
            except PrometheusError as error:
                if isinstance(error, TooMuchError | TimedOutError):
                    self._page = max(1, (until - begin) // self._step // 2)
                if isinstance(error, TooMuchError) and until - begin > self._step:
                    continue
                until = min(until, step_start(now - PATIENCE, seconds))
                if until <= begin or not isinstance(error, TooMuchError | PartialError):
                    if not steps:
                        raise
                    break  # the rest is asked for later
                self._log.warning("usage is a gap", begin=begin.isoformat(), end=until.isoformat(), problem=str(error))
            begin = until
            self._asked = max(begin, self._asked or begin)
        # What was too much may be no more.
        self._page *= 2
        return Collected(tuple(steps), reading if begin == ready else None, has_more=begin == end < ready)

    async def _read(self, begin: datetime, end: datetime, pods: Pods) -> tuple[list[UsageResampled], UsageSampled]:
        """Return the steps between two times. The step before shows which pods were there."""
        step, count = self._step, (end - begin) // self._step
        cpu, memory = await self._server.usage(begin, end, step)
        return await asyncio.to_thread(_both, cpu, memory, pods, first=begin, step=step, count=count)


def _both(
    cpu: Samples, memory: Samples, pods: Pods, *, first: datetime, step: timedelta, count: int
) -> tuple[list[UsageResampled], UsageSampled]:
    steps = list(steps_of(cpu, memory, pods, first=first, step=step, count=count))
    return steps, reading_of(cpu, memory, pods, first=first, step=step, count=count)
