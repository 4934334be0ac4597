"""Single effects of rolling updates through the real adapters."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.rescheduler.effect_bench import WEB, Bench, alive, bench_in, rolled, settled_for

from kinema_core.events import Amounts, FrozenMap
from kinema_kubernetes.client import STRATEGIC
from kinema_rescheduler.errors import PermanentError, TransientError
from kinema_rescheduler.names import ROLLED_BY
from kinema_sim.engine.kinds import REPLICA_SET


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    """Serve the tiny cluster."""
    async with bench_in(tmp_path) as found:
        yield found


async def test_roll_patches_and_restores_the_template(bench: Bench) -> None:
    """A roll patches requests and bounds once; restoring puts requests back, and the strategy when that is over."""
    before = msgspec.json.decode(msgspec.json.encode(bench.web()["spec"]))
    uid = bench.uid(bench.web())
    requests: Amounts = FrozenMap({"cpu": 150})
    made = await bench.perform("roll", WEB, uid=uid, requests=requests)
    assert made.outcome == "done"
    assert made.figures["generation"] == bench.web()["metadata"]["generation"]
    spec = bench.web()["spec"]
    assert spec["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "150m"
    assert spec["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": "25%"}
    assert not spec["template"]["spec"].get("affinity"), "the taint and the steering policy lead its pods"
    assert (await bench.perform("roll", WEB, uid=uid, requests=requests)).outcome == "adopted"
    assert (await bench.perform("revert", WEB, uid=uid)).outcome == "done"
    restored = bench.web()["spec"]
    assert restored["template"]["spec"]["containers"] == before["template"]["spec"]["containers"]
    assert not restored["template"]["spec"].get("affinity")
    assert restored["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": "25%"}
    generation = bench.web()["metadata"]["generation"]
    assert (await bench.perform("revert", WEB, uid=uid)).figures["generation"] == generation
    assert (await bench.perform("finalize-rollout", WEB, uid=uid)).outcome == "done"
    assert bench.web()["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": "25%", "maxUnavailable": "25%"}
    assert (await bench.perform("revert", WEB, uid=uid)).outcome == "adopted"


async def test_requests_that_their_owner_sets_meanwhile_stay(bench: Bench) -> None:
    """A roll that is taken back gives those back that are still its own: of a resource that the owner wrote, none."""
    uid = bench.uid(bench.web())
    (container,) = bench.web()["spec"]["template"]["spec"]["containers"]
    before = dict(container["resources"]["requests"])
    await bench.perform("roll", WEB, uid=uid, requests=FrozenMap({"cpu": 1000, "memory": 90 * 2**20}))
    theirs = {"name": container["name"], "resources": {"requests": {"memory": "99Mi"}}}
    path = "/apis/apps/v1/namespaces/shop/deployments/web"
    await bench.api.patch(path, {"spec": {"template": {"spec": {"containers": [theirs]}}}}, content_type=STRATEGIC)
    await bench.perform("revert", WEB, uid=uid)
    (container,) = bench.web()["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["requests"] == {**before, "memory": "99Mi"}


@pytest.mark.slow
async def test_a_finished_roll_leaves_the_owners_template_and_no_second_roll(bench: Bench) -> None:
    """The template is as it was but for the new requests, the pods are those of the roll, and no annotation is left."""
    before = msgspec.json.decode(msgspec.json.encode(bench.web()["spec"]))
    uid = bench.uid(bench.web())
    await bench.perform("roll", WEB, uid=uid, requests=FrozenMap({"cpu": 150}))
    await rolled(bench)
    pods = alive(bench)
    assert (await bench.perform("finalize-rollout", WEB, uid=uid)).outcome == "done"
    spec = bench.web()["spec"]
    assert spec["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "150m"
    template = msgspec.json.decode(msgspec.json.encode(before["template"]))
    template["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "150m"
    assert spec["template"]["spec"] == template["spec"]
    assert not spec["template"]["metadata"].get("annotations")
    assert (spec["strategy"], spec.get("paused")) == (before["strategy"], None)
    assert "kinema.io/rolled" not in str(bench.world.sim.store.sorted(REPLICA_SET, "shop"))
    assert (await bench.perform("finalize-rollout", WEB, uid=uid)).outcome == "adopted"
    await settled_for(bench, 60)
    assert alive(bench) == pods


@pytest.mark.slow
async def test_a_roll_that_changed_nothing_else_is_no_roll_back(bench: Bench) -> None:
    """Without new requests an annotation makes the template another one; it stays, so that no pod restarts again."""
    before = msgspec.json.decode(msgspec.json.encode(bench.web()["spec"]["template"]["spec"]))
    uid = bench.uid(bench.web())
    await bench.perform("roll", WEB, uid=uid, requests=FrozenMap())
    await rolled(bench)
    pods = alive(bench)
    await bench.perform("finalize-rollout", WEB, uid=uid)
    assert bench.web()["spec"]["template"]["spec"] == before
    assert bench.web()["spec"]["template"]["metadata"]["annotations"] == {ROLLED_BY: "plan-1"}
    await settled_for(bench, 60)
    assert alive(bench) == pods


@pytest.mark.slow
@pytest.mark.parametrize(("write", "outcome"), [(0, "done"), (1, "adopted")])
async def test_a_roll_that_is_ended_half_is_ended_by_the_next(bench: Bench, write: int, outcome: str) -> None:
    """Cut off after any of its writes, the end of a roll is found and made by the next try; no pod restarts."""
    uid = bench.uid(bench.web())
    await bench.perform("roll", WEB, uid=uid, requests=FrozenMap())
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
        await bench.perform("finalize-rollout", WEB, uid=uid)
    bench.api.client.request = real  # type: ignore[method-assign]  # the next process
    await settled_for(bench, 30)
    assert (await bench.perform("finalize-rollout", WEB, uid=uid)).outcome == outcome
    assert "kinema.io/" not in str(bench.web()["metadata"])
    await settled_for(bench, 60)
    assert alive(bench) == pods


async def test_roll_of_a_recreate_deployment_is_refused(bench: Bench) -> None:
    """A Deployment that cannot run two generations side by side is not rolled."""
    await bench.api.patch(
        "/apis/apps/v1/namespaces/shop/deployments/web",
        {"spec": {"strategy": {"type": "Recreate", "rollingUpdate": None}}},
    )
    with pytest.raises(PermanentError) as caught:
        await bench.perform("roll", WEB, uid=bench.uid(bench.web()), requests=FrozenMap({"cpu": 150}))
    assert caught.value.reason == "held"
