"""Nodes that can reach a pod's volumes, and volumes of which that is not known.

A bound claim is where its volume is; an unbound one that waits for its first pod is wherever its storage class lets
volumes be made. How many nodes may mount a volume at once is not part of the state: a claim that several pods of one
node share is taken to bind them to that node.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kinema_core.events import Amounts, FrozenMap, Labels, NodeTerm, Pod
from kinema_core.model.cluster import Cluster
from kinema_core.model.derived import derived
from kinema_core.model.match import node_term_matches
from kinema_core.model.resources import add

ATTACHABLE = "attachable-volumes-csi-"
"""Begins the resource that stands for attachments of volumes of one driver to one node."""

_IN_TREE: Final = {
    "pd.csi.storage.gke.io": "gce-pd",
    "ebs.csi.aws.com": "aws-ebs",
    "disk.csi.azure.com": "azure-disk",
    "cinder.csi.openstack.org": "cinder",
}
"""Drivers that replaced a part of Kubernetes of which nodes still use the name to state their limit."""


def volume_doubt(cluster: Cluster, pod: Pod) -> tuple[str, str] | None:
    """Return code and reason why it is not known where the pod's volumes can be used; None when it is."""
    for name in pod.rules.claims:
        key = f"{pod.namespace}/{name}"
        missing = _missing(cluster, key)
        if missing is not None:
            return "volume-unknown", missing
        users = _users(cluster)[key]
        nodes = {user.node for user in users if user.node is not None}
        if len(users) > 1 and len(nodes) < 2:
            return "volume-shared", f"claim {key} is shared by {len(users)} pods that may have to be on one node"
    return None


def _missing(cluster: Cluster, key: str) -> str | None:
    """Return why it is not known where the claim's volume is or will be."""
    claim = _claims(cluster).get(key)
    if claim is None:
        return f"its claim {key} is not in the cluster's state"
    volume, storage = claim
    if volume is not None:
        return None if volume in _volumes(cluster) else f"volume {volume} of claim {key} is not in the cluster's state"
    if storage is None:
        return f"claim {key} has neither a volume nor a storage class"
    if storage not in _classes(cluster):
        return f"claim {key} has no volume yet, and its storage class {storage} is not in the cluster's state"
    if storage not in _waiting(cluster):
        return f"claim {key} has no volume yet, and storage class {storage} does not make one for its first pod"
    return None


def volume_terms(cluster: Cluster, pod: Pod) -> tuple[tuple[NodeTerm, ...], ...]:
    """Return the alternatives of each of the pod's volumes, of which a node must meet one; distinct ones, in order."""
    found: dict[tuple[NodeTerm, ...], None] = {}
    for name in pod.rules.claims:
        volume, storage = _claims(cluster).get(f"{pod.namespace}/{name}", (None, None))
        terms = _volumes(cluster).get(volume) if volume is not None else _waiting(cluster).get(storage or "")
        if terms is not None:
            found[terms] = None
    return tuple(found)


def volume_refuses(cluster: Cluster, pod: Pod, *, name: str, labels: Labels) -> str | None:
    """Return why one of the pod's volumes cannot be used on this node; None when all can."""
    for terms in volume_terms(cluster, pod):
        if not any(node_term_matches(term, name=name, labels=labels) for term in terms):
            return "a volume of the pod cannot be reached from there"
    return None


def attachments(cluster: Cluster, pod: Pod) -> Mapping[str, int]:
    """Attachments that the pod's volumes take on its node, by resource; empty for most pods.

    A volume that is yet to be made counts for the driver of its class, as kube-scheduler counts it. One that several
    pods of a node use counts for each of them, though it is attached once: at worst a node gets fewer than it takes.
    """
    found: dict[str, int] = {}
    for name in dict.fromkeys(pod.rules.claims):
        for resource in attachment_names(_driver(cluster, f"{pod.namespace}/{name}")):
            found[resource] = found.get(resource, 0) + 1
    return found


def with_attachments(cluster: Cluster, pod: Pod, requests: Amounts) -> Amounts:
    """Return what a pod with these requests takes of a node to which it comes: attachments of its volumes too."""
    return add(requests, FrozenMap(attachments(cluster, pod))) if pod.rules.claims else requests


def _driver(cluster: Cluster, claim: str) -> str:
    """Return the driver that attaches the claim's volume; empty where none does."""
    volume, storage = _claims(cluster).get(claim, (None, None))
    known = None if volume is None else _drivers(cluster).get(volume)
    return _class_drivers(cluster).get(storage or "", "") if known is None else known


def attachment_names(driver: str) -> tuple[str, ...]:
    """Return the resources by which a node may state how many volumes of a driver it takes."""
    if not driver:
        return ()
    old = _IN_TREE.get(driver)
    return (ATTACHABLE + driver,) if old is None else (ATTACHABLE + driver, f"attachable-volumes-{old}")


@derived
def _claims(cluster: Cluster) -> Mapping[str, tuple[str | None, str | None]]:
    """Volume and storage class of each claim."""
    return {claim.key: (claim.volume, claim.storage_class) for claim in cluster.claims}


@derived
def _volumes(cluster: Cluster) -> Mapping[str, tuple[NodeTerm, ...] | None]:
    return {volume.name: volume.node_terms for volume in cluster.volumes}


@derived
def _drivers(cluster: Cluster) -> Mapping[str, str]:
    return {volume.name: volume.driver for volume in cluster.volumes}


@derived
def _class_drivers(cluster: Cluster) -> Mapping[str, str]:
    return {one.name: one.driver for one in cluster.storage_classes}


@derived
def _classes(cluster: Cluster) -> frozenset[str]:
    return frozenset(one.name for one in cluster.storage_classes)


@derived
def _waiting(cluster: Cluster) -> Mapping[str, tuple[NodeTerm, ...] | None]:
    """Return where each storage class that waits for the first pod makes volumes; None: anywhere."""
    return {one.name: one.node_terms for one in cluster.storage_classes if one.wait_for_consumer}


@derived
def _users(cluster: Cluster) -> Mapping[str, tuple[Pod, ...]]:
    """Pods that are not terminating, by claim that they use."""
    found: dict[str, list[Pod]] = {}
    for pod in cluster.pods:
        for name in pod.rules.claims if not pod.terminating else ():
            found.setdefault(f"{pod.namespace}/{name}", []).append(pod)
    return {key: tuple(users) for key, users in found.items()}
