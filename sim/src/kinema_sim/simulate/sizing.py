"""Rules of the neighbors that recommend requests, and what applies them beside a policy that places.

`vpa` is the VerticalPodAutoscaler 1.7: the 90th percentile of a decaying histogram of CPU plus 15%, that of the largest
memory of each of eight days, more after an out-of-memory kill. `krr` is Robusta's KRR as it comes: the 95th percentile
of CPU, the largest memory plus 15% as request and limit. `thesis` is algorithm 5 of the Kinema thesis: a line through
the last quarter of an hour, and a step of a tenth.

All of them are applied by a rolling update of the Deployment, which disturbs less than the evictions of VPA's updater.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from fractions import Fraction
from math import ceil
from typing import Final, Literal, TypeAlias

import numpy as np

from kinema_core.model.cluster import Cluster
from kinema_predictor.forecasting.models import LEARNING_SECONDS, decayed_quantiles, mean_ahead
from kinema_predictor.forecasting.task import Array, Task
from kinema_predictor.logic.forecast import CPU_FLOOR, MEMORY_MARGIN, WORTH, stepped
from kinema_predictor.logic.history import History
from kinema_sim.cluster import Cluster as SimCluster
from kinema_sim.controllers.memory import Killed
from kinema_sim.engine.kinds import DEPLOYMENT
from kinema_sim.engine.objects import Obj
from kinema_sim.scheduler.books import amounts
from kinema_sim.simulate.executor import Tally
from kinema_sim.simulate.usage import Watch
from kinema_sim.simulate.view import now_of

Sizing: TypeAlias = Literal["vpa", "krr", "thesis", "kinema"]
MIB: Final = 2**20
_DAY: Final = timedelta(days=1)


@dataclass(frozen=True)
class Known:
    """What is known of one workload: usage per pod in steps, NaN where there is none."""

    cpu: Array
    """(t,) millicores."""
    memory: Array
    """(t,) bytes."""
    step_seconds: float
    kills: tuple[tuple[float, int], ...] = ()
    """Of its pods for memory: how many steps ago, and the bytes that they used."""

    @property
    def day(self) -> int:
        """Return the steps of a day."""
        return round(_DAY.total_seconds() / self.step_seconds)


@dataclass(frozen=True)
class Wanted:
    """Requests of a pod, in millicores and bytes."""

    cpu: int
    memory: int
    memory_limit: bool = False
    """Whether the memory is the limit, too."""


# --- VPA


@dataclass(frozen=True)
class Vpa:
    """Constants of VPA 1.7 as it comes."""

    margin: float = 1.15
    target: float = 0.9
    lower: float = 0.5
    upper: float = 0.95
    cpu_floor: int = 25
    memory_floor: int = 250 * 10**6
    days: int = 8
    bump: float = 1.2
    least_bump: int = 100 * 10**6
    """After a kill memory counts as so many times, or bytes, more than was used."""
    worth: float = 0.1
    """Change below which pods stay as they are, while they are within the bounds."""
    settled: timedelta = timedelta(hours=12)
    """Age of pods from which they are changed within the bounds."""
    interval: timedelta = timedelta(minutes=10)
    """Between two looks; the updater looks every minute, at what moves by an hour."""

    def __call__(self, known: Known, now: Wanted, age: timedelta) -> Wanted | None:
        """Return the requests that pods of an age are to have, None where they stay."""
        cpu, memory = known.cpu[~np.isnan(known.cpu)], self._peaks(known)
        if not len(cpu) or not len(memory):
            return None
        day = Task(1, known.step_seconds, self.target)
        days = len(cpu) / known.day
        targets = {"cpu": self._of(cpu, day, self.target, 10), "memory": self._of(memory, _DAILY, self.target, 10**7)}
        wanted = Wanted(max(self.cpu_floor, targets["cpu"]), max(self.memory_floor, targets["memory"]))
        low, high = (1 + 0.001 / days) ** -2, 1 + 1 / days
        for name, values, task, first in (("cpu", cpu, day, 10), ("memory", memory, _DAILY, 10**7)):
            current = getattr(now, name)
            bounds = low * self._of(values, task, self.lower, first), high * self._of(values, task, self.upper, first)
            floor = self.cpu_floor if name == "cpu" else self.memory_floor
            if current < bounds[0] or current > max(floor, bounds[1]):
                return wanted
        changes = (abs(wanted.cpu - now.cpu) / max(1, now.cpu), abs(wanted.memory - now.memory) / max(1, now.memory))
        return wanted if age >= self.settled and max(changes) >= self.worth else None

    def _of(self, values: Array, task: Task, quantile: float, first: int) -> int:
        level = float(decayed_quantiles(values[None, :], (len(values),), task, quantile)[0][0])
        return round(self.margin * bucket_end(level, first))

    def _peaks(self, known: Known) -> Array:
        """Return the largest memory of each day, oldest first; a day without a sample has none."""
        most = min(self.days, -(-len(known.memory) // known.day))
        found = []
        for back in range(most, 0, -1):
            end = len(known.memory) - (back - 1) * known.day
            part = known.memory[max(0, end - known.day) : end]
            bumped = [
                max(used * self.bump, used + self.least_bump)
                for ago, used in known.kills
                if (back - 1) * known.day <= ago < back * known.day
            ]
            some = [*part[~np.isnan(part)].tolist(), *bumped]
            if some:
                found.append(max(some))
        return np.array(found, dtype=np.float64)


_DAILY: Final = Task(1, _DAY.total_seconds(), 0.9)


def bucket_end(value: float, first: float, ratio: float = 1.05) -> float:
    """Return the end of the bucket that holds a value; the first ends at `first`, each is `ratio` times as wide."""
    number = int(np.floor(np.log1p(max(0.0, value) * (ratio - 1) / first) / np.log(ratio) + 1e-9))
    return float(first * (ratio ** (number + 1) - 1) / (ratio - 1))


# --- KRR


@dataclass(frozen=True)
class Krr:
    """KRR's simple strategy as it comes, run once a day, its advice applied."""

    quantile: float = 0.95
    margin: float = 1.15
    days: int = 14
    least: int = 100
    """Points of history without which nothing is said."""
    interval: timedelta = _DAY

    def __call__(self, known: Known, now: Wanted, _: timedelta) -> Wanted | None:
        """Return the requests that pods are to have."""
        cpu, memory = (values[-self.days * known.day :] for values in (known.cpu, known.memory))
        cpu, memory = cpu[~np.isnan(cpu)], memory[~np.isnan(memory)]
        if len(cpu) < self.least or len(memory) < self.least:
            return None
        level = int(np.ceil(np.percentile(cpu, 100 * self.quantile)))
        most = int(np.ceil(self.margin * memory.max()))
        return Wanted(max(10, level), max(100 * MIB, most), memory_limit=True)


class Line:
    """Algorithm 5 of the thesis, on steps of five minutes; its quarter of an hour is the interval, too."""

    adjustment: Fraction = Fraction(1, 10)
    least: int = 2
    """Steps without which there is no line."""
    interval: timedelta = timedelta(seconds=LEARNING_SECONDS)

    def __call__(self, known: Known, now: Wanted, _: timedelta) -> Wanted | None:
        """Return the requests that pods are to have, a step towards what the line says."""
        count = round(LEARNING_SECONDS / known.step_seconds)
        recent = np.stack([known.cpu[-count:], known.memory[-count:]], axis=1)
        seconds = known.step_seconds * (np.arange(-len(recent), 0, dtype=np.float64) + 0.5)
        good = ~np.isnan(recent).any(axis=1)
        if good.sum() < self.least or any(ago * known.step_seconds < LEARNING_SECONDS for ago, _ in known.kills):
            return None
        cpu, memory = mean_ahead(seconds[good], recent[good], LEARNING_SECONDS).tolist()
        peak = int(np.ceil(np.nanmax(known.memory[-known.day :])))
        return Wanted(
            max(CPU_FLOOR, stepped(now.cpu, round(cpu), self.adjustment)),
            max(stepped(now.memory, round(memory), self.adjustment), ceil(peak * MEMORY_MARGIN)),
        )


Rule: TypeAlias = Vpa | Krr | Line
RULES: Final[Mapping[str, Rule]] = {"vpa": Vpa(), "krr": Krr(), "thesis": Line()}


# --- applying


@dataclass
class Sizer:
    """Applies what a rule recommends to the Deployments whose usage is known."""

    sim: SimCluster
    rule: Rule
    watch: Watch
    tally: Tally = field(default_factory=Tally)
    """Counts the pods that got other requests, and so were restarted."""
    _due: datetime | None = None
    _changed: dict[str, datetime] = field(default_factory=dict)

    def look(self, cluster: Cluster) -> None:
        """Take a reading; apply what the rule says where its interval is over."""
        self.watch.look(cluster)
        now = now_of(self.sim)
        if self._due is not None and now < self._due:
            return
        self._due = now + self.rule.interval
        history = self.watch.history
        keys = sorted({key for row in history.rows for key in row.workloads}) if history.rows else []
        for key, known in zip(keys, _known(history, keys, self.sim), strict=True):
            self._size(key, known, now)

    def _size(self, key: str, known: Known, now: datetime) -> None:
        _, space, name = key.split("/")
        item = self.sim.store.get(DEPLOYMENT, space, name)
        if item is None:
            return
        current = _requests(item)
        began = self._changed.setdefault(key, now - _DAY)
        wanted = self.rule(known, current, now - began)
        if wanted is None or not _differs(current, wanted):
            return
        self._changed[key] = now
        replicas = item["spec"].get("replicas", 1)
        self.tally.resized += replicas
        self.tally.evictions += replicas
        self.sim.store.edit(DEPLOYMENT, (space, name), lambda draft: _resize(draft, wanted))


def _known(history: History, keys: Sequence[str], sim: SimCluster) -> list[Known]:
    cpu, memory = (history.matrix(keys, name, history.steps) for name in ("cpu", "memory"))
    kills = sim.memory.killed if sim.memory is not None else ()
    ms = history.step_seconds * 1000
    return [
        Known(cpu[row], memory[row], history.step_seconds, _kills(key, kills, sim.loop.now_ms, ms))
        for row, key in enumerate(keys)
    ]


def _kills(key: str, kills: Sequence[Killed], now_ms: int, step_ms: float) -> tuple[tuple[float, int], ...]:
    return tuple(((now_ms - one.at_ms) / step_ms, one.used) for one in kills if key == f"Deployment/{one.workload}")


def _requests(item: Obj) -> Wanted:
    (container,) = item["spec"]["template"]["spec"]["containers"]
    has = amounts(container["resources"]["requests"])
    return Wanted(has.get("cpu", 0), has.get("memory", 0))


def _differs(now: Wanted, then: Wanted) -> bool:
    return abs(then.cpu - now.cpu) >= WORTH * now.cpu or abs(then.memory - now.memory) >= WORTH * now.memory


def _resize(draft: Obj, wanted: Wanted) -> None:
    (container,) = draft["spec"]["template"]["spec"]["containers"]
    container["resources"]["requests"] = {"cpu": f"{wanted.cpu}m", "memory": str(wanted.memory)}
    if wanted.memory_limit:
        container["resources"].setdefault("limits", {})["memory"] = str(wanted.memory)
