"""All five services on a real control plane whose machines are a cloud's: Karpenter's, Cluster API's, the fake GKE's.

After a peak the plan is held, approved and executed; what is paid for in the end is what the plan keeps and buys.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
from benchmarks.karpenter import POOL
from tests.controlplane.access import Access
from tests.controlplane.plane import ControlPlane, Options, running
from tests.e2e import shop
from tests.e2e.auditor import Auditor
from tests.e2e.clouds import Cloud, fake_gke, raise_deployments, real_cluster_api, real_karpenter
from tests.e2e.pipeline_run import CLUSTER, SETTINGS, Run, carried_out, cost, optimum, own_rights
from tests.history.checker import violations
from tests.pipeline.pipeline_harness import Strikes

from kinema_cli.admin.setup import Steering, steer
from kinema_cli.local.demo import Progress
from kinema_cli.local.pipeline import LocalPipeline
from kinema_cli.local.settings import layered
from kinema_core.events import ExecutionCompleted, PlanApprovalRequested, PlanApproved, PlanRejected
from kinema_core.runtime.bus import Stored
from kinema_core.runtime.envelope import origin

pytestmark = [pytest.mark.cluster, pytest.mark.long]

HELD: Final = layered(SETTINGS, {"decider": {"limits": {"approval": "required", "cooldown_seconds": 5.0}}})
"""Settings by service with which plans wait for an operator."""
SOLD: Final = ("e2-standard-2", "e2-standard-16")
"""Machine types of the fake GKE and of MachineDeployments.

With every type on sale, the bound that seconds prove is 8% below the plan."""
RESULT: Final = Path("out/e2e")
ROUNDING: Final = 1e-6


@dataclass
class Operator:
    """Approves each plan that is held, once; done when all of those have ended and no plan follows."""

    approved: list[str] = field(default_factory=list)

    async def __call__(self, pipeline: LocalPipeline, progress: Progress) -> bool:
        """Approve what waits."""
        over = set(progress.ended)
        events = [item.event async for item in pipeline.bus.read("LOG", start=1) if isinstance(item, Stored)]
        for event in events:
            match event.body:
                case PlanRejected(plan=plan):
                    over.add(plan)
                case PlanApprovalRequested(plan=plan) if plan not in self.approved:
                    self.approved.append(plan)
                    body, where = PlanApproved(plan=plan, by="operator"), event.iteration
                    approval = origin(
                        body,
                        id_=f"{plan}/approval",
                        cluster=CLUSTER,
                        iteration=where,
                        now=event.time,
                        state=event.state,
                    )
                    await pipeline.bus.publish(approval)
        return bool(self.approved) and over.issuperset(self.approved)


@contextmanager
def karpenter(plane: ControlPlane, folder: Path) -> Iterator[Cloud]:
    """The real Karpenter, which has bought the nodes of the peak and leaves them alone afterwards."""
    with real_karpenter(plane, folder) as cloud:
        _sell(plane.admin, shop.MACHINE)  # else it buys one machine for all, which nothing can replace
        shop.live_through_the_peak(plane.admin)
        _sell(plane.admin)
        yield cloud


def _sell(access: Access, *machines: str) -> None:
    """Let the NodePool buy these machine types alone; none named: all."""
    wanted = [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}]
    wanted += [{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": [*machines]}] if machines else []
    body = {"spec": {"template": {"spec": {"requirements": wanted}}}}
    access.request("PATCH", POOL, body, content_type="application/merge-patch+json")


@contextmanager
def gke(plane: ControlPlane, folder: Path) -> Iterator[Cloud]:
    """The fake GKE, whose large nodes are replaced by smaller ones, as those that stay have too little room."""
    shop.create_in_two_pools(plane.admin)
    with fake_gke(plane, folder, SOLD) as cloud:
        yield cloud


@contextmanager
def cluster_api(plane: ControlPlane, folder: Path) -> Iterator[Cloud]:
    """The real Cluster API, whose large nodes are replaced by smaller ones."""
    with real_cluster_api(plane, folder, SOLD) as cloud:
        shop.create_in_two_pools(
            plane.admin, lambda cores, count: raise_deployments(plane.admin, f"e2-standard-{cores}", count)
        )
        yield cloud


CLOUDS: Final[Mapping[str, Callable[[ControlPlane, Path], AbstractContextManager[Cloud]]]] = {
    "karpenter": karpenter,
    "gke": gke,
    "cluster-api": cluster_api,
}


@dataclass(frozen=True)
class Outcome:
    """One whole run on one cloud."""

    cloud: Cloud
    planned: Any
    """Costs that `kinema plan` printed before."""
    run: Run
    auditor: Auditor
    operator: Operator
    cost: float
    """USD per hour in the end."""
    after: Mapping[str, Any]
    """Nodes in the end, by name."""
    paid: list[str]

    @property
    def bound(self) -> float:
        """USD per hour that no plan for the cluster as it was costs less than: the best bound of any that was proven.

        On a busy machine the clock may end a plan before its bound is known.
        """
        first = next(iter(self.run.progress.accepted.values()))
        return float(max(self.planned["lower_bound"], first.cost.lower_bound))

    @property
    def before(self) -> Mapping[str, Any]:
        """Nodes in the beginning, by name."""
        return self.auditor.before["Node"]

    def planned_nodes(self, action: str) -> list[Any]:
        """Nodes of accepted plans that are deleted or booted."""
        return [one for plan in self.run.progress.accepted.values() for one in plan.nodes if one.action == action]

    def figures(self) -> dict[str, object]:
        """For people: what it came to."""
        return {
            "nodes": {"before": len(self.before), "after": len(self.after)},
            "cost": self.planned,
            "usd_per_hour": round(self.cost, 4),
            "bound": self.bound,
            "over_bound": round(self.cost / self.bound - 1, 5),
            "plans": len(self.run.progress.accepted),
            "booted": len(self.planned_nodes("boot")),
            "deleted": len(self.planned_nodes("delete")),
            "moves": sum(plan.moves for plan in self.run.progress.accepted.values()),
            "seconds": round(self.run.seconds, 1),
            "changes_audited": self.auditor.changes,
            "flaws": self.auditor.flaws,
            "leftovers": self.auditor.leftovers(),
        }


@pytest.fixture(scope="module", params=tuple(CLOUDS))
def outcome(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outcome]:
    """The run on each cloud that the tests of this module look at."""
    folder = tmp_path_factory.mktemp(request.param)
    options = Options(node_silence_seconds=50)
    with running(folder / "plane", options) as plane, CLOUDS[request.param](plane, folder) as cloud:
        access = plane.admin
        planned = optimum(access, folder, str(cloud.provider["catalog"]))["cost"]
        # Without the policy, pods that miss their nodes end a plan at times: its rest follows without approval.
        asyncio.run(steer(Steering(access.write_kubeconfig(folder / "admin.kubeconfig"), on=True)))
        auditor, operator = Auditor(access, shop.UNTOUCHABLE), Operator()
        with auditor.watching():
            run = asyncio.run(
                carried_out(
                    folder / "run",
                    own_rights(access, request.param),
                    settings=HELD,
                    strikes=Strikes(chaos=operator),
                    provider=cloud.provider,
                )
            )
            after = dict(auditor.now["Node"])
            found = Outcome(cloud, planned, run, auditor, operator, cost(after.values(), folder), after, cloud.paid())
        RESULT.mkdir(parents=True, exist_ok=True)
        (RESULT / f"{request.param}.json").write_text(json.dumps(found.figures(), indent=2) + "\n")
        yield found


def test_approved_plans_are_executed_to_the_end(outcome: Outcome) -> None:
    """Each plan was held, approved by name, accepted, and came to its end with every step done."""
    progress = outcome.run.progress
    assert progress.accepted
    assert set(progress.accepted) <= set(outcome.operator.approved)
    assert {type(end) for end in progress.ended.values()} == {ExecutionCompleted}


def test_cost_is_within_half_a_percent_of_the_bound(outcome: Outcome) -> None:
    """The cluster costs less than before, and at most 0.5% more than any plan can reach."""
    assert outcome.cost < outcome.planned["before"]
    assert outcome.bound > 0
    assert outcome.bound <= outcome.cost + ROUNDING
    assert outcome.cost <= 1.005 * outcome.bound + ROUNDING


def test_plans_buy_and_delete(outcome: Outcome) -> None:
    """What is left after the peak is cheaper on other machines; on nodes that Karpenter chose it may fit as well."""
    assert outcome.planned_nodes("boot") or outcome.cloud.kind == "karpenter"
    assert outcome.planned_nodes("delete")


def test_exactly_the_planned_nodes_come_and_go(outcome: Outcome) -> None:
    """Deleted are the nodes that plans delete, and new nodes are of the machines that they boot, one for each."""
    gone = outcome.before.keys() - outcome.after.keys()
    new = [outcome.after[name] for name in outcome.after.keys() - outcome.before.keys()]
    planned = {one.name for one in outcome.planned_nodes("delete")}
    assert gone == planned & outcome.before.keys()
    booted = Counter((one.machine_type, one.zone) for one in outcome.planned_nodes("boot") if one.name not in planned)
    assert Counter(_machine(node) for node in new) == booted


def test_paid_for_is_what_the_plan_keeps_and_buys(outcome: Outcome) -> None:
    """The cloud's own list of machines is the cluster's list of nodes: none bought twice, none orphaned."""
    assert outcome.paid == sorted(outcome.after)


def test_no_pod_was_missing(outcome: Outcome) -> None:
    """No workload below its floor, no budget broken, nothing untouchable moved, nothing left behind."""
    assert outcome.auditor.changes > 0
    assert outcome.auditor.gaps == 0
    assert outcome.auditor.flaws == []
    assert outcome.auditor.leftovers() == []


def test_events_break_no_invariant_and_replay(outcome: Outcome) -> None:
    """Each effect was intended, in order, once, on fresh state; and the same events lead to the same decisions."""
    assert violations(outcome.run.history) == ()
    assert outcome.run.replayed() == ""


def _machine(node: Mapping[str, Any]) -> tuple[str, str]:
    labels = node["metadata"]["labels"]
    return labels["node.kubernetes.io/instance-type"], labels["topology.kubernetes.io/zone"]
