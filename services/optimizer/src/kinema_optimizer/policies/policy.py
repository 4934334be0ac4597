"""A policy as the optimizer runs it: asked at every tick, it proposes a plan and says what it will have to remember.

A tick is an iteration of the observer, or one of a simulation. All that a policy remembers is since when something
holds, by name: how long a node has been unneeded, when one was last added. The event that answers the tick carries it,
so that it is the same after a restart and in a replay.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Protocol, TypeAlias

from kinema_core.events import Amounts, Offer
from kinema_core.model.cluster import Cluster
from kinema_core.model.mobility import MobilityOptions
from kinema_optimizer.policies.proposal import Proposal
from kinema_optimizer.policies.world import World
from kinema_optimizer.solvers.stopping import StopRule

Since: TypeAlias = Mapping[str, datetime]
"""What holds, and since when."""


@dataclass(frozen=True)
class Tick:
    """What a policy sees."""

    cluster: Cluster
    offers: tuple[Offer, ...]
    now: datetime
    since: Since = field(default_factory=lambda: MappingProxyType({}))
    """What it remembered at the last tick."""
    usage: Mapping[str, Amounts] = field(default_factory=lambda: MappingProxyType({}))
    """Pod key → what it uses, in millicores and bytes; pods without a reading are left out."""
    options: MobilityOptions = field(default_factory=MobilityOptions)
    stop: StopRule | None = None
    """Ends the solve of a policy that solves a model."""
    coming: frozenset[str] = frozenset()
    """Names of nodes that are on their way: the cluster shows them as they will be."""

    def world(self) -> World:
        """Return the cluster as policies change it. Raises PriceError where no live node has a price."""
        return World(self.cluster, self.offers, self.now, self.options, self.coming)

    def held_since(self, key: str) -> datetime:
        """Return since when something holds that holds now."""
        return self.since.get(key, self.now)

    def has_lasted(self, key: str, seconds: float) -> bool:
        """Return whether something that holds now has held for so long."""
        return self.now - self.held_since(key) >= timedelta(seconds=seconds)


@dataclass(frozen=True)
class Outcome:
    """Result of a tick."""

    proposal: Proposal
    since: Since = field(default_factory=lambda: MappingProxyType({}))
    """What to remember."""
    due: datetime | None = None
    """When it may do something else although nothing changes; None: never."""
    shunned: Collection[str] | None = None
    """Nodes that the scheduler is to take last from now on (a taint PreferNoSchedule); None: those of before."""


class Policy(Protocol):
    """A rule by which a cluster changes over time. Pure: the same tick has the same outcome."""

    @property
    def name(self) -> str:
        """Name in settings, events and reports."""

    @property
    def period_seconds(self) -> float:
        """Time between two ticks, where the policy has its own clock."""

    def tick(self, tick: Tick) -> Outcome:
        """Return what to do now.

        Raises:
            PriceError: no live node has a price.
        """


def earliest(*moments: datetime, after: datetime) -> datetime | None:
    """Return the first moment after another one."""
    return min((moment for moment in moments if moment > after), default=None)
