"""KWOK's provider on a real API server: what the simulated one promises of nodes is held against it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from tests.contract.provider.test_provider_contract import ended
from tests.controlplane.access import Access
from tests.controlplane.plane import ControlPlane

from kinema_core.events import Offer
from kinema_core.model.catalog import offers_from
from kinema_core.model.cluster import Cluster
from kinema_core.runtime.clock import SystemClock
from kinema_rescheduler.errors import PermanentError
from kinema_rescheduler.kubernetes.fenced import FencedClient, connect
from kinema_rescheduler.providers.kwok import LEDGER, KwokProvider
from kinema_rescheduler.settings import KwokSettings

pytestmark = pytest.mark.cluster

PRICES = """machine_type,vcpus,memory_gib,usd_per_hour,zone,available,taints,extended
m2,2,8,0.09,zone-a,3,,nvidia.com/gpu=1
m4,4,16,0.17,zone-a,0,,
m8,8,32,0.34,zone-a,,team=ml:NoSchedule,
"""


@pytest.fixture
def catalog(tmp_path: Path) -> Path:
    """A price list."""
    path = tmp_path / "catalog.csv"
    path.write_text(PRICES, encoding="utf-8")
    return path


@pytest.fixture
async def make(control_plane: ControlPlane, tmp_path: Path, catalog: Path) -> AsyncIterator[Callable[[], KwokProvider]]:
    """Makes providers, each as a process that has just started has it; the nodes go afterwards."""
    api = await connect(str(control_plane.admin.write_kubeconfig(tmp_path / "admin")))
    settings = KwokSettings(catalog=str(catalog), boot_seconds=1, max_nodes=4)
    yield lambda: KwokProvider(api, settings, SystemClock())
    for item in await api.items("/api/v1/nodes"):
        await api.delete(f"/api/v1/nodes/{item['metadata']['name']}", item["metadata"]["uid"])
    await api.close()


async def offer(provider: KwokProvider, machine_type: str = "m2") -> Offer:
    """What is on sale of a machine type."""
    offers = offers_from((await provider.catalog()).rows, Cluster())
    return next(item for item in offers if item.machine_type == machine_type)


def ready(found: dict[str, dict[str, list[dict[str, str]]]]) -> bool:
    """Whether a node is Ready."""
    conditions = (found.get("status") or {}).get("conditions") or []
    return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)


async def test_a_booted_node_is_what_its_offer_promised(
    control_plane: ControlPlane, make: Callable[[], KwokProvider]
) -> None:
    """It gets Ready with the allocatable, labels and taints of the offer; deleted, it is gone and can be had again."""
    provider = make()
    for machine_type in ("m2", "m8"):
        sold = await offer(provider, machine_type)
        assert (await ended(provider, await provider.boot(f"real-{machine_type}", sold, "op"))).state == "done"
        path = f"/api/v1/nodes/real-{machine_type}"
        node = await asyncio.to_thread(control_plane.admin.until, path, ready)
        allocatable = node["status"]["allocatable"]
        assert (allocatable["memory"], allocatable["pods"]) == (str(sold.allocatable["memory"]), "110")
        assert allocatable["cpu"] == f"{sold.allocatable['cpu']}m"
        assert allocatable.get("nvidia.com/gpu") == ("1" if machine_type == "m2" else None)
        assert sold.labels.items() <= node["metadata"]["labels"].items()
        kept = {(taint["key"], taint.get("value"), taint["effect"]) for taint in node["spec"].get("taints", [])}
        assert (("team", "ml", "NoSchedule") in kept) == (machine_type == "m8")
        assert (await provider.delete(f"real-{machine_type}", "op-2")).state == "done"
        with pytest.raises(PermanentError, match="no node"):
            await provider.delete(f"real-{machine_type}", "op-3")
    assert await provider.nodes() == ()


async def test_an_order_outlives_the_process_that_gave_it(
    control_plane: ControlPlane, make: Callable[[], KwokProvider]
) -> None:
    """Whoever takes over finds a node on its way by its name: it comes once, or never if it is given back before."""
    sold = await offer(make())
    begun = await make().boot("real-1", sold, "op")
    assert begun.state == "running"
    await make().boot("real-2", sold, "op")
    assert await make().nodes() == ("real-1", "real-2")
    assert (await make().delete("real-2", "op")).state == "done"
    after = make()
    assert (await ended(after, await after.boot("real-1", sold, "another"))).state == "done"
    await asyncio.sleep(1.5)
    assert await make().nodes() == ("real-1",)
    orders = control_plane.admin.request("GET", f"/api/v1/namespaces/kube-system/configmaps/{LEDGER}")
    assert not orders.get("data")


async def test_refusals_on_a_real_server(make: Callable[[], KwokProvider]) -> None:
    """Sold out, one too many, a name that is taken, a node that is none of KWOK's: each has its reason."""
    provider = make()
    small, none, big = [await offer(provider, name) for name in ("m2", "m4", "m8")]
    assert await refusal(provider, "real-1", none) == "stock-out"
    for number in range(3):
        await ended(provider, await provider.boot(f"real-{number}", small, "op"))
    assert await refusal(provider, "real-1", big) == "conflict"
    assert await refusal(provider, "real-3", small) == "stock-out"
    await ended(provider, await provider.boot("real-3", big, "op"))
    assert await refusal(provider, "real-4", big) == "quota"


async def refusal(provider: KwokProvider, name: str, sold: Offer) -> str:
    """Why a boot is refused."""
    with pytest.raises(PermanentError) as caught:
        await provider.boot(name, sold, "op")
    return caught.value.reason


async def test_without_rights_nothing_is_ordered(control_plane: ControlPlane, tmp_path: Path, catalog: Path) -> None:
    """An account that may only look is refused, and no order is left behind."""
    rules = [{"apiGroups": [""], "resources": ["nodes", "configmaps"], "verbs": ["get", "list"]}]
    access: Access = await asyncio.to_thread(control_plane.admin.account, "provider-rights", "looker", rules)
    api: FencedClient = await connect(str(access.write_kubeconfig(tmp_path / "looker")))
    provider = KwokProvider(api, KwokSettings(catalog=str(catalog)), SystemClock())
    assert await refusal(provider, "real-1", await offer(provider)) == "denied"
    assert await provider.nodes() == ()
    await api.close()
