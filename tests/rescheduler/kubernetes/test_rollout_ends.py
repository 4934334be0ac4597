"""The end of a rolling update beside a controller that still works with the Deployment from before it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.rescheduler.effect_bench import WEB, Bench, bench_in, rolled

from kinema_core.events import FrozenMap
from kinema_kubernetes.client import MERGE
from kinema_kubernetes.objects import annotations_of
from kinema_rescheduler.errors import TransientError
from kinema_rescheduler.kubernetes import rollout
from kinema_rescheduler.names import ROLLED
from kinema_sim.engine.kinds import REPLICA_SET

DEPLOYMENT = "/apis/apps/v1/namespaces/shop/deployments/web"


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    """Serve the tiny cluster."""
    async with bench_in(tmp_path) as found:
        yield found


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


async def under_a_roll(bench: Bench) -> str:
    """Roll web until all its pods are new; gives its uid."""
    uid = bench.uid(bench.web())
    await bench.perform("roll", WEB, uid=uid, requests=FrozenMap({"cpu": 150}))
    await rolled(bench)
    return uid


async def test_a_mark_that_is_copied_late_comes_off_again(bench: Bench) -> None:
    """The end of a roll is done only when the controller has seen it: nothing takes the mark off afterwards."""
    uid = await under_a_roll(bench)
    controller = LateController(bench, times=2)
    assert (await bench.perform("finalize-rollout", WEB, uid=uid)).outcome == "done"
    assert controller.mark
    assert controller.marked() == []


@pytest.mark.slow
async def test_a_mark_comes_off_where_no_generation_tells_of_the_end(bench: Bench) -> None:
    """After the way back, where the owner's strategy is ours: the mark must stay away for a moment."""
    ours = {"maxUnavailable": 0, "maxSurge": "25%"}
    await bench.api.patch(DEPLOYMENT, {"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": ours}}})
    uid = await under_a_roll(bench)
    await bench.perform("revert", WEB, uid=uid)
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
    assert (await bench.perform("finalize-rollout", WEB, uid=uid)).outcome == "done"
    assert bench.web()["metadata"]["generation"] == generation
    controller.left = pauses < 2
    assert controller.marked() == []


@pytest.mark.slow
async def test_a_process_that_dies_at_the_end_leaves_no_mark(bench: Bench) -> None:
    """It died after the strategy was restored: the next one finds the Deployment done, and still removes the copies."""
    uid = await under_a_roll(bench)
    controller, patch = LateController(bench, times=0), bench.api.patch

    async def cut_off(path: str, body: Any, content_type: str = MERGE) -> Any:
        if "/replicasets/" in path and ROLLED not in annotations_of(bench.web()):
            raise TransientError("unavailable", "cut off")
        return await patch(path, body, content_type)

    bench.api.patch = cut_off  # type: ignore[method-assign]  # stands for a process that dies
    with pytest.raises(TransientError):
        await bench.perform("finalize-rollout", WEB, uid=uid)
    assert controller.marked()
    bench.api.patch = patch  # type: ignore[method-assign]  # the next process
    controller.left = 4  # it reads the Deployment twice before it looks for the mark
    assert (await bench.perform("finalize-rollout", WEB, uid=uid)).outcome == "adopted"
    assert controller.marked() == []


async def test_a_controller_that_sees_nothing_is_waited_for(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as the mark may come back the end is not done, and is tried again; all else is given back already."""
    monkeypatch.setattr(rollout, "_PAUSE", 0)
    uid = await under_a_roll(bench)
    controller = LateController(bench, times=1000)
    with pytest.raises(TransientError) as caught:
        await bench.perform("finalize-rollout", WEB, uid=uid)
    assert (caught.value.reason, WEB in caught.value.detail) == ("not-ready", True)
    controller.left = 1
    assert (await bench.perform("finalize-rollout", WEB, uid=uid)).outcome == "adopted"
    assert controller.marked() == []
