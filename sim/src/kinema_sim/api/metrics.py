"""The resource metrics API (metrics.k8s.io/v1beta1), as the metrics server answers it."""

from kinema_sim.api.errors import ApiError
from kinema_sim.api.listing import Query
from kinema_sim.engine.clock import stamp
from kinema_sim.engine.kinds import NODE, POD
from kinema_sim.engine.objects import Obj, key_of, labels_of, name_of, namespace_of
from kinema_sim.engine.store import Store
from kinema_sim.load.meter import SCRAPE_MS, Meter, Usage

_API_VERSION = "metrics.k8s.io/v1beta1"
_NODE_SYSTEM = Usage(60_000_000, 400 * 1024**2)
"""Usage of kubelet, runtime and kernel on every node, beside its pods."""


class MetricsApi:
    """Answers the paths below /apis/metrics.k8s.io/v1beta1."""

    def __init__(self, store: Store, meter: Meter) -> None:
        self._store = store
        self._meter = meter

    def answer(self, path: str, *, labels: str = "") -> Obj:
        """Give the answer to a GET.

        Raises:
            ApiError: 404 when the path, the object or its metrics do not exist.
        """
        keep = Query(labels=labels).predicate()
        parts = path.strip("/").split("/")[3:]
        match parts:
            case ["nodes"]:
                return _list("NodeMetrics", [self._node(node) for node in self._store.sorted(NODE) if keep(node)])
            case ["nodes", name]:
                node = self._store.get(NODE, "", name)
                return _found({"kind": "NodeMetrics", **self._node(node)} if node else None, name)
            case ["pods"]:
                return _list("PodMetrics", self._pods(self._store.sorted(POD), keep=keep))
            case ["namespaces", namespace, "pods"]:
                return _list("PodMetrics", self._pods(self._store.sorted(POD, namespace), keep=keep))
            case ["namespaces", namespace, "pods", name]:
                pod = self._store.get(POD, namespace, name)
                metrics = self._pod(pod) if pod else None
                return _found({"kind": "PodMetrics", **metrics} if metrics else None, f"{namespace}/{name}")
            case _:
                raise ApiError(404, "the server could not find the requested resource", details={})

    def _pods(self, pods: list[Obj], *, keep: object) -> list[Obj]:
        assert callable(keep)
        return [metrics for pod in pods if keep(pod) and (metrics := self._pod(pod)) is not None]

    def _pod(self, pod: Obj) -> Obj | None:
        usage = self._meter.usage.get(key_of(pod))
        if usage is None:
            return None
        metadata = {
            "name": name_of(pod),
            "namespace": namespace_of(pod),
            "creationTimestamp": stamp(self._meter.time_ms),
            "labels": labels_of(pod),
        }
        containers = [
            {"name": container["name"], "usage": _quantities(share)}
            for container, share in zip(pod["spec"]["containers"], _shares(pod, usage), strict=True)
        ]
        return {"metadata": metadata, **self._window(), "containers": containers}

    def _node(self, node: Obj) -> Obj:
        pods = self._meter.node_usage().get(name_of(node), Usage(0, 0))
        whole = Usage(pods.cpu_nano + _NODE_SYSTEM.cpu_nano, pods.memory_bytes + _NODE_SYSTEM.memory_bytes)
        metadata = {
            "name": name_of(node),
            "creationTimestamp": stamp(self._meter.time_ms),
            "labels": labels_of(node),
        }
        return {"metadata": metadata, **self._window(), "usage": _quantities(whole)}

    def _window(self) -> Obj:
        return {"timestamp": stamp(self._meter.time_ms), "window": f"{SCRAPE_MS // 1000}s"}


def _shares(pod: Obj, usage: Usage) -> list[Usage]:
    """Return the usage of each container: the first does the work; helpers beside it use nothing."""
    idle = [Usage(0, 0)] * (len(pod["spec"]["containers"]) - 1)
    return [usage, *idle]


def _quantities(usage: Usage) -> Obj:
    return {"cpu": f"{usage.cpu_nano}n", "memory": f"{usage.memory_bytes // 1024}Ki"}


def _list(kind: str, items: list[Obj]) -> Obj:
    return {"kind": f"{kind}List", "apiVersion": _API_VERSION, "metadata": {}, "items": items}


def _found(body: Obj | None, name: str) -> Obj:
    if body is None:
        raise ApiError(404, f'"{name}" not found: no metrics known', reason="NotFound", details={"name": name})
    return {**body, "apiVersion": _API_VERSION}
