"""Kinema's own client against the simulated API server and a real one."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from kinema_kubernetes.client import Client, connect
from kinema_kubernetes.errors import ConflictError, DeniedError, NotFoundError, UnavailableError
from kinema_kubernetes.objects import uid
from kinema_kubernetes.watch import Window, consistent, watch

if TYPE_CHECKING:
    from tests.contract.kube_api.conftest import Endpoint, Kube

VERTICALS = "/apis/autoscaling.k8s.io/v1/verticalpodautoscalers"


def kubeconfig(endpoint: Endpoint, path: Path, token: str) -> str:
    """A kubeconfig for that server."""
    authority = {"certificate-authority": str(endpoint.authority)} if endpoint.authority is not None else {}
    content = {
        "clusters": [{"name": "c", "cluster": {"server": endpoint.url, **authority}}],
        "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path.write_text(json.dumps(content))
    return str(path)


@pytest.fixture
async def client(endpoint: Endpoint, tmp_path: Path) -> AsyncIterator[Client]:
    """A connection by a kubeconfig."""
    found = await connect(kubeconfig(endpoint, tmp_path / "kubeconfig", endpoint.token))
    yield found
    await found.close()


async def test_an_object_comes_changes_and_goes(client: Client, kube: Kube) -> None:
    """Only as it was read, and only the one that is meant; what is gone is known by the server's own word."""
    path = f"{kube.core}/configmaps/c"
    made = await client.create(f"{kube.core}/configmaps", {"metadata": {"name": "c"}, "data": {"a": "1"}})
    with pytest.raises(ConflictError):
        await client.create(f"{kube.core}/configmaps", {"metadata": {"name": "c"}})
    changed, done = await client.modify(path, lambda _: {"data": {"a": "2"}})
    assert (changed["data"], done) == ({"a": "2"}, True)
    with pytest.raises(ConflictError):
        await client.delete(path, uid(made), version=made["metadata"]["resourceVersion"])
    await client.delete(path, uid(made))
    with pytest.raises(NotFoundError) as gone:
        await client.get(path)
    assert (gone.value.kind, gone.value.namespace, gone.value.name) == ("configmaps", kube.namespace, "c")


async def test_what_is_not_served_is_known_by_discovery(client: Client) -> None:
    """The answer to a request for it could be a load balancer's."""
    with pytest.raises(UnavailableError) as plain:
        await client.read(VERTICALS)
    assert plain.value.status == 404
    assert await client.is_left_out(VERTICALS, plain.value)
    assert not await client.is_left_out("/api/v1/pods", plain.value)
    assert {"deployments", "replicasets"} <= await client.served("/apis/apps/v1")


async def test_a_wrong_token_is_denied(endpoint: Endpoint, tmp_path: Path) -> None:
    """After the credentials were read again."""
    stranger = await connect(kubeconfig(endpoint, tmp_path / "kubeconfig", "wrong"))
    with pytest.raises(DeniedError):
        await stranger.get("/api/v1/nodes")
    await stranger.close()


async def test_a_list_and_a_watch_make_one_story(client: Client, kube: Kube, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read all pages of a list, then every later change; the ConfigMap that Kubernetes adds by itself is left out."""
    monkeypatch.setattr("kinema_kubernetes.watch.PAGE", 2)
    for number in range(5):
        await kube.config_map(f"c{number}")
    path = f"{kube.core}/configmaps"
    found = await consistent(client, path, _Page)
    names = [item["metadata"]["name"] for page in found for item in page.body["items"]]
    assert [name for name in names if name.startswith("c")] == [f"c{number}" for number in range(5)]
    await client.patch(f"{path}/c3", {"data": {"a": "2"}})
    seen: list[tuple[str, str]] = []
    version = found[0].body["metadata"]["resourceVersion"]

    def take(change: str, item: msgspec.Raw) -> None:
        seen.append((change, msgspec.json.decode(item)["metadata"]["name"]))

    window = Window(path, version, seconds=1, silence=20)
    await watch(client, window, opened=lambda: None, bookmark=lambda _: None, take=take)
    assert [(change, name) for change, name in seen if name.startswith("c")] == [("MODIFIED", "c3")]


@dataclass
class _Page:
    raw: bytes

    @property
    def body(self) -> Any:
        return msgspec.json.decode(self.raw)

    @property
    def more(self) -> str | None:
        token: str | None = self.body["metadata"].get("continue")
        return token
