"""The HTTP front as a process sees it: authentication, faults, cloud API, simulator API, start and stop."""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from kinema_sim.front.server import Server
from kinema_sim.scenarios.registry import SCENARIOS

TOKEN = "secret"
HEADERS = {"Authorization": f"Bearer {TOKEN}"}
NODE = {
    "name": "x1",
    "machine_type": "e2-standard-2",
    "zone": "europe-west3-a",
    "capacity_type": "on-demand",
    "operation": "op-1",
    "labels": {"team": "a"},
    "taints": [],
}


class Client:
    """Calls the server and gives status and decoded body."""

    def __init__(self, session: aiohttp.ClientSession, port: int) -> None:
        self.session = session
        self.port = port

    async def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Send one request."""
        async with self.session.request(method, path, json=body) as response:
            return response.status, await response.json(content_type=None)

    async def until(self, path: str, wanted: Any) -> Any:
        """Ask until the answer satisfies a test, at most two hundred times."""
        for _ in range(200):
            _, body = await self.call("GET", path)
            if wanted(body):
                return body
            await asyncio.sleep(0.02)
        raise AssertionError(f"{path} never answered as wanted: {body}")


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    """Serve the tiny scenario at a hundredfold speed."""
    server = Server(SCENARIOS["tiny"](0), speed=100.0, token=TOKEN)
    address = await server.start()
    async with aiohttp.ClientSession(address.url, headers=HEADERS) as session:
        yield Client(session, address.port)
    await server.stop()


async def test_callers_must_show_the_token(client: Client) -> None:
    """Without the token everything but probes and version is refused with a Status."""
    plain = {"Authorization": "Bearer wrong"}
    async with client.session.get("/api/v1/nodes", headers=plain) as response:
        body = await response.json()
        assert (response.status, body["kind"], body["reason"]) == (401, "Status", "Unauthorized")
    async with client.session.get("/readyz", headers=plain) as response:
        assert response.status == 200


async def test_unknown_paths_answer_without_a_status(client: Client) -> None:
    """A group that is not there, and a path outside all APIs, answer a plain 404, as a real API server does."""
    for path in ("/apis/autoscaling.k8s.io/v1/verticalpodautoscalers", "/nowhere"):
        async with client.session.get(path) as response:
            assert (response.status, await response.text()) == (404, "404 page not found\n")


async def test_injected_faults_hit_matching_requests_and_run_out(client: Client) -> None:
    """Two requests of one method to one path fail as told; other requests and the third one do not."""
    fault = {"type": "api", "method": "GET", "path": "^/api/v1/nodes$", "status": 503, "count": 2}
    assert (await client.call("POST", "/sim/v1/faults", fault))[0] == 201
    assert (await client.call("GET", "/api/v1/pods"))[0] == 200
    codes = [(await client.call("GET", "/api/v1/nodes"))[0] for _ in range(3)]
    assert codes == [503, 503, 200]


async def test_faults_can_be_lifted(client: Client) -> None:
    """After clearing, nothing fails any more; an unknown fault is refused."""
    await client.call("POST", "/sim/v1/faults", {"type": "api", "path": "nodes", "count": 9})
    await client.call("DELETE", "/sim/v1/faults")
    assert (await client.call("GET", "/api/v1/nodes"))[0] == 200
    assert (await client.call("POST", "/sim/v1/faults", {"type": "earthquake"}))[0] == 400


async def test_a_lost_reply_was_carried_out(client: Client) -> None:
    """The connection breaks, and the object is there nevertheless."""
    await client.call("POST", "/sim/v1/faults", {"type": "lose-reply", "method": "POST", "path": "configmaps"})
    body = {"metadata": {"name": "lost"}}
    with pytest.raises(aiohttp.ClientError):
        await client.call("POST", "/api/v1/namespaces/shop/configmaps", body)
    assert (await client.call("GET", "/api/v1/namespaces/shop/configmaps/lost"))[0] == 200


async def _watch(client: Client, **query: str) -> aiohttp.ClientResponse:
    params = {"watch": "true", "timeoutSeconds": "30", **query}
    return await client.session.get("/api/v1/namespaces/shop/configmaps", params=params)


async def test_watches_can_be_cut(client: Client) -> None:
    """A cut watch ends as a broken connection and not as the end of a stream."""
    response = await _watch(client)
    await client.call("POST", "/sim/v1/faults", {"type": "watch-cut", "path": "configmaps"})
    with pytest.raises(aiohttp.ClientPayloadError):
        await response.content.read()
    response.close()


async def test_watches_can_fall_silent(client: Client) -> None:
    """A silent watch stays open without a word while things change, and ends when the fault is lifted."""
    response = await _watch(client, allowWatchBookmarks="true")
    await client.call("POST", "/sim/v1/faults", {"type": "watch-silent", "path": "configmaps"})
    await client.call("POST", "/api/v1/namespaces/shop/configmaps", {"metadata": {"name": "unseen"}})
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(response.content.readline(), timeout=0.3)
    await client.call("DELETE", "/sim/v1/faults")
    assert await response.content.read() == b""
    response.close()


async def test_forgotten_history_answers_410(client: Client) -> None:
    """After the history is dropped, a watch from an old version gets an ERROR event with code 410."""
    _, listed = await client.call("GET", "/api/v1/namespaces/shop/configmaps")
    await client.call("POST", "/api/v1/namespaces/shop/configmaps", {"metadata": {"name": "c"}})
    await client.call("POST", "/sim/v1/faults", {"type": "history"})
    response = await _watch(client, resourceVersion=listed["metadata"]["resourceVersion"])
    event = json.loads(await response.content.readline())
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")
    response.close()


async def test_offers_and_nodes(client: Client) -> None:
    """The catalog names source, date and currency, and the nodes of the scenario are the cloud's."""
    _, offers = await client.call("GET", "/cloud/v1/offers")
    assert (offers["currency"], offers["date"], len(offers["offers"])) == ("USD", "2024-06-01", 30)
    assert offers["offers"][0] == {
        "machine_type": "e2-standard-2",
        "zone": "europe-west3-a",
        "capacity_type": "on-demand",
        "vcpus": 2,
        "memory_bytes": 8 * 1024**3,
        "usd_per_hour": 0.09,
        "available": None,
        "watts": 11,
        "max_pods": 110,
        "allocatable_cpu_m": 1930,
        "allocatable_memory_bytes": 6552341708,
        "labels": {},
        "taints": [],
    }
    _, nodes = await client.call("GET", "/cloud/v1/nodes")
    assert [node["name"] for node in nodes] == ["tiny-1", "tiny-2", "tiny-3"]
    assert nodes[0]["state"] == "running"


async def test_booting_and_deleting_over_http(client: Client) -> None:
    """An order goes from running to done, the node appears with its labels, and a deletion takes it away."""
    status, body = await client.call("POST", "/cloud/v1/nodes", NODE)
    assert (status, body["operation"]["state"], body["operation"]["kind"]) == (202, "running", "boot")
    assert (await client.call("POST", "/cloud/v1/nodes", {**NODE, "operation": "op-2"}))[1]["operation"]["id"] == "op-2"
    await client.until("/cloud/v1/operations/op-1", lambda body: body["operation"]["state"] == "done")
    _, node = await client.call("GET", "/api/v1/nodes/x1")
    assert node["metadata"]["labels"]["team"] == "a"
    status, body = await client.call("DELETE", "/cloud/v1/nodes/x1?operation=op-3")
    assert (status, body["operation"]["node"]) == (202, "x1")
    await client.until("/cloud/v1/operations/op-3", lambda body: body["operation"]["state"] == "done")
    assert (await client.call("GET", "/api/v1/nodes/x1"))[0] == 404


@pytest.mark.parametrize(
    ("fault", "body", "status", "kind"),
    [
        ({"type": "cloud-permission"}, NODE, 403, "permission"),
        ({"type": "cloud-quota", "vcpus": 1}, NODE, 403, "quota"),
        ({"type": "api", "path": "/cloud/", "status": 503}, NODE, 503, "transient"),
        (None, {**NODE, "name": "tiny-1", "machine_type": "e2-standard-4"}, 409, "conflict"),
        (None, {**NODE, "machine_type": "m1"}, 404, "not-found"),
        (None, {"name": "x1"}, 409, "conflict"),
    ],
)
async def test_cloud_refusals_have_a_class(client: Client, fault: Any, body: Any, status: int, kind: str) -> None:
    """Every refusal carries the class by which a caller decides what to do."""
    if fault is not None:
        await client.call("POST", "/sim/v1/faults", fault)
    answer = await client.call("POST", "/cloud/v1/nodes", body)
    assert (answer[0], answer[1]["error"]["class"]) == (status, kind)


async def test_a_stock_out_over_http(client: Client) -> None:
    """A sold-out offer fails its operation and shows no machines left."""
    offer = "e2-standard-2/europe-west3-a/on-demand"
    await client.call("POST", "/sim/v1/faults", {"type": "stock-out", "offer": offer})
    assert (await client.call("POST", "/cloud/v1/nodes", NODE))[0] == 202
    body = await client.until("/cloud/v1/operations/op-1", lambda body: body["operation"]["state"] == "failed")
    assert body["operation"]["error"]["class"] == "stock-out"
    _, offers = await client.call("GET", "/cloud/v1/offers")
    assert offers["offers"][0]["available"] == 0


async def test_clock_history_and_load(client: Client) -> None:
    """The clock runs, history answers from a time on, and load is only taken for known applications."""
    _, clock = await client.call("GET", "/sim/v1/clock")
    assert clock["speed"] == 100.0
    later = await client.until(f"/sim/v1/history?since={clock['now']}", lambda body: body["samples"])
    _, history = await client.call("GET", "/sim/v1/history")
    assert history["samples"][0]["time"] < clock["now"] < later["samples"][0]["time"]
    assert (await client.call("GET", "/sim/v1/history?since=yesterday"))[0] == 400
    assert (await client.call("POST", "/sim/v1/load", {"unknown": 1}))[0] == 404


async def test_load_over_http_changes_usage() -> None:
    """Setting users of an application takes effect at once."""
    cluster = SCENARIOS["after-peak"](0)
    server = Server(cluster, speed=1.0)
    address = await server.start()
    async with aiohttp.ClientSession(address.url) as session:
        async with session.post("/sim/v1/load", json={"teastore": 300}) as response:
            assert (await response.json())["users"] == {"online-boutique": 80, "teastore": 300}
        async with session.post("/sim/v1/load", json={"teastore": -1}) as response:
            assert response.status == 400
    await server.stop()
    assert cluster.load.flow("teastore").requests_per_1000s > 60_000


async def test_the_process_starts_serves_and_stops(tmp_path: Path) -> None:
    """The command prints one JSON line, writes a kubeconfig, and ends cleanly on SIGTERM with a watch open."""
    kubeconfig = tmp_path / "kubeconfig"
    command = ["-m", "kinema_sim", "--scenario", "tiny", "--kubeconfig", str(kubeconfig), "--token", TOKEN]
    process = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    ready = json.loads(await asyncio.wait_for(process.stdout.readline(), timeout=30))
    config = json.loads(kubeconfig.read_text(encoding="utf-8"))
    assert config["clusters"][0]["cluster"]["server"] == ready["url"] == f"http://127.0.0.1:{ready['port']}"
    assert config["users"][0]["user"]["token"] == TOKEN
    async with aiohttp.ClientSession(ready["url"], headers=HEADERS) as session:
        response = await session.get("/api/v1/nodes", params={"watch": "true"})
        assert json.loads(await response.content.readline())["type"] == "ADDED"
        process.send_signal(signal.SIGTERM)
        await response.content.read()
        assert await asyncio.wait_for(process.wait(), timeout=10) == 0


async def test_a_taken_port_is_one_clear_line(client: Client) -> None:
    """A port that is in use ends the process with one line and no traceback."""
    command = ["-m", "kinema_sim", "--scenario", "tiny", "--port", str(client.port)]
    process = await asyncio.create_subprocess_exec(sys.executable, *command, stderr=asyncio.subprocess.PIPE)
    _, errors = await process.communicate()
    assert process.returncode == 1
    assert errors.startswith(b"cannot serve: ")
    assert errors.count(b"\n") == 1


async def test_bookmarks_come_though_other_objects_change(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """A watch whose selector hides all changes still hears a bookmark with the newest version."""
    monkeypatch.setattr("kinema_sim.front.watch.BOOKMARK_SECONDS", 0.2)
    response = await _watch(client, allowWatchBookmarks="true", resourceVersion="0", labelSelector="never=seen")

    async def keep_busy() -> None:
        for number in range(100):
            await client.call("POST", "/api/v1/namespaces/shop/configmaps", {"metadata": {"name": f"b{number}"}})
            await asyncio.sleep(0.02)

    busy = asyncio.create_task(keep_busy())
    event = json.loads(await asyncio.wait_for(response.content.readline(), timeout=10))
    busy.cancel()
    response.close()
    assert event["type"] == "BOOKMARK"
    assert int(event["object"]["metadata"]["resourceVersion"]) > 0


async def test_a_speed_of_nothing_is_refused() -> None:
    """A speed that is not positive is a usage error with one clear line."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "kinema_sim", "--speed", "0", stderr=asyncio.subprocess.PIPE
    )
    _, errors = await process.communicate()
    assert (process.returncode, errors) == (2, b"--speed must be positive, not 0.0\n")
