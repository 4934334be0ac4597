"""Synthetic clusters of any size, seeded: the same seed gives the same objects."""

from __future__ import annotations

import random
from datetime import UTC, datetime

import msgspec

from benchmarks.clusters import SURGE
from kinema_core.events import (
    EMPTY,
    ClusterObject,
    FrozenMap,
    Node,
    Owner,
    Pod,
    Selector,
    Workload,
)

CREATED = datetime(2026, 1, 1, tzinfo=UTC)
MEBIBYTE = 2**20


def cluster_objects(*, nodes: int, pods: int, pods_per_workload: int = 50, seed: int = 0) -> tuple[ClusterObject, ...]:
    """`nodes` nodes of 32 cores and 128 GiB, and `pods` ready pods of Deployments, spread round robin.

    Deployments of one pod allow its move by annotation.
    """
    draw = random.Random(seed)
    found: list[ClusterObject] = [
        Node(
            name=f"node-{index:05d}",
            uid=f"node-uid-{index:05d}",
            labels=FrozenMap(
                {
                    "kubernetes.io/hostname": f"node-{index:05d}",
                    "node.kubernetes.io/instance-type": "e2-standard-32",
                    "topology.kubernetes.io/zone": f"europe-west3-{'abc'[index % 3]}",
                }
            ),
            ready=True,
            allocatable=FrozenMap({"cpu": 31_850, "memory": 120_000 * MEBIBYTE, "pods": 110}),
            created=CREATED,
        )
        for index in range(nodes)
    ]
    for first in range(0, pods, pods_per_workload):
        count = min(pods_per_workload, pods - first)
        found += _workload(first // pods_per_workload, first, count, nodes, draw)
    return tuple(found)


def _workload(index: int, first: int, count: int, nodes: int, draw: random.Random) -> list[ClusterObject]:
    name = f"app-{index:05d}"
    labels = FrozenMap({"app": name})
    requests = FrozenMap(
        {"cpu": draw.randrange(20, 1500, 5), "memory": draw.randrange(32, 4096, 8) * MEBIBYTE, "pods": 1}
    )
    deployment = Workload(
        type="Deployment",
        name=name,
        namespace="load",
        uid=f"d-{index:05d}",
        labels=labels,
        annotations=SURGE if count == 1 else EMPTY,
        selector=Selector(labels=labels),
        replicas=count,
        ready=count,
        updated=count,
        current=count,
        template_labels=labels,
        template_requests=requests,
    )
    replica_set = Workload(
        type="ReplicaSet",
        name=f"{name}-5d4f",
        namespace="load",
        uid=f"r-{index:05d}",
        owner=Owner(kind="Deployment", name=name, uid=f"d-{index:05d}"),
        labels=labels,
        selector=Selector(labels=labels),
        replicas=count,
        ready=count,
        current=count,
        template_labels=labels,
        template_requests=requests,
    )
    pods: list[ClusterObject] = [
        Pod(
            name=f"{name}-5d4f-{number:05d}",
            namespace="load",
            uid=f"p-{first + number:06d}",
            phase="Running",
            node=f"node-{(first + number) % nodes:05d}",
            owner=Owner(kind="ReplicaSet", name=f"{name}-5d4f", uid=f"r-{index:05d}"),
            labels=labels,
            requests=requests,
            ready=True,
            created=CREATED,
            started=CREATED,
        )
        for number in range(count)
    ]
    return [deployment, replica_set, *pods]


def touched(pod: Pod, number: int) -> Pod:
    """The pod with a small change, another one for each number."""
    return msgspec.structs.replace(pod, annotations=FrozenMap({"kinema.io/note": str(number)}))
