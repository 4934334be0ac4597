"""An execution that waits: since when, for what, and that it shall be given up."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Literal

import msgspec
import pytest
from rich.console import Console
from tests.cli.status.test_command import PLAN, STARTED, Told
from tests.rescheduler.harness import CLUSTER, World
from tests.support.builders import (
    NOW,
    cluster,
    deployed,
    deployment,
    node,
    offers,
    pod,
    replica_set,
    stateful,
    stateful_set,
)
from tests.support.plans import plan_for

from kinema_cli.report.protocol import step_in_a_line
from kinema_cli.status.command import status_table
from kinema_cli.status.execution import QUIET_SECONDS, Steps, blocked_on
from kinema_cli.status.pipeline import read_status
from kinema_core.events import (
    AbortRequested,
    ClusterObject,
    ClusterSnapshot,
    ExecutionAborted,
    FrozenMap,
    Placement,
    PlanAccepted,
    Step,
    StepStarted,
    StepSucceeded,
)
from kinema_rescheduler.plan.limits import Limits

WEB = "Deployment/shop/web"
UP = Step(id=f"surge-up/{WEB}/1", kind="surge-up", target=WEB, replicas_from=2, replicas_to=3, pods=("u1",))
LATER = NOW + timedelta(minutes=10)


def intended(step: Step) -> StepStarted:
    """The step is about to be tried."""
    return StepStarted(plan="e2", step=step, fencing=1, deadline=NOW, attempt=1)


def done(step: Step, **figures: str) -> StepSucceeded:
    """The step was made."""
    return StepSucceeded(plan="e2", step=step.id, fencing=1, outcome="done", figures=FrozenMap(figures))


def steps(*made: StepSucceeded, of: tuple[Step, ...]) -> Steps:
    """Steps that were intended, of which these were made."""
    return Steps({step.id: step for step in of}, {body.step: body for body in made}, NOW)


def web(*, pods: int = 3, pending: str = "", **more: object) -> tuple[ClusterObject, ...]:
    """A Deployment with so many ready pods, and perhaps one that is nowhere."""
    top = deployment("web", replicas=3, **more)
    own = replica_set("web-1", replicas=3, owner=top)
    ready = [pod(f"web-1-{number}", node="n1", owner=own) for number in range(pods)]
    return (top, own, *ready, *([pod(pending, owner=own)] if pending else []))


async def shown(told: Told, now: datetime = LATER) -> str:
    """The table, ten minutes later unless told otherwise, without its frame."""
    console = Console(width=200)
    with console.capture() as capture:
        console.print(status_table(await told.status(now)))
    return capture.get()


async def test_a_pod_that_fits_nowhere_is_named() -> None:
    """Since when nothing began or ended, and which pod of the surge has no node, in the table and the value."""
    told = await Told().say(STARTED, PLAN, PlanAccepted(plan="e2", version=7), intended(UP), done(UP))
    await told.say(ClusterSnapshot(version=8, objects=(node("n1"), *web(pods=2, pending="web-1-new"))))
    found = (await told.status(LATER)).execution
    assert found is not None
    assert found.last_progress_time == NOW + timedelta(seconds=5)
    (waits,) = found.blocked_on
    assert waits.startswith("pod shop/web-1-new is Pending: kube-scheduler finds no node for it")
    text = await shown(told)
    assert "no step began or ended for 10min, since 2026-03-02 12:00:05" in text
    assert "probably blocked on: pod shop/web-1-new is Pending" in text


async def test_an_execution_that_goes_on_is_not_said_to_wait() -> None:
    """While a step is under way nothing is said of waiting, whatever pods are on their way."""
    told = await Told().say(STARTED, PLAN, PlanAccepted(plan="e2", version=7), intended(UP), done(UP), intended(EVICT))
    await told.say(ClusterSnapshot(version=8, objects=web(pods=2, pending="web-1-new")))
    found = (await told.status(NOW + timedelta(seconds=6 + QUIET_SECONDS - 1))).execution
    assert found is not None
    assert found.blocked_on == ()


async def test_an_execution_without_a_step_says_at_once_what_for() -> None:
    """Zero steps run right after one was made: for its pods, or for the state to show it; no word of silence."""
    told = await Told().say(STARTED, PLAN, PlanAccepted(plan="e2", version=7), intended(UP), done(UP))
    await told.say(ClusterSnapshot(version=8, objects=web(pods=2, pending="web-1-new")))
    soon = NOW + timedelta(seconds=5 + QUIET_SECONDS - 1)
    text = await shown(told, soon)
    assert "probably blocked on: pod shop/web-1-new is Pending" in text
    assert "no step began" not in text
    await told.say(ClusterSnapshot(version=9, objects=web()))
    assert "probably blocked on: the observed state does not show the last step yet" in await shown(told, soon)


async def test_what_the_state_does_not_tell() -> None:
    """Where all that is known is as it should be, the way to the rescheduler's own word is shown."""
    told = await Told().say(STARTED, PLAN, PlanAccepted(plan="e2", version=7), intended(UP), done(UP))
    await told.say(ClusterSnapshot(version=8, objects=web()))
    assert "unknown; see the rescheduler's /readyz and log" in await shown(told)


async def test_a_state_that_is_lost_is_what_is_waited_for() -> None:
    """Without a state nothing is decided, and that is said."""
    told = await Told().say(STARTED, PLAN, PlanAccepted(plan="e2", version=7))
    assert "a state of the cluster: the newest state cannot be had" in await shown(told)


BOOT = Step(id="boot/n9", kind="boot", target="n9")
MARK = Step(id="taint/n1", kind="taint", target="n1")
EVICT = Step(id="evict/StatefulSet/shop/db/1", kind="evict", target="StatefulSet/shop/db", pods=("u2",))
EVICT_ONE = msgspec.structs.replace(EVICT, replicas_from=3)
DELETE = Step(id="delete/n1", kind="delete", target="n1")
CLEAR = Step(id="clear-preferred-nodes/1", kind="clear-preferred-nodes", target="")
FINISH = Step(id=f"finalize-rollout/{WEB}/1", kind="finalize-rollout", target=WEB)
ROLL = Step(id=f"roll/{WEB}/1", kind="roll", target=WEB)


@pytest.mark.parametrize(
    ("known", "objects", "said"),
    [
        (steps(done(BOOT), of=(BOOT,)), (), ["node n9 was launched and has not registered"]),
        (
            steps(done(BOOT, node="x"), of=(BOOT,)),
            (node("x", ready=False),),
            ["node x was launched and is not Ready"],
        ),
        (steps(done(BOOT), of=(BOOT, MARK)), (), []),
        (steps(of=(BOOT,)), (), []),
        (
            steps(done(ROLL), of=(ROLL,)),
            web(paused=True),
            [f"{WEB} is paused; its pods are replaced after `kubectl -n shop rollout resume deployment/web`"],
        ),
        (steps(done(ROLL), of=(ROLL, FINISH)), web(paused=True), []),
        (
            steps(done(UP), of=(UP,)),
            web(pods=2, refused="exceeded quota: q"),
            [f"{WEB}: its controller cannot create pods: exceeded quota: q"],
        ),
        (steps(done(UP), of=(UP,)), web(pods=2), [f"{WEB} has 2 of 3 pods"]),
        (
            steps(done(EVICT), of=(EVICT,)),
            (stateful_set("db"), pod("db-0", node="n2", ready=False, owner=stateful_set("db"))),
            ["pod shop/db-0 on node n2 is not Ready"],
        ),
        (steps(done(DELETE), of=(DELETE,)), (node("n1"),), ["node n1 was deleted and still exists"]),
        (
            steps(done(MARK), of=(MARK,)),
            (node("n1"), pod("old", node="n1", terminating=True)),
            ["pod shop/old on node n1 has not ended yet"],
        ),
    ],
)
def test_what_is_not_as_it_has_to_be(known: Steps, objects: tuple[ClusterObject, ...], said: list[str]) -> None:
    """Nodes, workloads and pods of the plan that hold it up, and none that does not."""
    assert list(blocked_on(known, None, cluster(*objects))) == said


def test_a_workload_that_was_not_begun_counts_by_its_planned_moves() -> None:
    """A pod that is to move and is not Ready keeps its workload from being touched; one that stays holds nothing up."""
    db = stateful_set("db")
    held = cluster(db, pod("db-0", node="n2", ready=False, owner=db))

    def planned(strategy: Literal["evict", "stay"]) -> tuple[str, ...]:
        place = Placement(
            pod="shop/db-0", uid="uid-pod-shop-db-0", source="n2", to="n1", strategy=strategy, requests=FrozenMap({})
        )
        return blocked_on(steps(of=()), msgspec.structs.replace(PLAN, placements=(place,)), held)

    assert planned("evict") == ("pod shop/db-0 on node n2 is not Ready",)
    assert planned("stay") == ()


def test_a_node_that_takes_no_pods_is_named() -> None:
    """Somebody has cordoned the node that the plan fills, or it has fallen silent; others do not matter."""
    place = Placement(pod="shop/db-0", uid="u", source="n2", to="n1", strategy="evict", requests=FrozenMap({}))
    plan = msgspec.structs.replace(PLAN, placements=(place,))

    def said(*, unschedulable: bool = False, ready: bool = True) -> tuple[str, ...]:
        to = node("n1", unschedulable=unschedulable, ready=ready)
        return blocked_on(steps(of=()), plan, cluster(to, node("n2", ready=False)))

    assert said(unschedulable=True) == ("node n1 is to take pods and is cordoned; run `kubectl uncordon n1`",)
    assert said(ready=False) == ("node n1 is to take pods and is not Ready",)
    assert said() == ()


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (EVICT_ONE, "evict 1 of the 3 pods of StatefulSet/shop/db"),
        (UP, "surge-up Deployment/shop/web 2 → 3 replicas for 1 pod"),
        (DELETE, "delete n1"),
        (CLEAR, "clear-preferred-nodes"),
    ],
)
def test_a_step_in_a_line(step: Step, said: str) -> None:
    """An eviction leaves the replicas alone, and reads like it."""
    assert step_in_a_line(step) == said


def test_many_are_counted() -> None:
    """Six are named, the rest is a number."""
    top = deployment("web", replicas=9)
    own = replica_set("web-1", replicas=9, owner=top)
    pods = [pod(f"web-1-{number}", owner=own) for number in range(9)]
    found = blocked_on(steps(done(UP), of=(UP,)), None, cluster(top, own, *pods))
    assert len(found) == 7
    assert found[-1] == "3 more"


async def test_an_abort_that_was_asked_for_is_told_until_the_plan_has_ended() -> None:
    """By whom and when; one of an earlier plan means nothing for this one."""
    told = await Told().say(AbortRequested(by="bob"), PLAN, PlanAccepted(plan="e2", version=7), intended(UP))
    found = (await told.status()).execution
    assert found is not None
    assert found.abort is None
    await told.say(AbortRequested(by="ada", reason="too slow"))
    found = (await told.status()).execution
    assert found is not None
    assert found.abort is not None
    assert (found.abort.by, found.abort.asked) == ("ada", NOW + timedelta(seconds=5))
    assert "abort requested by ada at 2026-03-02 12:00:05: too slow" in await shown(told)
    await told.say(ExecutionAborted(plan="e2", fencing=1, reason="operator", detail="ada: too slow"))
    found = (await told.status()).execution
    assert found is not None
    assert found.abort is None


async def test_a_move_that_cannot_begin_is_named_with_its_reason() -> None:
    """An operator who lets moves wait for long sees the pod that no move of its workload can begin for."""
    before = cluster(node("n1"), node("n2"), stateful("db", ["n1", "n2"], cpu=500))
    plan = plan_for(before, offers(), to={"shop/db-0": "n2"}, delete=["n1"])
    world = World(before, limits=Limits(no_room_seconds=600))  # else it gives the move up sooner
    world.memory.pods["shop/db-1"] = msgspec.structs.replace(world.memory.pods["shop/db-1"], ready=False)
    await world.accept(plan)
    for _ in range(int(QUIET_SECONDS) + 20):
        await world.second()
    found = (await read_status(world.bus, cluster=CLUSTER, now=world.clock.now())).execution
    await world.stop()
    assert found is not None
    assert found.phase == "Running"
    assert found.blocked_on == ("pod shop/db-1 on node n2 is not Ready",)


async def test_pods_that_wait_for_the_end_of_the_plan_are_named() -> None:
    """Somebody else's pod without a node is told why none is bought; those that the plan itself moves are not."""
    told = await Told().say(STARTED, PLAN, PlanAccepted(plan="e2", version=7), intended(UP), done(UP))
    stranger = deployed("new", [None])
    await told.say(ClusterSnapshot(version=8, objects=(node("n1"), *web(pods=2, pending="web-1-new"), *stranger)))
    found = (await told.status(LATER)).execution
    assert found is not None
    assert found.pending_pods == ("shop/new-0",)
    said = "1 pod without a node: shop/new-0; placed when this plan has ended"
    assert said in await shown(told)
