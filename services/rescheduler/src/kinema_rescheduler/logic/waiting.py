"""Pods that wait because of us: a node that the plan deletes has room for them, and only our taint keeps them off."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from msgspec.structs import replace

from kinema_core.events import FrozenMap, Node, Pod, StepFailed
from kinema_core.model.match import node_admits
from kinema_core.model.resources import fits
from kinema_core.model.volumes import with_attachments
from kinema_rescheduler.logic.names import EXPIRY, expire_id, unit_id
from kinema_rescheduler.logic.roll import rolled
from kinema_rescheduler.logic.room import free_room
from kinema_rescheduler.logic.scene import Scene
from kinema_rescheduler.logic.surge import unfinished


def kept_waiting(scene: Scene) -> tuple[StepFailed, ...]:
    """Give the plan up for a pod that has waited long enough: then the nodes are open again.

    Only pods that came after a node was closed count: those that were there before were waiting without us, and the
    next plan would do them no better.
    """
    closed = tuple(_closed(scene))
    for pod in _waiting(scene) if closed else ():
        assert pod.created is not None
        late = (node for node, since in closed if pod.created >= since)
        wanted = next((node for node in late if _would_take(scene, node, pod)), None)
        if wanted is not None and not _elsewhere(scene, pod):
            detail = f"{pod.key} fits on node {wanted.name} alone, which is closed to be deleted"
            return scene.give_up("pod-waits", detail)
    return ()


def _closed(scene: Scene) -> Iterator[tuple[Node, datetime]]:
    """Nodes under our taint as they would be without it, and since when; none that goes in any case."""
    for name in scene.deletes:
        if name in scene.ours:
            continue
        node, marked = scene.same_node(expire_id(name)), scene.progress(expire_id(name))
        if node is None or marked is None or marked.ended is None or scene.progress(f"delete/{name}") is not None:
            continue
        taints = tuple(taint for taint in node.taints if taint.key != EXPIRY)
        labels = FrozenMap({key: value for key, value in node.labels.items() if key != EXPIRY})
        if taints != node.taints:
            # Creation times have whole seconds, ours have more: allow for the second that was cut off.
            yield replace(node, taints=taints, labels=labels), marked.ended - timedelta(seconds=1)


def _waiting(scene: Scene) -> Iterator[Pod]:
    """Pods for which kube-scheduler has found no node for long, but for those that a move of ours has asked for."""
    planned = {place.uid for place in scene.plan.placements}
    for pod in scene.alive.values():
        if pod.node is not None or not pod.unschedulable or pod.rules.gated or pod.rules.unmodelled:
            continue
        late = scene.passed(pod.created, scene.limits.unschedulable_seconds)
        if late and pod.uid not in planned and not _asked_for(scene, scene.cluster.workload_key_of(pod)):
            yield pod


def _asked_for(scene: Scene, key: str) -> bool:
    """Whether a move of the workload goes on, which has deadlines of its own."""
    number = scene.units.get(key, 0)
    if number == 0 or scene.over(f"restore/{key}"):
        return False
    evicted = scene.progress(unit_id("evict", key, number)) is not None
    return evicted or unfinished(scene, key, number) or rolled(scene, key)


def _elsewhere(scene: Scene, pod: Pod) -> bool:
    """Whether an open node has room: then it is something else that keeps the pod waiting."""
    return any(_would_take(scene, node, pod) for node in scene.cluster.nodes)


def _would_take(scene: Scene, node: Node, pod: Pod) -> bool:
    takes = with_attachments(scene.cluster, pod, pod.requests)
    if not node.ready or node.unschedulable or not fits(takes, free_room(scene.cluster)[node.name]):
        return False
    return node_admits(pod.rules, name=node.name, labels=node.labels, taints=node.taints) is None
