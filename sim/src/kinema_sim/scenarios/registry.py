"""The scenarios by name."""

from collections.abc import Callable, Mapping

from kinema_sim.cluster import Cluster
from kinema_sim.engine.kinds import DAEMON_SET, DEPLOYMENT, HPA, NAMESPACE, PDB, STATEFUL_SET
from kinema_sim.scenarios import after_peak
from kinema_sim.scenarios.objects import App, daemon_set, deployment, hpa, namespace, pdb, stateful_set

WEB = App("web", "shop", "example/web:1", cpu_m=200, memory_mi=128, replicas=3)
API = App("api", "shop", "example/api:1", cpu_m=300, memory_mi=256, replicas=2)
FIXED = {"kinema.io/rightsizing-max-step": "0"}
STRATEGIES_WEB = App("web", "shop", "example/web:1", cpu_m=400, memory_mi=256, replicas=3, annotations=FIXED)
STRATEGIES_API = App(
    "api",
    "shop",
    "example/api:1",
    cpu_m=300,
    memory_mi=256,
    replicas=2,
    annotations={**FIXED, "kinema.io/strategy": "rolling"},
)
STORE = App("store", "shop", "example/store:1", cpu_m=250, memory_mi=512, replicas=2, annotations=FIXED)
AGENT = App("agent", "kube-system", "example/agent:1", cpu_m=50, memory_mi=64)


def build_tiny(seed: int) -> Cluster:
    """Build a cluster of three nodes and a few pods, ready at once: for tests."""
    cluster = Cluster(seed)
    zones = ("europe-west3-a", "europe-west3-b", "europe-west3-c")
    for number, zone in enumerate(zones, start=1):
        cluster.cloud.adopt(f"tiny-{number}", cluster.cloud.offers[f"e2-standard-2/{zone}/on-demand"], labels={})
    for name in ("default", "kube-system", "shop"):
        cluster.store.create(NAMESPACE, namespace(name))
    for app in (WEB, API):
        cluster.store.create(DEPLOYMENT, deployment(app))
    cluster.store.create(PDB, pdb(WEB, maxUnavailable=1))
    cluster.run_for(60)
    return cluster


def build_strategies(seed: int) -> Cluster:
    """Build a cluster that is too large for what runs on it, with one workload for each way of moving pods: for tests.

    Six nodes for what fits on two. A Deployment with an autoscaler that is surged, one that asks to be rolled, a
    StatefulSet that can only be evicted, a daemon set, and budgets on two of them.
    """
    cluster = Cluster(seed)
    for number in range(1, 7):
        offer = cluster.cloud.offers["e2-standard-2/europe-west3-a/on-demand"]
        cluster.cloud.adopt(f"old-{number}", offer, labels={})
    for name in ("default", "kube-system", "shop"):
        cluster.store.create(NAMESPACE, namespace(name))
    cluster.store.create(DAEMON_SET, daemon_set(AGENT))
    for app in (STRATEGIES_WEB, STRATEGIES_API):
        cluster.store.create(DEPLOYMENT, deployment(app))
    cluster.store.create(STATEFUL_SET, stateful_set(STORE))
    cluster.store.create(HPA, hpa(STRATEGIES_WEB, low=STRATEGIES_WEB.replicas, high=6))
    cluster.store.create(PDB, pdb(STRATEGIES_WEB, minAvailable=2))
    cluster.store.create(PDB, pdb(STORE, maxUnavailable=1))
    cluster.run_for(60)
    return cluster


SCENARIOS: Mapping[str, Callable[[int], Cluster]] = {
    "after-peak": after_peak.build,
    "strategies": build_strategies,
    "tiny": build_tiny,
}
"""Name → builder that takes the seed and gives a cluster at rest."""
