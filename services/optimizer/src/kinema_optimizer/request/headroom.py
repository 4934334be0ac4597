"""Room kept free for what may come, as operators of clusters keep it today: by placeholder pods that run nowhere.

A placeholder is a pending pod of the lowest priority that anything may displace. The optimizer places it like any other
and the plan leaves it out, so that the room is free in one piece, on a node that a real pod of that size could use. Any
rule about room holds for it too, and the checker sees it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Final

import msgspec

from kinema_core.events import Amounts, ClusterObject, FrozenMap, Plan, Pod
from kinema_core.model.cluster import Cluster
from kinema_core.model.quantity import QuantityError, parse_amount
from kinema_core.ranges import between, check_ranges

NAMESPACE: Final = "kinema.io~headroom"
"""No namespace can have this name, so that no pod of the cluster is mistaken for a placeholder."""
ROOM: Final = "room-"
LEFT: Final = "room-left-"
USABLE: Final = "usable-"
AHEAD: Final = "ahead-"
FLOOR: Final = "floor-"
"""Beginnings of the names of placeholders: room kept free, room that is left, usable resources, replicas that are
expected, minimum nodes."""
LOWEST: Final = -(2**31)
"""Priority of a placeholder: whatever it competes with comes first."""
_MOST: Final = 10_000
"""Placeholders of one kind; larger ones say the same with fewer."""


class Headroom(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Room for `count` pods that request this much each."""

    requests: Mapping[str, str]
    """Quantities as Kubernetes writes them: `{"cpu": "500m", "memory": "1Gi"}`."""
    count: Annotated[int, between(1, _MOST)] = 1
    """Number of such pods."""

    def __post_init__(self) -> None:
        """Refuse what no type can."""
        check_ranges(self, "headroom ")
        if not any(self.amounts.values()):
            message = "headroom requests nothing: name at least one resource, as cpu or memory, above 0"
            raise ValueError(message)

    @property
    def amounts(self) -> Amounts:
        """Return what one placeholder requests, in integer units."""
        try:
            return FrozenMap({name: parse_amount(name, text) for name, text in sorted(self.requests.items())})
        except QuantityError as error:
            message = f"headroom requests: {error}"
            raise ValueError(message) from error

    @property
    def text(self) -> str:
        """As plans name it."""
        room = " and ".join(f"{amount} {name}" for name, amount in sorted(self.requests.items()))
        return f"room for {self.count} more of {room}"


def placeholders(kind: str, amounts: Amounts, count: int) -> tuple[Pod, ...]:
    """Pending pods that request this much each; `kind` begins their names."""
    requests = FrozenMap({**amounts, "pods": 1})
    names = [f"{kind}{n:05d}" for n in range(count)]
    return tuple(Pod(name=name, namespace=NAMESPACE, uid=name, requests=requests, priority=LOWEST) for name in names)


def with_placeholders(cluster: Cluster, added: Sequence[Pod]) -> Cluster:
    """Return the cluster with these pods pending; the very same where there are none."""
    if not added:
        return cluster
    pods: dict[str, ClusterObject] = {pod.key: pod for pod in (*cluster.pods, *added)}
    objects: Mapping[str, Mapping[str, ClusterObject]] = MappingProxyType({**cluster.objects, "Pod": pods})
    return Cluster(version=cluster.version, objects=objects)


def without_placeholders_in(cluster: Cluster) -> Cluster:
    """Return the cluster without its placeholders; the very same where there are none."""
    pods: dict[str, ClusterObject] = {pod.key: pod for pod in cluster.pods if pod.namespace != NAMESPACE}
    if len(pods) == len(cluster.pods):
        return cluster
    return Cluster(version=cluster.version, objects=MappingProxyType({**cluster.objects, "Pod": pods}))


def without_placeholders(plan: Plan) -> Plan:
    """Return the plan without the placeholders; its figures count them, and those without room."""
    kept = tuple(item for item in plan.placements if not _is_placeholder(item.pod))
    waiting = tuple(item for item in plan.unplaced if not _is_placeholder(item.pod))
    missing = float(len(plan.unplaced) - len(waiting))
    figures = {"placeholders": len(plan.placements) - len(kept) + missing, "placeholders_missing": missing}
    return msgspec.structs.replace(
        plan,
        placements=kept,
        unplaced=waiting,
        steps=tuple(step for step in plan.steps if not _is_placeholder(step.pod)),
        figures=FrozenMap({**plan.figures, **figures}),
    )


def brings_room(plan: Plan) -> bool:
    """Return whether a pending pod gets a place; room that a plan only leaves does not count.

    Nor does room for a placeholder that is there already: on a node that is kept, and that no pod leaves.
    """
    only_left = (f"{NAMESPACE}/{LEFT}", f"{NAMESPACE}/{AHEAD}")
    changed = {node.name for node in plan.nodes if node.action != "keep"}
    changed |= {one.source for one in plan.placements if one.source is not None and one.source != one.to}
    return any(
        one.source is None and not one.pod.startswith(only_left) and (one.to in changed or not _is_placeholder(one.pod))
        for one in plan.placements
    )


def _is_placeholder(key: str) -> bool:
    """Return whether a pod's key is that of a placeholder."""
    return key.partition("/")[0] == NAMESPACE
