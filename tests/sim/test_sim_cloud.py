"""The cloud: prices, what nodes have left, orders and their failures."""

from dataclasses import replace

import pytest
from tests.sim.builders import a_cluster, node_names

from kinema_sim.cloud.machines import load_offers
from kinema_sim.cloud.provider import CloudError, ErrorClass, Operation
from kinema_sim.cluster import Cluster
from kinema_sim.engine.kinds import NODE
from kinema_sim.engine.objects import is_true

OFFER = "e2-standard-2/europe-west3-a/on-demand"
QUOTAS = ("CPUS", "PREEMPTIBLE_CPUS", "INSTANCES", "SSD_TOTAL_GB")


def _boot(cluster: Cluster, *, name: str = "x1", operation: str = "op-1", offer: str = OFFER) -> Operation:
    return cluster.cloud.boot(name, cluster.cloud.offers[offer], operation, labels={"team": "a"}, taints=[])


def test_prices_come_from_the_list() -> None:
    """Every machine type is on sale in three zones at the listed price, in whole micro-USD."""
    offers = {offer.name: offer for offer in load_offers()}
    assert len(offers) == 30
    assert offers[OFFER].usd_micro == 90_000
    assert offers["e2-highcpu-32/europe-west3-c/on-demand"].usd_micro == 1_010_000


def test_a_machine_boots_registers_and_becomes_ready() -> None:
    """The operation is done when the node registers within a minute, with standard labels, and Ready follows."""
    cluster = a_cluster(nodes=0)
    order = _boot(cluster)
    cluster.run_for(29)
    assert (order.state, node_names(cluster)) == ("running", [])
    cluster.run_for(31)
    assert order.state == "done"
    cluster.run_for(10)
    node = cluster.store.get(NODE, "", "x1")
    assert node is not None
    assert is_true(node, "Ready")
    assert node["metadata"]["labels"] == {
        "kubernetes.io/hostname": "x1",
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/os": "linux",
        "beta.kubernetes.io/arch": "amd64",
        "node.kubernetes.io/instance-type": "e2-standard-2",
        "topology.kubernetes.io/zone": "europe-west3-a",
        "kinema.io/capacity-type": "on-demand",
        "team": "a",
    }
    assert "taints" not in node["spec"]


def test_orders_are_idempotent() -> None:
    """The same operation again is the same order, and another operation for the same machine adopts it."""
    cluster = a_cluster(nodes=0)
    first = _boot(cluster)
    assert _boot(cluster) is first
    assert _boot(cluster, operation="op-2") is first
    cluster.run_for(80)
    assert node_names(cluster) == ["x1"]
    gone = cluster.cloud.delete("x1", "op-3")
    assert cluster.cloud.delete("x1", "op-3") is gone
    cluster.run_for(30)
    assert cluster.cloud.delete("x1", "op-4") is gone
    assert node_names(cluster) == []
    assert cluster.cloud.machines == {}


def test_conflicting_orders_are_refused() -> None:
    """A name that is another machine, or an operation that is another order, is a conflict."""
    cluster = a_cluster(nodes=0)
    _boot(cluster)
    with pytest.raises(CloudError, match="exists as") as other_offer:
        _boot(cluster, operation="op-2", offer="e2-standard-4/europe-west3-a/on-demand")
    with pytest.raises(CloudError, match="not boot x2") as other_name:
        _boot(cluster, name="x2")
    assert {other_offer.value.kind, other_name.value.kind} == {ErrorClass.CONFLICT}


def test_stock_outs_show_in_the_operation() -> None:
    """An offer that is sold out fails its operation after a while and leaves nothing behind."""
    cluster = a_cluster(nodes=0)
    cluster.cloud.sold_out.add(OFFER)
    order = _boot(cluster)
    assert order.state == "running"
    cluster.run_for(10)
    assert order.state == "failed"
    assert order.error is not None
    assert order.error[0] is ErrorClass.STOCK_OUT
    assert cluster.cloud.machines == {}


def test_limited_offers_run_out_and_come_back() -> None:
    """An offer with one machine left sells one, and sells it again after it was given back."""
    cluster = a_cluster(nodes=0)
    cluster.cloud.available[OFFER] = 1
    _boot(cluster)
    second = _boot(cluster, name="x2", operation="op-2")
    cluster.run_for(80)
    assert (node_names(cluster), second.state) == (["x1"], "failed")
    cluster.cloud.delete("x1", "op-3")
    cluster.run_for(30)
    third = _boot(cluster, name="x2", operation="op-4")
    cluster.run_for(80)
    assert (node_names(cluster), third.state) == (["x2"], "done")


def test_quota_and_permission_are_refused_at_once() -> None:
    """What the caller may not have is refused without an operation."""
    cluster = a_cluster(nodes=1)
    cluster.cloud.quotas["CPUS"] = 5
    with pytest.raises(CloudError, match="4 of 5 CPUS") as quota:
        _boot(cluster)
    cluster.cloud.denied = True
    with pytest.raises(CloudError) as denied:
        cluster.cloud.delete("n1", "op")
    assert (quota.value.kind, denied.value.kind) == (ErrorClass.QUOTA, ErrorClass.PERMISSION)
    assert "op-1" not in cluster.cloud.operations


def test_spot_machines_have_a_quota_of_their_own_where_the_region_has_one() -> None:
    """Without it they count as all others; boot disks count by gigabytes, machines by number."""
    cluster = a_cluster(nodes=0)
    cloud, offer = cluster.cloud, replace(cluster.cloud.offers[OFFER], capacity_type="spot")
    cloud.boot("x1", offer, "op-1", labels={}, taints=[], disk=("SSD_TOTAL_GB", 100))
    assert [cloud.used(metric) for metric in QUOTAS] == [2, 0, 1, 100]
    cloud.quotas["PREEMPTIBLE_CPUS"] = 3
    assert [cloud.used(metric) for metric in QUOTAS] == [0, 2, 1, 100]
    with pytest.raises(CloudError, match="2 of 3 PREEMPTIBLE_CPUS") as refused:
        cloud.boot("x2", offer, "op-2", labels={}, taints=[])
    assert refused.value.quota == "PREEMPTIBLE_CPUS"
    assert _boot(cluster, name="x3", operation="op-3").state == "running"


def test_deleting_what_is_not_there() -> None:
    """A machine that never was is not found."""
    cluster = a_cluster(nodes=0)
    with pytest.raises(CloudError) as missing:
        cluster.cloud.delete("x1", "op")
    assert missing.value.kind is ErrorClass.NOT_FOUND


def test_a_deletion_ends_a_boot_under_way() -> None:
    """A machine that is given back while it boots never registers, and its boot counts as failed."""
    cluster = a_cluster(nodes=0)
    order = _boot(cluster)
    cluster.cloud.delete("x1", "op-2")
    cluster.run_for(120)
    assert order.state == "failed"
    assert (node_names(cluster), cluster.cloud.machines) == ([], {})


def test_a_node_held_back_becomes_ready_when_released() -> None:
    """The fault keeps a node from Ready, and lifting it lets it go on."""
    cluster = a_cluster(nodes=0)
    cluster.cloud.never_ready.add("x1")
    _boot(cluster)
    cluster.run_for(120)
    node = cluster.store.get(NODE, "", "x1")
    assert node is not None
    assert not is_true(node, "Ready")
    cluster.cloud.release()
    node = cluster.store.get(NODE, "", "x1")
    assert node is not None
    assert is_true(node, "Ready")


def test_boot_times_depend_on_seed_and_name_only() -> None:
    """The same order takes equally long in every run with the same seed."""

    def registered_after(seed: int) -> float:
        cluster = a_cluster(nodes=0, seed=seed)
        order = _boot(cluster)
        start = cluster.loop.now_ms
        while order.state == "running":
            cluster.run_for(0.1)
        return cluster.loop.now_ms - start

    assert registered_after(0) == registered_after(0)
    assert len({registered_after(seed) for seed in range(4)}) > 1
