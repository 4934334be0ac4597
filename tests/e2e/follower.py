"""Lists and watches of an API server, by nothing but requests: each change is told to whoever judges it."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from tests.controlplane.access import Access, RefusedError

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
_GONE: Final = 410
_TURN_SECONDS: Final = 5
"""A watch is asked for so long at a time: whoever wants to stop waits no longer than that."""


class _ExpiredError(Exception):
    """The version to go on from is gone, as after a restart of the server."""


@dataclass
class Follower:
    """Keeps up with a cluster from the moment of `following` on."""

    access: Access
    objects: Objects = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    gaps: int = 0
    """How often everything had to be read anew: changes in between were not seen one by one."""
    _stopping: threading.Event = field(default_factory=threading.Event)

    def read(self) -> dict[str, str]:
        """Read everything; gives the version of each kind."""
        return {kind: self._list(kind) for kind in KINDS}

    def _list(self, kind: str) -> str:
        found = self.access.request("GET", KINDS[kind])
        self.objects[kind] = {key_of(item): item for item in found["items"]}
        return str(found["metadata"]["resourceVersion"])

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
            except _ExpiredError:
                version = self._anew(kind, version, changed)
            except (OSError, ValueError, RefusedError):  # a server that restarts is asked again
                self._stopping.wait(0.2)

    def _anew(self, kind: str, version: str, changed: Callable[[], None]) -> str:
        try:
            with self.lock:
                version = self._list(kind)
                self.gaps += 1
                changed()
        except (OSError, RefusedError):
            self._stopping.wait(0.2)
        return version

    def _watch(self, kind: str, version: str) -> Iterator[JSON]:
        query = f"?watch=1&allowWatchBookmarks=true&timeoutSeconds={_TURN_SECONDS}&resourceVersion={version}"
        headers = {"Authorization": f"Bearer {self.access.token}"}
        request = urllib.request.Request(self.access.url + KINDS[kind] + query, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=4 * _TURN_SECONDS, context=self.access.tls()) as answer:
                for line in answer:
                    yield json.loads(line)
        except urllib.error.HTTPError as error:
            if error.code == _GONE:
                raise _ExpiredError from error
            raise

    def _take(self, kind: str, told: JSON, changed: Callable[[], None]) -> str:
        item = told["object"]
        if told["type"] == "ERROR":
            raise _ExpiredError
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
