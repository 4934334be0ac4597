"""A node is deleted when its volumes are detached: without it no kubelet would confirm that to other nodes."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from tests.rescheduler.capabilities import attachment
from tests.rescheduler.effect_bench import Bench
from tests.rescheduler.harness import World
from tests.rescheduler.memory_cluster import Pace
from tests.support.builders import NOW, cluster, node, offers, stateful
from tests.support.plans import plan_for

from kinema_core.events import (
    AbortRequested,
    ExecutionAborted,
    PlacementRules,
    Step,
    StepFailed,
    Volume,
    VolumeClaim,
)
from kinema_kubernetes.errors import UnavailableError
from kinema_kubernetes.objects import Json
from kinema_rescheduler.errors import TransientError
from kinema_rescheduler.kubernetes.cluster import Order
from kinema_rescheduler.kubernetes.volumes import Attachments
from kinema_rescheduler.plan.limits import Limits
from kinema_sim.controllers.base import pod_of_template
from kinema_sim.engine.kinds import DAEMON_SET, PERSISTENT_VOLUME_CLAIM, POD, VOLUME_ATTACHMENT

LIMITS = Limits()
FOR_EVER = 1e6


async def moving(detach: float) -> World:
    """A StatefulSet's pod leaves n2, which will go, and its volume takes so many seconds longer."""
    volume = Volume(name="pv", uid="v", claim="shop/data", driver="disk.example.com")
    claim = VolumeClaim(name="data", namespace="shop", uid="c", volume="pv")
    alone = {"kinema.io/strategy": "evict"}
    pods = stateful("db", ["n2"], cpu=500, annotations=alone, rules=PlacementRules(claims=("data",)))
    before = cluster(node("n1"), node("n2"), pods, volume, claim)
    world = World(before, pace=Pace(volume_detach=detach))
    await world.accept(plan_for(before, offers(), to={"shop/db-0": "n1"}, delete=["n2"]))
    return world


def refusals(world: World) -> list[StepFailed]:
    """What came of the tries to delete the node that failed."""
    bodies = [event.body for event in world.log()]
    return [body for body in bodies if isinstance(body, StepFailed) and body.step == "delete/n2"]


async def test_a_node_waits_for_its_volumes() -> None:
    """It is asked more often than any other step is tried, and goes when the volume has gone."""
    world = await moving(detach=120)
    attached: list[int] = []
    world.on_second = lambda: attached.append(world.memory.attached["n2"]) if "n2" not in world.memory.nodes else None
    await world.completes("n1")
    assert len(refusals(world)) > LIMITS.attempts
    assert {(body.reason, body.retry) for body in refusals(world)} == {("attached", True)}
    assert set(attached) == {0}
    assert world.clock.now() - NOW > timedelta(seconds=120)


async def test_a_volume_that_stays_keeps_its_node() -> None:
    """After the time that a deletion may take the plan ends without it, and says why; the node is open again."""
    world = await moving(detach=FOR_EVER)
    end = await world.completes()
    assert end.figures["nodes_kept"] == 1
    assert (refusals(world)[-1].reason, refusals(world)[-1].retry) == ("attached", False)
    assert timedelta(seconds=LIMITS.delete_seconds) < world.clock.now() - NOW
    assert "n2" in world.memory.nodes


async def test_an_abort_does_not_wait_for_volumes() -> None:
    """A node that was emptied and is not deleted yet is open again at once."""
    world = await moving(detach=FOR_EVER)
    for _ in range(100):
        if not refusals(world):
            await world.second()
    await world.publish(AbortRequested(by="me"), "abort-1")
    asked = world.clock.now()
    end = await world.run()
    assert isinstance(end, ExecutionAborted), world.told()
    assert world.clock.now() - asked < timedelta(seconds=30)
    assert "n2" in world.memory.nodes
    assert world.marks_left() == []


async def test_deletions_that_ask_together_share_a_list(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thirty of them take two lists, each begun after its question; one that fails is no answer for the others."""
    lists, real = 0, bench.api.client.items

    async def items(path: str, **query: str) -> list[Json]:
        nonlocal lists
        lists += 1
        if lists == 3:
            raise UnavailableError(f"GET {path}", "away")
        return await real(path, **query)

    monkeypatch.setattr(bench.api.client, "items", items)
    bench.world.sim.store.create(VOLUME_ATTACHMENT, attachment("pv", "tiny-1"))
    attachments = Attachments(bench.api)
    found = await asyncio.gather(*(attachments.of("tiny-1") for _ in range(30)))
    assert [len(one) for one in found] == [1] * 30
    assert lists == 2
    answers = await asyncio.gather(*(attachments.of("tiny-1") for _ in range(5)), return_exceptions=True)
    assert isinstance(answers[0], TransientError)
    assert [len(one) for one in answers[1:] if isinstance(one, list)] == [1] * 4


async def test_volumes_of_daemons_go_with_their_node(bench: Bench) -> None:
    """Only volumes of pods that have left are waited for, not those of other nodes or of pods that stay to the end."""
    store = bench.world.sim.store
    await bench.api.create("/api/v1/nodes", {**bench.node(), "metadata": {"name": "spare", "labels": {}}})
    uid = bench.uid(bench.node("spare"))
    await bench.perform("taint", "spare", "taint/spare", uid=uid)
    order = Order(step=Step(id="d", kind="delete", target="spare", uid=uid), plan="plan-1", iteration="it-1")
    store.create(VOLUME_ATTACHMENT, attachment("elsewhere", "tiny-1"))
    assert await bench.writer.check_deletable(order)
    for name in ("logs-data", "own"):
        claim = {"metadata": {"name": name, "namespace": "shop"}, "spec": {"volumeName": f"pv-{name}"}}
        store.create(PERSISTENT_VOLUME_CLAIM, claim)
        store.create(VOLUME_ATTACHMENT, attachment(f"pv-{name}", "spare"))
    with pytest.raises(TransientError, match="still has pv-logs-data, pv-own attached") as caught:
        await bench.writer.check_deletable(order)
    assert caught.value.reason == "attached"
    containers = [{"name": "c", "image": "example/none:1"}]
    template = {"metadata": {}, "spec": {"containers": containers, "tolerations": [{"operator": "Exists"}]}}
    # The set is there, and its pod is the one that it would make itself: the simulation ends others.
    daemons = {"updateStrategy": {"type": "OnDelete"}, "template": template}
    logs = store.create(DAEMON_SET, {"metadata": {"name": "logs", "namespace": "shop"}, "spec": daemons})
    pod = pod_of_template(logs, template, name="logs")
    here = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["spare"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [here]}}
    volumes = [{"name": "data", "ephemeral": {}}, {"name": "own", "persistentVolumeClaim": {"claimName": "own"}}]
    pod["spec"] |= {"nodeName": "spare", "affinity": {"nodeAffinity": required}, "volumes": volumes}
    store.create(POD, pod)
    assert await bench.writer.check_deletable(order)
    inline = attachment("csi-1", "spare")
    inline["spec"]["source"] = {"inlineVolumeSpec": {}}
    store.create(VOLUME_ATTACHMENT, inline)
    with pytest.raises(TransientError, match="still has csi-1 attached"):
        await bench.writer.check_deletable(order)
