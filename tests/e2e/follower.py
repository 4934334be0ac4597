"""Lists and watches of an API server, by nothing but requests: each change is told to whoever judges it."""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from tests.controlplane.access import Access

JSON = dict[str, Any]
Objects = dict[str, dict[str, JSON]]
"""Kind → `namespace/name` or `name` → object."""

KINDS: Final[Mapping[str, str]] = {
    "Pod": "/api/v1/pods",
    "Node": "/api/v1/nodes",
    "ConfigMap": "/api/v1/configmaps",
    "ReplicaSet": "/apis/apps/v1/replicasets",
    "Deployment": "/apis/apps/v1/deployments",
    "StatefulSet": "/apis/apps/v1/statefulsets",
    "PodDisruptionBudget": "/apis/policy/v1/poddisruptionbudgets",
    "HorizontalPodAutoscaler": "/apis/autoscaling/v2/horizontalpodautoscalers",
}
_TURN_SECONDS: Final = 5
"""A watch is asked for so long at a time: whoever wants to stop waits no longer than that."""


class WatchBrokenError(Exception):
    """A change may have been missed: nothing can be sworn to any more."""


@dataclass
class Follower:
    """Keeps up with a cluster from the moment of `following` on."""

    access: Access
    objects: Objects = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    broken: list[str] = field(default_factory=list)
    _stopping: threading.Event = field(default_factory=threading.Event)

    def list(self) -> dict[str, str]:
        """Read everything; gives the version of each kind."""
        versions = {}
        for kind, path in KINDS.items():
            found = self.access.request("GET", path)
            self.objects[kind] = {key_of(item): item for item in found["items"]}
            versions[kind] = str(found["metadata"]["resourceVersion"])
        return versions

    @contextmanager
    def following(self, versions: Mapping[str, str], changed: Callable[[], None]) -> Iterator[None]:
        """Follow within the block; `changed` is called under the lock after each change."""
        self._stopping.clear()
        threads = [
            threading.Thread(target=self._follow, args=(kind, version, changed), daemon=True)
            for kind, version in versions.items()
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            for thread in threads:
                thread.join(2 * _TURN_SECONDS)

    def _follow(self, kind: str, version: str, changed: Callable[[], None]) -> None:
        while not self._stopping.is_set():
            try:
                for told in self._watch(kind, version):
                    version = self._take(kind, told, changed)
            except WatchBrokenError as error:
                self.broken.append(str(error))
                return
            except (OSError, ValueError):  # a server that restarts is asked again, from the same version
                self._stopping.wait(0.2)

    def _watch(self, kind: str, version: str) -> Iterator[JSON]:
        query = f"?watch=1&allowWatchBookmarks=true&timeoutSeconds={_TURN_SECONDS}&resourceVersion={version}"
        headers = {"Authorization": f"Bearer {self.access.token}"}
        request = urllib.request.Request(self.access.url + KINDS[kind] + query, headers=headers)
        with urllib.request.urlopen(request, timeout=4 * _TURN_SECONDS, context=self.access.tls()) as answer:
            for line in answer:
                yield json.loads(line)

    def _take(self, kind: str, told: JSON, changed: Callable[[], None]) -> str:
        item = told["object"]
        if told["type"] == "ERROR":
            message = f"watch of {kind}: {item.get('message')}"
            raise WatchBrokenError(message)
        if told["type"] != "BOOKMARK":
            with self.lock:
                if told["type"] == "DELETED":
                    self.objects[kind].pop(key_of(item), None)
                else:
                    self.objects[kind][key_of(item)] = item
                changed()
        return str(item["metadata"]["resourceVersion"])


def key_of(item: JSON) -> str:
    """`namespace/name`, or the name where there is no namespace."""
    metadata = item["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}" if "namespace" in metadata else str(metadata["name"])
