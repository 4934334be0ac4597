"""What the provider `cluster-api` reads out of MachineDeployments and Machines."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kinema_core.model.catalog import offers_from, parse_catalog
from kinema_core.model.cluster import Cluster
from kinema_rescheduler.errors import PermanentError
from kinema_rescheduler.providers.cluster_api import (
    LABELS,
    MAX_SIZE,
    ORDERS,
    TAINTS,
    Group,
    Order,
    assigned,
    failure,
    pool_of,
    sells,
    sold,
)

ROWS = parse_catalog(
    "machine_type,vcpus,memory_gib,usd_per_hour,zone,capacity_type\n"
    "m5.large,2,8,0.1,eu-central-1a,on-demand\nm5.large,2,8,0.03,eu-central-1a,spot\nm5.large,2,8,0.1,eu-central-1b,\n"
    "c5.large,2,4,0.09,,\n"
)
TYPE = "node.kubernetes.io/instance-type=m5.large"


def deployment(name: str = "md", replicas: int = 0, **more: Any) -> dict[str, Any]:
    """A MachineDeployment; `annotations` and the fields of its template's spec, and its template's labels."""
    annotations, labels = more.pop("annotations", {}), more.pop("labels", {})
    template = {"metadata": {"labels": labels}, "spec": more}
    return {
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"replicas": replicas, "template": template},
        "status": {},
    }


def machine(name: str, node: str = "", **metadata: Any) -> dict[str, Any]:
    """A Machine, with a node if it is named."""
    status = {"nodeRef": {"name": node}} if node else {}
    return {"metadata": {"name": name, "creationTimestamp": "2026-11-01T00:00:00Z", **metadata}, "status": status}


def group(orders: dict[str, Order], *machines: dict[str, Any]) -> Group:
    """A MachineDeployment with orders and Machines."""
    return Group(deployment(annotations={ORDERS: msgspec.json.encode(orders).decode()}), machines)


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
    assert found.taints == ("gpu=:NoSchedule", "shop=yes:NoSchedule")


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
        assert (found.shrinking, found.settled) == (shrinking, settled)
    rolling = {"conditions": [{"type": "RollingOut", "status": "True"}]}
    both = (machine("a"), machine("b"))
    assert not Group({**two, "status": rolling}, both).settled
    assert not Group({**two, "metadata": {**two["metadata"], "generation": 2}}, both).settled


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
