"""Gaps of a catalog: what it leaves open about new nodes although it may matter in this cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from kinema_cli.output import counted, listed
from kinema_core.model.catalog import machine_type
from kinema_core.model.catalog_file import MAX_PODS
from kinema_core.model.match import HOSTNAME
from kinema_core.model.resources import limited

if TYPE_CHECKING:
    from kinema_cli.snapshot.file import Snapshot
    from kinema_core.events import Node, Offer, PlacementRules

_STATES: Final = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "kinema.io/", "karpenter.sh/")
_LEAVING: Final = ("ToBeDeletedByClusterAutoscaler", "DeletionCandidateOfClusterAutoscaler")


def catalog_warnings(snapshot: Snapshot, offers: Sequence[Offer]) -> Iterator[str]:
    """Yield taints, labels and resources that nodes have and offers do not mention."""
    nodes: dict[str, list[Node]] = {}
    for node in snapshot.cluster.nodes:
        nodes.setdefault(machine_type(node.labels), []).append(node)
    asked = _asked(snapshot)
    for machine, alike in sorted(nodes.items()):
        sold = [offer for offer in offers if offer.machine_type == machine]
        yield from _absent(machine, "taint", sorted(_taints(alike, sold)))
        yield from _absent(machine, "label", sorted(_labels(alike, sold, asked)))
        yield from _assumed(machine, len(alike), sold, asked)
    yield from _unlimited(snapshot, offers)
    yield from _pods_per_node(snapshot, [offer for offer in offers if offer.machine_type not in nodes])


def _pods_per_node(snapshot: Snapshot, strange: Sequence[Offer]) -> Iterator[str]:
    """Yield that new machine types are assumed to take 110 pods, where all nodes take another number.

    That number is not taken from nodes of other types: some providers make it depend on the type.
    """
    here = {node.allocatable.get("pods", 0) for node in snapshot.cluster.nodes}
    most = next(iter(here)) if len(here) == 1 else MAX_PODS
    types = sorted({offer.machine_type for offer in strange if offer.allocatable.get("pods") == MAX_PODS})
    if types and most != MAX_PODS:
        yield (
            f"every node takes {most:,} pods, but new nodes of other types ({listed(types)}) are assumed to take "
            f"{MAX_PODS}; if they take {most:,} too, set the catalog's column `max_pods`"
        )


def _absent(machine: str, what: str, lacking: Sequence[str]) -> Iterator[str]:
    if lacking:
        why = " (required by pods or daemon sets)" if what == "label" else ""
        yield (
            f"all nodes of machine type {machine} have the {what} {', '.join(lacking)}{why}, but its offer does not; "
            f"if new nodes have it, set the catalog's column `{what}s`"
        )


def _assumed(machine: str, nodes: int, sold: Sequence[Offer], asked: frozenset[str]) -> Iterator[str]:
    """Yield the labels that pods ask for and new nodes are assumed to have, as the live ones do."""
    found = {(key, offer.labels[key]) for offer in sold for key in asked.intersection(offer.assumed_labels)}
    if found:
        shown = ", ".join(f"{key}={value}" for key, value in sorted(found))
        yield (
            f"new nodes of machine type {machine} are assumed to have the label {shown} (required by pods or daemon "
            f"sets), as its {counted(nodes, 'node')} do; if they lack it, add `KEY-` to the catalog's column `labels`"
        )


def _taints(nodes: Sequence[Node], sold: Sequence[Offer]) -> set[str]:
    here = [
        {f"{taint.key}={taint.value}:{taint.effect}" for taint in node.taints if not _passes(taint.key)}
        for node in nodes
    ]
    return {taint for taint in set.intersection(*here) if any(_lacks(offer, taint) for offer in sold)}


def _lacks(offer: Offer, taint: str) -> bool:
    plain = taint.replace("=:", ":")
    return not {taint, plain} & {given.replace("=:", ":") for given in offer.taints}


def _passes(key: str) -> bool:
    """Return whether a taint describes a state, not the kind of node."""
    return key.startswith(_STATES) or key in _LEAVING


def _labels(nodes: Sequence[Node], sold: Sequence[Offer], asked: frozenset[str]) -> set[str]:
    common = set.intersection(*({(key, node.labels[key]) for key in asked & node.labels.keys()} for node in nodes))
    return {f"{key}={value}" for key, value in common if any(key not in offer.labels for offer in sold)}


def _asked(snapshot: Snapshot) -> frozenset[str]:
    """Return keys of node labels that pods or daemon sets require something of."""
    cluster = snapshot.cluster
    rules = [pod.rules for pod in cluster.pods]
    rules += [workload.template_rules for workload in cluster.workloads]
    return frozenset(key for one in rules for key in _keys(one)) - {HOSTNAME}


def _keys(rules: PlacementRules) -> Iterator[str]:
    yield from rules.node_selector
    for term in rules.node_terms or ():
        yield from (one.key for one in term.expressions)


def _unlimited(snapshot: Snapshot, offers: Sequence[Offer]) -> Iterator[str]:
    """Yield resources that a node has without limit where it does not name them."""
    open_ = {name for pod in snapshot.cluster.pods for name in pod.requests if not limited(name)}
    for name in sorted(open_):
        silent = sorted({offer.machine_type for offer in offers if name not in offer.allocatable})
        if silent:
            more = " …" if len(silent) > 1 else ""
            yield (
                f"pods request {name}, which {counted(len(silent), 'machine type')} of the catalog ({silent[0]}{more}) "
                "do not mention; the plan does not limit it there unless the catalog's column `extended` does"
            )
