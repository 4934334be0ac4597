"""Settings of the predictor."""

from __future__ import annotations

from datetime import timedelta
from fractions import Fraction

import msgspec

from kinema_core.runtime.settings import RuntimeSettings
from kinema_predictor.logic.forecast import Rules
from kinema_predictor.logic.history import Reach


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that the predictor is told; seconds are the cluster's."""

    runtime: RuntimeSettings
    lookback_seconds: float = 900.0
    """Samples of this long before now are learned from."""
    horizon_seconds: float = 900.0
    """The forecast is the mean over this long from now."""
    adjustment: str | float = "0.10"
    """Most that a request changes in one iteration, as a part of itself, 0 to 1; 0 turns forecasts off."""

    def __post_init__(self) -> None:
        """Refuse what no type can."""
        for name in ("lookback_seconds", "horizon_seconds"):
            if not 0 < getattr(self, name) <= 86_400:
                message = f"{name} is {getattr(self, name)}: use more than 0 and at most a day (86400)"
                raise ValueError(message)
        try:
            adjustment = Fraction(str(self.adjustment))
        except (ValueError, ZeroDivisionError) as error:
            message = f"adjustment {self.adjustment!r} is no number: use a part from 0 to 1 such as 0.10"
            raise ValueError(message) from error
        if not 0 <= adjustment <= 1:
            message = f"adjustment is {self.adjustment}: use 0 to 1"
            raise ValueError(message)

    @property
    def rules(self) -> Rules:
        """As the logic takes them."""
        return Rules(
            learning=timedelta(seconds=self.lookback_seconds),
            horizon=timedelta(seconds=self.horizon_seconds),
            adjustment=Fraction(str(self.adjustment)),  # a number as it was written: 0.1 is exactly one tenth
        )

    @property
    def reach(self) -> Reach:
        """How far back history is kept: a learning interval, and as much again for an event that is handled late."""
        return Reach(recent=2 * timedelta(seconds=self.lookback_seconds), peaks=2 * self.rules.peaks)
