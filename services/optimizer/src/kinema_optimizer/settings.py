"""Settings of the optimizer; the same names as the chart's values."""

from __future__ import annotations

import msgspec

from kinema_core.model.mobility import MobilityOptions
from kinema_core.runtime.settings import RuntimeSettings
from kinema_optimizer.logic.windows import Window


class PlanningSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What decides about plans."""

    time_limit_seconds: float = 10.0
    """Real seconds for the solver, all phases together; the best plan found by then is proposed with its gap."""
    windows: tuple[Window, ...] = ()
    """Objectives by time of the week; the first that contains the moment counts, without one least cost alone."""
    move_jobs: bool = False
    """Pods of Jobs may be moved."""
    allow_spot: bool = False
    """Pods may be put on spot capacity without asking for it."""

    def __post_init__(self) -> None:
        """Refuse what no type can."""
        if self.time_limit_seconds <= 0:
            message = f"time_limit_seconds is {self.time_limit_seconds}: it must be above 0"
            raise ValueError(message)

    @property
    def mobility(self) -> MobilityOptions:
        """What the operator allows to move."""
        return MobilityOptions(move_jobs=self.move_jobs, allow_spot=self.allow_spot)


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that the optimizer is told."""

    runtime: RuntimeSettings
    planning: PlanningSettings = msgspec.field(default_factory=PlanningSettings)
