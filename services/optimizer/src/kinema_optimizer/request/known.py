"""Facts that log and taints add to the state: moves without effect, and nodes that another autoscaler deletes.

A quota or an admission rule refused a workload's new pods, its autoscaler took them back, or none was Ready in time.
Once a move is taken back, no state shows that, and the next plan would repeat it; the log has it, so a replay knows the
same. Where a booted node is blamed for pods that were not Ready, their workloads may move again, once. Pods on nodes
that another autoscaler deletes are moved by that autoscaler and not by a plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from kinema_core.events import SKIPPED, UNFIT, Event, FrozenMap, Pod, StepFailed, Workload
from kinema_core.model.cluster import Cluster
from kinema_core.model.foreign import foreign_deletion
from kinema_core.model.vocabulary import HELD

_REASONS: Final = frozenset({"refused", "unschedulable", "taken-back", "pods-never-ready", "roll-stuck"})
"""Ends of a move that the next one of the same workload would meet again."""
_UNREADY: Final = frozenset({"pods-never-ready", "roll-stuck"})
"""Those that a booted node may be the cause of."""


class _Refusal(NamedTuple):
    at: datetime
    detail: str
    blamable: str = ""
    """Plan whose booted nodes may yet be the cause; empty: none may."""
    excused: bool = False
    """A booted node was the cause: the workload may move."""


@dataclass(frozen=True)
class Refusals:
    """The last refusal of each workload, by its key."""

    last: Mapping[str, _Refusal] = field(default_factory=lambda: MappingProxyType({}))

    def after(self, event: Event, seconds: float) -> Refusals:
        """Return the refusals with what a log event adds, without those that are older than so many seconds."""
        body = event.body
        if not isinstance(body, StepFailed) or body.reason not in _REASONS:
            return self
        recent = self._since(event.time, seconds)
        if body.step.startswith(SKIPPED):
            key = body.step.removeprefix(SKIPPED)
            again = key in recent and recent[key].excused  # pods that no node suits would excuse themselves for ever
            blamable = body.plan if body.reason in _UNREADY and not again else ""
            recent[key] = _Refusal(event.time, body.detail, blamable)
        elif body.step.startswith(UNFIT):
            recent = {
                key: one._replace(excused=True) if one.blamable == body.plan else one for key, one in recent.items()
            }
        return Refusals(MappingProxyType(recent))

    def _since(self, now: datetime, seconds: float) -> dict[str, _Refusal]:
        return {key: one for key, one in self.last.items() if (now - one.at).total_seconds() < seconds}

    def shown_in(self, cluster: Cluster, now: datetime, seconds: float) -> Cluster:
        """Return the cluster with an annotation on each workload that was refused less than so many seconds ago."""
        recent = {key: one for key, one in self._since(now, seconds).items() if not one.excused}
        known = {key: cluster.workload(key) for key in recent}
        marked = {key: _marked(found, recent[key]) for key, found in known.items() if found is not None}
        if not marked:
            return cluster
        workloads = {**cluster.objects[Workload.__name__], **marked}
        return replace(cluster, objects=MappingProxyType({**cluster.objects, Workload.__name__: workloads}))


def _marked(workload: Workload, refusal: _Refusal) -> Workload:
    why = f"its last move came to nothing: {refusal.detail} ({refusal.at:%Y-%m-%d %H:%M} UTC)"
    return msgspec.structs.replace(workload, annotations=FrozenMap({**workload.annotations, HELD: f"refused: {why}"}))


def left_to_others(cluster: Cluster) -> Cluster:
    """Return the cluster with an annotation on each pod of such a node by which it stays; its node is kept, too."""
    marks = {node.name: taint for node in cluster.nodes if (taint := foreign_deletion(node)) is not None}
    pods = {
        pod.key: _held(pod, f"node {name} is being emptied by another autoscaler: taint {taint}")
        for name, taint in marks.items()
        for pod in cluster.pods_by_node.get(name, ())
    }
    if not pods:
        return cluster
    every = {**cluster.objects[Pod.__name__], **pods}
    return replace(cluster, objects=MappingProxyType({**cluster.objects, Pod.__name__: every}))


def _held(pod: Pod, why: str) -> Pod:
    return msgspec.structs.replace(pod, annotations=FrozenMap({**pod.annotations, HELD: f"foreign-node: {why}"}))
