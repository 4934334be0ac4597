"""Resizes in place: what kubelets report, when pods have other requests, and when they wait for them."""

from __future__ import annotations

import pytest
from tests.sim.builders import a_cluster, an_app, pods_of, with_deployment

from kinema_sim.api.errors import ApiError
from kinema_sim.api.kube import STRATEGIC_PATCH, Patch
from kinema_sim.api.subresources import resize
from kinema_sim.cluster import Cluster
from kinema_sim.engine.kinds import DEPLOYMENT, POD, REPLICA_SET
from kinema_sim.engine.objects import Obj, condition


def one_pod(cpu_m: int = 1000) -> tuple[Cluster, Obj]:
    """A pod on a node of almost four cores whose kubelet resizes pods."""
    sim = a_cluster(nodes=1)
    sim.resize_in_place()
    with_deployment(sim, an_app(cpu_m=cpu_m))
    return sim, pods_of(sim)[0]


def ask(sim: Cluster, pod: Obj, cpu: str) -> None:
    """Ask for other CPU."""
    name = pod["spec"]["containers"][0]["name"]
    body = {"spec": {"containers": [{"name": name, "resources": {"requests": {"cpu": cpu}}}]}}
    resize(sim.api, "shop", pod["metadata"]["name"], patch=Patch(body, STRATEGIC_PATCH))


def has(sim: Cluster) -> str:
    """CPU that the container has, as its kubelet says."""
    (status,) = pods_of(sim)[0]["status"]["containerStatuses"]
    assert status["restartCount"] == 0
    return str(status["resources"]["requests"]["cpu"])


def test_a_resize_takes_a_moment_and_no_restart() -> None:
    """The spec says at once what is wanted, the status what the container has."""
    sim, pod = one_pod()
    before = has(sim)
    ask(sim, pod, "1500m")
    sim.run_for(0.1)
    assert pods_of(sim)[0]["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "1500m"
    assert has(sim) == before
    sim.run_for(3)
    assert has(sim) == "1500m"
    assert pods_of(sim)[0]["metadata"]["uid"] == pod["metadata"]["uid"]
    found = sim.scheduler.books.bound(("shop", pod["metadata"]["name"]))
    assert found is not None
    assert found[0].requests["cpu"] == 1500


def test_a_resize_waits_for_room_on_the_node() -> None:
    """Deferred while another pod has the room, made once that is gone."""
    sim, pod = one_pod()
    with_deployment(sim, an_app("other", cpu_m=2000))
    ask(sim, pod, "3000m")
    sim.run_for(5)
    waiting = condition(pods_of(sim)[0], "PodResizePending")
    assert waiting is not None
    assert waiting["reason"] == "Deferred"
    assert has(sim) == "1000m"
    sim.store.remove(DEPLOYMENT, ("shop", "other"))
    sim.run_for(60)
    assert has(sim) == "3000m"
    assert condition(pods_of(sim)[0], "PodResizePending") is None


def test_a_resize_beyond_the_node_is_infeasible_until_it_is_taken_back() -> None:
    """No time helps; with the old requests nothing is pending."""
    sim, pod = one_pod()
    ask(sim, pod, "9000m")
    sim.run_for(30)
    waiting = condition(pods_of(sim)[0], "PodResizePending")
    assert waiting is not None
    assert waiting["reason"] == "Infeasible"
    ask(sim, pod, "1000m")
    sim.run_for(5)
    assert condition(pods_of(sim)[0], "PodResizePending") is None
    for cpu in ("9000m", "1200m"):
        ask(sim, pod, cpu)
        sim.run_for(5)
    assert has(sim) == "1200m"


def test_a_resize_changes_nothing_else() -> None:
    """An image is refused, and so is a pod that is not there."""
    sim, pod = one_pod()
    name = pod["spec"]["containers"][0]["name"]
    body = {"spec": {"containers": [{"name": name, "image": "other"}]}}
    with pytest.raises(ApiError) as refused:
        resize(sim.api, "shop", pod["metadata"]["name"], patch=Patch(body, STRATEGIC_PATCH))
    assert refused.value.code == 422
    with pytest.raises(ApiError) as missing:
        resize(sim.api, "shop", "absent", patch=Patch(body, STRATEGIC_PATCH))
    assert missing.value.code == 404


def test_kubelets_that_resize_nothing_report_nothing() -> None:
    """As before Kubernetes 1.33: the container's status has no resources."""
    sim = a_cluster(nodes=1)
    with_deployment(sim, an_app())
    assert "resources" not in pods_of(sim)[0]["status"]["containerStatuses"][0]
    assert sim.store.count(POD) == 1


def test_annotations_of_a_deployment_come_to_its_replica_set() -> None:
    """To the one that is there, too: by that a client sees that the controller has taken it for the current one."""
    sim = a_cluster(nodes=1)
    with_deployment(sim)

    def mark(draft: Obj) -> None:
        draft["metadata"].setdefault("annotations", {})["example.com/mark"] = "1"

    sim.store.edit(DEPLOYMENT, ("shop", "web"), mark)
    sim.run_for(2)
    (found,) = sim.store.each(REPLICA_SET)
    assert found["metadata"]["annotations"]["example.com/mark"] == "1"
