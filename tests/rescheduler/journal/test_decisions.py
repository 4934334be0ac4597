"""Recorded decisions come out the same when they are made again."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby

import pytest
from tests.rescheduler.harness import World
from tests.rescheduler.plan.test_crashes import at_pass
from tests.rescheduler.plan.test_effect_errors import Flaky
from tests.rescheduler.plans_in_memory import booted_plan, chain_plan, fragmented_plan, rolling_plan, swap_plan
from tests.support.builders import cluster, deployed, node, offers
from tests.support.plans import plan_for

from kinema_core.events import ClusterDelta, ClusterSnapshot, Event, ExecutionAborted, Plan, encode
from kinema_core.model.cluster import Cluster, evolve
from kinema_rescheduler.errors import PermanentError
from kinema_rescheduler.journal.decisions import DecisionReplay, is_decision
from kinema_rescheduler.plan.limits import Limits


def states(world: World) -> dict[int, Cluster]:
    """The cluster at every version."""
    found: dict[int, Cluster] = {}
    state = Cluster()
    for event in world.bus.events("STATE"):
        if isinstance(event.body, ClusterSnapshot | ClusterDelta):
            state = evolve(state, event.body)
            found[state.version] = state
    return found


def check(world: World) -> int:
    """Make every recorded decision again; gives how many there were."""
    replay = DecisionReplay(world.limits)
    known = states(world)
    count = 0

    def key(event: Event) -> tuple[object, ...]:
        return (event.time, event.state) if is_decision(event.body) else (event.id,)

    for _, group in groupby(world.log(), key=key):
        events = list(group)
        if is_decision(events[0].body):
            made = replay.again(events[0], known[events[0].state] if events[0].state else Cluster())
            assert len({event.id for event in made}) == len(made)
            assert [encode(event) for event in made[: len(events)]] == [encode(event) for event in events]
            count += len(events)
        for event in events:
            replay.recall(event)
    return count


@pytest.mark.parametrize("make", [fragmented_plan, rolling_plan, booted_plan, swap_plan, chain_plan])
async def test_decisions_of_a_whole_execution_are_made_again(make: Callable[[], tuple[Cluster, Plan]]) -> None:
    """Same log, same state versions, same times: the same bytes."""
    world = World(*make())
    await world.run()
    assert check(world) >= 7


@pytest.mark.parametrize("point", ["rescheduler.taint.before", "rescheduler.surge-down.effected"])
async def test_decisions_around_a_crash_are_made_again(point: str) -> None:
    """A decision of which only the first events were stored is a beginning of what is decided again."""
    world = World(*fragmented_plan())
    world.crash_at = at_pass(point, 2)
    await world.run()
    assert world.crashes == 1
    assert check(world) > 20


async def test_decisions_of_a_rollback_are_made_again() -> None:
    """An abort in the middle and everything after it comes out the same."""
    world = World(*booted_plan())
    await world.aborted_when(lambda: bool(world.intents("surge-up")))
    await world.aborts("operator")
    assert check(world) >= 8


async def test_a_plan_that_is_given_up_for_two_reasons_at_once_is_given_up_once() -> None:
    """Two rolls that may not be written: the first one's word is stored, and made again alone."""
    before = cluster(node("n1"), node("n2"), deployed("api", ["n2"], cpu=500), deployed("web", ["n2"], cpu=500))
    smaller = {f"Deployment/shop/{name}": {"cpu": 300} for name in ("api", "web")}
    plan = plan_for(before, offers(), to={pod.key: "n1" for pod in before.pods}, delete=["n2"], resizes=smaller)
    world = World(before, plan)
    world.writer = Flaky(world, "roll", PermanentError("denied", "forbidden"), 100)
    world._service = world._new_service()
    end = await world.run()
    assert isinstance(end, ExecutionAborted), world.told()
    assert end.reason == "denied"
    assert end.detail.startswith("Deployment/shop/api")
    assert check(world) >= 7


async def test_other_limits_give_other_decisions() -> None:
    """The check above would notice: with another limit the deadlines written into intents differ."""
    world = World(*booted_plan())
    await world.run()
    world.limits = Limits(boot_seconds=1)
    with pytest.raises(AssertionError):
        check(world)
