"""All kinds together: one reflector each."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Final

from kinema_core.events import ClusterObject
from kinema_kubernetes.client import Client
from kinema_observer.adapters.reflector import Patience, Reflector, Resource
from kinema_observer.logic.changes import Changes
from kinema_observer.logic.drivers import Seen, assembled, assembled_changes

_UNLIMITED: Final = "no limit of CSI drivers is known: pods may be led to nodes that attach no more volumes"

_UNBOUNDED: Final = "no ResourceQuota is known: moves may begin that a quota refuses, and are taken back"

RESOURCES: Final = (
    Resource("Node", "/api/v1/nodes"),
    Resource("Pod", "/api/v1/pods"),
    Resource("Namespace", "/api/v1/namespaces"),
    Resource("PersistentVolume", "/api/v1/persistentvolumes"),
    Resource("PersistentVolumeClaim", "/api/v1/persistentvolumeclaims"),
    Resource("ReplicationController", "/api/v1/replicationcontrollers", essential=False),
    Resource("Deployment", "/apis/apps/v1/deployments"),
    Resource("ReplicaSet", "/apis/apps/v1/replicasets"),
    Resource("StatefulSet", "/apis/apps/v1/statefulsets"),
    Resource("DaemonSet", "/apis/apps/v1/daemonsets"),
    Resource("Job", "/apis/batch/v1/jobs"),
    Resource("HorizontalPodAutoscaler", "/apis/autoscaling/v2/horizontalpodautoscalers"),
    Resource("PodDisruptionBudget", "/apis/policy/v1/poddisruptionbudgets"),
    Resource("StorageClass", "/apis/storage.k8s.io/v1/storageclasses", essential=False),
    Resource("CSINode", "/apis/storage.k8s.io/v1/csinodes", essential=False, without=_UNLIMITED),
    Resource("PriorityClass", "/apis/scheduling.k8s.io/v1/priorityclasses", essential=False),
    Resource("ResourceQuota", "/api/v1/resourcequotas", essential=False, without=_UNBOUNDED),
    Resource("VerticalPodAutoscaler", "/apis/autoscaling.k8s.io/v1/verticalpodautoscalers", essential=False),
)
"""What is watched. What is not essential may be missing: pods that depend on it do not move, but for what is said."""


class KubernetesSource:
    """The cluster as the API server reports it."""

    def __init__(
        self, client: Client, *, patience: Patience, chance: random.Random, resources: tuple[Resource, ...] = RESOURCES
    ) -> None:
        self.reflectors = tuple(Reflector(item, client, patience=patience, chance=chance) for item in resources)

    async def run(self) -> None:
        """Follow all kinds, for ever."""
        async with asyncio.TaskGroup() as group:
            for reflector in self.reflectors:
                group.create_task(reflector.run(), name=f"reflector {reflector.resource.kind}")

    def listed(self) -> bool:
        """Return whether every kind has been listed since the start, or is left out."""
        return all(item.listed or item.off for item in self.reflectors)

    def missing(self) -> tuple[str, ...]:
        """Return the kinds whose copy may be out of date just now, and why."""
        return tuple(
            f"{item.resource.kind}: {item.problem}"
            for item in self.reflectors
            if item.problem is not None and not item.off
        )

    def drain(self) -> Changes:
        """Return what changed in all kinds since the last call."""
        seen = {each: item for reflector in self.reflectors for each, item in reflector.drain().items()}
        return assembled_changes(seen, node=self._known("Node"), limits=self._known("CSINode"))

    def contents(self) -> Iterator[ClusterObject]:
        """All objects of all kinds as last seen."""
        return iter(assembled(chain.from_iterable(reflector.contents() for reflector in self.reflectors)))

    def _known(self, kind: str) -> Callable[[str], Seen | None]:
        """Return what is known of an object of that kind, by key; nothing of a kind that is not followed."""
        found = next((item for item in self.reflectors if item.resource.kind == kind), None)
        return found.get if found is not None else lambda _: None
