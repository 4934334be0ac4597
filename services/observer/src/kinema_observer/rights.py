"""What the observer may do in a cluster: list and watch what it follows, and nothing else."""

from __future__ import annotations

from typing import Final

from kinema_core.runtime.kubernetes_rights import Rule
from kinema_observer.adapters.source import RESOURCES


def _group(path: str) -> tuple[str, str]:
    """API group and plural of a collection's path: `/api/v1/PLURAL` or `/apis/GROUP/VERSION/PLURAL`."""
    *prefix, plural = path.strip("/").split("/")
    return (prefix[1] if prefix[0] == "apis" else "", plural)


def _followed(*, essential: bool) -> tuple[Rule, ...]:
    places = [_group(item.path) for item in RESOURCES if item.essential == essential]
    return tuple(
        Rule(
            purpose="follows the cluster",
            group=group,
            resources=tuple(plural for other, plural in places if other == group),
            verbs=("list", "watch"),
            without="" if essential else "pods that depend on what these say do not move",
        )
        for group in dict.fromkeys(group for group, _ in places)
    )


RULES: Final = (
    *_followed(essential=True),
    *_followed(essential=False),
    Rule(
        purpose="reads the usage of pods",
        group="metrics.k8s.io",
        resources=("pods",),
        verbs=("list",),
        without="no usage is known: requests stay as they are",
    ),
)
