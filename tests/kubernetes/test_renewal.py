"""Tokens that end while the rescheduler runs: those of a kubeconfig's plugin do after minutes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from tests.observer.scripted_api import kubeconfig

from kinema_rescheduler.errors import PermanentError, TransientError
from kinema_rescheduler.kubernetes.fenced import FencedClient, connect

PATH = "/api/v1/nodes/n1"


class Guard:
    """An API server that takes one token at a time."""

    def __init__(self) -> None:
        self.token = "t0"
        self.asked: list[tuple[str, str]] = []
        """Method and authorization of every request."""

    async def answer(self, request: web.Request) -> web.Response:
        """Whether the token is the right one."""
        told = request.headers.get("Authorization", "")
        self.asked.append((request.method, told))
        good = told == f"Bearer {self.token}"
        return web.json_response({} if good else {"message": "Unauthorized"}, status=200 if good else 401)


@asynccontextmanager
async def served() -> AsyncIterator[tuple[Guard, str]]:
    """A server and its address."""
    guard, app = Guard(), web.Application()
    app.router.add_route("*", "/{path:.*}", guard.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield guard, f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


@pytest.fixture
async def guard() -> AsyncIterator[tuple[Guard, str]]:
    """The server and its address."""
    async with served() as found:
        yield found


async def connected(directory: Path, url: str) -> FencedClient:
    """A connection with the first token."""
    return await connect(kubeconfig(directory / "kubeconfig", url))


async def test_a_token_that_has_ended_is_read_anew(guard: tuple[Guard, str], tmp_path: Path) -> None:
    """A read and a write that are not authorized go out once more with the token that the kubeconfig gives by now."""
    server, url = guard
    api = await connected(tmp_path, url)
    server.token = "t1"
    kubeconfig(tmp_path / "kubeconfig", url, token="t1")
    await api.patch(PATH, {"metadata": {}})
    server.token = "t2"
    kubeconfig(tmp_path / "kubeconfig", url, token="t2")
    await asyncio.gather(*(api.get(PATH) for _ in range(3)))
    await api.close()
    assert server.asked[:2] == [("PATCH", "Bearer t0"), ("PATCH", "Bearer t1")]
    assert sorted(server.asked[2:]) == [("GET", "Bearer t1")] * 3 + [("GET", "Bearer t2")] * 3


async def test_credentials_that_stay_refused_are_denied(guard: tuple[Guard, str], tmp_path: Path) -> None:
    """The same token again is a missing right, after one more try."""
    server, url = guard
    api = await connected(tmp_path, url)
    server.token = "another"
    with pytest.raises(PermanentError) as caught:
        await api.get(PATH)
    await api.close()
    assert caught.value.reason == "denied"
    assert len(server.asked) == 2


async def test_credentials_that_cannot_be_read_just_now_pass(guard: tuple[Guard, str], tmp_path: Path) -> None:
    """A plan is not given up, nor its way back, because nobody has logged in again yet."""
    server, url = guard
    api = await connected(tmp_path, url)
    server.token = "another"
    (tmp_path / "kubeconfig").unlink()
    with pytest.raises(TransientError, match="401") as caught:
        await api.get(PATH)
    await api.close()
    assert caught.value.reason == "unavailable"


async def test_a_kubeconfig_that_leads_elsewhere_by_now_is_not_followed(
    guard: tuple[Guard, str], tmp_path: Path
) -> None:
    """Who switches the file to another cluster does not mean our writes: nothing is sent there."""
    server, url = guard
    api = await connected(tmp_path, url)
    server.token = "another"
    async with served() as (other, elsewhere):
        kubeconfig(tmp_path / "kubeconfig", elsewhere)
        with pytest.raises(TransientError, match="leads to another cluster"):
            await api.patch(PATH, {"metadata": {}})
        assert other.asked == []
    await api.close()
    assert len(server.asked) == 1
