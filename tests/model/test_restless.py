"""Workloads that are not at rest: they stay where they are, and only they."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from msgspec.structs import replace
from tests.support.builders import NOW, cluster, deployed, deployment, node, pod, replica_set, stateful_set

from kinema_core.events import Autoscaler, AutoscalerMetric, ClusterObject
from kinema_core.model.cluster import Cluster
from kinema_core.model.mobility import MobilityOptions, mobility
from kinema_core.model.restless import count_workloads, restless_workloads


def scaler(current: int | None, *, now: int = 2, most: int = 5) -> Autoscaler:
    """An autoscaler of Deployment `web`, with its metric at `current` of 600."""
    metric = AutoscalerMetric(name="cpu", current=current, target=600)
    return Autoscaler(
        name="web",
        namespace="shop",
        uid="u-web",
        target_kind="Deployment",
        target_name="web",
        current=now,
        max_replicas=most,
        metrics=(metric,),
    )


def with_web(*more: ClusterObject | Iterable[ClusterObject]) -> Cluster:
    """Two Deployments of two pods at rest, and more."""
    return cluster(node("n1"), node("n2"), deployed("web", ["n1", "n2"]), deployed("api", ["n1", "n2"]), *more)


def short(ready: int) -> Cluster:
    """The same, with so many of the pods of `web` Ready."""
    web = replica_set("web-rs", replicas=2, owner=deployment("web", replicas=2), ready=ready)
    return with_web(web)


@pytest.mark.parametrize(
    ("state", "code"),
    [
        (with_web(), None),
        (short(1), "not-ready"),
        (with_web(deployment("web", replicas=2, updated=1)), "rollout"),
        (with_web(deployment("web", replicas=2, generation=3)), "rollout"),
        (with_web(scaler(660)), None),
        (with_web(scaler(661)), "above-target"),
        (with_web(scaler(None)), None),
        (with_web(scaler(900, now=5)), "saturated"),
    ],
)
def test_a_restless_workload_holds_its_own_pods_only(state: Cluster, code: str | None) -> None:
    """Whatever is going on in a workload: its pods stay, those of others move as if nothing was."""
    found = restless_workloads(state)
    assert [(key, why.code) for key, why in found.items()] == ([] if code is None else [("Deployment/shop/web", code)])
    held = mobility(state, NOW).held
    assert {key for key, item in held.items() if item.code == "restless"} == (
        set() if code is None else {"shop/web-0", "shop/web-1"}
    )
    assert {"shop/api-0", "shop/api-1"} <= mobility(state, NOW).strategy.keys()
    executing = mobility(state, NOW, MobilityOptions(hold_restless=False))
    assert executing.held == {}, "moves of Kinema's own are no rest"


def test_a_pod_that_waits_for_a_node_is_no_unrest() -> None:
    """A plan brings its room; the replicas that are there need not wait for that."""
    db = stateful_set("db", replicas=2, ready=1)
    waits = pod("db-1", owner=db, unschedulable=True)
    assert restless_workloads(cluster(node("n1"), db, pod("db-0", node="n1", owner=db), waits)) == {}
    fresh = replace(waits, unschedulable=False)
    assert restless_workloads(cluster(node("n1"), db, pod("db-0", node="n1", owner=db), fresh)).keys() == {db.key}


def test_workloads_are_counted_once() -> None:
    """Two replica sets of a Deployment in the middle of a rollout are one workload."""
    web = deployment("web", replicas=2, updated=1)
    sets = (replica_set("web-1", replicas=1, owner=web), replica_set("web-2", replicas=1, owner=web))
    assert count_workloads(cluster(web, *sets, stateful_set("db"))) == 2
