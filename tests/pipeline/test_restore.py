"""The broker is lost in the middle of a plan and begins again with a backup."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest
from tests.pipeline.pipeline_harness import EXPECTED_NODES, OLD_NODES, broken, check, run_strategies

from kinema_cli.local.demo import Progress
from kinema_cli.local.pipeline import LocalPipeline
from kinema_cli.local.processes import Supervisor
from kinema_cli.replay.command import STAGES, replay_all
from kinema_core.runtime.backup import back_up, restore
from kinema_core.runtime.setup import Layout, setup

pytestmark = pytest.mark.pipeline


class Loss:
    """A backup in the middle of a plan, and the loss of the broker: at once, or when the plan has gone on."""

    def __init__(self, directory: Path, *, later: bool) -> None:
        self._copy = directory / "copy"
        self._data = directory / "run" / "nats" / "data"
        self._later = later
        self._intended = 0

    async def strike(self, pipeline: LocalPipeline, progress: Progress) -> bool:
        """Copy the streams during a surge; restore them once."""
        if not self._copy.exists():
            if any("surge-up" in step for step in progress.intended):
                if not self._later:
                    await pipeline.supervisor.stop()
                await back_up(pipeline.runtime("admin"), self._copy)
                self._intended = len(progress.intended)
            return False
        if self._later and len(progress.intended) == self._intended:
            return False
        await pipeline.supervisor.stop()
        await asyncio.to_thread(pipeline.server.stop)
        shutil.rmtree(self._data)
        await asyncio.to_thread(pipeline.server.start)
        admin = pipeline.runtime("admin")
        await restore(admin, self._copy)
        await setup(admin, Layout(clusters=(pipeline.options.cluster,)))
        pipeline.supervisor = Supervisor(list(pipeline.supervisor.children.values()))
        await pipeline.supervisor.start()
        return True


async def test_a_plan_goes_on_after_its_log_was_restored(tmp_path: Path) -> None:
    """Services ended, streams copied, wiped and restored: the same nodes, nothing twice, a replay equal to the byte."""
    outcome = await run_strategies(tmp_path / "run", chaos=Loss(tmp_path, later=False).strike)
    assert outcome.struck
    check(outcome)
    tally = await replay_all(outcome.recording, STAGES)
    assert set(tally.decided) == set(STAGES)
    assert tally.equal == tally.decided


async def test_steps_after_the_copy_are_not_taken_twice(tmp_path: Path) -> None:
    """The journal has lost steps that the cluster has seen: no machine is bought twice, nobody is hurt."""
    outcome = await run_strategies(tmp_path / "run", chaos=Loss(tmp_path, later=True).strike)
    assert outcome.struck
    assert outcome.nodes == EXPECTED_NODES
    assert outcome.leftovers == ()
    assert outcome.machines_ever == {"e2-standard-2": OLD_NODES, "e2-highcpu-2": len(EXPECTED_NODES)}
    assert outcome.report.audit is not None
    assert outcome.report.audit.violations == 0
    assert broken(outcome) == ()
