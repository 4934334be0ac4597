"""The wire contract between the services: event bodies, envelope, codec and subjects. Imports nobody of ours."""

from kinema_core.events.bodies import (
    BODIES as BODIES,
)
from kinema_core.events.bodies import (
    AnyBody as AnyBody,
)
from kinema_core.events.bodies import (
    CatalogPublished as CatalogPublished,
)
from kinema_core.events.bodies import (
    ClusterDelta as ClusterDelta,
)
from kinema_core.events.bodies import (
    ClusterSnapshot as ClusterSnapshot,
)
from kinema_core.events.bodies import (
    DeadLetter as DeadLetter,
)
from kinema_core.events.bodies import (
    ForecastMade as ForecastMade,
)
from kinema_core.events.bodies import (
    ForecastRefused as ForecastRefused,
)
from kinema_core.events.bodies import (
    IterationSkipped as IterationSkipped,
)
from kinema_core.events.bodies import (
    IterationStarted as IterationStarted,
)
from kinema_core.events.bodies import (
    NodeDeletionRequested as NodeDeletionRequested,
)
from kinema_core.events.bodies import (
    NoPlanFound as NoPlanFound,
)
from kinema_core.events.bodies import (
    Offer as Offer,
)
from kinema_core.events.bodies import (
    PlanAccepted as PlanAccepted,
)
from kinema_core.events.bodies import (
    PlanApprovalRequested as PlanApprovalRequested,
)
from kinema_core.events.bodies import (
    PlanRejected as PlanRejected,
)
from kinema_core.events.bodies import (
    PodUsage as PodUsage,
)
from kinema_core.events.bodies import (
    ServiceStarted as ServiceStarted,
)
from kinema_core.events.bodies import (
    UsageSampled as UsageSampled,
)
from kinema_core.events.bodies import (
    WorkloadForecast as WorkloadForecast,
)
from kinema_core.events.body import (
    Body as Body,
)
from kinema_core.events.body import (
    Figures as Figures,
)
from kinema_core.events.codec import (
    Event as Event,
)
from kinema_core.events.codec import (
    EventError as EventError,
)
from kinema_core.events.codec import (
    decode as decode,
)
from kinema_core.events.codec import (
    encode as encode,
)
from kinema_core.events.execution import (
    SKIPPED as SKIPPED,
)
from kinema_core.events.execution import (
    AbortRequested as AbortRequested,
)
from kinema_core.events.execution import (
    ExecutionAborted as ExecutionAborted,
)
from kinema_core.events.execution import (
    ExecutionCompleted as ExecutionCompleted,
)
from kinema_core.events.execution import (
    ExecutionPaused as ExecutionPaused,
)
from kinema_core.events.execution import (
    ExecutionResumed as ExecutionResumed,
)
from kinema_core.events.execution import (
    PlanApproved as PlanApproved,
)
from kinema_core.events.execution import (
    Step as Step,
)
from kinema_core.events.execution import (
    StepFailed as StepFailed,
)
from kinema_core.events.execution import (
    StepKind as StepKind,
)
from kinema_core.events.execution import (
    StepStarted as StepStarted,
)
from kinema_core.events.execution import (
    StepSucceeded as StepSucceeded,
)
from kinema_core.events.frozen import (
    EMPTY as EMPTY,
)
from kinema_core.events.frozen import (
    FrozenMap as FrozenMap,
)
from kinema_core.events.objects import (
    NO_RULES as NO_RULES,
)
from kinema_core.events.objects import (
    Amounts as Amounts,
)
from kinema_core.events.objects import (
    Autoscaler as Autoscaler,
)
from kinema_core.events.objects import (
    AutoscalerMetric as AutoscalerMetric,
)
from kinema_core.events.objects import (
    ClusterObject as ClusterObject,
)
from kinema_core.events.objects import (
    ContainerRequests as ContainerRequests,
)
from kinema_core.events.objects import (
    DisruptionBudget as DisruptionBudget,
)
from kinema_core.events.objects import (
    HostPort as HostPort,
)
from kinema_core.events.objects import (
    Labels as Labels,
)
from kinema_core.events.objects import (
    Namespace as Namespace,
)
from kinema_core.events.objects import (
    Node as Node,
)
from kinema_core.events.objects import (
    NodeTerm as NodeTerm,
)
from kinema_core.events.objects import (
    ObjectKey as ObjectKey,
)
from kinema_core.events.objects import (
    Owner as Owner,
)
from kinema_core.events.objects import (
    PlacementRules as PlacementRules,
)
from kinema_core.events.objects import (
    Pod as Pod,
)
from kinema_core.events.objects import (
    PodTerm as PodTerm,
)
from kinema_core.events.objects import (
    PreferredNodeTerm as PreferredNodeTerm,
)
from kinema_core.events.objects import (
    PriorityClass as PriorityClass,
)
from kinema_core.events.objects import (
    Quarantined as Quarantined,
)
from kinema_core.events.objects import (
    Recommendation as Recommendation,
)
from kinema_core.events.objects import (
    Requirement as Requirement,
)
from kinema_core.events.objects import (
    Selector as Selector,
)
from kinema_core.events.objects import (
    Spread as Spread,
)
from kinema_core.events.objects import (
    StorageClass as StorageClass,
)
from kinema_core.events.objects import (
    Taint as Taint,
)
from kinema_core.events.objects import (
    Toleration as Toleration,
)
from kinema_core.events.objects import (
    Volume as Volume,
)
from kinema_core.events.objects import (
    VolumeClaim as VolumeClaim,
)
from kinema_core.events.objects import (
    Wire as Wire,
)
from kinema_core.events.objects import (
    Workload as Workload,
)
from kinema_core.events.objects import (
    WorkloadKind as WorkloadKind,
)
from kinema_core.events.objects import (
    kind_of as kind_of,
)
from kinema_core.events.plan import (
    ConstraintCost as ConstraintCost,
)
from kinema_core.events.plan import (
    Cost as Cost,
)
from kinema_core.events.plan import (
    Held as Held,
)
from kinema_core.events.plan import (
    Mode as Mode,
)
from kinema_core.events.plan import (
    Placement as Placement,
)
from kinema_core.events.plan import (
    Plan as Plan,
)
from kinema_core.events.plan import (
    PlanNode as PlanNode,
)
from kinema_core.events.plan import (
    PlanStep as PlanStep,
)
from kinema_core.events.plan import (
    QuarantinedObject as QuarantinedObject,
)
from kinema_core.events.plan import (
    RedundancyLoss as RedundancyLoss,
)
from kinema_core.events.plan import (
    Resize as Resize,
)
from kinema_core.events.plan import (
    Solve as Solve,
)
from kinema_core.events.plan import (
    Stop as Stop,
)
from kinema_core.events.plan import (
    Strategy as Strategy,
)
from kinema_core.events.plan import (
    Unplaced as Unplaced,
)
from kinema_core.events.plan import (
    ViolatedPreference as ViolatedPreference,
)
from kinema_core.events.subjects import (
    PREFIX as PREFIX,
)
from kinema_core.events.subjects import (
    family_subjects as family_subjects,
)
from kinema_core.events.subjects import (
    kind_of_type as kind_of_type,
)
from kinema_core.events.subjects import (
    subject_of as subject_of,
)
from kinema_core.events.subjects import (
    token as token,
)
from kinema_core.events.subjects import (
    untoken as untoken,
)
