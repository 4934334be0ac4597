"""The morning after: two applications whose traffic peak is over, on the machines that the peak needed."""

from kinema_sim.cloud.growth import Growth
from kinema_sim.cloud.machines import ZONES
from kinema_sim.cluster import Cluster
from kinema_sim.engine.kinds import (
    DAEMON_SET,
    DEPLOYMENT,
    HPA,
    NAMESPACE,
    PDB,
    PRIORITY_CLASS,
    STATEFUL_SET,
    STORAGE_CLASS,
)
from kinema_sim.load.model import Application, Profile, Service, load_application
from kinema_sim.scenarios.objects import App, daemon_set, deployment, hpa, namespace, pdb, stateful_set

_DAEMONS = (
    App("log-agent", "kube-system", "example/log-agent:1", cpu_m=40, memory_mi=80, memory_limit_mi=200),
    App("net-agent", "kube-system", "example/net-agent:1", cpu_m=60, memory_mi=60),
)
_FIXED_REQUESTS = {"kinema.io/rightsizing-max-step": "0"}
_STATEFUL = ("teastore-db",)
_BUDGETS: dict[str, dict[str, int | str]] = {
    "frontend": {"minAvailable": 2},
    "cartservice": {"maxUnavailable": 1},
    "checkoutservice": {"minAvailable": "50%"},
    "teastore-webui": {"maxUnavailable": 1},
    "teastore-db": {"maxUnavailable": 1},
}
_START_TYPE = "e2-standard-4"
_GROUPS = ("e2-standard-2", "e2-standard-4")
_PEAKS = {"online-boutique": (3100, 80), "teastore": (1100, 40)}
"""Users at the peak and on the plateau afterwards."""

_SETTLE, _RISE, _HOLD, _FALL = 60, 300, 240, 120
_PREPARED_SECONDS = 1800


def _app(application: Application, service: Service, annotations: dict[str, str]) -> App:
    return App(
        name=service.name,
        namespace=application.namespace,
        image=f"example/{service.name}:1",
        cpu_m=service.cpu_m,
        memory_mi=service.memory_mi,
        cpu_limit_m=service.cpu_limit_m,
        memory_limit_mi=service.memory_limit_mi,
        replicas=service.min,
        ready_seconds=service.ready_seconds,
        annotations=annotations,
    )


def _install(cluster: Cluster, application: Application, annotations: dict[str, str]) -> None:
    cluster.store.create(NAMESPACE, namespace(application.namespace))
    for service in application.services:
        app = _app(application, service, annotations)
        if service.name in _STATEFUL:
            cluster.store.create(STATEFUL_SET, stateful_set(app))
        else:
            cluster.store.create(DEPLOYMENT, deployment(app))
        if service.max > service.min:
            cluster.store.create(HPA, hpa(app, low=service.min, high=service.max))
        if service.name in _BUDGETS:
            cluster.store.create(PDB, pdb(app, **_BUDGETS[service.name]))


def build(seed: int) -> Cluster:
    """Play the peak in virtual time and hand over the cluster at rest, half an hour after its beginning."""
    applications = (load_application("online-boutique"), load_application("teastore"))
    cluster = Cluster(seed, apps=applications)
    for name in ("default", "kube-system"):
        cluster.store.create(NAMESPACE, namespace(name))
    for name, value in (("system-node-critical", 2_000_001_000), ("system-cluster-critical", 2_000_000_000)):
        cluster.store.create(PRIORITY_CLASS, {"metadata": {"name": name}, "value": value})
    cluster.store.create(STORAGE_CLASS, {"metadata": {"name": "standard"}, "provisioner": "sim.kinema.io/disk"})
    for daemon in _DAEMONS:
        cluster.store.create(DAEMON_SET, daemon_set(daemon))
    for number, zone in enumerate(ZONES, start=1):
        offer = cluster.cloud.offers[f"{_START_TYPE}/{zone}/on-demand"]
        cluster.cloud.adopt(f"base-{number:03d}", offer, labels={})
    growth = Growth(
        store=cluster.store, cloud=cluster.cloud, books=cluster.scheduler.books, groups=_GROUPS, zones=ZONES
    )
    _install(cluster, applications[0], _FIXED_REQUESTS)
    _install(cluster, applications[1], {})
    for name, (peak, plateau) in _PEAKS.items():
        top = _SETTLE + _RISE
        points = (
            (0, plateau),
            (_SETTLE, plateau),
            (top, peak),
            (top + _HOLD, peak),
            (top + _HOLD + _FALL, plateau),
        )
        cluster.load.follow(name, Profile(points))
    cluster.run_for(_PREPARED_SECONDS)
    growth.active = False
    return cluster
