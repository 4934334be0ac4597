"""One kind followed through every fault that an API server and a network can have."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from structlog.testing import capture_logs
from tests.observer import kube_json
from tests.observer.scripted_api import (
    JSON,
    QUICK,
    ScriptedApi,
    bookmark,
    broken,
    change,
    connected,
    keys,
    kubeconfig,
    page,
    silent,
    status,
    stream,
    text,
)
from tests.support.waiting import until

from kinema_core.events import Pod, Quarantined
from kinema_kubernetes.client import connect
from kinema_observer.adapters.reflector import Patience, Reflector, Resource

PODS = Resource("Pod", "/api/v1/pods")
PLAIN = text("404 page not found\n", 404)
"""What an API server answers for a kind that it does not serve, and any proxy for anything."""
OPTIONAL = Resource("Pod", "/api/v1/pods", essential=False)


@pytest.fixture
async def server() -> AsyncIterator[ScriptedApi]:
    """A scripted server that waits in silence on watches unless told otherwise."""
    async with silent() as scripted:
        yield scripted


@asynccontextmanager
async def following(
    server: ScriptedApi, directory: Path, *, resource: Resource = PODS, patience: Patience = QUICK
) -> AsyncIterator[Reflector]:
    """A reflector that follows the server."""
    api = await connected(server, directory)
    reflector = Reflector(resource, api, patience=patience, chance=random.Random(1))
    task = asyncio.create_task(reflector.run())
    try:
        yield reflector
        assert not task.done(), task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await api.close()


def holds(reflector: Reflector, *names: str) -> Callable[[], bool]:
    """Whether the reflector holds exactly these pods and knows that it is up to date."""
    return lambda: list(keys(reflector)) == [f"shop/{name}" for name in names] and reflector.problem is None


def pods(*names: str) -> list[JSON]:
    """Pods of these names."""
    return [kube_json.pod(name) for name in names]


CALM = Patience(bookmark=30, shortest=0.01, longest=0.03, denied=0.02, missing=0.02)
"""A watchdog that does not bite within a test."""
PATIENT = replace(QUICK, doubt=30)
"""A watchdog that bites soon, and a list in time."""


async def test_a_list_is_read_in_pages(server: ScriptedApi, tmp_path: Path) -> None:
    """Each page names the next; the watch begins at the version that all pages share, and asks for bookmarks."""
    server.lists = [page(*pods("a"), version="10", more="t1"), page(*pods("b"), version="10")]
    async with following(server, tmp_path, patience=CALM) as reflector:
        await until(server.asked_watches)
        assert holds(reflector, "a", "b")()
        assert server.asked_lists() == [{"limit": "500"}, {"limit": "500", "continue": "t1"}]
        (watch,) = server.asked_watches()
        assert (watch["resourceVersion"], watch["allowWatchBookmarks"]) == ("10", "true")
        assert 240 <= int(watch["timeoutSeconds"]) <= 300
        assert server.asked[0][2] == "Bearer t0"


async def test_an_expired_page_begins_the_list_anew(server: ScriptedApi, tmp_path: Path) -> None:
    """The rest that the server offers then is of another time: nothing of the first try is kept."""
    server.lists = [page(*pods("gone"), more="t1"), status(410), page(*pods("a"))]
    async with following(server, tmp_path, patience=CALM) as reflector:
        await until(holds(reflector, "a"))
        assert "continue" not in server.asked_lists()[2]


async def test_watch_events_are_folded(server: ScriptedApi, tmp_path: Path) -> None:
    """Added, modified, deleted; a pod that finishes leaves the state; only real differences count as changes."""
    a, b, c = pods("a", "b", "c")
    done = kube_json.pod("b", status={"phase": "Succeeded"})
    release = asyncio.Event()

    async def events(request: Any) -> Any:
        await release.wait()
        unchanged = {**a, "metadata": {**a["metadata"], "managedFields": []}}
        return await stream(
            change("ADDED", c, "11"),
            change("MODIFIED", unchanged, "12"),
            change("MODIFIED", done, "13"),
            change("DELETED", c, "14"),
        )(request)

    server.lists = [page(a, b)]
    server.watches = [events]
    async with following(server, tmp_path, patience=CALM) as reflector:
        await until(holds(reflector, "a", "b"))
        assert set(reflector.drain()) == {("Pod", "shop/a"), ("Pod", "shop/b")}
        release.set()
        await until(holds(reflector, "a"))
        assert reflector.drain() == {("Pod", "shop/b"): None, ("Pod", "shop/c"): None}
        assert reflector.drain() == {}


async def test_a_watch_goes_on_where_the_last_one_ended(server: ScriptedApi, tmp_path: Path) -> None:
    """Servers end watches now and then; bookmarks move the version on without an event. No list is needed."""
    server.watches = [
        stream(change("ADDED", kube_json.pod("a"), "11"), bookmark("15"), then="end"),
        stream(change("ADDED", kube_json.pod("b"), "16"), then="end"),
        stream(),
    ]
    async with following(server, tmp_path, patience=CALM) as reflector:
        await until(lambda: len(server.asked_watches()) == 3)
        assert holds(reflector, "a", "b")()
        assert [watch["resourceVersion"] for watch in server.asked_watches()] == ["10", "15", "16"]
        assert len(server.asked_lists()) == 1


@pytest.mark.parametrize("expired", [status(410), stream(broken(410))])
async def test_an_expired_version_means_a_new_list(server: ScriptedApi, tmp_path: Path, expired: Any) -> None:
    """As HTTP status or as an event within the watch; what vanished meanwhile is found by comparing."""
    server.lists = [page(*pods("a", "b")), page(*pods("b", "c"), version="20")]
    server.watches = [expired, stream()]
    async with following(server, tmp_path, patience=CALM) as reflector:
        await until(holds(reflector, "b", "c"))
        assert set(reflector.drain()) == {("Pod", "shop/a"), ("Pod", "shop/b"), ("Pod", "shop/c")}
        await until(lambda: len(server.asked_watches()) == 2)
        assert server.asked_watches()[1]["resourceVersion"] == "20"


async def test_a_silent_watch_means_that_the_state_is_unknown_and_a_new_list(
    server: ScriptedApi, tmp_path: Path
) -> None:
    """Neither event nor bookmark for two bookmark periods, and no list at once: nothing is believed until listed."""
    gate = asyncio.Event()
    calm = page(*pods("a"))

    async def slow(request: Any) -> Any:
        await gate.wait()
        return await calm(request)

    server.lists = [page(*pods("a")), slow]
    async with following(server, tmp_path) as reflector:
        await until(lambda: reflector.problem is not None and "neither event nor bookmark" in reflector.problem)
        gate.set()
        await until(holds(reflector, "a"))


@pytest.mark.slow
async def test_silence_on_a_kind_on_which_nothing_happens_is_no_problem(server: ScriptedApi, tmp_path: Path) -> None:
    """An API server sends it no bookmarks: it is listed at once, nobody is warned, the state stays known."""
    server.lists = [page(*pods("a"))]
    problems = set()

    def listed_often() -> bool:
        problems.add(reflector.problem)
        return len(server.asked_lists()) >= 4

    with capture_logs() as logs:
        async with following(server, tmp_path, patience=PATIENT) as reflector:
            await until(holds(reflector, "a"))
            problems.clear()
            await until(listed_often)
    assert problems == {None}
    assert [line for line in logs if line["log_level"] == "warning"] == []


async def test_a_watch_that_kept_changes_back_is_told(server: ScriptedApi, tmp_path: Path) -> None:
    """The list after the silence differs from what was known: the watch was dead."""
    server.lists = [page(*pods("a", "b")), page(*pods("b", "c", "d"))]
    with capture_logs() as logs:
        async with following(server, tmp_path, patience=PATIENT) as reflector:
            await until(holds(reflector, "b", "c", "d"))
    (told,) = [line for line in logs if line["log_level"] == "warning"]
    assert (told["kind"], told["changes"]) == ("Pod", 3)


async def test_bookmarks_are_a_sign_of_life(server: ScriptedApi, tmp_path: Path) -> None:
    """A quiet kind with bookmarks is never listed again."""

    async def ticking(request: Any) -> Any:
        response = web.StreamResponse()
        await response.prepare(request)
        for version in range(11, 25):
            await asyncio.sleep(QUICK.bookmark / 4)
            await response.write(
                f'{{"type":"BOOKMARK","object":{{"metadata":{{"resourceVersion":"{version}"}}}}}}\n'.encode()
            )
        return response

    server.watches = [ticking, stream(bookmark("99"))]
    async with following(server, tmp_path):
        await until(lambda: len(server.asked_watches()) == 2)
        assert len(server.asked_lists()) == 1
        assert server.asked_watches()[1]["resourceVersion"] == "24"


async def test_a_cut_connection_loses_nothing(server: ScriptedApi, tmp_path: Path) -> None:
    """What was cut within a line comes again from the last whole event on."""
    a, b = pods("a", "b")
    server.watches = [
        stream(change("ADDED", a, "11"), then="cut"),
        stream(change("ADDED", b, "12")),
    ]
    async with following(server, tmp_path, patience=CALM) as reflector:
        await until(holds(reflector, "a", "b"))
        assert [watch["resourceVersion"] for watch in server.asked_watches()] == ["10", "11"]
        assert len(server.asked_lists()) == 1


async def test_watches_that_fail_again_and_again_lead_to_a_new_list(server: ScriptedApi, tmp_path: Path) -> None:
    """A version from the future (a restored server) fails for ever; a list begins afresh."""
    server.lists = [page(*pods("a")), page(*pods("b"), version="5")]
    server.watches = [status(504), status(504), status(504), stream()]
    async with following(server, tmp_path, patience=CALM) as reflector:
        await until(holds(reflector, "b"))
        await until(lambda: len(server.asked_watches()) == 4)
        assert server.asked_watches()[3]["resourceVersion"] == "5"


@pytest.mark.parametrize("line", ["{", '{"type": "ADDED"}', '{"type": "MOVED", "object": {}}', '"hello"'])
async def test_a_line_that_is_no_event_means_a_new_list(server: ScriptedApi, tmp_path: Path, line: str) -> None:
    """What it was cannot be known, so neither can the state."""
    server.lists = [page(*pods("a")), page(*pods("a", "b"))]
    server.watches = [stream(line), stream()]
    async with following(server, tmp_path, patience=CALM) as reflector:
        await until(holds(reflector, "a", "b"))


async def test_an_unreadable_object_is_quarantined_until_it_is_mended(server: ScriptedApi, tmp_path: Path) -> None:
    """One malformed object changes its own identity only; the watch goes on from its version."""
    odd = kube_json.pod("a", containers=[kube_json.container(cpu="NaN")])
    server.lists = [page(*pods("a", "b"))]
    release = asyncio.Event()

    async def mended(request: Any) -> Any:
        await release.wait()
        return await stream(change("MODIFIED", kube_json.pod("a"), "12"))(request)

    server.watches = [stream(change("MODIFIED", odd, "11"), then="end"), mended]
    async with following(server, tmp_path, patience=CALM) as reflector:
        await until(lambda: list(keys(reflector)) == ["Pod shop/a", "shop/b"])
        changes = reflector.drain()
        assert changes["Pod", "shop/a"] is None
        assert isinstance(changes["Quarantined", "Pod shop/a"], Quarantined)
        await until(lambda: len(server.asked_watches()) == 2)
        assert server.asked_watches()[1]["resourceVersion"] == "11"
        release.set()
        await until(holds(reflector, "a", "b"))
        changes = reflector.drain()
        assert changes["Quarantined", "Pod shop/a"] is None
        assert isinstance(changes["Pod", "shop/a"], Pod)


async def test_objects_of_one_and_a_half_megabytes_pass(server: ScriptedApi, tmp_path: Path) -> None:
    """The largest objects that etcd holds come as one line."""
    big = kube_json.pod("big", metadata={"annotations": {"huge": "x" * 1_500_000}})
    server.watches = [stream(change("ADDED", big, "11"))]
    async with following(server, tmp_path, patience=CALM) as reflector:
        await until(holds(reflector, "big"))


@pytest.mark.parametrize("answer", [status(404), PLAIN])
async def test_a_kind_that_is_not_served_is_left_out_until_it_is(
    server: ScriptedApi, tmp_path: Path, answer: Any
) -> None:
    """404: a feature that this cluster lacks (a CRD may come later). One log line, not one for each try."""
    server.lists = [answer]
    server.discovery["/api/v1"] = {"resources": [{"name": "nodes"}]}
    with capture_logs() as logs:
        async with following(server, tmp_path, resource=OPTIONAL, patience=CALM) as reflector:
            await until(lambda: len(server.asked) >= 4)
            assert reflector.off
            assert [line["event"] for line in logs] == ["kind is left out"]
            server.lists[:] = [page(*pods("a"))]
            await until(holds(reflector, "a"))
            assert not reflector.off


@pytest.mark.parametrize("answer", [status(404), PLAIN])
async def test_a_404_never_empties_an_essential_kind(server: ScriptedApi, tmp_path: Path, answer: Any) -> None:
    """Whoever sends it: the last list stays, the kind counts as not followed, and is listed again as soon as can be."""
    server.lists = [page(*pods("a")), answer]
    server.watches = [stream(broken(410)), stream()]
    server.discovery["/api/v1"] = {"resources": []}
    async with following(server, tmp_path, patience=CALM) as reflector:
        await until(lambda: reflector.problem is not None and "404" in reflector.problem)
        assert list(keys(reflector)) == ["shop/a"]
        assert not reflector.off
        server.lists[:] = [page(*pods("a", "b"))]
        await until(holds(reflector, "a", "b"))


@pytest.mark.parametrize("gone", [True, False])
async def test_a_sudden_loss_is_believed_from_the_second_list_on(
    server: ScriptedApi, tmp_path: Path, gone: bool
) -> None:
    """A list that lacks many known pods leaves the state unknown and the copy as it is, until another confirms it."""
    asked: list[str | None] = []
    rest = pods("a") if gone else pods("a", "b", "c")

    async def confirming(_: web.Request) -> web.StreamResponse:
        if not asked:
            asked.append(reflector.problem)
            assert len(list(reflector.contents())) == 3
        return await page(*rest, version="30")(_)

    expired = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}}
    server.lists = [page(*pods("a", "b", "c"), version="10"), page(*pods("a"), version="20"), confirming]
    server.watches = [stream(expired), *server.watches]
    async with following(server, tmp_path, patience=CALM) as reflector:
        await until(lambda: asked)
        await until(holds(reflector, "a") if gone else holds(reflector, "a", "b", "c"))
    assert asked[0] is not None
    assert "2 of 3 objects are missing" in asked[0]


async def test_a_404_of_a_load_balancer_turns_nothing_off(server: ScriptedApi, tmp_path: Path) -> None:
    """A kind that is not essential is believed to be absent only where a `Status` or discovery says that it is."""
    server.lists = [page(*pods("a")), PLAIN]
    server.watches = [stream(broken(410)), stream()]
    server.discovery["/api/v1"] = {"resources": [{"name": "pods"}]}
    async with following(server, tmp_path, resource=OPTIONAL, patience=CALM) as reflector:
        await until(lambda: len(server.asked_lists()) >= 6)
        assert list(keys(reflector)) == ["shop/a"]
        assert not reflector.off
        assert reflector.problem is not None


async def test_a_right_that_is_taken_away_stops_the_capability(server: ScriptedApi, tmp_path: Path) -> None:
    """403 on a kind that is not essential: left out, and what was known of it is gone from the state."""
    server.lists = [page(*pods("a")), status(403)]
    server.watches = [stream(broken(410))]
    async with following(server, tmp_path, resource=OPTIONAL, patience=CALM) as reflector:
        await until(lambda: reflector.off)
        assert list(reflector.contents()) == []
        assert reflector.drain() == {("Pod", "shop/a"): None}


async def test_an_essential_kind_that_is_denied_leaves_the_state_unknown(server: ScriptedApi, tmp_path: Path) -> None:
    """403 on pods: nothing is forgotten, but it is known that it may be out of date. One log line."""
    server.lists = [page(*pods("a")), status(403, "pods is forbidden")]
    server.watches = [stream(broken(410))]
    with capture_logs() as logs:
        async with following(server, tmp_path, patience=CALM) as reflector:
            await until(lambda: reflector.problem is not None and "forbidden" in reflector.problem)
            await until(lambda: len(server.asked_lists()) >= 4)
            assert list(keys(reflector)) == ["shop/a"]
            assert not reflector.off
    assert [line["event"] for line in logs].count("kind cannot be followed") == 1


@pytest.mark.parametrize("answer", [status(500), status(429, retry_after="0"), text("<html>"), text('{"items": []}')])
async def test_a_server_in_trouble_is_asked_again(server: ScriptedApi, tmp_path: Path, answer: Any) -> None:
    """Errors of the server, too many requests, an answer from a proxy: wait, then list."""
    server.lists = [answer, page(*pods("a"))]
    async with following(server, tmp_path, patience=CALM) as reflector:
        await until(holds(reflector, "a"))


async def test_a_server_that_is_away_is_one_clear_line(tmp_path: Path) -> None:
    """Connection refused: the problem names the address; no traceback."""
    api = await connect(kubeconfig(tmp_path / "k", "http://127.0.0.1:9"), context="")
    reflector = Reflector(PODS, api, patience=CALM, chance=random.Random(1))
    task = asyncio.create_task(reflector.run())
    await until(lambda: "127.0.0.1:9" in (reflector.problem or ""))
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await api.close()
    assert reflector.problem is not None
    assert "\n" not in reflector.problem
