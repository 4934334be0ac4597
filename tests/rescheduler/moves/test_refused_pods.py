"""Pods that their controller may not create (a quota, an admission rule) are not waited for."""

from __future__ import annotations

from datetime import datetime

from tests.rescheduler.harness import WEB, World
from tests.rescheduler.plans_in_memory import rolling_plan, small_plan
from tests.support.builders import cluster, deployed, node, offers, stateful
from tests.support.plans import plan_for

from kinema_rescheduler.plan.limits import Limits


async def test_a_refused_surge_is_taken_back_at_once() -> None:
    """Within half a minute its workload is left alone with the reason, replicas as before; the plan ends."""
    before, plan = small_plan()
    world = World(before, plan)
    world.memory.quota = 3
    end = await world.completes("n1", "n2", seconds=60)
    assert float(end.figures["seconds"]) <= 40
    assert world.verdicts()[f"skip/{WEB}"] == "refused"
    assert any("may create no more pods: exceeded quota: 3 of 3 pods are there" in line for line in world.told())
    assert world.memory.workloads[WEB].replicas == 3
    assert {pod.uid for pod in world.memory.pods.values()} == {pod.uid for pod in before.pods}


async def test_a_complaint_that_passes_is_waited_out() -> None:
    """Two writers at one quota refuse each other for a moment: the pods come a little later, and the plan is done."""
    world = World(*small_plan(), limits=Limits(refused_seconds=15))
    world.memory.quota = 3
    surged: list[datetime] = []

    def second() -> None:
        if world.memory.workloads[WEB].replicas > 3:
            surged.append(world.clock.now())
        world.memory.quota = 3 if len(surged) < 12 else None

    world.on_second = second
    await world.completes("n1", seconds=200)


async def test_nothing_is_evicted_where_a_surge_was_refused() -> None:
    """A used up quota gives the evicted pod's place to anybody: surges of the namespace ask first, evictions after."""
    before = cluster(node("n1"), node("n2"), deployed("web", ["n1", "n2"], cpu=500), stateful("db", ["n1", "n2"]))
    to = {pod.key: "n1" for pod in before.pods}
    world = World(before, plan_for(before, offers(), to=to, delete=["n2"]))
    world.memory.quota = len(before.pods)
    await world.completes(seconds=60)
    assert world.verdicts()["skip/StatefulSet/shop/db"] == "refused"
    assert any("might be lost, as with Deployment/shop/web: its controller" in line for line in world.told())
    assert {pod.uid for pod in world.memory.pods.values()} == {pod.uid for pod in before.pods}


async def test_evictions_begin_when_surges_have_their_pods() -> None:
    """Beside a surge that is not refused they wait for its pods to be there, not for its end; all is done."""
    before = cluster(node("n1"), node("n2"), deployed("web", ["n1", "n2"], cpu=500), stateful("db", ["n1", "n2"]))
    to = {pod.key: "n1" for pod in before.pods}
    world = World(before, plan_for(before, offers(), to=to, delete=["n2"]))
    await world.completes("n1", seconds=200)
    times = {event.id.rpartition("/rescheduler/")[2]: event.time for event in world.log()}
    evicted = times["evict/StatefulSet/shop/db/1-1-intended"]
    assert times[f"surge-up/{WEB}/1-1-done"] <= evicted < times[f"surge-down/{WEB}/1-1-done"]


async def test_a_refused_roll_gives_the_template_back() -> None:
    """A rolling update needs a pod more: where none is allowed, it is taken back."""
    world = World(*rolling_plan())
    world.memory.quota = 3
    await world.completes(seconds=120)
    assert world.verdicts()[f"skip/{WEB}"] == "refused"
    assert {pod.requests["cpu"] for pod in world.memory.pods.values()} == {500}
