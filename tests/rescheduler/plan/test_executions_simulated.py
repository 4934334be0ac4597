"""The real adapters against the simulated API server and cloud."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.rescheduler.sim_world import sim_world
from tests.support.planning import unguarded
from tests.support.plans import plan_for

from kinema_core.events import ExecutionAborted, ExecutionCompleted, Offer, Plan
from kinema_core.model.cluster import Cluster
from kinema_optimizer.planning.planner import plan_for as optimal_plan
from kinema_rescheduler.plan.limits import Limits
from kinema_sim.engine.kinds import NODE
from kinema_sim.scenarios.registry import SCENARIOS


def onto_one_new_node(cluster: Cluster, offers: tuple[Offer, ...]) -> Plan:
    """Everything on a new node of the same type, all others deleted."""
    to = {pod.key: "kinema-1" for pod in cluster.pods}
    offer = next(item for item in offers if item.machine_type == "e2-standard-2")
    return plan_for(cluster, offers, to=to, boot={"kinema-1": offer.name}, delete=[node.name for node in cluster.nodes])


def onto_the_first(cluster: Cluster, offers: tuple[Offer, ...]) -> Plan:
    """Everything on the first node."""
    to = {pod.key: "tiny-1" for pod in cluster.pods}
    return plan_for(cluster, offers, to=to, delete=["tiny-2", "tiny-3"])


@pytest.mark.slow
async def test_boot_move_delete_over_http(tmp_path: Path) -> None:
    """A whole plan through the API server and the cloud: planned nodes, no dip, nothing of ours left."""
    async with sim_world(SCENARIOS["tiny"](0), tmp_path) as world:
        end = await world.carry_out(onto_one_new_node)
        assert isinstance(end, ExecutionCompleted), world.failures()
        assert [item["metadata"]["name"] for item in world.sim.store.sorted(NODE)] == ["kinema-1"]
        assert world.least_ready == {"Deployment/shop/api": 2, "Deployment/shop/web": 3}
        assert world.marks_left() == []
        assert world.failures() == []


@pytest.mark.slow
async def test_resize_rolls_over_http(tmp_path: Path) -> None:
    """New requests arrive in the template's containers by a rolling update; the strategy is as before."""

    def resized(cluster: Cluster, offers: tuple[Offer, ...]) -> Plan:
        to = {pod.key: "tiny-1" for pod in cluster.pods}
        resizes = {"Deployment/shop/web": {"cpu": 150, "memory": 100 * 2**20}}
        return plan_for(cluster, offers, to=to, delete=["tiny-2", "tiny-3"], resizes=resizes)

    async with sim_world(SCENARIOS["tiny"](0), tmp_path) as world:
        end = await world.carry_out(resized)
        assert isinstance(end, ExecutionCompleted), world.failures()
        pods = [pod for pod in world.cluster().pods if pod.name.startswith("web-")]
        assert {(pod.requests["cpu"], pod.requests["memory"]) for pod in pods} == {(150, 100 * 2**20)}
        assert {pod.node for pod in pods} == {"tiny-1"}
        web = world.cluster().workload("Deployment/shop/web")
        assert web is not None
        assert (web.max_surge, web.max_unavailable) == ("25%", "25%")
        assert world.least_ready["Deployment/shop/web"] == 3


async def test_stock_out_over_http(tmp_path: Path) -> None:
    """A sold-out offer ends the plan with the cluster as it was."""
    sim = SCENARIOS["tiny"](0)
    async with sim_world(sim, tmp_path) as world:
        sim.cloud.sold_out.update(name for name in sim.cloud.offers if name.startswith("e2-standard-2/"))
        end = await world.carry_out(onto_one_new_node)
        assert isinstance(end, ExecutionAborted)
        assert end.reason == "stock-out"
        assert len(world.sim.store.sorted(NODE)) == 3
        assert world.marks_left() == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "ends"),
    [
        ("boot", "adopted"),
        ("taint", "adopted"),
        ("surge-up", "adopted"),
        ("surge-down", "adopted"),
        ("delete", "adopted"),
    ],
)
async def test_killed_after_an_effect_finds_it_made(tmp_path: Path, kind: str, ends: str) -> None:
    """Killed between an effect and its outcome, the next process finds the effect made and makes none."""
    async with sim_world(SCENARIOS["tiny"](0), tmp_path) as world:
        end = await world.carry_out(onto_one_new_node, crash_at=f"rescheduler.{kind}.effected")
        assert isinstance(end, ExecutionCompleted), world.failures()
        assert world.crashes == 1
        prefix = (f"{kind}/",)
        assert ends in {outcome for step, outcome in world.outcomes().items() if step.startswith(prefix)}
        assert [item["metadata"]["name"] for item in world.sim.store.sorted(NODE)] == ["kinema-1"]
        assert world.least_ready == {"Deployment/shop/api": 2, "Deployment/shop/web": 3}
        assert world.marks_left() == []


@pytest.mark.slow
async def test_pods_that_never_get_ready_over_http(tmp_path: Path) -> None:
    """A surge whose pods stay not Ready is taken back on the API server too: replicas, costs, marks."""
    sim = SCENARIOS["tiny"](0)
    async with sim_world(sim, tmp_path) as world:
        sim.kubelets.never_ready.add(("shop", "web"))
        end = await world.carry_out(onto_one_new_node, limits=Limits(pods_ready_seconds=30))
        assert isinstance(end, ExecutionCompleted), world.failures()
        assert any(said.startswith("skip/Deployment/shop/web pods-never-ready") for said in world.failures())
        web = world.cluster().workload("Deployment/shop/web")
        assert web is not None
        assert web.replicas == 3
        assert world.least_ready["Deployment/shop/web"] == 3
        assert world.marks_left() == []


@pytest.mark.slow
async def test_after_the_peak_with_autoscalers(tmp_path: Path) -> None:
    """The demo's cluster with autoscalers, budgets and a StatefulSet ends exactly as the optimizer says."""
    sim = SCENARIOS["after-peak"](0)
    async with sim_world(sim, tmp_path, speed=20.0) as world:
        before = {scaler.key: (scaler.min_replicas, scaler.max_replicas) for scaler in world.cluster().autoscalers}
        made: list[Plan] = []

        def plan(cluster: Cluster, offers: tuple[Offer, ...]) -> Plan:
            made.append(optimal_plan(cluster, offers, now=world.clock.now(), settings=unguarded()))
            return made[0]

        end = await world.carry_out(plan)
        assert isinstance(end, ExecutionCompleted), world.failures()
        assert {item.name for item in made[0].nodes if item.action != "delete"} == {
            item["metadata"]["name"] for item in sim.store.sorted(NODE)
        }
        desired = {item.key: item.replicas for item in world.cluster().workloads}
        dips = {key: least for key, least in world.least_ready.items() if least < desired[key]}
        assert dips == {"StatefulSet/teastore/teastore-db": 1}
        after = {scaler.key: (scaler.min_replicas, scaler.max_replicas) for scaler in world.cluster().autoscalers}
        assert after == before
        assert end.figures["workloads_skipped"] == 0
        assert world.marks_left() == []
