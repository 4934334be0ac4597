"""The API server under test: the simulated one by default, any other through an environment variable."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest

from kinema_sim.front.server import Server
from kinema_sim.scenarios.registry import SCENARIOS

ENDPOINT = "KINEMA_KUBE_API"
"""Names a server to test instead: JSON with `url` and `token`. It must run pods (KWOK nodes will do)."""

_PATIENCE_SECONDS = 60.0


@dataclass(frozen=True)
class Endpoint:
    """Where an API server listens, and the token that opens it."""

    url: str
    token: str


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    """Give a running API server with at least three nodes that run pods."""
    given = os.environ.get(ENDPOINT)
    if given:
        yield Endpoint(**json.loads(given))
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
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
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
    async with aiohttp.ClientSession(endpoint.url, headers=headers) as session:
        client = Kube(session, namespace)
        await client.done("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        yield client
        await client.call("DELETE", f"/api/v1/namespaces/{namespace}")
