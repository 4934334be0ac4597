"""When pods and nodes were created, ready and gone, by the observed states."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from kinema_cli.report.data import NodeSpan, PodSpan
from kinema_core.events import ClusterDelta, ClusterSnapshot, Event
from kinema_core.model.catalog import machine_of
from kinema_core.model.cluster import Cluster, evolve
from kinema_core.model.daemons import is_resident


@dataclass
class Life:
    """One object's life in seconds since the record began; below 0: before it."""

    name: str
    of: str
    """A pod's workload, a node's machine type."""
    node: str
    created: float
    ready: float | None = None
    leaving: float | None = None
    gone: float | None = None


@dataclass
class Lives:
    """Lives by uid."""

    pods: dict[str, Life] = field(default_factory=dict)
    nodes: dict[str, Life] = field(default_factory=dict)


def lives_of(state: Iterable[Event], start: datetime) -> Lives:
    """Fold recorded STATE events into lives; times count from `start`."""
    lives = Lives()
    cluster = Cluster()
    for event in state:
        if not isinstance(event.body, ClusterSnapshot | ClusterDelta) or event.body.version <= cluster.version:
            continue
        first = cluster.version == 0
        cluster = evolve(cluster, event.body)
        at = (event.time - start).total_seconds()
        _see_pods(lives.pods, cluster, at=at, first=first)
        _see_nodes(lives.nodes, cluster, at=at, first=first)
    return lives


def _see_pods(lives: dict[str, Life], cluster: Cluster, *, at: float, first: bool) -> None:
    for pod in cluster.pods:
        if is_resident(cluster, pod):
            continue
        life = lives.get(pod.uid)
        if life is None:
            workload = cluster.controller_of(pod)
            of = workload.key if workload is not None else f"Pod/{pod.key}"
            life = lives[pod.uid] = Life(name=pod.name, of=of, node="", created=-1.0 if first else at)
        life.node = pod.node or life.node
        if pod.ready and life.ready is None:
            life.ready = life.created if first else at
        if pod.terminating and life.leaving is None:
            life.leaving = at
    _end(lives, cluster.pods_by_uid, at)


def _see_nodes(lives: dict[str, Life], cluster: Cluster, *, at: float, first: bool) -> None:
    for node in cluster.nodes:
        life = lives.get(node.uid)
        if life is None:
            created = -1.0 if first else at
            life = lives[node.uid] = Life(name=node.name, of=machine_of(node)[0], node=node.name, created=created)
        if node.ready and life.ready is None:
            life.ready = life.created if first else at
    _end(lives, {node.uid for node in cluster.nodes}, at)


def _end(lives: dict[str, Life], alive: Iterable[str], at: float) -> None:
    present = set(alive)
    for uid, life in lives.items():
        if life.gone is None and uid not in present:
            life.gone = at
            life.leaving = at if life.leaving is None else life.leaving


def pod_spans(lives: Lives, since: float, until: float) -> tuple[PodSpan, ...]:
    """Return pods that came or were asked to leave between `since` and `until`, by workload."""
    return tuple(
        PodSpan(
            workload=life.of,
            pod=life.name,
            node=life.node or "no node",
            created=life.created,
            ready=life.ready,
            leaving=life.leaving,
            gone=life.gone,
            role="new" if life.created >= since else "old",
        )
        for life in _touched(lives.pods, since, until)
    )


def node_spans(lives: Lives, since: float, until: float) -> tuple[NodeSpan, ...]:
    """Return nodes that came or went between `since` and `until`."""
    return tuple(
        NodeSpan(
            name=life.name,
            machine_type=life.of,
            created=life.created,
            ready=life.ready,
            gone=life.gone,
            role="new" if life.created >= since else "old",
        )
        for life in _touched(lives.nodes, since, until)
    )


def _touched(lives: dict[str, Life], since: float, until: float) -> Sequence[Life]:
    chosen = [
        life
        for life in lives.values()
        if since <= life.created <= until or (life.leaving is not None and since <= life.leaving <= until)
    ]
    return sorted(chosen, key=lambda life: (life.of, life.created, life.name))
