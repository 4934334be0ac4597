"""Lists and watches of an API server, by nothing but requests: each change is told to whoever judges it."""

from __future__ import annotations

import http.client
import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Protocol

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
    "ResourceQuota": "/api/v1/resourcequotas",
}
_GONE: Final = 410


@dataclass(frozen=True)
class Change:
    """One change of one object, as a watch tells it."""

    at: datetime
    """When it was told: a moment after it was made."""
    type: str
    """ADDED, MODIFIED, or DELETED: then `item` is its last state."""
    kind: str
    item: JSON

    @property
    def key(self) -> str:
        """`namespace/name`, or the name where there is no namespace."""
        return key_of(self.item)


Told = Callable[[Change | None], None]
"""Is told each change; None where everything was read anew."""


class Source(Protocol):
    """Whoever tells of a cluster's objects and of their changes."""

    objects: Objects
    lock: threading.Lock
    gaps: int

    def read(self) -> dict[str, str]:
        """Read everything; gives the version of each kind."""
        ...

    def following(self, versions: Mapping[str, str], changed: Told) -> AbstractContextManager[None]:
        """Follow within the block; `changed` is called under the lock after each change."""
        ...


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
    turn_seconds: int = 5
    """A watch is asked for so long at a time: whoever wants to stop waits no longer than that."""
    _stopping: threading.Event = field(default_factory=threading.Event)

    def read(self) -> dict[str, str]:
        """Read everything; gives the version of each kind."""
        return {kind: self._list(kind) for kind in KINDS}

    def _list(self, kind: str) -> str:
        found = self.access.request("GET", KINDS[kind])
        self.objects[kind] = {key_of(item): item for item in found["items"]}
        return str(found["metadata"]["resourceVersion"])

    @contextmanager
    def following(self, versions: Mapping[str, str], changed: Told) -> Iterator[None]:
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
                thread.join(2 * self.turn_seconds)

    def _follow(self, kind: str, version: str, changed: Told) -> None:
        while not self._stopping.is_set():
            try:
                for told in self._watch(kind, version):
                    version = self._take(kind, told, changed)
            except _ExpiredError:
                version = self._anew(kind, version, changed)
            except (OSError, ValueError, RefusedError):  # a server that restarts is asked again
                self._stopping.wait(0.2)

    def _anew(self, kind: str, version: str, changed: Told) -> str:
        try:
            with self.lock:
                version = self._list(kind)
                self.gaps += 1
                changed(None)
        except (OSError, RefusedError):
            self._stopping.wait(0.2)
        return version

    def _watch(self, kind: str, version: str) -> Iterator[JSON]:
        query = f"?watch=1&allowWatchBookmarks=true&timeoutSeconds={self.turn_seconds}&resourceVersion={version}"
        headers = {"Authorization": f"Bearer {self.access.token}"}
        request = urllib.request.Request(self.access.url + KINDS[kind] + query, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=4 * self.turn_seconds, context=self.access.tls()) as answer:
                for line in answer:
                    yield json.loads(line)
        except urllib.error.HTTPError as error:
            error.close()  # else its socket stays open until it is collected
            if error.code == _GONE:
                raise _ExpiredError from error
            raise
        except http.client.HTTPException as error:  # the server died within a line
            raise ConnectionError(f"watch of {kind}: cut off: {error!r}") from error

    def _take(self, kind: str, told: JSON, changed: Told) -> str:
        item = told["object"]
        if told["type"] == "ERROR":
            raise _ExpiredError
        if told["type"] != "BOOKMARK":
            with self.lock:
                if told["type"] == "DELETED":
                    self.objects[kind].pop(key_of(item), None)
                else:
                    self.objects[kind][key_of(item)] = item
                # The clock of this machine, on which all services run too.
                now = datetime.fromtimestamp(time.time_ns() / 10**9, UTC)
                changed(Change(now, told["type"], kind, item))
        return str(item["metadata"]["resourceVersion"])


def key_of(item: JSON) -> str:
    """`namespace/name`, or the name where there is no namespace."""
    metadata = item["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}" if "namespace" in metadata else str(metadata["name"])
