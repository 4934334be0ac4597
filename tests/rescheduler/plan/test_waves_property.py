"""Random plans with shuffles, carried out in the cluster in memory."""

from __future__ import annotations

import asyncio
import random

import hypothesis
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.model.sequencing.test_random_swaps import shuffled, world, wrong
from tests.rescheduler.plan.test_waves import Watched
from tests.support.builders import NOW, offers

from kinema_core.events import ExecutionCompleted, Plan
from kinema_core.model.cluster import Cluster
from kinema_core.model.sequencing.waves import Transition, order_transition, with_steps


def movable(rng: random.Random) -> tuple[Cluster, Plan, Transition]:
    """A valid plan that moves pods one by one, and its order."""
    while True:
        before = world(rng, ruled=False)
        plan = shuffled(rng, before)
        unsteered = any(item.strategy in {"schedule", "rolling"} for item in plan.placements)
        if plan.moves and not unsteered and not wrong(plan, before):
            return before, plan, order_transition(plan, before, offers(), now=NOW)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_whatever_can_be_ordered_is_carried_out(seed: int) -> None:
    """Every pod ends on its planned node, temporary nodes are gone, and no node was overfull on the way."""
    before, plan, transition = movable(random.Random(seed))
    hypothesis.event(f"temporary {len(transition.temporary)}, waves {transition.waves}")

    async def carry_out() -> None:
        running = Watched(before)
        for item in plan.placements:
            workload = before.controller_of(before.pods_by_key[item.pod])
            if item.strategy == "evict" and workload is not None:
                running.floors[workload.key] = workload.replicas - 1
        await running.accept(with_steps(plan, transition))
        assert isinstance(await running.run(4000), ExecutionCompleted), running.told()
        assert running.problems == [], running.told()
        remaining = sorted(item.name for item in plan.nodes if item.action != "delete")
        assert sorted(running.memory.nodes) == remaining, running.told()
        wanted = sorted((item.pod.rpartition("-")[0], item.to) for item in plan.placements)
        living = [pod for pod in running.memory.pods.values() if not pod.terminating and pod.namespace == "shop"]
        assert sorted((_owner(pod.key), pod.node or "") for pod in living) == wanted, running.told()
        assert running.marks_left() == []

    asyncio.run(carry_out())


def _owner(key: str) -> str:
    """The workload in a pod's name: `shop/w1` of `shop/w1-0` and of a replacement's longer name."""
    return key.partition("-")[0]
