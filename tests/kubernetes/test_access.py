"""How the observer gets to its API server: credentials, kubeconfigs, back-off."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.observer.adapters.test_reflector import pods
from tests.observer.scripted_api import (
    ScriptedApi,
    connected,
    kubeconfig,
    page,
    silent,
    status,
)

from kinema_kubernetes.backoff import BackOff
from kinema_kubernetes.client import connect
from kinema_kubernetes.errors import SetupError, UnavailableError
from kinema_observer.adapters.reflector import Resource

PODS = Resource("Pod", "/api/v1/pods")


@pytest.fixture
async def server() -> AsyncIterator[ScriptedApi]:
    """A scripted server that waits in silence on watches unless told otherwise."""
    async with silent() as scripted:
        yield scripted


async def test_refused_credentials_are_read_again_once(server: ScriptedApi, tmp_path: Path) -> None:
    """401: the kubeconfig may hold a fresh token by now."""
    api = await connected(server, tmp_path)
    kubeconfig(tmp_path / "kubeconfig", server.url, token="t1")
    server.lists = [status(401), page(*pods("a"))]
    answer = await api.read("/api/v1/pods")
    await api.close()
    assert b"uid-shop-a" in answer.body
    assert [authorization for _, _, authorization in server.asked] == ["Bearer t0", "Bearer t1"]


async def test_a_kubeconfig_that_leads_elsewhere_by_now_is_not_followed(server: ScriptedApi, tmp_path: Path) -> None:
    """Another cluster's pods must not be taken for this one's."""
    api = await connected(server, tmp_path)
    server.lists = [status(401)]
    async with silent() as other:
        kubeconfig(tmp_path / "kubeconfig", other.url)
        with pytest.raises(UnavailableError, match="leads to another cluster"):
            await api.read("/api/v1/pods")
        assert other.asked == []
    await api.close()


@pytest.mark.parametrize("content", [None, "clusters: 3", "{}"])
async def test_a_kubeconfig_that_cannot_be_used_is_one_clear_error(tmp_path: Path, content: str | None) -> None:
    """Missing or malformed: the error names the file."""
    path = tmp_path / "kubeconfig"
    if content is not None:
        path.write_text(content)
    with pytest.raises(SetupError, match=str(path)):
        await connect(str(path), context="")


async def test_outside_a_cluster_the_error_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without kubeconfig and service account."""
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(SetupError, match="set `kubeconfig`"):
        await connect("", context="")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("hello\n", "this is no kubeconfig"),
        ("contexts: [{name: one}, {name: two}]\n", "no context 'nope' in it; there are: one, two"),
        ("clusters: []\n", "there are: none"),
    ],
)
async def test_what_a_kubeconfig_lacks_is_told(content: str, said: str, tmp_path: Path) -> None:
    """Not in the words of the client's own exceptions."""
    path = tmp_path / "config"
    path.write_text(content)
    with pytest.raises(SetupError, match=said):
        await connect(str(path), context="nope")


def test_back_off_doubles_to_its_bound_and_begins_anew_after_a_reset() -> None:
    """Full jitter between a tenth of the bound and the bound, on top of what the server asks for."""
    waits = BackOff(shortest=0.5, longest=30, chance=random.Random(3))
    bounds = [0.5, 1, 2, 4, 8, 16, 30, 30]
    for bound in bounds:
        assert bound / 10 <= waits.next() <= bound
    assert 45 < waits.next(at_least=45) <= 75
    waits.reset()
    assert waits.next() <= 0.5
