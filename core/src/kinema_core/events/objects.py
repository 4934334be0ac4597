"""The observed objects of a cluster, as they travel in `state` events.

They keep what placement, safety and explanation need of a Kubernetes object and nothing else. CPU is in millicores,
memory and storage in bytes, everything else in its own integer unit; times are UTC.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal, TypeAlias

import msgspec

from kinema_core.events.frozen import EMPTY, FrozenMap

Amounts: TypeAlias = FrozenMap[int]
"""Resource name → amount: `cpu` in millicores, `memory` in bytes, `pods` and extended resources in pieces."""

Labels: TypeAlias = FrozenMap[str]


class Wire(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Base of everything nested in an event."""


class Requirement(Wire, frozen=True, kw_only=True):
    """One expression of a selector: `key operator values`."""

    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    values: tuple[str, ...] = ()


class Selector(Wire, frozen=True, kw_only=True):
    """A label selector; an empty one matches everything."""

    labels: Labels = EMPTY
    expressions: tuple[Requirement, ...] = ()


class NodeTerm(Wire, frozen=True, kw_only=True):
    """One alternative of a required node affinity: label expressions and field expressions (`metadata.name`)."""

    expressions: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()


class PreferredNodeTerm(Wire, frozen=True, kw_only=True):
    """A preferred node affinity and its weight (1–100)."""

    weight: int
    term: NodeTerm


class Taint(Wire, frozen=True, kw_only=True):
    """A node's taint."""

    key: str
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]
    value: str = ""


class Toleration(Wire, frozen=True, kw_only=True):
    """A pod's toleration; an empty key with `Exists` tolerates everything, an empty effect every effect."""

    key: str = ""
    operator: Literal["Exists", "Equal", "Gt", "Lt"] = "Equal"
    value: str = ""
    effect: str = ""


class PodTerm(Wire, frozen=True, kw_only=True):
    """A pod affinity or anti-affinity term. `selector=None` matches no pod."""

    topology_key: str
    selector: Selector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: Selector | None = None
    match_label_keys: tuple[str, ...] = ()
    weight: int = 0
    """0: required; else the weight of a preferred term."""


class Spread(Wire, frozen=True, kw_only=True):
    """A topology spread constraint."""

    topology_key: str
    max_skew: int
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"]
    selector: Selector | None = None
    min_domains: int = 1
    match_label_keys: tuple[str, ...] = ()
    node_affinity_policy: Literal["Honor", "Ignore"] = "Honor"
    node_taints_policy: Literal["Honor", "Ignore"] = "Ignore"


class HostPort(Wire, frozen=True, kw_only=True):
    """A port a pod takes on its node."""

    port: int
    protocol: str = "TCP"
    host_ip: str = "0.0.0.0"  # noqa: S104 - Kubernetes' own word for "any address", nothing is bound


class PlacementRules(Wire, frozen=True, kw_only=True):
    """All that restricts or steers where a pod may be."""

    node_selector: Labels = EMPTY
    node_terms: tuple[NodeTerm, ...] | None = None
    """Required node affinity: alternatives, any of which suffices. None: no rule; empty: matches no node."""
    preferred_nodes: tuple[PreferredNodeTerm, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    affinity: tuple[PodTerm, ...] = ()
    anti_affinity: tuple[PodTerm, ...] = ()
    spread: tuple[Spread, ...] = ()
    host_ports: tuple[HostPort, ...] = ()
    claims: tuple[str, ...] = ()
    """Names of persistent volume claims in the pod's namespace."""
    scheduler: str = "default-scheduler"
    gated: bool = False
    """Held back by a scheduling gate: it is not scheduled yet."""
    unmodeled: tuple[str, ...] = ()
    """Paths of fields that restrict placement in a way this version does not model: such a pod does not move."""


NO_RULES = PlacementRules()


class ContainerRequests(Wire, frozen=True, kw_only=True):
    """Requests of one container, init container or sidecar."""

    name: str
    """Empty for what is written for the pod as a whole."""
    requests: Amounts
    init: bool = False
    """Whether it is an init container or a sidecar."""


class Owner(Wire, frozen=True, kw_only=True):
    """The controlling owner of an object."""

    kind: str
    name: str
    uid: str

    def key_in(self, namespace: str) -> str:
        """`Type/namespace/name` of an owner in a namespace: a workload's key."""
        return f"{self.kind}/{namespace}/{self.name}"


class ObjectKey(Wire, frozen=True, kw_only=True):
    """Names one object: `key` is `namespace/name`, or `name` for cluster-scoped kinds."""

    kind: str
    key: str


class _Object(Wire, frozen=True, kw_only=True):
    """Base of the observed objects."""

    name: str
    uid: str


class _Namespaced(_Object, frozen=True, kw_only=True):
    namespace: str

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"


class _ClusterScoped(_Object, frozen=True, kw_only=True):
    @property
    def key(self) -> str:
        """The name alone."""
        return self.name


class Node(_ClusterScoped, frozen=True, kw_only=True, tag="Node", tag_field="kind"):
    """A node as its kubelet and its cloud describe it."""

    labels: Labels = EMPTY
    annotations: Labels = EMPTY
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    ready: bool = False
    allocatable: Amounts = EMPTY
    """What pods may request, and how many volumes of a driver they may have (`attachable-volumes-csi-DRIVER`), 0 too:
    where the node's CSINode states a count, that one."""
    created: datetime | None = None


class Pod(_Namespaced, frozen=True, kw_only=True, tag="Pod", tag_field="kind"):
    """A pod that is bound or pending. Finished pods are not part of the state."""

    phase: Literal["Pending", "Running", "Unknown"] = "Pending"
    node: str | None = None
    nominated: str | None = None
    owner: Owner | None = None
    labels: Labels = EMPTY
    annotations: Labels = EMPTY
    requests: Amounts = EMPTY
    """As the scheduler counts them: containers, init and sidecar containers, overhead. `pods` is always 1."""
    containers: tuple[ContainerRequests, ...] = ()
    """What the spec of each container asks for that asks for anything. Left out where the pod has a single container,
    and that asks for `requests`."""
    rules: PlacementRules = NO_RULES
    priority: int = 0
    ready: bool = False
    unschedulable: bool = False
    terminating: bool = False
    mirror: bool = False
    """A static pod's mirror: it goes with its node."""
    host_path: bool = False
    local_storage: bool = False
    """It keeps files on its node: an `emptyDir` or `hostPath` volume."""
    created: datetime | None = None
    started: datetime | None = None
    restarts: int = 0
    """Container restarts, all containers together."""
    last_restart: datetime | None = None
    """When a container last ended abnormally or by the out-of-memory killer."""
    limits: Amounts = EMPTY
    """Limits of CPU and memory, containers and sidecars together, as quotas count them."""
    resizable: tuple[str, ...] = ()
    """Resources (`cpu`, `memory`) whose requests its kubelet can change while it runs, without a restart."""


WorkloadKind: TypeAlias = Literal[
    "Deployment", "ReplicaSet", "ReplicationController", "StatefulSet", "DaemonSet", "Job"
]


class Workload(_Namespaced, frozen=True, kw_only=True, tag="Workload", tag_field="kind"):
    """A controller of pods; `type` is its Kubernetes kind. Replica sets point to their Deployment by `owner`."""

    type: WorkloadKind
    owner: Owner | None = None
    labels: Labels = EMPTY
    annotations: Labels = EMPTY
    selector: Selector | None = None
    replicas: int = 0
    """Desired; for a daemon set the desired number scheduled."""
    ready: int = 0
    """Ready pods; with `minReadySeconds` those that have been Ready for so long."""
    updated: int = 0
    current: int = 0
    """Pods that exist (`status.replicas`)."""
    generation: int = 0
    observed_generation: int = 0
    template_labels: Labels = EMPTY
    template_requests: Amounts = EMPTY
    template_containers: tuple[ContainerRequests, ...] = ()
    """What each container of the template asks for that asks for anything."""
    template_ceiling: Amounts = EMPTY
    """What the requests may grow to, all containers alike, until the first meets its limit; absent without limits."""
    template_rules: PlacementRules = NO_RULES
    max_surge: str = "25%"
    max_unavailable: str = "25%"
    paused: bool = False
    refused: str = ""
    """Why its controller may create no pods (a quota, an admission rule), as long as it reports that."""

    @property
    def key(self) -> str:
        """`Type/namespace/name`: names are unique per Kubernetes kind only."""
        return f"{self.type}/{self.namespace}/{self.name}"

    @property
    def recreates(self) -> bool:
        """Return whether an update ends all pods before it makes new ones (`Recreate`, or bounds that say as much)."""
        return (self.max_surge, self.max_unavailable) == ("0", "100%")

    @property
    def never_surges(self) -> bool:
        """Return whether an update runs no pod beside the wanted ones (`Recreate`, or a `maxSurge` of 0 or 0%)."""
        return not self.max_surge.removesuffix("%").strip("0")


class DisruptionBudget(_Namespaced, frozen=True, kw_only=True, tag="DisruptionBudget", tag_field="kind"):
    """A PodDisruptionBudget. Amounts are a number or a percentage, as written."""

    selector: Selector | None = None
    min_available: str | None = None
    max_unavailable: str | None = None
    allowed: int = 0
    expected: int = 0
    desired_healthy: int = 0
    healthy: int = 0
    always_allow_unhealthy: bool = False


class AutoscalerMetric(Wire, frozen=True, kw_only=True):
    """One metric of an HPA: value now and its target, in the target's own unit (per mille of a request, or milli)."""

    name: str
    current: int | None
    target: int


class Autoscaler(_Namespaced, frozen=True, kw_only=True, tag="Autoscaler", tag_field="kind"):
    """A HorizontalPodAutoscaler and what it scales."""

    target_kind: str
    target_name: str
    min_replicas: int = 1
    max_replicas: int = 1
    current: int = 0
    desired: int = 0
    metrics: tuple[AutoscalerMetric, ...] = ()
    scaled_object: str = ""
    """The KEDA ScaledObject that made it and sets its limits again and again; empty where none did."""


class Volume(_ClusterScoped, frozen=True, kw_only=True, tag="Volume", tag_field="kind"):
    """A PersistentVolume: where it can be reached from."""

    node_terms: tuple[NodeTerm, ...] | None = None
    claim: str | None = None
    driver: str = ""


class VolumeClaim(_Namespaced, frozen=True, kw_only=True, tag="VolumeClaim", tag_field="kind"):
    """A PersistentVolumeClaim."""

    volume: str | None = None
    storage_class: str | None = None


class StorageClass(_ClusterScoped, frozen=True, kw_only=True, tag="StorageClass", tag_field="kind"):
    """A storage class: whether volumes wait for their first pod, where they may be, and their driver."""

    wait_for_consumer: bool = False
    node_terms: tuple[NodeTerm, ...] | None = None
    driver: str = ""


class PriorityClass(_ClusterScoped, frozen=True, kw_only=True, tag="PriorityClass", tag_field="kind"):
    """A priority class."""

    value: int = 0


class Namespace(_ClusterScoped, frozen=True, kw_only=True, tag="Namespace", tag_field="kind"):
    """A namespace and its labels, for rules that select namespaces."""

    labels: Labels = EMPTY
    terminating: bool = False


class QuotaScope(Wire, frozen=True, kw_only=True):
    """One of the scopes that a pod has to match for a quota to count it."""

    name: str
    operator: str = "Exists"
    values: tuple[str, ...] = ()


class ResourceQuota(_Namespaced, frozen=True, kw_only=True, tag="ResourceQuota", tag_field="kind"):
    """A ResourceQuota, as far as it is about pods and ReplicaSets.

    Amounts are named `pods`, `count/pods`, `count/replicasets.apps`, `requests.RESOURCE` and `limits.RESOURCE`, those
    of 0 included.
    """

    hard: Amounts = EMPTY
    used: Amounts = EMPTY
    """What it counts now; without an amount that `hard` has, the API server admits no pod that it is about."""
    scopes: tuple[QuotaScope, ...] = ()


class Recommendation(_Namespaced, frozen=True, kw_only=True, tag="Recommendation", tag_field="kind"):
    """A VerticalPodAutoscaler's recommendation: amounts per pod, summed over its containers."""

    target_kind: str
    target_name: str
    target: Amounts = EMPTY
    lower: Amounts = EMPTY
    upper: Amounts = EMPTY
    mode: str = "Off"
    created: datetime | None = None


class Quarantined(Wire, frozen=True, kw_only=True, tag="Quarantined", tag_field="kind"):
    """An object that could not be read. What it might forbid is taken as forbidden."""

    object: str
    """Kubernetes kind and key, as `Pod shop/cart-0`."""
    path: str
    reason: str
    node: str | None = None
    """The node that it freezes, where known."""
    namespace: str | None = None
    """The namespace in which it may forbid something; empty where it is not known: it may be any."""

    @property
    def key(self) -> str:
        """The object's kind and key."""
        return self.object


class Unknown(Wire, frozen=True, kw_only=True, tag="Unknown", tag_field="kind"):
    """An object of a kind that this version does not know. It may forbid anything."""

    of: str
    """Its kind on the wire."""
    at: str
    """Its key: `namespace/name` or `name`, after a workload's type."""
    namespace: str | None = None
    """None: it belongs to no namespace."""

    @property
    def key(self) -> str:
        """Return the object's kind and key."""
        return f"{self.of} {self.at}"


ClusterObject: TypeAlias = (
    Node
    | Pod
    | Workload
    | DisruptionBudget
    | Autoscaler
    | Volume
    | VolumeClaim
    | StorageClass
    | PriorityClass
    | Namespace
    | ResourceQuota
    | Recommendation
    | Quarantined
    | Unknown
)


def kind_of(item: ClusterObject) -> str:
    """Return the wire tag of an object, as used in `ObjectKey.kind`."""
    return type(item).__name__
