"""The provider `gke` on the fake GKE: what the conformance suite does not ask of every provider."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import msgspec
import pytest
from aiohttp import web
from tests.contract.provider.rooms import ZONE, GkeRoom
from tests.contract.provider.test_provider_contract import ended, until
from tests.rescheduler.sim_world import sim_world

from kinema_core.events import Offer, Quota
from kinema_core.model.catalog import offers_from, parse_catalog
from kinema_core.model.cluster import Cluster
from kinema_core.model.stock import left_of
from kinema_core.runtime.clock import SystemClock
from kinema_core.runtime.settings import RuntimeSettings
from kinema_rescheduler.errors import PermanentError, TransientError
from kinema_rescheduler.kubernetes.fenced import FencedClient, connect
from kinema_rescheduler.providers.base import Operation, Provider
from kinema_rescheduler.providers.gke import LEDGER, RIGHTS, GkeProvider, pool_name, pool_object, quotas_of
from kinema_rescheduler.providers.google import GoogleApi, reason_of_code
from kinema_rescheduler.providers.open import missing_rights
from kinema_rescheduler.settings import Settings
from kinema_sim.cloud.provider import Cloud
from kinema_sim.scenarios.registry import SCENARIOS


@pytest.fixture
async def room(tmp_path: Path) -> AsyncIterator[GkeRoom]:
    """The fake GKE beside a small cluster."""
    async with sim_world(SCENARIOS["tiny"](0), tmp_path) as world:
        room = GkeRoom(world, tmp_path)
        yield room
        await room.close()


@pytest.fixture
async def api(room: GkeRoom) -> AsyncIterator[FencedClient]:
    """A connection to its API server."""
    api = await connect(str(room.world.kubeconfig), timeout_seconds=2)
    yield api
    await api.close()


async def boot(provider: Provider, name: str, offer: Offer) -> Operation:
    """Boot as the rescheduler does: what passes is tried again."""
    async with asyncio.timeout(30):
        while True:
            try:
                return await ended(provider, await provider.boot(name, offer, f"op-{name}"))
            except TransientError:
                await asyncio.sleep(0.05)


async def pools(room: GkeRoom) -> list[str]:
    """Names of Kinema's node pools."""
    url = f"{room.world.url}/gke/container/v1/projects/shop/locations/europe-west3/clusters/prod/nodePools"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        found = (await answer.json())["nodePools"]
    return sorted(pool["name"] for pool in found if pool["name"].startswith("kinema-"))


async def add_template(room: GkeRoom, config: dict[str, object]) -> None:
    """Add a node pool of this configuration, which the pools of Kinema are to be like."""
    room.template = "usual"
    url = f"{room.world.url}/gke/container/v1/projects/shop/locations/europe-west3/clusters/prod/nodePools"
    pool = {"name": room.template, "locations": [ZONE], "config": {"machineType": "e2-standard-2", **config}}
    async with aiohttp.ClientSession() as session:
        async with session.post(url, json={"nodePool": pool}) as answer:
            assert answer.status == 200, await answer.text()
        async with asyncio.timeout(30):
            while True:
                async with session.get(f"{url}/{room.template}") as answer:
                    if (await answer.json())["status"] == "RUNNING":
                        return
                await asyncio.sleep(0.05)


def cloud(room: GkeRoom) -> Cloud:
    """The machines behind it."""
    return room.world.sim.cloud


async def test_stock_out_in_one_zone_leaves_the_others(room: GkeRoom, api: FencedClient) -> None:
    """The zone without capacity fails with Compute Engine's own words; another zone sells, and nothing is left over."""
    provider = room.provider(api)
    offers = offers_from((await provider.catalog()).rows, room.world.cluster())
    here, there = [next(one for one in offers if one.zone == f"europe-west3-{zone}") for zone in "ab"]
    cloud(room).sold_out.add(here.name)
    failed = await boot(provider, "kinema-1", here)
    assert (failed.state, failed.reason) == ("failed", "stock-out")
    assert "ZONE_RESOURCE_POOL_EXHAUSTED" in failed.message
    assert (await boot(provider, "kinema-2", there)).state == "done"
    assert room.paid() == ["kinema-2"]
    assert "kinema-1" not in await provider.nodes()


async def test_stock_out_in_all_zones_leaves_nothing(room: GkeRoom, api: FencedClient) -> None:
    """Every zone fails in its own words; nothing is paid for, ordered or wanted by a group any more."""
    provider = room.provider(api)
    before = await provider.nodes()
    offers = offers_from((await provider.catalog()).rows, room.world.cluster())
    small = [one for one in offers if one.machine_type == "e2-standard-2"]
    cloud(room).sold_out.update(one.name for one in small)
    failed = [await boot(provider, f"kinema-{number}", one) for number, one in enumerate(small)]
    assert [one.reason for one in failed] == ["stock-out"] * 3
    assert {zone for zone in "abc" if any(f"europe-west3-{zone}" in one.message for one in failed)} == {*"abc"}
    assert room.paid() == []
    assert await provider.nodes() == before


async def test_an_operation_in_progress_is_waited_for(room: GkeRoom, api: FencedClient) -> None:
    """While GKE makes another client's node pool it refuses ours; tried again it makes one pool and one machine."""
    provider = room.provider(api)
    offer = await room.offer(provider)
    body = {"name": "theirs", "config": {"machineType": "e2-standard-4"}, "locations": [offer.zone]}
    url = f"{room.world.url}/gke/container/v1/projects/shop/locations/europe-west3/clusters/prod/nodePools"
    async with aiohttp.ClientSession() as session, session.post(url, json={"nodePool": body}) as answer:
        assert answer.status == 200
    with pytest.raises(TransientError, match="incompatible operation") as caught:
        await provider.boot("kinema-1", offer, "op-1")
    assert caught.value.reason == "conflict"
    assert (await boot(provider, "kinema-1", offer)).state == "done"
    assert await pools(room) == [pool_name(offer)]
    assert room.paid() == ["kinema-1"]


async def test_an_operation_that_ends_in_an_error_fails_the_boot(room: GkeRoom, api: FencedClient) -> None:
    """A node pool that GKE could not make has its reason; no machine is bought, and the order is forgotten."""
    provider = room.provider(api)
    before = await provider.nodes()
    await room.fault(type="gke-pool-error", code="GKE_SERVICE_ACCOUNT_DELETED")
    failed = await boot(provider, "kinema-1", await room.offer(provider))
    assert (failed.state, failed.reason) == ("failed", "permission")
    assert "GKE_SERVICE_ACCOUNT_DELETED" in failed.message
    assert room.paid() == []
    assert await provider.nodes() == before


async def test_capacity_that_comes_back_buys_nothing_that_was_taken_back(room: GkeRoom, api: FencedClient) -> None:
    """After a stock-out the group no longer wants the instance; ordered again, it is bought once."""
    provider = room.provider(api)
    offer = await room.offer(provider)
    cloud(room).sold_out.add(offer.name)
    assert (await boot(provider, "kinema-1", offer)).reason == "stock-out"
    cloud(room).sold_out.clear()
    seen = room.world.clock.now()
    await until(lambda: (room.world.clock.now() - seen).total_seconds() > 120)
    assert room.paid() == []
    assert (await boot(provider, "kinema-1", offer)).state == "done"
    assert room.paid() == ["kinema-1"]


async def test_boots_that_succeed_in_part(room: GkeRoom, api: FencedClient) -> None:
    """Of three orders with room for two in the quota, two machines run and one is refused as `quota`."""
    provider = room.provider(api)
    offer = await room.offer(provider)
    cloud(room).quotas["CPUS"] = cloud(room).used("CPUS") + 5
    booted = [await boot(provider, f"kinema-{number}", offer) for number in range(3)]
    assert sorted((one.state, one.reason) for one in booted) == [("done", ""), ("done", ""), ("failed", "quota")]
    assert len(room.paid()) == 2


async def test_quotas_limit_offers(room: GkeRoom, api: FencedClient) -> None:
    """Machines of all types share what the region's quota of vCPUs leaves, and the one on the number of instances."""
    provider = room.provider(api)
    cloud(room).quotas["CPUS"] = cloud(room).used("CPUS") + 7
    small, big = await room.offer(provider), await room.offer(provider, "e2-standard-4")
    assert left_of((small, big), {}) == {small.name: 3, big.name: 1}
    assert left_of((small, big), {small.name: 2}) == {small.name: 1, big.name: 0}


@pytest.mark.parametrize(
    ("metric", "more", "template"),
    [
        ("INSTANCES", 1, {}),
        ("SSD_TOTAL_GB", 150, {}),
        ("SSD_TOTAL_GB", 99, {"diskType": "pd-ssd", "diskSizeGb": 50}),
        ("DISKS_TOTAL_GB", 150, {"diskType": "pd-standard"}),
    ],
)
async def test_offers_end_where_the_regions_quotas_end(
    room: GkeRoom, api: FencedClient, metric: str, more: int, template: dict[str, object]
) -> None:
    """Plans may buy what a quota leaves, and the region sells no more: of two machines one is refused as `quota`."""
    await add_template(room, template)
    provider = room.provider(api)
    cloud(room).quotas[metric] = cloud(room).used(metric) + more
    offer = await room.offer(provider)
    assert left_of((offer,), {})[offer.name] == 1
    first, second = [await boot(provider, f"kinema-{number}", offer) for number in range(2)]
    assert (first.state, second.state, second.reason) == ("done", "failed", "quota")
    assert metric in second.message
    assert room.paid() == ["kinema-0"]


def test_quotas_that_a_machine_counts_against() -> None:
    """Newer families and spot machines have quotas of vCPUs of their own, where the project has them."""
    table = "machine_type,vcpus,memory_gib,usd_per_hour,capacity_type\n"
    e2, c3, spot = parse_catalog(
        f"{table}e2-standard-4,4,16,0.1,on-demand\nc3-highcpu-8,8,16,0.4,on-demand\ne2-standard-2,2,8,0.02,spot\n"
    )
    left = {"CPUS": 72.0, "C3_CPUS": 24.0, "PREEMPTIBLE_CPUS": 0.0, "INSTANCES": 5.0}
    machines = Quota(name="quota INSTANCES", takes=1, left=5)
    assert quotas_of(e2, left, {}) == (Quota(name="quota CPUS", takes=4000, left=72_000), machines)
    assert quotas_of(c3, left, {}) == (Quota(name="quota C3_CPUS", takes=8000, left=24_000), machines)
    assert quotas_of(spot, left, {}) == (Quota(name="quota CPUS", takes=2000, left=72_000), machines)
    own = Quota(name="quota PREEMPTIBLE_CPUS", takes=2000, left=8000)
    assert quotas_of(spot, {"CPUS": 72.0, "PREEMPTIBLE_CPUS": 8.0}, {}) == (own,)


@pytest.mark.parametrize(
    ("model", "capacity", "quota"),
    [
        ("nvidia-tesla-t4", "on-demand", "NVIDIA_T4_GPUS"),
        ("nvidia-tesla-t4", "spot", "PREEMPTIBLE_NVIDIA_T4_GPUS"),
        ("nvidia-l4", "spot", "NVIDIA_L4_GPUS"),
        ("nvidia-tesla-a100", "on-demand", "NVIDIA_A100_GPUS"),
        ("nvidia-a100-80gb", "on-demand", "NVIDIA_A100_80GB_GPUS"),
        ("nvidia-h100-80gb", "on-demand", "NVIDIA_H100_GPUS"),
        ("nvidia-b300", "on-demand", ""),
        ("", "on-demand", ""),
    ],
)
def test_gpus_count_against_the_quota_of_their_model(model: str, capacity: str, quota: str) -> None:
    """For spot machines that of preemptible ones, where the project has any; an unknown model limits nothing."""
    left = {
        "NVIDIA_T4_GPUS": 4.0,
        "PREEMPTIBLE_NVIDIA_T4_GPUS": 8.0,
        "NVIDIA_L4_GPUS": 2.0,
        "PREEMPTIBLE_NVIDIA_L4_GPUS": 0.0,
        "NVIDIA_A100_GPUS": 16.0,
        "NVIDIA_A100_80GB_GPUS": 8.0,
        "NVIDIA_H100_GPUS": 8.0,
    }
    labels = f"cloud.google.com/gke-accelerator={model}" if model else ""
    columns = "machine_type,vcpus,memory_gib,usd_per_hour,capacity_type,gpus,labels"
    (row,) = parse_catalog(f"{columns}\nn1-standard-8,8,30,0.4,{capacity},2,{labels}\n")
    wanted = (Quota(name=f"quota {quota}", takes=2, left=int(left[quota])),) if quota else ()
    assert quotas_of(row, left, {}) == wanted


@pytest.mark.parametrize(
    ("config", "quota", "gigabytes"),
    [
        ({}, "SSD_TOTAL_GB", 100),
        ({"diskType": "pd-standard", "diskSizeGb": 50}, "DISKS_TOTAL_GB", 50),
        ({"diskType": "pd-ssd", "diskSizeGb": 40}, "SSD_TOTAL_GB", 40),
        ({"diskType": "pd-standard", "bootDisk": {"diskType": "pd-balanced", "sizeGb": "200"}}, "SSD_TOTAL_GB", 200),
        ({"bootDisk": {"diskType": "hyperdisk-balanced", "sizeGb": "200"}}, "", 0),
    ],
)
def test_boot_disks_count_against_their_quota(config: dict[str, object], quota: str, gigabytes: int) -> None:
    """Type and size are the template's, or GKE's default."""
    (row,) = parse_catalog("machine_type,vcpus,memory_gib,usd_per_hour\ne2-standard-4,4,16,0.1\n")
    wanted = (Quota(name=f"quota {quota}", takes=gigabytes, left=500),) if quota else ()
    assert quotas_of(row, {"DISKS_TOTAL_GB": 500.0, "SSD_TOTAL_GB": 500.0}, config) == wanted


async def test_a_pool_for_each_kind_of_machine(room: GkeRoom, api: FencedClient) -> None:
    """Nodes of one type and zone share a node pool; while GKE makes one, it refuses another, which is tried again."""
    provider = room.provider(api)
    small, big = await room.offer(provider), await room.offer(provider, "e2-standard-4")
    begun = await provider.boot("kinema-1", small, "op-1")
    with pytest.raises(TransientError, match="incompatible operation"):
        await provider.boot("kinema-2", big, "op-2")
    assert (await ended(provider, begun)).state == "done"
    assert (await boot(provider, "kinema-2", big)).state == "done"
    assert (await boot(provider, "kinema-3", small)).state == "done"
    assert await pools(room) == sorted((pool_name(small), pool_name(big)))


async def test_exactly_the_named_instance_goes(room: GkeRoom, api: FencedClient) -> None:
    """Of three instances of one group, the named one goes; so does a node of a pool that Kinema did not make."""
    provider = room.provider(api)
    offer = await room.offer(provider)
    for number in range(3):
        await boot(provider, f"kinema-{number}", offer)
    assert (await ended(provider, await provider.delete("kinema-1", "op"))).state == "done"
    assert room.paid() == ["kinema-0", "kinema-2"]
    assert (await ended(provider, await provider.delete("tiny-2", "op"))).state == "done"
    assert "tiny-2" not in cloud(room).machines
    assert {"tiny-1", "tiny-3"} <= set(cloud(room).machines)


async def test_another_client_deletes_the_instance(room: GkeRoom, api: FencedClient) -> None:
    """A boot whose instance is being deleted has failed, and the order is forgotten."""
    provider = room.provider(api)
    begun = await provider.boot("kinema-1", await room.offer(provider), "op-1")
    while "kinema-1" not in cloud(room).machines:
        begun = await provider.operation(begun.id)
        await asyncio.sleep(0.02)
    cloud(room).delete("kinema-1", "by-hand")
    failed = await ended(provider, begun)
    assert (failed.state, failed.reason) == ("failed", "conflict")
    await until(lambda: room.paid() == [])
    assert "kinema-1" not in await provider.nodes()


async def test_rights_are_asked_for(room: GkeRoom, api: FencedClient) -> None:
    """The rights that the account lacks are named one by one; a refused order names the right in Google's words."""
    provider = room.provider(api)
    settings = Settings(
        runtime=RuntimeSettings(cluster="prod"), kubeconfig=str(room.world.kubeconfig), provider=room.settings("")
    )
    assert await missing_rights(settings, SystemClock()) == ()
    await room.deny()
    assert await missing_rights(settings, SystemClock()) == tuple(one for one in RIGHTS if one.endswith(".update"))
    with pytest.raises(PermanentError, match=r"container\.clusters\.update") as caught:
        await provider.boot("kinema-1", await room.offer(provider), "op-1")
    assert caught.value.reason == "permission"
    orders = await api.items("/api/v1/namespaces/kube-system/configmaps")
    assert not any((item.get("data") or {}).get("kinema-1") for item in orders if item["metadata"]["name"] == LEDGER)


async def test_dry_run_buys_nothing(room: GkeRoom, api: FencedClient) -> None:
    """Every order and deletion is refused with what it would have been."""
    settings = msgspec.structs.replace(room.settings(""), dry_run=True)
    google = GoogleApi(SystemClock(), token_url="")
    provider = GkeProvider(api, settings, google)
    offers = offers_from((await provider.catalog()).rows, room.world.cluster())
    for asked in (provider.boot("kinema-1", offers[0], "op-1"), provider.delete("tiny-1", "op-2")):
        with pytest.raises(PermanentError, match="dry_run"):
            await asked
    assert room.paid() == []
    await google.close()


async def test_names_that_compute_engine_refuses(room: GkeRoom, api: FencedClient) -> None:
    """A name that no instance can have is refused before anything is ordered."""
    provider = room.provider(api)
    with pytest.raises(PermanentError) as caught:
        await provider.boot("Node_1", await room.offer(provider), "op-1")
    assert caught.value.reason == "invalid"


@pytest.mark.parametrize(
    ("code", "message", "reason"),
    [
        ("ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", "", "stock-out"),
        ("ZONE_RESOURCE_POOL_EXHAUSTED", "", "stock-out"),
        ("GCE_STOCKOUT", "", "stock-out"),
        ("QUOTA_EXCEEDED", "Quota 'E2_CPUS' exceeded. Limit: 24.0 in region europe-west3.", "quota"),
        ("GCE_QUOTA_EXCEEDED", "", "quota"),
        ("IP_SPACE_EXHAUSTED_WITH_DETAILS", "", "quota"),
        ("PERMISSIONS_ERROR", "", "permission"),
        ("GKE_SERVICE_ACCOUNT_DELETED", "", "permission"),
        ("INTERNAL_ERROR", "try again", ""),
    ],
)
def test_codes_of_operations(code: str, message: str, reason: str) -> None:
    """Each code of a failed attempt has its reason; one that may pass has none."""
    assert reason_of_code(code, message) == reason


def test_pool_copies_the_template_and_has_no_autoscaling() -> None:
    """Service account, disks and image are the template's; spot, labels, taints and GPUs are the offer's."""
    catalog = (
        "machine_type,vcpus,memory_gib,usd_per_hour,zone,capacity_type,gpus,labels,taints\n"
        "g2-standard-4,4,16,0.4,europe-west3-a,spot,1,cloud.google.com/gke-accelerator=nvidia-l4;team=ml,team=ml:NoSchedule\n"
    )
    (offer,) = offers_from(parse_catalog(catalog), Cluster())
    template = {
        "serviceAccount": "nodes@shop.iam",
        "diskType": "pd-ssd",
        "machineType": "e2-small",
        "labels": {"a": "b"},
    }
    pool = pool_object("kinema-x", offer, template)
    assert (pool["initialNodeCount"], pool["autoscaling"], pool["locations"]) == (
        0,
        {"enabled": False},
        ["europe-west3-a"],
    )
    config = pool["config"]
    assert (config["serviceAccount"], config["diskType"]) == ("nodes@shop.iam", "pd-ssd")
    assert (config["machineType"], config["spot"]) == ("g2-standard-4", True)
    assert config["labels"] == {"kinema.io/capacity-type": "spot", "team": "ml"}
    assert config["taints"] == [{"key": "team", "value": "ml", "effect": "NO_SCHEDULE"}]
    assert config["accelerators"] == [{"acceleratorCount": "1", "acceleratorType": "nvidia-l4"}]
    assert len(pool_name(offer)) <= 40


async def test_token_of_a_command_and_of_the_metadata_server(tmp_path: Path) -> None:
    """A command's last word is the token; one that fails, and a metadata server that is not there, say so."""
    seen: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        seen.append(request.headers.get("Authorization", ""))
        if request.path == "/token":
            assert request.headers["Metadata-Flavor"] == "Google"
            return web.json_response({"access_token": "of-metadata", "expires_in": 3599, "token_type": "Bearer"})
        return web.json_response({})

    app = web.Application()
    app.router.add_get("/{tail:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    for google in (
        GoogleApi(SystemClock(), token_command=("/bin/echo", "of-command")),
        GoogleApi(SystemClock(), token_url=f"{url}/token"),
    ):
        await google.get(f"{url}/x", dict)
        await google.close()
    assert seen == ["Bearer of-command", "", "Bearer of-metadata"]
    failing = GoogleApi(SystemClock(), token_command=("/bin/sh", "-c", "echo no account >&2; exit 1"))
    with pytest.raises(PermanentError, match="no account"):
        await failing.get(url, dict)
    await failing.close()
    await runner.cleanup()
