"""A plan: which nodes, which pod where, what it costs: what `kinema plan -o json` prints (`kinema.plan/v1`)."""

from __future__ import annotations

from typing import ClassVar, Final, Literal, TypeAlias

import msgspec

from kinema_core.events.frozen import EMPTY, FrozenMap
from kinema_core.events.objects import Amounts, Wire

Strategy: TypeAlias = Literal["surge", "rolling", "evict", "stay", "schedule", "unknown"]
"""How a pod moves; `unknown`: in a way that this version does not know."""
Mode: TypeAlias = Literal["reschedule", "autoscale"]
Purpose: TypeAlias = Literal["saving", "safety", "room", "balance", "policy"]
"""Why a plan is made: to save; for the safety of workloads, whose requests it raises; for room, which pending pods,
headroom, minimum nodes or usable resources ask for; for the balance of the cluster; or because a policy asks for it."""


OPERATOR: Final = "/operator-"
"""Part of the iteration of a plan that an operator proposes: no observer has begun it."""


class Cost(Wire, frozen=True, kw_only=True, omit_defaults=False):
    """Money per hour, in the unit named, to six decimals.

    No plan is below `lower_bound`, however many pods it moves: a limit on moves and their price are not in it, but for
    a limit of 0, where it is of plans that move nothing (figure `bound_without_moves`).
    `gap` is (after − lower_bound) / lower_bound; 0 when both are 0, None when only the bound is.
    """

    before: float
    after: float
    lower_bound: float
    gap: float | None
    unit: str = "USD/h"


class PlanNode(Wire, frozen=True, kw_only=True):
    """A node of the plan: one to keep, to boot or to delete."""

    name: str
    machine_type: str
    zone: str
    capacity_type: str
    offer: str
    usd_per_hour: float
    action: Literal["keep", "boot", "delete"]
    committed: bool = False
    """Whether a commitment covers it: `usd_per_hour` is what such a machine still costs."""


class Placement(Wire, frozen=True, kw_only=True, omit_defaults=False):
    """Present and planned node of one pod. `source` is written as `from`."""

    pod: str
    uid: str
    source: str | None = msgspec.field(name="from")
    to: str
    strategy: Strategy
    requests: Amounts


class Unplaced(Wire, frozen=True, kw_only=True, omit_defaults=False):
    """A pending pod for which the plan has no place, and why."""

    pod: str
    uid: str
    code: str
    reason: str


class QuarantinedObject(Wire, frozen=True, kw_only=True, omit_defaults=False):
    """An object that could not be read, and where in it."""

    object: str
    path: str
    reason: str


class Held(Wire, frozen=True, kw_only=True, omit_defaults=False):
    """A pod that cannot move, and the rule that holds it."""

    pod: str
    code: str
    reason: str


class PlanStep(Wire, frozen=True, kw_only=True):
    """One step of the way from the cluster as it is to the plan. Steps of one wave go on side by side, in any order.

    A node that is booted in a wave takes pods from the next one on; a node is deleted in a wave after the last pod has
    left it. A `move` brings a new copy of the pod to the node, also of a pending pod, and also to the node where the
    old copy is (a rolling update); the old copy is gone when the wave has ended.
    """

    wave: int
    """From 0."""
    action: Literal["boot", "move", "delete"]
    node: str
    """What is booted or deleted, or where the pod goes: where its placement says, or to a stop on the way there."""
    pod: str = ""
    """`namespace/name`, for `move`."""


class ConstraintCost(Wire, frozen=True, kw_only=True, omit_defaults=False):
    """Cost of a constraint."""

    constraint: str
    usd_per_hour: float


class ViolatedPreference(Wire, frozen=True, kw_only=True, omit_defaults=False):
    """A preferred rule that holds for so many pods of a workload now and does not after the plan."""

    workload: str
    """`Type/namespace/name`; `Pod/namespace/name` of a pod without an owner."""
    preference: str
    weight: int
    """Of each pod, as Kubernetes gives it; 100 for what it gives none."""
    pods: int
    price: float
    """Of all of them together, in the unit of the plan's cost."""


class RedundancyLoss(Wire, frozen=True, kw_only=True, omit_defaults=False):
    """A workload whose pods run on several nodes now and all on one after the plan; none of their rules forbids it."""

    workload: str
    """`Type/namespace/name`."""
    pods: int
    nodes_before: int
    node: str


class Resize(Wire, frozen=True, kw_only=True, omit_defaults=False):
    """New requests of a workload's pods. `workload` is `Type/namespace/name`.

    They are applied in place where the plan leaves all pods on their nodes and the kubelets allow it, else by a rolling
    update, which is what the plan keeps room for.
    """

    workload: str
    requests_before: Amounts
    requests_after: Amounts


class Seats(Wire, frozen=True, kw_only=True, omit_defaults=False):
    """Where the pods of a workload are after a plan. `workload` is `Type/namespace/name`."""

    workload: str
    pods: FrozenMap[int]
    """Their number by the name of the node."""


class Stop(Wire, frozen=True, kw_only=True, omit_defaults=False):
    """End of a solve: `reason` states whether it was done or stopped, and by what; a replay stops there, too."""

    reason: Literal["optimal", "time-limit", "work-limit", "infeasible"]
    phase: str
    iteration: int


class Solve(Wire, frozen=True, kw_only=True, omit_defaults=False):
    """Course of the solve. Seconds are measured on the machine that solved, and are no part of the decision."""

    seconds: float
    first_feasible_seconds: float | None
    method: str
    seed: int
    stops: tuple[Stop, ...] = ()
    lost_to_order: float = 0.0
    """USD per hour by which the best that was found costs less than the plan, because its moves have no order."""
    move_price: float | None = None
    """USD per hour that a move had to save, where no price was given; watts in a plan for energy."""


class Plan(Wire, frozen=True, kw_only=True, omit_defaults=False):
    """A complete plan, and the body of `plan-proposed.v1`."""

    TYPE: ClassVar[str] = "plan-proposed.v1"
    FAMILY: ClassVar[str] = "plan"

    schema: str = "kinema.plan/v1"
    status: Literal["optimal", "feasible", "nothing-better", "infeasible"]
    cost: Cost
    nodes: tuple[PlanNode, ...]
    placements: tuple[Placement, ...]
    unplaced: tuple[Unplaced, ...] = ()
    quarantined: tuple[QuarantinedObject, ...] = ()
    held: tuple[Held, ...] = ()
    moves: int
    restarts: int
    constraint_costs: tuple[ConstraintCost, ...] = ()
    solve: Solve
    mode: Mode = "reschedule"
    objective: str = "cost"
    base_version: int = 0
    """Version of the cluster state that it was computed on."""
    resizes: tuple[Resize, ...] = ()
    temporary: tuple[PlanNode, ...] = ()
    """Nodes that exist during the execution only, to make room: no part of `nodes` and `cost`, but of `steps`."""
    steps: tuple[PlanStep, ...] = ()
    """In which order it is executed, sorted by wave; empty: in any order."""
    violated_preferences: tuple[ViolatedPreference, ...] = ()
    """Preferred rules that hold now and do not after it, by workload."""
    redundancy_loss: tuple[RedundancyLoss, ...] = ()
    """Workloads whose pods are on several nodes now and on one after the plan; those with most pods first."""
    figures: FrozenMap[float] = EMPTY
    """Sizes of the problem and the like, for people."""
    purpose: Purpose | None = None
    """Why it is made; null: written before plans had a purpose, so room for autoscale, else saving."""
    by: str = ""
    """The operator who proposes it from a file; empty: the optimizer proposes it. Such a plan waits for its approval,
    which the operator gives with it."""
    continues: str = ""
    """Id of the plan of which this is the rest, planned again; empty for a plan of its own."""
    seats: tuple[Seats, ...] = ()
    """Of each workload of which it moves or places any pod: by these its rest is known, as replaced pods have other
    names."""
