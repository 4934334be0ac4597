"""Pods and moves that wait: for whom and how long a plan waits, and when it is aborted for them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace
from tests.rescheduler.harness import ALL_AT_ONCE, WEB, World
from tests.rescheduler.memory_cluster import Pace
from tests.rescheduler.moves.test_room import homes, tight
from tests.rescheduler.plans_in_memory import crowded_plan, rolling_plan, small_plan, swap_plan
from tests.support.builders import LONG_AGO, NOW, cluster, deployed, node, offers, pod, quota, selector, stateful
from tests.support.plans import plan_for

from kinema_core.events import (
    NO_RULES,
    ExecutionAborted,
    NodeTerm,
    PlacementRules,
    Pod,
    PodTerm,
    Requirement,
    StepFailed,
    Volume,
    VolumeClaim,
    is_unfinished,
)
from kinema_core.model.resource_quotas import SETS
from kinema_rescheduler.names import ABORT
from kinema_rescheduler.plan.limits import Limits

STRANGER = "shop/stranger"
NOWHERE = PlacementRules(node_terms=(NodeTerm(expressions=(Requirement(key="gone", operator="Exists"),)),))


def with_a_stranger(world: World, *, cpu: int, old: bool = False, rules: PlacementRules = NO_RULES) -> None:
    """A pod of somebody else comes once the node is closed, while the roll does not get on."""
    world.memory.never_ready_workloads.add(WEB)

    def come() -> None:
        created = LONG_AGO if old else world.clock.now()
        world.memory.pods[STRANGER] = pod("stranger", cpu=cpu, created=created, rules=rules)

    def closed() -> bool:
        return world.disrupted("n2") and world.memory.workloads[WEB].updated == 1

    world.once(closed, come)


async def completes_without_the_roll(world: World) -> None:
    """The roll that gets no further is taken back, and nothing else happens."""
    await world.completes("n1", "n2")
    assert world.verdicts() == {f"skip/{WEB}": "roll-stuck", "keep/n2": "not-empty"}


async def test_a_plan_is_given_up_for_a_pod_that_it_keeps_waiting() -> None:
    """The pod has room on the node that is to go alone: it waits the limit and little more, and comes up there."""
    world = World(*crowded_plan(), limits=Limits(unschedulable_seconds=60))
    with_a_stranger(world, cpu=2000)
    end = await world.aborts("pod-waits")
    assert STRANGER in end.detail
    assert "n2" in end.detail
    came = world.memory.pods[STRANGER]
    assert came.node == "n2"
    assert came.created is not None
    assert came.started is not None
    assert timedelta(seconds=60) < came.started - came.created < timedelta(seconds=80)


@pytest.mark.parametrize(
    "stranger",
    [{"cpu": 2000, "old": True}, {"cpu": 3800, "old": True}, {"cpu": 100_000}, {"cpu": 2000, "rules": NOWHERE}],
    ids=["waited before", "needed a node before", "fits nothing on sale", "not admitted"],
)
async def test_a_plan_goes_on_where_it_is_not_the_reason(stranger: dict[str, Any]) -> None:
    """A pod that was there before, that no node on sale holds, or that may go nowhere changes nothing."""
    world = World(*crowded_plan(), limits=Limits(unschedulable_seconds=60, pods_ready_seconds=300))
    with_a_stranger(world, **stranger)
    await completes_without_the_roll(world)


async def test_a_plan_is_given_up_for_a_pod_that_needs_a_new_node() -> None:
    """Nothing is bought while a plan is carried out: it makes way for whoever buys."""
    world = World(*crowded_plan(), limits=Limits(unschedulable_seconds=60))
    with_a_stranger(world, cpu=3800)
    end = await world.aborts("pod-waits")
    assert end.detail.startswith(f"{STRANGER} needs a new node, for example m4/a/on-demand")
    came = world.memory.pods[STRANGER].created
    assert came is not None
    given_up = next(one.time for one in world.log() if isinstance(one.body, StepFailed) and one.body.step == ABORT)
    assert timedelta(seconds=60) < given_up - came < timedelta(seconds=80)


def with_a_boot(*strangers: int, left: int | None = None) -> World:
    """Two pods are to go to a new m2, of which so many are `left` to buy; strangers come while it is booted."""
    before = cluster(node("n1", cpu=600), node("n2", cpu=600), deployed("web", ["n1", "n2"], cpu=500))
    to, boot = {one.key: "kinema-1" for one in before.pods}, {"kinema-1": "m2/a/on-demand"}
    plan = plan_for(before, offers(), to=to, boot=boot, delete=["n1", "n2"])
    sold = [replace(one, available=left) if one.name.startswith("m2/") else one for one in offers()]
    world = World(before, plan, limits=Limits(unschedulable_seconds=10), pace=Pace(node_ready=60), sold=sold)

    def come() -> None:
        for number, cpu in enumerate(strangers):
            came = pod(f"stranger-{number}", cpu=cpu, created=world.clock.now(), unschedulable=True)
            world.memory.pods[came.key] = came

    world.once(lambda: "kinema-1" in world.memory.nodes, come)
    return world


@pytest.mark.parametrize("left", [None, 0])
async def test_a_pod_that_has_room_on_a_node_that_is_being_booted_ends_no_plan(left: int | None) -> None:
    """It comes to that node, which is there sooner than one that is bought for it; and it may be the last one."""
    world = with_a_boot(800, left=left)
    await world.completes("kinema-1")
    assert world.verdicts() == {}
    assert {one.node for one in world.memory.pods.values()} == {"kinema-1"}


async def test_a_pod_for_which_the_booted_node_has_no_room_in_the_end_ends_the_plan() -> None:
    """Another one came first: the node is Ready, and is waited for no more."""
    world = with_a_boot(1500, 1500)
    end = await world.run()
    assert seconds(world) < 120
    assert {one.node for one in world.memory.pods.values() if one.name.startswith("stranger")} == {"kinema-1", None}
    assert is_unfinished(end)


@pytest.mark.parametrize("sold", ["sold out", "spot", "by another autoscaler"])
async def test_a_plan_goes_on_where_nothing_would_be_bought(sold: str) -> None:
    """A machine that is sold out, spot capacity that nobody asked for, or one that is not ours to buy is no reason."""
    before, plan = crowded_plan()
    known: dict[str, dict[str, Any]] = {"sold out": {"available": 0}, "spot": {"capacity_type": "spot"}}
    changes = known.get(sold, {})
    shop = [one if one.name.startswith("m2/") else replace(one, **changes) for one in offers()]
    world = World(before, plan, limits=Limits(unschedulable_seconds=60, pods_ready_seconds=300), sold=shop)
    world.delegated = sold == "by another autoscaler"
    with_a_stranger(world, cpu=3800)
    await completes_without_the_roll(world)


@pytest.mark.parametrize("affinity", [False, True])
async def test_a_pod_that_waits_for_something_else_ends_no_plan(affinity: bool) -> None:
    """An open node has room, so opening another does not help; nor where no pod matches the required affinity."""
    world = World(*crowded_plan(), limits=Limits(unschedulable_seconds=60, pods_ready_seconds=300))
    unmatched = PodTerm(topology_key="kubernetes.io/hostname", selector=selector(app="gone"))
    with_a_stranger(world, cpu=100, rules=PlacementRules(affinity=(unmatched,)) if affinity else NO_RULES)
    place = world.memory._place_for
    world.memory._place_for = lambda pod: None if pod.key == STRANGER else place(pod)  # type: ignore[method-assign]  # a scheduler with a reason of its own
    await completes_without_the_roll(world)


async def test_a_pod_of_a_roll_makes_the_closed_nodes_open_again() -> None:
    """Others took the room that was left for it: a plan does not keep it waiting for as long as pods may start."""
    world = World(*crowded_plan(), limits=Limits(unschedulable_seconds=60, pods_ready_seconds=300))

    def fill() -> None:
        world.memory.pods["shop/big"] = pod("big", node="n1", cpu=1500, created=world.clock.now())

    world.once(lambda: world.memory.workloads[WEB].updated == 2, fill)
    await world.aborts("pod-waits")
    assert seconds(world) < 300


async def test_a_surge_without_a_node_for_its_pods_is_taken_back_soon() -> None:
    """A scheduler may have rules that no object shows: the workload is left where it is, and the plan goes on."""
    world = World(*small_plan())
    world.memory.unplaceable.add(WEB)
    await world.completes()
    assert world.verdicts()[f"skip/{WEB}"] == "unschedulable"
    assert seconds(world) < LIMITS.observed_seconds + 30


@pytest.mark.parametrize("beside", [False, True])
async def test_a_surge_whose_room_was_taken_is_planned_again(beside: bool) -> None:
    """A stranger came to the only node that its pod may go to: it keeps apart from its like on the one with room.

    That is no rule of the scheduler's own: the next plan may move the workload.
    """
    apart = PodTerm(topology_key="kubernetes.io/hostname", selector=selector(app="web"))
    web = deployed(
        "web", ["old", "other"] if beside else ["old"], cpu=800, rules=PlacementRules(anti_affinity=(apart,))
    )
    before = cluster(node("old"), node("to", cpu=1000), node("other", cpu=1600 if beside else 100), web)
    world = World(before, plan_for(before, offers(), to={"shop/web-0": "to"}, delete=["old"]))
    stranger = pod("stranger", node="to", cpu=500, created=NOW)
    world.once(lambda: bool(world.intents("prefer-nodes")), lambda: world.memory.pods.update({stranger.key: stranger}))
    world.memory.unplaceable.add(WEB)
    end = await world.completes("old", "other", "to")
    assert (end.replan, world.verdicts()[f"skip/{WEB}"]) == ("no-room", "no-room")
    assert sum(item.ready and item.name.startswith("web") for item in world.memory.pods.values()) == 1 + beside
    assert seconds(world) < LIMITS.observed_seconds + 30


async def test_a_node_waits_until_the_pod_that_was_evicted_from_it_has_another() -> None:
    """The scheduler has rules that no object shows: the plan ends, and the pod finds its node as it was."""
    before = cluster(node("old"), node("to"), stateful("db", ["old", "to"]))
    world = World(before, plan_for(before, offers(), to={"shop/db-0": "to"}, delete=["old"]))
    world.memory.unplaceable.add("StatefulSet/shop/db")
    world.once(lambda: world.end() is not None, world.memory.unplaceable.clear)
    await world.aborts("pod-waits", "old", "to")
    assert len(world.intents("evict")) == 1
    assert world.intents("delete") == []
    assert world.verdicts()["skip/StatefulSet/shop/db"] == "unschedulable"


async def test_a_pod_whose_planned_place_was_taken_may_move_with_the_next_plan() -> None:
    """A stranger came to the last open node with room as it was evicted: that is no rule, and others may be found."""
    before = cluster(node("old"), node("to", cpu=1000), stateful("db", ["old", "to"], cpu=400))
    world = World(before, plan_for(before, offers(), to={"shop/db-0": "to"}, delete=["old"]))

    def come() -> None:
        world.memory.pods["shop/one"] = pod("one", node="to", cpu=500, created=world.clock.now())

    world.once(lambda: bool(world.intents("evict")), come)
    await world.aborts("pod-waits", "old", "to")
    assert world.verdicts().keys() == {ABORT}


async def test_an_emptied_node_waits_for_the_last_pod_of_a_roll() -> None:
    """Its pods keep apart by a rule that no object shows: the plan ends soon, and the pod finds the node as it was."""
    before = cluster(
        node("a"),
        node("b"),
        node("to"),
        deployed("web", ["to", "b", "a"], cpu=100, annotations={"kinema.io/strategy": "rolling"}),
    )
    plan = plan_for(before, offers(), to={"shop/web-1": "to", "shop/web-2": "to"}, delete=["a", "b"])
    world = World(before, plan, limits=ALL_AT_ONCE)
    place = world.memory._place_for

    def apart(pod: Pod) -> str | None:
        two = sum(other.node == "to" and other.owner == pod.owner for other in world.memory.pods.values()) == 2
        world.alter("to", unschedulable=two)
        found = place(pod)
        world.alter("to", unschedulable=False)
        return found

    world.memory._place_for = apart  # type: ignore[method-assign]  # a scheduler with a rule of its own
    await world.aborts("pod-waits", "b", "to")
    assert world.verdicts()[f"skip/{WEB}"] == "roll-stuck"
    assert sum(one.ready for one in world.memory.pods.values()) == 3
    assert seconds(world) < 120


LIMITS = Limits()
WAY = "kinema-1-way-1"


def seconds(world: World) -> float:
    """Cluster time since the beginning."""
    return (world.clock.now() - NOW).total_seconds()


async def test_a_roll_that_would_stop_half_way_is_left_out_soon() -> None:
    """Its pods keep apart, and the only node without one is full: nothing goes on that would change that."""
    apart = PodTerm(topology_key="kubernetes.io/hostname", selector=selector(app="cart"))
    before = cluster(
        [node(f"n{n}", cpu=1000) for n in range(1, 5)],
        deployed("cart", ["n1", "n2", "n3"], cpu=500, rules=PlacementRules(anti_affinity=(apart,))),
        deployed("full", ["n4"], cpu=900),
    )
    world = World(before, plan_for(before, offers(), resizes={"Deployment/shop/cart": {"cpu": 300}}))
    await world.completes()
    assert world.verdicts() == {"skip/Deployment/shop/cart": "no-room"}
    assert seconds(world) < LIMITS.observed_seconds + 30
    assert "roll" not in world.intended_kinds()


async def test_a_roll_that_was_to_empty_a_node_is_planned_again() -> None:
    """A stranger took the room that its new pods need: what remains is planned again at once, with all nodes open."""
    before = cluster(
        [node("old"), node("to", cpu=1500), node("empty")],
        deployed("cart", ["old", "old"], cpu=500, annotations={"kinema.io/strategy": "rolling"}),
    )
    to = {"shop/cart-0": "to", "shop/cart-1": "to"}
    world = World(before, plan_for(before, offers(), to=to, delete=["old", "empty"]), limits=ALL_AT_ONCE)
    world.memory.pods["shop/one"] = pod("one", node="to", cpu=1100, created=NOW)
    end = await world.completes("empty", "old", "to")
    assert end.replan == "misplaced"
    assert seconds(world) < LIMITS.no_room_seconds


async def test_room_that_others_took_is_noticed_at_once() -> None:
    """Strangers sit where both are to go, and no other node has room: what remains is to be planned again."""
    before = cluster(
        [node("old-a"), node("old-b"), node("to-a", cpu=1500), node("to-b", cpu=500)],
        deployed("a", ["old-a"], cpu=1000),
        deployed("b", ["old-b"], cpu=500),
    )
    plan = plan_for(before, offers(), to={"shop/a-0": "to-a", "shop/b-0": "to-b"}, delete=["old-a", "old-b"])
    world = World(before, plan)
    world.memory.pods["shop/one"] = pod("one", node="to-a", cpu=600, created=NOW)
    world.memory.pods["shop/two"] = pod("two", node="to-b", cpu=500, created=NOW)
    end = await world.completes()
    assert homes(world) == {"a": "old-a", "b": "old-b"}
    assert end.replan == "misplaced"
    assert seconds(world) < LIMITS.no_room_seconds


async def test_moves_without_a_node_to_go_to_end_the_plan_soon() -> None:
    """All planned nodes are cordoned: after the wait the rest is planned again, and nothing is closed any more."""
    world = World(*tight(), limits=ALL_AT_ONCE)
    for name in ("to-a", "to-b", "to-c", "to-z"):
        world.alter(name, unschedulable=True)
    await world.completes()
    assert world.verdicts()["replan"] == "no-room"
    assert seconds(world) < LIMITS.no_room_seconds + 15


async def test_a_pod_that_ends_is_waited_for() -> None:
    """It has the room that is missed, and takes longer to end than anything would be waited for otherwise."""
    world = World(*tight())
    world.alter("to-z", unschedulable=True)
    world.memory.pods["shop/old"] = pod("old", node="to-a", cpu=500, created=NOW, terminating=True)

    def ended() -> None:
        if seconds(world) > 3 * LIMITS.observed_seconds:
            world.memory.pods.pop("shop/old", None)

    world.on_second = ended
    await world.completes()
    assert homes(world) == {"a": "to-a", "b": "to-b", "c": "to-c"}
    assert world.verdicts() == {}


async def test_a_node_that_comes_back_is_waited_for() -> None:
    """A planned node that is not Ready for some minutes may come back, and then takes its pods."""
    world = World(*tight())
    world.alter("to-z", unschedulable=True)

    def back() -> None:
        late = seconds(world) > 3 * LIMITS.observed_seconds
        world.alter("to-a", ready=late)

    world.on_second = back
    await world.completes()
    assert homes(world) == {"a": "to-a", "b": "to-b", "c": "to-c"}


async def test_a_temporary_node_that_somebody_closes_is_not_waited_for_without_end() -> None:
    """Its pods stay where they are once it was waited for in vain, long before the plan's own deadline."""
    world = World(*swap_plan(), limits=Limits(blocked_seconds=30))

    def close() -> None:
        item = world.memory.nodes.get(WAY)
        if item is not None:
            world.memory.nodes[WAY] = replace(item, unschedulable=True)

    world.on_second = close
    await world.completes()
    assert world.verdicts()["replan"] == "no-room"
    assert homes(world) == {"a": "n1", "b": "n2"}
    assert seconds(world) < LIMITS.blocked_seconds


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


async def test_no_more_pods_are_asked_for_than_a_quota_admits() -> None:
    """With one place left, pods that might leave together leave one after the other, and none is refused."""
    before, plan = small_plan()
    world = World(before, plan)
    world.memory.quota = 4
    world.memory.others.append(quota("tight", hard={"pods": 4}))
    complaints: list[str] = []
    world.on_second = lambda: complaints.extend(filter(None, [world.memory.workloads[WEB].refused]))
    await world.completes("n1", seconds=120)
    assert complaints == []
    assert [len(one.step.pods) for one in world.intents("surge-up")] == [1, 1]


async def test_surges_of_a_namespace_share_what_its_quota_admits() -> None:
    """Two workloads that would surge at the same time take turns."""
    before = cluster(node("n1"), node("n2"), deployed("web", ["n1", "n2"]), deployed("api", ["n1", "n2"]))
    world = World(before, plan_for(before, offers(), to={pod.key: "n1" for pod in before.pods}, delete=["n2"]))
    world.memory.quota = 5
    world.memory.others.append(quota("tight", hard={"pods": 5}))
    complaints: list[str] = []
    world.on_second = lambda: complaints.extend(one.refused for one in world.memory.workloads.values() if one.refused)
    await world.completes("n1", seconds=200)
    assert complaints == []


async def test_a_move_that_a_quota_never_admits_ends_the_plan() -> None:
    """Others took the room since it was made: after a moment the rest is planned again, and nothing was asked for."""
    before, plan = small_plan()
    world = World(before, plan)
    world.memory.others.append(quota("tight", hard={"pods": 3}))
    await world.completes("n1", "n2", seconds=120)
    assert world.verdicts()["replan"] == "quota"
    assert world.intents("surge-up") == []


async def test_a_rolling_update_runs_no_more_pods_than_a_quota_admits() -> None:
    """Its step says how many, where its owner would let more run."""
    before, plan = rolling_plan()
    world = World(before, plan)
    [roll] = [one for one in before.workloads if one.type == "Deployment"]
    most = len([one for one in before.pods if one.namespace == roll.namespace]) + 1
    world.memory.workloads[roll.key] = replace(world.memory.workloads[roll.key], max_surge="100%")
    world.memory.others.append(quota("tight", hard={"pods": most}))
    await world.run(400)
    [intent] = world.intents("roll")
    assert intent.step.replicas_to - intent.step.replicas_from == 1


async def test_no_rolling_update_is_begun_for_which_a_quota_admits_no_replica_set() -> None:
    """Its Deployment could make no new pod, and would say so only when the update had begun."""
    world = World(*rolling_plan())
    world.memory.others.append(quota("sets", hard={SETS: 2}, used={SETS: 2}))
    await world.completes(seconds=120)
    assert world.intents("roll") == []
    assert world.verdicts()["replan"] == "quota"


async def test_a_rolling_update_without_room_leaves_the_last_replica_set_to_others() -> None:
    """The larger one is asked first and may attach no second volume: the other does not wait for a set that is free."""
    disk = Volume(name="disk", uid="v-disk", driver="disk.example.com")
    claim = VolumeClaim(name="data", namespace="shop", uid="c-data", volume="disk")
    nodes = [node(name, extra={"attachable-volumes-csi-disk.example.com": 1}) for name in ("n1", "n2")]
    web = deployed("web", ["n1", "n2"], cpu=500, rules=PlacementRules(claims=("data",)))
    before = cluster(nodes, web, deployed("api", ["n1"], cpu=300), disk, claim)
    to = {one.key: one.node or "" for one in before.pods}
    resizes = {"Deployment/shop/web": {"cpu": 400}, "Deployment/shop/api": {"cpu": 200}}
    world = World(before, plan_for(before, offers(), to=to, resizes=resizes))
    world.memory.others.append(quota("sets", hard={SETS: 3}, used={SETS: 2}))
    await world.completes("n1", "n2", seconds=300)
    assert [one.step.target for one in world.intents("roll")] == ["Deployment/shop/api"]


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


async def test_an_evicted_pod_whose_place_was_taken_ends_the_plan() -> None:
    """A pod of a daemon may have it, on a node that the plan has booted: the rollback gives the node back."""
    evicted = {"kinema.io/strategy": "evict"}
    before = cluster(node("n1"), node("n2"), deployed("web", ["n1", "n2", "n2"], cpu=500, annotations=evicted))
    world = World(before, plan_for(before, offers(), to={pod.key: "n1" for pod in before.pods}, delete=["n2"]))

    def second() -> None:
        taken = world.intents("evict") and "abort" not in world.verdicts()
        world.memory.quota = len(before.pods) - 1 if taken else None

    world.on_second = second
    end = await world.run(60)
    assert isinstance(end, ExecutionAborted)
    assert end.reason == "pod-waits"
    assert any("the place of an evicted pod is taken: exceeded quota" in line for line in world.told())


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


async def test_a_roll_that_is_refused_some_pods_goes_on_while_others_come() -> None:
    """It asks for more at once than a quota has room for: its controller complains, and its pods come all the same."""
    world = World(*rolling_plan(), limits=Limits(refused_seconds=15))
    complained: set[datetime] = set()

    def second() -> None:
        now = world.clock.now()
        world.memory.quota = None if now.second % 10 == 0 else len(world.memory.pods)
        if world.memory.workloads[WEB].refused:
            complained.add(now)

    world.on_second = second
    await world.completes(seconds=200)
    assert f"skip/{WEB}" not in world.verdicts()
    assert max(complained) - min(complained) > timedelta(seconds=20)
