"""A rolling update that its owner undoes: our strategy goes too, though the undo took our note of it off."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.rescheduler.effect_bench import WEB, Bench, bench_in, rolled

from kinema_core.events import FrozenMap
from kinema_rescheduler.adapters.kubernetes_api import annotations_of
from kinema_rescheduler.logic.names import ROLLED, ROLLED_BY
from kinema_sim.engine.kinds import DEPLOYMENT, REPLICA_SET


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    """Serve the tiny cluster."""
    async with bench_in(tmp_path) as found:
        yield found


def undo(bench: Bench, template: Any) -> None:
    """As `kubectl rollout undo`: template and annotations of before, and the strategy of now."""

    def change(draft: dict[str, Any]) -> None:
        draft["spec"]["template"] = template
        draft["metadata"]["annotations"].pop(ROLLED)
        draft["metadata"]["generation"] += 1

    bench.world.sim.store.edit(DEPLOYMENT, ("shop", "web"), change)


async def under_a_roll(bench: Bench) -> str:
    """Roll web until all its pods are new, the controller's copy of our note included; gives its uid."""
    uid = bench.uid(bench.web())
    await bench.perform("roll", WEB, uid=uid, requests=FrozenMap({"cpu": 150}))
    await rolled(bench)
    note = annotations_of(bench.web())[ROLLED]
    for item in bench.world.sim.store.sorted(REPLICA_SET, "shop"):
        if ROLLED_BY in (item["spec"]["template"]["metadata"].get("annotations") or {}):
            bench.world.sim.store.edit(REPLICA_SET, ("shop", item["metadata"]["name"]), _noting(note))
    return uid


def _noting(note: str) -> Any:
    def change(draft: dict[str, Any]) -> None:
        draft["metadata"].setdefault("annotations", {})[ROLLED] = note

    return change


async def test_an_undo_leaves_nothing_of_our_strategy(bench: Bench) -> None:
    """The way back notes again what was there before, and the end gives the strategy back: the spec is the owner's."""
    before = bench.web()["spec"]
    uid = await under_a_roll(bench)
    undo(bench, before["template"])
    assert bench.web()["spec"]["strategy"] != before["strategy"]
    assert (await bench.perform("restore", WEB, uid=uid)).outcome == "done"
    await rolled(bench)
    assert (await bench.perform("roll-finish", WEB, uid=uid)).outcome == "done"
    assert bench.web()["spec"] == before
    marked = [item for item in bench.world.sim.store.sorted(REPLICA_SET, "shop") if ROLLED in annotations_of(item)]
    assert marked == []


async def test_a_roll_that_has_ended_is_not_noted_again(bench: Bench) -> None:
    """A copy of the note that came late, after the strategy was given back, brings nothing back to the Deployment."""
    uid = await under_a_roll(bench)
    note = annotations_of(bench.web())[ROLLED]
    await bench.perform("roll-finish", WEB, uid=uid)
    for item in bench.world.sim.store.sorted(REPLICA_SET, "shop"):
        bench.world.sim.store.edit(REPLICA_SET, ("shop", item["metadata"]["name"]), _noting(note))
    assert (await bench.perform("restore", WEB, uid=uid)).outcome == "adopted"
    assert ROLLED not in annotations_of(bench.web())
