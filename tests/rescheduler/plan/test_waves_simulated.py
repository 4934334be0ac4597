"""A plan in waves beside the simulated cluster: two pods change places on two full nodes."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.rescheduler.sim_world import SimWorld, sim_world
from tests.support.plans import plan_for

from kinema_core.events import ExecutionCompleted, Offer, Plan
from kinema_core.model.checker.check import check_plan
from kinema_core.model.cluster import Cluster
from kinema_core.model.sequencing.waves import order_transition, with_steps
from kinema_sim.cluster import Cluster as SimCluster
from kinema_sim.engine.kinds import DEPLOYMENT, NAMESPACE, NODE
from kinema_sim.scenarios.objects import App, deployment, namespace

ZONE = "europe-west3-a"


def two_full_nodes() -> SimCluster:
    """Two small nodes with one pod of each of two Deployments, and no room for a third pod anywhere."""
    sim = SimCluster(0)
    for name in ("full-1", "full-2"):
        sim.cloud.adopt(name, sim.cloud.offers[f"e2-standard-2/{ZONE}/on-demand"], labels={})
    for name in ("default", "kube-system", "shop"):
        sim.store.create(NAMESPACE, namespace(name))
    for name in ("alfa", "bravo"):
        app = App(name, "shop", f"example/{name}:1", cpu_m=900, memory_mi=256, replicas=2)
        sim.store.create(DEPLOYMENT, deployment(app))
    sim.run_for(60)
    return sim


def homes(world: SimWorld) -> dict[str, list[str]]:
    """Workloads of the living pods, by node."""
    found: dict[str, list[str]] = {}
    for pod in world.cluster().pods:
        if not pod.terminating:
            found.setdefault(pod.node or "", []).append(pod.name.partition("-")[0])
    return {name: sorted(pods) for name, pods in sorted(found.items())}


@pytest.mark.slow
async def test_a_swap_on_full_nodes_over_http(tmp_path: Path) -> None:
    """A node is booted for the way and deleted again; both workloads keep all their replicas ready throughout."""
    made: list[Plan] = []

    def swapped(cluster: Cluster, offers: tuple[Offer, ...]) -> Plan:
        here = next(pod for pod in cluster.pods if pod.name.startswith("alfa") and pod.node == "full-1")
        there = next(pod for pod in cluster.pods if pod.name.startswith("bravo") and pod.node == "full-2")
        now = world.clock.now()
        plan = plan_for(cluster, offers, to={here.key: "full-2", there.key: "full-1"}, now=now)
        found = with_steps(plan, order_transition(plan, cluster, offers, now=now))
        assert check_plan(found, cluster, offers, now, ordered=True) == ()
        made.append(found)
        return found

    async with sim_world(two_full_nodes(), tmp_path) as world:
        assert homes(world) == {"full-1": ["alfa", "bravo"], "full-2": ["alfa", "bravo"]}
        end = await world.carry_out(swapped)
        assert isinstance(end, ExecutionCompleted), world.failures()
        assert world.failures() == []
        assert len(made[0].temporary) == 1
        assert end.figures["booted"] == end.figures["deleted"] == 1
        assert homes(world) == {"full-1": ["bravo", "bravo"], "full-2": ["alfa", "alfa"]}
        assert [item["metadata"]["name"] for item in world.sim.store.sorted(NODE)] == ["full-1", "full-2"]
        assert world.least_ready == {"Deployment/shop/alfa": 2, "Deployment/shop/bravo": 2}
        assert world.marks_left() == []
