"""The provider `karpenter` on the real Karpenter 1.15, whose own provider makes nodes that KWOK runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from benchmarks.karpenter import POOL, consolidate, running_karpenter
from tests.contract.provider.orders import ended, offer
from tests.controlplane.access import Access
from tests.controlplane.plane import ControlPlane, Options, running
from tests.controlplane.server import Server

from kinema_core.model.catalog import offers_from, parse_catalog
from kinema_core.model.cluster import Cluster
from kinema_core.model.stock import most_of
from kinema_kubernetes.objects import labels_of
from kinema_rescheduler.errors import NotFoundError, PermanentError, TransientError
from kinema_rescheduler.kubernetes.fenced import FencedClient, connect
from kinema_rescheduler.kubernetes.rights import OF_PROVIDER
from kinema_rescheduler.providers.karpenter import NODE_CLAIMS, KarpenterProvider
from kinema_rescheduler.settings import KarpenterSettings

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

PRICES = """# prices of 2026-11-01
machine_type,vcpus,memory_gib,usd_per_hour,zone
m2,2,8,0.09,zone-a
m4,4,16,0.17,zone-a
m4,4,16,0.17,zone-b
"""
OFFERS = offers_from(parse_catalog(PRICES), Cluster())
CLASS = "/apis/karpenter.kwok.sh/v1alpha1/kwoknodeclasses/usual"


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane of its own: Karpenter deletes nodes of its kind that it does not know."""
    with running(tmp_path_factory.mktemp("karpenter-plane"), Options()) as found:
        yield found


@pytest.fixture(scope="module")
def karpenter(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The real Karpenter, with one NodePool, `all`."""
    with running_karpenter(plane, OFFERS, tmp_path_factory.mktemp("karpenter")) as server:
        yield server


@pytest.fixture
async def api(plane: ControlPlane, karpenter: Server, tmp_path: Path) -> AsyncIterator[FencedClient]:
    """A connection; NodeClaims and their nodes go afterwards."""
    api = await connect(str(plane.admin.write_kubeconfig(tmp_path / "admin")))
    yield api
    for claim in await api.items(NODE_CLAIMS):
        with suppress(NotFoundError):
            await api.delete(f"{NODE_CLAIMS}/{claim['metadata']['name']}", claim["metadata"]["uid"])
    async with asyncio.timeout(60):
        while await api.items(NODE_CLAIMS):  # noqa: ASYNC110 - Karpenter reports to the API server alone
            await asyncio.sleep(0.2)
    await api.close()


@pytest.fixture
def make(api: FencedClient, tmp_path: Path) -> Callable[[], KarpenterProvider]:
    """Makes providers, each as a process that has just started has it."""
    (tmp_path / "prices.csv").write_text(PRICES, encoding="utf-8")
    settings = KarpenterSettings(node_pool="all", catalog=str(tmp_path / "prices.csv"))
    return lambda: KarpenterProvider(api, settings)


async def node(api: FencedClient, name: str) -> dict[str, Any]:
    """A node once it is Ready."""
    async with asyncio.timeout(60):
        while True:
            found = await api.get(f"/api/v1/nodes/{name}")
            conditions = {one["type"]: one["status"] for one in found["status"].get("conditions") or ()}
            if conditions.get("Ready") == "True":
                return found
            await asyncio.sleep(0.2)


def limit(plane: ControlPlane, limits: dict[str, str] | None) -> None:
    """Set the NodePool's limits."""
    body = {"spec": {"limits": limits}}
    plane.admin.request("PATCH", POOL, body, content_type="application/merge-patch+json")


async def paid(api: FencedClient, order: str) -> list[str]:
    """Machines that are paid for by orders of a name or its beginning.

    Of other tests some may be left: Karpenter's KWOK cloud makes the node of a NodeClaim that was deleted before it
    registered all the same.
    """
    names = [str(item["metadata"]["name"]) for item in await api.items("/api/v1/nodes")]
    return [name for name in names if name.startswith(f"kwok-{order}")]


async def test_exactly_the_planned_node_comes_and_goes(
    api: FencedClient, make: Callable[[], KarpenterProvider]
) -> None:
    """The node has the offer's type, zone, capacity type, labels and room; of three, the one that is deleted goes."""
    provider = make()
    sold = await offer(provider, "m4", "zone-b")
    begun = [await provider.boot(f"exact-{number}", sold, f"op-{number}") for number in range(3)]
    booted = [await ended(provider, one) for one in begun]
    assert [one.state for one in booted] == ["done"] * 3, booted
    found = await node(api, booted[0].node)
    assert {key: labels_of(found).get(key) for key in sold.labels} == dict(sold.labels)
    assert labels_of(found)["karpenter.sh/capacity-type"] == "on-demand"
    allocatable = found["status"]["allocatable"]
    assert (allocatable["memory"], allocatable["pods"]) == (str(sold.allocatable["memory"]), "110")
    assert await provider.nodes() == tuple(sorted(one.node for one in booted))
    gone = await ended(provider, await provider.delete(booted[1].node, "op-4"))
    assert gone.state == "done"
    assert await provider.nodes() == tuple(sorted((booted[0].node, booted[2].node)))
    assert await paid(api, "exact-") == sorted((booted[0].node, booted[2].node))


async def test_whoever_takes_over_adopts(api: FencedClient, make: Callable[[], KarpenterProvider]) -> None:
    """An order outlives its process: by its name it is found, bought once, and can be taken back."""
    sold = await offer(make())
    begun = await make().boot("kinema-1", sold, "op-1")
    after = make()
    first = await ended(after, await after.boot("kinema-1", sold, "op-1"))
    assert first.state == "done"
    assert (await after.boot("kinema-1", sold, "op-2")) == first
    assert (await make().operation(begun.id)) == first
    assert len(await api.items(NODE_CLAIMS)) == 1
    big = await offer(after, "m4")
    with pytest.raises(PermanentError) as caught:
        await after.boot("kinema-1", big, "op-3")
    assert caught.value.reason == "conflict"
    await after.boot("kinema-2", sold, "op-4")
    assert (await ended(make(), await make().delete("kinema-2", "op-5"))).state == "done"
    assert await make().nodes() == (first.node,)


async def test_unknown_names_are_not_found(make: Callable[[], KarpenterProvider]) -> None:
    """An operation that was never begun, and a node that is not there."""
    provider = make()
    for asked in (provider.operation("boot/nobody"), provider.operation("x"), provider.delete("nobody", "op")):
        with pytest.raises(PermanentError) as caught:
            await asked
        assert caught.value.reason == "not-found"


async def test_stock_out_is_told_from_karpenters_event(
    plane: ControlPlane, api: FencedClient, make: Callable[[], KarpenterProvider]
) -> None:
    """Karpenter deletes a NodeClaim for which there is no capacity; its Event has the reason. Nothing stays."""
    provider = make()
    sold = await offer(provider)
    plane.admin.request("DELETE", CLASS)  # its provider answers "insufficient capacity" without it
    try:
        failed = await ended(provider, await provider.boot("kinema-out", sold, "op-1"))
        assert (failed.state, failed.reason) == ("failed", "stock-out"), failed
        assert "kinema-out" in failed.message
        assert await paid(api, "kinema-out-") == []
    finally:
        kind = {"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass"}
        plane.admin.apply(CLASS, kind, spec={})


async def test_limits_of_the_node_pool_hold(
    plane: ControlPlane, api: FencedClient, make: Callable[[], KarpenterProvider]
) -> None:
    """They are quotas of the offers; the machine that would exceed one is refused, for boots side by side too."""
    limit(plane, {"cpu": "5"})
    try:
        provider = make()
        sold = await offer(provider)
        tried = [provider.boot(f"kinema-{number}", sold, "op") for number in range(3)]
        results = await asyncio.gather(*tried, return_exceptions=True)
        refusals = [one for one in results if isinstance(one, PermanentError)]
        assert [one.reason for one in refusals] == ["quota"]
        assert len(await api.items(NODE_CLAIMS)) == 2
        assert [(one.takes, one.left) for one in sold.quotas] == [(2000, 5000)]
        assert most_of(await offer(provider)) == 0
    finally:
        limit(plane, None)


async def test_claim_that_another_client_deletes_is_a_failed_boot(
    api: FencedClient, make: Callable[[], KarpenterProvider]
) -> None:
    """The order is over, nothing is paid for, and the next order of that name buys one machine."""
    provider = make()
    sold = await offer(provider)
    begun = await provider.boot("kinema-1", sold, "op-1")
    claim = await api.get(f"{NODE_CLAIMS}/kinema-1")
    await api.delete(f"{NODE_CLAIMS}/kinema-1", claim["metadata"]["uid"])
    failed = await ended(provider, await provider.operation(begun.id))
    assert (failed.state, failed.reason) == ("failed", "conflict")
    async with asyncio.timeout(60):
        while True:
            try:
                again = await provider.boot("kinema-1", sold, "op-2")
                break
            except TransientError:
                await asyncio.sleep(0.2)
    assert (await ended(provider, again)).state == "done"
    assert len(await api.items(NODE_CLAIMS)) == 1


async def test_karpenter_leaves_kinemas_nodes_alone(
    plane: ControlPlane, api: FencedClient, make: Callable[[], KarpenterProvider]
) -> None:
    """With a budget to disrupt every node at once, an empty node of Kinema stays."""
    provider = make()
    booted = await ended(provider, await provider.boot("kinema-1", await offer(provider), "op-1"))
    await node(api, booted.node)
    consolidate(plane)
    await asyncio.sleep(20)  # an empty node of a NodePool goes within 15 seconds
    assert await provider.nodes() == (booted.node,)


async def test_order_outlives_a_restart_of_karpenter(
    api: FencedClient, karpenter: Server, make: Callable[[], KarpenterProvider]
) -> None:
    """Ordered while Karpenter is down, the machine comes once when it is back."""
    provider = make()
    sold = await offer(provider)
    karpenter.kill()
    begun = await provider.boot("restarted", sold, "op-1")
    assert begun.state == "running"
    karpenter.start()
    assert (await ended(provider, begun)).state == "done"
    assert len(await paid(api, "restarted-")) == 1


async def test_rights_are_those_that_are_written_down(
    plane: ControlPlane, karpenter: Server, make: Callable[[], KarpenterProvider], tmp_path: Path
) -> None:
    """An account with exactly the listed rights boots and deletes; one that may only look is refused as `denied`."""
    rules = [
        {"apiGroups": [rule.group], "resources": list(rule.resources), "verbs": list(rule.verbs)}
        for rule in OF_PROVIDER["karpenter"]
    ]
    looking = [{**rule, "verbs": [verb for verb in rule["verbs"] if verb in {"get", "list"}]} for rule in rules]
    prices = tmp_path / "prices.csv"
    for name, granted in (("booter", [*rules, _nodes()]), ("looker", [*looking, _nodes()])):
        access: Access = await asyncio.to_thread(plane.admin.account, "provider-rights", name, granted)
        api = await connect(str(access.write_kubeconfig(tmp_path / name)))
        provider = KarpenterProvider(api, KarpenterSettings(node_pool="all", catalog=str(prices)))
        sold = await offer(provider)
        if name == "booter":
            booted = await ended(provider, await provider.boot("kinema-1", sold, "op-1"))
            assert (await ended(provider, await provider.delete(booted.node, "op-2"))).state == "done"
        else:
            with pytest.raises(PermanentError) as caught:
                await provider.boot("kinema-1", sold, "op-1")
            assert caught.value.reason == "denied"
        await api.close()


def _nodes() -> dict[str, list[str]]:
    """What every rescheduler may do with nodes."""
    return {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}
