"""Question about a cluster, and its live nodes and offers as places for pods."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from kinema_core.events import Mode, Offer, WorkloadForecast
from kinema_core.model.cluster import Cluster
from kinema_core.model.mobility import Mobility, MobilityOptions
from kinema_optimizer.problem.admission import Admission, Site
from kinema_optimizer.problem.rules.reduced import ReducedRules


@dataclass(frozen=True)
class Question:
    """Question about a cluster."""

    cluster: Cluster
    offers: tuple[Offer, ...]
    now: datetime
    mode: Mode
    forecasts: tuple[WorkloadForecast, ...] = ()
    percent: int = 100
    """Ceiling on every node's CPU and memory utilization: nothing new is placed above it."""
    options: MobilityOptions = field(default_factory=MobilityOptions)
    point_price: int = 0
    """Worth of a weight point of a preferred rule, in millionths of the objective's unit."""
    move_price: int | None = None
    """Millionths of the objective's unit for an ordinary move; None: among plans of nearly least cost, fewest moves."""
    max_moves: int | None = None
    """Pods that a plan moves at most, stops on the way counted; None: any number."""
    unmoved: frozenset[str] = frozenset()
    """Keys of pods that are to stay where they are though they might move: their moves had no order."""
    apart: frozenset[str] = frozenset()
    """Keys of workloads whose pods are classes of their own, because they lost their redundancy in shared ones."""
    still: bool = False
    """These are all that might move, because nothing is to move."""


@dataclass(frozen=True)
class Sites:
    """Live nodes and offers as places for pods, and what may move."""

    nodes: tuple[Site, ...]
    offers: tuple[Site, ...]
    prices: Mapping[str, int]
    """Micro-USD per hour of each live node."""
    mobility: Mobility
    admission: Admission
    ties: ReducedRules
