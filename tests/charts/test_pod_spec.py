"""How a pod becomes a call of `docker run`, without an engine."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any, Final

import pytest
from tests.charts.pod_spec import NotUnderstoodError, Pod, Surroundings, Translation

POD: Final[dict[str, Any]] = {
    "metadata": {"name": "p-1", "namespace": "n", "uid": "u-1", "labels": {}},
    "spec": {
        "serviceAccountName": "account",
        "enableServiceLinks": False,
        "nodeName": "engine",
        "schedulerName": "default-scheduler",
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 7,
        "securityContext": {"runAsUser": 65532, "runAsGroup": 65532, "runAsNonRoot": True, "fsGroup": 65532},
        "containers": [
            {
                "name": "c",
                "image": "i:1",
                "command": ["python", "-m"],
                "args": ["x"],
                "env": [
                    {"name": "PLAIN", "value": "v"},
                    {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "s", "key": "password"}}},
                    {"name": "CONFIG", "valueFrom": {"configMapKeyRef": {"name": "s", "key": "file"}}},
                    {"name": "NAME", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}},
                ],
                "ports": [{"name": "health", "containerPort": 8080, "protocol": "TCP"}],
                "readinessProbe": {
                    "httpGet": {"path": "/readyz", "port": "health", "scheme": "HTTP"},
                    "periodSeconds": 3,
                    "failureThreshold": 2,
                },
                "resources": {
                    "requests": {"cpu": "250m", "memory": "1Mi"},
                    "limits": {"cpu": "1500m", "memory": "64Mi"},
                },
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                    "seccompProfile": {"type": "RuntimeDefault"},
                },
                "volumeMounts": [
                    {"name": "tmp", "mountPath": "/tmp"},
                    {"name": "small", "mountPath": "/small"},
                    {"name": "secret", "mountPath": "/secret", "readOnly": True},
                    {"name": "api", "mountPath": "/api", "readOnly": True},
                    {"name": "data", "mountPath": "/data"},
                ],
            }
        ],
        "volumes": [
            {"name": "tmp", "emptyDir": {}},
            {"name": "small", "emptyDir": {"sizeLimit": "1Mi"}},
            {
                "name": "secret",
                "secret": {"secretName": "s", "defaultMode": 420, "items": [{"key": "password", "path": "p"}]},
            },
            {"name": "data", "persistentVolumeClaim": {"claimName": "claim"}},
            {
                "name": "api",
                "projected": {
                    "defaultMode": 420,
                    "sources": [
                        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token", "audience": "kinema"}},
                        {"configMap": {"name": "s", "items": [{"key": "file", "path": "ca.crt"}]}},
                        {
                            "downwardAPI": {
                                "items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]
                            }
                        },
                    ],
                },
            },
        ],
    },
}


def turned(pod: dict[str, Any], folder: Path) -> Pod:
    """Turn a pod in surroundings where every object holds the same, and tokens tell what they were asked for."""

    def read(path: str) -> Any:
        if "persistentvolumes" in path:
            return {"spec": {"local": {"path": str(folder)}}}
        if "persistentvolumeclaims" in path:
            return {"spec": {"volumeName": "v"}}
        return {"data": {"password": "cGFzcw=="} if "/secrets/" in path else {"file": "content"}}

    def token(namespace: str, account: str, spec: dict[str, Any]) -> str:
        return f"{namespace} {account} {spec}"

    return Translation(pod, Surroundings(read, token, ("10.0.0.1", 443), folder)).run()


def test_every_field_has_its_effect(tmp_path: Path) -> None:
    """Rights, limits, variables, volumes, probes and times of a pod are those of its container."""
    pod = turned(POD, tmp_path)
    assert (pod.restart, pod.grace, pod.init) == ("Never", 7, ())
    assert set(pod.main.options) == {
        "--hostname=p-1",
        "--group-add=65532",
        "--user=65532:65532",
        "--security-opt=no-new-privileges",
        "--read-only",
        "--cap-drop=ALL",
        "--cpu-shares=256",
        "--cpus=1.5",
        f"--memory={64 * 2**20}",
        f"--memory-swap={64 * 2**20}",
        "--env=KUBERNETES_SERVICE_HOST=10.0.0.1",
        "--env=KUBERNETES_SERVICE_PORT=443",
        "--env=PLAIN=v",
        "--env=SECRET=pass",
        "--env=CONFIG=content",
        "--env=NAME=p-1",
        f"--volume={tmp_path}/tmp:/tmp",
        f"--tmpfs=/small:rw,exec,mode=1777,size={2**20}",
        f"--volume={tmp_path}/secret:/secret:ro",
        f"--volume={tmp_path}/api:/api:ro",
        f"--volume={tmp_path}:/data",
        "--entrypoint=python",
    }
    assert pod.main.command == ("-m", "x")
    assert pod.main.writable == ("/tmp", "/small", "/data")
    assert pod.main.probes["readiness"].port == 8080
    assert [path.name for path in (tmp_path / "secret").iterdir()] == ["p"]
    assert (tmp_path / "secret/p").read_text() == "pass"
    assert {path.name for path in (tmp_path / "api").iterdir()} == {"token", "ca.crt", "namespace"}
    bound = {"apiVersion": "v1", "kind": "Pod", "name": "p-1", "uid": "u-1"}
    asked = {"expirationSeconds": 3607, "audiences": ["kinema"], "boundObjectRef": bound}
    assert (tmp_path / "api/token").read_text() == f"n account {asked}"


@pytest.mark.parametrize(
    ("place", "value", "path"),
    [
        (("hostPID",), True, "spec.hostPID"),
        (("hostNetwork",), True, "spec.hostNetwork: True"),
        (("dnsPolicy",), "Default", "spec.dnsPolicy: 'Default'"),
        (("securityContext", "sysctls"), [{}], "spec.securityContext.sysctls"),
        (("containers", 0, "lifecycle"), {}, "spec.containers[0].lifecycle"),
        (("containers", 0, "args"), ["$(PLAIN)"], "spec.containers[0]: '$(PLAIN)'"),
        (("containers", 0, "volumeMounts", 0, "subPath"), "x", "spec.containers[0].volumeMounts[0].subPath"),
        (("containers", 0, "securityContext", "privileged"), True, "spec.containers[0].securityContext.privileged"),
        (("containers", 0, "resources", "limits", "gpu"), "1", "spec.containers[0].resources.limits.gpu"),
        (("containers", 0, "readinessProbe", "grpc"), {}, "spec.containers[0].readinessProbe.grpc"),
        (("volumes", 0), {"name": "tmp", "hostPath": {"path": "/"}}, "spec.volumes[0].hostPath"),
        (("volumes", 0, "emptyDir", "medium"), "HugePages", "spec.volumes[0].emptyDir.medium: 'HugePages'"),
        (("securityContext", "runAsUser"), 0, "spec.containers[0].securityContext.runAsNonRoot: without a user"),
    ],
)
def test_what_is_not_understood_is_refused_with_its_path(
    place: tuple[str | int, ...], value: object, path: str, tmp_path: Path
) -> None:
    """A field that would have no effect, or a value that would have another, is an error that names it."""
    pod = deepcopy(POD)
    where: Any = pod["spec"]
    for step in place[:-1]:
        where = where[step]
    where[place[-1]] = value
    with pytest.raises(NotUnderstoodError) as refused:
        turned(pod, tmp_path)
    assert str(refused.value) == path
