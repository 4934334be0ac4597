"""Small clusters and objects for the tests of the simulator."""

from typing import Any

from kinema_sim.cluster import Cluster
from kinema_sim.engine.clock import EPOCH_MS, Loop
from kinema_sim.engine.kinds import DEPLOYMENT, NAMESPACE, NODE, POD
from kinema_sim.engine.objects import Obj, is_active, is_ready
from kinema_sim.engine.store import Store
from kinema_sim.scenarios.objects import App, deployment, namespace

ZONE = "europe-west3-a"


def an_app(name: str = "web", *, replicas: int = 1, cpu_m: int = 100, **more: Any) -> App:
    """Describe a workload in namespace `shop`."""
    return App(name, "shop", f"example/{name}:1", cpu_m=cpu_m, memory_mi=64, replicas=replicas, **more)


def a_store(seed: int = 0, *, window: int = 1000) -> Store:
    """Give an empty store at the beginning of virtual time."""
    return Store(Loop(EPOCH_MS), seed, window=window)


def a_cluster(*, nodes: int = 2, machine: str = "e2-standard-4", seed: int = 0) -> Cluster:
    """Give a cluster with Ready nodes n1, n2, … spread over the zones, and a namespace `shop`."""
    cluster = Cluster(seed)
    for number in range(1, nodes + 1):
        zone = "europe-west3-" + "abc"[(number - 1) % 3]
        cluster.cloud.adopt(f"n{number}", cluster.cloud.offers[f"{machine}/{zone}/on-demand"], labels={})
    cluster.store.create(NAMESPACE, namespace("shop"))
    return cluster


def with_deployment(cluster: Cluster, app: App | None = None, *, seconds: float = 30, **spec: Any) -> Obj:
    """Create a Deployment, let it come up, and give it back."""
    draft = deployment(app or an_app())
    draft["spec"].update(spec)
    created = cluster.store.create(DEPLOYMENT, draft)
    cluster.run_for(seconds)
    return created


def pods_of(cluster: Cluster, app: str = "web") -> list[Obj]:
    """Give the active pods of an app by name."""
    pods = cluster.store.sorted(POD, "shop")
    return [pod for pod in pods if pod["metadata"]["labels"].get("app") == app and is_active(pod)]


def ready_count(cluster: Cluster, app: str = "web") -> int:
    """Count the ready pods of an app."""
    return sum(1 for pod in pods_of(cluster, app) if is_ready(pod))


def edit_spec(cluster: Cluster, name: str = "web", **spec: Any) -> None:
    """Change fields of a Deployment's spec."""
    cluster.store.edit(DEPLOYMENT, ("shop", name), lambda draft: draft["spec"].update(spec))


def node_names(cluster: Cluster) -> list[str]:
    """Give the names of the nodes that exist."""
    return [node["metadata"]["name"] for node in cluster.store.sorted(NODE)]


def a_pod(name: str, *, node: str = "", labels: dict[str, str] | None = None, **spec: Any) -> Obj:
    """Write a bare pod in namespace `shop` that asks for 100m and 64Mi."""
    container = {"name": "c", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}
    body: Obj = {"containers": [container], **spec}
    if node:
        body["nodeName"] = node
    return {"metadata": {"name": name, "namespace": "shop", "labels": labels or {}}, "spec": body}
