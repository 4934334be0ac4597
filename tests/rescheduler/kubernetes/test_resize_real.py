"""Resizes in place on a real API server and its controllers. KWOK has no kubelet: a thread of the test plays it."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Literal

import pytest
from tests.controlplane.access import RefusedError
from tests.controlplane.plane import ControlPlane
from tests.rescheduler.plane_world import PlaneWorld, plane_world
from tests.support.plans import plan_for

from kinema_core.events import Offer, Plan, StepStarted
from kinema_core.model.cluster import Cluster
from kinema_kubernetes.objects import Json, generation
from kinema_rescheduler.kubernetes import resize
from kinema_rescheduler.kubernetes.fenced import connect
from kinema_rescheduler.kubernetes.janitor import Janitor
from kinema_rescheduler.kubernetes.rollout import observed
from kinema_rescheduler.names import RESIZING
from kinema_rescheduler.plan.limits import Limits

pytestmark = pytest.mark.cluster

NODES = ("old-1", "old-2")
STRATEGIC = "application/strategic-merge-patch+json"
Answer = Literal["resizes", "defers", "refuses"]


class Kubelet:
    """Reports what containers have, and resizes them, defers that, or finds it infeasible."""

    def __init__(self, world: PlaneWorld, answer: Answer) -> None:
        self._world = world
        self._answer = answer
        self._over = threading.Event()
        self._has: dict[str, Any] = {}
        self.resized: set[str] = set()
        """Uids of pods that were given other requests."""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.wait(0.2):
            with suppress(RefusedError, OSError):
                for pod in self._world.access.request("GET", self._world.path("Pod"))["items"]:
                    with suppress(RefusedError):  # it is gone by now
                        self._look_after(pod)

    def _look_after(self, pod: Any) -> None:
        uid, wanted = pod["metadata"]["uid"], pod["spec"]["containers"][0]["resources"]
        if pod["status"].get("phase") != "Running" or "containerStatuses" not in pod["status"]:
            return
        has = self._has.setdefault(uid, wanted)
        conditions = []
        if has != wanted and self._answer == "resizes":
            self._has[uid] = has = wanted
            self.resized.add(uid)
        elif has != wanted:
            reason = {"defers": "Deferred", "refuses": "Infeasible"}[self._answer]
            conditions = [{"type": "PodResizePending", "status": "True", "reason": reason, "message": "no room here"}]
        others = [item for item in pod["status"]["conditions"] if item["type"] != "PodResizePending"]
        status = {**pod["status"]["containerStatuses"][0], "resources": has, "allocatedResources": has["requests"]}
        if (others + conditions, status) == (pod["status"]["conditions"], pod["status"]["containerStatuses"][0]):
            return
        path = f"{self._world.path('Pod', pod['metadata']['name'])}/status"
        whole = {**pod, "status": {**pod["status"], "containerStatuses": [status], "conditions": others + conditions}}
        self._world.access.request("PUT", path, whole)

    def close(self) -> None:
        """Look after nothing any more."""
        self._over.set()
        self._thread.join()


@contextmanager
def kubelet(world: PlaneWorld, answer: Answer) -> Iterator[Kubelet]:
    """A kubelet whose reports are in the state."""
    playing = Kubelet(world, answer)
    try:
        yield playing
    finally:
        playing.close()


def smaller(world: PlaneWorld) -> Callable[[Cluster, tuple[Offer, ...]], Plan]:
    """Less CPU for each pod, on the node on which it is."""
    return lambda cluster, offers: plan_for(cluster, offers, resizes={world.key("Deployment", "web"): {"cpu": 120}})


def pods(world: PlaneWorld) -> dict[str, Any]:
    """The pods of the namespace by uid."""
    found = world.access.request("GET", world.path("Pod"))["items"]
    return {pod["metadata"]["uid"]: pod for pod in found if "deletionTimestamp" not in pod["metadata"]}


def cpu(pod: Any) -> str:
    """What its container requests."""
    return str(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"])


def running(world: PlaneWorld, **pod: Any) -> dict[str, Any]:
    """Three pods whose kubelet has reported what they have."""
    world.run("Deployment", "web", 3, **pod)
    for name in [one["metadata"]["name"] for one in pods(world).values()]:
        world.access.until(
            world.path("Pod", name), lambda found: "resources" in found["status"]["containerStatuses"][0]
        )
    return pods(world)


def begun(world: PlaneWorld) -> list[str]:
    """Return which ways to new requests were begun, in order."""
    bodies = (event.body for event in world.bus.events("LOG"))
    kinds = (body.step.kind for body in bodies if isinstance(body, StepStarted))
    return [kind for kind in kinds if kind in {"resize", "roll"}]


def check_followed(world: PlaneWorld) -> None:
    """The template requests what the pods do, and nothing of Kinema's is left."""
    deployment = world.get("Deployment", "web")
    assert deployment["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "120m"
    assert "paused" not in deployment["spec"]
    for item in (deployment, *world.access.request("GET", world.path("ReplicaSet"))["items"]):
        assert not [key for key in item["metadata"].get("annotations", {}) if key.startswith("kinema.io/")]


async def test_requests_change_without_a_restart(control_plane: ControlPlane, tmp_path: Path) -> None:
    """The same pods on the same nodes, none ever missing; the template has followed, and a later rollout works."""
    with plane_world(control_plane.admin, tmp_path, "resize-done", *NODES) as world, kubelet(world, "resizes") as node:
        before = running(world)
        watcher = world.watch()
        await world.carry_out(smaller(world), limits=Limits(), real_seconds=240)
        assert world.failures() == []
        after = pods(world)
        assert after.keys() == before.keys() == node.resized
        assert {cpu(pod) for pod in after.values()} == {"120m"}
        restarts = [status["restartCount"] for pod in after.values() for status in pod["status"]["containerStatuses"]]
        assert restarts == [0, 0, 0]
        assert watcher.least_ready[world.key("Deployment", "web")] == 3
        assert begun(world) == ["resize"]
        check_followed(world)
        sets = world.access.request("GET", world.path("ReplicaSet"))["items"]
        assert [item["spec"]["replicas"] for item in sets] == [3]
        labels = {"spec": {"template": {"metadata": {"labels": {"version": "2"}}}}}
        world.patch("Deployment", "web", labels)
        world.until(
            "Deployment",
            "web",
            lambda found: (
                found["status"].get("observedGeneration") == found["metadata"]["generation"]
                and {found["status"].get(key) for key in ("replicas", "updatedReplicas", "readyReplicas")} == {3}
            ),
        )
        assert {cpu(pod) for pod in pods(world).values()} == {"120m"}


@pytest.mark.parametrize("answer", ["defers", "refuses"])
async def test_what_a_kubelet_does_not_resize_is_rolled(
    answer: Answer, control_plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deferred for too long, or infeasible: the pods are replaced by a rolling update, and none is missing."""
    monkeypatch.setattr(resize, "_LOOKS", 3)
    with plane_world(control_plane.admin, tmp_path, f"resize-{answer}", *NODES) as world, kubelet(world, answer):
        before = running(world)
        watcher = world.watch()
        await world.carry_out(smaller(world), limits=Limits(), real_seconds=240)
        kinds = begun(world)
        assert kinds == ["resize", "roll"]
        after = pods(world)
        assert not after.keys() & before.keys()
        assert {cpu(pod) for pod in after.values()} == {"120m"}
        assert watcher.least_ready[world.key("Deployment", "web")] == 3
        check_followed(world)


async def test_a_policy_that_restarts_is_rolled(control_plane: ControlPlane, tmp_path: Path) -> None:
    """Where a container's `resizePolicy` would restart it for CPU, no resize in place is tried."""
    restart = [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]
    with plane_world(control_plane.admin, tmp_path, "resize-restarts", *NODES) as world, kubelet(world, "resizes"):
        container = {
            "name": "main",
            "image": "example/none:1",
            "resources": {"requests": {"cpu": "200m", "memory": "64Mi"}},
            "resizePolicy": restart,
        }
        running(world, containers=[container])
        await world.carry_out(smaller(world), limits=Limits(), real_seconds=240)
        assert begun(world) == ["roll"]


DIES: Final = """
import asyncio, sys, time
from kinema_core.events import FrozenMap, Step
from kinema_rescheduler.kubernetes.cluster import Order
from kinema_rescheduler.kubernetes.fenced import FencedClient, connect
from kinema_rescheduler.kubernetes.writer import KubernetesWriter

kubeconfig, target, write = sys.argv[1], sys.argv[2], int(sys.argv[3])
modify, writes = FencedClient.modify, 0

async def counted(*args, **options):
    global writes
    writes += 1
    if writes == write:
        print("here", flush=True)
        time.sleep(600)
    return await modify(*args, **options)

async def main():
    FencedClient.modify = counted
    step = Step(id="resize", kind="resize", target=target, requests=FrozenMap(cpu=120))
    await KubernetesWriter(await connect(kubeconfig)).perform(Order(step=step, plan="gone", iteration="it"))

asyncio.run(main())
"""
"""A process that resizes the pods of a Deployment, and stops before its nth write to it and its ReplicaSet."""


def kill_before(world: PlaneWorld, write: int) -> None:
    """Begin to resize in another process, and kill that before its nth write."""
    target = [str(world.kubeconfig), world.key("Deployment", "web"), str(write)]
    with subprocess.Popen([sys.executable, "-c", DIES, *target], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        process.kill()
    assert line == "here\n"


@pytest.mark.parametrize(("write", "cpu_after"), [(2, "200m"), (3, "120m"), (4, "120m")])
async def test_a_pause_of_a_kinema_that_is_gone_ends(
    write: int, cpu_after: str, control_plane: ControlPlane, tmp_path: Path
) -> None:
    """It was killed before the ReplicaSet, the template, or the end was written; an owner's pause stays as it is."""
    with plane_world(control_plane.admin, tmp_path, f"resize-dies-{write}", *NODES) as world, kubelet(world, "resizes"):
        before = running(world)
        kill_before(world, write)
        assert world.get("Deployment", "web")["spec"]["paused"]
        world.run("Deployment", "other", 1)
        world.patch("Deployment", "other", {"spec": {"paused": True}})
        api = await connect(str(world.kubeconfig))
        done = await Janitor(api).resume()
        await api.close()
        assert (done.removed, done.left) == ([f"Deployment {world.namespace}/web"], [])
        found = world.until(
            "Deployment", "web", lambda now: now["status"]["observedGeneration"] == now["metadata"]["generation"]
        )
        assert "paused" not in found["spec"]
        assert RESIZING not in found["metadata"]["annotations"]
        container = found["spec"]["template"]["spec"]["containers"][0]
        assert container["resources"]["requests"]["cpu"] == cpu_after
        assert world.get("Deployment", "other")["spec"]["paused"]
        sets = world.access.request("GET", f"{world.path('ReplicaSet')}?labelSelector=app%3Dweb")["items"]
        assert [item["spec"]["replicas"] for item in sets] == [3]
        after = {key: pod for key, pod in pods(world).items() if pod["metadata"]["labels"]["app"] == "web"}
        assert after.keys() == before.keys()
        assert {cpu(pod) for pod in after.values()} == {"120m"}


async def test_what_an_owner_changed_in_such_a_pause_stays(control_plane: ControlPlane, tmp_path: Path) -> None:
    """The ReplicaSet has the new requests, but the Deployment has its owner's: they are rolled out."""
    with plane_world(control_plane.admin, tmp_path, "resize-dies-edited", *NODES) as world, kubelet(world, "resizes"):
        running(world)
        kill_before(world, 3)
        container = world.get("Deployment", "web")["spec"]["template"]["spec"]["containers"][0]
        container["resources"]["requests"]["cpu"] = "250m"
        world.patch("Deployment", "web", {"spec": {"template": {"spec": {"containers": [container]}}}})
        api = await connect(str(world.kubeconfig))
        await Janitor(api).resume()
        await api.close()

        def rolled(now: Json) -> bool:
            return observed(now) == generation(now) and now["status"].get("updatedReplicas") == 3

        found = world.until("Deployment", "web", rolled)
        assert found["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "250m"
