"""The scenarios by name."""

from collections.abc import Callable, Mapping

from kinema_sim.cluster import Cluster
from kinema_sim.scenarios import after_peak, strategies, tiny

SCENARIOS: Mapping[str, Callable[[int], Cluster]] = {
    "after-peak": after_peak.build,
    "strategies": strategies.build,
    "tiny": tiny.build,
}
"""Name → builder that takes the seed and gives a cluster at rest."""
