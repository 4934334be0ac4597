"""What an execution does when it cannot go on: it ends within its deadlines and takes back what it began."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import timedelta

import pytest
from msgspec.structs import replace
from tests.rescheduler.harness import ALL_AT_ONCE, World
from tests.rescheduler.memory_cluster import Pace
from tests.rescheduler.plans_in_memory import booted_plan, fragmented_plan, rolling_plan, small_plan
from tests.support.builders import NOW, cluster, deployed, node, offer, offers, pod, stateful
from tests.support.plans import plan_for

from kinema_core.events import (
    ClusterObject,
    ExecutionAborted,
    ExecutionCompleted,
    Node,
    StepFailed,
    StepStarted,
    is_unfinished,
)
from kinema_rescheduler.errors import PermanentError
from kinema_rescheduler.kubernetes.cluster import Order
from kinema_rescheduler.names import DISRUPTED
from kinema_rescheduler.plan.limits import Limits
from kinema_rescheduler.providers.base import Operation


@pytest.mark.parametrize("reason", ["stock-out", "quota", "permission"])
async def test_refused_boot_ends_a_plan_that_needs_it_for_all_before_anything_moved(reason: str) -> None:
    """Stock-out, quota and permission end the plan with nothing moved."""
    world = World(*booted_plan())
    world.provider.refusals["m2/a/on-demand"] = reason
    end = await world.aborts(reason, "n1", "n2")
    assert end.leftovers == ()
    assert not world.intended_kinds() & {"surge-up", "evict", "roll"}


@pytest.mark.parametrize("reason", ["stock-out", "quota", "permission"])
@pytest.mark.parametrize("shown", [1, 100])
async def test_refused_boot_drops_only_what_needs_it(reason: str, shown: int) -> None:
    """The node whose pods were to go there stays open with them; the others go, and the rest is planned again."""
    before = cluster(node("n1"), node("n2"), node("n3"), deployed("web", ["n1", "n2"], cpu=500))
    to = {"shop/web-0": "kinema-1", "shop/web-1": "kinema-2"}
    boot = {"kinema-1": "m2/a/on-demand", "kinema-2": "m4/a/on-demand"}
    plan = plan_for(before, offers(), to=to, boot=boot, delete=["n1", "n2", "n3"])
    world = World(before, plan, limits=Limits(max_closed_nodes=f"{shown}%"))
    world.provider.refusals["m4/a/on-demand"] = reason
    end = await world.completes("kinema-1", "n2")
    assert end.replan == reason
    assert is_unfinished(end)
    assert world.verdicts() == {"keep/n2": "boot-refused"}
    assert not any(step.target == "n2" for step in (intent.step for intent in world.intents("taint")))
    assert {pod.node for pod in world.memory.pods.values()} == {"kinema-1", "n2"}


@pytest.mark.parametrize("reason", ["node-never-ready", "less-allocatable"])
async def test_a_node_that_is_no_use_drops_only_what_needs_it(reason: str) -> None:
    """The node whose pods were to go there stays; the others go, the useless one too, and the rest is planned again."""
    before = cluster(node("n1"), node("n2"), node("n3"), deployed("web", ["n1", "n2"], cpu=500))
    to = {"shop/web-0": "kinema-1", "shop/web-1": "kinema-2"}
    boot = {"kinema-1": "m2/a/on-demand", "kinema-2": "m4/a/on-demand"}
    plan = plan_for(before, offers(), to=to, boot=boot, delete=["n1", "n2", "n3"])
    small = [offers()[0], offer("m4", cpu=400, memory=16 * 1024, price=170_000)]
    world = World(before, plan, sold=small if reason == "less-allocatable" else offers())
    if reason == "node-never-ready":
        world.memory.never_ready_nodes.add("kinema-2")
    end = await world.completes("kinema-1", "n2")
    assert end.replan == reason
    assert world.verdicts() == {"unfit/kinema-2": reason, "keep/n2": "boot-refused"}
    assert {pod.node for pod in world.memory.pods.values()} == {"kinema-1", "n2"}
    said = [event.body for event in world.log() if isinstance(event.body, StepFailed)]
    assert {body.figures["offer"] for body in said if body.step == "unfit/kinema-2"} == {"m4/a/on-demand"}


async def test_refused_boot_leaves_pods_of_kept_nodes_where_they_are() -> None:
    """A pod that was to come from a node that stays is not moved elsewhere in its place."""
    before = cluster(node("n1"), node("n2"), deployed("web", ["n1", "n1"], cpu=500))
    to, boot = {"shop/web-0": "kinema-1"}, {"kinema-1": "m4/a/on-demand"}
    world = World(before, plan_for(before, offers(), to=to, boot=boot, delete=["n2"]))
    world.provider.refusals["m4/a/on-demand"] = "stock-out"
    end = await world.completes("n1")
    assert end.replan == "stock-out"
    assert {pod.node for pod in world.memory.pods.values()} == {"n1"}
    assert not world.intended_kinds() & {"surge-up", "evict", "roll"}


async def test_node_that_never_gets_ready_is_deleted_and_ends_the_plan() -> None:
    """A booted node that does not become Ready in time is deleted; nothing was moved."""
    world = World(*fragmented_plan())
    world.memory.never_ready_nodes.add("kinema-1")
    await world.aborts("node-never-ready")
    assert "kinema-1" not in world.memory.nodes
    assert "surge-up" not in world.intended_kinds()


async def test_node_with_less_room_than_promised_ends_the_plan() -> None:
    """A booted node that cannot hold its planned pods is deleted before anything moves."""
    world = World(*booted_plan(), sold=[*offers()[1:], offer("m2", cpu=600, memory=8 * 1024, price=85_000)])
    await world.aborts("less-allocatable", "n1", "n2")


async def test_pods_that_never_get_ready_are_taken_back() -> None:
    """A surge whose new pods stay not Ready is undone: old pods run on, replicas as before, booted node gone."""
    world = World(*booted_plan())
    world.memory.never_ready_workloads.add("Deployment/shop/web")
    await world.aborts("pods-never-ready", "n1", "n2")
    assert world.memory.workloads["Deployment/shop/web"].replicas == 2
    assert {pod.uid for pod in world.memory.pods.values()} == {"uid-pod-shop-web-0", "uid-pod-shop-web-1"}


async def test_a_plan_is_not_over_before_its_last_deletion_is_confirmed() -> None:
    """It is aborted at its deadline and all else is taken back: what becomes of the node belongs to its figures."""
    world = World(*small_plan(), limits=Limits(execution_seconds=30))
    delete, confirmed = world.provider.delete, asyncio.Event()

    async def deleting(name: str, operation: str) -> Operation:
        done = await delete(name, operation)
        await confirmed.wait()
        return done

    world.provider.delete = deleting  # type: ignore[method-assign]  # the cloud confirms late what can be seen already
    world.once(lambda: world.clock.now() > NOW + timedelta(seconds=90), confirmed.set)
    end = await world.aborts("deadline", "n1")
    assert end.figures["deleted"] == 1


async def test_a_pod_that_leaves_need_not_be_ready() -> None:
    """Its node fails as its replacement becomes Ready: it goes as planned."""
    before = cluster(node("n1"), node("n2"), deployed("web", ["n1", "n2"], cpu=500))
    plan = plan_for(before, offers(), to={"shop/web-0": "n2"}, delete=["n1"])
    world = World(before, plan, limits=Limits(pods_ready_seconds=60))
    pods = world.memory.pods
    world.once(lambda: sum(pod.ready for pod in pods.values()) == 3, lambda: world.alter("shop/web-0", ready=False))
    await world.completes("n2")
    assert world.verdicts() == {}
    assert world.memory.least_ready["Deployment/shop/web"] == 2


async def test_new_pods_are_not_to_blame_for_a_node_that_fails() -> None:
    """Another pod of the workload is on it: the move ends for now, and the next plan may make it again."""
    before = cluster(node("n1"), node("n2"), node("n3"), deployed("web", ["n1", "n2", "n3"], cpu=500))
    plan = plan_for(before, offers(), to={"shop/web-0": "n2"}, delete=["n1"])
    world = World(before, plan, limits=Limits(pods_ready_seconds=60))

    def fails() -> None:
        world.alter("n3", ready=False)
        world.alter("shop/web-2", ready=False)

    world.once(lambda: sum(pod.ready for pod in world.memory.pods.values()) == 4, fails)
    await world.completes("n1", "n2", "n3")
    assert world.verdicts()["skip/Deployment/shop/web"] == "not-ready"


async def test_a_set_is_not_to_blame_for_a_pod_that_a_failed_node_does_not_end() -> None:
    """Its next pod of that name cannot come before."""
    before = cluster(node("n1"), node("n2"), node("n3"), stateful("db", ["n1", "n2"], cpu=500))
    plan = plan_for(before, offers(), to={"shop/db-0": "n2"}, delete=["n1"])
    world = World(before, plan, limits=Limits(pods_ready_seconds=60), pace=Pace(pod_end=3600))
    world.once(lambda: world.memory.pods["shop/db-0"].terminating, lambda: world.alter("n1", ready=False))
    await world.completes("n1", "n2", "n3")
    assert world.verdicts()["skip/StatefulSet/shop/db"] == "not-ready"


@pytest.mark.parametrize("restless", ["Deployment/shop/web", "StatefulSet/shop/db"])
async def test_a_restless_workload_holds_itself_only(restless: str) -> None:
    """Its new pods are never Ready: it is left alone with its node, and the others move and save as planned."""
    before = cluster(
        node("n1"),
        node("n2"),
        node("n3"),
        node("n4"),
        deployed("web", ["n1", "n2"], cpu=500),
        stateful("db", ["n1", "n3"], cpu=500),
        deployed("api", ["n4"], cpu=500),
    )
    to = {"shop/web-1": "n1", "shop/db-1": "n1", "shop/api-0": "n1"}
    plan = plan_for(before, offers(), to=to, delete=["n2", "n3", "n4"])
    world = World(before, plan, limits=Limits(pods_ready_seconds=60))
    world.memory.never_ready_workloads.add(restless)
    end = await world.completes()
    assert end.replan == ""
    assert world.verdicts()[f"skip/{restless}"] == "pods-never-ready"
    stays = {"Deployment/shop/web": ["n1", "n2"], "StatefulSet/shop/db": ["n1"]}  # an evicted pod does not come back
    assert sorted(world.memory.nodes) == stays[restless]
    assert world.memory.workloads["Deployment/shop/web"].replicas == 2


async def test_a_node_that_cannot_be_emptied_is_not_closed() -> None:
    """A pod of a workload that is left alone stays there: no other pod is moved off it for nothing."""
    before = cluster(
        node("n1"),
        node("n2"),
        node("n3"),
        deployed("web", ["n2", "n3"], cpu=500),
        deployed("api", ["n3"], cpu=500),
    )
    to = {pod.key: "n1" for pod in before.pods}
    world = World(before, plan_for(before, offers(), to=to, delete=["n2", "n3"]), limits=Limits(pods_ready_seconds=60))
    world.memory.never_ready_workloads.add("Deployment/shop/web")
    await world.completes("n1", "n2", "n3")
    assert [intent.step.target for intent in world.intents("taint")] == ["n2"]
    assert world.verdicts()["keep/n3"] == "not-empty"
    assert world.memory.pods["shop/api-0"].node == "n3"


async def test_a_new_node_without_a_ready_pod_is_done_without() -> None:
    """What starts no pod is given back, its exchange is dropped, the others are made, and the rest is planned again."""
    before = cluster(
        node("n1"), node("n2"), node("n3"), deployed("web", ["n1"], cpu=500), deployed("api", ["n2"], cpu=500)
    )
    to = {"shop/web-0": "kinema-1", "shop/api-0": "n3"}
    plan = plan_for(before, offers(), to=to, boot={"kinema-1": "m2/a/on-demand"}, delete=["n1", "n2"])
    world = World(before, plan, limits=Limits(pods_ready_seconds=60))
    world.memory.never_ready_workloads.add("Deployment/shop/web")
    end = await world.completes("n1", "n3")
    assert end.replan == "pods-never-ready"
    said = [event.body for event in world.log() if isinstance(event.body, StepFailed)]
    assert [body.figures["offer"] for body in said if body.step == "unfit/kinema-1"] == ["m2/a/on-demand"]


def _towards_one_new_node(*second: ClusterObject | Iterable[ClusterObject]) -> World:
    """Three workloads that move one after another to a booted node; new pods of the first are never Ready."""
    before = cluster(
        node("n1"), node("n2"), node("n3"), deployed("web", ["n1"], cpu=500), *second, deployed("cart", ["n3"], cpu=500)
    )
    to, boot = {pod.key: "kinema-1" for pod in before.pods}, {"kinema-1": "m8/a/on-demand"}
    plan = plan_for(before, offers(), to=to, boot=boot, delete=["n1", "n2", "n3"])
    world = World(before, plan, limits=Limits(pods_ready_seconds=60, max_closed_nodes=1))
    world.memory.never_ready_workloads.add("Deployment/shop/web")
    return world


async def test_a_new_node_is_not_blamed_for_the_first_workload_that_is_never_ready() -> None:
    """The next one, whose old pods run on, shows that the node is sound: only the first is left alone."""
    world = _towards_one_new_node(deployed("api", ["n2"], cpu=500))
    end = await world.completes("kinema-1", "n1")
    assert world.verdicts() == {"skip/Deployment/shop/web": "pods-never-ready", "keep/n1": "not-empty"}
    assert end.figures["workloads_skipped"] == 1


async def test_a_new_node_is_blamed_when_a_second_workload_is_never_ready_there() -> None:
    """No third workload is moved to a node on which nothing has got Ready."""
    world = _towards_one_new_node(deployed("api", ["n2"], cpu=500))
    world.memory.never_ready_workloads.add("Deployment/shop/api")
    await world.aborts("pods-never-ready", "n1", "n2", "n3")
    assert not any("cart" in intent.step.target for intent in world.intents("surge-up"))


async def test_no_pod_is_evicted_to_find_out_whether_a_new_node_is_sound() -> None:
    """Where the next pod would be gone while it is tried, the node is blamed at once."""
    world = _towards_one_new_node(stateful("db", ["n2"], cpu=500))
    await world.aborts("pods-never-ready", "n1", "n2", "n3")
    assert not world.intents("evict")


async def test_booted_node_that_carries_moved_pods_stays_after_an_abort() -> None:
    """Pods that have moved are not moved back: their node stays, everything of ours on it goes."""
    world = World(*fragmented_plan(), limits=ALL_AT_ONCE)
    await world.aborted_when(lambda: len(world.intents("surge-down")) >= 3)
    await world.aborts("operator")
    assert "kinema-1" in world.memory.nodes
    assert "kinema-1" in {pod.node for pod in world.memory.pods.values() if pod.name.startswith("cart")}


@pytest.mark.parametrize(
    ("waiting", "elsewhere", "stays"),
    [
        ([1500], 0, 1),
        ([2500], 0, 0),
        ([1500, 1500], 0, 2),
        ([100, 100], 0, 1),
        ([1500], 1600, 0),
        ([1500, 1500], 1600, 1),
    ],
    ids=["fits", "too large", "one each", "both on one", "fits elsewhere", "one fits elsewhere"],
)
async def test_a_booted_node_that_a_pod_waits_for_stays_after_an_abort(
    waiting: list[int], elsewhere: int, stays: int
) -> None:
    """kube-scheduler has not come to the pods yet; the next plan would buy the nodes again. Others are given back."""
    before = cluster(node("n1", cpu=600 + elsewhere), node("n2", cpu=600), deployed("web", ["n1", "n2"], cpu=590))
    to = {"shop/web-0": "kinema-1", "shop/web-1": "kinema-2"}
    boot = dict.fromkeys(to.values(), "m2/a/on-demand")
    world = World(before, plan_for(before, offers(), to=to, boot=boot, delete=["n1", "n2"]), limits=ALL_AT_ONCE)
    world.memory.pods |= {f"shop/waiting-{i}": pod(f"waiting-{i}", cpu=cpu) for i, cpu in enumerate(waiting)}
    world.memory._place_for = lambda pod: None  # type: ignore[method-assign]
    nodes = world.memory.nodes
    await world.aborted_when(lambda: len(nodes) == 4 and all(one.ready for one in nodes.values()))
    await world.aborts("operator", *["kinema-1", "kinema-2"][:stays], "n1", "n2")


async def test_a_node_that_is_no_use_is_given_back_though_a_pod_waits() -> None:
    """kube-scheduler would put the pod on a machine on which no pod gets Ready."""
    world = _towards_one_new_node(stateful("db", ["n2"], cpu=500))
    world.memory.pods["shop/waiting"] = pod("waiting", cpu=5000)
    place = world.memory._place_for
    world.memory._place_for = lambda pod: None if pod.name == "waiting" else place(pod)  # type: ignore[method-assign]
    await world.aborts("pods-never-ready", "n1", "n2", "n3")


async def test_node_that_comes_up_while_it_is_given_up_is_closed_first() -> None:
    """A node that was not seen when its deletion was decided, but is there by now, is tainted before it goes."""
    before, plan = fragmented_plan()
    world = World(before, plan, limits=Limits(node_ready_seconds=5))
    register, hidden = world.memory.register, list[Node]()
    world.memory.register = hidden.append  # type: ignore[method-assign, assignment]  # the machine runs, its kubelet comes late
    tainted: list[bool] = []
    delete, check = world.provider.delete, world.writer.check_deletable

    async def deleting(name: str, operation: str) -> Operation:
        tainted.append(any(taint.key == DISRUPTED for taint in world.memory.nodes[name].taints))
        return await delete(name, operation)

    async def checking(order: Order) -> bool:
        if hidden:
            register(hidden.pop())
        return await check(order)

    world.provider.delete = deleting  # type: ignore[method-assign]  # looks at what is deleted
    world.writer.check_deletable = checking  # type: ignore[method-assign]  # the kubelet is there just before
    end = await world.aborts("node-never-ready")
    assert tainted == [True]
    assert "kinema-1" not in world.memory.nodes
    assert end.leftovers == ()


async def test_booted_node_that_cannot_be_deleted_is_named() -> None:
    """A node that was booted for nothing and that the cloud does not take back is a leftover of the execution."""
    world = World(*fragmented_plan())
    world.memory.never_ready_nodes.add("kinema-1")

    async def refuse(name: str, operation: str) -> Operation:
        raise PermanentError("permission", f"{operation} on {name} is not allowed")

    world.provider.delete = refuse  # type: ignore[method-assign]  # the cloud of this one test
    end = await world.run()
    assert isinstance(end, ExecutionAborted)
    assert [left.partition(":")[0] for left in end.leftovers] == ["delete/kinema-1"]
    assert world.marks_left() == []


async def test_stuck_rolling_update_is_taken_back() -> None:
    """A rolling update that does not get on is put back at its deadline, and the pods that it waits for are named."""
    world = World(*rolling_plan(), limits=Limits(roll_seconds=120))
    world.memory.never_ready_workloads.add("Deployment/shop/web")
    await world.completes("n1", "n2")
    assert any("roll-stuck" in line and "not Ready: shop/web-" in line for line in world.told())
    assert "revert" in world.intended_kinds()


async def test_a_stuck_update_and_its_way_back_take_the_time_of_one() -> None:
    """New pods have their time to be Ready, there and back: nobody waits for the end of a roll that does not get on."""
    before, plan = rolling_plan()
    limits = Limits(roll_seconds=3600, pods_ready_seconds=100)
    world = World(before, plan, limits=limits)
    world.memory.never_ready_workloads.add("Deployment/shop/web")

    def crash() -> None:
        """An old pod is not Ready any more: the way back does not end either."""
        world.memory.pods = {
            key: replace(pod, ready=False) if key == "shop/web-0" and "roll" in world.intended_kinds() else pod
            for key, pod in world.memory.pods.items()
        }

    world.on_second = crash
    world.floors.clear()
    await world.completes("n1", "n2")
    [began] = [event.time for event in world.log() if event.id.endswith("/roll/Deployment/shop/web/1-1-intended")]
    assert world.clock.now() - began < timedelta(seconds=2 * limits.pods_ready_seconds + 30)
    assert "finalize-rollout" in world.intended_kinds()


@pytest.mark.parametrize("second", [5, 34, 38, 44, 60])
async def test_operator_aborts_at_any_time(second: int) -> None:
    """An abort ends the plan wherever it stands: no marks, no surplus, no node booted for nothing."""
    world = World(*booted_plan())
    await world.aborted_when(lambda: world.clock.now() >= NOW + timedelta(seconds=second))
    await world.aborts("operator")
    assert world.memory.workloads["Deployment/shop/web"].replicas == 2
    carried = {pod.node for pod in world.memory.pods.values() if not pod.terminating}
    assert "kinema-1" not in world.memory.nodes or "kinema-1" in carried


async def test_deadline_of_the_whole_plan() -> None:
    """A plan that is not done in time is given up and taken back."""
    world = World(*fragmented_plan(), limits=Limits(execution_seconds=50), pace=Pace(pod_ready=60))
    await world.aborts("deadline")


async def test_plan_that_nobody_began_in_time_is_stale() -> None:
    """A plan that was accepted long ago and never begun is given up untouched."""
    before, plan = small_plan()
    world = World(before)
    await world.accept(plan)
    await world.clock.sleep(301)
    await world.aborts("stale")
    assert world.intended_kinds() == set()


async def test_plan_whose_proposal_is_unknown_ends_at_once() -> None:
    """An acceptance of something that is not in the log does nothing."""
    before, plan = small_plan()
    world = World(before)
    accepted = await world.accept(plan)
    await world.run()
    other = replace(accepted, id="other/decider/0", cause="other", body=replace(accepted.body, plan="other"))
    await world.bus.publish(other)
    for _ in range(3):
        await world.second()
    await world.stop()
    last = world.log()[-1].body
    assert isinstance(last, ExecutionAborted)
    assert last.reason == "unknown-plan"


async def test_second_plan_waits_for_the_first() -> None:
    """Two accepted plans are never carried out at the same time."""
    before, plan = fragmented_plan()
    world = World(before)
    await world.accept(plan)
    await world.accept(replace(plan, figures=plan.figures), name="plan-2")
    for _ in range(300):
        await world.second()
        ends = [event.body for event in world.log() if isinstance(event.body, ExecutionCompleted | ExecutionAborted)]
        if len(ends) == 2:
            break
    await world.stop()
    bodies = [event.body for event in world.log()]
    first_end = next(n for n, body in enumerate(bodies) if isinstance(body, ExecutionCompleted | ExecutionAborted))
    second = [n for n, body in enumerate(bodies) if isinstance(body, StepStarted) and body.plan == "plan-2"]
    assert all(n > first_end for n in second)


async def test_nothing_is_decided_on_an_old_state() -> None:
    """Once the observer has been silent for too long nothing more is intended; when it is back the plan goes on."""
    before, plan = fragmented_plan()
    world = World(before, limits=Limits(node_ready_seconds=2500))
    world.memory.never_ready_nodes.add("kinema-1")
    await world.accept(plan)
    for _ in range(60):
        await world.second()
    world.watched = False
    for _ in range(1200):
        await world.second()
    silent = len(world.bus.events("LOG"))
    for _ in range(600):
        await world.second()
    assert len(world.bus.events("LOG")) == silent
    assert world.end() is None
    world.watched = True
    end = await world.run()
    assert isinstance(end, ExecutionAborted)


async def test_moves_that_never_began_are_no_misses() -> None:
    """An operator aborts while the first of two pods moves: the other one is not counted as misplaced."""
    before = cluster(*map(node, ("n1", "n2", "n3", "n4")), deployed("web", ["n1", "n2"], cpu=500))
    plan = plan_for(before, offers(), to={"shop/web-0": "n3", "shop/web-1": "n4"}, delete=["n1", "n2"])
    world = World(before, plan, limits=Limits(max_closed_nodes=1))
    await world.aborted_when(lambda: bool(world.intents("surge-up")))
    end = await world.run()
    assert isinstance(end, ExecutionAborted)
    assert (end.figures["moves_surge"], end.figures["placement_misses"]) == (1, 0)
