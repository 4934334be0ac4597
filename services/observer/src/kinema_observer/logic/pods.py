"""Pods and pod templates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import structs

from kinema_core.events import EMPTY, NO_RULES, Amounts, ContainerRequests, HostPort, Labels, PlacementRules, Pod
from kinema_core.model.resources import total
from kinema_core.model.vocabulary import RUNTIME_CLASS
from kinema_observer.errors import UnreadableFieldError
from kinema_observer.logic import wire
from kinema_observer.logic.reading import (
    EMPTY_TEXTS,
    annotations_of,
    controller_of,
    decoded,
    fault_of,
    labels_of,
    name_of,
    namespace_of,
    text_of,
    uid_of,
)
from kinema_observer.logic.requests import (
    Reported,
    ceiling_of,
    containers_of,
    limits_of,
    reported_of,
    requests_of,
    resizable_of,
)
from kinema_observer.logic.rules import rules_of
from kinema_observer.logic.wire import NOTHING, Condition

FINISHED: Final = ("Succeeded", "Failed")
Phase: TypeAlias = Literal["Pending", "Running", "Unknown"]
_PORTS: Final = msgspec.json.Decoder(list[wire.Port])
_VOLUMES: Final = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])
_CLAIM_SOURCES: Final = msgspec.json.Decoder(wire.ClaimSource)
_NAMES: Final = msgspec.json.Decoder(str)
_ENCODER: Final = msgspec.json.Encoder()
_SPECS: Final = msgspec.json.Decoder(wire.PodSpec)
_KNOWN_SPECS: Final = msgspec.json.Decoder(wire.KnownSpec)
_KNOWN_FIELDS: Final = frozenset(field.encode_name for field in structs.fields(wire.KnownSpec))
_FIELDS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_SILENT: Final = EMPTY_TEXTS | {b"false", b'""'}
_PODS: Final = msgspec.json.Decoder(wire.Pod)
_PLACELESS: Final = frozenset(
    {
        "name",
        # made for the pod wherever it is
        *("configMap", "secret", "projected", "downwardAPI", "emptyDir", "gitRepo", "image", "csi"),
        # shared over the network, by any number of nodes
        *("nfs", "cephfs", "glusterfs", "azureFile", "quobyte"),
    }
)
"""Fields of a volume that bind its pod to no place."""
_CLAIMING: Final = ("persistentVolumeClaim", "ephemeral")


class Template(NamedTuple):
    """Labels, requests and rules of a controller's next pods."""

    labels: Labels = EMPTY
    requests: Amounts = EMPTY
    containers: tuple[ContainerRequests, ...] = ()
    ceiling: Amounts = EMPTY
    rules: PlacementRules = NO_RULES


class _Volumes(NamedTuple):
    claims: tuple[str, ...] = ()
    host_path: bool = False
    local: bool = False
    unmodeled: tuple[str, ...] = ()


_NO_VOLUMES: Final = _Volumes()


def odd_pod_of(raw: bytes | msgspec.Raw) -> tuple[wire.Pod, Pod | None]:
    """Read a pod that is no `KnownPod`: what its spec has of a later Kubernetes is named, and not modeled.

    Raises:
        msgspec.DecodeError, UnreadableFieldError: it cannot be read at all.
    """
    found = _PODS.decode(raw)
    return found, pod_of(found, _later_fields(_FIELDS.decode(raw)["spec"]))


def pod_of(found: wire.Pod, later: tuple[str, ...] = ()) -> Pod | None:
    """Return the pod; None when it has finished: then it is no part of the state. `later`: paths of fields not modeled.

    Raises:
        UnreadableFieldError: a part cannot be read.
    """
    meta, spec, status = found.metadata, found.spec, found.status or wire.PodStatus()
    if status.phase in FINISHED:
        return None
    name = name_of(meta)
    owner = controller_of(meta.owner_references)
    annotations, mirror = annotations_of(meta.annotations)
    volumes = _volumes(text_of(spec.volumes), name)
    statuses = [*(status.container_statuses or ()), *(status.init_container_statuses or ())]
    restarts, last_restart = _restarts(statuses)
    ready, unschedulable = _standing(status.conditions)
    labels = labels_of(meta.labels)
    own = structs.replace(spec, node_name=None, hostname=NOTHING, volumes=NOTHING)
    requests, limits, containers, rules = _shared(_ENCODER.encode(own), reported_of(statuses))
    if volumes.claims or volumes.unmodeled or later:
        rules = _rules(spec, volumes, later)
    return Pod(
        name=name,
        namespace=namespace_of(meta),
        uid=uid_of(meta),
        phase=_phase(status.phase),
        node=spec.node_name or None,
        nominated=status.nominated_node_name or None,
        owner=owner,
        labels=labels,
        annotations=annotations,
        requests=requests,
        limits=limits,
        containers=containers,
        rules=rules,
        priority=spec.priority or 0,
        ready=ready,
        unschedulable=unschedulable,
        terminating=meta.deletion_timestamp is not None,
        mirror=mirror or (owner is not None and owner.kind == "Node"),
        host_path=volumes.host_path,
        local_storage=volumes.local,
        created=meta.creation_timestamp,
        started=status.start_time,
        restarts=restarts,
        last_restart=last_restart,
        resizable=resizable_of(spec, status.container_statuses or ()) if status.phase == "Running" else (),
    )


@lru_cache(maxsize=16384)
def _shared(text: bytes, reported: Reported) -> tuple[Amounts, Amounts, tuple[ContainerRequests, ...], PlacementRules]:
    """Return what pods of one workload have in common, from their spec without what is each pod's own."""
    spec = _SPECS.decode(text)
    requests, containers = requests_of(spec, reported), containers_of(spec)
    alone = len(spec.containers) == 1 and not spec.init_containers
    if alone and requests == {**total(item.requests for item in containers), "pods": 1}:
        containers = ()  # most pods: `requests` says it
    return requests, limits_of(spec), containers, _rules(spec, _NO_VOLUMES)


def _rules(spec: wire.PodSpec, volumes: _Volumes, later: tuple[str, ...] = ()) -> PlacementRules:
    unmodeled = (*volumes.unmodeled, *_unmodeled(spec), *later)
    return rules_of(spec, host_ports=_host_ports(spec), claims=volumes.claims, unmodeled=unmodeled)


def template_of(found: wire.Template | None) -> Template:
    """Labels, requests and rules of a pod template.

    Raises:
        UnreadableFieldError: a part cannot be read; its path begins at `spec.template`.
    """
    if found is None:
        return Template()
    labels = labels_of(found.metadata.labels, "spec.template.metadata.labels") if found.metadata else EMPTY
    try:
        requests, containers, ceiling, rules = _template(bytes(found.spec) or b"null")
    except UnreadableFieldError as error:
        raise error.under("spec.template") from error
    return Template(labels, requests, containers, ceiling, rules)


@lru_cache(maxsize=16384)
def _template(text: bytes) -> tuple[Amounts, tuple[ContainerRequests, ...], Amounts, PlacementRules]:
    try:
        spec, later = _template_spec(text)
    except msgspec.DecodeError as error:
        raise fault_of(error).under("spec") from error
    volumes = _volumes(text_of(spec.volumes), "")
    # The admission of a pod merges its runtime class's node selector into it; a template does not show that yet.
    runtime = (RUNTIME_CLASS,) if spec.runtime_class_name else ()
    return requests_of(spec), containers_of(spec), ceiling_of(spec), _rules(spec, volumes, (*later, *runtime))


def _template_spec(text: bytes) -> tuple[wire.PodSpec, tuple[str, ...]]:
    try:
        return _KNOWN_SPECS.decode(text), ()
    except msgspec.ValidationError:
        return _SPECS.decode(text), _later_fields(text)


def _later_fields(text: bytes | msgspec.Raw) -> tuple[str, ...]:
    """Paths of fields of a spec that came with a later Kubernetes; what is null, empty or false restricts nothing."""
    found = _FIELDS.decode(text)
    return tuple(f"spec.{key}" for key in sorted(found.keys() - _KNOWN_FIELDS) if bytes(found[key]) not in _SILENT)


def _phase(phase: str | None) -> Phase:
    match phase:
        case None | "" | "Pending":
            return "Pending"
        case "Running":
            return "Running"
        case _:
            return "Unknown"


def _standing(conditions: Sequence[Condition] | None) -> tuple[bool, bool]:
    """Return whether the pod is Ready, and whether its scheduler found no node for it."""
    ready = unschedulable = False
    for item in conditions or ():
        if item.type == "Ready":
            ready = item.status == "True"
        elif item.type == "PodScheduled":
            unschedulable = item.status == "False" and item.reason == "Unschedulable"
    return ready, unschedulable


def _restarts(statuses: Sequence[wire.ContainerStatus]) -> tuple[int, datetime | None]:
    """Return how often containers were started again, and when one last ended with an error."""
    count, last = 0, None
    for status in statuses:
        count += status.restart_count or 0
        for state in (status.state, status.last_state):
            end = None if state is None else state.terminated
            if end is None or end.finished_at is None or not (end.exit_code or end.reason == "OOMKilled"):
                continue
            last = end.finished_at if last is None else max(last, end.finished_at)
    return count, last


def _host_ports(spec: wire.PodSpec) -> tuple[HostPort, ...]:
    """Ports taken on the node, of containers and sidecars; on the host's network every port is one."""
    found = []
    sidecars = [item for item in spec.init_containers or () if item.restart_policy == "Always"]
    for index, container in enumerate([*spec.containers, *sidecars]):
        text = text_of(container.ports)
        if not text or not (spec.host_network or b"hostPort" in text):
            continue
        for port in decoded(_PORTS, text, f"spec.containers[{index}].ports"):
            number = port.host_port or (port.container_port if spec.host_network else 0)
            if number:
                found.append(
                    HostPort(
                        port=number, protocol=port.protocol or "TCP", host_ip=port.host_ip or HostPort(port=0).host_ip
                    )
                )
    return tuple(found)


def _volumes(text: bytes, pod: str) -> _Volumes:
    """Claims and host paths; any other volume that may bind a pod to a place is not modeled, whether known or not."""
    if not text:
        return _NO_VOLUMES
    volumes = decoded(_VOLUMES, text, "spec.volumes")
    local = any("emptyDir" in volume and b'"Memory"' not in bytes(volume["emptyDir"]) for volume in volumes)
    if all(map(_PLACELESS.issuperset, volumes)):  # most pods
        return _Volumes(local=True) if local else _NO_VOLUMES
    claims, others = [], set()
    for index, volume in enumerate(volumes):
        for source, raw in volume.items():
            if source in _PLACELESS or bytes(raw) == b"null":  # an empty one is still one
                continue
            if source in _CLAIMING:
                claims.append(_claim(volume, source, pod=pod, path=f"spec.volumes[{index}]"))
            else:
                others.add(source)
    unmodeled = tuple(f"spec.volumes.{name}" for name in sorted(others - {"hostPath"}))
    host_path = "hostPath" in others
    return _Volumes(tuple(claims), host_path=host_path, local=local or host_path, unmodeled=unmodeled)


def _claim(volume: Mapping[str, msgspec.Raw], source: str, *, pod: str, path: str) -> str:
    """Return the claim of a volume; that of an ephemeral one is named after its pod and the volume."""
    if source == "ephemeral":
        return f"{pod}-{decoded(_NAMES, volume.get('name', b''), f'{path}.name')}"
    return decoded(_CLAIM_SOURCES, volume[source], f"{path}.{source}").claim_name


def _unmodeled(spec: wire.PodSpec) -> tuple[str, ...]:
    """Return the fields that restrict placement beyond what is modeled."""
    found = []
    if spec.resource_claims:
        found.append("spec.resourceClaims")
    if text_of(spec.scheduling_group):
        found.append("spec.schedulingGroup")
    if text_of(spec.workload_ref):
        found.append("spec.workloadRef")
    if spec.os is not None and spec.os.name not in (None, "", "linux"):
        found.append("spec.os")
    return tuple(found)
