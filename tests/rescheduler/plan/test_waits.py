"""A decision to wait is made again once something is read or a time that it asked about is over, and not before."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from tests.rescheduler.harness import WEB, World
from tests.rescheduler.memory_cluster import Pace
from tests.rescheduler.plan.test_effect_errors import Flaky
from tests.rescheduler.plans_in_memory import (
    booted_plan,
    budgeted_plan,
    chain_plan,
    detour_plan,
    fragmented_plan,
    rolling_plan,
    small_plan,
    swap_plan,
    two_rolls_plan,
)
from tests.support.builders import NOW, cluster, deployed, node, offers
from tests.support.plans import plan_for

from kinema_core.events import Plan
from kinema_core.model.cluster import Cluster
from kinema_core.model.vocabulary import DO_NOT_DISRUPT
from kinema_rescheduler.errors import TransientError
from kinema_rescheduler.journal.decisions import decided
from kinema_rescheduler.plan.limits import Limits
from kinema_rescheduler.service import Rescheduler


def protected_plan() -> tuple[Cluster, Plan]:
    """A node that is to be emptied holds a pod that its owner protects for a while longer."""
    marks = {DO_NOT_DISRUPT: "10m"}
    before = cluster(
        node("n1"),
        node("n2"),
        deployed("web", ["n1", "n2"], cpu=100),
        deployed("api", ["n1", "n2"], cpu=100, pod_annotations=marks, started=NOW - timedelta(minutes=8)),
    )
    to = {"shop/web-1": "n1", "shop/api-1": "n1"}
    return before, plan_for(before, offers(), to=to, delete=["n2"])


def never_ready(world: World) -> None:
    """New pods of the workload never become Ready."""
    world.memory.never_ready_workloads.add(WEB)


def without_place(world: World) -> None:
    """The scheduler finds no node for new pods of the workload."""
    world.memory.unplaceable.add(WEB)


def refused(world: World) -> None:
    """Steering fails for a while."""
    world.writer = Flaky(world, "prefer-nodes", TransientError("throttled", "too many requests"), 3)
    world._service = world._new_service()


@pytest.fixture
def spared(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Make every decision that is spared all the same, and see that it is to wait; the list has one entry for each."""
    known, found = Rescheduler._still_waits, list[str]()

    def checked(service: Rescheduler, state: Cluster) -> bool:
        if not known(service, state):
            return False
        now, limits = service._clock.now(), service._settings.limits
        assert decided(service._reading.journal, state, now=now, limits=limits, fencing=1) == ()
        found.append(now.isoformat())
        return True

    monkeypatch.setattr(Rescheduler, "_still_waits", checked)
    return found


@pytest.mark.parametrize(
    "make",
    [
        booted_plan,
        budgeted_plan,
        chain_plan,
        detour_plan,
        fragmented_plan,
        protected_plan,
        rolling_plan,
        small_plan,
        swap_plan,
        two_rolls_plan,
    ],
)
async def test_what_is_not_decided_again_would_be_decided_alike(
    make: Callable[[], tuple[Cluster, Plan]], spared: list[str]
) -> None:
    """In the whole execution, second by second; boots and pods that take their time leave something to spare."""
    world = World(*make(), pace=Pace(pod_ready=20.0, pod_end=10.0))
    await world.run()
    assert world.problems == []
    assert spared


@pytest.mark.parametrize("trouble", [never_ready, without_place, refused])
async def test_a_wait_ends_with_the_patience_for_it(trouble: Callable[[World], None], spared: list[str]) -> None:
    """Pods that never come and steps that fail: deadlines and pauses end by the time alone."""
    world = World(*fragmented_plan())
    trouble(world)
    await world.run()
    assert world.problems == []
    assert spared


async def test_a_wait_has_no_effect_on_when_things_happen(monkeypatch: pytest.MonkeyPatch) -> None:
    """With and without it every event comes at the same second."""
    logs = []
    for _ in range(2):
        world = World(*fragmented_plan(), limits=Limits(pods_ready_seconds=90))
        never_ready(world)
        await world.run()
        logs.append(world.told())
        monkeypatch.setattr(Rescheduler, "_still_waits", lambda *_: False)
    assert logs[0] == logs[1]
