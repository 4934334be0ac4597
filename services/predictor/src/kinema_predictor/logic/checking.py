"""Earlier judgements beside what came after them: how often usage was above the need that they state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from kinema_core.events import WorkloadJudged
from kinema_predictor.logic.history import History
from kinema_predictor.logic.judging import RESOURCES, Resource


@dataclass(frozen=True)
class Check:
    """Steps after judgements."""

    steps: int = 0
    """Those with a sample that lie within the horizon of the judgement."""
    above: int = 0
    """Those of them in which usage was above the need."""


def checked(history: History, earlier: Mapping[str, tuple[datetime, WorkloadJudged]]) -> dict[Resource, Check]:
    """Return for each resource how judgements, by workload with their times, held in the steps that began since."""
    end = history.end
    if end is None or not earlier:
        return {name: Check() for name in RESOURCES}
    since = np.array([max(0, int((end - time) / history.step)) for time, _ in earlier.values()])
    most = max(1, min(history.steps, int(since.max())))
    # How many steps of the newest ones began after the judgement: in column 0 is the oldest of them.
    age = np.arange(most, 0, -1)
    found: dict[Resource, Check] = {}
    for name in RESOURCES:
        bands = [next((band for band in one.bands if band.resource == name), None) for _, one in earlier.values()]
        need = np.array([np.inf if band is None else band.need for band in bands])
        ahead = np.array([0 if band is None else round(band.horizon_seconds / history.step_seconds) for band in bands])
        usage = history.matrix(list(earlier), name, most)
        within = (age <= since[:, None]) & (age > (since - ahead)[:, None]) & ~np.isnan(usage)
        found[name] = Check(int(within.sum()), int((within & (usage > need[:, None])).sum()))
    return found
