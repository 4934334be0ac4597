"""Metrics server: the usage of pods and nodes as of its last scrape."""

from collections.abc import Callable
from dataclasses import dataclass

from kinema_sim.engine.kinds import POD
from kinema_sim.engine.objects import Key, key_of, node_of, phase_of
from kinema_sim.engine.store import Store

SCRAPE_MS = 15_000


@dataclass(frozen=True)
class Usage:
    """Usage of a pod: CPU in billionths of a core, memory in bytes."""

    cpu_nano: int
    memory_bytes: int


UsageSource = Callable[[], dict[Key, Usage]]
"""Gives the usage of every running pod right now."""


class Meter:
    """Scrapes the usage of running pods every 15 virtual seconds.

    A pod is in the scrape once it has been running for a whole window, as a rate needs two points.
    """

    def __init__(self, store: Store, source: UsageSource) -> None:
        self._store = store
        self._source = source
        self._seen_running: dict[Key, str] = {}
        self.time_ms = store.loop.now_ms
        self.usage: dict[Key, Usage] = {}

    def scrape(self) -> None:
        """Take the next scrape."""
        current = self._source()
        running: dict[Key, str] = {}
        usage: dict[Key, Usage] = {}
        for pod in self._store.sorted(POD):
            key = key_of(pod)
            if phase_of(pod) != "Running" or key not in current:
                continue
            running[key] = pod["metadata"]["uid"]
            if self._seen_running.get(key) == running[key]:
                usage[key] = current[key]
        self._seen_running = running
        self.usage = usage
        self.time_ms = self._store.loop.now_ms

    def node_usage(self) -> dict[str, Usage]:
        """Add the pods' usage up by node."""
        totals: dict[str, Usage] = {}
        for key, usage in self.usage.items():
            pod = self._store.find(POD, key)
            if pod is not None:
                old = totals.get(node_of(pod), Usage(0, 0))
                totals[node_of(pod)] = Usage(old.cpu_nano + usage.cpu_nano, old.memory_bytes + usage.memory_bytes)
        return totals
