"""A cluster after a peak, as a person would find it: two applications, their helpers, and pods that must not move.

Online Boutique and TeaStore were scaled up for a peak and down again; their nodes stayed. Beside them a StatefulSet
with volumes, a DaemonSet, a bare pod, a workload that its budget never lets go, and one that is marked as untouchable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any, Final

from tests.controlplane.access import Access
from tests.controlplane.nodes import QUICK, add_nodes, node

from kinema_core.model.catalog import gke_allocatable
from kinema_sim.load.model import Service, load_application
from kinema_sim.scenarios.objects import App, daemon_set, deployment, hpa, namespace, pdb, stateful_set

JSON = dict[str, Any]
Placed = tuple[str, JSON]
"""Path to post to, and the object."""

ZONES: Final = ("europe-west3-a", "europe-west3-b", "europe-west3-c")
OLD_NODES: Final = 9
_CORES: Final = 4
MACHINE: Final = f"e2-standard-{_CORES}"
_PEAK: Final = 5
"""Replicas of every scaling service at the peak."""
_FIXED: Final = {"kinema.io/rightsizing-max-step": "0"}
"""Requests as the owner wrote them."""
_BUDGETS: Final[Mapping[str, Mapping[str, int | str]]] = {
    "frontend": {"minAvailable": 2},
    "cartservice": {"maxUnavailable": 1},
    "checkoutservice": {"minAvailable": "50%"},
    "teastore-webui": {"maxUnavailable": 1},
    "store": {"maxUnavailable": 1},
    "vault": {"maxUnavailable": 0},
}
_SCALED: Final = ("frontend", "currencyservice")
"""Services with an autoscaler."""
UNTOUCHABLE: Final = ("bare", "ledger", "vault")
"""Beginnings of the names of pods that stay where they are, whatever it costs."""


def create(access: Access) -> None:
    """Build the cluster on machines of one size, live through the peak, and wait until what is left of it runs."""
    add_nodes(access, *_machines("old", _CORES, OLD_NODES))
    live_through_the_peak(access)


def create_in_two_pools(access: Access, add: Callable[[int, int], None] | None = None) -> None:
    """Build it on a small node in each zone, which holds what must not move, and on large ones that came for the peak.

    What is left needs less than one of the large ones, and more than the small ones have: a plan has to buy. `add`
    brings nodes of so many cores and so many of them, zone after zone; without it they register themselves.
    """
    add = add or (lambda cores, count: add_nodes(access, *_machines(f"cores-{cores}", cores, count)))
    add(2, len(ZONES))
    _post(access, lasting())
    add(16, 2)
    _post(access, scaled())
    _end_peak(access)
    await_ready(access)


def _machines(name: str, cores: int, count: int) -> list[JSON]:
    cpu, memory = gke_allocatable(Decimal(cores), cores * 4 * 2**30)
    machine = f"e2-standard-{cores}"
    zones = [ZONES[i % len(ZONES)] for i in range(count)]
    return [
        node(f"{name}-{i}", zone=zone, cpu=f"{cpu}m", memory=str(memory), machine=machine)
        for i, zone in enumerate(zones)
    ]


def live_through_the_peak(access: Access) -> None:
    """Create everything but nodes, and wait until what is left after the peak runs."""
    _post(access, [*scaled(), *lasting()])
    _end_peak(access)
    await_ready(access)


def _post(access: Access, objects: Iterable[Placed]) -> None:
    for path, body in objects:
        access.request("POST", path, body)
    await_ready(access)


def scaled() -> Iterator[Placed]:
    """The two applications at the peak."""
    for space in ("online-boutique", "teastore"):
        yield "/api/v1/namespaces", namespace(space)
    for service, space in _services():
        app = _app(service, space)
        yield at("apps/v1", "deployments", quick(deployment(app)))
        yield from _guards(app, service)


def lasting() -> Iterator[Placed]:
    """What no peak scales, and most of which must not move."""
    yield "/api/v1/namespaces", namespace("tools")
    tools = App("store", "tools", "example/store:1", cpu_m=300, memory_mi=512, replicas=3, annotations=_FIXED)
    yield from _volumes(tools)
    yield at("apps/v1", "statefulsets", quick(_with_volume(stateful_set(tools))))
    yield from _guards(tools, None)
    agent = App("agent", "tools", "example/agent:1", cpu_m=60, memory_mi=60)
    yield at("apps/v1", "daemonsets", quick(daemon_set(agent)))
    for name, marks in (("vault", {}), ("ledger", {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"})):
        app = App(name, "tools", f"example/{name}:1", cpu_m=150, memory_mi=200, replicas=2, annotations=_FIXED)
        made = quick(deployment(app))
        made["spec"]["template"]["metadata"]["annotations"] |= marks
        yield at("apps/v1", "deployments", made)
        yield from _guards(app, None)
    bare = quick(deployment(App("bare", "tools", "example/bare:1", cpu_m=100, memory_mi=100)))["spec"]["template"]
    yield "/api/v1/namespaces/tools/pods", {**bare, "metadata": {**bare["metadata"], "name": "bare"}}


def _services() -> Iterator[tuple[Service, str]]:
    for name in ("online-boutique", "teastore"):
        for service in load_application(name).services:
            yield service, name


def _app(service: Service, space: str) -> App:
    peak = _PEAK if service.max > service.min else service.min
    return App(
        name=service.name,
        namespace=space,
        image=f"example/{service.name}:1",
        cpu_m=service.cpu_m,
        memory_mi=service.memory_mi,
        replicas=peak,
        annotations=_FIXED,
        grace_seconds=5,
    )


def quick(made: JSON) -> JSON:
    """With the delays of KWOK's kubelet, and usage of 60 % of what is asked for."""
    template = made["spec"]["template"]
    asked = template["spec"]["containers"][0]["resources"]["requests"]
    used = {
        "kwok.x-k8s.io/usage-cpu": f"{int(asked['cpu'][:-1]) * 6 // 10}m",
        "kwok.x-k8s.io/usage-memory": f"{int(asked['memory'][:-2]) * 6 // 10}Mi",
    }
    template["metadata"]["annotations"] = {**template["metadata"].get("annotations", {}), **QUICK, **used}
    return made


def _guards(app: App, service: Service | None) -> Iterator[Placed]:
    if app.name in _BUDGETS:
        yield at("policy/v1", "poddisruptionbudgets", pdb(app, **_BUDGETS[app.name]))
    if service is not None and app.name in _SCALED:
        made = hpa(app, low=service.min, high=service.max, target=80)
        yield at("autoscaling/v2", "horizontalpodautoscalers", made)


def _volumes(app: App) -> Iterator[Placed]:
    """A volume for each replica, each of one zone."""
    for i in range(app.replicas):
        terms = [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": [ZONES[i % len(ZONES)]]}]
        spec = {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "fixed",
            "hostPath": {"path": f"/data/{i}"},
            "claimRef": {"namespace": app.namespace, "name": f"data-{app.name}-{i}"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": terms}]}},
        }
        yield "/api/v1/persistentvolumes", {"metadata": {"name": f"{app.name}-{i}"}, "spec": spec}


def _with_volume(made: JSON) -> JSON:
    claim = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "fixed",
        "resources": {"requests": {"storage": "1Gi"}},
    }
    made["spec"]["volumeClaimTemplates"] = [{"metadata": {"name": "data"}, "spec": claim}]
    container = made["spec"]["template"]["spec"]["containers"][0]
    container["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    return made


def at(version: str, plural: str, made: JSON) -> Placed:
    """An object of a namespace, and where it is posted to."""
    return f"/apis/{version}/namespaces/{made['metadata']['namespace']}/{plural}", made


def _end_peak(access: Access) -> None:
    for service, space in _services():
        if service.name in _SCALED:
            continue  # its autoscaler does
        path = f"/apis/apps/v1/namespaces/{space}/deployments/{service.name}/scale"
        body = {"spec": {"replicas": service.min}}
        access.request("PATCH", path, body, content_type="application/merge-patch+json")


def await_ready(access: Access) -> None:
    """Wait until every Deployment and StatefulSet has all its pods ready, and no others."""
    for kind in ("deployments", "statefulsets"):
        access.until(f"/apis/apps/v1/{kind}", lambda found: bool(found["items"]) and all(map(_whole, found["items"])))


def _whole(workload: JSON) -> bool:
    wanted, status = workload["spec"]["replicas"], workload.get("status", {})
    return bool(status.get("readyReplicas", 0) == status.get("replicas", 0) == wanted)
