"""Whole executions on the cluster in memory: what a plan becomes when nothing goes wrong."""

from __future__ import annotations

import pytest
from tests.rescheduler.harness import World
from tests.rescheduler.plans_in_memory import fragmented_plan, rolling_plan, room_for_pending, two_targets
from tests.support.builders import cluster, deployed, node, offers, stateful
from tests.support.plans import plan_for

from kinema_core.events import StepStarted
from kinema_rescheduler.plan.limits import Limits


async def test_fragmented_cluster_ends_on_the_planned_nodes() -> None:
    """A plan that boots one node and empties six ends with exactly that node, all pods on it, nothing of ours left."""
    world = World(*fragmented_plan())
    end = await world.completes("kinema-1")
    assert {key: end.figures[key] for key in ("moves_surge", "moves_evict", "booted", "deleted")} == {
        "moves_surge": 9,
        "moves_evict": 2,
        "booted": 1,
        "deleted": 6,
    }


async def test_nothing_is_written_for_nodes_that_stay() -> None:
    """A plan costs as many writes and events beside thirty further nodes as beside none."""
    executed = []
    for count in (0, 30):
        names = [f"kept-{number}" for number in range(count)]
        kept = [item for name in names for item in (node(name), deployed(f"on-{name}", [name], cpu=500))]
        before = cluster(node("n1"), node("n2"), deployed("web", ["n1", "n2"], cpu=500), *kept)
        world = World(before, plan_for(before, offers(), to={"shop/web-1": "n1"}, delete=["n2"]))
        nodes = {name: world.memory.nodes[name] for name in ("n1", *names)}
        await world.completes("n1", *names)
        assert all(world.memory.nodes[name] is found for name, found in nodes.items())
        executed.append([event.type for event in world.log()])
    assert executed[0] == executed[1]


async def test_what_steers_new_pods_is_taken_away_by_one_write() -> None:
    """It is one object: a plan does not write it once more for each workload that it has moved."""
    cleared = []
    for count in (1, 8):
        names = [f"web-{number}" for number in range(count)]
        before = cluster(node("n1"), node("n2"), *(deployed(name, ["n1"], cpu=100) for name in names))
        plan = plan_for(before, offers(), to={pod.key: "n2" for pod in before.pods}, delete=["n1"])
        world = World(before, plan)
        await world.completes("n2")
        cleared.append(len(world.intents("clear-preferred-nodes")))
    assert cleared == [1, 1]


async def test_every_effect_has_an_earlier_intent_and_one_outcome() -> None:
    """Each effect that changed something was intended before, and each attempt has exactly one outcome."""
    world = World(*fragmented_plan())
    await world.run()
    intended = [event.body.step.id for event in world.log() if isinstance(event.body, StepStarted)]
    assert {step for _, step in world.writer.made} <= set(intended)
    assert len(intended) == len(set(intended)) == len(world.outcomes())


async def test_rolling_update_gives_new_requests_without_a_dip() -> None:
    """A resized workload is rolled: new requests on every pod, never fewer Ready pods than replicas, marks gone."""
    world = World(*rolling_plan())
    await world.completes("n1")
    web = [pod for pod in world.memory.pods.values() if pod.name.startswith("web-")]
    assert [pod.requests["cpu"] for pod in web] == [300, 300, 300]
    assert world.memory.least_ready["Deployment/shop/web"] == 3


async def test_a_rolling_update_leads_to_all_nodes_that_the_plan_gives() -> None:
    """Also to the one that a pod gets whose own node stays: all of them are replaced."""
    before = cluster(node("n1"), node("n2"), node("n3"), deployed("web", ["n1", "n2"], cpu=500))
    to, smaller = {"shop/web-0": "n2", "shop/web-1": "n3"}, {"Deployment/shop/web": {"cpu": 300}}
    world = World(before, plan_for(before, offers(), to=to, resizes=smaller))
    await world.completes()
    steps = [event.body.step for event in world.log() if isinstance(event.body, StepStarted)]
    assert [step.nodes for step in steps if step.kind == "prefer-nodes"] == [("n2", "n3")]


async def test_pods_of_a_roll_that_land_elsewhere_are_counted() -> None:
    """A preference leads them and the scheduler decides; all of them have new names."""
    before = cluster(node("n1"), node("n2"), node("n3"), deployed("web", ["n1", "n2"], cpu=500))
    to, smaller = {"shop/web-0": "n2", "shop/web-1": "n3"}, {"Deployment/shop/web": {"cpu": 300}}
    world = World(before, plan_for(before, offers(), to=to, resizes=smaller))
    end = await world.run()
    left = [pod.node or "" for pod in world.memory.pods.values()]
    assert end.figures["placement_misses"] == len({"n2", "n3"} - {*left}) > 0


async def test_room_for_pending_pods_marks_nothing() -> None:
    """An autoscale plan boots its node and ends: no label, no taint, no move."""
    world = World(*room_for_pending())
    world.floors.clear()  # the pod is not there yet
    await world.completes()
    kinds = {event.body.step.kind for event in world.log() if isinstance(event.body, StepStarted)}
    assert kinds == {"boot"}
    assert world.memory.pods["shop/batch-0"].node == "kinema-1"


async def test_victims_go_to_their_planned_targets() -> None:
    """Pods of one workload with two planned nodes move in two surges and end where the plan wants them."""
    world = World(*two_targets())
    end = await world.completes()
    places = sorted(pod.node or "" for pod in world.memory.pods.values())
    assert places == ["n1", "n1", "n2", "n2"]
    assert end.figures["placement_misses"] == 0


async def test_larger_pods_move_first_and_no_more_than_allowed_at_once() -> None:
    """With one move at a time the workload with the larger pods begins, of those on a node."""
    before = cluster(
        node("n1"),
        node("n2"),
        deployed("cart", ["n1", "n1"], cpu=200),
        deployed("web", ["n1"], cpu=300),
        stateful("db", ["n1", "n2"], cpu=500),
    )
    plan = plan_for(before, offers(), to={pod.key: "n2" for pod in before.pods}, delete=["n1"])
    world = World(before, plan, limits=Limits(max_parallel_moves=1))
    await world.completes("n2")
    started = [intent.step.target for intent in world.intents("prefer-nodes")]
    assert list(dict.fromkeys(started)) == ["StatefulSet/shop/db", "Deployment/shop/web", "Deployment/shop/cart"]


async def test_the_node_that_was_closed_first_is_emptied_first() -> None:
    """Nodes that are closed together are not all emptied at the end: the first is gone before a pod leaves the last."""
    before = cluster(
        node("n1"),
        node("n2"),
        node("n3"),
        deployed("small", ["n1", "n2"], cpu=100),
        deployed("large", ["n2"], cpu=500),
        deployed("web", ["n1", "n2"], cpu=300),
    )
    plan = plan_for(before, offers(), to={pod.key: "n3" for pod in before.pods}, delete=["n1", "n2"])
    world = World(before, plan, limits=Limits(max_parallel_moves=1, max_closed_nodes="100%"))
    await world.completes("n3")
    assert [intent.step.target for intent in world.intents("taint")] == ["n1", "n2"]
    left = [before.pods_by_uid[uid] for intent in world.intents("prefer-nodes") for uid in intent.step.pods]
    assert [(pod.node, pod.owner.name if pod.owner else "") for pod in left] == [
        ("n1", "web-rs"),
        ("n1", "small-rs"),
        ("n2", "large-rs"),
        ("n2", "web-rs"),
        ("n2", "small-rs"),
    ]


@pytest.mark.parametrize(
    ("most", "together"), [("25%", [1, 1]), ("1", [1, 1]), ("50%", [2]), ("100%", [2]), ("0", [1, 1])]
)
async def test_no_more_pods_surge_at_once_than_in_an_update_of_the_owner(most: str, together: list[int]) -> None:
    """Of three replicas a quarter is one, and half is two, as Kubernetes rounds up; one where the owner allows none."""
    before = cluster(node("n1"), node("n2"), deployed("web", ["n1", "n2", "n2"], cpu=500, max_surge=most))
    plan = plan_for(before, offers(), to={"shop/web-1": "n1", "shop/web-2": "n1"}, delete=["n2"])
    world = World(before, plan)
    await world.completes("n1")
    surges = [one.step for one in world.intents("surge-up")]
    assert [step.replicas_to - step.replicas_from for step in surges] == together
