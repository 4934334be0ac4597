"""What the provider `cluster-api` reads out of MachineDeployments and Machines."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from tests.support.builders import NOW
from tests.support.manual_clock import ManualClock

from kinema_core.events import Step
from kinema_core.model.catalog import offers_from, parse_catalog
from kinema_core.model.cluster import Cluster
from kinema_rescheduler.effects import Effects
from kinema_rescheduler.errors import PermanentError, TransientError
from kinema_rescheduler.kubernetes.cluster import ClusterWriter
from kinema_rescheduler.kubernetes.cluster import Order as ClusterOrder
from kinema_rescheduler.kubernetes.fenced import FencedClient
from kinema_rescheduler.providers.cluster_api import (
    DEPLOYMENT,
    LABELS,
    MAX_SIZE,
    ORDERS,
    TAINTS,
    ClusterApiProvider,
    Group,
    Order,
    assigned,
    failure,
    pool_of,
    sells,
    sold,
)
from kinema_rescheduler.settings import ClusterApiSettings

ROWS = parse_catalog(
    "machine_type,vcpus,memory_gib,usd_per_hour,zone,capacity_type\n"
    "m5.large,2,8,0.1,eu-central-1a,on-demand\nm5.large,2,8,0.03,eu-central-1a,spot\nm5.large,2,8,0.1,eu-central-1b,\n"
    "c5.large,2,4,0.09,,\n"
)
ROLLING = {"conditions": [{"type": "RollingOut", "status": "True", "message": "version\n  is empty"}]}
TYPE = "node.kubernetes.io/instance-type=m5.large"


def deployment(name: str = "md", replicas: int = 0, **more: Any) -> dict[str, Any]:
    """A MachineDeployment; `annotations` and the fields of its template's spec, and its template's labels."""
    annotations, labels = more.pop("annotations", {}), more.pop("labels", {})
    template = {"metadata": {"labels": labels}, "spec": more}
    return {
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"clusterName": "shop", "replicas": replicas, "template": template},
        "status": {},
    }


def machine(name: str, node: str = "", **metadata: Any) -> dict[str, Any]:
    """A Machine, with a node if it is named."""
    status = {"nodeRef": {"name": node}} if node else {}
    return {"metadata": {"name": name, "creationTimestamp": "2026-11-01T00:00:00Z", **metadata}, "status": status}


def group(orders: dict[str, Order], *machines: dict[str, Any]) -> Group:
    """A MachineDeployment with orders and Machines."""
    return Group(deployment(annotations={ORDERS: msgspec.json.encode(orders).decode()}), machines)


class Management:
    """A management cluster that only answers, with the nodes of the Machines beside it."""

    def __init__(self, *deployments: dict[str, Any], machines: Sequence[dict[str, Any]] = (), **types: str) -> None:
        """`types`: machine types by node."""
        label = "node.kubernetes.io/instance-type"
        zone = {"topology.kubernetes.io/zone": "eu-central-1a"}
        nodes = [{"metadata": {"name": name, "labels": {label: one, **zone}}} for name, one in types.items()]
        self.found = {"machinedeployments": list(deployments), "machines": list(machines), "nodes": nodes}

    async def items(self, path: str, **_: str) -> list[dict[str, Any]]:
        """All of a kind."""
        return self.found[path.rpartition("/")[2]]

    async def get(self, path: str) -> dict[str, Any]:
        """One of them."""
        kind, name = path.split("/")[-2:]
        return next(one for one in self.found[kind] if one["metadata"]["name"] == name)

    def provider(self, catalog: Path | None = None) -> ClusterApiProvider:
        """A provider of it."""
        api = cast("FencedClient", self)
        return ClusterApiProvider(
            api, api, ClusterApiSettings(namespace="fleet", cluster="shop", catalog=str(catalog or ""))
        )


def owned(name: str, node: str = "", **metadata: Any) -> dict[str, Any]:
    """A Machine of the MachineDeployment `md`."""
    return machine(name, node, uid=f"uid-{name}", labels={DEPLOYMENT: "md"}, **metadata)


async def test_deletion_and_boot_say_what_they_wait_for() -> None:
    """A rollout that never ends, a drain, and a machine that does not come are named with their objects."""
    rolling = {**deployment(replicas=1), "status": ROLLING}
    provider = Management(rolling, machines=[owned("a", "n1")], n1="m5.large").provider()
    assert (await provider.delete("n1", "op")).message == "MachineDeployment md rolls out: version is empty"

    going = owned("a", "n1", deletionTimestamp="now")
    going["status"]["conditions"] = [{"type": "Deleting", "status": "True", "message": "Drain not completed: pod shop"}]
    provider = Management(deployment(), machines=[going], n1="m5.large").provider()
    assert (await provider.delete("n1", "op")).message == (
        "Cluster API deletes Machine a: Drain not completed: pod shop"
    )

    ordered = deployment(replicas=1, annotations={ORDERS: '{"new": {"offer": "m", "machine": "a"}}'})
    coming = owned("a")
    coming["status"]["conditions"] = [{"type": "InfrastructureReady", "status": "False", "message": "starting"}]
    found = await Management(ordered, machines=[coming]).provider().operation("boot/md/new")
    assert (found.state, found.message) == ("running", "Machine a has no node: starting")


async def test_time_out_says_what_the_operation_waits_for() -> None:
    """The step that fails names the MachineDeployment and its rollout."""
    provider = Management({**deployment(replicas=1), "status": ROLLING}, machines=[owned("a", "n1")]).provider()
    clock = ManualClock(NOW)
    effects = Effects(writer=cast("ClusterWriter", Deletable()), provider=provider, clock=clock, report=lambda _: None)
    order = ClusterOrder(step=Step(id="delete/n1", kind="delete", target="n1"), plan="p", iteration="i")
    with pytest.raises(TransientError, match="does not end: MachineDeployment md rolls out: version is empty"):
        await effects.perform(order, NOW + timedelta(minutes=1), {})


class Deletable:
    """A writer for which every node may go."""

    async def check_deletable(self, order: ClusterOrder) -> bool:
        """It may."""
        return True


async def test_cluster_without_deployments_is_told() -> None:
    """A wrong name of the Cluster, or of its namespace, is no empty catalog."""
    with pytest.raises(PermanentError, match="no MachineDeployment of Cluster fleet/shop"):
        await Management().provider().catalog()


async def test_newest_machine_tells_the_type(tmp_path: Path) -> None:
    """In a rollout to another machine type, old Machines are there too."""
    prices = tmp_path / "prices.csv"
    prices.write_text("machine_type,vcpus,memory_gib,usd_per_hour\nm5.large,2,8,0.1\nc5.large,2,4,0.09\n")
    old, new = owned("a", "n1"), owned("b", "n2", creationTimestamp="2026-11-02T00:00:00Z")
    management = Management(deployment(replicas=2), machines=[old, new], n1="m5.large", n2="c5.large")
    assert [row.machine_type for row in (await management.provider(prices).catalog()).rows] == ["c5.large"]


@pytest.mark.parametrize("text", ["gpu", "gpu=yes:Never", ":NoSchedule"])
def test_taints_that_cannot_be_read_are_named(text: str) -> None:
    """They would stop the optimizer if they stood in an offer."""
    with pytest.raises(PermanentError, match=f"{TAINTS} of MachineDeployment md"):
        pool_of(deployment(annotations={LABELS: TYPE, TAINTS: text}), {})


def test_types_come_from_annotations_and_live_nodes() -> None:
    """Annotations tell of machines that are not there yet; what a live node is wins; the failure domain is a zone."""
    told = pool_of(deployment(annotations={LABELS: f"{TYPE},team=shop"}, failureDomain="eu-central-1a"), {})
    assert told is not None
    assert (told.machine_type, told.zone, told.capacity_type) == ("m5.large", "eu-central-1a", "on-demand")
    assert dict(told.labels) == {"team": "shop"}
    live = {
        "node.kubernetes.io/instance-type": "c5.large",
        "topology.kubernetes.io/zone": "eu-central-1b",
        "cluster.x-k8s.io/interruptible": "",
        "kubernetes.io/hostname": "n1",
    }
    seen = pool_of(deployment(annotations={LABELS: TYPE}), live)
    assert seen is not None
    assert (seen.machine_type, seen.zone, seen.capacity_type) == ("c5.large", "eu-central-1b", "spot")
    assert dict(seen.labels) == {}
    assert pool_of(deployment(), {}) is None


def test_labels_and_taints_of_new_nodes() -> None:
    """Labels that Cluster API copies from Machines, and taints of the template that stay."""
    taints = [
        {"key": "shop", "value": "yes", "effect": "NoSchedule", "propagation": "Always"},
        {"key": "starting", "effect": "NoSchedule", "propagation": "OnInitialization"},
    ]
    labels = {"node.cluster.x-k8s.io/tier": "web", "team": "shop"}
    found = pool_of(deployment(annotations={LABELS: TYPE, TAINTS: "gpu=:NoSchedule"}, labels=labels, taints=taints), {})
    assert found is not None
    assert dict(found.labels) == {"node.cluster.x-k8s.io/tier": "web"}
    assert found.taints == ("gpu:NoSchedule", "shop=yes:NoSchedule")


def test_deployments_that_boot_the_same_share_their_limit() -> None:
    """Each row is sold where a MachineDeployment boots it; those that boot the same are one offer."""
    limited = {LABELS: TYPE, MAX_SIZE: "5"}
    of = {"failureDomain": "eu-central-1a"}
    pools = [
        pool_of(deployment("one", 3, annotations=limited, **of), {}),
        pool_of(deployment("two", 4, annotations=limited, **of), {}),
        pool_of(deployment("free", 9, annotations={LABELS: f"{TYPE},team=x"}, **of), {}),
    ]
    rows = sold(ROWS, [pool for pool in pools if pool is not None])
    assert [(row.zone, dict(row.labels)) for row in rows] == [("eu-central-1a", {}), ("eu-central-1a", {"team": "x"})]
    assert [[(one.takes, one.left) for one in row.quotas] for row in rows] == [[(1, 3)], []]
    plain, labeled = offers_from(rows, Cluster())
    assert [sells(pool, plain) for pool in pools if pool is not None] == [True, True, False]
    assert [sells(pool, labeled) for pool in pools if pool is not None] == [True, True, True]


@pytest.mark.parametrize("text", ["many", "-1", "1.5"])
def test_limits_that_are_no_number_are_named(text: str) -> None:
    """The annotation and its MachineDeployment stand in the error."""
    with pytest.raises(PermanentError, match=f"{MAX_SIZE} of MachineDeployment md"):
        pool_of(deployment(annotations={LABELS: TYPE, MAX_SIZE: text}), {})


def test_counts_say_when_it_may_be_scaled() -> None:
    """Machines that go do not count; raised only while there are not too many, lowered only while there are as many."""
    two = deployment(replicas=2)
    going = machine("c", deletionTimestamp="now")
    for machines, shrinking, settled in (
        ((machine("a"), machine("b"), going), False, True),
        ((machine("a"), going), False, False),
        ((machine("a"), machine("b"), machine("c")), True, False),
    ):
        found = Group(two, machines)
        assert (found.shrinking, not found.unsettled) == (shrinking, settled)
    both = (machine("a"), machine("b"))
    assert Group({**two, "status": ROLLING}, both).unsettled == "MachineDeployment md rolls out: version is empty"
    assert Group({**two, "metadata": {**two["metadata"], "generation": 2}}, both).unsettled


def test_orders_get_new_machines_once() -> None:
    """In the order in which they were placed; Machines that were there before, or that go, fulfil none."""
    orders = {
        "second": Order(offer="m", before=("old",)),
        "first": Order(offer="m", before=("old", "b")),
        "third": Order(offer="m", before=("old",)),
    }
    found = assigned(
        group(orders, machine("old", "n0"), machine("going", deletionTimestamp="now"), machine("c"), machine("b", "n1"))
    )
    assert [(name, one.machine, one.done) for name, one in found.items()] == [
        ("second", "b", True),
        ("first", "c", False),
        ("third", "", False),
    ]
    assert found["second"].before == ()
    assert assigned(group(dict(found), machine("b", "n1"), machine("c"))) == found


def test_machines_that_were_there_are_stated_once() -> None:
    """An annotation has room for 256 KiB: what the first order states counts for those after it, even if it is over."""
    orders = {
        "one": Order(offer="m", before=("a", "b")),
        "two": Order(offer="m"),
        "three": Order(offer="m", before=("c",)),
    }
    there = [machine(name, f"node-{name}") for name in "abc"]  # `c` came before the third was placed
    assert assigned(group(orders, *there)) == {
        "one": Order(offer="m", machine="c", done=True),
        "two": Order(offer="m", before=("a", "b")),
        "three": Order(offer="m", before=("c",)),
    }
    assert assigned(group(orders, *there), but="one") == {
        "two": Order(offer="m", machine="c", done=True),
        "three": Order(offer="m", before=("a", "b", "c")),
    }


def test_order_whose_machine_is_gone() -> None:
    """Without a node it gets the replacement; with one it is over."""
    before = {
        "waits": Order(offer="m", before=("old",), machine="a"),
        "over": Order(offer="m", machine="b", done=True),
    }
    assert assigned(group(before, machine("old", "n0"))) == {"waits": Order(offer="m", before=("old",))}
    found = assigned(group(before, machine("old", "n0"), machine("new")))
    assert {name: one.machine for name, one in found.items()} == {"waits": "new"}


def test_foreign_text_in_the_annotation_is_told() -> None:
    """Orders that cannot be read are not forgotten."""
    with pytest.raises(PermanentError, match=ORDERS):
        assigned(Group(deployment(annotations={ORDERS: "[1]"}), ()))


@pytest.mark.parametrize(
    ("kind", "status", "words", "reason"),
    [
        ("InfrastructureReady", "False", "Insufficient: SkuNotAvailable in westeurope", "stock-out"),
        ("BootstrapConfigReady", "False", "AccessDenied: not authorized", "permission"),
        ("InfrastructureReady", "False", "InstanceNotReady: starting", ""),
        ("InfrastructureReady", "Unknown", "SkuNotAvailable", ""),
        ("Ready", "False", "SkuNotAvailable", ""),
    ],
)
def test_words_in_conditions(kind: str, status: str, words: str, reason: str) -> None:
    """Only what a False condition of infrastructure or bootstrap says for good ends an order."""
    found = machine("m")
    found["status"] = {"conditions": [{"type": kind, "status": status, "reason": "NotReady", "message": words}]}
    assert failure(found)[0] == reason


def test_final_failures_of_the_older_contract() -> None:
    """A provider of the contract v1beta1 gives a reason that is final, whether its words are known or not."""
    found = machine("m")
    for words, reason in (("InsufficientResources", "stock-out"), ("CreateError", "invalid")):
        old = {"failureReason": words, "failureMessage": "no"}
        found["status"] = {"deprecated": {"v1beta1": old}}
        assert failure(found) == (reason, f"{words}: no")
