"""Stateful sets whose pods have a disk of their own in one zone."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.clusters import CREATED, NAMESPACE, ZONE
from kinema_core.events import (
    Amounts,
    ClusterObject,
    FrozenMap,
    NodeTerm,
    Owner,
    PlacementRules,
    Pod,
    Requirement,
    Selector,
    Volume,
    VolumeClaim,
    Workload,
)


def stateful(name: str, requests: Amounts, zones: Sequence[str]) -> list[ClusterObject]:
    """A stateful set, its pods (waiting), and a bound claim and volume for each in its zone."""
    labels = FrozenMap({"app": name})
    top = Workload(
        type="StatefulSet",
        name=name,
        namespace=NAMESPACE,
        uid=f"s-{name}",
        labels=labels,
        selector=Selector(labels=labels),
        replicas=len(zones),
        current=len(zones),
        updated=len(zones),
        generation=1,
        observed_generation=1,
        template_labels=labels,
        template_requests=requests,
    )
    found: list[ClusterObject] = [top]
    for number, zone in enumerate(zones):
        claim, volume = f"data-{name}-{number}", f"pv-{name}-{number}"
        there = NodeTerm(expressions=(Requirement(key=ZONE, operator="In", values=(zone,)),))
        found += [
            Pod(
                name=f"{name}-{number}",
                namespace=NAMESPACE,
                uid=f"p-{name}-{number}",
                owner=Owner(kind="StatefulSet", name=name, uid=top.uid),
                labels=labels,
                requests=requests,
                rules=PlacementRules(claims=(claim,)),
                unschedulable=True,
                created=CREATED,
            ),
            VolumeClaim(name=claim, namespace=NAMESPACE, uid=f"c-{claim}", volume=volume),
            Volume(name=volume, uid=f"v-{volume}", node_terms=(there,), claim=f"{NAMESPACE}/{claim}"),
        ]
    return found
