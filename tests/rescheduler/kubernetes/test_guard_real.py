"""The guard on a real API server: of what a stolen token could write with its rights, only what Kinema does passes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.controlplane.access import Access, RefusedError
from tests.controlplane.nodes import node, nodes_for_a_while
from tests.controlplane.plane import ControlPlane
from tests.rescheduler.capabilities import CAPABILITIES, NAMESPACE, Ground, clean_up, forget_all, prepare

from kinema_kubernetes.objects import Json
from kinema_kubernetes.rights import account, as_written
from kinema_rescheduler.kubernetes.fenced import connect
from kinema_rescheduler.kubernetes.guard import NAME, guard
from kinema_rescheduler.kubernetes.rights import rules
from kinema_rescheduler.names import DISRUPTED
from kinema_rescheduler.providers.kwok import FAKE, LEDGER

pytestmark = pytest.mark.cluster

HOME = "kinema-guarded"
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
SYSTEM = "/api/v1/namespaces/kube-system/configmaps"
NODE = "/api/v1/nodes/guarded-1"
SHOP = f"/apis/apps/v1/namespaces/{NAMESPACE}"
WEB = f"{SHOP}/deployments/web"
SCALER = f"/apis/autoscaling/v2/namespaces/{NAMESPACE}/horizontalpodautoscalers/web"
PATIENCE_SECONDS = 60.0
LIMITS = {"limits": {"cpu": "1"}}
SIDECAR = {"name": "evil", "image": "example/evil:1"}


def template(**spec: object) -> Json:
    """A change of a Deployment's pods."""
    return {"spec": {"template": {"spec": spec}}}


def config_map(name: str) -> Json:
    """A new ConfigMap."""
    return {"metadata": {"name": name}, "data": {"mapRoles": "- rolearn: evil"}}


def taint(key: str, effect: str) -> Json:
    """A taint of a node."""
    return {"spec": {"taints": [{"key": key, "effect": effect}]}}


HOSTILE: dict[str, tuple[str, str, Json]] = {
    "an image of a Deployment": ("PATCH", WEB, template(containers=[{"name": "c", "image": "example/evil:1"}])),
    "a command of a Deployment": ("PATCH", WEB, template(containers=[{"name": "c", "command": ["sh"]}])),
    "a container more": ("PATCH", WEB, template(containers=[SIDECAR])),
    "an init container": ("PATCH", WEB, template(initContainers=[SIDECAR])),
    "the host's namespaces": ("PATCH", WEB, template(hostPID=True, hostNetwork=True)),
    "a service account": ("PATCH", WEB, template(serviceAccountName="admin")),
    "a volume of the host": ("PATCH", WEB, template(volumes=[{"name": "h", "hostPath": {"path": "/"}}])),
    "limits of a container": (
        "PATCH",
        WEB,
        template(containers=[{"name": "c", "resources": {"limits": {"cpu": "1"}}}]),
    ),
    "replicas beside the scale": ("PATCH", WEB, {"spec": {"replicas": 0}}),
    "labels of pods": ("PATCH", WEB, {"spec": {"template": {"metadata": {"labels": {"x": "y"}}}}}),
    "an annotation of others": ("PATCH", WEB, {"metadata": {"annotations": {"example.com/owner": "evil"}}}),
    "finalizers": ("PATCH", WEB, {"metadata": {"finalizers": ["example.com/evil"]}}),
    "no replica at all": ("PATCH", f"{WEB}/scale", {"spec": {"replicas": 0}}),
    "a hundred replicas": ("PATCH", f"{WEB}/scale", {"spec": {"replicas": 100}}),
    "the image of a pod": ("PATCH", "POD", {"spec": {"containers": [{"name": "c", "image": "example/evil:1"}]}}),
    "a label of a pod": ("PATCH", "POD", {"metadata": {"labels": {"app": "other"}}}),
    "the end of a pod": ("PATCH", "POD/status", {"status": {"phase": "Succeeded"}}),
    "a label of a pod beside its status": ("PATCH", "POD/status", {"metadata": {"labels": {"app": "other"}}}),
    "an eviction without mercy": ("POST", "POD/eviction", {"deleteOptions": {"gracePeriodSeconds": 0}}),
    "an eviction of any pod of a name": ("POST", "POD/eviction", {}),
    "a label of a node": ("PATCH", NODE, {"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}}),
    "a taint that evicts": ("PATCH", NODE, taint("kinema.io/disrupted", "NoExecute")),
    "a taint of others": ("PATCH", NODE, taint("example.com/evil", "NoSchedule")),
    "a cordon": ("PATCH", NODE, {"spec": {"unschedulable": True}}),
    "a node in use": ("DELETE", NODE, {}),
    "a node of its own": ("POST", "/api/v1/nodes", {"metadata": {"name": "evil"}}),
    "who is an administrator of EKS": ("POST", SYSTEM, config_map("aws-auth")),
    "what CoreDNS answers": ("POST", SYSTEM, config_map("coredns-custom")),
    "a lease of others": (
        "POST",
        "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases",
        {"metadata": {"name": "kube-scheduler-2"}},
    ),
    "a revision of ReplicaSets": ("PATCH", "SET", {"metadata": {"annotations": {"example.com/owner": "evil"}}}),
    "the selector of a ReplicaSet": ("PATCH", "SET", {"spec": {"minReadySeconds": 3600}}),
    "an autoscaler's target": ("PATCH", SCALER, {"spec": {"scaleTargetRef": {"name": "other"}}}),
    "an autoscaler's limit": ("PATCH", SCALER, {"spec": {"maxReplicas": 1000}}),
}
"""What a token of the rescheduler must not do, by what it would change; its rights alone allow it."""

BOOTED = "/api/v1/nodes/guarded-booted"
PROVIDED: tuple[tuple[str, str, Json], ...] = (
    ("POST", SYSTEM, {"metadata": {"name": LEDGER}}),
    ("POST", "/api/v1/nodes", {"metadata": {"name": "guarded-booted", "annotations": {FAKE: "fake"}}}),
    ("PATCH", BOOTED, {"metadata": {"labels": {DISRUPTED: "it-1"}}}),
    ("DELETE", BOOTED, {}),
)
"""What a provider of nodes does."""


@pytest.fixture
def guarded(control_plane: ControlPlane) -> Iterator[Access]:
    """A rescheduler's account with all its rights, under the guard."""
    admin = control_plane.admin
    user = f"system:serviceaccount:{HOME}:{account('rescheduler')}"
    token = admin.account(HOME, account("rescheduler"), [as_written(rule) for rule in rules("kwok")])
    policy, binding = guard(user)
    for path, item in ((POLICIES, policy), (BINDINGS, binding)):
        kind = {"apiVersion": item["apiVersion"], "kind": item["kind"]}
        admin.apply(f"{path}/{NAME}", kind, spec=item["spec"])
    admin.until(f"{POLICIES}/{NAME}", lambda found: found.get("status", {}).get("observedGeneration"))
    yield token
    for path in (BINDINGS, POLICIES):
        admin.request("DELETE", f"{path}/{NAME}")


@pytest.fixture
async def ground(control_plane: ControlPlane, guarded: Access, tmp_path: Path) -> AsyncIterator[Ground]:
    """Nodes, a namespace, and connections with all rights and under the guard."""
    admin_access = control_plane.admin
    with nodes_for_a_while(admin_access, node("guarded-1"), node("guarded-2")):
        admin = await connect(str(admin_access.write_kubeconfig(tmp_path / "admin")))
        mine = await connect(str(guarded.write_kubeconfig(tmp_path / "account")))
        await prepare(admin)
        await forget_all(admin)
        yield Ground(admin, mine, "guarded-1")
        await clean_up(admin)
        await mine.close()
        await admin.close()
        with suppress(RefusedError):
            await asyncio.to_thread(admin_access.request, "DELETE", f"{SYSTEM}/{LEDGER}")


def attempt(access: Access, method: str, path: str, body: Json) -> str:
    """Return why a write was refused; empty where it was made."""
    kinds = {"PATCH": "application/strategic-merge-patch+json"}
    try:
        access.request(method, path, body, content_type=kinds.get(method, "application/json"))
    except RefusedError as error:
        return str(error.body.get("message", error.body))
    return ""


async def test_a_stolen_token_writes_only_what_the_rescheduler_does(
    control_plane: ControlPlane, guarded: Access, ground: Ground
) -> None:
    """Every hostile write is refused by the guard, and everything that the rescheduler does still passes."""
    admin = control_plane.admin
    made = await ground.workload("Deployment")
    labels = {"app": "web"}
    container = {"name": "c", "image": "example/none:1"}
    spec = {
        "replicas": 2,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
    }
    await asyncio.to_thread(admin.request, "POST", f"{SHOP}/deployments", {"metadata": {"name": "web"}, "spec": spec})
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    await asyncio.to_thread(
        admin.request,
        "POST",
        SCALER.rpartition("/")[0],
        {"metadata": {"name": "web"}, "spec": {"scaleTargetRef": target, "minReplicas": 2, "maxReplicas": 3}},
    )
    name = made.path.rpartition("/")[2]
    pod = (await ground.ready(name, 2))[0]["metadata"]["name"]
    (replicas,) = await ground.admin.items(f"{SHOP}/replicasets", labelSelector=f"app={name}")
    places = {
        "POD": f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}",
        "SET": f"{SHOP}/replicasets/{replicas['metadata']['name']}",
    }
    async with asyncio.timeout(PATIENCE_SECONDS):  # the API server enforces a new policy after a moment
        seen = {"metadata": {"annotations": {"example.com/seen": "no"}}}
        while not attempt(guarded, "PATCH", WEB, seen):  # noqa: ASYNC110 - nobody tells when it does
            await asyncio.sleep(0.2)
    passed = {}
    for what, (method, path, body) in HOSTILE.items():
        eviction: Json = {}
        place = path.replace("POD", places["POD"]).replace("SET", places["SET"])
        if path.endswith("/eviction"):
            eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}, **body}
        why = await asyncio.to_thread(attempt, guarded, method, place, eviction or body)
        if NAME not in why:
            passed[what] = why
    assert passed == {}
    for do in CAPABILITIES.values():
        await do(ground)
    for method, path, body in PROVIDED:
        assert await asyncio.to_thread(attempt, guarded, method, path, body) == ""


async def test_others_are_not_bound(control_plane: ControlPlane, guarded: Access) -> None:
    """The guard concerns the rescheduler's account alone."""
    assert attempt(control_plane.admin, "POST", SYSTEM, config_map("kinema-test-other")) == ""
    control_plane.admin.request("DELETE", f"{SYSTEM}/kinema-test-other")
