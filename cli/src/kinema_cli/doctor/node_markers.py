"""Markers of a plan that stay on nodes when Kinema has ended, and how to remove them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kinema_kubernetes.client import connect
from kinema_kubernetes.objects import Json, annotations_of
from kinema_rescheduler.names import DISRUPTED, FENCING, PLAN

if TYPE_CHECKING:
    from kinema_core.events import Node

_MOST: Final = 10
"""Nodes that are named; the rest is counted."""
GO_ON: Final = (
    "start that Kinema again on its broker (`kinema up` with the same --out): it continues the plan, or rolls it back "
    "after `kinema abort`, and removes the taints"
)


@dataclass(frozen=True)
class NodeMarkers:
    """Names of nodes with markers of a plan."""

    closed: tuple[str, ...] = ()
    """Nodes with a taint against new pods."""
    labeled: tuple[str, ...] = ()
    """Nodes with only a label or an annotation."""

    def __bool__(self) -> bool:
        """Return whether there are any."""
        return bool(self.closed or self.labeled)

    @property
    def told(self) -> str:
        """Which nodes have which markers."""
        stay = "stays" if len(self.closed) == 1 else "stay"
        parts = (
            [f"{_names(self.closed)} {stay} tainted against new pods ({DISRUPTED}:NoSchedule)"] if self.closed else []
        )
        carry = "carries" if len(self.labeled) == 1 else "carry"
        parts += (
            [f"{_names(self.labeled)} {carry} labels or annotations of a plan (kinema.io/…)"] if self.labeled else []
        )
        return "; ".join(parts)

    @property
    def by_hand(self) -> str:
        """The command that removes them where no Kinema can."""
        every = " ".join((*self.closed, *self.labeled))
        untaint = f"kubectl taint nodes {' '.join(self.closed)} {DISRUPTED}:NoSchedule- && " if self.closed else ""
        labels = f"kubectl label nodes {every} {DISRUPTED}-"
        command = f"{untaint}{labels} && kubectl annotate nodes {every} {PLAN}- {FENCING}-"
        return f"if that broker is lost: `{command}`"


def _names(nodes: Sequence[str]) -> str:
    more = f" and {len(nodes) - _MOST} more" if len(nodes) > _MOST else ""
    return f"node{'s' * (len(nodes) > 1)} {', '.join(nodes[:_MOST])}{more}"


def markers_on(nodes: Iterable[Node]) -> NodeMarkers:
    """Return the markers on nodes as the observer reads them."""
    return _marks((node.name, {*node.labels, *node.annotations}, {one.key for one in node.taints}) for node in nodes)


async def markers_in(kubeconfig: Path, *, context: str) -> NodeMarkers:
    """Return the markers on the nodes of a cluster; raises KubernetesError where they cannot be listed."""
    api = await connect(str(kubeconfig), context=context)
    try:
        nodes = await api.items("/api/v1/nodes")
    finally:
        await api.close()
    return _marks((node["metadata"]["name"], _keys(node), _taints(node)) for node in nodes)


def _keys(node: Json) -> set[str]:
    labels: Mapping[str, str] = node["metadata"].get("labels") or {}
    return {*labels, *annotations_of(node)}


def _taints(node: Json) -> set[str]:
    return {taint.get("key", "") for taint in (node.get("spec") or {}).get("taints") or []}


def _marks(nodes: Iterable[tuple[str, set[str], set[str]]]) -> NodeMarkers:
    every = sorted(nodes, key=lambda node: node[0])
    closed = tuple(name for name, _, taints in every if DISRUPTED in taints)
    labeled = tuple(name for name, keys, taints in every if DISRUPTED not in taints and keys & {DISRUPTED, PLAN})
    return NodeMarkers(closed, labeled)
