"""Nodes, storage, and what else placement depends on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, cast

from kinema_core.events import (
    Amounts,
    FrozenMap,
    Namespace,
    Node,
    NodeTerm,
    PriorityClass,
    QuotaScope,
    Requirement,
    ResourceQuota,
    StorageClass,
    Taint,
    Volume,
    VolumeClaim,
)
from kinema_core.model.match import EFFECTS
from kinema_core.model.quantity import QuantityError, parse_amount
from kinema_core.model.resource_quotas import SETS
from kinema_observer.errors import UnreadableFieldError
from kinema_observer.logic import wire
from kinema_observer.logic.drivers import driver_of_class, in_tree_driver
from kinema_observer.logic.reading import (
    amounts_of,
    annotations_of,
    condition_holds,
    labels_of,
    name_of,
    namespace_of,
    uid_of,
)
from kinema_observer.logic.rules import selector_terms_of


def node_of(found: wire.Node) -> Node:
    """Return the node; one that is being deleted takes no more pods, as if cordoned.

    Raises:
        UnreadableFieldError: a part cannot be read.
    """
    meta, spec = found.metadata, found.spec
    status = found.status or wire.NodeStatus()
    return Node(
        name=name_of(meta),
        uid=uid_of(meta),
        labels=labels_of(meta.labels),
        annotations=annotations_of(meta.annotations)[0],
        taints=tuple(_taint(item, f"spec.taints[{index}]") for index, item in enumerate(spec.taints or ())),
        unschedulable=bool(spec.unschedulable) or meta.deletion_timestamp is not None,
        ready=condition_holds(status.conditions, "Ready"),
        allocatable=_allocatable(status),
        created=meta.creation_timestamp,
    )


def _allocatable(status: wire.NodeStatus) -> Amounts:
    """Return what pods may request: the allocatable amounts, or the capacity where the kubelet reports no others.

    Raises:
        UnreadableFieldError: a quantity cannot be read, or one that every kubelet reports is missing.
    """
    path, amounts = "status.allocatable", status.allocatable
    if amounts is None and status.capacity is not None:
        path, amounts = "status.capacity", status.capacity
    for resource in ("cpu", "memory"):
        if resource not in (amounts or {}):
            raise UnreadableFieldError(f"{path}.{resource}", "is missing: take it again once the node reports it")
    return amounts_of(amounts, path)


def _taint(found: wire.Taint, path: str) -> Taint:
    if found.effect not in EFFECTS:
        raise UnreadableFieldError(f"{path}.effect", f"{found.effect!r} is none of {', '.join(EFFECTS)}")
    return Taint(key=found.key, value=found.value or "", effect=cast("Literal['NoSchedule']", found.effect))


def volume_of(found: wire.Volume) -> Volume:
    """Return the persistent volume.

    Raises:
        UnreadableFieldError: its node affinity cannot be read.
    """
    meta, spec = found.metadata, found.spec
    claim = spec.claim_ref
    path = "spec.nodeAffinity.required"
    return Volume(
        name=name_of(meta),
        uid=uid_of(meta),
        node_terms=selector_terms_of(spec.node_affinity.required, path) if spec.node_affinity is not None else None,
        claim=f"{claim.namespace or 'default'}/{claim.name}" if claim is not None and claim.name else None,
        driver=spec.csi.driver if spec.csi is not None else in_tree_driver(spec),
    )


def claim_of(found: wire.Claim) -> VolumeClaim:
    """Return the persistent volume claim.

    Raises:
        UnreadableFieldError: it has no name.
    """
    meta, spec = found.metadata, found.spec
    return VolumeClaim(
        name=name_of(meta),
        namespace=namespace_of(meta),
        uid=uid_of(meta),
        volume=spec.volume_name or None,
        storage_class=spec.storage_class_name,
    )


def storage_class_of(found: wire.StorageClass) -> StorageClass:
    """Return the storage class.

    Raises:
        UnreadableFieldError: it has no name.
    """
    terms = tuple(
        NodeTerm(
            expressions=tuple(
                Requirement(key=item.key, operator="In", values=tuple(item.values or ()))
                for item in term.match_label_expressions or ()
            )
        )
        for term in found.allowed_topologies or ()
    )
    return StorageClass(
        name=name_of(found.metadata),
        uid=uid_of(found.metadata),
        wait_for_consumer=found.volume_binding_mode == "WaitForFirstConsumer",
        node_terms=terms or None,
        driver=driver_of_class(found.provisioner or ""),
    )


def priority_class_of(found: wire.PriorityClass) -> PriorityClass:
    """Return the priority class.

    Raises:
        UnreadableFieldError: it has no name.
    """
    return PriorityClass(name=name_of(found.metadata), uid=uid_of(found.metadata), value=found.value or 0)


def namespace_object_of(found: wire.Namespace) -> Namespace:
    """Return the namespace.

    Raises:
        UnreadableFieldError: a label is no text.
    """
    meta = found.metadata
    phase = found.status.phase if found.status is not None else None
    return Namespace(
        name=name_of(meta),
        uid=uid_of(meta),
        labels=labels_of(meta.labels),
        terminating=meta.deletion_timestamp is not None or phase == "Terminating",
    )


_COMPUTE: Final = ("cpu", "memory", "ephemeral-storage")
"""Resources that a quota may also name without `requests.`."""
_COUNTED: Final = ("pods", "count/pods", SETS)
"""Objects of which a quota limits the number."""


def quota_of(found: wire.Quota) -> ResourceQuota:
    """Return the quota, without what it limits beside pods and ReplicaSets.

    Raises:
        UnreadableFieldError: a quantity cannot be read.
    """
    meta, spec, status = found.metadata, found.spec, found.status or wire.QuotaStatus()
    selector = spec.scope_selector or wire.ScopeSelector()
    stated = (
        QuotaScope(name=one.scope_name, operator=one.operator or "Exists", values=tuple(one.values or ()))
        for one in selector.match_expressions or ()
    )
    return ResourceQuota(
        name=name_of(meta),
        namespace=namespace_of(meta),
        uid=uid_of(meta),
        hard=_quota_amounts(spec.hard, "spec.hard"),
        used=_quota_amounts(status.used, "status.used"),
        scopes=(*(QuotaScope(name=name) for name in spec.scopes or ()), *stated),
    )


def _quota_amounts(found: Mapping[str, wire.Scalar] | None, path: str) -> Amounts:
    """Return what is said of pods and their sets, under the name `requests.RESOURCE` where it has two: the smaller."""
    amounts: dict[str, int] = {}
    for stated, quantity in (found or {}).items():
        name = f"requests.{stated}" if stated in _COMPUTE else stated
        if name not in _COUNTED and not name.startswith(("requests.", "limits.")):
            continue
        if name == "requests.storage":  # of claims
            continue
        try:
            amount = parse_amount(name.rpartition(".")[2], quantity if isinstance(quantity, str) else repr(quantity))
        except QuantityError as error:
            raise UnreadableFieldError(f"{path}.{stated}", str(error)) from error
        amounts[name] = min(amount, amounts.get(name, amount))
    return FrozenMap(amounts)
