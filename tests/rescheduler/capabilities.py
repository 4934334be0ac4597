"""Everything that the rescheduler can do in a cluster, each thing by itself, on any API server that runs pods."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from typing import Any

import pytest
from tests.controlplane.nodes import QUICK

from kinema_core.events import FrozenMap, Step, StepKind, StepSucceeded
from kinema_core.runtime.clock import SystemClock
from kinema_core.runtime.envelope import origin
from kinema_kubernetes.claim import PATH as CLAIM
from kinema_kubernetes.claim import ClusterClaim
from kinema_kubernetes.errors import KubernetesError, NotFoundError
from kinema_kubernetes.objects import Json, pod_ready, uid
from kinema_rescheduler.errors import PermanentError, TransientError, effect_error
from kinema_rescheduler.kubernetes.cluster import Made, Order
from kinema_rescheduler.kubernetes.events import KubernetesEvents
from kinema_rescheduler.kubernetes.fenced import FencedClient
from kinema_rescheduler.kubernetes.janitor import Janitor
from kinema_rescheduler.kubernetes.landing import LandingKeeper
from kinema_rescheduler.kubernetes.volumes import Attachments, check_detached
from kinema_rescheduler.kubernetes.writer import KubernetesWriter
from kinema_rescheduler.names import FLOOR_BEFORE, LANDING_NAME, ROLLED, STEERING_NAME, STEERING_NAMESPACE

NAMESPACE = "capable"
ATTACHMENTS = "/apis/storage.k8s.io/v1/volumeattachments"
CONFIG_MAPS = f"/api/v1/namespaces/{STEERING_NAMESPACE}/configmaps"
PATIENCE_SECONDS = 60.0
_COLLECTIONS = {
    "Deployment": f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments",
    "ReplicaSet": f"/apis/apps/v1/namespaces/{NAMESPACE}/replicasets",
    "StatefulSet": f"/apis/apps/v1/namespaces/{NAMESPACE}/statefulsets",
    "ReplicationController": f"/api/v1/namespaces/{NAMESPACE}/replicationcontrollers",
}
_names = count(1)


@dataclass(frozen=True)
class Workload:
    """A workload of two pods, all Ready."""

    target: str
    path: str
    uid: str
    victim: str
    """Uid of one of its pods."""


@dataclass
class Ground:
    """A cluster: `admin` may do anything and prepares, `api` has the rights in question. `node` is one to mark."""

    admin: FencedClient
    api: FencedClient
    node: str

    async def perform(self, kind: StepKind, target: str, id_: str = "", **fields: Any) -> Made:
        """Make one step's effect with the rights in question."""
        step = Step(id=id_ or f"{kind}/{target}/1", kind=kind, target=target, **fields)
        return await KubernetesWriter(self.api).perform(Order(step=step, plan="plan-1", iteration="it-1"))

    async def workload(self, kind: str) -> Workload:
        """Make a workload of its own and wait until its pods are Ready."""
        name = f"w{next(_names)}"
        labels = {"app": name}
        container = {"name": "c", "image": "example/none:1", "resources": {"requests": {"cpu": "10m"}}}
        spec: Json = {
            "replicas": 2,
            "selector": labels if kind == "ReplicationController" else {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels, "annotations": dict(QUICK)},
                "spec": {"containers": [container], "terminationGracePeriodSeconds": 1},
            },
            **({"serviceName": name} if kind == "StatefulSet" else {}),
        }
        version = "v1" if kind == "ReplicationController" else "apps/v1"
        body = {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}
        made = await self.admin.create(_COLLECTIONS[kind], body)
        pods = await self.ready(name, 2)
        path = f"{_COLLECTIONS[kind]}/{name}"
        await self.until(path, lambda found: (found.get("status") or {}).get("readyReplicas") == 2)
        return Workload(f"{kind}/{NAMESPACE}/{name}", path, uid(made), uid(pods[0]))

    async def ready(self, app: str, pods: int) -> list[Json]:
        """Wait until a workload has so many Ready pods and no other."""
        path = f"/api/v1/namespaces/{NAMESPACE}/pods"
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                found = await self.admin.items(path, labelSelector=f"app={app}")
                if len(found) == pods and all(pod_ready(pod) for pod in found):
                    return found
                await asyncio.sleep(0.05)

    async def until(self, path: str, wanted: Callable[[Json], bool]) -> Json:
        """Wait until an object is as wanted."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not wanted(found := await self.admin.get(path)):  # noqa: ASYNC110 - nobody tells when it is so
                await asyncio.sleep(0.05)
        return found


async def _mark(ground: Ground) -> None:
    node = uid(await ground.admin.get(f"/api/v1/nodes/{ground.node}"))
    await ground.perform("taint", ground.node, f"taint/{ground.node}", uid=node)
    step = Step(id="d", kind="delete", target=ground.node, uid=node)
    with suppress(TransientError):  # other pods may run there; that they were looked at is all that counts here
        await KubernetesWriter(ground.api).check_deletable(Order(step=step, plan="plan-1", iteration="it-1"))
    await ground.perform("untaint", ground.node, uid=node)


async def _see_volumes(ground: Ground) -> None:
    name = f"v{next(_names)}"
    claims = f"/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims"
    wanted = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "volumeName": name}
    kind = {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
    await ground.admin.create(claims, {**kind, "metadata": {"name": name}, "spec": wanted})
    attached = await ground.admin.create(ATTACHMENTS, attachment(name, ground.node))
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]
    daemon = {"metadata": {"name": "daemon", "namespace": NAMESPACE}, "spec": {"volumes": volumes}}
    await check_detached(Attachments(ground.api), ground.node, [daemon])
    with pytest.raises(TransientError, match=name):
        await check_detached(Attachments(ground.api), ground.node, [])
    await ground.admin.delete(f"{ATTACHMENTS}/{name}", uid(attached))


def attachment(volume: str, node: str) -> Json:
    """A volume's attachment to a node, as the attach-detach controller makes it."""
    spec = {"attacher": "disk.example.com", "nodeName": node, "source": {"persistentVolumeName": volume}}
    kind = {"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment"}
    return {**kind, "metadata": {"name": volume}, "spec": spec}


async def _steer(ground: Ground) -> None:
    for number in (1, 2):
        await ground.perform("prefer-nodes", "StatefulSet/a/b", uid=f"uid-{number}", nodes=(ground.node,))
    found = await ground.admin.get(f"{CONFIG_MAPS}/{STEERING_NAME}")
    assert found["data"] == {"uid-1": ground.node, "uid-2": ground.node}
    await ground.perform("clear-preferred-nodes", "")
    found = await ground.admin.get(f"{CONFIG_MAPS}/{STEERING_NAME}")
    assert not found.get("data")


async def _lead(ground: Ground) -> None:
    made = await ground.workload("Deployment")
    metadata = {"name": f"{made.target.rpartition('/')[2]}-waits", "labels": {"app": made.target.rpartition("/")[2]}}
    spec = {"containers": [{"name": "c", "image": "example/none:1"}], "nodeSelector": {"nowhere": "true"}}
    pods = f"/api/v1/namespaces/{NAMESPACE}/pods"
    pod = await ground.admin.create(pods, {"metadata": metadata, "spec": spec})
    keeper = LandingKeeper(ground.api, clock=SystemClock(), patience_seconds=10)
    step = Step(id="p", kind="prefer-nodes", target=made.target, nodes=(ground.node,))
    await ground.until(f"{pods}/{metadata['name']}", lambda found: "conditions" in found["status"])  # it was tried
    await keeper.keep([step])
    found = await ground.admin.get(f"{pods}/{metadata['name']}")
    assert found["status"]["nominatedNodeName"] == ground.node
    await ground.admin.delete(f"{pods}/{metadata['name']}", uid(pod))
    await keeper.keep([])
    written = await ground.admin.get(f"{CONFIG_MAPS}/{LANDING_NAME}")
    assert not written.get("data")


async def _surge(ground: Ground, kind: str) -> None:
    made = await ground.workload(kind)
    fields: dict[str, Any] = {"uid": made.uid, "pods": (made.victim,)}
    await ground.perform("surge-up", made.target, replicas_from=2, replicas_to=3, **fields)
    await ground.ready(made.path.rpartition("/")[2], 3)
    await ground.until(made.path, lambda found: found["status"].get("readyReplicas") == 3)
    await ground.perform("surge-down", made.target, replicas_from=3, replicas_to=2, **fields)
    left = await ground.ready(made.path.rpartition("/")[2], 2)
    assert made.victim not in {uid(pod) for pod in left}


async def _hold(ground: Ground) -> None:
    made = await ground.workload("Deployment")
    name = made.path.rpartition("/")[2]
    scalers = f"/apis/autoscaling/v2/namespaces/{NAMESPACE}/horizontalpodautoscalers"
    target = {"type": "Utilization", "averageUtilization": 50}
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
        "minReplicas": 2,
        "maxReplicas": 2,
        "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
    }
    body = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": name}, "spec": spec}
    await ground.admin.create(scalers, body)
    fields: dict[str, Any] = {"uid": made.uid, "pods": (made.victim,)}
    await ground.perform("surge-up", made.target, replicas_from=2, replicas_to=3, **fields)
    held = await ground.admin.get(f"{scalers}/{name}")
    if FLOOR_BEFORE not in held["metadata"].get("annotations", {}):
        raise PermanentError("denied", "the autoscaler was not held")  # the surge itself goes on without
    await ground.perform("revert", made.target, replicas_from=3, replicas_to=2, **fields)
    assert (await ground.admin.get(f"{scalers}/{name}"))["spec"]["maxReplicas"] == 2


async def _roll(ground: Ground) -> None:
    made = await ground.workload("Deployment")
    before = {pod["metadata"]["name"] for pod in await ground.ready(made.path.rpartition("/")[2], 2)}
    await ground.perform("roll", made.target, uid=made.uid, requests=FrozenMap())
    async with asyncio.timeout(PATIENCE_SECONDS):
        while before & {  # noqa: ASYNC110 - nobody tells when it is so
            pod["metadata"]["name"] for pod in await ground.ready(made.path.rpartition("/")[2], 2)
        }:
            await asyncio.sleep(0.05)
    await ground.perform("finalize-rollout", made.target, uid=made.uid)


async def _resize(ground: Ground) -> None:
    made = await ground.workload("Deployment")
    app = made.path.rpartition("/")[2]

    async def report() -> None:
        for pod in await ground.ready(app, 2):
            resources = pod["spec"]["containers"][0]["resources"]
            status = {**pod["status"]["containerStatuses"][0], "resources": resources}
            path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod['metadata']['name']}/status"
            await ground.admin.patch(path, {"status": {"containerStatuses": [status]}})

    async def kubelet() -> None:
        while True:
            await report()
            await asyncio.sleep(0.1)

    await report()  # the API server refuses to resize a pod whose resources were never reported
    playing = asyncio.create_task(kubelet())
    try:
        await ground.perform("resize", made.target, uid=made.uid, requests=FrozenMap({"cpu": 12}))
    finally:
        playing.cancel()
    assert made.victim in {uid(pod) for pod in await ground.ready(app, 2)}


async def _evict(ground: Ground) -> None:
    made = await ground.workload("StatefulSet")
    await ground.perform("evict", made.target, uid=made.uid, pods=(made.victim,))


async def _tell(ground: Ground) -> None:
    made = await ground.workload("Deployment")
    step = Step(id=f"roll/{made.target}/1", kind="roll", target=made.target, uid=made.uid)
    done = StepSucceeded(plan="plan-1", step=step.id, fencing=1, outcome="done")
    event = origin(done, id_="told", cluster="c", iteration="it-1", now=datetime(2026, 3, 2, tzinfo=UTC))
    events = KubernetesEvents(ground.api, "test")
    events.report(event, step)
    await asyncio.gather(*events._open)
    found = await ground.admin.items(f"/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events")
    if made.uid not in {item["regarding"].get("uid") for item in found}:
        raise PermanentError("denied", "nothing was told")  # an execution goes on without


async def _tidy(ground: Ground) -> None:
    made = await ground.workload("Deployment")
    node = uid(await ground.admin.get(f"/api/v1/nodes/{ground.node}"))
    await ground.perform("taint", ground.node, uid=node)
    await ground.perform("roll", made.target, uid=made.uid, requests=FrozenMap(cpu=20))
    async with asyncio.timeout(PATIENCE_SECONDS):
        while left := (await Janitor(ground.api).tidy()).left:
            if any("denied" in text for text in left):
                raise PermanentError("denied", "; ".join(left))
            await asyncio.sleep(0.2)
    found = await ground.admin.get(made.path)
    assert ROLLED not in found["metadata"].get("annotations", {})
    assert found["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "10m"}


async def _claim(ground: Ground) -> None:
    try:
        await ClusterClaim(ground.api.client, "tests", process="test").take()
    except KubernetesError as error:
        raise effect_error(error) from error


CAPABILITIES: Mapping[str, Callable[[Ground], Awaitable[None]]] = {
    "mark a node": _mark,
    "see what a node has attached": _see_volumes,
    "steer new pods": _steer,
    "lead new pods": _lead,
    "surge a Deployment": lambda ground: _surge(ground, "Deployment"),
    "surge a ReplicaSet": lambda ground: _surge(ground, "ReplicaSet"),
    "surge a ReplicationController": lambda ground: _surge(ground, "ReplicationController"),
    "hold an autoscaler": _hold,
    "resize a Deployment": _resize,
    "roll a Deployment": _roll,
    "evict from a StatefulSet": _evict,
    "tell people": _tell,
    "tidy up after others": _tidy,
    "claim the cluster": _claim,
}
"""Each raises PermanentError `denied` where a right is missing."""


async def prepare(admin: FencedClient) -> None:
    """Make the namespace in which the workloads are made."""
    await admin.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})


async def clean_up(admin: FencedClient) -> None:
    """Delete the namespace while there are nodes on which its pods can end, and wait for that."""
    path = f"/api/v1/namespaces/{NAMESPACE}"
    await admin.client.request("DELETE", path)
    with suppress(NotFoundError):
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await admin.client.request("GET", path):  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.2)


async def forget_all(admin: FencedClient) -> None:
    """Take away the objects that are ours alone, so that their creation comes first again."""
    for path in (f"{CONFIG_MAPS}/{STEERING_NAME}", f"{CONFIG_MAPS}/{LANDING_NAME}", CLAIM):
        with suppress(NotFoundError):
            await admin.client.request("DELETE", path)
