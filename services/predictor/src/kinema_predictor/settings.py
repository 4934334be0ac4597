"""Settings of the predictor."""

from __future__ import annotations

from datetime import timedelta
from fractions import Fraction
from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from kinema_core.ranges import NotNegative, Share, between, check_ranges
from kinema_core.runtime.settings import RuntimeSettings
from kinema_predictor.logic.forecast import Rules
from kinema_predictor.logic.judging import Risk

_DAY: Final = 86_400
_MONTH: Final = 31 * _DAY
_Risk: TypeAlias = Annotated[float, between(0, 0.5, above=True)]
_DEFAULT_CHANGE: Final = Fraction(1, 10)


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the predictor; seconds are of cluster time."""

    runtime: RuntimeSettings
    mode: Literal["", "off", "recommend", "apply"] = ""
    """What is done with forecasts: nothing, recommend requests, or let plans apply them. Empty: `apply` where
    `max_request_change_fraction` is above 0, else `recommend`."""
    lookback_seconds: Annotated[float, between(0, _MONTH, above=True)] = 1_814_400.0
    """Span of usage that a forecast may use, ending now; a weekly pattern shows in 16 days."""
    horizon_seconds: Annotated[float, between(0, _DAY, above=True)] = 86_400.0
    """Span after now for which a request has to do."""
    max_request_change_fraction: str | float = "0"
    """Largest change of a request in one iteration, as a fraction of it, 0 to 1. With 0 no request changes, unless
    `mode` is `apply`: then it is 0.10."""
    cpu_risk: _Risk = 0.05
    """Share of the usage steps in which a pod may use more CPU than it requests."""
    memory_risk: _Risk = 0.001
    """Chance that a pod uses more memory than it requests in a step of the horizon."""
    least_age_seconds: Annotated[float, between(0, _MONTH)] = 86_400.0
    """Age of a workload's usage before its requests may fall."""
    least_coverage: Share = 0.7
    """Share of the steps with a sample before requests may fall."""
    refresh_seconds: Annotated[float, between(0, _DAY, above=True)] = 3600.0
    """Age of a judgement from which it is made again."""
    max_age_seconds: Annotated[float, between(0, _MONTH, above=True)] = 86_400.0
    """Age of a judgement from which it counts no longer; until then it holds while there is no usage."""
    ahead_hours: Annotated[float, between(0, 24)] = 0.0
    """Span ahead for which the number of replicas is forecast, 0 to 24, where it rises and falls at the same time every
    day. Plans then keep and buy room for what will be needed soon. 0: no look ahead."""
    ahead_share: Share = 0.5
    """Share of the last seven days, and two days at least, on which a workload had so many replicas at that time."""
    workloads_per_iteration: Annotated[int, between(1)] = 250
    """Workloads that are judged in one iteration; the oldest judgements go first."""
    stale_event_seconds: NotNegative = 900.0
    """An event that is older when it is delivered is dropped at once, with a copy in DLQ: its iteration was abandoned
    (`iteration_deadline_seconds` of the observer)."""

    def __post_init__(self) -> None:
        """Refuse what no type can."""
        check_ranges(self)
        try:
            fraction = Fraction(str(self.max_request_change_fraction))
        except (ValueError, ZeroDivisionError) as error:
            value = self.max_request_change_fraction
            message = f"max_request_change_fraction {value!r} is no number: use a fraction from 0 to 1 such as 0.10"
            raise ValueError(message) from error
        if not 0 <= fraction <= 1:
            raise ValueError(f"max_request_change_fraction is {self.max_request_change_fraction}: use 0 to 1")

    @property
    def rules(self) -> Rules:
        """Return the rules as the logic takes them."""
        # As written: 0.1 is exactly one tenth.
        change = Fraction(str(self.max_request_change_fraction))
        return Rules(
            mode=self.mode or ("apply" if change else "recommend"),
            max_change=change or _DEFAULT_CHANGE,
            risk=Risk(cpu=self.cpu_risk, memory=self.memory_risk),
            horizon=timedelta(seconds=self.horizon_seconds),
            least_age=timedelta(seconds=self.least_age_seconds),
            least_coverage=self.least_coverage,
            refresh=timedelta(seconds=self.refresh_seconds),
            max_age=timedelta(seconds=self.max_age_seconds),
            batch=self.workloads_per_iteration,
            ahead_hours=self.ahead_hours,
            ahead_share=self.ahead_share,
        )

    @property
    def lookback(self) -> timedelta:
        """Return how far back usage is kept."""
        return timedelta(seconds=self.lookback_seconds)
