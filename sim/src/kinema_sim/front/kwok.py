"""Machines of the simulated cloud as nodes of a real API server, where KWOK runs them.

The cloud keeps its own record of machines; each that is Ready there is created as a node here, which KWOK runs, and
goes with its machine. So the fake GKE stands beside a real control plane. KWOK 0.8 takes only nodes that have its
annotation when they are created: one that gets it later stays without a lease and never turns Ready. So a machine that
the cloud has not turned Ready has no node here.
"""

from __future__ import annotations

import asyncio
import copy
import logging
from contextlib import suppress
from typing import Final

from kinema_kubernetes.client import Client
from kinema_kubernetes.errors import ConflictError, KubernetesError, NotFoundError
from kinema_kubernetes.objects import annotations_of, labels_of, node_path, uid
from kinema_sim.cluster import Cluster
from kinema_sim.engine.kinds import NODE
from kinema_sim.engine.objects import Obj
from kinema_sim.engine.store import Change

FAKE: Final = "kwok.x-k8s.io/node"
"""Annotation of nodes that KWOK runs."""
_NODES: Final = "/api/v1/nodes"
_USAGE: Final = "metrics.k8s.io/resource-metrics-path"
_RETRY_SECONDS: Final = 1.0
_log = logging.getLogger(__name__)


class KwokNodes:
    """Nodes of one API server that follow a simulated cloud's machines."""

    def __init__(self, client: Client, cluster: Cluster) -> None:
        self._client = client
        self._cluster = cluster
        self._due: asyncio.Queue[str] = asyncio.Queue()

    async def adopt(self) -> tuple[str, ...]:
        """Take KWOK nodes of known machine types into the cloud as machines that run; return the names of all others.

        Raises:
            KubernetesError: the API server refuses or does not answer.
        """
        others: list[str] = []
        for node in await self._client.items(_NODES):
            labels, name = labels_of(node), str(node["metadata"]["name"])
            machine = labels.get("node.kubernetes.io/instance-type"), labels.get("topology.kubernetes.io/zone")
            offer = self._cluster.cloud.offers.get(f"{machine[0]}/{machine[1]}/on-demand")
            if offer is None or FAKE not in annotations_of(node):
                others.append(name)
                continue
            self._cluster.cloud.adopt(name, offer, labels=dict(labels))
        self._cluster.store.subscribe(self._note)
        return tuple(others)

    async def follow(self) -> None:
        """Bring nodes in line with their machines, one change after the other, until canceled."""
        while True:
            name = await self._due.get()
            try:
                await self._align(name)
            except KubernetesError as error:
                _log.warning("node %s is not in line with its machine, next try follows: %s", name, error)
                await asyncio.sleep(_RETRY_SECONDS)
                self._due.put_nowait(name)

    def _note(self, change: Change) -> None:
        if change.kind is NODE:
            self._due.put_nowait(str(change.new["metadata"]["name"]))

    async def _align(self, name: str) -> None:
        machine = self._cluster.store.get(NODE, "", name)
        if machine is None:
            with suppress(NotFoundError):  # another client was faster
                found = await self._client.get(node_path(name))
                await self._client.delete(node_path(name), uid(found))
            return
        if is_ready(machine):
            with suppress(ConflictError):  # registered before
                await self._client.create(_NODES, registered(machine))


def registered(machine: Obj) -> Obj:
    """Return a node for KWOK, which sets its conditions."""
    name = machine["metadata"]["name"]
    kept = copy.deepcopy({key: machine[key] for key in ("apiVersion", "kind", "spec", "status")})
    kept["status"].pop("conditions", None)
    marks = {FAKE: "fake", _USAGE: f"/metrics/nodes/{name}/metrics/resource"}
    return {
        **kept,
        "metadata": {"name": name, "labels": dict(machine["metadata"]["labels"]), "annotations": marks},
    }


def is_ready(machine: Obj) -> bool:
    """Return whether the simulated cloud has turned a node Ready."""
    conditions = machine["status"].get("conditions") or ()
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
