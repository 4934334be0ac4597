"""A cluster of three nodes and a few pods, ready at once: for tests."""

from kinema_sim.cluster import Cluster
from kinema_sim.engine.kinds import DEPLOYMENT, NAMESPACE, PDB
from kinema_sim.scenarios.objects import App, deployment, namespace, pdb

WEB = App("web", "shop", "example/web:1", cpu_m=200, memory_mi=128, replicas=3)
API = App("api", "shop", "example/api:1", cpu_m=300, memory_mi=256, replicas=2)


def build(seed: int) -> Cluster:
    """Build the cluster and let it come to rest."""
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
