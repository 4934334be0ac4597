"""Every event that Kinema's services exchange, by family.

`TYPE` is the wire tag with its version; a released body only ever grows by fields with defaults, a change of meaning
gets a new version beside the old one (`upcast.py`). `FAMILY` is part of the subject.
"""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar, Literal, TypeAlias, get_args

from kinema_core.events.body import Body, Figures
from kinema_core.events.execution import (
    AbortRequested,
    EventsRestated,
    ExecutionAborted,
    ExecutionCompleted,
    ExecutionPaused,
    ExecutionResumed,
    PlanApproved,
    StepFailed,
    StepStarted,
    StepSucceeded,
)
from kinema_core.events.frozen import EMPTY, FrozenMap
from kinema_core.events.objects import Amounts, ClusterObject, ObjectKey, Wire
from kinema_core.events.plan import Mode, Plan, Purpose

# --- state: what the cluster is


class ClusterSnapshot(Body, frozen=True, kw_only=True):
    """The whole cluster at `version`. Too large for one message, it travels in chunks."""

    TYPE: ClassVar[str] = "cluster-snapshot.v1"
    FAMILY: ClassVar[str] = "state"

    version: int
    objects: tuple[ClusterObject, ...]


class ClusterDelta(Body, frozen=True, kw_only=True):
    """Changes of one observation tick: version − 1 → version."""

    TYPE: ClassVar[str] = "cluster-delta.v1"
    FAMILY: ClassVar[str] = "state"

    version: int
    upserts: tuple[ClusterObject, ...] = ()
    deletes: tuple[ObjectKey, ...] = ()


class PodUsage(Wire, frozen=True, kw_only=True, omit_defaults=False):
    """Usage of one pod: millicores over the source's window, bytes of working set."""

    pod: str
    uid: str
    cpu: int
    memory: int


class UsageSampled(Body, frozen=True, kw_only=True):
    """One reading of the metrics API: usage of every pod it knew, taken at `sampled`. Once in each step of usage."""

    TYPE: ClassVar[str] = "usage-sampled.v1"
    FAMILY: ClassVar[str] = "state"

    sampled: datetime
    window_seconds: float
    pods: tuple[PodUsage, ...]


class ObserverHeartbeat(Body, frozen=True, kw_only=True):
    """Sign that the observer sees the cluster, though nothing changes, or that it sees less or more than before."""

    TYPE: ClassVar[str] = "observer-heartbeat.v1"
    FAMILY: ClassVar[str] = "state"

    version: int
    """The newest version of the state."""
    blind: tuple[str, ...] = ()
    """Kinds of which objects may be out of date: the API server did not answer for them."""


# --- usage: what workloads used


class UsageResampled(Body, frozen=True, kw_only=True):
    """Usage of every workload in one step of time, from `start` on for `step_seconds`."""

    TYPE: ClassVar[str] = "usage-resampled.v1"
    FAMILY: ClassVar[str] = "usage"

    start: datetime
    step_seconds: float
    workloads: tuple[str, ...]
    """`Type/namespace/name` of those with a sample, sorted."""
    table: bytes
    """For each quantity (pods, CPU, memory) one code of two bytes per workload: see `kinema_core.model.usage`."""
    source: str = "metrics.k8s.io"
    dropped: int = 0
    """Samples that cannot be: negative, or above twice what their node has."""


class UsageCompacted(Body, frozen=True, kw_only=True):
    """Usage of every workload in a row of steps: a checkpoint that replaces their `usage-resampled`."""

    TYPE: ClassVar[str] = "usage-compacted.v1"
    FAMILY: ClassVar[str] = "usage"

    start: datetime
    step_seconds: float
    steps: int
    workloads: tuple[str, ...]
    table: bytes
    """As in `usage-resampled`, for each quantity and workload one code per step, compressed with zstd."""


# --- plan: what is to be done, and why not


class Quota(Wire, frozen=True, kw_only=True):
    """A limit that machines of several offers count against, in a unit of its own: machines, millicores, bytes."""

    name: str
    takes: int
    """How much one machine of the offer counts."""
    left: int
    """How much is left; the same in every offer that it limits."""


class Offer(Wire, frozen=True, kw_only=True, omit_defaults=False):
    """A machine that can be bought: `name` is `machine_type/zone/capacity_type`, the price is in micro-USD per hour."""

    name: str
    machine_type: str
    zone: str
    capacity_type: Literal["on-demand", "spot"]
    micro_usd_per_hour: int
    capacity: Amounts
    allocatable: Amounts
    """What a new node of it has for pods, daemon sets included."""
    labels: FrozenMap[str] = EMPTY
    taints: tuple[str, ...] = ()
    """`key[=value]:effect`."""
    available: int | None = None
    """How many more can be booted; None: no limit."""
    pool: str = ""
    """Offers of one pool share what is `available`, such as one machine type in several zones; empty: no pool."""
    watts: float | None = None
    assumed_labels: tuple[str, ...] = ()
    """Keys of the labels that are not in the catalog: all live nodes of the type have them."""
    committed: int | None = None
    """How many of the pool are paid for already, the live nodes that it covers included; None: it is for new ones."""
    quotas: tuple[Quota, ...] = ()
    """Limits that it shares with other offers."""


class CatalogPublished(Body, frozen=True, kw_only=True):
    """Offers of the provider, their prices, and the age of those."""

    TYPE: ClassVar[str] = "catalog-published.v1"
    FAMILY: ClassVar[str] = "plan"

    source: str
    priced: datetime | None
    offers: tuple[Offer, ...]
    delegated: bool = False
    """Whether the cluster's own autoscaler boots and deletes: that it considers a node then forbids nothing."""


class IterationStarted(Body, frozen=True, kw_only=True):
    """An iteration begins on the cluster state `version`. `pods` (`namespace/name`) are the pending ones it covers."""

    TYPE: ClassVar[str] = "iteration-started.v1"
    FAMILY: ClassVar[str] = "plan"

    mode: Mode
    version: int
    reason: str
    figures: Figures = EMPTY
    pods: tuple[str, ...] = ()
    purpose: Purpose | None = None
    """Why it begins; null as in plans. A plan's own purpose counts: forecasts may ask for safety first."""
    usage: datetime | None = None
    """End of the newest step of usage that was published; a forecast uses nothing after it."""
    continues: str = ""
    """Id of the plan whose rest is to be planned again from the state of now; empty where nothing is continued."""


class IterationSkipped(Body, frozen=True, kw_only=True):
    """No iteration begins now. Published when the reason changes, not at every tick."""

    TYPE: ClassVar[str] = "iteration-skipped.v1"
    FAMILY: ClassVar[str] = "plan"

    version: int
    reason: str
    figures: Figures = EMPTY


class NodeDeletionRequested(Body, frozen=True, kw_only=True):
    """A node with the label `kinema.io/disrupted` runs no evictable workload any more: it can be deleted."""

    TYPE: ClassVar[str] = "node-deletion-requested.v1"
    FAMILY: ClassVar[str] = "plan"

    node: str
    uid: str
    version: int


class WorkloadForecast(Wire, frozen=True, kw_only=True, omit_defaults=False):
    """New requests per pod of a workload (`Type/namespace/name`), and what led to them."""

    workload: str
    requests_before: Amounts
    requests_after: Amounts
    predicted: Amounts
    """What a pod needs over the horizon, by the band of the forecast."""
    samples: int
    """Steps of history behind the forecast of CPU."""
    recommended: Amounts = EMPTY
    """Requests to which steps such as this one lead in the end; empty: those after this one."""


class ForecastRefused(Wire, frozen=True, kw_only=True, omit_defaults=False):
    """No forecast for a workload, and why."""

    workload: str
    reason: str
    figures: Figures = EMPTY


class UsageBand(Wire, frozen=True, kw_only=True, omit_defaults=False):
    """Forecast of one resource of a workload: what a pod needs, which models say so, and how well they did.

    Amounts are millicores or bytes per pod.
    """

    resource: str
    need: int
    """For CPU the amount that at most the allowed share of the coming steps exceeds, for memory the band's largest."""
    quantile: float
    models: tuple[str, ...]
    """The forecast is the mean of these, each with its offset."""
    offsets: tuple[int, ...]
    """What calibration adds to each of them."""
    horizon_seconds: float
    days: float
    """Of history."""
    steps: int
    """The same in steps."""
    coverage: float
    """Share of its steps that have a sample."""
    above: float
    """Share of the back-test's steps above the band; 1 less the quantile where it is calibrated."""
    loss: float
    """Pinball loss of the best model in the back-test, the geometric mean over its folds."""
    vpa_loss: float
    """The same of a histogram with a half-life of a day."""
    enough: int | None = None
    """Requests of at least this keep the risk, without the reserve of `need`: they are not raised. null: `need`."""


class WorkloadJudged(Wire, frozen=True, kw_only=True, omit_defaults=False):
    """Result of a back-test for one workload, and the requests that it leads to, whether or not they are applied."""

    workload: str
    pods: int
    requests: Amounts
    recommended: Amounts
    """Requests of CPU and memory per pod."""
    bands: tuple[UsageBand, ...]
    kept: FrozenMap[str] = EMPTY
    """Why a request stays although the forecast is below it, by resource."""


class UsageTotals(Wire, frozen=True, kw_only=True, omit_defaults=False):
    """One resource of all workloads whose judgement counts; millicores or bytes."""

    resource: str
    requested: int
    """By all their pods."""
    recommended: int
    """For all their pods."""
    steps: int
    """Steps of usage after earlier judgements, of the workloads that were judged again."""
    above: int
    """Those of them in which usage was above the need that the earlier judgement states."""


class ReplicasExpected(Wire, frozen=True, kw_only=True, omit_defaults=False):
    """Pods that a workload is expected to have."""

    workload: str
    replicas: tuple[int, ...]
    """At most so many, in one step after the other."""


class ReplicasAhead(Wire, frozen=True, kw_only=True, omit_defaults=False):
    """Replicas that workloads are expected to have, where their number rises and falls at the same time every day.

    The steps begin a little before the forecast was made: what was expected by then and did not come is not waited for.
    """

    start: datetime
    """When the first step begins."""
    step_seconds: float
    workloads: tuple[ReplicasExpected, ...]


class ForecastMade(Body, frozen=True, kw_only=True):
    """Forecasts for the iteration's state `version`."""

    TYPE: ClassVar[str] = "forecast-made.v1"
    FAMILY: ClassVar[str] = "plan"

    version: int
    forecasts: tuple[WorkloadForecast, ...]
    refused: tuple[ForecastRefused, ...] = ()
    judged: tuple[WorkloadJudged, ...] = ()
    """Those judged in this iteration; of others the newest judgement holds."""
    totals: tuple[UsageTotals, ...] = ()
    ahead: ReplicasAhead | None = None
    """Null: nothing is looked for, or less than two days are known."""


class NoPlanFound(Body, frozen=True, kw_only=True):
    """The optimizer proposes nothing, and why."""

    TYPE: ClassVar[str] = "no-plan-found.v1"
    FAMILY: ClassVar[str] = "plan"

    mode: Mode
    version: int
    reason: str
    figures: Figures = EMPTY


class PolicyStep(Wire, frozen=True, kw_only=True, omit_defaults=False):
    """One action of a policy, such as `scale-up`, `drain`, `delete-empty`, `replace` or `evict`."""

    action: str
    removed: tuple[str, ...] = ()
    """Nodes that go."""
    bought: tuple[str, ...] = ()
    """Nodes that come."""
    emptied: tuple[str, ...] = ()
    """Nodes that pods are evicted from and that stay."""
    evictions: int = 0


class Lasting(Wire, frozen=True, kw_only=True, omit_defaults=False):
    """Something that a policy remembers, such as `unneeded/NODE`, and since when it holds."""

    what: str
    since: datetime


class PolicyEvaluated(Body, frozen=True, kw_only=True):
    """What a policy does, or would do, on the cluster state `version`, and what it remembers until the next time.

    Follows the plan of the policy that is in charge. With `shadow`, no service acts on it: it says what that policy
    would have done if the cluster had been its own.
    """

    TYPE: ClassVar[str] = "policy-evaluated.v1"
    FAMILY: ClassVar[str] = "plan"

    policy: str
    shadow: bool
    mode: Mode
    version: int
    cost_before: float
    cost_after: float
    """USD per hour."""
    moves: int
    """Pods whose node would change."""
    steps: tuple[PolicyStep, ...] = ()
    lasting: tuple[Lasting, ...] = ()
    reason: str = ""
    """Why nothing was evaluated, such as a node without a price; empty otherwise."""


class PlanAccepted(Body, frozen=True, kw_only=True):
    """The plan is to be executed. `plan` is the id of its proposal, `version` the state it was judged on."""

    TYPE: ClassVar[str] = "plan-accepted.v1"
    FAMILY: ClassVar[str] = "plan"

    plan: str
    version: int
    figures: Figures = EMPTY


class PlanRejected(Body, frozen=True, kw_only=True):
    """The plan is not to be executed: the rule, its figures, and what would change the answer."""

    TYPE: ClassVar[str] = "plan-rejected.v1"
    FAMILY: ClassVar[str] = "plan"

    plan: str
    version: int
    rule: str
    reason: str
    would_change: str
    figures: Figures = EMPTY


class PlanApprovalRequested(Body, frozen=True, kw_only=True):
    """The plan waits for an operator (approval mode)."""

    TYPE: ClassVar[str] = "plan-approval-requested.v1"
    FAMILY: ClassVar[str] = "plan"

    plan: str
    version: int
    rule: str
    reason: str
    would_change: str
    figures: Figures = EMPTY


class ServiceStarted(Body, frozen=True, kw_only=True):
    """A service runs with these settings from here on. Published when they differ from its last ones.

    `settings` is their JSON without the runtime section: a replay decides with the settings of then, not of now.
    """

    TYPE: ClassVar[str] = "service-started.v1"
    FAMILY: ClassVar[str] = "plan"

    service: str
    settings: str


# --- dlq: what could not be handled


class DeadLetter(Body, frozen=True, kw_only=True):
    """A message that a service could not handle. Its body is kept as it came (base64 of at most 64 KiB)."""

    TYPE: ClassVar[str] = "dead-letter.v1"
    FAMILY: ClassVar[str] = "dlq"

    service: str
    stream: str
    sequence: int
    subject: str
    reason: str
    detail: str
    data: bytes


AnyBody: TypeAlias = (
    ClusterSnapshot
    | ClusterDelta
    | UsageSampled
    | ObserverHeartbeat
    | UsageResampled
    | UsageCompacted
    | ServiceStarted
    | CatalogPublished
    | IterationStarted
    | IterationSkipped
    | NodeDeletionRequested
    | ForecastMade
    | Plan
    | NoPlanFound
    | PolicyEvaluated
    | PlanAccepted
    | PlanRejected
    | PlanApprovalRequested
    | StepStarted
    | StepSucceeded
    | StepFailed
    | ExecutionCompleted
    | ExecutionAborted
    | EventsRestated
    | ExecutionPaused
    | ExecutionResumed
    | PlanApproved
    | AbortRequested
    | DeadLetter
)

BODIES: tuple[type[Body] | type[Plan], ...] = get_args(AnyBody)
"""Every body that is published, in the order of the catalog."""
