"""Settings of the observer loop. All times are seconds of the cluster's clock."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

from kinema_core.ranges import Share, between, check_ranges

_Time: TypeAlias = Annotated[float, between(0, 31_536_000)]
"""A year at most."""


class LoopSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Conditions for an iteration to begin, and times after which one counts as abandoned."""

    stabilization_window_seconds: _Time = 30.0
    """Time for which the cluster must have been stable before a reschedule iteration, and for which pods wait whose
    autoscale plan came at the wrong moment (rules `drift` and `executing`). The rest of a plan is planned when pods
    that have just come to their nodes are Ready, after one that ended for a pod that waits all pods, or after this
    time."""
    max_restless_fraction: Share = 0.2
    """Share of the workloads that may be restless at once: pods that are not Ready, a rollout, an HPA about to scale. A
    plan leaves them where they are. Above this share no reschedule iteration begins."""
    missing_share: Share = 0.1
    """Share of the Ready replicas, or of the nodes, that may be missing from the state. Above it the state contradicts
    itself (the API server's lists were not whole), and no iteration begins."""
    reschedule_interval_seconds: _Time = 60.0
    """Least time between the end of one reschedule iteration and the next one."""
    autoscale_retry_seconds: _Time = 60.0
    """Time for which pods that an ended autoscale iteration covered wait before they are the reason for another."""
    ahead_margin_seconds: _Time = 300.0
    """Time, beyond what boots take, from which on room is bought for replicas that the forecast expects (`ahead_hours`
    of the predictor)."""
    iteration_deadline_seconds: _Time = 900.0
    """An iteration without a decision after this time counts as abandoned."""
    approval_seconds: _Time = 3600.0
    """Time for which a plan that waits for approval keeps new iterations from beginning."""
    execution_deadline_seconds: _Time = 14400.0
    """An accepted plan without an end after this time counts as abandoned."""
    skip_repeat_seconds: _Time = 300.0
    """Time after which the observer publishes again an unchanged reason for not beginning."""
    deletion_repeat_seconds: _Time = 600.0
    """Interval at which the deletion of an empty disrupted node is requested again."""

    def __post_init__(self) -> None:
        """Refuse what no type can."""
        check_ranges(self)
