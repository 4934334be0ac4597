"""Leftovers of a plan whose Kinema has ended: markers on nodes, and workloads in the middle of a move."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import msgspec

from kinema_cli.doctor.checks import Finding
from kinema_cli.output import counted
from kinema_cli.status.execution import Steps, steps_of
from kinema_core.events import Node, Step, StepSucceeded
from kinema_core.runtime.bus import Bus, Stored
from kinema_core.runtime.clock import SystemClock
from kinema_kubernetes.claim import PATH
from kinema_kubernetes.client import Client, connect
from kinema_kubernetes.errors import KubernetesError, NotFoundError
from kinema_kubernetes.objects import Json, annotations_of, workload_path
from kinema_rescheduler.names import DISRUPTED, FENCING, PLAN, ROLLED

_MOST: Final = 10
"""Nodes or workloads that are named; the rest is counted."""
GO_ON: Final = (
    "start that Kinema again on its broker (`kinema up` with the same --out): it continues the plan, or rolls it back "
    "after `kinema abort`, and removes the taints"
)
_KINDS: Final = ("step-started", "step-succeeded", "step-failed")
_ENDS: Final = {"surge-up": "surge-down", "roll": "finalize-rollout"}
"""Step that begins a move and leaves a surplus or a rollout → step that ends it."""
_CHECK: Final = "leftover taints"


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
    def text(self) -> str:
        """Nodes with their markers, in a line."""
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
        """Command that removes them where no Kinema can."""
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


async def incomplete_moves_of(bus: Bus, plan: str, kubeconfig: Path, *, context: str) -> str:
    """Return the workloads that the plan moves and that differ from what their owners want; empty where none do.

    Raises:
        BusError: the log cannot be read. KubernetesError: the cluster cannot be.
    """
    begun = await bus.last("LOG", "plan-accepted")
    if not isinstance(begun, Stored):
        return ""
    found = bus.read("LOG", start=begun.sequence, kinds=_KINDS)
    steps = moving(steps_of(plan, [item.event async for item in found if isinstance(item, Stored)]))
    if not steps:
        return ""
    api = await connect(str(kubeconfig), context=context)
    try:
        return format_moves([text for step in steps if (text := await _now(api, step))])
    finally:
        await api.close()


def moving(steps: Steps) -> tuple[Step, ...]:
    """Return the newest step of each workload whose move may have begun and has not ended, by workload."""
    newest: dict[str, Step] = {}
    for step in steps.intended.values():
        if step.kind in _ENDS:
            newest[step.target] = step
    return tuple(newest[target] for target in sorted(newest) if _goes_on(steps, newest[target]))


def _goes_on(steps: Steps, begun: Step) -> bool:
    outcome = steps.settled.get(begun.id)
    made = outcome is None or (isinstance(outcome, StepSucceeded) and outcome.outcome != "void")
    end = _ENDS[begun.kind] + begun.id.removeprefix(begun.kind)
    return made and end not in steps.done and f"revert/{begun.target}" not in steps.done


async def _now(api: Client, begun: Step) -> str:
    """Return what is left of the move on the workload; empty where it is complete, or the workload is gone."""
    try:
        workload = await api.get(workload_path(begun.target))
    except NotFoundError:
        return ""
    if begun.kind == "roll":
        return f"{begun.target} is half rolled" if ROLLED in annotations_of(workload) else ""
    replicas = (workload.get("spec") or {}).get("replicas")
    if replicas != begun.replicas_to:
        return ""
    more = counted(begun.replicas_to - begun.replicas_from, "replica")
    return f"{begun.target} has {more} too many ({begun.replicas_to}, its owner wants {begun.replicas_from})"


def format_moves(every: Iterable[str]) -> str:
    """Return the workloads in a line."""
    texts = list(every)
    more = [f"{len(texts) - _MOST} more workloads in the middle of a move"] if len(texts) > _MOST else []
    return "; ".join((*texts[:_MOST], *more))


class _Spec(msgspec.Struct, rename="camel"):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    renew_time: datetime | None = None


class _Lease(msgspec.Struct):
    spec: _Spec = msgspec.field(default_factory=_Spec)


async def leftovers(api: Client, nodes: Iterable[Node]) -> list[Finding]:
    """Return one finding where nodes have markers of a plan, else none."""
    marks = markers_on(nodes)
    if not marks:
        return []
    try:
        spec = msgspec.json.decode((await api.read(PATH)).body, type=_Lease).spec
    except NotFoundError:
        spec = _Spec()
    except (KubernetesError, msgspec.DecodeError) as error:
        return [Finding(_CHECK, "warn", f"{marks.text}; it is unknown whether a Kinema is running: {error}", GO_ON)]
    if _lives(spec, SystemClock().now()):
        return [Finding(_CHECK, "ok", f"{marks.text}; a running Kinema executes a plan, or is about to remove them")]
    message = f"{marks.text}, and no Kinema acts on this cluster: a plan is incomplete"
    return [Finding(_CHECK, "warn", message, f"{GO_ON}; {marks.by_hand}")]


def _lives(spec: _Spec, now: datetime) -> bool:
    """Return whether the Lease is held and was renewed in time."""
    if not spec.holder_identity or spec.renew_time is None:
        return False
    return now - spec.renew_time <= timedelta(seconds=spec.lease_duration_seconds or 0)
