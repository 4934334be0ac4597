"""Rights of the observer in a cluster: list and watch what it follows, and nothing else."""

from __future__ import annotations

from typing import Final

from kinema_kubernetes.rights import Rule
from kinema_observer.adapters.source import RESOURCES


def _group(path: str) -> tuple[str, str]:
    """API group and plural of a collection's path: `/api/v1/PLURAL` or `/apis/GROUP/VERSION/PLURAL`."""
    *prefix, plural = path.strip("/").split("/")
    return (prefix[1] if prefix[0] == "apis" else "", plural)


def _followed(*, essential: bool) -> tuple[Rule, ...]:
    places: dict[tuple[str, str], list[str]] = {}
    for item in RESOURCES:
        if item.essential == essential:
            group, plural = _group(item.path)
            places.setdefault((group, "" if essential else item.without), []).append(plural)
    return tuple(
        Rule(
            purpose="follows the cluster",
            group=group,
            resources=tuple(plurals),
            verbs=("list", "watch"),
            without=without,
        )
        for (group, without), plurals in places.items()
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
