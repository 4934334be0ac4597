"""A cluster and its cloud in memory: for tests of whole executions, deterministic to the last pod.

Small and honest where it matters here: replica sets delete the not-Ready first, then the cheapest, then the newest;
a StatefulSet's pod comes back under its name; pods need time to become Ready and to end; nodes need time to boot. It
places pods on the steered nodes first, else on the first open node with room, by name.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from msgspec.structs import replace

from kinema_core.events import Amounts, ClusterObject, FrozenMap, Node, Owner, Pod, Workload
from kinema_core.model.cluster import Cluster, all_objects, from_objects
from kinema_core.model.daemons import is_resident
from kinema_core.model.match import node_admits
from kinema_core.model.resources import fits, subtract, total
from kinema_core.runtime.clock import Clock
from kinema_rescheduler.names import DELETION_COST, steering_key


@dataclass(frozen=True)
class Pace:
    """How long things take, in cluster seconds."""

    boot: float = 30.0
    node_ready: float = 5.0
    node_delete: float = 10.0
    pod_ready: float = 6.0
    pod_end: float = 3.0
    volume_detach: float = 4.0


class MemoryCluster:
    """Objects, controllers and time of the cluster."""

    def __init__(self, cluster: Cluster, clock: Clock, *, pace: Pace | None = None) -> None:
        self._clock = clock
        self._timers: list[tuple[datetime, int, Callable[[], None]]] = []
        self._count = 0
        self.others: list[ClusterObject] = []
        """Objects that nothing here changes, such as disruption budgets."""
        self.pace = pace or Pace()
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, Pod] = {}
        self.workloads: dict[str, Workload] = {}
        self.steering: dict[str, tuple[str, ...]] = {}
        self.revisions: Counter[str] = Counter()
        """Rolling updates begun, by workload."""
        self.never_ready_nodes: set[str] = set()
        self.never_ready_workloads: set[str] = set()
        self.unplaceable: set[str] = set()
        """Workloads (`Type/namespace/name`) for whose new pods the scheduler finds no node."""
        self.attached: Counter[str] = Counter()
        """Volumes of pods that have ended and are still attached, by node."""
        self.quota: int | None = None
        """Most pods that there may be."""
        self.least_ready: dict[str, int] = {}
        """Least number of ready pods seen, by workload (`Type/namespace/name`)."""
        for item in all_objects(cluster):
            self._adopt(item)
        self._watch_readiness()

    def _adopt(self, item: ClusterObject) -> None:
        match item:
            case Node():
                self.nodes[item.name] = item
            case Pod():
                self.pods[item.key] = item
            case Workload():
                self.workloads[item.key] = item
            case _:
                self.others.append(item)

    def cluster(self, version: int = 1) -> Cluster:
        """The cluster as it would be observed now."""
        self.catch_up()
        return from_objects(
            [*self.nodes.values(), *self.pods.values(), *self.workloads.values(), *self.others], version
        )

    # --- time

    def catch_up(self) -> None:
        """Let everything happen that was due by now, in order."""
        now = self._clock.now()
        while self._timers and self._timers[0][0] <= now:
            _, _, action = heapq.heappop(self._timers)
            action()
            self.reconcile()
        self.reconcile()

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Do something later."""
        self._count += 1
        heapq.heappush(self._timers, (self._clock.now() + timedelta(seconds=seconds), self._count, action))

    # --- controllers

    def reconcile(self) -> None:
        """Let every controller do what it can do at once, and count who is ready."""
        for key in sorted(self.workloads):
            workload = self.workloads[key]
            if workload.type == "Deployment":
                self._deployment(workload)
            elif workload.type == "StatefulSet":
                self._stateful_set(workload)
        self._schedule()
        for key in sorted(self.workloads):
            self._status(key)
        self._watch_readiness()

    def pods_of(self, workload: Workload) -> list[Pod]:
        """A workload's pods, terminating ones included, by key."""
        owners = {workload.name, *(item.name for item in self._sets_of(workload))}
        return [
            self.pods[key]
            for key in sorted(self.pods)
            if (owner := self.pods[key].owner) is not None
            and self.pods[key].namespace == workload.namespace
            and owner.name in owners
        ]

    def _sets_of(self, workload: Workload) -> list[Workload]:
        return [
            item
            for item in self.workloads.values()
            if item.type == "ReplicaSet" and item.owner is not None and item.owner.uid == workload.uid
        ]

    def _deployment(self, workload: Workload) -> None:
        """Scaling, or a rolling update that never has one pod too few: one more, then one old one less."""
        if workload.paused:
            return
        current = self._current_set(workload)
        living = [pod for pod in self.pods_of(workload) if not pod.terminating]
        new = [pod for pod in living if pod.owner is not None and pod.owner.name == current.name]
        old = [pod for pod in living if pod not in new]
        wanted = workload.replicas
        surge = 1 if old else 0
        while len(living) < wanted + surge and len(new) < wanted and not self._full:
            pod = self._create(current, workload, f"{current.name}-n{self._next()}")
            living.append(pod)
            new.append(pod)
        lacking = len(living) < wanted + surge and len(new) < wanted
        why = f"exceeded quota: {len(self.pods)} of {self.quota} pods are there"
        self.workloads[workload.key] = replace(workload, refused=why if lacking else "")
        ready = sum(1 for pod in living if pod.ready)
        while old and ready > wanted:
            leaving = old.pop()
            living.remove(leaving)
            ready -= 1 if leaving.ready else 0
            self.end(leaving)
        surplus = len(living) - wanted if not old else 0
        for pod in sorted(new, key=_deletion_order)[: max(0, surplus)]:
            self.end(pod)

    @property
    def _full(self) -> bool:
        return self.quota is not None and len(self.pods) >= self.quota

    def _current_set(self, workload: Workload) -> Workload:
        revision = self.revisions[workload.key]
        mine = self._sets_of(workload)  # the first one first
        name = f"{workload.name}-r{revision}" if revision else mine[0].name
        found = next((item for item in mine if item.name == name), None)
        if found is None:
            found = replace(mine[0], name=name, uid=f"{mine[0].uid}-r{revision}")
            self.workloads[found.key] = found
        return found

    def _stateful_set(self, workload: Workload) -> None:
        names = {pod.name for pod in self.pods_of(workload)}
        for index in range(workload.replicas):
            name = f"{workload.name}-{index}"
            if name not in names:
                self._create(workload, workload, name)

    def _create(self, controller: Workload, workload: Workload, name: str) -> Pod:
        pod = Pod(
            name=name,
            namespace=workload.namespace,
            uid=f"uid-{name}-{self._next()}",
            owner=Owner(kind=controller.type, name=controller.name, uid=controller.uid),
            labels=workload.template_labels,
            requests=FrozenMap({**workload.template_requests, "pods": 1}),
            rules=workload.template_rules,
            unschedulable=True,
            created=self._clock.now().replace(microsecond=0),
        )
        self.pods[pod.key] = pod
        return pod

    def _next(self) -> int:
        self._count += 1
        return self._count

    def end(self, pod: Pod) -> None:
        """Begin to end a pod."""
        self.pods[pod.key] = replace(self.pods[pod.key], terminating=True, ready=False)

        def gone() -> None:
            if pod.key in self.pods and self.pods[pod.key].uid == pod.uid:
                del self.pods[pod.key]
                self._detach(pod)

        self.after(self.pace.pod_end, gone)

    def _detach(self, pod: Pod) -> None:
        """Let go of an ended pod's volumes, which takes its time."""
        if pod.node is None or not pod.rules.claims:
            return
        node, volumes = pod.node, len(pod.rules.claims)
        self.attached[node] += volumes
        self.after(self.pace.volume_detach, lambda: self.attached.subtract({node: volumes}))

    def _schedule(self) -> None:
        barred = {pod.key for name in self.unplaceable for pod in self.pods_of(self.workloads[name])}
        for key in sorted(self.pods):
            pod = self.pods[key]
            if pod.node is None and not pod.terminating and key not in barred:
                node = self._place_for(pod)
                if node is not None:
                    self.pods[key] = replace(pod, node=node, unschedulable=False, phase="Running")
                    self._later_ready(self.pods[key])

    def _preferred(self, pod: Pod) -> tuple[str, ...]:
        if pod.owner is None:
            return ()
        made_by = next((item for item in self.workloads.values() if item.uid == pod.owner.uid), None)
        top = made_by.owner if made_by is not None and made_by.owner is not None else pod.owner
        return self.steering.get(steering_key(top.key_in(pod.namespace), top.uid), ())

    def _place_for(self, pod: Pod) -> str | None:
        steered = self._preferred(pod)
        for name in sorted(self.nodes, key=lambda name: (name not in steered, name)):
            node = self.nodes[name]
            admitted = node_admits(pod.rules, name=name, labels=node.labels, taints=node.taints) is None
            if node.ready and not node.unschedulable and admitted and fits(pod.requests, self.room(node)):
                return name
        return None

    def room(self, node: Node) -> Amounts:
        """What a node has left."""
        return subtract(node.allocatable, total(pod.requests for pod in self.pods.values() if pod.node == node.name))

    def _later_ready(self, pod: Pod) -> None:
        def ready() -> None:
            found = self.pods.get(pod.key)
            if found is None or found.uid != pod.uid or found.terminating:
                return
            workload = self.workload_of(found)
            if workload is None or workload.key not in self.never_ready_workloads:
                self.pods[pod.key] = replace(found, ready=True, started=self._clock.now())

        self.after(self.pace.pod_ready, ready)

    def workload_of(self, pod: Pod) -> Workload | None:
        """The workload of a pod: the Deployment behind its replica set, or its owner."""
        if pod.owner is None:
            return None
        owner = self.workloads.get(pod.owner.key_in(pod.namespace))
        if owner is None or owner.owner is None:
            return owner
        return self.workloads.get(owner.owner.key_in(owner.namespace), owner)

    def _status(self, key: str) -> None:
        workload = self.workloads[key]
        if workload.type == "ReplicaSet":
            own = [pod for pod in self.pods_of(workload) if not pod.terminating]
            self.workloads[key] = replace(workload, current=len(own), ready=sum(1 for pod in own if pod.ready))
        if workload.type not in {"Deployment", "StatefulSet"}:
            return
        living = [pod for pod in self.pods_of(workload) if not pod.terminating]
        newest = self._current_set(workload).name if workload.type == "Deployment" else workload.name
        self.workloads[key] = replace(
            workload,
            observed_generation=workload.generation,
            current=len(living),
            ready=sum(1 for pod in living if pod.ready),
            updated=sum(1 for pod in living if pod.owner is not None and pod.owner.name == newest),
        )

    def _watch_readiness(self) -> None:
        for key, workload in self.workloads.items():
            if workload.type in {"Deployment", "StatefulSet"}:
                self.least_ready[key] = min(self.least_ready.get(key, workload.ready), workload.ready)

    # --- nodes

    def register(self, node: Node) -> None:
        """A booted node appears, and is Ready a little later."""
        self.nodes[node.name] = node

        def ready() -> None:
            if node.name in self.nodes:
                self.nodes[node.name] = replace(self.nodes[node.name], ready=True)

        if node.name not in self.never_ready_nodes:
            self.after(self.pace.node_ready, ready)

    def vanish(self, name: str) -> None:
        """A node goes, and its pods with it."""
        self.nodes.pop(name, None)
        for key in [key for key, pod in self.pods.items() if pod.node == name]:
            del self.pods[key]

    def set_replicas(self, key: str, replicas: int) -> None:
        """Scale a workload, as we or anybody else would."""
        workload = self.workloads[key]
        if workload.replicas != replicas:
            self.workloads[key] = replace(workload, replicas=replicas, generation=workload.generation + 1)
        self.reconcile()

    def evictable(self, node: str) -> list[Pod]:
        """Pods on a node that do not go with it."""
        cluster = from_objects(self.workloads.values())
        return [pod for pod in self.pods.values() if pod.node == node and not is_resident(cluster, pod)]


def _deletion_order(pod: Pod) -> tuple[bool, bool, int, float]:
    """Which pods a replica set deletes first: unbound, not Ready, cheap, new."""
    created = pod.created.timestamp() if pod.created is not None else 0.0
    return (pod.node is not None, pod.ready, int(pod.annotations.get(DELETION_COST, "0")), -created)
