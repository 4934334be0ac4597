"""An owner who lets no second copy run beside an only pod is heard until the move that would run one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace
from tests.rescheduler.harness import WEB, World, once
from tests.rescheduler.plans_in_memory import rolling_plan
from tests.support.builders import cluster, deployed, node, offers
from tests.support.plans import place, plan_for

from kinema_core.events import FrozenMap
from kinema_core.model.checker.check import check_drifted

NO_SURGE = {"max_surge": "0", "max_unavailable": "1"}
RECREATE = {"max_surge": "0", "max_unavailable": "100%"}
BY_EVICTION = FrozenMap({"kinema.io/strategy": "evict"})
ALLOWED = FrozenMap({"kinema.io/strategy": "surge"})

When = Callable[[World], bool]


def accepted(_: World) -> bool:
    """Nothing has begun."""
    return True


def marked(world: World) -> bool:
    """The node is closed."""
    return world.disrupted("n2")


def steered(world: World) -> bool:
    """The move has begun, and nothing was asked for."""
    return bool(world.memory.steering)


def counting_copies(world: World, strike: Callable[[], None]) -> list[int]:
    """How many pods the Deployment wanted at each second; `strike` is called in each."""
    wanted: list[int] = []

    def second() -> None:
        strike()
        wanted.append(world.memory.workloads[WEB].replicas)

    world.on_second = second
    return wanted


@pytest.mark.parametrize("when", [accepted, marked, steered])
@pytest.mark.parametrize("change", [NO_SURGE, RECREATE, {**RECREATE, "annotations": BY_EVICTION}])
async def test_an_owner_who_excludes_a_second_copy_is_heard(when: When, change: dict[str, object]) -> None:
    """The planned surge does not begin: its pod stays, and so does its node."""
    before = cluster(node("n1"), node("n2"), deployed("web", ["n2"], cpu=500))
    world = World(before, plan_for(before, offers(), to={"shop/web-0": "n1"}, delete=["n2"]))

    def exclude() -> None:
        world.alter(WEB, **change)

    wanted = counting_copies(world, once(lambda: when(world), exclude))
    end = await world.completes("n1", "n2")
    assert set(wanted) == {1}
    assert end.figures["nodes_kept"] == 1
    assert world.memory.pods["shop/web-0"].node == "n2"


@pytest.mark.parametrize(("annotations", "copies"), [(BY_EVICTION, 1), (ALLOWED, 2)])
async def test_the_only_copy_moves_as_its_owner_says(annotations: FrozenMap[str], copies: int) -> None:
    """By an eviction no second one is asked for, by a surge one is; either way its node goes."""
    top, *rest = deployed("web", ["n2"], cpu=500, annotations=annotations)
    before = cluster(node("n1"), node("n2"), replace(top, **RECREATE), *rest)
    world = World(before, plan_for(before, offers(), to={"shop/web-0": "n1"}, delete=["n2"]))
    if copies == 1:
        world.floors[WEB] = 0  # it may be away for a moment
    wanted = counting_copies(world, lambda: None)
    await world.completes("n1")
    assert max(wanted) == copies


async def test_no_only_copy_is_rolled_against_its_owner() -> None:
    """New requests come by a rolling update, which runs a second copy: the pod keeps its requests."""
    before = cluster(node("n1"), node("n2"), deployed("web", ["n2"], cpu=500))
    smaller = {WEB: {"cpu": 300}}
    plan = plan_for(before, offers(), to={"shop/web-0": "n1"}, delete=["n2"], resizes=smaller)
    world = World(before, plan)

    def exclude() -> None:
        now = world.memory.workloads[WEB]
        world.memory.workloads[WEB] = replace(now, **NO_SURGE, annotations=BY_EVICTION)

    world.once(lambda: marked(world), exclude)
    end = await world.completes()
    assert world.verdicts()[f"skip/{WEB}"] == "held"
    assert world.memory.pods["shop/web-0"].requests["cpu"] == 500
    assert end.figures["moves_rolling"] == 0
    drifted = check_drifted(plan, world.view(9), offers(), world.clock.now())
    assert {one.code for one in drifted} == {"second-copy"}


async def test_no_held_pod_is_rolled() -> None:
    """A pod annotated do-not-move after the plan was made is not restarted by a rolling update either."""
    before, plan = rolling_plan()
    world = World(before, plan)

    def annotate() -> None:
        kept = world.memory.pods["shop/web-0"]
        world.memory.pods[kept.key] = replace(kept, annotations=FrozenMap({"kinema.io/do-not-move": "true"}))

    world.once(lambda: marked(world), annotate)
    await world.completes("n1", "n2")
    assert world.verdicts()[f"skip/{WEB}"] == "held"
    assert {pod.uid for pod in world.memory.pods.values()} == {pod.uid for pod in before.pods}


async def test_a_pod_that_is_to_move_in_an_unknown_way_stays() -> None:
    """A newer version's strategy is not replaced by one that this version knows: the pod and its node stay."""
    before = cluster(node("n1"), node("n2"), deployed("web", ["n2"], cpu=500))
    world = World(before)
    plan = plan_for(before, offers(), to={"shop/web-0": "n1"}, delete=["n2"])
    await world.accept(place(plan, "shop/web-0", strategy="unknown"))
    await world.completes("n1", "n2")
    assert world.memory.pods["shop/web-0"].node == "n2"
