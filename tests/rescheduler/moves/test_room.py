"""Who gets which room: nobody takes the place that the plan gives to another."""

from __future__ import annotations

import pytest
from msgspec import structs
from tests.rescheduler.harness import ALL_AT_ONCE, World
from tests.support.builders import NOW, cluster, deployed, node, offers, pod, stateful
from tests.support.plans import plan_for

from kinema_core.events import PlacementRules, Plan, PlanStep, Pod, Volume, VolumeClaim
from kinema_core.model.cluster import Cluster, all_objects, from_objects
from kinema_rescheduler.moves.room import Room
from kinema_rescheduler.plan.limits import Limits

NAMES = ("a", "b", "c")


def tight() -> tuple[Cluster, Plan]:
    """Three workloads leave a node each for one that they fill; a fourth node, last by name, has room for all."""
    leaving = [item for name in NAMES for item in (node(f"old-{name}"), *deployed(name, [f"old-{name}"], cpu=1000))]
    before = cluster(leaving, [node(f"to-{name}", cpu=1000) for name in NAMES], node("to-z"))
    to = {f"shop/{name}-0": f"to-{name}" for name in NAMES}
    return before, plan_for(before, offers(), to=to, delete=[f"old-{name}" for name in NAMES])


def homes(world: World) -> dict[str, str | None]:
    """Node of each workload's pod."""
    alive = [item for item in world.memory.pods.values() if item.owner is not None and not item.terminating]
    return {item.name.split("-")[0]: item.node for item in alive}


class SeesLate(World):
    """An observer that hears up to 20 s late that a workload was scaled down, of its pods at once: two watches."""

    late = "Deployment/shop/a"

    def view(self, version: int) -> Cluster:
        """The cluster, with that workload as it was last heard of."""
        now = super().view(version)
        known, real = self._seen.workload(self.late) if self._seen else None, now.workload(self.late)
        if known is None or real is None or known.replicas <= real.replicas or self.clock.now().second % 20 == 0:
            return now
        return from_objects([known if item.key == self.late else item for item in all_objects(now)], version)


class SeesPodsLate(World):
    """An observer that hears of pods one look later than of all else."""

    _pods: tuple[Pod, ...] | None = None

    def view(self, version: int) -> Cluster:
        """The cluster, with the pods of the look before."""
        now = super().view(version)
        pods, self._pods = now.pods if self._pods is None else self._pods, tuple(now.pods)
        return from_objects([*(item for item in all_objects(now) if not isinstance(item, Pod)), *pods], version)


@pytest.mark.parametrize("world_type", [World, SeesLate])
async def test_pods_come_where_the_plan_says(world_type: type[World]) -> None:
    """On a full cluster too, and where a workload's end is seen long after its pods have moved."""
    world = world_type(*tight(), limits=Limits(max_parallel_moves=2))
    end = await world.completes()
    assert homes(world) == {name: f"to-{name}" for name in NAMES}
    assert end.figures["placement_misses"] == 0


async def test_a_pod_whose_place_was_taken_takes_nobody_elses() -> None:
    """A stranger sits on the first pod's node: it goes to the one that the plan gives to nobody, not to the next."""
    world = World(*tight())
    world.memory.pods["shop/stranger"] = pod("stranger", node="to-a", cpu=500, created=NOW)
    await world.completes()
    assert homes(world) == {"a": "to-z", "b": "to-b", "c": "to-c"}


async def test_where_all_room_is_given_away_the_rest_is_planned_again() -> None:
    """Without the fourth node the pod whose place was taken has none: the plan ends at once, with all nodes open."""
    world = World(*tight(), limits=Limits(blocked_seconds=30))
    world.memory.pods["shop/stranger"] = pod("stranger", node="to-a", cpu=500, created=NOW)
    world.alter("to-z", unschedulable=True)
    end = await world.completes(*(f"old-{name}" for name in NAMES), "to-a", "to-b", "to-c", "to-z")
    assert end.replan == "misplaced"
    assert homes(world) == {name: f"old-{name}" for name in NAMES}


async def test_no_pod_goes_elsewhere_while_later_waves_count_on_what_is_free() -> None:
    """The pod whose place was taken stays, though the fourth node has room: the next wave was checked without it.

    After a short wait what remains is planned again.
    """
    before, plan = tight()
    waves = {"shop/a-0": 1, "shop/b-0": 2, "shop/c-0": 2}
    moves = [PlanStep(wave=wave, action="move", pod=key, node=f"to-{key[5]}") for key, wave in waves.items()]
    ends = [PlanStep(wave=3, action="delete", node=f"old-{name}") for name in NAMES]
    world = World(before, structs.replace(plan, steps=(*moves, *ends)), limits=Limits(blocked_seconds=30))
    world.memory.pods["shop/stranger"] = pod("stranger", node="to-a", cpu=500, created=NOW)
    end = await world.completes(*(f"old-{name}" for name in NAMES), "to-a", "to-b", "to-c", "to-z")
    assert end.replan == "no-room"
    assert homes(world) == {name: f"old-{name}" for name in NAMES}


async def test_a_rolling_update_makes_room_for_a_later_wave() -> None:
    """The pod of `b` can come when those of `a` have left its node, whose own node is closed only after that."""
    before = cluster(
        [node("old"), node("to", cpu=1000), node("other", cpu=800)],
        deployed("a", ["to", "to"], cpu=400, annotations={"kinema.io/strategy": "rolling"}),
        deployed("b", ["old"], cpu=800),
    )
    to = {"shop/a-0": "other", "shop/a-1": "other", "shop/b-0": "to"}
    moves = [PlanStep(wave=int(key == "shop/b-0"), action="move", pod=key, node=name) for key, name in to.items()]
    plan = plan_for(before, offers(), to=to, delete=["old"])
    ends = PlanStep(wave=2, action="delete", node="old")
    world = World(before, structs.replace(plan, steps=(*moves, ends)))
    end = await world.completes()
    assert (end.replan, end.figures["deleted"]) == ("", 1)
    assert homes(world)["b"] == "to"


@pytest.mark.parametrize("spare", [False, True])
async def test_no_pod_is_evicted_whose_room_was_taken_since_its_move_began(spare: bool) -> None:
    """A pod that was sent elsewhere settles where the next one is to go: that one stays, or goes where room is left."""
    store = stateful("store", ["old", "kept"], cpu=1000)
    before = cluster(node("old"), node("kept", cpu=1000), node("to", cpu=1000), node("spare"), store)
    world = World(before, plan_for(before, offers(), to={"shop/store-0": "to"}, delete=["old"]))
    if not spare:
        world.alter("spare", unschedulable=True)
    stranger = pod("stranger", node="to", cpu=500, created=NOW)
    world.once(lambda: bool(world.intents("prefer-nodes")), lambda: world.memory.pods.update({stranger.key: stranger}))
    end = await world.completes()
    assert len(world.intents("evict")) == int(spare)
    assert end.replan == ("" if spare else "misplaced")
    assert not any(item.node is None for item in world.memory.pods.values())


@pytest.mark.parametrize("world_type", [World, SeesPodsLate])
async def test_two_pods_are_not_evicted_for_the_same_room(world_type: type[World]) -> None:
    """Strangers take the places of both while their moves begin: what is left on the spare node is for one of them.

    Also where the state still shows the pod that was evicted first.
    """
    stores = [item for name in ("a", "b") for item in stateful(name, [f"old-{name}", "kept"], cpu=1000)]
    olds = [node("old-a"), node("old-b")]
    before = cluster(
        olds, node("to-a", cpu=1000), node("to-b", cpu=1000), node("spare", cpu=1000), node("kept"), stores
    )
    plan = plan_for(before, offers(), to={"shop/a-0": "to-a", "shop/b-0": "to-b"}, delete=["old-a", "old-b"])
    world = world_type(before, plan, limits=ALL_AT_ONCE)
    strangers = [pod(f"stranger-{name}", node=f"to-{name}", cpu=500, created=NOW) for name in ("a", "b")]
    world.alter("kept", unschedulable=True)
    world.once(
        lambda: len(world.intents("prefer-nodes")) == 2,
        lambda: world.memory.pods.update({item.key: item for item in strangers}),
    )
    end = await world.completes()
    assert len(world.intents("evict")) == 1
    assert end.replan == "misplaced"
    assert not any(item.node is None for item in world.memory.pods.values())


@pytest.mark.parametrize("priority", [0, 1000])
@pytest.mark.parametrize("where", ["old", "kept"])
async def test_pods_that_come_leave_room_for_one_that_may_preempt(where: str, priority: int) -> None:
    """The plan leaves room for another pod of `web`. Where the newcomer takes it, what remains is planned again.

    Else kube-scheduler would end a pod of `low` for the next one, beside a closed node with room for all.
    """
    web = deployed("web", ["kept"], cpu=1500, priority=priority)
    low = deployed("low", ["old", "kept"], cpu=500)
    before = cluster(node("old"), node("kept"), web, low)
    plan = plan_for(before, offers(), to={"shop/low-0": "kept"}, delete=["old"])
    urgent = deployed("urgent", [where], cpu=200, priority=priority)
    world = World(cluster(node("old"), node("kept"), web, low, urgent), plan)
    end = await world.completes(*(("kept", "old") if priority else ("kept",)))
    assert end.replan == ("crowded" if priority else "")


def test_room_counts_attachments_of_volumes() -> None:
    """A node that attaches one volume has none left for a pod with another, and room for one without."""
    full = {"attachable-volumes-csi-disk.example.com": 1}
    disks = [
        one
        for name in ("x", "y")
        for one in (
            Volume(name=f"pv-{name}", uid=f"v-{name}", driver="disk.example.com"),
            VolumeClaim(name=name, namespace="shop", uid=f"c-{name}", volume=f"pv-{name}"),
        )
    ]
    there, comes = pod("there", node="n1", rules=uses("x")), pod("comes", node="n3", rules=uses("y"))
    on = cluster(node("n1", extra=full), node("n2", extra=full), node("n3"), disks, there, comes)
    room = Room(on, ["n1", "n2"])
    assert room.take(comes, comes.requests, "n1", 1, elsewhere=False) == ()
    plain = pod("plain", node="n3")
    assert room.take(plain, plain.requests, "n1", 1, elsewhere=False) == ("n1",)
    assert room.take(comes, comes.requests, "n1", 2) == ("n2",)


def uses(claim: str) -> PlacementRules:
    """The rules of a pod with this claim."""
    return PlacementRules(claims=(claim,))


@pytest.mark.parametrize(("other", "moves"), [(1000, True), (100, False)])
def test_no_pod_is_moved_to_the_node_that_it_is_on(other: int, *, moves: bool) -> None:
    """Where another took its planned place, an open node that it leaves for the sake of others is none for it."""
    before = cluster(node("n1"), node("n2", cpu=other), node("n3", cpu=100), deployed("web", ["n1"], cpu=500))
    room, web = Room(before, ("n1", "n2", "n3")), before.pods_by_key["shop/web-0"]
    assert room.take_one(web, "n3") is moves
    assert room.take(web, web.requests, "n3", 1) == ("n1",), "one that is asked for beside it may come there"
