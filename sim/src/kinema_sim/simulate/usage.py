"""Usage of a simulated cluster as recommenders of requests know it: steps of what workloads used, and those of before.

Only pods that follow a series are measured: what others use is made from their requests, and says nothing about need.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Final

from kinema_core.events import UsageCompacted, UsageResampled
from kinema_core.model.cluster import Cluster
from kinema_core.model.usage import BLOCK_STEPS, Amounts, compacted, resampled, step_start
from kinema_observer.logic.usage import Usage, UsageStep
from kinema_predictor.logic.history import History, remember
from kinema_sim.cluster import Cluster as SimCluster
from kinema_sim.engine.kinds import POD
from kinema_sim.simulate.scenario import Loaded, milliseconds
from kinema_sim.simulate.view import now_of

STEP: Final = timedelta(minutes=5)
"""As the observer has it by default."""
READING: Final = timedelta(minutes=1)
"""Between two readings: the usage of a series is exact, so fewer than live are enough."""
KEPT: Final = timedelta(days=21)
"""As the predictor has it by default."""


class SimMeter:
    """Reads what pods use now, as the observer reads the metrics API."""

    def __init__(self, sim: SimCluster) -> None:
        self._sim = sim

    async def read(self) -> Usage | None:
        """Return a reading, None where no pod follows a series."""
        return self.reading()

    def reading(self) -> Usage | None:
        """Return the same without waiting."""
        pods = []
        for key, used in sorted(self._sim.load.usage().items()):
            pod = self._sim.store.find(POD, key)
            if pod is not None and self._sim.load.is_loaded(pod):
                pods.append(("/".join(key), used.cpu_nano // 1_000_000, used.memory_bytes))
        return Usage(now_of(self._sim), 0.0, tuple(pods), 0) if pods else None


class Watch:
    """Folds readings to a history, as the observer and the predictor do together."""

    def __init__(self, sim: SimCluster, past: tuple[UsageCompacted | UsageResampled, ...]) -> None:
        self._meter = SimMeter(sim)
        self._step: UsageStep | None = None
        self.history = History()
        for body in past:
            self.history = remember(self.history, body, keep=KEPT)

    def look(self, cluster: Cluster) -> None:
        """Take a reading of the pods that a state knows."""
        usage = self._meter.reading()
        if usage is None:
            return
        if self._step is not None and usage.sampled >= self._step.end:
            closed, self._step = self._step.closed("simulated"), None
            if closed is not None:
                self.history = remember(self.history, closed, keep=KEPT)
        self._step = self._step or UsageStep.around(usage.sampled, STEP)
        self._step.add(usage, cluster)


def past_of(loaded: Loaded, sim: SimCluster) -> tuple[UsageCompacted | UsageResampled, ...]:
    """Return the steps before the simulation of workloads with a series: a checkpoint of each whole row, then steps."""
    end_ms = sim.loop.now_ms
    length_ms = round(STEP.total_seconds() * 1000)
    begin_ms = -(-(end_ms - milliseconds(loaded.scenario.past)) // length_ms) * length_ms
    names = {
        f"Deployment/{one.namespace}/{name}": (f"{one.namespace}/{name}", _replicas(one.replicas))
        for one in loaded.scenario.workloads
        if one.usage and one.kind == "Deployment"
        for name in one.names
    }
    steps = [
        resampled(
            {key: _amounts(sim, workload, pods, at_ms, length_ms) for key, (workload, pods) in names.items() if pods},
            start=datetime.fromtimestamp(at_ms / 1000, UTC),
            step=STEP,
        )
        for at_ms in range(begin_ms, end_ms - length_ms + 1, length_ms)
    ]
    found: list[UsageCompacted | UsageResampled] = []
    for start, row in groupby(steps, lambda step: step_start(step.start, step.step_seconds, BLOCK_STEPS)):
        members = list(row)
        whole = start + BLOCK_STEPS * STEP <= datetime.fromtimestamp(end_ms / 1000, UTC)
        found += [compacted(members, start=start)] if whole else members
    return tuple(found)


def _replicas(given: int | tuple[tuple[str, int], ...]) -> int:
    return given if isinstance(given, int) else given[0][1]


def _amounts(sim: SimCluster, workload: str, pods: int, at_ms: int, length_ms: int) -> Amounts:
    """Return what a series says for a step: the mean of CPU, and the largest memory."""
    minute = round(READING.total_seconds() * 1000)
    points = [sim.load.point(workload, at) for at in range(at_ms, at_ms + length_ms, minute)]
    known = [point for point in points if point is not None]
    cpu = -(-sum(cpu for cpu, _ in known) // len(known))
    return Amounts(pods, cpu, max(memory or 0 for _, memory in known))
