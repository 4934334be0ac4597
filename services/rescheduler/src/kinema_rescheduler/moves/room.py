"""Free room on open nodes, and whether pods in flight fit into it (capacity comes before disruption)."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from itertools import chain
from types import MappingProxyType

from kinema_core.events import EMPTY, Amounts, Node, Pod
from kinema_core.model.cluster import Cluster
from kinema_core.model.daemons import room_left
from kinema_core.model.match import node_admits
from kinema_core.model.resource_quotas import QuotaRoom
from kinema_core.model.resources import add, fits, subtract, times
from kinema_core.model.volumes import with_attachments


class Room:
    """Room that is handed out during one decision: what one move takes, the next does not see.

    `quotas` is what the quotas of namespaces leave beside that: for pods that come before another one goes.
    """

    def __init__(
        self,
        cluster: Cluster,
        open_nodes: Sequence[str],
        reserved: Container[str] = (),
        promised: Mapping[str, Amounts] = MappingProxyType({}),
    ) -> None:
        """`open_nodes` may take pods; the order given breaks ties. `reserved` ones take only pods that prefer them.

        `promised` is what pods that have yet to come will use, by node: no pod that prefers another node gets it.
        """
        free = room_left(cluster)
        self.quotas = QuotaRoom(cluster)
        self._cluster = cluster
        self._reserved = reserved
        self._promised = promised
        self._free = {name: free[name] for name in open_nodes if name in free}

    def take(
        self,
        pod: Pod,
        requests: Amounts,
        preferred: str,
        count: int,
        *,
        elsewhere: bool = True,
        leaves: bool = False,
    ) -> tuple[str, ...]:
        """Place up to `count` pods like `pod`, each with `requests`: on the preferred node, then wherever they fit.

        Returns the node of each pod that was placed; their room is taken, attachments of their volumes too. Without
        `elsewhere` it is the preferred node or none. A pod that `leaves` is not moved to the node that it is on.
        """
        requests = with_attachments(self._cluster, pod, requests)
        others = (name for name in self._free if name != preferred and name not in self._reserved)
        names = chain((preferred,), others if elsewhere else ())
        placed: list[str] = []
        for name in names:
            node = self._cluster.node(name)
            if len(placed) == count:
                break
            if name not in self._free or node is None or not admits(node, pod) or (leaves and name == pod.node):
                continue
            kept = EMPTY if node.name == preferred else self._promised.get(node.name, EMPTY)
            while len(placed) < count and fits(add(requests, kept), self._free[node.name]):
                self._free[node.name] = subtract(self._free[node.name], requests)
                placed.append(node.name)
        return tuple(placed)

    def take_one(self, pod: Pod, preferred: str) -> bool:
        """Place another pod for one that leaves as `take` does; return whether there was room."""
        return bool(self.take(pod, pod.requests, preferred, 1, leaves=True))

    def copies(self, pod: Pod, requests: Amounts, name: str, most: int) -> int:
        """Return how many pods like `pod`, each with `requests`, fit on a node that is open to all, up to `most`.

        They get nothing that is promised to others.
        """
        node = self._cluster.node(name)
        if node is None or name not in self._free or name in self._reserved or not admits(node, pod):
            return 0
        return times(requests, subtract(self._free[name], self._promised.get(name, EMPTY)), most)


def admits(node: Node, pod: Pod) -> bool:
    """Return whether a node's labels and taints let the pod in."""
    return node_admits(pod.rules, name=node.name, labels=node.labels, taints=node.taints) is None
