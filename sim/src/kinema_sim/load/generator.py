"""The load on a cluster: users by application and moment, and what every pod uses because of them."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence

from kinema_sim.engine.kinds import NODE, POD
from kinema_sim.engine.objects import (
    Key,
    Obj,
    annotations_of,
    is_ready,
    is_terminating,
    key_of,
    labels_of,
    namespace_of,
    node_of,
    phase_of,
    uid_of,
)
from kinema_sim.engine.store import Store
from kinema_sim.load.meter import Usage
from kinema_sim.load.model import Application, Flow, Profile, Service, solve, usage_of
from kinema_sim.scheduler.books import amounts, pod_requests

_KEPT_IDLE = 200_000
"""Pods whose idle usage is remembered; requests of a pod do not change."""
IDLE_PERCENT = 20
"""CPU that pods without a load use, in per cent of their requests."""
Series = Sequence[tuple[int, int, int | None]]
"""(Milliseconds since its beginning, millicores, bytes), by rising time: from each point on a pod uses so much; half of
the memory that it requests where none is given."""
WORKLOAD = "sim.kinema.io/workload"
"""Annotation of pods: `namespace/name` of the workload whose series they follow."""


class LoadGenerator:
    """Drives applications. Without any, every pod idles.

    Args:
        store: where the pods are.
        apps: applications whose pods are recognized by namespace and `app` label.
        idle_percent: what pods without a load use of the CPU that they request.
    """

    def __init__(self, store: Store, apps: tuple[Application, ...] = (), *, idle_percent: int = IDLE_PERCENT) -> None:
        self._store = store
        self.apps = {app.name: app for app in apps}
        self.contended = False
        """Pods share the CPU of their node: where they want more than it has, all of them get less."""
        self._idle_percent = idle_percent
        self._profiles: dict[str, tuple[int, Profile]] = {}
        self._series: dict[str, tuple[int, Series]] = {}
        self._services: dict[Key, tuple[Application, Service]] = {
            (app.namespace, service.name): (app, service) for app in apps for service in app.services
        }
        self._flows: dict[tuple[object, ...], Flow] = {}
        self._idle: dict[str, Usage] = {}
        self._counted: tuple[int, dict[Key, int]] = (0, {})
        self._shared: tuple[int, tuple[int, ...], dict[Key, float]] = (0, (), {})

    def follow(self, app: str, profile: Profile) -> None:
        """Let an application's users follow a profile from now on."""
        self._profiles[app] = self._store.loop.now_ms, profile

    def hold(self, app: str, users: int) -> None:
        """Keep an application's users constant from now on."""
        self.follow(app, Profile(((0, users),)))

    def record(self, workload: str, series: Series) -> None:
        """Let every pod that is annotated with the workload use what a series says, from now on."""
        self._series[workload] = self._store.loop.now_ms, series

    @property
    def has_series(self) -> bool:
        """Whether any pods follow a series."""
        return bool(self._series)

    def users(self, app: str) -> int:
        """Give an application's users right now."""
        start, profile = self._profiles.get(app, (0, Profile(((0, 0),))))
        return profile.users(self._store.loop.now_ms - start)

    def flow(self, app: str) -> Flow:
        """Give an application's throughput and response time right now."""
        return self._flow(self.apps[app], self._able())

    def _flow(self, app: Application, ready: Mapping[Key, float]) -> Flow:
        counts = {service.name: ready.get((app.namespace, service.name), 0) for service in app.services}
        users = self.users(app.name)
        case = (app.name, users, *counts.values())
        if case not in self._flows:
            if len(self._flows) > 1000:
                self._flows.clear()
            self._flows[case] = solve(app, users, counts)
        return self._flows[case]

    def _ready(self) -> dict[Key, int]:
        """Count the ready pods of every service; once per version of the store."""
        if self._counted[0] != self._store.version:
            self._counted = self._store.version, self._count()
        return self._counted[1]

    def _count(self) -> dict[Key, int]:
        counts: dict[Key, int] = {}
        for app in self.apps.values():
            for pod in self._store.pods_in(app.namespace):
                if is_ready(pod) and not is_terminating(pod):
                    service = namespace_of(pod), labels_of(pod).get("app", "")
                    counts[service] = counts.get(service, 0) + 1
        return counts

    # --- pods that share a node

    def _able(self) -> Mapping[Key, float]:
        """Return the ready pods of every service, each counted by the share of the CPU it wants that its node has."""
        if not self.contended:
            return self._ready()
        users = tuple(self.users(name) for name in self.apps)
        if self._shared[:2] != (self._store.version, users):
            self._shared = self._store.version, users, self._share()
        return self._shared[2]

    def _share(self) -> dict[Key, float]:
        wanted = self._usage(self._ready(), {name: self._flow(app, self._ready()) for name, app in self.apps.items()})
        load: dict[str, int] = {}
        for key, usage in wanted.items():
            pod = self._store.find(POD, key)
            if pod is not None:
                load[node_of(pod)] = load.get(node_of(pod), 0) + usage.cpu_nano
        factors = {name: self._factor(name, nano) for name, nano in load.items()}
        able: dict[Key, float] = {}
        for app in self.apps.values():
            for pod in self._store.pods_in(app.namespace):
                if is_ready(pod) and not is_terminating(pod):
                    service = namespace_of(pod), labels_of(pod).get("app", "")
                    able[service] = able.get(service, 0.0) + factors.get(node_of(pod), 1.0)
        return {service: round(count, 3) for service, count in able.items()}

    def _factor(self, node: str, nano: int) -> float:
        """Return the share of what its pods want that a node has."""
        found = self._store.get(NODE, "", node)
        has = 0 if found is None else amounts(found["status"].get("capacity")).get("cpu", 0) * 1_000_000
        return min(1.0, has / nano) if nano else 1.0

    # --- usage

    def usage(self) -> dict[Key, Usage]:
        """Give what every running pod uses right now."""
        ready = self._ready()
        return self._usage(ready, {name: self._flow(app, self._able()) for name, app in self.apps.items()})

    def _usage(self, ready: Mapping[Key, int], flows: Mapping[str, Flow]) -> dict[Key, Usage]:
        return {
            key_of(pod): self._usage_of(pod, ready, flows)
            for pod in self._store.each(POD)
            if phase_of(pod) == "Running"
        }

    def _usage_of(self, pod: Obj, ready: Mapping[Key, int], flows: Mapping[str, Flow]) -> Usage:
        place = namespace_of(pod), labels_of(pod).get("app", "")
        if place not in self._services:
            series = self._series.get(annotations_of(pod).get(WORKLOAD, ""))
            return self._idle_usage(pod) if series is None else self._recorded(pod, *series)
        app, service = self._services[place]
        serves = is_ready(pod) and not is_terminating(pod)
        return usage_of(service, flows[app.name] if serves else Flow(0, 0), ready.get(place, 0) or 1)

    def _recorded(self, pod: Obj, start: int, series: Series) -> Usage:
        after = bisect_right(series, self._store.loop.now_ms - start, key=lambda point: point[0])
        _, cpu, memory = series[max(0, after - 1)]
        return Usage(cpu * 1_000_000, self._idle_usage(pod).memory_bytes if memory is None else memory)

    def _idle_usage(self, pod: Obj) -> Usage:
        """Pods of no application use a part of the CPU and half of the memory that they ask for."""
        known = self._idle.get(uid_of(pod))
        if known is None:
            requests = pod_requests(pod)
            known = Usage(requests.get("cpu", 0) * 10_000 * self._idle_percent, requests.get("memory", 0) // 2)
            if len(self._idle) > _KEPT_IDLE:
                self._idle.clear()
            self._idle[uid_of(pod)] = known
        return known
