"""`kill -9` of every service, and of the broker, while a plan is made and carried out.

Whatever dies, and wherever: the same nodes at the end, no machine bought twice, no pod moved twice, no workload below
its floor, and nothing of ours left behind.
"""

from __future__ import annotations

import asyncio
from itertools import chain
from pathlib import Path

import pytest
from tests.pipeline.pipeline_harness import EXPECTED_NODES, broken, check, run_strategies

from kinema_cli.local.demo import CLUSTER, Progress
from kinema_cli.local.pipeline import LocalPipeline
from kinema_core.events import AbortRequested
from kinema_core.runtime.clock import SystemClock
from kinema_core.runtime.envelope import origin
from kinema_rescheduler.service import FAULT_POINTS

pytestmark = pytest.mark.pipeline


def points_of(*kinds: str) -> tuple[str, ...]:
    """The rescheduler's fault points of these steps, in the order in which they are passed."""
    return tuple(point for kind in kinds for point in FAULT_POINTS if point.split(".")[1] == kind)


FORWARD = (
    ("boot", "surge-up", "surge-down", "delete"),
    ("taint", "roll", "finalize-rollout", "clear-preferred-nodes"),
    ("prefer-nodes", "evict", "finished"),
)
"""Steps of a plan; of one run, each is passed after those before it."""
BACKWARD = {"taint.done": ("untaint",), "roll.effected": ("revert", "aborted")}
"""Where an abort meets a plan → steps of the rollback, which follow each other."""


def test_every_fault_point_is_walked() -> None:
    """A new fault point cannot be forgotten here. No kubelet of the simulator resizes pods in place."""
    walked = set(points_of(*chain(*FORWARD, *BACKWARD.values())))
    assert walked == set(FAULT_POINTS) - set(points_of("resize"))


@pytest.mark.parametrize("steps", FORWARD, ids="-".join)
async def test_rescheduler_dies_at_every_point_of(steps: tuple[str, ...], tmp_path: Path) -> None:
    """Killed before the intent, after it, after the effect and after the outcome of each step, and around the end."""
    outcome = await run_strategies(tmp_path / "run", faults={"rescheduler": points_of(*steps)})
    assert outcome.struck
    check(outcome)


@pytest.mark.parametrize("met", BACKWARD)
async def test_rescheduler_dies_while_it_rolls_back(met: str, tmp_path: Path) -> None:
    """An operator aborts in the middle of a plan, and every step of the rollback is struck: nothing is left behind.

    The next iteration then reaches the same nodes. Machines of the first plan may have been booted for nothing.
    """
    kind, place = met.split(".")

    async def abort(pipeline: LocalPipeline, progress: Progress) -> bool:
        # The process dies here, so that no more of the plan is done before the abort is read.
        if not any(step.startswith(f"{kind}/") for step in (progress.done if place == "done" else progress.intended)):
            return False
        now = SystemClock().now()
        word = AbortRequested(by="test")
        await pipeline.bus.publish(origin(word, id_="test/operator/abort", cluster=CLUSTER, iteration="", now=now))
        return True

    points = (f"rescheduler.{met}", *points_of(*BACKWARD[met]))
    # All moves may have been under way when the abort came: then no other plan follows.
    faults = {"rescheduler": points}
    outcome = await run_strategies(tmp_path / "run", faults=faults, chaos=abort, until=lambda run: bool(run.ended))
    assert outcome.struck
    assert broken(outcome) == ()
    assert outcome.nodes == EXPECTED_NODES
    assert outcome.leftovers == ()
    assert outcome.report.audit is not None
    assert outcome.report.audit.violations == 0


async def test_the_other_services_die(tmp_path: Path) -> None:
    """Another service that is killed answers what it had not answered, and nothing twice."""
    faults = {
        "observer": ("observer.iteration.published", "observer.delta.published"),
        "predictor": ("predictor.before-answer",),
        "optimizer": ("optimizer.before-answer",),
        "decider": ("serve-after-handle", "serve-before-ack"),
    }
    outcome = await run_strategies(tmp_path / "run", faults=faults)
    assert outcome.struck
    check(outcome)


async def test_broker_dies(tmp_path: Path) -> None:
    """A broker that is killed while a plan is carried out, and comes back, costs time only."""

    async def strike(pipeline: LocalPipeline, progress: Progress) -> bool:
        if not progress.done:
            return False
        await asyncio.to_thread(pipeline.server.kill)
        await asyncio.sleep(2)
        await asyncio.to_thread(pipeline.server.start)
        return True

    outcome = await run_strategies(tmp_path / "run", chaos=strike)
    assert outcome.struck
    check(outcome)
