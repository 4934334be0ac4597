"""Verdicts on who may move, for tests of single rules."""

from __future__ import annotations

from collections.abc import Iterable

from tests.support.builders import NOW, cluster, node

from kinema_core.events import ClusterObject
from kinema_core.model.mobility import Mobility, MobilityOptions, mobility


def judged(*objects: ClusterObject | Iterable[ClusterObject], move_jobs: bool = False) -> Mobility:
    """The verdict on a cluster of nodes n1 and n2 and these objects."""
    return mobility(cluster(node("n1"), node("n2"), *objects), NOW, MobilityOptions(move_jobs=move_jobs))


def code(key: str, *objects: ClusterObject | Iterable[ClusterObject], move_jobs: bool = False) -> str | None:
    """The code that holds a pod, None when it may move."""
    held = judged(*objects, move_jobs=move_jobs).held.get(key)
    assert held is None or held.reason
    return None if held is None else held.code
