"""Plans whose pods land elsewhere at random: executed, and what remains planned again, until nothing is left to do."""

from __future__ import annotations

import asyncio
import random
import time
from datetime import datetime
from typing import Any, Final

from tests.history.plan_step import WORK, history_of, rest_accepted
from tests.history.random_clusters import RandomCluster
from tests.history.simulated import NAME, SimulatedRun
from tests.history.verdict import NothingToDoError, Verdict, verdict_on

from kinema_core.events import is_unfinished
from kinema_sim.cluster import Cluster as SimCluster
from kinema_sim.engine.kinds import NODE, Kind

_REST_SECONDS: Final = 60
"""How long the observer may take to ask for the rest of a plan."""
_STEERED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


class ContinuedRun(SimulatedRun):
    """A run whose steered pods are sent elsewhere with a probability, as an admission policy of others might do."""

    def __init__(
        self, cluster: RandomCluster, share: float, *, work: int = WORK, sim: SimCluster | None = None
    ) -> None:
        super().__init__(cluster, work=work, sim=sim)
        self.plans = 1
        self.began: datetime = self.clock.now()
        self.last: datetime = self.began
        chance = random.Random(cluster.seed)

        def misplace(kind: Kind, item: dict[str, Any]) -> None:
            affinity = item.get("spec", {}).get("affinity", {}).get("nodeAffinity", {})
            steered = [term for term in affinity.get(_STEERED, ()) if "matchFields" in term["preference"]]
            if kind.name != "Pod" or not steered or chance.random() >= share:
                return
            named = {term["preference"]["matchFields"][0]["values"][0] for term in steered}
            others = sorted({one["metadata"]["name"] for one in self.sim.store.each(NODE)} - named)
            if others:
                field = {"key": "metadata.name", "operator": "In", "values": [chance.choice(others)]}
                affinity[_STEERED] = [{"weight": 100, "preference": {"matchFields": [field]}}]

        self.sim.store.admit_with(misplace)

    async def carry_out(self) -> None:
        """Execute the plan, and the rest of it again and again, as the observer asks for it."""
        self.began = self.clock.now()
        with self.auditor.watching():
            await self._first()
            while self.end is not None and is_unfinished(self.end) and await self._again():
                self.plans += 1
        self.last = self.clock.now()

    async def _first(self) -> None:
        lease = await self.bus.acquire("rescheduler", 3600)
        assert lease is not None
        self.lease = lease
        self._fence.hold(lease)
        await self._observe()
        await self._tick(lease)
        await self._tick(lease)
        self.begun = await self._accepted()
        self.began = self.clock.now()
        if self.begun:
            await self._until_end(lease)

    async def _again(self) -> bool:
        """Whether the rest was asked for, planned and accepted, and came to an end."""
        for _ in range(_REST_SECONDS):
            self.sim.run_for(1)
            await self._observe()
            goes_on = await rest_accepted(self.bus, self._cluster, self.clock.now(), name=NAME, work=self.work)
            if goes_on:
                self.end = None
                await self._until_end(self.lease)
            if goes_on is not None:
                return goes_on
        return False


async def _run(cluster: RandomCluster, share: float, work: int, sim: SimCluster | None) -> ContinuedRun:
    found = ContinuedRun(cluster, share, work=work, sim=sim)
    try:
        await found.carry_out()
    finally:
        await found.close()
    return found


def continued(
    cluster: RandomCluster, share: float, *, work: int = WORK, sim: SimCluster | None = None
) -> tuple[Verdict, float, int]:
    """Return the verdict on a run, how many seconds it took, and how many plans; `work` is how far each solve goes.

    `sim` is the cluster where it is built already.

    Raises:
        NothingToDoError: there is no better plan.
    """
    began = time.monotonic()
    found = asyncio.run(_run(cluster, share, work, sim))
    if found.end is None and not found.begun:
        raise NothingToDoError
    assert found.plan is not None
    verdict = verdict_on(
        cluster.seed,
        history=history_of(found.bus, found.auditor),
        auditor=found.auditor,
        plan=found.plan,
        end=found.end,
        cost=found.cost,
        seconds=time.monotonic() - began,
        features=cluster.environment.features,
    )
    return verdict, (found.last - found.began).total_seconds(), found.plans
