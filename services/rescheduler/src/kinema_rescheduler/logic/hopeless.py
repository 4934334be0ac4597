"""Room that nobody will free: waiting for it is no use, and as long as a plan waits, no other one is carried out."""

from __future__ import annotations

from collections.abc import Sequence

from kinema_rescheduler.logic.scene import Scene
from kinema_rescheduler.logic.turn import Turn, skipping
from kinema_rescheduler.logic.workloads import Movers


def hopeless(scene: Scene, due: Sequence[Movers], turns: list[Turn]) -> list[Turn]:
    """Give up the first of the moves that are due where all of them wait for room that nothing under way would free.

    One at a time: what was promised to its pods may be what the next one needs. Only steps of ours begin the wait
    anew, so that where that does not help, the next one follows at once.

    Args:
        scene: with no move in progress.
        due: the moves of this wave.
        turns: what came of the attempt to begin them, in its order.
    """
    waits = [turn.waits for turn in turns if turn.waits is not None and turn.waits.reason == "no-room"]
    if not waits or len(waits) < len(turns):
        return turns
    patience = min(scene.limits.observed_seconds, scene.limits.blocked_seconds)
    if not scene.passed(scene.last_step, patience) or _may_come(scene, due):
        return turns
    return [skipping(scene, waits[0]), *turns[1:]]


def _may_come(scene: Scene, due: Sequence[Movers]) -> bool:
    """Whether there may be more room by itself: steps under way, pods that end, nodes that are coming up.

    Room that others might make, who scale down or open a node, is not counted on.
    """
    if scene.execution.open_steps or any(pod.terminating for pods in scene.evictable.values() for pod in pods):
        return True
    if any(name in scene.route.temporary for item in due for name in item.targets.values()):
        return True
    planned = {place.to for place in scene.plan.placements}
    return any(
        not node.ready and not node.unschedulable and node.name in planned and node.name not in scene.deletes
        for node in scene.cluster.nodes
    )
