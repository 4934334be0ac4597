"""The provider `cluster-api` on the real controllers of Cluster API 1.14; what the cloud behind them does is played."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.contract.provider.orders import ended, offer
from tests.controlplane.access import Access, RefusedError
from tests.controlplane.cluster_api import (
    CLUSTER,
    CORE,
    DEPLOYMENTS,
    MACHINES,
    NAMESPACE,
    ClusterApi,
    add_deployment,
    is_usable,
    remove_deployments,
    running_cluster_api,
    scale,
)
from tests.controlplane.plane import ControlPlane, Options, running

from kinema_core.events import Offer
from kinema_core.model.catalog import offers_from, parse_catalog
from kinema_core.model.cluster import Cluster
from kinema_core.model.stock import most_of
from kinema_kubernetes.objects import annotations_of, labels_of
from kinema_rescheduler.errors import ConflictError, PermanentError
from kinema_rescheduler.kubernetes.fenced import FencedClient, connect
from kinema_rescheduler.kubernetes.guard import NAME as GUARD
from kinema_rescheduler.kubernetes.guard import guard
from kinema_rescheduler.kubernetes.rights import OF_PROVIDER
from kinema_rescheduler.providers.cluster_api import (
    DELETE_MACHINE,
    DEPLOYMENT,
    MAX_SIZE,
    MIN_SIZE,
    ClusterApiProvider,
)
from kinema_rescheduler.settings import ClusterApiSettings

pytestmark = [pytest.mark.cluster, pytest.mark.long]

PRICES = """# prices of 2026-11-01
machine_type,vcpus,memory_gib,usd_per_hour,zone
m2,2,8,0.09,zone-a
m4,4,16,0.17,zone-a
m4,4,16,0.17,zone-b
m8,8,32,0.34,zone-a
"""
OFFERS = {f"{one.machine_type}-{one.zone[-1]}": one for one in offers_from(parse_catalog(PRICES), Cluster())}
MERGE = "application/merge-patch+json"
PAUSED = "cluster.x-k8s.io/paused"


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane of its own, as Cluster API installs webhooks."""
    with running(tmp_path_factory.mktemp("cluster-api-plane"), Options()) as found:
        yield found


@pytest.fixture(scope="module")
def fleet(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterApi]:
    """The controllers, which run all the time."""
    with running_cluster_api(plane, tmp_path_factory.mktemp("cluster-api")) as found:
        yield found


@pytest.fixture
async def api(plane: ControlPlane, fleet: ClusterApi, tmp_path: Path) -> AsyncIterator[FencedClient]:
    """A connection to a cluster with MachineDeployments `m2-a`, `m4-a` and `m4-b`, of no Machine each."""
    for name, sold in OFFERS.items():
        if sold.machine_type != "m8":
            await asyncio.to_thread(add_deployment, plane.admin, name, sold)
    api = await connect(str(plane.admin.write_kubeconfig(tmp_path / "admin")))
    yield api
    await api.close()
    fleet.cloud.refusal, fleet.cloud.silent = "", False
    await asyncio.to_thread(remove_deployments, plane.admin)


@pytest.fixture
def make(api: FencedClient, tmp_path: Path) -> Callable[[], ClusterApiProvider]:
    """Makes providers, each as a process that has just started has it."""
    return lambda: ClusterApiProvider(api, api, settings(tmp_path))


def settings(folder: Path) -> ClusterApiSettings:
    """Settings with the prices."""
    (folder / "prices.csv").write_text(PRICES, encoding="utf-8")
    return ClusterApiSettings(namespace=NAMESPACE, cluster=CLUSTER, catalog=str(folder / "prices.csv"))


async def usable(api: FencedClient, name: str) -> dict[str, Any]:
    """A node once pods may be put on it."""
    async with asyncio.timeout(60):
        while not is_usable(found := await api.get(f"/api/v1/nodes/{name}")):  # noqa: ASYNC110
            await asyncio.sleep(0.2)
    return found


async def replicas(api: FencedClient, name: str = "m2-a") -> int:
    """How many Machines a MachineDeployment asks for."""
    return int((await api.get(f"{DEPLOYMENTS}/{name}"))["spec"]["replicas"])


async def until_there(api: FencedClient, number: int) -> list[str]:
    """Names of the nodes, once there are so many."""
    async with asyncio.timeout(60):
        while True:
            found = [str(one["metadata"]["name"]) for one in await api.items("/api/v1/nodes")]
            if len(found) == number:
                return sorted(found)
            await asyncio.sleep(0.2)


async def reason(provider: ClusterApiProvider, name: str, sold: Offer) -> str:
    """Why a boot cannot be: of the refusal, or of its operation."""
    try:
        return (await ended(provider, await provider.boot(name, sold, "op"))).reason
    except PermanentError as error:
        return error.reason


async def test_exactly_the_planned_node_comes_and_goes(
    api: FencedClient, fleet: ClusterApi, make: Callable[[], ClusterApiProvider]
) -> None:
    """Each order raises the MachineDeployment by one; of three machines, the one that is deleted goes."""
    provider = make()
    sold = await offer(provider, "m4", "zone-b")
    begun = await asyncio.gather(*(provider.boot(f"exact-{number}", sold, f"op-{number}") for number in range(3)))
    booted = [await ended(provider, one) for one in begun]
    assert [one.state for one in booted] == ["done"] * 3, booted
    names = sorted(one.node for one in booted)
    assert len(set(names)) == 3
    found = await usable(api, names[0])
    stated = {key: value for key, value in sold.labels.items() if "kubernetes.io/" in key and "beta" not in key}
    assert stated.items() <= labels_of(found).items()
    assert int(found["status"]["allocatable"]["memory"]) == sold.allocatable["memory"]
    assert await provider.nodes() == tuple(names)
    for name in names:
        await usable(api, name)
    gone = await ended(provider, await provider.delete(names[1], "op-4"))
    assert gone.state == "done"
    left = [names[0], names[2]]
    assert await until_there(api, 2) == left
    assert await provider.nodes() == tuple(left)
    assert fleet.cloud.paid() == left
    assert await replicas(api, "m4-b") == 2
    assert await replicas(api, "m4-a") == 0


async def test_whoever_takes_over_adopts(
    api: FencedClient, fleet: ClusterApi, make: Callable[[], ClusterApiProvider]
) -> None:
    """An order outlives its process: by its name it is found, bought once, and can be taken back."""
    sold = await offer(make())
    begun = await make().boot("kinema-1", sold, "op-1")
    after = make()
    first = await ended(after, await after.boot("kinema-1", sold, "op-1"))
    assert first.state == "done"
    assert (await after.boot("kinema-1", sold, "op-2")) == first
    assert (await make().operation(begun.id)) == first
    assert await replicas(api) == 1
    with pytest.raises(PermanentError) as caught:
        await after.boot("kinema-1", await offer(after, "m4"), "op-3")
    assert caught.value.reason == "conflict"
    await after.boot("kinema-2", sold, "op-4")
    assert (await ended(make(), await make().delete("kinema-2", "op-5"))).state == "done"
    assert await until_there(api, 1) == [first.node]
    assert await make().nodes() == (first.node,)
    assert fleet.cloud.paid() == [first.node]
    assert await replicas(api) == 1


async def test_order_without_a_node_is_taken_back(
    api: FencedClient, fleet: ClusterApi, make: Callable[[], ClusterApiProvider]
) -> None:
    """Of two orders whose machines are not there yet, the one that is kept gets one, and the other leaves nothing."""
    provider = make()
    sold = await offer(provider)
    fleet.cloud.silent = True
    kept, unwanted = await provider.boot("kept", sold, "op-1"), await provider.boot("unwanted", sold, "op-2")
    assert {kept.state, unwanted.state} == {"running"}
    assert (await ended(make(), await make().delete("unwanted", "op-3"))).state == "done"
    fleet.cloud.silent = False
    booted = await ended(provider, await make().boot("kept", sold, "op-1"))
    assert booted.state == "done"
    assert await until_there(api, 1) == [booted.node]
    assert await replicas(api) == 1
    gone = await provider.operation(unwanted.id)
    assert (gone.state, gone.reason) == ("failed", "conflict")


async def test_unknown_names_are_not_found(make: Callable[[], ClusterApiProvider]) -> None:
    """An operation that was never begun, and a node that is not there."""
    provider = make()
    for asked in (provider.operation("boot"), provider.operation("x/y/z"), provider.delete("nobody", "op")):
        with pytest.raises(PermanentError) as caught:
            await asked
        assert caught.value.reason == "not-found"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("InsufficientInstanceCapacity: no m2 in zone-a just now", "stock-out"),
        ("VcpuLimitExceeded: more vCPU than your limit allows", "quota"),
        ("UnauthorizedOperation: you are not authorized to perform this operation", "permission"),
    ],
)
async def test_words_of_the_cloud_end_the_order(
    api: FencedClient, fleet: ClusterApi, make: Callable[[], ClusterApiProvider], words: str, expected: str
) -> None:
    """The cloud's words reach the Machine's conditions: the order is taken back, and the next of its name buys."""
    provider = make()
    sold = await offer(provider)
    fleet.cloud.refusal = words
    failed = await ended(provider, await provider.boot("kinema-1", sold, "op-1"))
    assert (failed.state, failed.reason) == ("failed", expected), failed
    assert words in failed.message
    assert await replicas(api) == 0
    fleet.cloud.refusal = ""
    booted = await ended(provider, await provider.boot("kinema-1", sold, "op-2"))
    assert booted.state == "done"
    assert await until_there(api, 1) == [booted.node]


async def test_limits_of_the_autoscaler_hold(
    plane: ControlPlane, api: FencedClient, make: Callable[[], ClusterApiProvider]
) -> None:
    """The most are a quota of the offers, for boots side by side too; below the least, nothing is deleted."""
    scale(plane.admin, "m2-a", 1, {MIN_SIZE: "1", MAX_SIZE: "3"})
    (first,) = await until_there(api, 1)
    provider = make()
    sold = await offer(provider)
    assert [(one.takes, one.left) for one in sold.quotas] == [(1, 2)]
    tried = await asyncio.gather(*(reason(provider, f"kinema-{number}", sold) for number in range(3)))
    assert sorted(tried) == ["", "", "quota"]
    assert await replicas(api) == 3
    assert most_of(await offer(provider)) == 0
    for name in [one for one in await until_there(api, 3) if one != first]:
        assert (await ended(provider, await provider.delete(name, "op"))).state == "done"
    with pytest.raises(PermanentError) as caught:
        await provider.delete(first, "op")
    assert caught.value.reason == "quota"
    assert await until_there(api, 1) == [first]


async def test_others_scale_at_the_same_time(
    plane: ControlPlane, api: FencedClient, make: Callable[[], ClusterApiProvider]
) -> None:
    """Raised by its owner during an order it has both; lowered before a deletion, the marked Machine goes once."""
    provider = make()
    sold = await offer(provider)
    begun = await provider.boot("kinema-1", sold, "op-1")
    scale(plane.admin, "m2-a", 3)
    booted = await ended(provider, begun)
    assert booted.state == "done"
    names = await until_there(api, 3)
    for name in names:
        await usable(api, name)
    machine = (await api.items(MACHINES))[0]
    marked = str(machine["status"]["nodeRef"]["name"])
    await api.patch(f"{MACHINES}/{machine['metadata']['name']}", {"metadata": {"annotations": {DELETE_MACHINE: "yes"}}})
    scale(plane.admin, "m2-a", 2)  # the place of a process that was killed between mark and replicas: others lower it
    assert (await outcome(provider, marked)) in {"done", "not-found"}
    assert await until_there(api, 2) == [name for name in names if name != marked]
    assert await replicas(api) == 2


async def outcome(provider: ClusterApiProvider, name: str) -> str:
    """How a deletion ends."""
    try:
        return (await ended(provider, await provider.delete(name, "op"))).state
    except PermanentError as error:
        return error.reason


async def test_order_waits_until_the_marked_machine_goes(
    api: FencedClient, make: Callable[[], ClusterApiProvider]
) -> None:
    """Raised before Cluster API has deleted the marked Machine, a MachineDeployment would keep it, and buy none."""
    provider = make()
    sold = await offer(provider)
    booted = [await ended(provider, await provider.boot(f"kinema-{number}", sold, "op")) for number in "12"]
    first, second = (one.node for one in booted)
    (found,) = await api.items(f"{CORE}/machinesets", labelSelector=f"{DEPLOYMENT}=m2-a")
    machines = f"{CORE}/machinesets/{found['metadata']['name']}"
    await api.patch(machines, {"metadata": {"annotations": {PAUSED: "true"}}})
    gone = await provider.delete(first, "op-3")
    with pytest.raises(ConflictError):
        await provider.boot("kinema-3", sold, "op-4")
    assert await replicas(api) == 1
    await api.patch(machines, {"metadata": {"annotations": {PAUSED: None}}})
    third = await ended(provider, await provider.boot("kinema-3", sold, "op-4"))
    assert (third.state, (await ended(provider, gone)).state) == ("done", "done")
    assert await until_there(api, 2) == sorted((second, third.node))


async def test_marks_of_deletions_that_ended_early_are_removed(
    api: FencedClient, make: Callable[[], ClusterApiProvider]
) -> None:
    """Of two marked Machines either may go: Kinema removes its own old mark, and waits for others to remove theirs."""
    provider = make()
    sold = await offer(provider)
    names = sorted(
        [(await ended(provider, await provider.boot(f"kinema-{number}", sold, "op"))).node for number in "123"]
    )
    by_node = {str(one["status"]["nodeRef"]["name"]): one for one in await api.items(MACHINES)}
    paths = [f"{MACHINES}/{by_node[name]['metadata']['name']}" for name in names]
    await api.patch(paths[0], {"metadata": {"annotations": {DELETE_MACHINE: "kinema"}}})
    await api.patch(paths[2], {"metadata": {"annotations": {DELETE_MACHINE: "yes"}}})
    with pytest.raises(ConflictError, match=DELETE_MACHINE):
        await provider.delete(names[1], "op-1")
    assert await replicas(api) == 3
    await api.patch(paths[2], {"metadata": {"annotations": {DELETE_MACHINE: None}}})
    assert (await ended(provider, await provider.delete(names[1], "op-1"))).state == "done"
    assert await until_there(api, 2) == [names[0], names[2]]
    assert DELETE_MACHINE not in annotations_of(await api.get(paths[0]))


async def test_killed_between_mark_and_replicas_goes_on(
    api: FencedClient, make: Callable[[], ClusterApiProvider]
) -> None:
    """A Machine that is marked, with its MachineDeployment as it was, is deleted once by the next process."""
    provider = make()
    sold = await offer(provider)
    booted = [await ended(provider, await provider.boot(f"kinema-{number}", sold, "op")) for number in range(3)]
    names = sorted(one.node for one in booted)
    machine = next(one for one in await api.items(MACHINES) if one["status"]["nodeRef"]["name"] == names[1])
    path = f"{MACHINES}/{machine['metadata']['name']}"
    await api.patch(path, {"metadata": {"annotations": {DELETE_MACHINE: "yes"}}})
    first = await make().delete(names[1], "op-1")
    again = await make().delete(names[1], "op-1")  # its answer was lost
    assert (await ended(make(), first)).state == "done"
    assert (await ended(make(), again)).state == "done"
    assert await until_there(api, 2) == [names[0], names[2]]
    assert await replicas(api) == 2


async def test_machine_that_another_client_deletes_is_made_again(
    plane: ControlPlane, api: FencedClient, fleet: ClusterApi, make: Callable[[], ClusterApiProvider]
) -> None:
    """The MachineSet replaces a Machine of an order; the order's owner gets that one, and one is paid for."""
    provider = make()
    fleet.cloud.silent = True
    begun = await provider.boot("kinema-1", await offer(provider), "op-1")
    async with asyncio.timeout(60):
        while not (machines := await api.items(MACHINES)):  # noqa: ASYNC110 - others report to the API server alone
            await asyncio.sleep(0.2)
    await provider.operation(begun.id)
    plane.admin.request("DELETE", f"{MACHINES}/{machines[0]['metadata']['name']}")
    fleet.cloud.silent = False
    booted = await ended(provider, begun)
    assert booted.state == "done"
    assert await until_there(api, 1) == [booted.node]
    assert booted.node != machines[0]["metadata"]["name"]
    assert fleet.cloud.paid() == [booted.node]


async def test_order_that_another_client_takes_back_has_failed(
    plane: ControlPlane, api: FencedClient, fleet: ClusterApi, make: Callable[[], ClusterApiProvider]
) -> None:
    """Lowered by its owner, a MachineDeployment has no Machine for the order any more: nothing is paid for."""
    provider = make()
    fleet.cloud.silent = True
    begun = await provider.boot("kinema-1", await offer(provider), "op-1")
    scale(plane.admin, "m2-a", 0)
    failed = await ended(provider, begun)
    assert (failed.state, failed.reason) == ("failed", "conflict")
    fleet.cloud.silent = False
    assert await until_there(api, 0) == []
    assert await provider.nodes() == ()
    assert await replicas(api) == 0


async def test_paused_deployments_sell_nothing(
    plane: ControlPlane, api: FencedClient, make: Callable[[], ClusterApiProvider]
) -> None:
    """Nobody would act on an order: it is refused, and its machines are not on offer."""
    provider = make()
    sold = await offer(provider)
    scale(plane.admin, "m2-a", 0, {PAUSED: "true"})
    async with asyncio.timeout(60):
        while "m2" in {row.machine_type for row in (await provider.catalog()).rows}:  # noqa: ASYNC110
            await asyncio.sleep(0.2)
    assert await reason(provider, "kinema-1", sold) == "not-found"
    assert await replicas(api) == 0
    scale(plane.admin, "m2-a", 0, {PAUSED: None})


async def test_rights_are_those_that_are_written_down(
    plane: ControlPlane, make: Callable[[], ClusterApiProvider], tmp_path: Path
) -> None:
    """An account with exactly the listed rights, under the guard, boots and deletes; one that may look does not."""
    rules = [
        {"apiGroups": [rule.group], "resources": list(rule.resources), "verbs": list(rule.verbs)}
        for rule in OF_PROVIDER["cluster-api"]
    ]
    looking = [{**rule, "verbs": [verb for verb in rule["verbs"] if verb in {"get", "list"}]} for rule in rules]
    nodes = {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}  # of every rescheduler
    for name, granted in (("booter", [*rules, nodes]), ("looker", [*looking, nodes])):
        access: Access = await asyncio.to_thread(plane.admin.account, "provider-rights", name, granted)
        await asyncio.to_thread(enforce_guard, plane.admin, f"system:serviceaccount:provider-rights:{name}")
        api = await connect(str(access.write_kubeconfig(tmp_path / name)))
        provider = ClusterApiProvider(api, api, settings(tmp_path))
        sold = await offer(provider)
        if name == "booter":
            booted = await ended(provider, await provider.boot("kinema-1", sold, "op-1"))
            (machine,) = await api.items(MACHINES)
            await asyncio.to_thread(check_guarded, access, machine["metadata"]["name"])
            assert (await ended(provider, await provider.delete(booted.node, "op-2"))).state == "done"
        else:
            with pytest.raises(PermanentError) as caught:
                await provider.boot("kinema-1", sold, "op-1")
            assert caught.value.reason == "denied"
        await api.close()


def enforce_guard(access: Access, user: str) -> None:
    """Let the API server hold an account to what Kinema does, as the chart's admission policy does."""
    for plural, item in zip(("ies", "ybindings"), guard(user), strict=True):
        path = f"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic{plural}/{GUARD}"
        access.apply(path, {"apiVersion": item["apiVersion"], "kind": item["kind"]}, spec=item["spec"])
    access.until(
        f"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/{GUARD}",
        lambda found: found.get("status", {}).get("observedGeneration") == found["metadata"]["generation"],
    )


def check_guarded(access: Access, machine: str) -> None:
    """Whoever has stolen the account's token cannot scale at will, or change what Machines are."""
    for path, body in (
        (f"{DEPLOYMENTS}/m2-a", {"spec": {"replicas": 40}}),
        (f"{DEPLOYMENTS}/m2-a", {"spec": {"rollout": {"strategy": {"type": "OnDelete"}}}}),
        (f"{DEPLOYMENTS}/m2-a", {"metadata": {"annotations": {PAUSED: "true"}}}),
        (f"{MACHINES}/{machine}", {"metadata": {"annotations": {"cluster.x-k8s.io/remediate-machine": ""}}}),
    ):
        end = time.monotonic() + 60
        while "rescheduler does not do this" not in (why := attempt(access, path, body)):
            assert time.monotonic() < end, (path, body, why)  # a policy takes effect after a moment
            time.sleep(0.5)


def attempt(access: Access, path: str, body: dict[str, Any]) -> str:
    """Return why a change would be refused; empty where it would be made."""
    try:
        access.request("PATCH", f"{path}?dryRun=All", body, content_type=MERGE)
    except RefusedError as error:
        return str(error.body.get("message", error.body))
    return ""
