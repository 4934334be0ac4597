"""Probes and metrics over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest
from prometheus_client import Counter

from kinema_core.runtime.health import Health, HealthError


@dataclass
class Served:
    """A service's health and how to ask for it."""

    health: Health
    port: int
    session: aiohttp.ClientSession

    async def get(self, path: str) -> tuple[int, Any]:
        """Status and body."""
        async with self.session.get(f"http://127.0.0.1:{self.port}{path}") as answer:
            return answer.status, await answer.json()


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    """Health on a free port."""
    health = Health("decider", "c1")
    port = await health.start("127.0.0.1", 0)
    async with aiohttp.ClientSession() as session:
        yield Served(health, port, session)
    await health.stop()


async def test_starting_up_it_lives_but_is_not_ready(served: Served) -> None:
    """Before it has started only the liveness probe is content, and the others say what is missing."""
    assert (await served.get("/livez"))[0] == 200
    assert await served.get("/startupz") == (503, {"ok": False, "problems": {"start": "not started yet"}})
    assert (await served.get("/readyz"))[0] == 503
    served.health.started()
    assert await served.get("/startupz") == (200, {"ok": True, "problems": {}})
    assert await served.get("/readyz") == (200, {"ok": True, "problems": {}})


async def test_a_part_that_is_not_well_makes_it_not_ready_yet_alive(served: Served) -> None:
    """Problems of parts, told or asked for, are named by /readyz and leave /livez alone."""
    served.health.started()
    problem: list[str | None] = ["not connected"]
    served.health.watch("broker", lambda: problem[0])
    served.health.report("caches", "pods not listed yet")
    status, body = await served.get("/readyz")
    assert status == 503
    assert body["problems"] == {"broker": "not connected", "caches": "pods not listed yet"}
    assert (await served.get("/livez"))[0] == 200
    problem[0] = None
    served.health.report("caches", None)
    assert (await served.get("/readyz"))[0] == 200


async def test_a_loop_without_a_beat_is_dead(served: Served) -> None:
    """When the event loop has not beaten for half a minute the liveness probe fails."""
    served.health._beat -= 60
    status, body = await served.get("/livez")
    assert status == 503
    assert "no beat" in body["problems"]["loop"]


async def test_serves_its_metrics_and_those_of_others(served: Served) -> None:
    """Everything on the registry is served in Prometheus' text format."""
    Counter("kinema_decider_plans_total", "Plans", registry=served.health.registry).inc()
    served.health.metrics.handled("plan-proposed", "answered", 0.25)
    served.health.metrics.dead_letter("bad-json")
    async with served.session.get(f"http://127.0.0.1:{served.port}/metrics") as answer:
        assert answer.status == 200
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        text = await answer.text()
    labels = 'cluster="c1",kind="plan-proposed",outcome="answered",service="decider"'
    assert f"kinema_events_total{{{labels}}} 1.0" in text
    assert 'kinema_dead_letters_total{cluster="c1",reason="bad-json",service="decider"} 1.0' in text
    assert "kinema_decider_plans_total 1.0" in text
    assert "kinema_stage_duration_seconds_bucket" in text
    assert "kinema_build_info{" in text


async def test_a_taken_port_is_said(served: Served) -> None:
    """A port that somebody else has is one clear error naming it."""
    other = Health("decider", "c1")
    with pytest.raises(HealthError, match=f"127.0.0.1:{served.port}"):
        await other.start("127.0.0.1", served.port)
