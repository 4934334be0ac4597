"""Settings of the predictor."""

from __future__ import annotations

from datetime import timedelta
from fractions import Fraction

import msgspec

from kinema_core.runtime.settings import RuntimeSettings
from kinema_predictor.logic.forecast import Rules
from kinema_predictor.logic.history import Reach


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the predictor; seconds are of cluster time."""

    runtime: RuntimeSettings
    lookback_seconds: float = 900.0
    """Span of the samples that a forecast uses, ending now."""
    horizon_seconds: float = 900.0
    """Span after now over which the forecast is the mean."""
    max_request_change_fraction: str | float = "0"
    """Largest change of a request in one iteration, as a fraction of it, 0 to 1. With 0 no request changes."""

    def __post_init__(self) -> None:
        """Refuse what no type can."""
        for name in ("lookback_seconds", "horizon_seconds"):
            if not 0 < getattr(self, name) <= 86_400:
                raise ValueError(f"{name} is {getattr(self, name)}: use more than 0 and at most a day (86400)")
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
        return Rules(
            learning=timedelta(seconds=self.lookback_seconds),
            horizon=timedelta(seconds=self.horizon_seconds),
            # As written: 0.1 is exactly one tenth.
            max_change=Fraction(str(self.max_request_change_fraction)),
        )

    @property
    def reach(self) -> Reach:
        """Return how far back history is kept: twice the learning interval, for events that are handled late."""
        return Reach(recent=2 * timedelta(seconds=self.lookback_seconds), peaks=2 * self.rules.peaks)
