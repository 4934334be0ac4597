"""CSI drivers: whose volumes are whose, and how many of them a node takes.

A driver's limit stands in the CSINode of its node's name. There is no such object in the state: its counts become
what nodes always stated of attachable volumes, a part of their allocatable. So whoever folds the state needs not know
of CSINodes, and every change of one is a change of its node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias

import msgspec

from kinema_core.events import Amounts, ClusterObject, FrozenMap, Node
from kinema_core.model.volumes import attachment_names
from kinema_observer.errors import UnreadableFieldError
from kinema_observer.logic import wire
from kinema_observer.logic.changes import Changes
from kinema_observer.logic.reading import meaning, name_of

_IN_TREE: Final = {
    "aws_elastic_block_store": ("kubernetes.io/aws-ebs", "ebs.csi.aws.com"),
    "azure_disk": ("kubernetes.io/azure-disk", "disk.csi.azure.com"),
    "azure_file": ("kubernetes.io/azure-file", "file.csi.azure.com"),
    "cinder": ("kubernetes.io/cinder", "cinder.csi.openstack.org"),
    "gce_persistent_disk": ("kubernetes.io/gce-pd", "pd.csi.storage.gke.io"),
    "portworx_volume": ("kubernetes.io/portworx-volume", "pxd.portworx.com"),
    "vsphere_volume": ("kubernetes.io/vsphere-volume", "csi.vsphere.vmware.com"),
}
"""Fields of volumes that a part of Kubernetes once attached: its name in storage classes, and the driver of today."""
_DRIVERS: Final = dict(_IN_TREE.values())


class DriverLimits(msgspec.Struct, frozen=True, gc=False):
    """Limits of a CSINode: the most volumes of each driver that the node of its name takes, by resource.

    `replaced` are the names under which nodes stated the same before there were drivers.
    """

    name: str
    most: Amounts
    replaced: frozenset[str]

    @property
    def key(self) -> str:
        """The node's name."""
        return self.name


LIMITS: Final = DriverLimits.__name__
Seen: TypeAlias = ClusterObject | DriverLimits
"""What an object is read as: a part of the state, or what is added to one."""
Identity: TypeAlias = tuple[str, str]


def identity(item: Seen) -> Identity:
    """Kind and key."""
    return type(item).__name__, item.key


def in_tree_driver(spec: wire.VolumeSpec) -> str:
    """Return the driver that attaches a volume which names a part of Kubernetes instead; empty where none does."""
    return next((driver for field, (_, driver) in _IN_TREE.items() if meaning(bytes(getattr(spec, field)))), "")


def driver_of_class(provisioner: str) -> str:
    """Return the driver of the volumes that a provisioner makes; empty where they are not attached."""
    return _DRIVERS.get(provisioner, "" if provisioner.startswith("kubernetes.io/") else provisioner)


def limits_of(found: wire.CSINode) -> DriverLimits | None:
    """Return what a CSINode limits; None where it limits nothing: a driver without a count takes any number.

    Raises:
        UnreadableFieldError: it has no name, or a count is negative.
    """
    most: dict[str, int] = {}
    replaced: set[str] = set()
    for index, driver in enumerate(found.spec.drivers or ()):
        count = driver.allocatable.count if driver.allocatable is not None else None
        if count is None or not driver.name:
            continue
        if count < 0:
            raise UnreadableFieldError(
                f"spec.drivers[{index}].allocatable.count", f"{count} is no number of volumes: it is 0 or more"
            )
        resource, *older = attachment_names(driver.name)
        most[resource] = count
        replaced.update(older)
    return DriverLimits(name_of(found.metadata), FrozenMap(most), frozenset(replaced)) if most else None


def with_limits(node: Node, limits: Seen | None) -> Node:
    """Return the node with what its CSINode says.

    That holds over what the node says of the same driver's volumes, by any name: kube-scheduler asks the CSINode alone.
    """
    if not isinstance(limits, DriverLimits):
        return node
    kept = {name: amount for name, amount in node.allocatable.items() if name not in limits.replaced}
    return msgspec.structs.replace(node, allocatable=FrozenMap({**kept, **limits.most}))


def assembled(seen: Iterable[Seen]) -> list[ClusterObject]:
    """Return the objects of the state in what was read, in the order given."""
    known = list(seen)
    limits = {item.name: item for item in known if isinstance(item, DriverLimits)}
    if not limits:
        return [item for item in known if not isinstance(item, DriverLimits)]
    return [
        with_limits(item, limits.get(item.name)) if isinstance(item, Node) else item
        for item in known
        if not isinstance(item, DriverLimits)
    ]


def assembled_changes(
    seen: Mapping[Identity, Seen | None],
    *,
    node: Callable[[str], Seen | None],
    limits: Callable[[str], Seen | None],
) -> Changes:
    """Return the changes of the state: a node has changed also when its CSINode came, changed or went.

    Args:
        seen: what changed, None for what is gone.
        node: what is known of the node of a name now.
        limits: what is known of its CSINode now.
    """
    found = {each: item for each, item in seen.items() if each[0] != LIMITS and not isinstance(item, DriverLimits)}
    for name in {key for kind, key in seen if kind in (LIMITS, Node.__name__)}:
        item = node(name)
        if isinstance(item, Node):
            found[identity(item)] = with_limits(item, limits(name))
    return found
