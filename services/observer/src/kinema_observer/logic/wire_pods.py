"""Partial structs of pods and pod templates."""

from __future__ import annotations

from typing import Annotated

import msgspec

from kinema_observer.logic.wire import NOTHING, Condition, Object, Scalar, Time, Wire


class Container(Wire):
    """A container, an init container or (init container that restarts always) a sidecar."""

    name: str = ""
    resources: msgspec.Raw = NOTHING
    ports: msgspec.Raw = NOTHING
    restart_policy: str | None = None


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


class TemplateMeta(Wire):
    """`metadata` of a pod template."""

    labels: msgspec.Raw = NOTHING


class Template(Wire):
    """A pod template."""

    metadata: TemplateMeta | None = None
    spec: msgspec.Raw = NOTHING
