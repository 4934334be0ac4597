"""Replicas in the coming hours, where workloads have more and fewer at the same time every day.

The models of `forecasting` are of no use here: a level that is right on most days says nothing about when a rise comes.
So many replicas are expected in a step as there were in the same step on a share of the days, and on two at least.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from kinema_core.events import ReplicasAhead, ReplicasExpected
from kinema_core.model.ahead import GRACE
from kinema_core.model.cluster import Cluster
from kinema_predictor.forecasting.task import DAY_SECONDS
from kinema_predictor.logic.history import History

LEAST_DAYS: Final = 2
_MOST_DAYS: Final = 7
_CHUNK: Final = 500
_SCALED: Final = frozenset({"Deployment", "ReplicaSet", "ReplicationController", "StatefulSet"})


def replicas_ahead(cluster: Cluster, history: History, hours: float, share: float) -> ReplicasAhead | None:
    """Return the replicas of each workload whose number changes in that time; None where less than two days are known.

    Args:
        cluster: its workloads, and which of them have pods.
        history: what they had.
        hours: span ahead of the history's end, a day at most; 0: nothing is looked for.
        share: of the days on which there were so many.
    """
    if not hours or history.end is None:
        return None
    seconds = history.step_seconds
    day, before = round(DAY_SECONDS / seconds), math.ceil(GRACE.total_seconds() / seconds)
    days = min(_MOST_DAYS, history.steps // day)
    if days < LEAST_DAYS:
        return None
    coming = min(day, math.ceil(hours * 3600 / seconds))
    keys = sorted(one.key for one in cluster.workloads if one.type in _SCALED and cluster.pods_by_workload.get(one.key))
    found: list[ReplicasExpected] = []
    for at in range(0, len(keys), _CHUNK):
        some = keys[at : at + _CHUNK]
        pods = np.nan_to_num(history.matrix(some, "pods", days * day + before))
        # A new replica has its first sample in the step after the one in which it came.
        pods[:, :-1] = np.maximum(pods[:, :-1], pods[:, 1:])
        windows = np.stack([pods[:, n * day : n * day + before + coming] for n in range(days)])
        reached = np.sort(windows, axis=0)[-max(LEAST_DAYS, math.ceil(share * days))]
        changing = np.flatnonzero(reached.max(axis=1) > reached.min(axis=1))
        found += [ReplicasExpected(workload=some[row], replicas=tuple(map(int, reached[row]))) for row in changing]
    return ReplicasAhead(start=history.end - before * history.step, step_seconds=seconds, workloads=tuple(found))
