"""Environments of clusters that Kinema did not build: what a seed puts around a random cluster.

Each feature is drawn by itself, so that figures by feature can be told from plans with and without it. A feature is
made of what both clusters understand: objects, labels of nodes, additions to pods at admission, the scheduler's
configuration, and writes of others while a plan is executed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from tests.history.environment import CONSTRAINTS, HOSTNAME, ZONE, Environment, Sidecar, Write
from tests.history.random_clusters import KEEP, RandomCluster, random_cluster

from kinema_sim.scenarios.objects import App, deployment, hpa, pdb, stateful_set

JSON = dict[str, Any]
MACHINE: Final = "node.kubernetes.io/instance-type"
FINALIZER: Final = "example.com/drain"
SCHEDULERS: Final = ("default", "most-allocated", "requested-to-capacity", *CONSTRAINTS)
"""Configurations of the scheduler."""
_SHARE: Final = 0.3
"""How likely a feature is."""
_UNTIL: Final = 600
"""Seconds for which others write."""
_HIGH, _LOW = "high", "low"


def foreign_cluster(seed: int, space: str = "shop", *, scheduler: str = "", **most: int) -> RandomCluster:
    """The random cluster of a seed in an environment of that seed.

    Args:
        seed: decides everything.
        space: its namespace.
        scheduler: fixes what else is drawn.
        most: most nodes and workloads, as `random_cluster` takes them.
    """
    rng = random.Random(f"foreign {seed}")
    calm = random_cluster(seed, space, **most)
    features = tuple(name for name in FEATURES if rng.random() < _SHARE)
    drawn = _Drawn(rng, calm, space)
    chosen = scheduler or rng.choice(SCHEDULERS)
    for name in features:
        FEATURES[name](drawn)
    environment = replace(drawn.environment, features=(*features, chosen), scheduler=chosen)
    return replace(calm, objects=tuple(drawn.objects), environment=environment)


class _Drawn:
    """What has been drawn so far."""

    def __init__(self, rng: random.Random, calm: RandomCluster, space: str) -> None:
        self.rng = rng
        self.space = space
        self.machines = calm.machines
        self.objects = [(kind, item) for kind, item in calm.objects]
        self.environment = Environment()

    def add(self, **more: Any) -> None:
        """Add to fields of the environment: to maps and to sequences; a sidecar takes the place of the one before."""
        joined: dict[str, Any] = {}
        for name, value in more.items():
            now = getattr(self.environment, name)
            if isinstance(value, Sidecar):
                joined[name] = value
            elif isinstance(value, Mapping):
                joined[name] = {**now, **value}
            else:
                joined[name] = type(now)((*now, *value))
        self.environment = replace(self.environment, **joined)

    def app(self, name: str, replicas: int, space: str = "", **more: Any) -> App:
        """A small workload."""
        fixed = {"kinema.io/rightsizing-max-step": "0"}
        return App(
            name,
            space or self.space,
            "example/none:1",
            cpu_m=self.rng.randint(3, 20) * 10,
            memory_mi=64,
            replicas=replicas,
            annotations=fixed,
            **more,
        )

    def movable(self, *kinds: str) -> list[JSON]:
        """Workloads of these kinds that need not stay where they are."""
        return [item for kind, item in self.objects if kind in kinds and not item["metadata"]["name"].startswith(KEEP)]

    def some(self, *kinds: str) -> list[JSON]:
        """About half of them, at least one where there is any."""
        found = self.movable(*kinds)
        return [item for item in found if self.rng.random() < 0.5] or found[:1]


def _named(name: str, space: str) -> JSON:
    return {"name": name, "namespace": space}


def _hostname_other(drawn: _Drawn) -> None:
    drawn.add(labels={HOSTNAME: "ip-{}.internal"})


def _hostname_missing(drawn: _Drawn) -> None:
    drawn.add(labels={HOSTNAME: None})


def _zone_missing(drawn: _Drawn) -> None:
    for _, item in drawn.objects:
        spec = item.get("spec", {}).get("template", {}).get("spec", {})
        spec.pop("nodeSelector", None)
        spec.pop("topologySpreadConstraints", None)
    drawn.add(labels={ZONE: None})


def _unknown_type(drawn: _Drawn) -> None:
    machine = drawn.rng.choice(drawn.machines)
    patch: JSON = {"metadata": {"labels": {MACHINE: "metal-7"}}}
    if drawn.rng.random() < 0.5:
        patch["metadata"]["annotations"] = {"kinema.io/usd-per-hour": "0.2"}
    drawn.add(nodes={machine.name: patch})


def _webhook(drawn: _Drawn) -> None:
    wish = {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}
    preference = {"weight": 100, "preference": {"matchExpressions": [wish]}}
    drawn.add(sidecar=Sidecar(30, 32, preference if drawn.rng.random() < 0.5 else None))


def _limit_range(drawn: _Drawn) -> None:
    defaults = {"cpu": "60m", "memory": "96Mi"}
    limits = [{"type": "Container", "defaultRequest": defaults}]
    drawn.add(
        requests=defaults,
        first=[
            ("LimitRange", {"metadata": {"name": "defaults", "namespace": drawn.space}, "spec": {"limits": limits}})
        ],
    )
    app = drawn.app("bare-requests", 2)
    made = deployment(app)
    made["spec"]["template"]["spec"]["containers"][0]["resources"] = {}
    drawn.objects.append(("Deployment", made))


def _quota(drawn: _Drawn) -> None:
    """A ResourceQuota that leaves room for so many more pods than there are."""
    spare = drawn.rng.choice((0, 1, 3))
    item = {"metadata": {"name": "pods", "namespace": drawn.space}, "spec": {"hard": {"pods": f"+{spare}"}}}
    drawn.add(last=[("ResourceQuota", item)])


def _priorities(drawn: _Drawn) -> None:
    classes = [
        ("PriorityClass", {"metadata": {"name": name}, "value": value, "globalDefault": False})
        for name, value in ((_HIGH, 1000), (_LOW, -10))
    ]
    for item in drawn.some("Deployment", "StatefulSet"):
        item["spec"]["template"]["spec"]["priorityClassName"] = drawn.rng.choice((_HIGH, _LOW))
    urgent = drawn.app("urgent", drawn.rng.choice((1, 2)))
    made = deployment(urgent)
    made["spec"]["template"]["spec"]["priorityClassName"] = _HIGH
    write = Write(drawn.rng.uniform(5, 60), "Deployment", drawn.space, "urgent", made, create=True)
    drawn.add(first=classes, writes=[write], others=[f"Deployment/{drawn.space}/urgent"])


def _overhead(drawn: _Drawn) -> None:
    overhead = {"cpu": "40m", "memory": "48Mi"}
    runtime = {"metadata": {"name": "sandboxed"}, "handler": "sandboxed", "overhead": {"podFixed": overhead}}
    for item in drawn.some("Deployment", "StatefulSet"):
        item["spec"]["template"]["spec"]["runtimeClassName"] = "sandboxed"
    drawn.add(overhead=overhead, first=[("RuntimeClass", runtime)])


def _finalizers(drawn: _Drawn) -> None:
    """An operator takes the finalizers off pods that have ended, every few seconds."""
    for item in drawn.some("Deployment", "StatefulSet"):
        item["spec"]["template"]["metadata"]["finalizers"] = [FINALIZER]
    pace = drawn.rng.choice((3, 8, 20))
    body: JSON = {"metadata": {"finalizers": None}}
    drawn.add(writes=[Write(second, "Pod", "", "", body, each="ending") for second in range(pace, _UNTIL, pace)])


def _grace(drawn: _Drawn) -> None:
    """Pods that use their grace period up."""
    for item in drawn.some("Deployment", "StatefulSet"):
        template, seconds = item["spec"]["template"], drawn.rng.choice((0, 5, 30, 60, 120))
        template["spec"]["terminationGracePeriodSeconds"] = seconds
        template["metadata"].setdefault("annotations", {})["sim.kinema.io/stop-seconds"] = str(seconds)


def _crash_loops(drawn: _Drawn) -> None:
    """Pods that restart all the time: they are Ready for a while, and then not."""
    app = drawn.app("crashing", 2)
    drawn.objects.append(("Deployment", deployment(app)))
    writes = []
    for turn, second in enumerate(range(10, _UNTIL, drawn.rng.choice((15, 40)))):
        ready = "False" if turn % 2 == 0 else "True"
        conditions = [{"type": kind, "status": ready} for kind in ("Ready", "ContainersReady")]
        status = {"conditions": conditions, "restarts": turn // 2 + 1}
        writes.append(Write(second, "Pod", drawn.space, "", {"status": status}, part="status", each="crashing"))
    drawn.add(writes=writes, others=[f"Deployment/{drawn.space}/crashing"])


def _flapping(drawn: _Drawn) -> None:
    """An autoscaler that goes up and down."""
    app = drawn.app("flapping", 2)
    drawn.objects.append(("Deployment", deployment(app)))
    drawn.objects.append(("HorizontalPodAutoscaler", hpa(app, low=2, high=6)))
    pace = drawn.rng.choice((20, 45))
    writes = [
        Write(second, "Deployment", drawn.space, app.name, {"spec": {"replicas": 2 + 2 * ((n + 1) % 2)}}, part="scale")
        for n, second in enumerate(range(pace, _UNTIL, pace))
    ]
    drawn.add(writes=writes, others=[f"Deployment/{drawn.space}/flapping"])


def _operators(drawn: _Drawn) -> None:
    """An operator that scales one workload and edits the template of another."""
    chosen = drawn.some("Deployment")[:2]
    writes = []
    for n, item in enumerate(chosen):
        name, replicas = item["metadata"]["name"], item["spec"]["replicas"]
        for turn, second in enumerate(range(drawn.rng.randint(5, 30), _UNTIL, drawn.rng.choice((60, 150)))):
            if n == 0:
                body: JSON = {"spec": {"replicas": replicas + 1 - turn % 2}}
            else:
                annotations = {"example.com/edited": str(turn)}
                body = {"spec": {"template": {"metadata": {"annotations": annotations}}}}
            writes.append(Write(second, "Deployment", drawn.space, name, body, part="scale" if n == 0 else ""))
    names = [f"Deployment/{drawn.space}/{item['metadata']['name']}" for item in chosen]
    drawn.add(writes=writes, others=names)


def _autoscaler_marks(drawn: _Drawn) -> None:
    """Marks of other autoscalers: some from the beginning, one comes and goes."""
    names = [machine.name for machine in drawn.rng.sample(drawn.machines, min(3, len(drawn.machines)))]
    kept = {"metadata": {"annotations": {"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"}}}
    candidate = {
        "spec": {
            "taints": [{"key": "DeletionCandidateOfClusterAutoscaler", "value": "1", "effect": "PreferNoSchedule"}]
        }
    }
    drawn.add(nodes={names[0]: kept, names[1]: candidate})
    if len(names) > 2:
        label = {"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}}
        none: JSON = {"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": None}}}
        begin = drawn.rng.randint(5, 60)
        drawn.add(
            writes=[Write(begin, "Node", "", names[2], label), Write(begin + 60, "Node", "", names[2], none)],
        )


def _budgets(drawn: _Drawn) -> None:
    """Budgets of all shapes, also two for the same pods, one for none and one for all of a namespace."""
    shapes: tuple[JSON, ...] = (
        {"maxUnavailable": "30%"},
        {"maxUnavailable": "1%"},
        {"minAvailable": "60%"},
        {"minAvailable": 0},
        {"minAvailable": 1},
        {"maxUnavailable": 2, "unhealthyPodEvictionPolicy": "AlwaysAllow"},
    )
    covered = {item["metadata"]["name"] for kind, item in drawn.objects if kind == "PodDisruptionBudget"}
    for item in drawn.some("Deployment", "StatefulSet"):
        app = drawn.app(item["metadata"]["name"], 1)
        if app.name not in covered:
            drawn.objects.append(("PodDisruptionBudget", pdb(app, **drawn.rng.choice(shapes))))
        elif drawn.rng.random() < 0.5:
            drawn.objects.append(("PodDisruptionBudget", pdb(replace(app, name=app.name), maxUnavailable="50%")))
            drawn.objects[-1][1]["metadata"]["name"] = f"{app.name}-second"
    drawn.objects.append(("PodDisruptionBudget", pdb(drawn.app("matches-none", 1), maxUnavailable=1)))


def _volumes(drawn: _Drawn) -> None:
    """A StatefulSet whose volumes are of one zone each."""
    rng, replicas = drawn.rng, drawn.rng.choice((2, 3))
    app = drawn.app("disks", replicas)
    made = stateful_set(app)
    claim = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "fixed",
        "resources": {"requests": {"storage": "1Gi"}},
    }
    made["spec"]["volumeClaimTemplates"] = [{"metadata": {"name": "data"}, "spec": claim}]
    zones = sorted({machine.zone for machine in drawn.machines})
    anywhere = ZONE in drawn.environment.labels
    first: list[tuple[str, JSON]] = [
        (
            "StorageClass",
            {
                "metadata": {"name": "fixed"},
                "provisioner": "kubernetes.io/no-provisioner",
                "volumeBindingMode": "Immediate",
            },
        )
    ]
    for i in range(replicas):
        name = f"data-{app.name}-{i}"
        spec = {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "fixed",
            "hostPath": {"path": f"/data/{i}"},
            "claimRef": {"namespace": drawn.space, "name": name},
        }
        if not anywhere:
            terms = [{"key": ZONE, "operator": "In", "values": [rng.choice(zones)]}]
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": terms}]}}
        volume = f"{drawn.space}-{name}"
        first.append(("PersistentVolume", {"metadata": {"name": volume}, "spec": spec}))
        bound = {**claim, "volumeName": volume}
        first.append(("PersistentVolumeClaim", {"metadata": {"name": name, "namespace": drawn.space}, "spec": bound}))
    drawn.add(first=first)
    drawn.objects.append(("StatefulSet", made))


def _noise(drawn: _Drawn) -> None:
    """Ten namespaces of tiny workloads, whose ConfigMaps change all the time."""
    writes = []
    for n in range(10):
        space = f"{drawn.space}-noise-{n}"
        app = replace(drawn.app(f"noise-{n}", drawn.rng.choice((1, 1, 2)), space), cpu_m=10, memory_mi=16)
        drawn.objects.append(("Deployment", deployment(app)))
        made = {"metadata": {"name": "noise", "namespace": space}, "data": {"turn": "0"}}
        drawn.add(last=[("ConfigMap", made)])
        turns = [(second, {"data": {"turn": str(second)}}) for second in range(5 + n, _UNTIL, 30)]
        writes += [Write(second, "ConfigMap", space, "noise", body) for second, body in turns]
    drawn.add(writes=writes)


FEATURES: Final[Mapping[str, Callable[[_Drawn], None]]] = MappingProxyType(
    {
        "hostname-other": _hostname_other,
        "hostname-missing": _hostname_missing,
        "zone-missing": _zone_missing,
        "unknown-type": _unknown_type,
        "webhook": _webhook,
        "limit-range": _limit_range,
        "quota": _quota,
        "priorities": _priorities,
        "overhead": _overhead,
        "finalizers": _finalizers,
        "grace": _grace,
        "volumes": _volumes,
        "crash-loops": _crash_loops,
        "flapping": _flapping,
        "operators": _operators,
        "autoscaler-marks": _autoscaler_marks,
        "budgets": _budgets,
        "noise": _noise,
    }
)
"""What can be drawn, in the order in which it is made."""
