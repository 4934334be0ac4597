"""Data of a report, whatever it was taken from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from kinema_cli.output import HOURS_PER_MONTH
from kinema_cli.report.audit import Audit

WAITED = "schedule"
"""The strategy of pending pods, which get a place."""


@dataclass(frozen=True)
class Load:
    """One resource of the whole cluster; `used` is None where it was not measured."""

    requested: int
    allocatable: int
    used: int | None = None


@dataclass(frozen=True)
class Replicas:
    """Replicas that a workload's owner asks for, and the pods of it that are ready."""

    desired: int
    ready: int


@dataclass(frozen=True)
class Sample:
    """The cluster at one moment: `at` in seconds since the record began, CPU in millicores, memory in bytes."""

    at: float
    machines: Mapping[str, int]
    """Machine type → nodes that are paid for."""
    usd_per_hour: float
    cpu: Load
    memory: Load
    workloads: Mapping[str, Replicas]


@dataclass(frozen=True)
class PodSpan:
    """Life of one pod, in seconds since the record began; None: not within the record."""

    workload: str
    pod: str
    node: str
    created: float
    ready: float | None
    leaving: float | None
    """When its deletion was asked for."""
    gone: float | None
    role: Literal["old", "new"]


@dataclass(frozen=True)
class NodeSpan:
    """Life of a node that was booted or deleted, in seconds since the record began."""

    name: str
    machine_type: str
    created: float
    ready: float | None
    gone: float | None
    role: Literal["old", "new"]


@dataclass(frozen=True)
class PodBox:
    """A pod in the picture of a node; `fate` says what the plan does with it."""

    pod: str
    app: str
    cpu: int
    memory: int
    fate: Literal["stay", "move", "restart", "schedule", "system"] = "stay"


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
    """What the plan minded and the bound does not: a limit on moves, their price."""

    @property
    def usd_saved(self) -> float:
        """What the change saves per hour for what runs already."""
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
    """How much lower the bound is without the rule; None where it was not priced."""
    part: bool = False
    """Whether the row above contains it."""


@dataclass(frozen=True)
class MachineRow:
    """Machines of one type, zone, capacity type and price, before and after."""

    machine_type: str
    zone: str
    capacity_type: str
    usd_per_hour: float
    before: int
    after: int

    @property
    def change(self) -> float:
        """What they cost more after the plan, in USD per hour."""
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
    before: tuple[NodeBox, ...] = ()
    after: tuple[NodeBox, ...] = ()
    samples: tuple[Sample, ...] = ()
    node_spans: tuple[NodeSpan, ...] = ()
    pod_spans: tuple[PodSpan, ...] = ()
    audit: Audit | None = None
    window: tuple[float, float] | None = None
    """When the plan was executed, seconds since the record began."""
    events: tuple[EventRow, ...] = ()
    rules: tuple[Rule, ...] = ()
    warnings: tuple[str, ...] = ()
    machines: tuple[MachineRow, ...] = ()
    moves: tuple[MoveRow, ...] = ()
    unplaced: tuple[tuple[str, str, str], ...] = ()
    """Pod, code and reason of each pod that the plan places nowhere."""
    quarantined: tuple[tuple[str, str, str], ...] = ()
    """Object, path and reason of each object that could not be read."""
    violated_preferences: tuple[tuple[str, str, int, int], ...] = ()
    """Workload, preference, weight and pods of each preferred rule that the plan ends."""
    redundancy_loss: tuple[tuple[str, int, int, str], ...] = ()
    """Workload, pods, nodes now and the one node then, of each that comes together."""
    facts: tuple[tuple[str, str], ...] = ()
    """Name and value of what is worth knowing about how this came about."""
