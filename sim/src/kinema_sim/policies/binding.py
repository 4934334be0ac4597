"""The scheduler as the policies meet it: one pod after the other, filters, then a score."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias

import numpy as np

from kinema_sim.policies.topology import Flags
from kinema_sim.policies.world import World

Score: TypeAlias = Literal["least-allocated", "most-allocated"]


def bind(world: World, pods: Iterable[str], score: Score, avoid: Flags | None = None) -> list[str]:
    """Bind waiting pods by priority and name; gives those that fit nowhere, however often they try.

    The score is that of kube-scheduler's fit plugin: the mean free share of CPU and memory with the pod on the node,
    highest or lowest first; ties by the node's index. Nodes to `avoid` (a taint PreferNoSchedule) come last. Other
    scores are left out.
    """
    left = sorted(pods, key=lambda key: (-world.pods[key].priority, key))
    while left:
        before = len(left)
        left = [pod for pod in left if not _bound(world, pod, score, avoid)]
        if len(left) == before or not any(world.topology.concerns(world.kind_of[pod]) for pod in left):
            break
    return left


def _bound(world: World, pod: str, score: Score, avoid: Flags | None) -> bool:
    index = best(world, world.kind_of[pod], score, avoid)
    if index is not None:
        world.place(pod, index)
    return index is not None


def best(world: World, kind: int, score: Score, avoid: Flags | None = None) -> int | None:
    """The node that the scheduler would choose; None when none takes the pod."""
    takes = np.flatnonzero(world.fits(kind))
    if not len(takes):
        return None
    if avoid is not None:
        wanted = takes[~avoid[takes]]
        takes = wanted if len(wanted) else takes
    # In thousandths, as whole numbers: no comparison hangs on a float's last digit.
    left = world.free[takes, :2] - world.kinds[kind].requests[:2]
    share = (1000 * left // world.total[takes, :2]).sum(axis=1)
    chosen = share.argmax() if score == "least-allocated" else share.argmin()
    return int(takes[int(chosen)])
