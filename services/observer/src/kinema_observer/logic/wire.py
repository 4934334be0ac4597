"""Partial structs of Kubernetes JSON: the fields that are used and no others.

The API server leaves out what is empty, and may send `null` where the models want a list or a number. So every
field has a default and takes null, but for those without which an object says nothing (`spec`, a pod's `containers`);
what is missing is given its Kubernetes default where it is converted. Parts that many objects share (labels, affinity,
resources …) stay raw: they are parsed once per distinct text.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal, TypeAlias

import msgspec

NOTHING = msgspec.Raw()
Time: TypeAlias = Annotated[datetime, msgspec.Meta(tz=True)]
Scalar: TypeAlias = str | int | float
"""Quantities are strings; hand-written files also have numbers."""


class Wire(msgspec.Struct, rename="camel", omit_defaults=True, gc=False):
    """Base of the partial structs."""


class OwnerReference(Wire):
    """An entry of `metadata.ownerReferences`."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class Meta(Wire):
    """`metadata`."""

    name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    resource_version: str | None = None
    generation: int | None = None
    labels: msgspec.Raw = NOTHING
    annotations: msgspec.Raw = NOTHING
    owner_references: list[OwnerReference] | None = None
    creation_timestamp: Time | None = None
    deletion_timestamp: Time | None = None


class Object(Wire):
    """Base of whole objects."""

    metadata: Meta


class Condition(Wire):
    """An entry of `status.conditions`."""

    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None
    last_transition_time: msgspec.Raw = NOTHING


# --- nodes


class Taint(Wire):
    """An entry of `spec.taints`."""

    key: str
    effect: str
    value: str | None = None


class NodeSpec(Wire):
    """`spec` of a node."""

    unschedulable: bool | None = None
    taints: list[Taint] | None = None


class NodeStatus(Wire):
    """`status` of a node."""

    allocatable: dict[str, Scalar] | None = None
    capacity: dict[str, Scalar] | None = None
    conditions: list[Condition] | None = None


class Node(Object):
    """A node."""

    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeStatus | None = None


# --- storage and the rest


class NodeSelector(Wire):
    """A node selector, kept raw: rules parse it."""

    required: msgspec.Raw = NOTHING


class AttachLimit(Wire):
    """`allocatable` of a driver."""

    count: int | None = None


class NodeDriver(Wire):
    """An entry of `spec.drivers`."""

    name: str = ""
    allocatable: AttachLimit | None = None


class CSINodeSpec(Wire):
    """`spec` of a CSINode."""

    drivers: list[NodeDriver] | None = None


class CSINode(Object):
    """A CSINode: what the CSI drivers of the node of its name say of it."""

    spec: CSINodeSpec = msgspec.field(default_factory=CSINodeSpec)


class Driver(Wire):
    """`spec.csi`."""

    driver: str = ""


class ClaimReference(Wire):
    """`spec.claimRef`."""

    name: str | None = None
    namespace: str | None = None


class VolumeSpec(Wire):
    """`spec` of a PersistentVolume."""

    node_affinity: NodeSelector | None = None
    claim_ref: ClaimReference | None = None
    csi: Driver | None = None
    aws_elastic_block_store: msgspec.Raw = NOTHING
    azure_disk: msgspec.Raw = NOTHING
    azure_file: msgspec.Raw = NOTHING
    cinder: msgspec.Raw = NOTHING
    gce_persistent_disk: msgspec.Raw = NOTHING
    portworx_volume: msgspec.Raw = NOTHING
    vsphere_volume: msgspec.Raw = NOTHING


class Volume(Object):
    """A PersistentVolume."""

    spec: VolumeSpec


class ClaimSpec(Wire):
    """`spec` of a PersistentVolumeClaim."""

    volume_name: str | None = None
    storage_class_name: str | None = None


class Claim(Object):
    """A PersistentVolumeClaim."""

    spec: ClaimSpec = msgspec.field(default_factory=ClaimSpec)


class TopologyExpression(Wire):
    """An entry of `matchLabelExpressions`."""

    key: str
    values: list[str] | None = None


class TopologyTerm(Wire):
    """An entry of `allowedTopologies`."""

    match_label_expressions: list[TopologyExpression] | None = None


class StorageClass(Object):
    """A StorageClass."""

    provisioner: str | None = None
    volume_binding_mode: str | None = None
    allowed_topologies: list[TopologyTerm] | None = None


class PriorityClass(Object):
    """A PriorityClass."""

    value: int | None = None


class NamespaceStatus(Wire):
    """`status` of a namespace."""

    phase: str | None = None


class Namespace(Object):
    """A namespace."""

    status: NamespaceStatus | None = None


class ScopeExpression(Wire):
    """An entry of `scopeSelector.matchExpressions`."""

    scope_name: str
    operator: str | None = None
    values: list[str] | None = None


class ScopeSelector(Wire):
    """`spec.scopeSelector`."""

    match_expressions: list[ScopeExpression] | None = None


class QuotaSpec(Wire):
    """`spec` of a ResourceQuota."""

    hard: dict[str, Scalar] | None = None
    scopes: list[str] | None = None
    scope_selector: ScopeSelector | None = None


class QuotaStatus(Wire):
    """`status` of a ResourceQuota."""

    used: dict[str, Scalar] | None = None


class Quota(Object):
    """A ResourceQuota."""

    spec: QuotaSpec = msgspec.field(default_factory=QuotaSpec)
    status: QuotaStatus | None = None


# --- pods and their templates


class ResizePolicy(Wire):
    """An entry of a container's `resizePolicy`."""

    resource_name: str = ""
    restart_policy: str = ""


class Container(Wire):
    """A container, an init container or (init container that restarts always) a sidecar."""

    name: str = ""
    resources: msgspec.Raw = NOTHING
    ports: msgspec.Raw = NOTHING
    restart_policy: str | None = None
    resize_policy: list[ResizePolicy] | None = None


class Resources(Wire):
    """`resources`; also the claims of dynamic resource allocation."""

    requests: dict[str, Scalar] | None = None
    limits: dict[str, Scalar] | None = None


class Port(Wire):
    """An entry of a container's `ports`."""

    container_port: int | None = None
    host_port: int | None = None
    protocol: str | None = None
    host_ip: str | None = msgspec.field(name="hostIP", default=None)


class ClaimSource(Wire):
    """`persistentVolumeClaim` of a volume."""

    claim_name: str = ""


class PodSystem(Wire):
    """`spec.os`."""

    name: str | None = None


class PodSpec(Wire):
    """`spec` of a pod or a pod template."""

    containers: Annotated[list[Container], msgspec.Meta(min_length=1)]
    init_containers: list[Container] | None = None
    node_name: str | None = None
    node_selector: msgspec.Raw = NOTHING
    affinity: msgspec.Raw = NOTHING
    tolerations: msgspec.Raw = NOTHING
    topology_spread_constraints: msgspec.Raw = NOTHING
    volumes: msgspec.Raw = NOTHING
    hostname: msgspec.Raw = NOTHING
    resources: msgspec.Raw = NOTHING
    overhead: msgspec.Raw = NOTHING
    scheduler_name: str | None = None
    scheduling_gates: list[msgspec.Raw] | None = None
    priority: int | None = None
    host_network: bool | None = None
    runtime_class_name: str | None = None
    resource_claims: list[msgspec.Raw] | None = None
    scheduling_group: msgspec.Raw = NOTHING
    workload_ref: msgspec.Raw = NOTHING
    os: PodSystem | None = None


class KnownSpec(PodSpec, forbid_unknown_fields=True):
    """All that `spec` has, as of Kubernetes 1.36: what is added here says nothing about where the pod may be."""

    active_deadline_seconds: msgspec.Raw = NOTHING
    automount_service_account_token: msgspec.Raw = NOTHING
    dns_config: msgspec.Raw = NOTHING
    dns_policy: msgspec.Raw = NOTHING
    enable_service_links: msgspec.Raw = NOTHING
    ephemeral_containers: msgspec.Raw = NOTHING
    host_aliases: msgspec.Raw = NOTHING
    host_ipc: msgspec.Raw = msgspec.field(name="hostIPC", default=NOTHING)
    host_pid: msgspec.Raw = msgspec.field(name="hostPID", default=NOTHING)
    host_users: msgspec.Raw = NOTHING
    hostname_override: msgspec.Raw = NOTHING
    image_pull_secrets: msgspec.Raw = NOTHING
    preemption_policy: msgspec.Raw = NOTHING
    priority_class_name: msgspec.Raw = NOTHING
    readiness_gates: msgspec.Raw = NOTHING
    restart_policy: msgspec.Raw = NOTHING
    security_context: msgspec.Raw = NOTHING
    service_account: msgspec.Raw = NOTHING
    service_account_name: msgspec.Raw = NOTHING
    set_hostname_as_fqdn: msgspec.Raw = msgspec.field(name="setHostnameAsFQDN", default=NOTHING)
    share_process_namespace: msgspec.Raw = NOTHING
    subdomain: msgspec.Raw = NOTHING
    termination_grace_period_seconds: msgspec.Raw = NOTHING


class Terminated(Wire):
    """A container's end."""

    exit_code: int | None = None
    reason: str | None = None
    finished_at: Time | None = None


class ContainerState(Wire):
    """`state` or `lastState`."""

    running: msgspec.Raw = NOTHING
    terminated: Terminated | None = None


class ContainerStatus(Wire):
    """An entry of `status.containerStatuses`."""

    name: str = ""
    restart_count: int | None = None
    state: ContainerState | None = None
    last_state: ContainerState | None = None
    allocated_resources: msgspec.Raw = NOTHING
    resources: msgspec.Raw = NOTHING


class PodStatus(Wire):
    """`status` of a pod."""

    phase: str | None = None
    conditions: list[Condition] | None = None
    start_time: Time | None = None
    nominated_node_name: str | None = None
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None


class Pod(Object):
    """A pod."""

    spec: PodSpec
    status: PodStatus | None = None


class KnownPod(Pod):
    """A pod without fields of a later Kubernetes: reading it so is how those are found, and costs nothing."""

    spec: KnownSpec


class ListedPod(KnownPod, kw_only=True):
    """One that names its kind, as it does in a list of several kinds."""

    api_version: Literal["v1"]
    kind: Literal["Pod"]


class TemplateMeta(Wire):
    """`metadata` of a pod template."""

    labels: msgspec.Raw = NOTHING


class Template(Wire):
    """A pod template."""

    metadata: TemplateMeta | None = None
    spec: msgspec.Raw = NOTHING


# --- what controls pods


class RollingUpdate(Wire):
    """Bounds of a rolling update."""

    max_surge: str | int | None = None
    max_unavailable: str | int | None = None


class UpdateStrategy(Wire):
    """`spec.strategy` or `spec.updateStrategy`."""

    type: str | None = None
    rolling_update: RollingUpdate | None = None


class ControllerSpec(Wire):
    """`spec` of any controller of pods."""

    replicas: int | None = None
    min_ready_seconds: int | None = None
    selector: msgspec.Raw = NOTHING
    template: Template | None = None
    strategy: UpdateStrategy | None = None
    update_strategy: UpdateStrategy | None = None
    paused: bool | None = None
    parallelism: int | None = None
    suspend: bool | None = None


class ControllerStatus(Wire):
    """`status` of any controller of pods."""

    replicas: int | None = None
    ready_replicas: int | None = None
    available_replicas: int | None = None
    updated_replicas: int | None = None
    observed_generation: int | None = None
    desired_number_scheduled: int | None = None
    current_number_scheduled: int | None = None
    updated_number_scheduled: int | None = None
    number_ready: int | None = None
    active: int | None = None
    ready: int | None = None
    conditions: list[Condition] | None = None


class Controller(Object):
    """A Deployment, ReplicaSet, ReplicationController, StatefulSet, DaemonSet or Job."""

    spec: ControllerSpec
    status: ControllerStatus | None = None


# --- autoscalers and budgets


class TargetReference(Wire):
    """Reference to the object that an autoscaler scales."""

    kind: str = ""
    name: str = ""


class MetricValue(Wire):
    """`target` or `current` of a metric."""

    average_utilization: int | None = None
    average_value: Scalar | None = None
    value: Scalar | None = None


class MetricName(Wire):
    """`metric` of a pods, object or external metric."""

    name: str = ""


class MetricSource(Wire):
    """A metric of any type; `target` in the spec, `current` in the status."""

    name: str | None = None
    container: str | None = None
    metric: MetricName | None = None
    described_object: TargetReference | None = None
    target: MetricValue | None = None
    current: MetricValue | None = None


class Metric(Wire):
    """An entry of `spec.metrics` or `status.currentMetrics`."""

    type: str = ""
    resource: MetricSource | None = None
    container_resource: MetricSource | None = None
    pods: MetricSource | None = None
    object: MetricSource | None = None
    external: MetricSource | None = None


class AutoscalerSpec(Wire):
    """`spec` of a HorizontalPodAutoscaler."""

    scale_target_ref: TargetReference
    min_replicas: int | None = None
    max_replicas: int | None = None
    metrics: list[Metric] | None = None


class AutoscalerStatus(Wire):
    """`status` of a HorizontalPodAutoscaler."""

    current_replicas: int | None = None
    desired_replicas: int | None = None
    current_metrics: list[Metric] | None = None


class Autoscaler(Object):
    """A HorizontalPodAutoscaler (autoscaling/v2)."""

    spec: AutoscalerSpec
    status: AutoscalerStatus | None = None


class BudgetSpec(Wire):
    """`spec` of a PodDisruptionBudget."""

    selector: msgspec.Raw = NOTHING
    min_available: str | int | None = None
    max_unavailable: str | int | None = None
    unhealthy_pod_eviction_policy: str | None = None


class BudgetStatus(Wire):
    """`status` of a PodDisruptionBudget."""

    disruptions_allowed: int | None = None
    expected_pods: int | None = None
    desired_healthy: int | None = None
    current_healthy: int | None = None


class Budget(Object):
    """A PodDisruptionBudget."""

    spec: BudgetSpec
    status: BudgetStatus | None = None


class UpdatePolicy(Wire):
    """`spec.updatePolicy` of a VerticalPodAutoscaler."""

    update_mode: str | None = None


class VerticalSpec(Wire):
    """`spec` of a VerticalPodAutoscaler."""

    target_ref: TargetReference
    update_policy: UpdatePolicy | None = None


class ContainerRecommendation(Wire):
    """Recommendation of a VerticalPodAutoscaler for one container."""

    target: dict[str, Scalar] | None = None
    lower_bound: dict[str, Scalar] | None = None
    upper_bound: dict[str, Scalar] | None = None


class PodRecommendation(Wire):
    """`status.recommendation`."""

    container_recommendations: list[ContainerRecommendation] | None = None


class VerticalStatus(Wire):
    """`status` of a VerticalPodAutoscaler."""

    recommendation: PodRecommendation | None = None


class Vertical(Object):
    """A VerticalPodAutoscaler."""

    spec: VerticalSpec
    status: VerticalStatus | None = None
