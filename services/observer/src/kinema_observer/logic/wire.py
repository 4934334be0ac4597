"""Partial structs of Kubernetes JSON: the fields that are used and no others.

The API server leaves out what is empty, and may send `null` where the models want a list or a number. So every
field has a default and takes null, but for those without which an object says nothing (`spec`, a pod's `containers`);
what is missing is given its Kubernetes default where it is converted. Parts that many objects share (labels, affinity,
resources …) stay raw: they are parsed once per distinct text.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, TypeAlias

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
