"""Workloads that a plan brings together on one node."""

from __future__ import annotations

from tests.support.builders import cluster, deployed, node, offer, pod
from tests.support.plans import plan_for

from kinema_core.events import RedundancyLoss
from kinema_core.model.redundancy import live_zone, redundancy_loss


def test_a_workload_is_named_whose_pods_all_come_to_one_node() -> None:
    """Not one that was on one node before, stays on two, or has a single pod; pods that wait count as pods."""
    on = cluster(
        [node(f"n{n}") for n in (1, 2, 3)],
        deployed("web", ["n1", "n2", "n3"]),
        deployed("api", ["n1", "n2", None]),
        deployed("two", ["n1", "n2", "n3"]),
        deployed("one", ["n2"]),
        deployed("same", ["n2", "n2"]),
        pod("bare", node="n3"),
    )
    to = {f"shop/{name}-{n}": "n1" for name in ("web", "api", "same") for n in range(3)} | {"shop/one-0": "n1"}
    to = {key: there for key, there in to.items() if key in on.pods_by_key}
    plan = plan_for(on, (offer("m4"),), to={**to, "shop/two-2": "n2"})
    assert redundancy_loss(plan, on) == (
        RedundancyLoss(workload="Deployment/shop/api", pods=3, nodes_before=2, node="n1"),
        RedundancyLoss(workload="Deployment/shop/web", pods=3, nodes_before=3, node="n1"),
    )
    assert redundancy_loss(plan_for(on, (offer("m4"),)), on) == ()


def test_the_zones_of_a_cluster_are_worked_out_once() -> None:
    """Whoever asks for every workload of thousands of nodes would else spend most of a plan's time here."""
    on = cluster([node("n1", zone="a"), node("n2", zone="b")])
    assert live_zone(on) is live_zone(on)
    assert [live_zone(on)(name) for name in ("n1", "n2", "n3")] == ["a", "b", "-"]
