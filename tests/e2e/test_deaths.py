"""`kill -9` of each of the five services while a plan is made and carried out on a real control plane.

Each process kills itself at one named point, the one that follows it at the next: whatever was under way is taken up
where it was left, nothing is bought or moved twice, and the goal is reached.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from tests.controlplane.plane import ControlPlane, Options, running
from tests.e2e.clouds import fake_gke, order_claims, raise_deployments, real_cluster_api, real_karpenter
from tests.e2e.small import MACHINE, NAMES, OLD_NODES, of_kwok
from tests.e2e.struck import Outcome, check, struck
from tests.e2e.test_faults import api_server_restarts
from tests.pipeline.test_kill_services import points_of

from kinema_core.events import ExecutionCompleted
from kinema_rescheduler.providers.karpenter import NODE_CLAIMS

pytestmark = pytest.mark.cluster

OTHERS: Mapping[str, Sequence[str]] = {
    "observer": ("observer.delta.published", "observer.iteration.published"),
    "predictor": ("predictor.before-answer",),
    "optimizer": ("optimizer.before-answer",),
    "decider": ("serve-after-handle", "serve-before-ack"),
}
"""Points of all services but the rescheduler."""


def check_finished(outcome: Outcome, *, alone: bool = True) -> None:
    """Every accepted plan was carried out, and no machine was bought twice."""
    check(outcome, alone=alone)
    assert outcome.ends == {ExecutionCompleted}
    plans = outcome.run.progress.accepted.values()
    booted = [node.name for plan in plans for node in plan.nodes if node.action == "boot"]
    assert len(booted) == len(set(booted)) == 1


@pytest.mark.faults
@pytest.mark.parametrize(
    "points",
    [
        points_of("boot", "taint", "prefer-nodes"),
        points_of("surge-up", "surge-down"),
        points_of("evict", "clear-preferred-nodes"),
        points_of("delete", "finished"),
    ],
    ids=["beginning", "surges", "evictions", "end"],
)
async def test_rescheduler_dies(points: Sequence[str], own_control_plane: ControlPlane, tmp_path: Path) -> None:
    """Before and after each intent, after each effect and each outcome, one death after the other."""
    check_finished(await struck(own_control_plane, tmp_path / "run", faults={"rescheduler": points}))


@pytest.mark.faults
@pytest.mark.parametrize("points", [points_of("boot"), points_of("delete", "finished")], ids=["boot", "delete"])
async def test_rescheduler_dies_on_karpenter(
    points: Sequence[str], own_control_plane: ControlPlane, tmp_path: Path
) -> None:
    """The same around orders and deletions of NodeClaims: what Karpenter pays for in the end is what the plan keeps."""
    with real_karpenter(own_control_plane, tmp_path) as cloud:
        outcome = await struck(
            own_control_plane,
            tmp_path / "run",
            faults={"rescheduler": points},
            cloud=cloud,
            nodes=lambda access: order_claims(access, tmp_path, MACHINE, NAMES),
        )
        own_control_plane.admin.until(NODE_CLAIMS, lambda found: not found["items"])  # while Karpenter can end them
    check_finished(outcome, alone=False)
    assert outcome.paid == sorted(outcome.auditor.now["Node"])


@pytest.mark.faults
@pytest.mark.parametrize("points", [points_of("boot"), points_of("delete", "finished")], ids=["boot", "delete"])
async def test_rescheduler_dies_on_gke(points: Sequence[str], own_control_plane: ControlPlane, tmp_path: Path) -> None:
    """The same around orders and deletions of instances of the fake GKE, with a node pool to make before the first."""
    of_kwok(own_control_plane.admin)
    with fake_gke(own_control_plane, tmp_path) as cloud:  # takes the nodes that are there for its own
        outcome = await struck(
            own_control_plane,
            tmp_path / "run",
            faults={"rescheduler": points},
            cloud=cloud,
            nodes=lambda _: None,
        )
    check_finished(outcome, alone=False)
    assert outcome.paid == sorted(outcome.auditor.now["Node"])


@pytest.mark.faults
@pytest.mark.parametrize("points", [points_of("boot"), points_of("delete", "finished")], ids=["boot", "delete"])
async def test_rescheduler_dies_on_cluster_api(points: Sequence[str], tmp_path: Path) -> None:
    """The same around orders and deletions of Machines of the real Cluster API."""
    sold = ("e2-standard-2", MACHINE)
    with (
        running(tmp_path / "plane", Options(node_silence_seconds=50)) as plane,
        real_cluster_api(plane, tmp_path, sold) as cloud,
    ):
        outcome = await struck(
            plane,
            tmp_path / "run",
            faults={"rescheduler": points},
            cloud=cloud,
            nodes=lambda access: raise_deployments(access, MACHINE, OLD_NODES),
        )
    check_finished(outcome, alone=False)
    assert outcome.paid == sorted(outcome.auditor.now["Node"])


@pytest.mark.faults
async def test_others_die(own_control_plane: ControlPlane, tmp_path: Path) -> None:
    """Observer, predictor, optimizer and decider answer what they had not answered, and nothing twice."""
    check_finished(await struck(own_control_plane, tmp_path / "run", faults=OTHERS))


async def test_all_services_and_the_api_server_die(own_control_plane: ControlPlane, tmp_path: Path) -> None:
    """The round for every day: each service is killed, the rescheduler twice, and the API server too."""
    rescheduler = ("rescheduler.surge-up.effected", "rescheduler.delete.effected")
    faults = {"rescheduler": rescheduler, **OTHERS}
    check_finished(await struck(own_control_plane, tmp_path / "run", api_server_restarts, faults=faults))
