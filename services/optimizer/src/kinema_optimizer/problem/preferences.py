"""Preferences of pods about nodes: preferred node affinity, and untolerated taints `PreferNoSchedule`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kinema_core.events import PlacementRules, Pod, PreferredNodeTerm, Toleration
from kinema_core.model.pod_locations import Spot
from kinema_core.model.preferences import has_preferences, shunned, unmet_on_node
from kinema_optimizer.problem.admission import NEW_NODE, Site
from kinema_optimizer.problem.arrays import Ints


class NodePreferences:
    """Weight points that a pod loses at each site: nodes, then offers. Computed once per set of preferences."""

    def __init__(self, nodes: Sequence[Site], offers: Sequence[Site]) -> None:
        self._spots = [(site.name, Spot(site.labels, site.taints)) for site in nodes]
        self._spots += [(NEW_NODE, Spot(site.labels, site.taints)) for site in offers]
        self._shuns = any(shunned(taint) for _, spot in self._spots for taint in spot.taints)
        self._known: dict[tuple[tuple[PreferredNodeTerm, ...], tuple[Toleration, ...]], Ints | None] = {}

    def points(self, pod: Pod) -> Ints | None:
        """(S,): of each site; None when the pod is as well anywhere."""
        rules = pod.rules
        if not (self._shuns or rules.preferred_nodes):  # most pods
            return None
        key = (rules.preferred_nodes, rules.tolerations if self._shuns else ())
        if key not in self._known:
            self._known[key] = self._rated(PlacementRules(preferred_nodes=key[0], tolerations=key[1]))
        return self._known[key]

    def asks(self, pod: Pod) -> bool:
        """Whether the pod prefers anything, of nodes or of other pods."""
        return has_preferences(pod.rules) or self.points(pod) is not None

    def _rated(self, rules: PlacementRules) -> Ints | None:
        each = [sum(one.weight for one in unmet_on_node(rules, name, spot)) for name, spot in self._spots]
        found = np.array(each, dtype=np.int64)
        return found if (found != found[:1]).any() else None
