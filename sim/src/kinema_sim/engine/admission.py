"""Admission: what the API server adds to an object at its creation, defaults and the steering of pods."""

from kinema_sim.engine.kinds import (
    CONFIG_MAP,
    DAEMON_SET,
    DEPLOYMENT,
    HPA,
    JOB,
    NAMESPACE,
    POD,
    PRIORITY_CLASS,
    REPLICA_SET,
    STATEFUL_SET,
    Kind,
)
from kinema_sim.engine.objects import Obj, controller_ref
from kinema_sim.engine.store import Store

STEERING = ("kube-system", "kinema-steering")
"""Namespace and name of the ConfigMap that maps a Deployment's name or a controller's uid to preferred nodes."""

_BUILT_IN_PRIORITIES = {"system-node-critical": 2_000_001_000, "system-cluster-critical": 2_000_000_000}
_NOT_READY = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


class Admission:
    """Completes objects at creation. Install with `store.admit_with(Admission(store).admit)`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def admit(self, kind: Kind, obj: Obj) -> None:
        """Complete an object of any kind in place."""
        if kind is POD:
            _pod_defaults(obj)
            self._priority(obj)
            self._steer(obj)
        elif kind is DEPLOYMENT:
            _deployment_defaults(obj)
        elif kind in (REPLICA_SET, STATEFUL_SET):
            _set_defaults(kind, obj)
        elif kind is DAEMON_SET:
            obj["spec"].setdefault("updateStrategy", {"type": "RollingUpdate"})
            obj.setdefault("status", {})
        elif kind is JOB:
            obj["spec"].setdefault("parallelism", 1)
            obj["spec"].setdefault("completions", obj["spec"]["parallelism"])
            obj.setdefault("status", {})
        elif kind is HPA:
            obj["spec"].setdefault("minReplicas", 1)
            obj.setdefault("status", {"currentReplicas": 0, "desiredReplicas": 0})
        elif kind is NAMESPACE:
            obj["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = obj["metadata"]["name"]
            obj["status"] = {"phase": "Active"}

    def _priority(self, pod: Obj) -> None:
        name = pod["spec"].get("priorityClassName")
        found = self._store.get(PRIORITY_CLASS, "", name) if name else None
        value = found["value"] if found else _BUILT_IN_PRIORITIES.get(name or "", 0)
        pod["spec"].setdefault("priority", value)

    def _steer(self, pod: Obj) -> None:
        """Prefer the planned nodes. Anything unreadable in the map leaves the pod as it is: steering fails open."""
        owner = controller_ref(pod)
        config = self._store.get(CONFIG_MAP, *STEERING)
        if owner is None or config is None:
            return
        listed = (config.get("data") or {}).get(_steering_key(pod, owner))
        if not isinstance(listed, str):
            return
        nodes = [name.strip() for name in listed.split(",") if name.strip()]
        if not nodes:
            return
        staying = {"key": "kinema.io/disrupted", "operator": "DoesNotExist"}
        affinity: Obj = pod["spec"].setdefault("affinity", {}).setdefault("nodeAffinity", {})
        terms: list[Obj] = affinity.setdefault("preferredDuringSchedulingIgnoredDuringExecution", [])
        for name in nodes:
            named = {"key": "metadata.name", "operator": "In", "values": [name]}
            terms.append({"weight": 100, "preference": {"matchFields": [named], "matchExpressions": [staying]}})


def _steering_key(pod: Obj, owner: Obj) -> str:
    """Return the key of a pod's workload: a Deployment's name, found through its ReplicaSet, else the owner's uid."""
    template = (pod["metadata"].get("labels") or {}).get("pod-template-hash", "")
    name, _, suffix = owner["name"].rpartition("-")
    if template and owner["kind"] == "ReplicaSet" and suffix == template:
        return f"Deployment.{pod['metadata']['namespace']}.{name}"
    return str(owner["uid"])


def _pod_defaults(pod: Obj) -> None:
    spec = pod["spec"]
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("enableServiceLinks", True)
    tolerations: list[Obj] = spec.setdefault("tolerations", [])
    for key in _NOT_READY:
        if not any(entry.get("key") in (key, None, "") for entry in tolerations):
            tolerations.append({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300})
    bounded = True
    for container in spec.get("containers", ()):
        resources: Obj = container.setdefault("resources", {})
        for name, amount in (resources.get("limits") or {}).items():
            resources.setdefault("requests", {}).setdefault(name, amount)
        bounded = bounded and not resources
    pod["status"] = {"phase": "Pending", "qosClass": "BestEffort" if bounded else "Burstable"}


def _deployment_defaults(deployment: Obj) -> None:
    spec = deployment["spec"]
    spec.setdefault("replicas", 1)
    spec.setdefault("revisionHistoryLimit", 10)
    spec.setdefault("progressDeadlineSeconds", 600)
    strategy: Obj = spec.setdefault("strategy", {"type": "RollingUpdate"})
    if strategy.get("type", "RollingUpdate") == "RollingUpdate":
        strategy["type"] = "RollingUpdate"
        rolling: Obj = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", "25%")
        rolling.setdefault("maxSurge", "25%")
    deployment.setdefault("status", {})


def _set_defaults(kind: Kind, obj: Obj) -> None:
    obj["spec"].setdefault("replicas", 1)
    obj.setdefault("status", {"replicas": 0})
    if kind is STATEFUL_SET:
        obj["spec"].setdefault("podManagementPolicy", "OrderedReady")
        obj["spec"].setdefault("updateStrategy", {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}})
