"""Settings of the optimizer."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from kinema_core.events import FrozenMap
from kinema_core.model.mobility import MobilityOptions
from kinema_core.model.spot_share import SpotShare
from kinema_core.ranges import NotNegative, Positive, Share, between, check_ranges
from kinema_core.runtime.settings import RuntimeSettings
from kinema_optimizer.request.choice import Choice
from kinema_optimizer.request.limits import NodeLimit
from kinema_optimizer.request.objective import MICRO, MovePrice, Objective, Window, objective_at
from kinema_optimizer.request.usable import UsableResources

PolicyName: TypeAlias = Literal[
    "kinema",
    "thesis",
    "cluster-threshold",
    "cluster-threshold-plain",
    "promethee",
    "cluster-autoscaler",
    "cluster-autoscaler-balanced",
    "optimize-utilization",
    "karpenter",
    "metric-descheduler",
    "trimaran",
    "none",
]
NAME: Final = "optimizer"
"""Of the service: its user at the broker, its consumer, and its work queue."""


class PlanningSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings that decide about plans."""

    time_limit_seconds: Positive = 10.0
    """Real seconds for the solver, all phases together; the best plan found by then is proposed with its gap."""
    rest_seconds: Positive = 1.0
    """The same for the rest of a plan whose execution met an obstacle: it is planned again from the state of now."""
    windows: tuple[Window, ...] = ()
    """Objectives by time of the week; the first that contains the moment counts, without one least cost alone."""
    redundancy: bool = True
    """A plan leaves no workload that is on several nodes on one, nor in fewer zones than now; pods of Jobs aside. The
    decider needs the same value."""
    headroom: Annotated[int, between(0, 1000)] = 1
    """A plan to save leaves room in every zone for so many more of the largest pods for which there is room now, in one
    piece on a node; it buys none where there is none. Pods count that request only CPU and memory. Not where the window
    names `headroom` or `usable` is set, nor while pending pods could use the room. 0: none is left, and pods that come
    may preempt others of a lower priority."""
    max_headroom_fraction: Share = 0.03
    """Largest share of a zone's CPU or memory that one of these pods may request: room for a larger one, which no plan
    would give up again, would cost as much of the zone. Pods that may preempt others, being of a higher priority than
    some, count whatever they request. 1: all do."""
    transition_seconds: NotNegative = 300.0
    """Time, beyond the boot, for which a node that is deleted and bought back costs twice. Room for replicas that the
    forecast expects sooner than this pays (`ahead_hours` of the predictor) is kept. The decider needs the same
    value."""
    restart_price_usd: NotNegative = 0.0001
    """Assumed cost of one restarted pod, for the same. The decider needs the same value."""
    move_jobs: bool = False
    """Pods of Jobs may be moved. The decider needs the same value."""
    allow_spot: bool = False
    """Pods may be put on spot capacity without asking for it. The decider needs the same value."""
    spot: SpotShare = SpotShare()
    """Limits on the share of a workload's pods on spot capacity. The decider needs the same values."""
    scope: tuple[dict[str, str], ...] = ()
    """Nodes that are Kinema's: those that have all labels of any of these. Others stay with their pods, and new nodes
    have such labels too. Empty: every node. The decider needs the same value."""
    expected_use_fraction: Annotated[float, between(0, 0.9)] = 0.5
    """Fraction of the room that a node bought for pending pods leaves, of which the next pods are expected to make use:
    so much of what the room is worth for the cluster's mix of requests counts as no cost of the plan. 0: the least cost
    for the pods that wait."""
    autoscale_moves: bool = False
    """Running pods may be moved for pending ones where that is cheaper than a new node, moves at their price."""
    move_price_usd: MovePrice | None = None
    """USD per hour that a plan has to save for each pod that it moves, where the window sets none and money counts.

    null: the objective's, a tenth of what a pod costs on average where moves have no limit. To six decimals.
    """
    max_moves: Annotated[int, between(0, 2**31)] | None = None
    """Most pods that a plan moves, where the window sets no number; null: any number. A stop counts too."""
    max_moves_fraction: Share = 0.25
    """Most pods that a plan to save moves or restarts, as a share of all pods; above 0, ten pods always may, and
    those of a cluster's only node. The decider needs the same value."""
    min_savings_fraction: Share = 0.1
    """Share of the cost that a plan has to save. Where requests are to fall and a plan saves less, they fall in place
    and nothing moves: a later plan saves enough. The decider needs the same value."""
    resize_in_place: bool = True
    """Pods that kubelets can resize while they run need no room for second copies where only their requests change.
    The rescheduler needs the same value (`limits.resize_in_place`)."""
    preference_price_usd: Annotated[float, between(0, 1)] = 0.000001
    """USD per hour that each weight point of a preferred rule is worth; W for the objective `energy`. To six decimals.

    A preference has 1 to 100 points; a taint `PreferNoSchedule` and a spread `ScheduleAnyway` count 100. By default a
    node full of pods (110, 100 points each) loses a cent: preferences break ties and hardly ever pay for a node. 0:
    they are reported only.
    """
    refused_seconds: NotNegative = 3600.0
    """Time for which a workload's pods stay after new ones were refused (a quota, an admission rule), taken back by
    their autoscaler, bound to no node or not Ready in time."""
    stock_out_seconds: NotNegative = 300.0
    """Time for which an offer that could not be booted (stock-out, quota, never Ready) is left; it doubles with each
    failure in a row, up to four hours. A machine type that fails in two zones is left in every zone."""
    limits: tuple[NodeLimit, ...] = ()
    """Limits on nodes and their vCPUs: in total, in a zone, of a machine type, of a capacity type."""
    usable: UsableResources | None = None
    """Maximum utilization of the usable part of the cluster after a plan."""
    balance: bool = False
    """Pods of a workload prefer to be spread evenly over the zones that have nodes, where no rule of theirs speaks of
    zones; 100 points of `preference_price_usd` for each pod too many."""
    choice: Choice | None = None
    """Choice among plans of nearly equal cost; it divides the solver's time among them."""
    seed: Annotated[int, between(0, 2**31 - 1)] = 0
    """Of the search: the same problem, seed and amount of work give the same plan."""
    workers: Annotated[int, between(1, 256)] = 2
    """Processors that the search may use; how many it has changes how far it gets in time, not which way it goes."""

    def __post_init__(self) -> None:
        """Refuse what no type can."""
        check_ranges(self)

    @property
    def mobility(self) -> MobilityOptions:
        """Pods that the operator allows to move."""
        return MobilityOptions(
            move_jobs=self.move_jobs,
            allow_spot=self.allow_spot,
            spot_share=self.spot.max_share,
            spot_pool_share=self.spot.max_share_per_pool,
            autoscale_moves=self.autoscale_moves,
            redundancy=self.redundancy,
            scope=tuple(map(FrozenMap, self.scope)),
            resize_in_place=self.resize_in_place,
        )

    def for_a_rest(self) -> PlanningSettings:
        """Return the settings for the rest of a plan, for which there is less time."""
        return msgspec.structs.replace(self, time_limit_seconds=min(self.time_limit_seconds, self.rest_seconds))

    def objective(self, now: datetime) -> Objective:
        """Return the objective at a moment: that of its window, completed by the settings for all times."""
        found = objective_at(self.windows, now)
        price = found.move_price
        if price is None and found.kind == "cost":
            price = None if self.move_price_usd is None else round(self.move_price_usd * MICRO)
        most = self.max_moves if found.max_moves is None else found.max_moves
        return replace(found, move_price=price, max_moves=most)


class PolicySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which policy plans, and which ones say what they would do."""

    name: PolicyName = "kinema"
    """Policy that plans: Kinema or another system. Decider and rescheduler judge and execute its plans like others."""
    shadow: tuple[PolicyName, ...] = ()
    """Policies that are asked as well: `policy-evaluated` states what each would do, and no service acts on it."""
    delay_seconds: NotNegative | None = None
    """Time for which a node has to be unneeded before a Cluster Autoscaler or cluster-threshold removes it; null: as
    they have it, ten minutes, or one for `optimize-utilization`."""

    def __post_init__(self) -> None:
        """Refuse what no type can."""
        check_ranges(self)
        if "kinema" in self.shadow or self.name in self.shadow:
            message = "shadow names other policies than the one in charge; kinema is none of them"
            raise ValueError(message)


class SolverSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The process that solves. None of it decides about plans, unless that process fails."""

    memory_limit_mib: Annotated[int, between(1)] = 4096
    """Resident memory at which it is killed; give the service's container this much more than it needs itself."""
    share: bool = False
    """Offer the search's tasks to worker processes by the work queue; the solver executes what no worker takes."""
    patience_seconds: Positive = 120.0
    """Real seconds without a sign of life, past the time limit, after which it is killed."""

    def __post_init__(self) -> None:
        """Refuse what no type can."""
        check_ranges(self)


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the optimizer's service."""

    runtime: RuntimeSettings
    planning: PlanningSettings = msgspec.field(default_factory=PlanningSettings)
    policy: PolicySettings = msgspec.field(default_factory=PolicySettings)
    solver: SolverSettings = msgspec.field(default_factory=SolverSettings)
    stale_event_seconds: NotNegative = 900.0
    """An event that is older when it is delivered is dropped at once, with a copy in DLQ: its iteration was abandoned
    (`iteration_deadline_seconds` of the observer)."""

    def __post_init__(self) -> None:
        """Refuse what no type can."""
        check_ranges(self)
