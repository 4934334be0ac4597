"""Scenarios: the same seed gives the same bytes, and after-peak is what it says."""

from collections import Counter

import msgspec
import pytest
from tests.sim.builders import a_cluster, an_app, edit_spec, pods_of, with_deployment

from kinema_sim.cluster import Cluster
from kinema_sim.engine.clock import EPOCH_MS, parse_stamp
from kinema_sim.engine.kinds import DAEMON_SET, DEPLOYMENT, HPA, NODE, POD, STATEFUL_SET
from kinema_sim.engine.objects import is_ready, labels_of, name_of, namespace_of, node_of
from kinema_sim.scenarios.registry import SCENARIOS


@pytest.fixture(scope="module")
def after_peak() -> Cluster:
    """Build the scenario once for all tests that only look at it."""
    return SCENARIOS["after-peak"](0)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_the_same_seed_gives_the_same_bytes(name: str) -> None:
    """Two runs with one seed end in the same store and history; another seed in another store."""
    one, two, other = SCENARIOS[name](3), SCENARIOS[name](3), SCENARIOS[name](4)
    for cluster in (one, two, other):
        cluster.run_for(600)
    assert one.store.dump() == two.store.dump()
    assert msgspec.json.encode(one.history.samples) == msgspec.json.encode(two.history.samples)
    assert one.store.dump() != other.store.dump()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_after_peak_is_at_rest(seed: int) -> None:
    """Nothing is pending, every set is ready, no autoscaler wants anything, and nothing changes any more."""
    cluster = SCENARIOS["after-peak"](seed)
    store = cluster.store
    for kind in (DEPLOYMENT, STATEFUL_SET):
        for found in store.each(kind):
            assert found["status"].get("readyReplicas", 0) == found["spec"]["replicas"], name_of(found)
    for found in store.each(DAEMON_SET):
        assert found["status"]["numberReady"] == found["status"]["desiredNumberScheduled"] == store.count(NODE)
    for found in store.each(HPA):
        current = found["status"]["currentMetrics"][0]["resource"]["current"]["averageUtilization"]
        assert current <= 60, name_of(found)
        assert found["status"]["currentReplicas"] == found["status"]["desiredReplicas"]
    assert all(is_ready(pod) for pod in store.each(POD))
    assert {machine.state for machine in cluster.cloud.machines.values()} == {"running"}
    version, usage = store.version, cluster.load.usage()
    cluster.run_for(900)
    assert store.version == version
    assert cluster.load.usage() == usage


def test_after_peak_is_big_and_empty(after_peak: Cluster) -> None:
    """Ten to fourteen nodes carry sixty to ninety pods, and less than a third of the CPU is asked for."""
    sample = after_peak.history.samples[-1]
    assert 10 <= after_peak.store.count(NODE) <= 14
    assert 60 <= after_peak.store.count(POD) <= 90
    assert sample["requested"]["cpu_m"] * 3 < sample["allocatable"]["cpu_m"]
    assert sample["used"]["cpu_m"] * 3 < sample["requested"]["cpu_m"]


def test_after_peak_had_a_peak(after_peak: Cluster) -> None:
    """At the peak there were more pods and fewer nodes at first, and the applications kept answering."""
    samples = after_peak.history.samples
    busiest = max(samples, key=lambda sample: sample["load"]["online-boutique"]["rps"])
    assert busiest["load"]["online-boutique"]["rps"] > 400
    assert busiest["used"]["cpu_m"] > 10 * samples[-1]["used"]["cpu_m"]
    assert max(sample["pending"] for sample in samples[5:]) > 0
    assert len(samples[0]["nodes"]) < len(samples[-1]["nodes"])


def test_only_online_boutique_has_fixed_requests(after_peak: Cluster) -> None:
    """Every Deployment of Online Boutique turns the adjustment of requests off, none of TeaStore does."""
    for found in after_peak.store.each(DEPLOYMENT):
        off = (found["metadata"].get("annotations") or {}).get("kinema.io/rightsizing-max-step") == "0"
        assert off is (namespace_of(found) == "online-boutique")


def test_usage_is_the_same_for_every_pod_of_a_service(after_peak: Cluster) -> None:
    """At constant load all pods of a service use the same, less than they ask for."""
    seen: dict[tuple[str, str], set[object]] = {}
    for key, usage in after_peak.meter.usage.items():
        pod = after_peak.store.find(POD, key)
        assert pod is not None
        seen.setdefault((key[0], labels_of(pod)["app"]), set()).add(usage)
    assert all(len(usages) == 1 for usages in seen.values())
    assert len(after_peak.meter.usage) == after_peak.store.count(POD)


def test_history_counts_every_dip() -> None:
    """A pod that is lost for a moment shows in a sample of its own, however short the moment is."""
    cluster = a_cluster(nodes=2)
    with_deployment(cluster, an_app(replicas=3))
    start = cluster.loop.now_ms
    cluster.api.delete(POD, "shop", name_of(pods_of(cluster)[0]), options={"gracePeriodSeconds": 0})
    cluster.run_for(20)
    counts = [sample["workloads"]["Deployment shop/web"] for sample in cluster.history.since(start)]
    assert min(count["ready"] for count in counts) == 2
    assert counts[-1] == {"desired": 3, "ready": 3}


def test_history_samples_every_five_seconds_and_prices_nodes() -> None:
    """Without changes there is a sample every five virtual seconds, with the price of all machines."""
    cluster = a_cluster(nodes=2)
    cluster.run_for(60)
    since = cluster.loop.now_ms
    cluster.run_for(20)
    samples = cluster.history.since(since)
    assert [sample["time"][-10:] for sample in samples] == [f"01:{second}.000Z" for second in ("05", "10", "15", "20")]
    assert samples[0]["usd_per_hour"] == pytest.approx(0.34)
    assert [node["ready"] for node in samples[0]["nodes"]] == [True, True]


def test_moves_pair_old_pods_with_their_heirs() -> None:
    """Two pods that were replaced on other nodes appear as two moves with both nodes and all times."""
    cluster = a_cluster(nodes=3)
    with_deployment(cluster, an_app(replicas=2))
    since = cluster.loop.now_ms
    old = {name_of(pod): node_of(pod) for pod in pods_of(cluster)}
    edit_spec(cluster, replicas=4)
    cluster.run_for(20)
    for name in old:
        cluster.store.edit(
            POD,
            ("shop", name),
            lambda pod: pod["metadata"].update(annotations={"controller.kubernetes.io/pod-deletion-cost": "-1"}),
        )
    edit_spec(cluster, replicas=2)
    cluster.run_for(20)
    moves = cluster.history.lives.moves(since)
    assert Counter(move["workload"] for move in moves) == {"Deployment shop/web": 2}
    assert {move["from"]["pod"].partition("/")[2]: move["from"]["node"] for move in moves} == old
    fresh = {name_of(pod) for pod in pods_of(cluster)}
    assert {move["to"]["pod"].partition("/")[2] for move in moves} == fresh
    for move in moves:
        assert move["to"]["created"] < move["to"]["ready"] < move["from"]["deleted"] < move["from"]["gone"]


def test_every_created_pod_is_told_once_whatever_becomes_of_it() -> None:
    """A pod that replaces another counts as created also when that one goes so much later that they make no move."""
    cluster = a_cluster(nodes=2)
    with_deployment(cluster, an_app(replicas=1))
    since = cluster.loop.now_ms
    edit_spec(cluster, replicas=2)
    cluster.run_for(600)
    edit_spec(cluster, replicas=1)
    cluster.run_for(20)
    assert cluster.history.lives.moves(since) == []
    assert [one["workload"] for one in cluster.history.lives.created(since)] == ["Deployment shop/web"]


def test_virtual_time_starts_on_a_known_morning() -> None:
    """Virtual time does not depend on the wall clock."""
    assert a_cluster(nodes=0).loop.now_ms == EPOCH_MS == parse_stamp("2026-01-05T08:00:00Z")
