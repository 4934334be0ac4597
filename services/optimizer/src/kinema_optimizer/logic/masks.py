"""Placement rules over many sites at once: per rule, a truth value for each site.

A rule looks at one label, one field or the taints. Sites are indexed by the values of each key that a rule mentions, so
that it costs a few operations on arrays, and not an evaluation for each of thousands of nodes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kinema_core.events import Labels, NodeTerm, Requirement, Taint, Toleration
from kinema_core.model.match import requirement_matches, tolerates
from kinema_optimizer.logic.problem import Flags, Ints


class SiteIndex:
    """Names, labels and taints of sites, by value; sites keep their order. All answers are (S,) truth values."""

    def __init__(self, names: Sequence[str], labels: Sequence[Labels], taints: Sequence[tuple[Taint, ...]]) -> None:
        self._labels = labels
        self._size = len(names)
        self._fields: list[Labels] = [Labels({"metadata.name": name}) for name in names]
        self._by_value: dict[tuple[bool, str], dict[str, Ints]] = {}
        self._taints = {
            held: np.array([held == other for other in taints], dtype=bool) for held in dict.fromkeys(taints)
        }

    def everywhere(self) -> Flags:
        """All sites."""
        return np.ones(self._size, dtype=bool)

    def with_labels(self, wanted: Labels) -> Flags:
        """Sites that have all of these labels."""
        found = self.everywhere()
        for key in sorted(wanted):
            found &= self.labelled(key, wanted[key])
        return found

    def labelled(self, key: str, value: str | None) -> Flags:
        """Sites with this value of a label, or without the label for None."""
        found = np.zeros(self._size, dtype=bool)
        values = self._values(key, field=False)
        if value is None:
            for places in values.values():
                found[places] = True
            return ~found
        found[values.get(value, _NOWHERE)] = True
        return found

    def with_any(self, terms: Sequence[NodeTerm]) -> Flags:
        """Sites that meet one of these alternatives; an empty alternative is met by none."""
        found = np.zeros(self._size, dtype=bool)
        for term in terms:
            if term.expressions or term.fields:
                met = self.everywhere()
                for req in term.expressions:
                    met &= self._meets(req, field=False)
                for req in term.fields:
                    met &= self._meets(req, field=True)
                found |= met
        return found

    def tolerated(self, tolerations: tuple[Toleration, ...]) -> Flags:
        """Sites none of whose taints keeps out a pod with these tolerations."""
        found = self.everywhere()
        for taints, places in self._taints.items():
            if any(taint.effect != "PreferNoSchedule" and not tolerates(tolerations, taint) for taint in taints):
                found &= ~places
        return found

    def _values(self, key: str, *, field: bool) -> dict[str, Ints]:
        if (field, key) not in self._by_value:
            found: dict[str, list[int]] = {}
            for index, labels in enumerate(self._fields if field else self._labels):
                if key in labels:
                    found.setdefault(labels[key], []).append(index)
            self._by_value[field, key] = {value: np.array(places) for value, places in found.items()}
        return self._by_value[field, key]

    def _meets(self, req: Requirement, *, field: bool) -> Flags:
        """Sites that meet one expression; those without the key meet what an absent value meets."""
        values = self._values(req.key, field=field)
        absent = requirement_matches(req, _NO_LABELS)
        found = np.full(self._size, absent)
        if req.operator in ("In", "NotIn"):
            decisive = [value for value in dict.fromkeys(req.values) if value in values]
            if req.operator == "In":
                for value in decisive:
                    found[values[value]] = True
            else:
                for value in decisive:
                    found[values[value]] = False
            return found
        for value, places in values.items():
            found[places] = requirement_matches(req, Labels({req.key: value}))
        return found


_NOWHERE: Ints = np.zeros(0, dtype=np.int64)
_NO_LABELS = Labels()
