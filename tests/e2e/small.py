"""A few workloads on more and larger nodes than they need: quick to build, quick to tear down.

At best one machine of half the size carries them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from typing import Any, Final

from tests.controlplane.access import Access
from tests.controlplane.nodes import add_nodes, node
from tests.e2e.shop import ZONES, Placed, at, await_ready, quick

from kinema_core.model.catalog import gke_allocatable
from kinema_sim.scenarios.objects import App, daemon_set, deployment, namespace, pdb, stateful_set

SPACE: Final = "small"
OLD_NODES: Final = 5
NAMES: Final = tuple(f"old-{i}" for i in range(OLD_NODES))
MACHINE: Final = "e2-standard-4"
FIXED: Final = {"kinema.io/rightsizing-max-step": "0"}
"""Annotations of workloads that are moved and never resized, however much of their usage is known by then."""
_GRACE_SECONDS: Final = 5
"""Within which KWOK ends a pod, at random."""
_STORE: Final = App(
    "store",
    SPACE,
    "example/store:1",
    cpu_m=200,
    memory_mi=300,
    replicas=2,
    annotations=FIXED,
    grace_seconds=_GRACE_SECONDS,
)


def of_kwok(access: Access) -> None:
    """Register the nodes, which KWOK runs."""
    cpu, memory = gke_allocatable(Decimal(4), 16 * 2**30)
    add_nodes(
        access,
        *(
            node(name, zone=ZONES[i % len(ZONES)], machine=MACHINE, cpu=f"{cpu}m", memory=str(memory))
            for i, name in enumerate(NAMES)
        ),
    )


@contextmanager
def small_cluster(
    access: Access, extra: Sequence[Placed] = (), nodes: Callable[[Access], None] = of_kwok
) -> Iterator[None]:
    """The cluster within the block, with `extra` objects; afterwards there is no node and no namespace of it.

    `nodes` brings the nodes that the cluster has at first.
    """
    try:
        nodes(access)
        space, *rest = objects()
        for path, body in (space, *extra, *rest):  # a quota counts all pods only if it is there before them
            access.request("POST", path, body)
        await_ready(access)
        yield
    finally:
        for name in (SPACE, *(body["metadata"]["name"] for path, body in extra if path == "/api/v1/namespaces")):
            access.remove_namespace(name)
        for each in access.request("GET", "/api/v1/nodes")["items"]:
            access.request("DELETE", f"/api/v1/nodes/{each['metadata']['name']}")


def objects() -> Iterator[Placed]:
    """Deployments, a StatefulSet with a budget, and a DaemonSet."""
    yield "/api/v1/namespaces", namespace(SPACE)
    for name, replicas, cpu_m in (("web", 4, 250), ("api", 3, 150)):
        app = replace(_STORE, name=name, image=f"example/{name}:1", cpu_m=cpu_m, replicas=replicas)
        yield at("apps/v1", "deployments", quick(deployment(app)))
    yield at("apps/v1", "statefulsets", quick(stateful_set(_STORE)))
    yield at("policy/v1", "poddisruptionbudgets", budget("store", maxUnavailable=1))
    yield at("apps/v1", "daemonsets", quick(daemon_set(App("agent", SPACE, "example/agent:1", cpu_m=60, memory_mi=60))))


def budget(name: str, **rule: int) -> dict[str, Any]:
    """A disruption budget for one workload."""
    return pdb(App(name, SPACE, "", cpu_m=0, memory_mi=0), **rule)


def quota(hard: Mapping[str, str]) -> Placed:
    """A quota for the namespace."""
    body = {"metadata": {"name": "tight"}, "spec": {"hard": dict(hard)}}
    return f"/api/v1/namespaces/{SPACE}/resourcequotas", body
