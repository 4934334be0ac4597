"""The simple autoscaler of scenarios, and how long pods take."""

from tests.sim.builders import a_cluster, an_app, edit_spec, node_names, ready_count, with_deployment

from kinema_sim.cloud.growth import Growth
from kinema_sim.cloud.machines import ZONES
from kinema_sim.cluster import Cluster
from kinema_sim.controllers.kubelet import READY_MS, START_MS
from kinema_sim.engine.kinds import DAEMON_SET, POD
from kinema_sim.engine.objects import condition, node_of
from kinema_sim.scenarios.objects import daemon_set


def _growing(*groups: str, nodes: int = 0) -> Cluster:
    cluster = a_cluster(nodes=nodes, machine="e2-standard-2")
    books = cluster.scheduler.books
    Growth(store=cluster.store, cloud=cluster.cloud, books=books, groups=groups, zones=ZONES)
    return cluster


def test_it_buys_what_pending_pods_need_in_all_zones() -> None:
    """Pending pods get as many machines as first fit needs, spread evenly over the zones, and no more later."""
    cluster = _growing("e2-standard-2")
    with_deployment(cluster, an_app(replicas=6, cpu_m=900), seconds=120)
    assert ready_count(cluster) == 6
    assert len(node_names(cluster)) == 3
    assert {machine.offer.zone for machine in cluster.cloud.machines.values()} == set(ZONES)
    cluster.run_for(300)
    assert len(cluster.cloud.machines) == 3


def test_it_chooses_the_least_waste() -> None:
    """Of two machine types, the one that leaves the smaller share unused is bought."""
    cluster = _growing("e2-standard-2", "e2-standard-16")
    with_deployment(cluster, an_app(replicas=1, cpu_m=1500), seconds=120)
    assert [machine.offer.machine_type for machine in cluster.cloud.machines.values()] == ["e2-standard-2"]


def test_it_counts_daemon_pods_of_the_new_machine() -> None:
    """Two pods that would just fit do not fit beside the daemon pod, so each gets a machine."""
    cluster = _growing("e2-standard-2")
    cluster.store.create(DAEMON_SET, daemon_set(an_app("agent", cpu_m=100)))
    with_deployment(cluster, an_app(replicas=2, cpu_m=960), seconds=120)
    assert len(node_names(cluster)) == 2


def test_it_never_shrinks_and_can_be_switched_off() -> None:
    """Machines stay when the pods leave; switched off, it buys nothing."""
    cluster = a_cluster(nodes=0)
    growth = Growth(
        store=cluster.store, cloud=cluster.cloud, books=cluster.scheduler.books, groups=("e2-standard-2",), zones=ZONES
    )
    with_deployment(cluster, an_app(replicas=4, cpu_m=900), seconds=120)
    edit_spec(cluster, replicas=0)
    cluster.run_for(1200)
    assert len(node_names(cluster)) == 2
    growth.active = False
    edit_spec(cluster, replicas=8)
    cluster.run_for(300)
    assert len(cluster.cloud.machines) == 2


def test_pods_take_their_time() -> None:
    """A pod is bound at once, runs after its start-up time, and is ready after the time that its annotation names."""
    cluster = a_cluster(nodes=1)
    with_deployment(cluster, an_app(ready_seconds=10), seconds=0.5)
    pod = cluster.store.each(POD)[0]
    assert (node_of(pod), pod["status"]["phase"]) == ("n1", "Pending")
    cluster.run_for(START_MS[1] / 1000)
    assert cluster.store.each(POD)[0]["status"]["phase"] == "Running"
    cluster.run_for(READY_MS[1] / 1000)
    assert ready_count(cluster) == 0
    cluster.run_for(7)
    assert ready_count(cluster) == 1
    told = condition(cluster.store.each(POD)[0], "Ready")
    assert told is not None
    assert told["lastTransitionTime"] > cluster.store.each(POD)[0]["status"]["startTime"]
