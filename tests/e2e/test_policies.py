"""Policies of other systems in charge of a real control plane: their plans are executed as safely as Kinema's own."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.controlplane.plane import ControlPlane
from tests.e2e.small import OLD_NODES
from tests.e2e.struck import PATIENT, check, struck

from kinema_cli.local.settings import layered
from kinema_core.events import ExecutionCompleted
from kinema_optimizer.settings import PolicyName

pytestmark = pytest.mark.cluster

DELAY_SECONDS = 6.0
"""In place of ten minutes: from one iteration to the next."""


@pytest.mark.parametrize("policy", ["cluster-threshold", "promethee", "cluster-autoscaler"])
async def test_a_policy_in_charge_hurts_no_workload(
    policy: PolicyName, own_control_plane: ControlPlane, tmp_path: Path
) -> None:
    """Its first plan ends with fewer nodes, no workload below its floor, no mark left, and replays to the byte."""
    settings = layered(PATIENT, {"optimizer": {"policy": {"name": policy, "delay_seconds": DELAY_SECONDS}}})
    outcome = await struck(own_control_plane, tmp_path / "run", settings=settings, goal=False)
    check(outcome, alone=True)
    assert outcome.ends == {ExecutionCompleted}
    plans = list(outcome.run.progress.accepted.values())
    assert {plan.purpose for plan in plans} == {"policy"}
    assert {plan.objective for plan in plans} == {f"policy {policy}"}
    gone = sum(node.action == "delete" for plan in plans for node in plan.nodes)
    assert gone > 0
    assert len(outcome.auditor.now["Node"]) == OLD_NODES - gone
