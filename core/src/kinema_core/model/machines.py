"""Machine type, zone and capacity type of nodes, by their labels."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kinema_core.events import Labels, Node
from kinema_core.model.vocabulary import CAPACITY_TYPE, SPOT_VALUES

INSTANCE_TYPE: Final = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
ZONE: Final = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")
UNKNOWN: Final = "-"


def machine_of(node: Node) -> tuple[str, str, str]:
    """Machine type, zone and capacity type by a live node's labels; `-` where type or zone is not known."""
    return (
        machine_type(node.labels),
        zone_in(node.labels),
        "spot" if _is_spot(node.labels) else "on-demand",
    )


def zone_in(labels: Labels) -> str:
    """Return the zone in a node's labels, `-` where there is none."""
    return _first(labels, ZONE)


def machine_type(labels: Labels) -> str:
    """Return the machine type in a node's labels, `-` where there is none."""
    return _first(labels, INSTANCE_TYPE)


def _first(labels: Labels, keys: Iterable[str]) -> str:
    for key in keys:
        value = labels.get(key)
        if value:
            return value
    return UNKNOWN


def _is_spot(labels: Labels) -> bool:
    """Return whether Kinema's own label, or else any provider's, says spot."""
    own = labels.get(CAPACITY_TYPE)
    if own is not None:
        return own.lower() == "spot"
    said = labels.keys() & SPOT_VALUES.keys()  # of most nodes, nothing
    return any(labels[key].lower() == SPOT_VALUES[key] for key in said)
