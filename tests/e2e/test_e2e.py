"""All five services on a real control plane, watched by an auditor who does not know them."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from tests.controlplane.plane import ControlPlane
from tests.e2e.auditor import Auditor
from tests.e2e.pipeline_run import Run, carried_out, cost, optimum, own_rights
from tests.e2e.shop import OLD_NODES, UNTOUCHABLE, create
from tests.history.checker import violations

from kinema_cli.admin.setup import Steering, steer
from kinema_core.events import ExecutionCompleted

pytestmark = pytest.mark.cluster

RESULT: Final = Path("out/e2e/result.json")
"""Figures of the last run, for people."""


@dataclass(frozen=True)
class Outcome:
    """One whole run."""

    planned: Any
    """What `kinema plan` said before."""
    run: Run
    auditor: Auditor
    cost: float
    """USD per hour at the end."""
    nodes: list[dict[str, Any]]
    leftovers: list[str]

    @property
    def planned_places(self) -> Counter[tuple[str, str]]:
        """Pods that plans moved, by workload and node."""
        placements = [one for plan in self.run.progress.accepted.values() for one in plan.placements]
        return Counter(
            (self.auditor.workload_of(one.pod), one.to) for one in placements if one.source and one.to != one.source
        )

    @property
    def places(self) -> Counter[tuple[str, str]]:
        """Pods that came up meanwhile, by workload and node."""
        return Counter((workload, node) for workload, nodes in self.auditor.starts.items() for node in nodes)

    @property
    def share_as_planned(self) -> float:
        """Of the pods that plans moved, those whose successor came up on the planned node."""
        return (self.planned_places & self.places).total() / self.planned_places.total()

    def figures(self) -> dict[str, object]:
        """For people: what it came to."""
        planned = self.planned_places
        return {
            "nodes": {"before": OLD_NODES, "after": len(self.nodes)},
            "usd_per_hour": {"before": self.planned["cost"]["before"], "after": self.cost},
            "optimum": self.planned["cost"],
            "seconds": round(self.run.seconds, 1),
            "moves": planned.total(),
            "as_planned": (planned & self.places).total(),
            "share_as_planned": round(self.share_as_planned, 4),
            "pods_started": self.places.total(),
            "changes_audited": self.auditor.changes,
            "flaws": self.auditor.flaws,
            "leftovers": self.leftovers,
        }


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory, own_control_plane: ControlPlane) -> Outcome:
    """The run that the tests of this module look at."""
    folder = tmp_path_factory.mktemp("e2e")
    access = own_control_plane.admin
    create(access)
    planned = optimum(access, folder)
    asyncio.run(steer(Steering(access.write_kubeconfig(folder / "admin.kubeconfig"), on=True)))
    auditor = Auditor(access, UNTOUCHABLE)
    with auditor.watching():
        run = asyncio.run(carried_out(folder / "run", own_rights(access)))
        nodes = list(auditor.now["Node"].values())
        found = Outcome(planned, run, auditor, cost(nodes, folder), nodes, auditor.leftovers())
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    RESULT.write_text(json.dumps(found.figures(), indent=2) + "\n")
    return found


def test_reaches_the_cost_that_the_rules_allow(outcome: Outcome) -> None:
    """After the last plan the cluster costs at most 5 % more than the least that was possible before."""
    assert len(outcome.nodes) < OLD_NODES
    assert outcome.cost <= 1.05 * outcome.planned["cost"]["after"]


def test_nobody_was_hurt(outcome: Outcome) -> None:
    """No workload below its floor, no budget broken, nothing untouchable moved, at any moment."""
    assert outcome.auditor.changes > 0
    assert outcome.auditor.gaps == 0
    assert outcome.auditor.flaws == []


def test_the_events_break_no_invariant(outcome: Outcome) -> None:
    """Whatever was done was intended, in order, once, on fresh state, and taken back."""
    assert violations(outcome.run.history) == ()


def test_leaves_nothing_behind(outcome: Outcome) -> None:
    """No label, taint, cordon, steering, surplus replica or patched template is left."""
    assert outcome.leftovers == []


def test_pods_lie_where_the_plan_says(outcome: Outcome) -> None:
    """With the admission policy in force, at least 95 of 100 moved pods come up on the planned node."""
    assert outcome.share_as_planned >= 0.95


def test_everything_accepted_was_finished(outcome: Outcome) -> None:
    """Each accepted plan came to its end, with every step done at the first try or a later one."""
    progress = outcome.run.progress
    assert progress.accepted
    assert {type(end) for end in progress.ended.values()} == {ExecutionCompleted}


def test_the_auditor_sees_harm(own_control_plane: ControlPlane, outcome: Outcome, tmp_path: Path) -> None:
    """Hurt by hand, the same auditor tells: a pod deleted, a node marked, an untouchable pod gone."""
    access = own_control_plane.admin
    auditor = Auditor(access, UNTOUCHABLE)
    pods = access.request("GET", "/api/v1/namespaces/teastore/pods?labelSelector=app%3Dteastore-webui")["items"]
    path = f"/api/v1/nodes/{outcome.nodes[0]['metadata']['name']}"
    with auditor.watching():
        access.request("DELETE", f"/api/v1/namespaces/teastore/pods/{pods[0]['metadata']['name']}")
        access.request("DELETE", "/api/v1/namespaces/tools/pods/bare")
        mark = {"metadata": {"labels": {"kinema.io/disrupted": "x"}}}
        access.request("PATCH", path, mark, content_type="application/merge-patch+json")
        access.until(path, lambda node: "kinema.io/disrupted" in node["metadata"]["labels"])
        found = _eventually(auditor)
    assert any("Deployment teastore/teastore-webui" in flaw for flaw in found)
    assert any("untouchable pod tools/bare" in flaw for flaw in found)
    assert any("kinema.io/disrupted" in left for left in auditor.leftovers())


def _eventually(auditor: Auditor) -> list[str]:
    for _ in range(100):
        if len(auditor.flaws) >= 2:
            break
        time.sleep(0.1)
    return auditor.flaws
