"""Small clusters drawn by a seed: more machines than needed, and workloads with every rule that plans must keep.

What may not move is marked by the name of its workload (`keep-…`): the generator knows it by the documented rules and
not by the product's code.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from tests.history.environment import CALM, Environment

from kinema_sim.scenarios.objects import App, daemon_set, deployment, hpa, pdb, stateful_set

JSON = dict[str, Any]
ZONES: Final = ("europe-west3-a", "europe-west3-b", "europe-west3-c")
KEEP: Final = "keep-"
"""How the names of pods begin that must stay where they are."""

_MACHINES: Final = {"e2-standard-2": 1930, "e2-standard-4": 3920, "e2-highcpu-4": 3920}
"""Machine type → millicores for pods, about."""
_FIXED: Final = {"kinema.io/rightsizing-max-step": "0"}
_CAUTIOUS: Final = (
    {"karpenter.sh/do-not-disrupt": "true"},
    {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"},
    {"kinema.io/do-not-move": "true"},
)


@dataclass(frozen=True)
class Machine:
    """A node at the beginning."""

    name: str
    machine_type: str
    zone: str


@dataclass(frozen=True)
class RandomCluster:
    """What is there before the plan. `objects`: kind and content, in the order of their creation."""

    seed: int
    machines: tuple[Machine, ...]
    objects: tuple[tuple[str, JSON], ...]
    environment: Environment = CALM

    @property
    def workloads(self) -> int:
        """How many of the objects run pods."""
        return sum(kind not in {"PodDisruptionBudget", "HorizontalPodAutoscaler"} for kind, _ in self.objects)


def random_cluster(seed: int, space: str = "shop", *, most_nodes: int = 7, most_workloads: int = 9) -> RandomCluster:
    """The cluster of that seed, always the same."""
    rng = random.Random(seed)
    zones = ZONES[: rng.choice((1, 1, 2, 3))]
    types = rng.sample(sorted(_MACHINES), rng.choice((1, 1, 2)))
    machines = tuple(
        Machine(f"old-{seed}-{number}", rng.choice(types), zones[number % len(zones)])
        for number in range(rng.randint(3, most_nodes))
    )
    room = sum(_MACHINES[one.machine_type] for one in machines)
    drawn = _Draw(rng, zones, space, most_workloads, budget=round(room * rng.uniform(0.2, 0.5)))
    return RandomCluster(seed, machines, tuple(drawn.objects(len(machines))))


@dataclass
class _Draw:
    """Draws workloads until their requests are worth so many millicores."""

    rng: random.Random
    zones: tuple[str, ...]
    space: str
    most: int
    """Workloads, beside daemon sets."""
    budget: int
    number: int = 0

    def objects(self, nodes: int) -> Iterator[tuple[str, JSON]]:
        """Daemon sets first: they are on every node."""
        for number in range(self.rng.choice((0, 1, 1, 2))):
            app = App(f"agent-{number}", self.space, "example/agent:1", cpu_m=self.rng.randint(20, 60), memory_mi=50)
            self.budget -= app.cpu_m * nodes
            yield "DaemonSet", daemon_set(app)
        kinds = ("deployment",) * 9 + ("stateful",) * 3 + ("bare", "job")
        makers = {"deployment": self._deployment, "stateful": self._stateful, "bare": self._bare, "job": self._job}
        while self.budget > 0 and self.number < self.most:
            self.number += 1
            yield from makers[self.rng.choice(kinds)](nodes)

    def _app(self, name: str, replicas: int, annotations: JSON | None = None) -> App:
        cpu = self.rng.randint(5, 70) * 10
        self.budget -= cpu * replicas
        return App(
            f"{name}-{self.number}",
            self.space,
            "example/none:1",
            cpu_m=cpu,
            memory_mi=self.rng.choice((64, 128, 256, 512, 900)),
            replicas=replicas,
            ready_seconds=self.rng.choice((0, 0, 1, 8)),
            annotations={**_FIXED, **(annotations or {})},
            grace_seconds=self.rng.choice((0, 2, 30)),
        )

    def _deployment(self, nodes: int) -> Iterator[tuple[str, JSON]]:
        rng = self.rng
        kept = rng.random() < 0.12
        strategy = "" if kept else rng.choice(("", "", "", "", "rolling", "evict"))
        replicas = rng.choice((1, 2, 2, 3, 4, 6))
        app = self._app("keep-web" if kept else "web", replicas, {"kinema.io/strategy": strategy} if strategy else {})
        update = self._update()
        if not kept and replicas == 1 and strategy != "evict":
            app = self._single(app, update)
        made = deployment(app)
        made["spec"]["strategy"] = update
        template = made["spec"]["template"]
        if kept and rng.random() < 0.7:
            template["metadata"].setdefault("annotations", {}).update(rng.choice(_CAUTIOUS))
        elif kept:
            yield "PodDisruptionBudget", pdb(app, **rng.choice(({"maxUnavailable": 0}, {"minAvailable": "100%"})))
        elif replicas > 1 and rng.random() < 0.5:
            rules = ({"maxUnavailable": 1}, {"minAvailable": replicas - 1}, {"minAvailable": "50%"})
            yield "PodDisruptionBudget", pdb(app, **rng.choice(rules))
        self._place(app, template["spec"], nodes)
        yield "Deployment", made
        if replicas > 1 and not kept and strategy == "" and rng.random() < 0.2:
            yield "HorizontalPodAutoscaler", hpa(app, low=replicas, high=2 * replicas)

    def _single(self, app: App, update: JSON) -> App:
        """Where the owner's update runs no second copy, the only one stays, unless its owner says that one may run."""
        if update["type"] != "Recreate" and update["rollingUpdate"]["maxSurge"] != 0:
            return app
        if self.number % 2:  # drawn by nothing: the other draws of a seed stay as they are
            return replace(app, annotations={**app.annotations, "kinema.io/strategy": "surge"})
        return replace(app, name=f"{KEEP}{app.name}")

    def _update(self) -> JSON:
        if self.rng.random() < 0.1:
            return {"type": "Recreate"}
        surge, unavailable = self.rng.choice((("25%", "25%"), (1, 0), (0, 1), ("50%", "50%"), (2, 1), ("100%", 0)))
        return {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}

    def _place(self, app: App, spec: JSON, nodes: int) -> None:
        """Rules of placement, for some."""
        drawn = self.rng.random()
        mine = {"matchLabels": {"app": app.name}}
        if drawn < 0.15 and app.replicas <= nodes - 1:
            term = {"labelSelector": mine, "topologyKey": "kubernetes.io/hostname"}
            spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        elif drawn < 0.25 and len(self.zones) > 1:
            spec["topologySpreadConstraints"] = [
                {
                    "maxSkew": 1,
                    "topologyKey": "topology.kubernetes.io/zone",
                    "whenUnsatisfiable": self.rng.choice(("DoNotSchedule", "ScheduleAnyway")),
                    "labelSelector": mine,
                }
            ]
        elif drawn < 0.35:
            spec["nodeSelector"] = {"topology.kubernetes.io/zone": self.rng.choice(self.zones)}

    def _stateful(self, _: int) -> Iterator[tuple[str, JSON]]:
        replicas = self.rng.choice((1, 2, 3))
        app = self._app("keep-store" if replicas == 1 else "store", replicas)
        made = stateful_set(app)
        made["spec"]["podManagementPolicy"] = self.rng.choice(("OrderedReady", "Parallel"))
        yield "StatefulSet", made
        if replicas > 1 and self.rng.random() < 0.6:
            yield "PodDisruptionBudget", pdb(app, maxUnavailable=1)

    def _bare(self, _: int) -> Iterator[tuple[str, JSON]]:
        app = self._app("keep-bare", 1)
        template = deployment(app)["spec"]["template"]
        yield "Pod", {**template, "metadata": {**template["metadata"], "name": app.name, "namespace": self.space}}

    def _job(self, _: int) -> Iterator[tuple[str, JSON]]:
        app = self._app("keep-job", self.rng.choice((1, 2)))
        template = deployment(app)["spec"]["template"]
        template["spec"]["restartPolicy"] = "Never"
        spec = {"parallelism": app.replicas, "completions": app.replicas, "template": template}
        yield "Job", {"metadata": {"name": app.name, "namespace": self.space}, "spec": spec}
