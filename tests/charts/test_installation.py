"""The umbrella chart in a real control plane: installed, tested, upgraded, rolled back, uninstalled.

KWOK runs no containers: pods are admitted, scheduled and called Ready, and Jobs are called done.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from tests.charts.helm import CHARTS, WHOLE, Helm, Values, needed
from tests.controlplane.access import Access, RefusedError
from tests.controlplane.nodes import add_nodes, node
from tests.controlplane.plane import ControlPlane
from tools.release import VERSION
from tools.settings_reference import SERVICES

from kinema_cli.admin.rbac import rules_by_service
from kinema_kubernetes.rights import as_written

pytestmark = pytest.mark.cluster

SPACE: Final = "kinema-installed"
_DEPLOYMENTS: Final = f"/apis/apps/v1/namespaces/{SPACE}/deployments"
OLDER: Final = Path(__file__).parent / "data" / "kinema-0.0.9.tgz"
_GROUPS: Final = ("apps/v1", "batch/v1", "rbac.authorization.k8s.io/v1", "policy/v1", "networking.k8s.io/v1")
_PODS: Final = f"/api/v1/namespaces/{SPACE}/pods"


@pytest.fixture(scope="module")
def helm(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Helm for a cluster with a node and a namespace that takes only pods of the restricted standard."""
    folder = tmp_path_factory.mktemp("helm")
    admin = control_plane.admin
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    admin.ensure("/api/v1/namespaces", {"metadata": {"name": SPACE, "labels": labels}})
    add_nodes(admin, *(node(f"charts-{number}", zone="zone-a") for number in range(3)))
    return Helm(control_plane.programs["helm"], folder, admin.write_kubeconfig(folder / "kubeconfig"))


def did(helm: Helm, *arguments: str, values: Values | None = None) -> str:
    """Run a command that must succeed."""
    done = helm.run(*arguments, "--namespace", SPACE, values=values)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(helm: Helm, control_plane: ControlPlane) -> Iterator[str]:
    """A release of all that the umbrella has."""
    yield did(helm, "install", "kinema", str(CHARTS / "kinema"), values=WHOLE)
    helm.run("uninstall", "kinema", "--namespace", SPACE)
    control_plane.admin.remove_namespace(SPACE)


def test_pods_are_admitted_under_the_restricted_standard(installed: str, control_plane: ControlPlane) -> None:
    """No controller is refused a pod; the hook's account and rights are gone with it."""
    admin = control_plane.admin
    found = admin.until(_DEPLOYMENTS, lambda found: all(map(is_ready, found["items"])))
    assert sorted(one["metadata"]["name"] for one in found["items"]) == [
        "kinema-decider",
        "kinema-observer",
        "kinema-optimizer",
        "kinema-optimizer-worker",
        "kinema-predictor",
        "kinema-rescheduler",
    ]
    admin.until(f"{_PODS}/kinema-nats-0", lambda found: found.get("kind") == "Pod")
    assert names(admin, f"/api/v1/namespaces/{SPACE}/serviceaccounts") == [
        "default",
        "kinema-observer",
        "kinema-rescheduler",
    ]
    assert "under the name c1" in installed


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("service", ["observer", "rescheduler"])
def test_rights_are_exactly_those_that_the_service_states(control_plane: ControlPlane, service: str) -> None:
    """With the token of its pods, a service may do what its rules say and nothing more."""
    rules = rules_by_service("kwok")[service]
    for space in (SPACE, "default", "kube-system"):
        own = rights_of_account(control_plane.admin, f"kinema-{service}", space)
        of_all = rights_of_account(control_plane.admin, "default", space)
        wanted = [as_written(rule) for rule in rules if rule.namespace in {"", space}]
        assert single(own) - single(of_all) == single(wanted)


@pytest.mark.usefixtures("installed")
def test_helm_test_asks_every_service(helm: Helm, control_plane: ControlPlane) -> None:
    """One pod for each service and the broker; the test succeeds when all of them do, and fails with one."""
    assert run_tests(helm, control_plane.admin, "Failed")
    assert run_tests(helm, control_plane.admin, "Succeeded") == {
        f"kinema-{name}-test" for name in ("nats", "observer", "predictor", "optimizer", "decider", "rescheduler")
    }


@pytest.mark.usefixtures("installed")
def test_upgrade_rollback_and_uninstallation(helm: Helm, control_plane: ControlPlane) -> None:
    """From an older chart to this one and back: pods follow, and the broker's passwords and volume stay to the end.

    Nothing else of the release stays, and its notes and docs/uninstall.md list what does.
    """
    admin = control_plane.admin
    did(helm, "uninstall", "kinema", "--wait")
    did(helm, "install", "kinema", str(OLDER), values=WHOLE)
    assert image(admin) == "ghcr.io/kinema/kinema-decider:0.0.9"
    secret = admin.request("GET", f"/api/v1/namespaces/{SPACE}/secrets/kinema-nats")
    volume = f"/api/v1/namespaces/{SPACE}/persistentvolumeclaims/data-kinema-nats-0"
    claim = admin.until(volume, lambda found: found.get("kind") == "PersistentVolumeClaim")
    changed = {**WHOLE, "decider": {"settings": {"limits": {"approval": "required"}}}}
    did(helm, "upgrade", "kinema", str(CHARTS / "kinema"), values=changed)
    assert image(admin) == f"ghcr.io/kinema/kinema-decider:{VERSION}"
    assert "required" in settings(admin)
    admin.until(_DEPLOYMENTS, lambda found: all(map(is_ready, found["items"])))
    notes = did(helm, "get", "notes", "kinema")
    did(helm, "rollback", "kinema", "1")
    assert image(admin) == "ghcr.io/kinema/kinema-decider:0.0.9"
    assert "required" not in settings(admin)
    admin.until(_DEPLOYMENTS, lambda found: all(map(is_ready, found["items"])))
    did(helm, "uninstall", "kinema", "--wait")
    admin.until(_PODS, lambda found: not found["items"])
    left = objects_left(admin, SPACE)
    assert left == {("secrets", "kinema-nats"), ("persistentvolumeclaims", "data-kinema-nats-0")}
    page = (CHARTS.parent / "docs/uninstall.md").read_text(encoding="utf-8")
    assert all(name in notes and name in page for _, name in left)
    assert admin.request("GET", f"/api/v1/namespaces/{SPACE}/secrets/kinema-nats")["data"] == secret["data"]
    assert admin.request("GET", volume)["metadata"]["uid"] == claim["metadata"]["uid"]
    did(helm, "install", "kinema", str(CHARTS / "kinema"), values=WHOLE)


def test_each_service_alone(helm: Helm, control_plane: ControlPlane) -> None:
    """As a release of its own, for a broker that exists: pods come up, and nothing stays after them."""
    admin, space = control_plane.admin, "kinema-alone"
    broker = {"existingSecret": "broker", "passwordKey": "password", "url": "nats://nats.elsewhere:4333"}
    for service in SERVICES:
        chart = f"kinema-{service}"
        arguments = (service, str(CHARTS / chart), "--namespace", space, "--create-namespace")
        done = helm.run("install", *arguments, values={**needed(chart), "nats": broker})
        assert done.returncode == 0, done.stderr
        assert f"The {service} of cluster c1 uses the broker at nats://nats.elsewhere:4333." in done.stdout
        assert "Its pod waits for the Secret broker, key password." in done.stdout
    found = admin.until(
        f"/apis/apps/v1/namespaces/{space}/deployments", lambda found: all(map(is_ready, found["items"]))
    )
    assert len(found["items"]) == len(SERVICES)
    for service in SERVICES:
        done = helm.run("uninstall", service, "--namespace", space)
        assert done.returncode == 0, done.stderr
    admin.until(f"/api/v1/namespaces/{space}/pods", lambda found: not found["items"])
    assert objects_left(admin, space) == set()


def objects_left(admin: Access, space: str) -> set[tuple[str, str]]:
    """Return every object of a namespace that Kubernetes itself did not make, and the roles outside it."""
    found = set()
    for api in ("/api/v1", *(f"/apis/{one}" for one in _GROUPS)):
        for kind in admin.request("GET", api)["resources"]:
            if kind["namespaced"] and "list" in kind["verbs"] and kind["name"] not in {"events", "pods"}:
                found |= {(kind["name"], name) for name in names(admin, f"{api}/namespaces/{space}/{kind['name']}")}
    roles = "/apis/rbac.authorization.k8s.io/v1"
    for kind in ("clusterroles", "clusterrolebindings", "namespaces/kube-system/roles"):
        found |= {(kind, name) for name in names(admin, f"{roles}/{kind}") if name.startswith(space)}
    return found - {("configmaps", "kube-root-ca.crt"), ("serviceaccounts", "default")}


def is_ready(deployment: Any) -> bool:
    """Return whether all pods of a Deployment are there as it wants them."""
    status = deployment.get("status", {})
    return bool(
        status.get("readyReplicas") == deployment["spec"]["replicas"]
        and status.get("observedGeneration") == deployment["metadata"]["generation"]
    )


def names(access: Access, path: str) -> list[str]:
    """Return the names of the objects of a collection, sorted."""
    return sorted(one["metadata"]["name"] for one in access.request("GET", path)["items"])


def image(admin: Access) -> str:
    """Return the image that the decider's pods are to have."""
    found = admin.request("GET", f"{_DEPLOYMENTS}/kinema-decider")
    return str(found["spec"]["template"]["spec"]["containers"][0]["image"])


def settings(admin: Access) -> str:
    """Return the decider's settings."""
    return str(admin.request("GET", f"/api/v1/namespaces/{SPACE}/configmaps/kinema-decider")["data"]["settings.json"])


def rights_of_account(admin: Access, name: str, space: str) -> Sequence[Any]:
    """Return the rules that the API server applies to an account in a namespace."""
    path = f"/api/v1/namespaces/{SPACE}/serviceaccounts/{name}/token"
    token = admin.request("POST", path, {"spec": {"expirationSeconds": 600}})["status"]["token"]
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {"namespace": space}}
    review = replace(admin, token=token).request("POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", body)
    rules: Sequence[Any] = review["status"]["resourceRules"]
    return rules


def single(rules: Sequence[Any]) -> set[tuple[str, str, str, str]]:
    """Return rules as single rights: group, resource, verb and name."""
    return {
        (group, resource, verb, name)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        for name in rule.get("resourceNames") or ("",)
    }


def run_tests(helm: Helm, admin: Access, phase: str) -> set[str]:
    """Run `helm test` and end its pods, which KWOK leaves running, in a phase; return the pods that ran."""
    seen: set[str] = set()
    with ThreadPoolExecutor(1) as pool:
        testing = pool.submit(helm.run, "test", "kinema", "--namespace", SPACE)
        while not testing.done():
            for pod in admin.request("GET", _PODS)["items"]:
                name = pod["metadata"]["name"]
                if name.endswith("-test") and pod["status"]["phase"] == "Running":
                    seen.add(name)
                    end(admin, name, phase)
            time.sleep(0.1)
    assert testing.result().returncode == (0 if phase == "Succeeded" else 1), testing.result().stderr
    return seen


def end(admin: Access, name: str, phase: str) -> None:
    """Let a pod end in a phase."""
    try:
        body = {"status": {"phase": phase, "containerStatuses": None}}
        admin.request("PATCH", f"{_PODS}/{name}/status", body, content_type="application/merge-patch+json")
    except RefusedError as error:
        if error.status != 404:
            raise
