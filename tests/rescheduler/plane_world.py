"""A rescheduler with its real adapters on a real control plane, and somebody who watches from outside."""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from tests.controlplane.access import Access, RefusedError
from tests.controlplane.nodes import add_nodes, node
from tests.rescheduler.sim_world import ApiWorld

from kinema_core.runtime.clock import SystemClock
from kinema_rescheduler.kubernetes.fenced import FencedClient
from kinema_rescheduler.leadership.fence import Fence
from kinema_rescheduler.providers.base import Provider
from kinema_rescheduler.providers.kwok import KwokProvider
from kinema_rescheduler.settings import KwokSettings

_LISTS: Final = {
    "Node": "/api/v1/nodes",
    "Namespace": "/api/v1/namespaces",
    "PersistentVolume": "/api/v1/persistentvolumes",
    "PersistentVolumeClaim": "/api/v1/persistentvolumeclaims",
    "ConfigMap": "/api/v1/namespaces/kube-system/configmaps",
    "Deployment": "/apis/apps/v1/deployments",
    "ReplicaSet": "/apis/apps/v1/replicasets",
    "StatefulSet": "/apis/apps/v1/statefulsets",
    "DaemonSet": "/apis/apps/v1/daemonsets",
    "HorizontalPodAutoscaler": "/apis/autoscaling/v2/horizontalpodautoscalers",
    "PodDisruptionBudget": "/apis/policy/v1/poddisruptionbudgets",
    "Pod": "/api/v1/pods",
}
"""Pods last: those of a replica set that was listed as empty are gone by then, as the watches' order tells it."""
_VERSIONS: Final = {"Deployment": "apps/v1", "ReplicaSet": "apps/v1", "StatefulSet": "apps/v1", "DaemonSet": "apps/v1"}
_CATALOG: Final = "machine_type,vcpus,memory_gib,usd_per_hour\ne2-standard-4,4,16,0.17\ne2-standard-8,8,32,0.34\n"


class Watcher:
    """Sees every state of Deployments and StatefulSets that the API server tells of, on connections of its own."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._over = threading.Event()
        self.least_ready: dict[str, int] = {}
        self.least_available: dict[str, int] = {}
        self.most_replicas: dict[str, int] = {}
        self._threads = [threading.Thread(target=self._see, args=(kind,), daemon=True) for kind in _SETS]
        for thread in self._threads:
            thread.start()

    def _see(self, kind: str) -> None:
        version = self._access.request("GET", _LISTS[kind])["metadata"]["resourceVersion"]
        url = f"{self._access.url}{_LISTS[kind]}?watch=true&timeoutSeconds=600&resourceVersion={version}"
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {self._access.token}"})
        try:
            with urllib.request.urlopen(request, timeout=600, context=self._access.tls()) as lines:
                for line in lines:
                    if self._over.is_set():
                        return
                    self._note(kind, json.loads(line)["object"])
        except (OSError, ValueError):
            return  # the control plane is being ended

    def _note(self, kind: str, item: Any) -> None:
        key = f"{kind}/{item['metadata'].get('namespace')}/{item['metadata'].get('name')}"
        for field, least in (("readyReplicas", self.least_ready), ("availableReplicas", self.least_available)):
            count = int((item.get("status") or {}).get(field) or 0)
            least[key] = min(count, least.get(key, count))
        wanted = int((item.get("spec") or {}).get("replicas") or 0)
        self.most_replicas[key] = max(wanted, self.most_replicas.get(key, wanted))

    def close(self) -> None:
        """Look at nothing any more."""
        self._over.set()


_SETS: Final = ("Deployment", "StatefulSet")


class PlaneWorld(ApiWorld):
    """Nodes that KWOK runs, workloads in a namespace of their own."""

    look_seconds = 0.3

    def __init__(self, access: Access, directory: Path, namespace: str) -> None:
        super().__init__(SystemClock(), access.write_kubeconfig(directory / "kubeconfig"))
        self.access = access
        self.namespace = namespace
        self.catalog = directory / "catalog.csv"
        self.catalog.write_text(_CATALOG, encoding="utf-8")
        self.watcher: Watcher | None = None

    def use(self, bus: Any, cluster: str) -> None:
        """Publish on a real broker instead of in memory."""
        self.bus = bus
        self.name = cluster

    @property
    def version(self) -> int:
        """Version of the state that was published last."""
        return self._seen.version if self._seen is not None else 0

    def objects(self) -> Iterable[tuple[str, Any]]:
        """What the API server lists."""
        for kind, found in zip(_LISTS, self.access.each(_LISTS.values()), strict=True):
            for item in found["items"]:
                yield kind, item

    def provider(self, api: FencedClient, fence: Fence) -> Provider:  # the writer's own fence covers both
        """KWOK's nodes, which register two seconds after their order."""
        return KwokProvider(api, KwokSettings(catalog=str(self.catalog), boot_seconds=2), self.clock)

    # --- workloads

    def path(self, kind: str, name: str = "") -> str:
        """Path of a workload, or of all of its kind, in the world's namespace."""
        version = _VERSIONS.get(kind, "")
        group = f"/apis/{version}" if version else "/api/v1"
        return f"{group}/namespaces/{self.namespace}/{kind.lower()}s{f'/{name}' if name else ''}"

    def run(self, kind: str, name: str, replicas: int, *, cpu: str = "200m", claims: Any = (), **pod: Any) -> None:
        """Make a workload and wait until all its pods are Ready; `claims` are templates of a StatefulSet's claims."""
        labels = {"app": name}
        container = {
            "name": "main",
            "image": "example/none:1",
            "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}},
        }
        # KWOK ends a pod when its grace has run out, and a node is deleted when its last pod is gone.
        pods = {"containers": [container], "terminationGracePeriodSeconds": 2, **pod}
        spec = {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pods},
            **({"serviceName": name} if kind == "StatefulSet" else {}),
            **({"volumeClaimTemplates": list(claims)} if claims else {}),
        }
        body = {"apiVersion": _VERSIONS[kind], "kind": kind, "metadata": {"name": name}, "spec": spec}
        self.access.request("POST", self.path(kind), body)
        self.until(kind, name, lambda found: found["status"].get("readyReplicas", 0) == replicas)

    def scale(self, kind: str, name: str, replicas: int) -> None:
        """Scale a workload and wait until it is as wanted."""
        self.patch(kind, name, {"spec": {"replicas": replicas}}, "scale")

        def there(found: Any) -> bool:
            status = found["status"]
            return bool(status.get("readyReplicas", 0) == status.get("replicas", 0) == replicas)

        self.until(kind, name, there)

    def budgets(self, name: str = "") -> str:
        """Path of a disruption budget, or of all of the namespace."""
        return f"/apis/policy/v1/namespaces/{self.namespace}/poddisruptionbudgets{f'/{name}' if name else ''}"

    def budget(self, name: str, *, app: str = "", **spec: Any) -> None:
        """Make a disruption budget for a workload and wait until it counts."""
        selector = {"matchLabels": {"app": app or name}}
        body = {"metadata": {"name": name}, "spec": {"selector": selector, **spec}}
        self.access.request("POST", self.budgets(), body)
        self.access.until(self.budgets(name), lambda found: found.get("status", {}).get("currentHealthy", 0) > 0)

    def until(self, kind: str, name: str, wanted: Callable[[Any], bool]) -> Any:
        """Wait until a workload is as wanted."""
        return self.access.until(self.path(kind, name), lambda found: "status" in found and wanted(found))

    def get(self, kind: str, name: str) -> Any:
        """A workload as it is."""
        return self.access.request("GET", self.path(kind, name))

    def patch(self, kind: str, name: str, body: Mapping[str, Any], part: str = "") -> None:
        """Change a workload, as its owner would."""
        path = self.path(kind, name) + (f"/{part}" if part else "")
        self.access.request("PATCH", path, body, content_type="application/merge-patch+json")

    def key(self, kind: str, name: str) -> str:
        """A workload's name in events."""
        return f"{kind}/{self.namespace}/{name}"

    def where(self, name: str) -> list[str]:
        """Nodes of a workload's pods, sorted."""
        pods = self.cluster().pods
        return sorted(
            pod.node or "" for pod in pods if pod.namespace == self.namespace and pod.labels.get("app") == name
        )

    def watch(self) -> Watcher:
        """Begin to watch from outside."""
        self.watcher = Watcher(self.access)
        return self.watcher


@contextmanager
def plane_world(access: Access, directory: Path, namespace: str, *nodes: str) -> Iterator[PlaneWorld]:
    """A namespace and some nodes of 4 cores, all gone afterwards together with whatever nodes were booted meanwhile."""
    access.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    world = PlaneWorld(access, directory, namespace)
    try:
        add_nodes(access, *(node(name) for name in nodes))
        yield world
    finally:
        if world.watcher is not None:
            world.watcher.close()
        access.remove_namespace(namespace)
        for item in access.request("GET", "/api/v1/nodes")["items"]:
            access.request("DELETE", f"/api/v1/nodes/{item['metadata']['name']}")
        with suppress(RefusedError):  # perhaps nothing was steered
            access.request("DELETE", "/api/v1/namespaces/kube-system/configmaps/kinema-steering")
