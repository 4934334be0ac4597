"""The API servers under test: the simulated one and a real one."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.controlplane.nodes import QUICK, node, nodes_for_a_while
from tests.controlplane.plane import ControlPlane

from kinema_sim.front.server import Server
from kinema_sim.scenarios.registry import SCENARIOS

_PATIENCE_SECONDS = 60.0


@dataclass(frozen=True)
class Endpoint:
    """Where an API server listens, the token that opens it, and what its certificate is checked against."""

    url: str
    token: str
    tls: ssl.SSLContext | bool = True
    authority: Path | None = None
    """File of that certificate."""


@pytest.fixture(scope="module")
def real(control_plane: ControlPlane) -> Iterator[Endpoint]:
    """The real API server, with three nodes."""
    admin = control_plane.admin
    with nodes_for_a_while(admin, *(node(f"contract-{count}") for count in range(3))):
        yield Endpoint(admin.url, admin.token, admin.tls(), admin.authority)


@pytest.fixture(params=["simulated", pytest.param("real", marks=pytest.mark.cluster)])
async def endpoint(request: pytest.FixtureRequest) -> AsyncIterator[Endpoint]:
    """Give each API server in turn, with at least three nodes that run pods."""
    if request.param == "real":
        yield request.getfixturevalue("real")
        return
    server = Server(SCENARIOS["tiny"](0), speed=50.0, token="contract")
    address = await server.start()
    yield Endpoint(address.url, "contract")
    await server.stop()


class Kube:
    """A bare client: requests in, status and JSON out. Works in a namespace of its own."""

    def __init__(self, session: aiohttp.ClientSession, namespace: str) -> None:
        self.session = session
        self.namespace = namespace
        self.core = f"/api/v1/namespaces/{namespace}"
        self.apps = f"/apis/apps/v1/namespaces/{namespace}"
        self.policy = f"/apis/policy/v1/namespaces/{namespace}"

    async def call(
        self, method: str, path: str, body: Any = None, *, content_type: str = "application/json", **query: str
    ) -> tuple[int, Any]:
        """Send one request."""
        data = None if body is None else json.dumps(body)
        headers = {"Content-Type": content_type}
        async with self.session.request(method, path, data=data, headers=headers, params=query) as response:
            return response.status, await response.json(content_type=None)

    async def done(self, method: str, path: str, body: Any = None, **more: str) -> Any:
        """Send a request that must succeed; give its body."""
        status, answer = await self.call(method, path, body, **more)
        assert status in (200, 201, 202), answer
        return answer

    async def until(self, path: str, wanted: Callable[[Any], bool], **query: str) -> Any:
        """Read again and again until the answer is as wanted."""
        async with asyncio.timeout(_PATIENCE_SECONDS):
            while True:
                _, answer = await self.call("GET", path, **query)
                if wanted(answer):
                    return answer
                await asyncio.sleep(0.05)

    async def config_map(self, name: str, **data: str) -> Any:
        """Create a ConfigMap."""
        return await self.done("POST", f"{self.core}/configmaps", {"metadata": {"name": name}, "data": data})

    async def deployment(self, name: str, replicas: int) -> Any:
        """Create a Deployment and wait until all its pods are ready."""
        labels = {"app": name}
        container = {"name": "c", "image": "example/none:1", "resources": {"requests": {"cpu": "10m"}}}
        spec = {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels, "annotations": dict(QUICK)},
                "spec": {"containers": [container]},
            },
        }
        await self.done("POST", f"{self.apps}/deployments", {"metadata": {"name": name}, "spec": spec})
        path = f"{self.apps}/deployments/{name}"
        return await self.until(path, lambda found: found["status"].get("readyReplicas") == replicas)

    async def pods(self, name: str) -> list[Any]:
        """List the pods of a Deployment."""
        listed = await self.done("GET", f"{self.core}/pods", labelSelector=f"app={name}")
        found: list[Any] = listed["items"]
        return found


@pytest.fixture
async def kube(endpoint: Endpoint, request: pytest.FixtureRequest) -> AsyncIterator[Kube]:
    """Give a client with a fresh namespace."""
    name = request.node.name.replace("_", "-").replace("[", "-").replace("]", "").replace(".", "-").lower()
    namespace = name[:60].rstrip("-")
    headers = {"Authorization": f"Bearer {endpoint.token}"}
    connector = aiohttp.TCPConnector(ssl=endpoint.tls)
    async with aiohttp.ClientSession(endpoint.url, headers=headers, connector=connector) as session:
        client = Kube(session, namespace)
        await client.done("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        yield client
        await client.call("DELETE", f"/api/v1/namespaces/{namespace}")
