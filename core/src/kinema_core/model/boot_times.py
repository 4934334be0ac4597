"""Boot times that the log has shown: from the order of a node until its provider reported the machine.

Only a boot that was made counts: one that failed bought nothing, and of one that was found made the log does not say
when it was delivered. How long a reported machine takes to be Ready is not in the log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from fractions import Fraction
from itertools import chain
from types import MappingProxyType
from typing import Final, NamedTuple

from kinema_core.events import Event, ExecutionAborted, ExecutionCompleted, StepStarted, StepSucceeded

_KEPT: Final = 16
"""Boots of an offer that are remembered: a cloud that has become slower shows after as many."""
_MICROSECOND: Final = timedelta(microseconds=1)


class _Order(NamedTuple):
    offer: str
    at: datetime


@dataclass(frozen=True)
class BootTimes:
    """How long the last boots of each offer took."""

    last: Mapping[str, tuple[timedelta, ...]] = field(default_factory=lambda: MappingProxyType({}))
    """By the name of the offer, the newest last."""
    ordered: Mapping[str, _Order] = field(default_factory=lambda: MappingProxyType({}))
    """Boots that are under way, by the id of their step."""

    def after(self, event: Event) -> BootTimes:
        """Return the boot times with what a log event adds."""
        match event.body:
            case StepStarted(step=step) if step.kind == "boot":
                order = _Order(step.offer, event.time)
                return replace(self, ordered=MappingProxyType({**self.ordered, step.id: order}))
            case StepSucceeded(step=step, outcome="done") if step in self.ordered:
                offer, at = self.ordered[step]
                others = {other: found for other, found in self.ordered.items() if other != step}
                times = (*self.last.get(offer, ()), event.time - at)[-_KEPT:]
                return BootTimes(MappingProxyType({**self.last, offer: times}), MappingProxyType(others))
            case ExecutionCompleted() | ExecutionAborted() if self.ordered:
                return replace(self, ordered=MappingProxyType({}))  # one execution at a time
            case _:
                return self

    def seconds(self, offer: str = "") -> Fraction:
        """Return the mean boot time of an offer, of all where it was never booted or none is named; 0 without boots."""
        times = self.last.get(offer) or tuple(chain.from_iterable(self.last.values()))
        return Fraction(sum(times, timedelta()) // _MICROSECOND, 1_000_000 * len(times)) if times else Fraction(0)
