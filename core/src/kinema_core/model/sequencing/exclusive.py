"""Resources that one pod at a time can have: host ports of a node, and volumes that are attached to one node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from kinema_core.events import HostPort, Pod
from kinema_core.model.cluster import Cluster
from kinema_core.model.match import ports_clash
from kinema_core.model.sequencing.movers import Mover

PORTS: Final = "host ports"
VOLUMES: Final = "volumes"


class ExclusiveResources:
    """Pods that use host ports and exclusive volumes, during a wave.

    A new copy can have neither before the old one is gone. A claim is taken to be for one node at a time, unless it is
    in use on several: what else its access modes allow is not in the state.
    """

    def __init__(self, cluster: Cluster, movers: Iterable[Mover]) -> None:
        self._ports: dict[str, dict[str, tuple[HostPort, ...]]] = {}
        self._users: dict[str, Counter[str]] = {}
        self._for_many: set[str] = set()
        self._wave: list[tuple[Mover, str | None, str]] = []
        self.taken = ""
        """Kind of what the move that was asked for last cannot have."""
        self._concerned = {mover.key for mover in movers if mover.pod.rules.host_ports or mover.pod.rules.claims}
        if not self._concerned:
            return
        for pod in cluster.pods:
            if pod.node is None:
                continue
            if pod.rules.host_ports:
                self._ports.setdefault(pod.node, {})[pod.key] = pod.rules.host_ports
            for claim in self._claims(pod):
                self._users.setdefault(claim, Counter())[pod.node] += 1
        self._for_many = {claim for claim, users in self._users.items() if len(users) > 1}

    def _claims(self, pod: Pod) -> list[str]:
        claims = (f"{pod.namespace}/{name}" for name in pod.rules.claims)
        return [claim for claim in claims if claim not in self._for_many]

    def touches(self, mover: Mover) -> bool:
        """Return whether the pod has any of it."""
        return mover.key in self._concerned

    def begin(self, mover: Mover, source: str | None, to: str) -> bool:
        """Let the pod move in this wave, if it can have what it needs; nothing is changed where it cannot."""
        if not self.touches(mover):
            return True
        rolled = mover.strategy == "rolling"  # by kube-scheduler alone, one by one
        self.taken = PORTS if not rolled and self._port_taken(mover, to) else ""
        if not self.taken and not rolled and self._volume_taken(mover, source, to):
            self.taken = VOLUMES
        if self.taken:
            return False
        self._wave.append((mover, source, to))
        if mover.pod.rules.host_ports:
            self._ports.setdefault(to, {})[_coming(mover)] = mover.pod.rules.host_ports
        for claim in self._claims(mover.pod):
            self._users.setdefault(claim, Counter())[to] += 1
        return True

    def _port_taken(self, mover: Mover, to: str) -> bool:
        others = self._ports.get(to, {})
        wanted = mover.pod.rules.host_ports
        return bool(wanted) and any(
            ports_clash(wanted, ports) is not None for key, ports in others.items() if key != mover.key
        )

    def _volume_taken(self, mover: Mover, source: str | None, to: str) -> bool:
        for claim in self._claims(mover.pod):
            users = self._users.get(claim, Counter())
            elsewhere = sum(count for node, count in users.items() if node != to)
            own = 1 if mover.strategy == "evict" and source not in (None, to) else 0
            if elsewhere > own:
                return True
        return False

    @property
    def begun(self) -> int:
        """Return how many moves of this wave are concerned."""
        return len(self._wave)

    def rewind(self, begun: int) -> None:
        """Take back the moves after so many."""
        while len(self._wave) > begun:
            mover, _, to = self._wave.pop()
            self._ports.get(to, {}).pop(_coming(mover), None)
            for claim in self._claims(mover.pod):
                self._users[claim][to] -= 1

    def settle(self) -> None:
        """End the wave: old copies have released all they had."""
        for mover, source, to in self._wave:
            self._ports.get(source or "", {}).pop(mover.key, None)
            self._ports.get(to, {}).pop(_coming(mover), None)
            if mover.pod.rules.host_ports:
                self._ports.setdefault(to, {})[mover.key] = mover.pod.rules.host_ports
            for claim in self._claims(mover.pod) if source is not None else ():
                self._users[claim][source or ""] -= 1
        self._wave.clear()


def _coming(mover: Mover) -> str:
    return f"{mover.key} (new)"
