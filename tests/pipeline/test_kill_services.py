"""`kill -9` of every service, and of the broker, while a plan is made and carried out.

Whatever dies, and wherever: the same nodes at the end, no machine bought twice, no pod moved twice, no workload below
its floor, and nothing of ours left behind.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kinema_cli.pipeline import LocalPipeline
from kinema_cli.progress import Progress
from kinema_rescheduler.service import FAULT_POINTS
from tests.pipeline.pipeline_harness import Outcome, run_strategies

pytestmark = pytest.mark.pipeline

EXPECTED_NODES = ("e2-highcpu-2", "e2-highcpu-2")
OLD_NODES = 6
MOVES = {"Deployment shop/web": 3, "Deployment shop/api": 2, "StatefulSet shop/store": 2}


def check(outcome: Outcome) -> None:
    """What holds after every run, struck or not."""
    assert outcome.nodes == EXPECTED_NODES
    assert outcome.leftovers == ()
    assert outcome.machines_ever == {"e2-standard-2": OLD_NODES, "e2-highcpu-2": len(EXPECTED_NODES)}
    assert outcome.pods_created == MOVES
    audit = outcome.report.audit
    assert audit is not None
    assert {item.workload: item.violations for item in audit.workloads if item.violations} == {}


async def test_undisturbed(tmp_path: Path) -> None:
    """Without any fault the pipeline reaches the cheapest nodes by each of the three strategies."""
    outcome = await run_strategies(tmp_path / "run")
    check(outcome)
    assert outcome.report.headline.strategies == {"surge": 3, "rolling": 2, "evict": 2}


@pytest.mark.parametrize("point", FAULT_POINTS)
async def test_rescheduler_dies_at(point: str, tmp_path: Path) -> None:
    """The rescheduler goes on from its journal wherever it was killed."""
    outcome = await run_strategies(tmp_path / "run", fault=("rescheduler", point))
    assert outcome.struck
    check(outcome)


@pytest.mark.parametrize(
    ("service", "point"),
    [
        ("observer", "observer.delta.published"),
        ("observer", "observer.iteration.published"),
        ("predictor", "predictor.before-answer"),
        ("optimizer", "optimizer.before-answer"),
        ("decider", "serve-after-handle"),
        ("decider", "serve-before-ack"),
    ],
)
async def test_service_dies_at(service: str, point: str, tmp_path: Path) -> None:
    """Another service that is killed answers what it had not answered, and nothing twice."""
    outcome = await run_strategies(tmp_path / "run", fault=(service, point))
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
