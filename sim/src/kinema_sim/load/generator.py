"""The load on a cluster: users by application and moment, and what every pod uses because of them."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence

from kinema_sim.engine.kinds import NODE, POD
from kinema_sim.engine.objects import (
    Key,
    Obj,
    annotations_of,
    is_ready,
    is_running,
    is_terminating,
    key_of,
    labels_of,
    namespace_of,
    node_of,
    uid_of,
)
from kinema_sim.engine.store import Store
from kinema_sim.load.meter import Usage
from kinema_sim.load.model import Application, Flow, Profile, Service, solve, usage_of
from kinema_sim.load.sharing import shared
from kinema_sim.scheduler.books import Amounts, amounts, pod_limits, pod_requests

_KEPT = 200_000
"""Pods of which it is remembered what they request."""
IDLE_PERCENT = 20
"""CPU that pods without a load use, in per cent of their requests."""
Series = Sequence[tuple[int, int, int | None]]
"""(Milliseconds since its beginning, millicores, bytes), by rising time: from each point on a pod wants so much; half
of what it requests where no memory is given."""
WORKLOAD = "sim.kinema.io/workload"
"""Annotation of pods: `namespace/name` of the workload whose series they follow."""
Moment = tuple[int, tuple[int, ...], int]
"""Version of the store, users of each application, and points of series that have passed."""


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
        """Pods share the CPU of their node by their requests, where they want more than it has."""
        self._idle_percent = idle_percent
        self._profiles: dict[str, tuple[int, Profile]] = {}
        self._series: dict[str, tuple[int, Series]] = {}
        self._services: dict[Key, tuple[Application, Service]] = {
            (app.namespace, service.name): (app, service) for app in apps for service in app.services
        }
        self._flows: dict[tuple[object, ...], Flow] = {}
        self._points: list[int] = []
        """Times in milliseconds at which a series goes on to its next point."""
        self._asked: dict[str, tuple[list[Obj], Amounts, Amounts]] = {}
        """Uid of a pod → its containers, their requests and limits."""
        self._counted: tuple[int, dict[Key, int]] = (0, {})
        self._wanted: tuple[Moment | None, dict[Key, Usage]] = (None, {})
        self._able: tuple[Moment | None, Mapping[Key, float]] = (None, {})
        self._used: tuple[Moment | None, dict[Key, Usage]] = (None, {})

    def follow(self, app: str, profile: Profile) -> None:
        """Let an application's users follow a profile from now on."""
        self._profiles[app] = self._store.loop.now_ms, profile

    def hold(self, app: str, users: int) -> None:
        """Keep an application's users constant from now on."""
        self.follow(app, Profile(((0, users),)))

    def record(self, workload: str, series: Series, *, past_ms: int = 0) -> None:
        """Let every pod that is annotated with the workload want what a series says, which began so long ago."""
        start = self._store.loop.now_ms - past_ms
        self._series[workload] = start, series
        self._points = sorted({*self._points, *(start + point[0] for point in series)})

    @property
    def has_series(self) -> bool:
        """Whether any pods follow a series."""
        return bool(self._series)

    @property
    def moment(self) -> Moment:
        """What usage depends on: it stays the same as long as this does."""
        users = tuple(self.users(name) for name in self.apps)
        return self._store.version, users, bisect_right(self._points, self._store.loop.now_ms)

    def is_loaded(self, pod: Obj) -> bool:
        """Return whether a pod follows a series or serves users; others idle."""
        place = namespace_of(pod), labels_of(pod).get("app", "")
        return place in self._services or annotations_of(pod).get(WORKLOAD, "") in self._series

    def point(self, workload: str, at_ms: int) -> tuple[int, int | None] | None:
        """Return the millicores and bytes that a workload's series says for a time; None where it has no series."""
        if workload not in self._series:
            return None
        start, series = self._series[workload]
        after = bisect_right(series, at_ms - start, key=lambda point: point[0])
        _, cpu, memory = series[max(0, after - 1)]
        return cpu, memory

    def users(self, app: str) -> int:
        """Give an application's users right now."""
        start, profile = self._profiles.get(app, (0, Profile(((0, 0),))))
        return profile.users(self._store.loop.now_ms - start)

    def flow(self, app: str) -> Flow:
        """Give an application's throughput and response time right now."""
        return self._flow(self.apps[app], self._able_now())

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

    def _able_now(self) -> Mapping[Key, float]:
        """Return the ready pods of every service, each counted by the share of the CPU it wants that it gets."""
        if not self.contended:
            return self._ready()
        now = self.moment
        if self._able[0] != now:
            self._able = now, self._count_able()
        return self._able[1]

    def _count_able(self) -> dict[Key, float]:
        wanted, able = self.wanted(), dict[Key, float]()
        given = self._shared(wanted)
        for app in self.apps.values():
            for pod in self._store.pods_in(app.namespace):
                if is_ready(pod) and not is_terminating(pod):
                    service, key = (namespace_of(pod), labels_of(pod).get("app", "")), key_of(pod)
                    wants = wanted[key].cpu_nano
                    able[service] = able.get(service, 0.0) + (given[key].cpu_nano / wants if wants else 1.0)
        return {service: round(count, 3) for service, count in able.items()}

    def _shared(self, wanted: Mapping[Key, Usage]) -> dict[Key, Usage]:
        """Return what pods use of what they want: those of a node share its CPU by their requests."""
        by_node: dict[str, list[Key]] = {}
        for key in wanted:
            pod = self._store.find(POD, key)
            if pod is not None:
                by_node.setdefault(node_of(pod), []).append(key)
        found = dict(wanted)
        for name, keys in by_node.items():
            node = self._store.get(NODE, "", name)
            has = 0 if node is None else amounts(node["status"].get("capacity")).get("cpu", 0) * 1_000_000
            wants = {key: wanted[key].cpu_nano for key in keys}
            if sum(wants.values()) <= has:
                continue
            weights = {key: self.amounts(self._pod(key))[0].get("cpu", 0) for key in keys}
            for key, nano in shared(wants, weights, has).items():
                found[key] = Usage(nano, wanted[key].memory_bytes)
        return found

    def _pod(self, key: Key) -> Obj:
        pod = self._store.find(POD, key)
        assert pod is not None
        return pod

    # --- usage

    def wanted(self) -> dict[Key, Usage]:
        """Give what every running pod would use right now if it were alone on its node."""
        now = self.moment
        if self._wanted[0] != now:
            ready = self._ready()
            self._wanted = now, self._usage(ready, {name: self._flow(app, ready) for name, app in self.apps.items()})
        return self._wanted[1]

    def usage(self) -> dict[Key, Usage]:
        """Give what every running pod uses right now."""
        if not self.contended:
            return self.wanted()
        now = self.moment
        if self._used[0] != now:
            served = self.wanted()
            if self.apps:
                able = self._able_now()
                served = self._usage(self._ready(), {name: self._flow(app, able) for name, app in self.apps.items()})
            self._used = now, self._shared(served)
        return self._used[1]

    def memory(self, pods: Iterable[Obj]) -> dict[Key, int]:
        """Give the bytes that each of these pods uses right now; those that do not run are left out.

        Where no application is under load, what a pod holds does not depend on others.
        """
        if self.apps:
            used = self.usage()
            return {key: used[key].memory_bytes for pod in pods if (key := key_of(pod)) in used}
        return {key_of(pod): self._usage_of(pod, {}, {}).memory_bytes for pod in pods if is_running(pod)}

    def _usage(self, ready: Mapping[Key, int], flows: Mapping[str, Flow]) -> dict[Key, Usage]:
        return {key_of(pod): self._usage_of(pod, ready, flows) for pod in self._store.each(POD) if is_running(pod)}

    def _usage_of(self, pod: Obj, ready: Mapping[Key, int], flows: Mapping[str, Flow]) -> Usage:
        place = namespace_of(pod), labels_of(pod).get("app", "")
        if place not in self._services:
            point = self.point(annotations_of(pod).get(WORKLOAD, ""), self._store.loop.now_ms)
            return self._idle_usage(pod) if point is None else self._recorded(pod, *point)
        app, service = self._services[place]
        serves = is_ready(pod) and not is_terminating(pod)
        return usage_of(service, flows[app.name] if serves else Flow(0, 0), ready.get(place, 0) or 1)

    def _recorded(self, pod: Obj, cpu: int, memory: int | None) -> Usage:
        most = self.amounts(pod)[1].get("cpu", cpu)
        return Usage(min(cpu, most) * 1_000_000, self._idle_usage(pod).memory_bytes if memory is None else memory)

    def _idle_usage(self, pod: Obj) -> Usage:
        """Pods of no application use a part of the CPU and half of the memory that they ask for."""
        requests = self.amounts(pod)[0]
        return Usage(requests.get("cpu", 0) * 10_000 * self._idle_percent, requests.get("memory", 0) // 2)

    def amounts(self, pod: Obj) -> tuple[Amounts, Amounts]:
        """Return what a pod requests, and its limits."""
        known = self._asked.get(uid_of(pod))
        if known is None or known[0] != pod["spec"]["containers"]:
            if len(self._asked) > _KEPT:
                self._asked.clear()
            known = pod["spec"]["containers"], pod_requests(pod), pod_limits(pod)
            self._asked[uid_of(pod)] = known
        return known[1], known[2]
