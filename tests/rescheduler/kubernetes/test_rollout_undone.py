"""Rolls that are undone or given up: the Deployment and all that a rollback may make of it are the owner's again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.rescheduler.effect_bench import WEB, Bench, alive, bench_in, rolled, settled_for
from tests.support.undo import JSON_PATCH, undo_patch

from kinema_core.events import FrozenMap, Step
from kinema_kubernetes.client import STRATEGIC
from kinema_kubernetes.objects import annotations_of, labels_of
from kinema_rescheduler.kubernetes.cluster import Order
from kinema_rescheduler.kubernetes.rollout import BOUNDS_BEFORE
from kinema_rescheduler.names import ROLLED, ROLLED_BY
from kinema_sim.engine.kinds import REPLICA_SET

DEPLOYMENT = "/apis/apps/v1/namespaces/shop/deployments/web"
KINEMA_PREFIX = "kinema.io/"


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    """Serve the tiny cluster."""
    async with bench_in(tmp_path) as found:
        yield found


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


def copied(value: Any) -> Any:
    """As it is now, whatever becomes of it."""
    return msgspec.json.decode(msgspec.json.encode(value))


async def violated_preferences(bench: Bench, uid: str) -> None:
    """Take a roll back as a plan does that is given up."""
    assert (await bench.perform("revert", WEB, uid=uid)).outcome == "done"
    await rolled(bench)
    await bench.perform("finalize-rollout", WEB, uid=uid)


@pytest.mark.slow
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(
    "bounds",
    [{"maxSurge": "25%", "maxUnavailable": "25%"}, {"maxSurge": 0, "maxUnavailable": 2}, {"maxUnavailable": "40%"}],
)
async def test_an_undo_in_the_middle_loses_no_strategy(bench: Bench, bounds: dict[str, Any], *, late: bool) -> None:
    """`kubectl rollout undo` drops all annotations of ours; what the owner had comes back at the roll's end."""
    await bench.api.patch(DEPLOYMENT, {"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": bounds}}})
    before, uid, pods = copied(bench.web()["spec"]), bench.uid(bench.web()), alive(bench)
    owners = sets(bench)[-1]
    await bench.perform("roll", WEB, uid=uid, requests=FrozenMap({"cpu": 150}))
    if late:
        await rolled(bench)
        assert not pods & alive(bench)
    await until_ours_is_there(bench)
    await undo(bench, owners)
    assert KINEMA_PREFIX not in str(bench.web()["metadata"]["annotations"])
    assert bench.web()["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    await violated_preferences(bench, uid)
    after = bench.web()
    wanted = {"maxSurge": "25%", "maxUnavailable": "25%", **bounds}
    assert after["spec"]["strategy"] == {"type": "RollingUpdate", "rollingUpdate": wanted}
    assert after["spec"]["template"] == before["template"]
    assert KINEMA_PREFIX not in str(after)
    assert KINEMA_PREFIX not in str(sets(bench))
    assert (await bench.perform("revert", WEB, uid=uid)).outcome == "adopted"


async def test_a_plan_that_goes_on_after_an_undo_gives_the_strategy_back(bench: Bench) -> None:
    """Undone when all pods were new: the end of the roll is made all the same."""
    before, uid = copied(bench.web()["spec"]["strategy"]), bench.uid(bench.web())
    owners = sets(bench)[-1]
    await bench.perform("roll", WEB, uid=uid, requests=FrozenMap({"cpu": 150}))
    await rolled(bench)
    await undo(bench, owners)
    await rolled(bench)
    assert (await bench.perform("finalize-rollout", WEB, uid=uid)).outcome == "done"
    assert bench.web()["spec"]["strategy"] == before
    assert KINEMA_PREFIX not in str(bench.web()) + str(sets(bench))


async def test_the_next_roll_remembers_what_an_undone_one_left(bench: Bench) -> None:
    """A roll whose end was never made: the bounds that the next one finds are ours, and not what it gives back."""
    before, uid = copied(bench.web()["spec"]["strategy"]), bench.uid(bench.web())
    owners = sets(bench)[-1]
    await bench.perform("roll", WEB, uid=uid)
    await until_ours_is_there(bench)
    await undo(bench, owners)
    await rolled(bench)
    step = Step(id="roll/2", kind="roll", target=WEB, uid=uid)
    await bench.writer.perform(Order(step=step, plan="plan-2", iteration="it-2"))
    await rolled(bench)
    await bench.perform("finalize-rollout", WEB, uid=uid)
    assert bench.web()["spec"]["strategy"] == before
    assert KINEMA_PREFIX not in str(bench.web()["metadata"])


async def test_a_strategy_that_its_owner_sets_meanwhile_stays(bench: Bench) -> None:
    """After an undo as without one: bounds that are not ours are the owner's, and so is another type."""
    uid, owners = bench.uid(bench.web()), sets(bench)[-1]
    await bench.perform("roll", WEB, uid=uid)
    await until_ours_is_there(bench)
    await undo(bench, owners)
    await bench.api.patch(DEPLOYMENT, {"spec": {"strategy": {"type": "Recreate", "rollingUpdate": None}}})
    await violated_preferences(bench, uid)
    assert bench.web()["spec"]["strategy"] == {"type": "Recreate"}
    assert KINEMA_PREFIX not in str(bench.web())


async def test_a_late_copy_of_our_note_brings_nothing_back(bench: Bench) -> None:
    """The controller may copy it to a set after the roll's end: nothing on the Deployment is ours by it."""
    uid = bench.uid(bench.web())
    await bench.perform("roll", WEB, uid=uid, requests=FrozenMap({"cpu": 150}))
    await rolled(bench)
    note = annotations_of(bench.web())[ROLLED]
    await bench.perform("finalize-rollout", WEB, uid=uid)
    after = copied(bench.web()["spec"])
    for one in sets(bench):
        path = f"/apis/apps/v1/namespaces/shop/replicasets/{one['metadata']['name']}"
        await bench.api.patch(path, {"metadata": {"annotations": {ROLLED: note}}})
    assert (await bench.perform("revert", WEB, uid=uid)).outcome == "adopted"
    assert bench.web()["spec"] == after
    assert KINEMA_PREFIX not in str(bench.web())


async def test_a_label_that_somebody_spoils_is_no_strategy(bench: Bench) -> None:
    """What cannot be read of the label is read from the annotation."""
    before, uid = copied(bench.web()["spec"]["strategy"]), bench.uid(bench.web())
    await bench.perform("roll", WEB, uid=uid)
    assert labels_of(bench.web())[BOUNDS_BEFORE] == "maxSurge-25pct.maxUnavailable-25pct"
    await bench.api.patch(DEPLOYMENT, {"metadata": {"labels": {BOUNDS_BEFORE: "odd"}}}, STRATEGIC)
    await violated_preferences(bench, uid)
    assert bench.web()["spec"]["strategy"] == before
    assert KINEMA_PREFIX not in str(bench.web())
