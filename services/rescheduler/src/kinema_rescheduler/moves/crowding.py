"""Room for another pod of a high priority, which a plan leaves and pods that came since would take.

Without it kube-scheduler ends pods of a lower priority for the next one, while nodes that the plan closes or deletes
have room for all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kinema_core.events import Amounts, Pod
from kinema_core.model.preemption import may_preempt
from kinema_core.model.resources import add, fits, subtract
from kinema_core.model.volumes import with_attachments
from kinema_rescheduler.moves.room import admits
from kinema_rescheduler.plan.context import ExecutionContext

Takers = Sequence[tuple[Pod, Amounts]]
"""Pods, and what each takes on its node."""


def crowded_out(ctx: ExecutionContext, left: Mapping[str, Amounts], rolled: Takers) -> str | None:
    """Return the workload whose next pod would find no room because of pods that came since; None if there is none.

    Asked for the largest pod for which there would be room without them. Where all nodes that go are gone, none could
    be opened for it.

    Args:
        ctx: the execution.
        left: what open nodes have left when the planned moves have ended, but for rolling updates.
        rolled: pods that rolling updates have yet to bring from nodes that go.
    """
    new = _new_pods(ctx) if (ctx.closed or ctx.to_close) and not any(ctx.awaited.values()) else []
    if not new:
        return None
    without = dict(left)
    for pod, takes in new:
        if pod.node in without:
            without[pod.node] = add(without[pod.node], takes)
    arriving = [*rolled, *(one for one in new if one[0].node in ctx.deletes)]
    for another in _preempting(ctx):
        if _holds(ctx, _settled(ctx, without, rolled, another), another):
            room_is_left = _holds(ctx, _settled(ctx, left, arriving, another), another)
            return None if room_is_left else ctx.cluster.workload_key_of(another)
    return None


def _new_pods(ctx: ExecutionContext) -> Takers:
    """Pods on nodes that neither the plan knows nor one of its moves has brought."""
    planned = {place.uid for place in ctx.plan.placements}
    return [
        (pod, with_attachments(ctx.cluster, pod, pod.requests))
        for pod in ctx.alive.values()
        if pod.node is not None and pod.uid not in planned and not ctx.units.get(ctx.cluster.workload_key_of(pod))
    ]


def _preempting(ctx: ExecutionContext) -> list[Pod]:
    """Return a pod of each workload for which others would be ended, the largest first."""
    found = {ctx.cluster.workload_key_of(pod): pod for pod in ctx.alive.values() if may_preempt(ctx.cluster, pod)}
    found.pop("", None)
    return sorted(
        found.values(), key=lambda pod: (-pod.requests.get("cpu", 0), -pod.requests.get("memory", 0), pod.key)
    )


def _settled(
    ctx: ExecutionContext, room: Mapping[str, Amounts], pods: Iterable[tuple[Pod, Amounts]], another: Pod
) -> dict[str, Amounts]:
    """Return what is left when these pods have come, where they can, to nodes that have no room for `another`."""
    left = dict(room)
    for pod, takes in pods:
        nodes = [name for name in left if _admits(ctx, name, pod) and fits(takes, left[name])]
        if nodes:
            name = min(nodes, key=lambda name: fits(another.requests, left[name]))
            left[name] = subtract(left[name], takes)
    return left


def _holds(ctx: ExecutionContext, left: Mapping[str, Amounts], another: Pod) -> bool:
    takes = with_attachments(ctx.cluster, another, another.requests)
    return any(fits(takes, room) and _admits(ctx, name, another) for name, room in left.items())


def _admits(ctx: ExecutionContext, name: str, pod: Pod) -> bool:
    node = ctx.cluster.node(name)
    return node is not None and admits(node, pod)
