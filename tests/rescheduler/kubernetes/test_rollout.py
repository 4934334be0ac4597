"""Effects of rolling updates through the real adapters: the roll, its end, and what an owner undoes of it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.rescheduler.effect_bench import WEB, Bench, alive, rolled, settled_for
from tests.support.undo import JSON_PATCH, undo_patch

from kinema_core.events import Amounts, FrozenMap, Step
from kinema_kubernetes.client import MERGE, STRATEGIC
from kinema_kubernetes.objects import annotations_of, labels_of
from kinema_rescheduler.errors import PermanentError, TransientError
from kinema_rescheduler.kubernetes import rollout
from kinema_rescheduler.kubernetes.cluster import Order
from kinema_rescheduler.kubernetes.rollout import BOUNDS_BEFORE
from kinema_rescheduler.names import ROLLED, ROLLED_BY
from kinema_sim.engine.kinds import REPLICA_SET, RESOURCE_QUOTA

DEPLOYMENT = "/apis/apps/v1/namespaces/shop/deployments/web"
KINEMA_PREFIX = "kinema.io/"


def copied(value: Any) -> Any:
    """As it is now, whatever becomes of it."""
    return msgspec.json.decode(msgspec.json.encode(value))


async def test_roll_patches_and_restores_the_template(bench: Bench) -> None:
    """A roll patches requests and bounds once; restoring puts requests back, and the strategy when that is over."""
    before = copied(bench.web()["spec"])
    requests: Amounts = FrozenMap({"cpu": 150})
    made = await bench.perform("roll", requests=requests)
    assert made.outcome == "done"
    assert made.figures["generation"] == bench.web()["metadata"]["generation"]
    spec = bench.web()["spec"]
    assert spec["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "150m"
    assert spec["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": "25%"}
    assert not spec["template"]["spec"].get("affinity"), "the taint and the steering policy lead its pods"
    assert (await bench.perform("roll", requests=requests)).outcome == "adopted"
    assert (await bench.perform("revert")).outcome == "done"
    restored = bench.web()["spec"]
    assert restored["template"]["spec"]["containers"] == before["template"]["spec"]["containers"]
    assert not restored["template"]["spec"].get("affinity")
    assert restored["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": "25%"}
    generation = bench.web()["metadata"]["generation"]
    assert (await bench.perform("revert")).figures["generation"] == generation
    assert (await bench.perform("finalize-rollout")).outcome == "done"
    assert bench.web()["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": "25%", "maxUnavailable": "25%"}
    assert (await bench.perform("revert")).outcome == "adopted"


@pytest.mark.parametrize(("room", "surge"), [(0, 1), (9, "25%")])
async def test_where_pods_are_refused_the_way_back_asks_for_one_at_a_time(
    bench: Bench, room: int, surge: int | str
) -> None:
    """A ReplicaSet that is refused each time it asks for several tries ever more rarely, also when there is room."""
    store = bench.world.sim.store
    quota = {"metadata": {"name": "tight", "namespace": "shop"}, "spec": {"hard": {"pods": str(room)}}}
    store.create(RESOURCE_QUOTA, quota)
    await bench.perform("roll", requests=FrozenMap({"cpu": 150}))
    await settled_for(bench, 5)
    await bench.perform("revert")
    assert bench.web()["spec"]["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": surge}
    await bench.perform("finalize-rollout")
    assert bench.web()["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": "25%", "maxUnavailable": "25%"}


async def test_requests_that_their_owner_sets_meanwhile_stay(bench: Bench) -> None:
    """A roll that is taken back gives those back that are still its own: of a resource that the owner wrote, none."""
    (container,) = bench.web()["spec"]["template"]["spec"]["containers"]
    before = dict(container["resources"]["requests"])
    await bench.perform("roll", requests=FrozenMap({"cpu": 1000, "memory": 90 * 2**20}))
    theirs = {"name": container["name"], "resources": {"requests": {"memory": "99Mi"}}}
    await bench.api.patch(
        DEPLOYMENT, {"spec": {"template": {"spec": {"containers": [theirs]}}}}, content_type=STRATEGIC
    )
    await bench.perform("revert")
    (container,) = bench.web()["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["requests"] == {**before, "memory": "99Mi"}


@pytest.mark.slow
async def test_a_finished_roll_leaves_the_owners_template_and_no_second_roll(bench: Bench) -> None:
    """The template is as it was but for the new requests, the pods are those of the roll, and no annotation is left."""
    before = copied(bench.web()["spec"])
    await bench.perform("roll", requests=FrozenMap({"cpu": 150}))
    await rolled(bench)
    pods = alive(bench)
    assert (await bench.perform("finalize-rollout")).outcome == "done"
    spec = bench.web()["spec"]
    assert spec["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "150m"
    template = copied(before["template"])
    template["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "150m"
    assert spec["template"]["spec"] == template["spec"]
    assert not spec["template"]["metadata"].get("annotations")
    assert (spec["strategy"], spec.get("paused")) == (before["strategy"], None)
    assert "kinema.io/rolled" not in str(bench.world.sim.store.sorted(REPLICA_SET, "shop"))
    assert (await bench.perform("finalize-rollout")).outcome == "adopted"
    await settled_for(bench, 60)
    assert alive(bench) == pods


@pytest.mark.slow
async def test_a_roll_that_changed_nothing_else_is_no_roll_back(bench: Bench) -> None:
    """Without new requests an annotation makes the template another one; it stays, so that no pod restarts again."""
    before = copied(bench.web()["spec"]["template"]["spec"])
    await bench.perform("roll", requests=FrozenMap())
    await rolled(bench)
    pods = alive(bench)
    await bench.perform("finalize-rollout")
    assert bench.web()["spec"]["template"]["spec"] == before
    assert bench.web()["spec"]["template"]["metadata"]["annotations"] == {ROLLED_BY: "plan-1"}
    await settled_for(bench, 60)
    assert alive(bench) == pods


@pytest.mark.slow
@pytest.mark.parametrize(("write", "outcome"), [(0, "done"), (1, "adopted")])
async def test_a_roll_that_is_ended_half_is_ended_by_the_next(bench: Bench, write: int, outcome: str) -> None:
    """Cut off after any of its writes, the end of a roll is found and made by the next try; no pod restarts."""
    await bench.perform("roll", requests=FrozenMap())
    await rolled(bench)
    pods = alive(bench)
    done, real = 0, bench.api.client.request

    async def cut(method: str, path: str, **more: Any) -> Any:
        nonlocal done
        if method != "GET":
            done += 1
            if done > write:
                raise TransientError("unavailable", "cut off")
        return await real(method, path, **more)

    bench.api.client.request = cut  # type: ignore[method-assign]  # stands for a process that dies
    with pytest.raises(TransientError):
        await bench.perform("finalize-rollout")
    bench.api.client.request = real  # type: ignore[method-assign]  # the next process
    await settled_for(bench, 30)
    assert (await bench.perform("finalize-rollout")).outcome == outcome
    assert "kinema.io/" not in str(bench.web()["metadata"])
    await settled_for(bench, 60)
    assert alive(bench) == pods


async def test_roll_of_a_recreate_deployment_is_refused(bench: Bench) -> None:
    """A Deployment that cannot run two generations side by side is not rolled."""
    await bench.api.patch(
        DEPLOYMENT,
        {"spec": {"strategy": {"type": "Recreate", "rollingUpdate": None}}},
    )
    with pytest.raises(PermanentError, match=r"^held: "):
        await bench.perform("roll", requests=FrozenMap({"cpu": 150}))


class LateController:
    """Copies our mark onto the ReplicaSets `times` times after it was taken off the Deployment.

    Before each, the Deployment's status tells no generation that came with that: the controller has not seen it.
    """

    def __init__(self, bench: Bench, times: int) -> None:
        self.bench = bench
        self.left = times
        self.mark = ""
        self._request = bench.api.client.request
        bench.api.client.request = self.answer  # type: ignore[method-assign]  # stands before the simulated server

    async def answer(self, method: str, path: str, **more: Any) -> Any:
        """The server's answer, as long as the controller has not come further."""
        told = await self._request(method, path, **more)
        if path != DEPLOYMENT:
            return told
        mark = annotations_of(told).get(ROLLED, "")
        self.mark = mark or self.mark
        if method == "GET" and self.left and self.mark and not mark:
            self.copy()
            told["status"]["observedGeneration"] = told["metadata"]["generation"] - 1
        return told

    def copy(self) -> None:
        """Put the mark on again, if it may still."""
        if self.left:
            self.left -= 1
            for item in self.sets():
                self.bench.world.sim.store.edit(REPLICA_SET, ("shop", item["metadata"]["name"]), self._add)

    def _add(self, draft: dict[str, Any]) -> None:
        draft["metadata"].setdefault("annotations", {})[ROLLED] = self.mark

    def sets(self) -> list[dict[str, Any]]:
        """The Deployment's ReplicaSets."""
        return [one for one in self.bench.world.sim.store.sorted(REPLICA_SET, "shop") if _is_of_web(one)]

    def marked(self) -> list[str]:
        """ReplicaSets with our mark after all that the controller may still do."""
        while self.left:
            self.copy()
        return [item["metadata"]["name"] for item in self.sets() if ROLLED in annotations_of(item)]


def _is_of_web(replica_set: dict[str, Any]) -> bool:
    return any(owner["name"] == "web" for owner in replica_set["metadata"]["ownerReferences"])


async def under_a_roll(bench: Bench) -> None:
    """Roll web until all its pods are new."""
    await bench.perform("roll", requests=FrozenMap({"cpu": 150}))
    await rolled(bench)


async def test_a_mark_that_is_copied_late_comes_off_again(bench: Bench) -> None:
    """The end of a roll is done only when the controller has seen it: nothing takes the mark off afterwards."""
    await under_a_roll(bench)
    controller = LateController(bench, times=2)
    assert (await bench.perform("finalize-rollout")).outcome == "done"
    assert controller.mark
    assert controller.marked() == []


@pytest.mark.slow
async def test_a_mark_comes_off_where_no_generation_tells_of_the_end(bench: Bench) -> None:
    """After the way back, where the owner's strategy is ours: the mark must stay away for a moment."""
    ours = {"maxUnavailable": 0, "maxSurge": "25%"}
    await bench.api.patch(DEPLOYMENT, {"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": ours}}})
    await under_a_roll(bench)
    await bench.perform("revert")
    await rolled(bench)
    generation = bench.web()["metadata"]["generation"]
    controller, pause, pauses = LateController(bench, times=0), bench.api.pause, 0

    async def copied_meanwhile(seconds: float) -> None:
        nonlocal pauses
        pauses += 1
        controller.left = pauses == 2
        controller.copy()
        await pause(seconds)

    bench.api.pause = copied_meanwhile  # type: ignore[method-assign]  # what happens between two looks
    assert (await bench.perform("finalize-rollout")).outcome == "done"
    assert bench.web()["metadata"]["generation"] == generation
    controller.left = pauses < 2
    assert controller.marked() == []


@pytest.mark.slow
async def test_a_process_that_dies_at_the_end_leaves_no_mark(bench: Bench) -> None:
    """It died after the strategy was restored: the next one finds the Deployment done, and still removes the copies."""
    await under_a_roll(bench)
    controller, patch = LateController(bench, times=0), bench.api.patch

    async def cut_off(path: str, body: Any, content_type: str = MERGE) -> Any:
        if "/replicasets/" in path and ROLLED not in annotations_of(bench.web()):
            raise TransientError("unavailable", "cut off")
        return await patch(path, body, content_type)

    bench.api.patch = cut_off  # type: ignore[method-assign]  # stands for a process that dies
    with pytest.raises(TransientError):
        await bench.perform("finalize-rollout")
    assert controller.marked()
    bench.api.patch = patch  # type: ignore[method-assign]  # the next process
    controller.left = 4  # it reads the Deployment twice before it looks for the mark
    assert (await bench.perform("finalize-rollout")).outcome == "adopted"
    assert controller.marked() == []


async def test_a_controller_that_sees_nothing_is_waited_for(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as the mark may come back the end is not done, and is tried again; all else is given back already."""
    monkeypatch.setattr(rollout, "_PAUSE", 0)
    await under_a_roll(bench)
    controller = LateController(bench, times=1000)
    with pytest.raises(TransientError) as caught:
        await bench.perform("finalize-rollout")
    assert (caught.value.reason, WEB in caught.value.detail) == ("not-ready", True)
    controller.left = 1
    assert (await bench.perform("finalize-rollout")).outcome == "adopted"
    assert controller.marked() == []


def sets(bench: Bench) -> list[dict[str, Any]]:
    """Web's ReplicaSets, the eldest revision first."""
    found = [one for one in bench.world.sim.store.sorted(REPLICA_SET, "shop") if one["metadata"]["name"][:4] == "web-"]
    return sorted(found, key=lambda one: int(annotations_of(one)["deployment.kubernetes.io/revision"]))


def by_us(replica_set: dict[str, Any]) -> bool:
    """Whether a set has the template of a roll."""
    return any(mark in str(replica_set["spec"]["template"]) for mark in (ROLLED_BY, "150m"))


async def until_ours_is_there(bench: Bench) -> None:
    """Wait until the controller has made the set of the roll."""
    while not any(map(by_us, sets(bench))):
        await settled_for(bench, 1)


async def undo(bench: Bench, to: dict[str, Any]) -> None:
    """`kubectl rollout undo` to a ReplicaSet's revision."""
    patch: Any = undo_patch(bench.web(), to)
    await bench.api.client.request("PATCH", DEPLOYMENT, body=patch, content_type=JSON_PATCH)


async def taken_back(bench: Bench) -> None:
    """Take a roll back as a plan does that is given up."""
    assert (await bench.perform("revert")).outcome == "done"
    await rolled(bench)
    await bench.perform("finalize-rollout")


@pytest.mark.slow
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(
    "bounds",
    [{"maxSurge": "25%", "maxUnavailable": "25%"}, {"maxSurge": 0, "maxUnavailable": 2}, {"maxUnavailable": "40%"}],
)
async def test_an_undo_in_the_middle_loses_no_strategy(bench: Bench, bounds: dict[str, Any], *, late: bool) -> None:
    """`kubectl rollout undo` drops all annotations of ours; what the owner had comes back at the roll's end."""
    await bench.api.patch(DEPLOYMENT, {"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": bounds}}})
    before, pods = copied(bench.web()["spec"]), alive(bench)
    owners = sets(bench)[-1]
    await bench.perform("roll", requests=FrozenMap({"cpu": 150}))
    if late:
        await rolled(bench)
        assert not pods & alive(bench)
    await until_ours_is_there(bench)
    await undo(bench, owners)
    assert KINEMA_PREFIX not in str(bench.web()["metadata"]["annotations"])
    assert bench.web()["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    await taken_back(bench)
    after = bench.web()
    wanted = {"maxSurge": "25%", "maxUnavailable": "25%", **bounds}
    assert after["spec"]["strategy"] == {"type": "RollingUpdate", "rollingUpdate": wanted}
    assert after["spec"]["template"] == before["template"]
    assert KINEMA_PREFIX not in str(after)
    assert KINEMA_PREFIX not in str(sets(bench))
    assert (await bench.perform("revert")).outcome == "adopted"


async def test_a_plan_that_goes_on_after_an_undo_gives_the_strategy_back(bench: Bench) -> None:
    """Undone when all pods were new: the end of the roll is made all the same."""
    before = copied(bench.web()["spec"]["strategy"])
    owners = sets(bench)[-1]
    await bench.perform("roll", requests=FrozenMap({"cpu": 150}))
    await rolled(bench)
    await undo(bench, owners)
    await rolled(bench)
    assert (await bench.perform("finalize-rollout")).outcome == "done"
    assert bench.web()["spec"]["strategy"] == before
    assert KINEMA_PREFIX not in str(bench.web()) + str(sets(bench))


async def test_the_next_roll_remembers_what_an_undone_one_left(bench: Bench) -> None:
    """A roll whose end was never made: the bounds that the next one finds are ours, and not what it gives back."""
    before = copied(bench.web()["spec"]["strategy"])
    owners = sets(bench)[-1]
    await bench.perform("roll")
    await until_ours_is_there(bench)
    await undo(bench, owners)
    await rolled(bench)
    step = Step(id="roll/2", kind="roll", target=WEB, uid=bench.uid(bench.web()))
    await bench.writer.perform(Order(step=step, plan="plan-2", iteration="it-2"))
    await rolled(bench)
    await bench.perform("finalize-rollout")
    assert bench.web()["spec"]["strategy"] == before
    assert KINEMA_PREFIX not in str(bench.web()["metadata"])


async def test_a_strategy_that_its_owner_sets_meanwhile_stays(bench: Bench) -> None:
    """After an undo as without one: bounds that are not ours are the owner's, and so is another type."""
    owners = sets(bench)[-1]
    await bench.perform("roll")
    await until_ours_is_there(bench)
    await undo(bench, owners)
    await bench.api.patch(DEPLOYMENT, {"spec": {"strategy": {"type": "Recreate", "rollingUpdate": None}}})
    await taken_back(bench)
    assert bench.web()["spec"]["strategy"] == {"type": "Recreate"}
    assert KINEMA_PREFIX not in str(bench.web())


async def test_a_late_copy_of_our_note_brings_nothing_back(bench: Bench) -> None:
    """The controller may copy it to a set after the roll's end: nothing on the Deployment is ours by it."""
    await bench.perform("roll", requests=FrozenMap({"cpu": 150}))
    await rolled(bench)
    note = annotations_of(bench.web())[ROLLED]
    await bench.perform("finalize-rollout")
    after = copied(bench.web()["spec"])
    for one in sets(bench):
        path = f"/apis/apps/v1/namespaces/shop/replicasets/{one['metadata']['name']}"
        await bench.api.patch(path, {"metadata": {"annotations": {ROLLED: note}}})
    assert (await bench.perform("revert")).outcome == "adopted"
    assert bench.web()["spec"] == after
    assert KINEMA_PREFIX not in str(bench.web())


async def test_a_label_that_somebody_spoils_is_no_strategy(bench: Bench) -> None:
    """What cannot be read of the label is read from the annotation."""
    before = copied(bench.web()["spec"]["strategy"])
    await bench.perform("roll")
    assert labels_of(bench.web())[BOUNDS_BEFORE] == "maxSurge-25pct.maxUnavailable-25pct"
    await bench.api.patch(DEPLOYMENT, {"metadata": {"labels": {BOUNDS_BEFORE: "odd"}}}, STRATEGIC)
    await taken_back(bench)
    assert bench.web()["spec"]["strategy"] == before
    assert KINEMA_PREFIX not in str(bench.web())
