"""Data of a report, whatever it was taken from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Literal

import msgspec

from kinema_cli.output import HOURS_PER_MONTH, could_be_saved
from kinema_cli.report.audit import Audit
from kinema_core.events import Plan

if TYPE_CHECKING:
    from kinema_optimizer.planning.frontier import FrontierPoint

WAITED = "schedule"
"""The strategy of pending pods, which get a place."""


class Machine(msgspec.Struct, frozen=True):
    """A machine that is paid for."""

    machine_type: str


class Replicas(msgspec.Struct, frozen=True):
    """Replicas that a workload's owner asks for, and the pods of it that are ready and not leaving."""

    desired: int
    ready: int


class Sums(msgspec.Struct, frozen=True):
    """A sum over the cluster."""

    cpu_m: int
    memory_bytes: int


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster at one moment, as the simulated cluster records it."""

    time: datetime
    nodes: tuple[Machine, ...]
    usd_per_hour: float
    workloads: dict[str, Replicas]
    requested: Sums
    allocatable: Sums
    used: Sums
    at: float = 0.0
    """Seconds since the record began; not part of the record itself."""

    @property
    def machines(self) -> Mapping[str, int]:
        """Nodes that are paid for, by machine type."""
        return Counter(node.machine_type for node in self.nodes)


@dataclass
class Life:
    """Life of one pod or node, in seconds since the record began; below 0: before it; None: not within the record."""

    name: str
    of: str
    """A pod's workload, a node's machine type."""
    node: str
    created: float
    ready: float | None = None
    leaving: float | None = None
    """When its deletion was asked for."""
    gone: float | None = None
    role: Literal["old", "new"] = "old"
    """`new`: created by a plan."""


@dataclass(frozen=True)
class PodBox:
    """A pod in the picture of a node; `fate` says what the plan does with it."""

    pod: str
    app: str
    cpu: int
    memory: int
    fate: Literal["stay", "move", "restart", "resize", "schedule", "system"] = "stay"


@dataclass(frozen=True)
class NodeBox:
    """A node in the picture of a plan."""

    name: str
    machine_type: str
    zone: str
    usd_per_hour: float
    action: Literal["keep", "boot", "delete"]
    cpu: int
    memory: int
    pods: tuple[PodBox, ...]


@dataclass(frozen=True)
class EventRow:
    """One line of the protocol: `at` in seconds since the record began, or None in a report without a record."""

    at: float | None
    service: str
    event: str
    text: str
    refusal: bool = False
    number: int = 0
    """Place in the log, from 1."""


@dataclass(frozen=True)
class Headline:
    """The figures on top. Money in USD per hour; `gap` and `lower_bound` None where no plan gave them."""

    nodes_before: int
    nodes_after: int
    usd_before: float
    usd_after: float
    lower_bound: float | None
    gap: float | None
    status: str
    moves: int
    restarts: int
    strategies: Mapping[str, int] = field(default_factory=dict)
    """Moved or restarted pods by strategy."""
    watts: tuple[float, float] | None = None
    """Before and after, where energy was made small; the bound is in watts then too."""
    usd_waiting: float = 0.0
    """Of `usd_after`, what pods cost that wait now: their part of the new machines."""
    still: bool = False
    """The bound is of plans that move nothing."""
    beside: str = ""
    """Limits of the plan that the bound leaves out: a limit on moves, their price."""

    @property
    def after(self) -> float:
        """Cost in the unit of the bound."""
        return self.usd_after if self.watts is None else self.watts[1]

    @property
    def could_be_saved(self) -> str:
        """How far the plan may be from the least, in words."""
        which = "no plan without moves" if self.still else "no plan"
        return could_be_saved(self.after, self.lower_bound or 0.0, "USD/h" if self.watts is None else "W", which=which)

    @property
    def usd_saved(self) -> float:
        """Saving per hour for the pods that run already."""
        return round(self.usd_before - self.usd_after + self.usd_waiting, 6)

    @property
    def usd_saved_per_month(self) -> float:
        """The same in a month of 730 hours."""
        return self.usd_saved * HOURS_PER_MONTH


@dataclass(frozen=True)
class Rule:
    """A rule that costs something or keeps nodes. Money in USD per hour."""

    name: str
    example: str
    pods: int
    """Pods that it keeps on their nodes."""
    nodes: int
    """Nodes that stay and have such a pod, or are kept by it themselves."""
    alone: int
    """Those of them that no other rule keeps."""
    usd_alone: float
    """Price of those. Lifting the rule may save less, as their pods need a place, or more, as others leave room."""
    saves: float | None
    """Decrease of the bound without the rule; None where it was not priced."""
    part: bool = False
    """True if the row above contains it."""


@dataclass(frozen=True)
class MachineRow:
    """Machines of one type, zone, capacity type and price, committed or not, before and after."""

    machine_type: str
    zone: str
    capacity_type: str
    usd_per_hour: float
    committed: bool
    before: int
    after: int

    @property
    def change(self) -> float:
        """Increase of their cost by the plan, in USD per hour."""
        return self.usd_per_hour * (self.after - self.before)


@dataclass(frozen=True)
class MoveRow:
    """Pods of a workload that move in one way."""

    workload: str
    namespace: str
    pods: int
    strategy: str
    sources: str
    targets: str
    cost: str
    """Disruption cost of each in ordinary restarts; empty where it is 1."""


@dataclass(frozen=True)
class ReportData:
    """Everything in a report. Parts that were not observed are empty, and their sections are left out."""

    title: str
    subtitle: str
    headline: Headline
    plan: Plan | None = None
    """The plan, or the one of several that saves most."""
    before: tuple[NodeBox, ...] = ()
    after: tuple[NodeBox, ...] = ()
    samples: tuple[Sample, ...] = ()
    node_lives: tuple[Life, ...] = ()
    pod_lives: tuple[Life, ...] = ()
    audit: Audit | None = None
    window: tuple[float, float] | None = None
    """When the plan was executed, seconds since the record began."""
    events: tuple[EventRow, ...] = ()
    rules: tuple[Rule, ...] = ()
    warnings: tuple[str, ...] = ()
    machines: tuple[MachineRow, ...] = ()
    moves: tuple[MoveRow, ...] = ()
    frontier: tuple[FrontierPoint, ...] = ()
    """What parts of the plan cost, over their moves."""
    facts: tuple[tuple[str, str], ...] = ()
    """Name and value of what is worth knowing about how this came about."""
