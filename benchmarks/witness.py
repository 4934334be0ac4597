"""Witness of a cluster from outside: every change is kept as it comes and judged when all is over.

Shares no code with the services. Changes of all kinds are put in the order of their resource versions, which is that
in which they were written.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp
from tests.controlplane.access import Access

JSON = dict[str, Any]

_KINDS: Final[Mapping[str, str]] = {
    "Pod": "/api/v1/pods",
    "Node": "/api/v1/nodes",
    "Deployment": "/apis/apps/v1/deployments",
}
_SECONDS: Final = 7200
"""For which a watch goes on."""


@dataclass
class Witness:
    """Follows pods, nodes and Deployments. Nothing is decoded before `verdict`, so as to take no time from others."""

    access: Access
    began: float = 0.0
    _first: dict[str, JSON] = field(default_factory=dict)
    _told: list[tuple[float, str, bytes]] = field(default_factory=list)

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[Witness]:
        """Take note of every change within the block."""
        headers = {"Authorization": f"Bearer {self.access.token}"}
        timeout = aiohttp.ClientTimeout(total=None)
        connector = aiohttp.TCPConnector(ssl=self.access.tls())
        async with aiohttp.ClientSession(self.access.url, headers=headers, timeout=timeout, connector=connector) as api:
            for kind, path in _KINDS.items():
                async with api.get(path) as answer:
                    self._first[kind] = await answer.json()
            self.began = time.monotonic()
            watches = [asyncio.create_task(self._watch(api, kind)) for kind in _KINDS]
            try:
                yield self
                ended = [watch.exception() for watch in watches if watch.done()]
                assert not ended, ended
            finally:
                for watch in watches:
                    watch.cancel()
                    with suppress(asyncio.CancelledError):
                        await watch

    async def _watch(self, api: aiohttp.ClientSession, kind: str) -> None:
        last = json.dumps({"object": self._first[kind]}).encode()
        while True:  # a busy server ends a watch now and then
            version = json.loads(last)["object"]["metadata"]["resourceVersion"]
            params = {"watch": "1", "resourceVersion": version, "timeoutSeconds": str(_SECONDS)}
            async with api.get(_KINDS[kind], params=params) as answer:
                async for line in answer.content:
                    self._told.append((time.monotonic() - self.began, kind, line))
                    last = line

    def verdict(self) -> Verdict:
        """Return the sum of the changes."""
        changes = [(at, kind, json.loads(line)) for at, kind, line in self._told]
        changes.sort(key=lambda change: int(change[2]["object"]["metadata"]["resourceVersion"]))
        found = Verdict(self._first)
        for at, kind, change in changes:
            found.take(at, kind, change["type"], change["object"])
        return found


class Verdict:
    """A fold over the changes of a cluster of Deployments."""

    def __init__(self, first: Mapping[str, JSON]) -> None:
        self._wanted = {_name(item): int(item["spec"]["replicas"]) for item in first["Deployment"]["items"]}
        self._ready = Counter(_workload(pod) for pod in first["Pod"]["items"] if _is_ready(pod))
        self._pods: dict[str, tuple[str, bool]] = {
            _uid(pod): (_workload(pod), _is_ready(pod)) for pod in first["Pod"]["items"]
        }
        self._originals = frozenset(self._pods)
        self.nodes: dict[str, str] = {_name(node): _machine(node) for node in first["Node"]["items"]}
        self._nodes_before = frozenset(self.nodes)
        self._machines: list[tuple[float, Counter[str]]] = [(0.0, Counter(self.nodes.values()))]
        """Nodes by machine type, from these seconds on."""
        self.changes = 0
        self._missing = self._missing_now()
        self.most_missing = sum(self._missing.values())
        """Pods that workloads lacked at the worst moment, all together."""
        self.ever_short: set[str] = set(self._missing)
        """Workloads that lacked a pod at any moment."""
        self.starts: Counter[tuple[str, str]] = Counter()
        """Pods that were bound, by workload and node."""
        self._started: set[str] = set()
        self.moved = 0
        """Pods of the start that are gone."""
        self.moved_again = 0
        """Pods that came and went."""
        self.bought: list[str] = []
        self.thrown_away: list[str] = []
        """Nodes that were bought and did not stay."""
        self.first_change = self.last_change = 0.0
        """Seconds after the beginning at which the first and the last pod or node came or went."""

    def _missing_now(self) -> dict[str, int]:
        found = {name: wanted - self._ready[name] for name, wanted in self._wanted.items()}
        return {name: lacking for name, lacking in found.items() if lacking > 0}

    def take(self, at: float, kind: str, what: str, item: JSON) -> None:
        """Judge one change."""
        self.changes += 1
        if kind == "Pod":
            self._pod(at, what, item)
        elif kind == "Node":
            self._node(at, what, item)
        elif _name(item) in self._wanted:
            # A surge raises the wish for a while: it is not the owner's.
            self._wanted[_name(item)] = min(self._wanted[_name(item)], int(item["spec"]["replicas"]))

    def _pod(self, at: float, what: str, pod: JSON) -> None:
        uid, name = _uid(pod), _workload(pod)
        ready = what != "DELETED" and _is_ready(pod)
        had = self._pods.get(uid, (name, False))[1]
        self._ready[name] += ready - had
        self._pods[uid] = (name, ready)
        if what == "DELETED":
            self._changed(at)
            self.moved += uid in self._originals
            self.moved_again += uid not in self._originals
        elif uid not in self._originals and uid not in self._started and pod["spec"].get("nodeName"):
            self._changed(at)
            self._started.add(uid)
            self.starts[name, pod["spec"]["nodeName"]] += 1
        self._judge(name)

    def _changed(self, at: float) -> None:
        self.first_change, self.last_change = self.first_change or at, at

    def saved_by(self, part: float, price: Mapping[str, float]) -> float | None:
        """Return the share of the whole saving that was real after this part of the time; None where none was made.

        The time is that from the first change to the last.
        """

        def cost(machines: Counter[str]) -> float:
            return sum(price[machine] * nodes for machine, nodes in machines.items())

        until = self.first_change + part * (self.last_change - self.first_change)
        then = [machines for at, machines in self._machines if at <= until][-1]
        before, after = cost(self._machines[0][1]), cost(self._machines[-1][1])
        return (before - cost(then)) / (before - after) if after < before else None

    def _judge(self, name: str) -> None:
        lacking = self._wanted.get(name, 0) - self._ready[name]
        if lacking > 0:
            self._missing[name] = lacking
            self.ever_short.add(name)
            self.most_missing = max(self.most_missing, sum(self._missing.values()))
        else:
            self._missing.pop(name, None)

    def _node(self, at: float, what: str, node: JSON) -> None:
        name = _name(node)
        if what == "ADDED" and name not in self.nodes:
            self.nodes[name] = _machine(node)
            self.bought.append(name)
            self._changed(at)
        elif what == "DELETED":
            self.nodes.pop(name, None)
            self._changed(at)
            if name not in self._nodes_before:
                self.thrown_away.append(name)
        if what != "MODIFIED":
            self._machines.append((at, Counter(self.nodes.values())))


def _name(item: JSON) -> str:
    return str(item["metadata"]["name"])


def _uid(item: JSON) -> str:
    return str(item["metadata"]["uid"])


def _machine(node: JSON) -> str:
    return str(node["metadata"]["labels"]["node.kubernetes.io/instance-type"])


def _workload(pod: JSON) -> str:
    """The Deployment of a pod: its replica set is named after it."""
    owners = pod["metadata"].get("ownerReferences") or ({"name": "-"},)
    return str(owners[0]["name"].rpartition("-")[0])


def _is_ready(pod: JSON) -> bool:
    conditions = pod.get("status", {}).get("conditions") or ()
    ready = any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
    return ready and "deletionTimestamp" not in pod["metadata"]
