"""A simple Cluster Autoscaler that only grows: it finds room for pending pods by the least wasteful machine type."""

from dataclasses import dataclass

from kinema_sim.cloud.machines import MAX_PODS, Offer
from kinema_sim.cloud.provider import Cloud, Machine
from kinema_sim.engine.kinds import DAEMON_SET
from kinema_sim.engine.store import Store
from kinema_sim.scheduler.books import Books, PodInfo, pod_requests

LOOK_MS = 10_000


@dataclass
class _Bin:
    cpu_m: int
    memory: int
    pods: int

    def takes(self, pod: PodInfo) -> bool:
        cpu, memory = pod.requests.get("cpu", 0), pod.requests.get("memory", 0)
        if cpu > self.cpu_m or memory > self.memory or not self.pods:
            return False
        self.cpu_m -= cpu
        self.memory -= memory
        self.pods -= 1
        return True


class Growth:
    """Orders machines for pending pods, every 10 virtual seconds.

    Packs them by first fit, largest first, onto machines of one type, and orders as many as needed of the type that
    leaves the smallest share of CPU and memory unused. Only resources are looked at.

    Args:
        store: for the daemon sets that take room on every node.
        cloud: where machines are ordered.
        books: for the pending pods.
        groups: machine types to choose from.
        zones: zones, filled evenly.
    """

    def __init__(
        self, *, store: Store, cloud: Cloud, books: Books, groups: tuple[str, ...], zones: tuple[str, ...]
    ) -> None:
        self._store = store
        self._cloud = cloud
        self._books = books
        self._groups = groups
        self._zones = zones
        self._ordered = 0
        self.active = True
        store.loop.every(LOOK_MS, self._look, priority=2)

    def _look(self) -> None:
        if not self.active or not self._books.pending:
            return
        left = self._largest_first()
        for machine in self._coming():
            room = self._empty(machine.offer)
            left = [pod for pod in left if not room.takes(pod)]
        if not left:
            return
        options = [self._estimate(group, left) for group in self._groups]
        _, count, group = min(option for option in options if option[1])
        for _ in range(count):
            self._order(group)

    def _largest_first(self) -> list[PodInfo]:
        return sorted(
            self._books.pending.values(),
            key=lambda pod: (-pod.requests.get("cpu", 0), -pod.requests.get("memory", 0), pod.key),
        )

    def _coming(self) -> list[Machine]:
        """Machines that will take pods soon: booting, or running and not yet Ready."""
        found: list[Machine] = []
        for _, machine in sorted(self._cloud.machines.items()):
            node = self._books.node(machine.name)
            if machine.state == "booting" or (node is not None and node.taints):
                found.append(machine)
        return found

    def _empty(self, offer: Offer) -> _Bin:
        room = _Bin(*offer.allocatable, MAX_PODS)
        for daemon in self._store.sorted(DAEMON_SET):
            requests = pod_requests(daemon["spec"]["template"])
            room.cpu_m -= requests.get("cpu", 0)
            room.memory -= requests.get("memory", 0)
            room.pods -= 1
        return room

    def _estimate(self, group: str, pods: list[PodInfo]) -> tuple[int, int, str]:
        """Give wasted share in millionths, machines needed, and the group."""
        offer = self._offer(group, self._zones[0])
        bins: list[_Bin] = []
        for pod in pods:
            if not any(room.takes(pod) for room in bins):
                room = self._empty(offer)
                if room.takes(pod):
                    bins.append(room)
        whole = self._empty(offer)
        if not bins:
            return 0, 0, group
        cpu_waste = sum(room.cpu_m for room in bins) * 1_000_000 // (whole.cpu_m * len(bins))
        memory_waste = sum(room.memory for room in bins) * 1_000_000 // (whole.memory * len(bins))
        return cpu_waste + memory_waste, len(bins), group

    def _order(self, group: str) -> None:
        counts = dict.fromkeys(self._zones, 0)
        for machine in self._cloud.machines.values():
            counts[machine.offer.zone] = counts.get(machine.offer.zone, 0) + 1
        zone = min(self._zones, key=lambda each: (counts[each], each))
        self._ordered += 1
        name = f"{group}-{self._ordered:03d}"
        self._cloud.boot(name, self._offer(group, zone), f"grow-{name}", labels={}, taints=[])

    def _offer(self, group: str, zone: str) -> Offer:
        return self._cloud.offers[f"{group}/{zone}/on-demand"]
