"""The question put to a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]

DAY_SECONDS: Final = 86_400


@dataclass(frozen=True)
class Task:
    """Horizon, grid and level of a forecast."""

    horizon: int
    """Steps ahead."""
    step_seconds: float
    quantile: float
    """Share of steps in which usage is to stay at or below the forecast."""

    @property
    def per_day(self) -> int:
        """Return the steps of a day."""
        return max(1, round(DAY_SECONDS / self.step_seconds))
