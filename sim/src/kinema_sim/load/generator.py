"""The load on a cluster: users by application and moment, and what every pod uses because of them."""

from collections.abc import Mapping

from kinema_sim.engine.kinds import POD
from kinema_sim.engine.objects import (
    Key,
    Obj,
    is_ready,
    is_terminating,
    key_of,
    labels_of,
    namespace_of,
    phase_of,
    uid_of,
)
from kinema_sim.engine.store import Store
from kinema_sim.load.meter import Usage
from kinema_sim.load.model import Application, Flow, Profile, Service, solve, usage_of
from kinema_sim.scheduler.books import pod_requests

_KEPT_IDLE = 200_000
"""Pods whose idle usage is remembered; requests of a pod do not change."""


class LoadGenerator:
    """Drives applications. Without any, every pod idles.

    Args:
        store: where the pods are.
        apps: applications whose pods are recognized by namespace and `app` label.
    """

    def __init__(self, store: Store, apps: tuple[Application, ...] = ()) -> None:
        self._store = store
        self.apps = {app.name: app for app in apps}
        self._profiles: dict[str, tuple[int, Profile]] = {}
        self._services: dict[Key, tuple[Application, Service]] = {
            (app.namespace, service.name): (app, service) for app in apps for service in app.services
        }
        self._flows: dict[tuple[object, ...], Flow] = {}
        self._idle: dict[str, Usage] = {}
        self._counted: tuple[int, dict[Key, int]] = (0, {})

    def follow(self, app: str, profile: Profile) -> None:
        """Let an application's users follow a profile from now on."""
        self._profiles[app] = self._store.loop.now_ms, profile

    def hold(self, app: str, users: int) -> None:
        """Keep an application's users constant from now on."""
        self.follow(app, Profile(((0, users),)))

    def users(self, app: str) -> int:
        """Give an application's users right now."""
        start, profile = self._profiles.get(app, (0, Profile(((0, 0),))))
        return profile.users(self._store.loop.now_ms - start)

    def flow(self, app: str) -> Flow:
        """Give an application's throughput and response time right now."""
        return self._flow(self.apps[app], self._ready())

    def _flow(self, app: Application, ready: Mapping[Key, int]) -> Flow:
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

    def usage(self) -> dict[Key, Usage]:
        """Give what every running pod uses right now."""
        ready = self._ready()
        flows = {name: self._flow(app, ready) for name, app in self.apps.items()}
        return {
            key_of(pod): self._usage_of(pod, ready, flows)
            for pod in self._store.each(POD)
            if phase_of(pod) == "Running"
        }

    def _usage_of(self, pod: Obj, ready: Mapping[Key, int], flows: Mapping[str, Flow]) -> Usage:
        place = namespace_of(pod), labels_of(pod).get("app", "")
        if place not in self._services:
            return self._idle_usage(pod)
        app, service = self._services[place]
        serves = is_ready(pod) and not is_terminating(pod)
        return usage_of(service, flows[app.name] if serves else Flow(0, 0), ready.get(place, 0) or 1)

    def _idle_usage(self, pod: Obj) -> Usage:
        """Pods of no application use a fifth of the CPU and half of the memory that they ask for."""
        known = self._idle.get(uid_of(pod))
        if known is None:
            requests = pod_requests(pod)
            known = Usage(requests.get("cpu", 0) * 200_000, requests.get("memory", 0) // 2)
            if len(self._idle) > _KEPT_IDLE:
                self._idle.clear()
            self._idle[uid_of(pod)] = known
        return known
