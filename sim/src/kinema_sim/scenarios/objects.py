"""Builders of the objects that scenarios consist of."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kinema_sim.controllers.kubelet import READY_SECONDS
from kinema_sim.engine.objects import Obj


@dataclass(frozen=True)
class App:
    """One workload, briefly.

    Attributes:
        name: name of the workload, and its `app` label.
        namespace: where it lives.
        image: image of its one container.
        cpu_m: CPU request in millicores.
        memory_mi: memory request in MiB.
        cpu_limit_m: CPU limit in millicores, 0 for none.
        memory_limit_mi: memory limit in MiB, 0 for none.
        replicas: pods at the beginning.
        ready_seconds: from start to Ready, 0 for the kubelet's usual.
        annotations: annotations of the workload.
        grace_seconds: termination grace period.
        labels: labels of the pods by which it selects them, `app` where empty.
        pod_annotations: annotations of the pods.
    """

    name: str
    namespace: str
    image: str
    cpu_m: int
    memory_mi: int
    cpu_limit_m: int = 0
    memory_limit_mi: int = 0
    replicas: int = 1
    ready_seconds: int = 0
    annotations: Mapping[str, str] = field(default_factory=dict)
    grace_seconds: int = 30
    labels: Mapping[str, str] = field(default_factory=dict)
    pod_annotations: Mapping[str, str] = field(default_factory=dict)

    @property
    def selected(self) -> dict[str, str]:
        """Labels by which its pods are selected."""
        return dict(self.labels) or {"app": self.name}


def namespace(name: str) -> Obj:
    """Write a Namespace."""
    return {"metadata": {"name": name}}


def _template(app: App) -> Obj:
    resources: Obj = {"requests": {"cpu": f"{app.cpu_m}m", "memory": f"{app.memory_mi}Mi"}}
    limits = {
        **({"cpu": f"{app.cpu_limit_m}m"} if app.cpu_limit_m else {}),
        **({"memory": f"{app.memory_limit_mi}Mi"} if app.memory_limit_mi else {}),
    }
    if limits:
        resources["limits"] = limits
    metadata: Obj = {"labels": app.selected}
    ready = {READY_SECONDS: str(app.ready_seconds)} if app.ready_seconds else {}
    if ready or app.pod_annotations:
        metadata["annotations"] = {**ready, **app.pod_annotations}
    return {
        "metadata": metadata,
        "spec": {
            "containers": [{"name": "server", "image": app.image, "resources": resources}],
            "terminationGracePeriodSeconds": app.grace_seconds,
        },
    }


def _workload(app: App) -> Obj:
    metadata: Obj = {"name": app.name, "namespace": app.namespace, "labels": {"app": app.name}}
    if app.annotations:
        metadata["annotations"] = dict(app.annotations)
    return {
        "metadata": metadata,
        "spec": {"selector": {"matchLabels": app.selected}, "template": _template(app)},
    }


def deployment(app: App) -> Obj:
    """Write a Deployment."""
    obj = _workload(app)
    obj["spec"]["replicas"] = app.replicas
    return obj


def stateful_set(app: App) -> Obj:
    """Write a StatefulSet without volumes."""
    obj = _workload(app)
    obj["spec"]["replicas"] = app.replicas
    obj["spec"]["serviceName"] = app.name
    return obj


def daemon_set(app: App) -> Obj:
    """Write a DaemonSet that runs on every node, whatever its taints."""
    obj = _workload(app)
    obj["spec"]["template"]["spec"]["tolerations"] = [{"operator": "Exists"}]
    obj["spec"]["template"]["spec"]["priorityClassName"] = "system-node-critical"
    return obj


def hpa(app: App, *, low: int, high: int, target: int = 60) -> Obj:
    """Write a HorizontalPodAutoscaler on the CPU of a Deployment; target in percent of the request."""
    metric = {
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": target}},
    }
    return {
        "metadata": {"name": app.name, "namespace": app.namespace},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": app.name},
            "minReplicas": low,
            "maxReplicas": high,
            "metrics": [metric],
        },
    }


def pdb(app: App, **rule: int | str) -> Obj:
    """Write a PodDisruptionBudget; the rule is `minAvailable` or `maxUnavailable`."""
    return {
        "metadata": {"name": app.name, "namespace": app.namespace},
        "spec": {**rule, "selector": {"matchLabels": app.selected}},
    }
