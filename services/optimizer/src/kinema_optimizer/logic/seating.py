"""Places for the pods of a node that goes, by the rules themselves: where the reduction of rules sees none.

What a node is held against by itself is stricter than a spread: it may leave no room where the rule would. So the pods
are tried one after another as if they waited, without the node: on nodes that are there, else on the cheapest new ones.
What comes out is an answer only if the checker finds that everybody else keeps what his rules ask for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from kinema_core.events import Node, Offer, Plan
from kinema_core.model.check import check_plan
from kinema_core.model.cluster import Cluster
from kinema_optimizer.logic.build_plan import build_plan
from kinema_optimizer.logic.compiled import Compiled, compiled
from kinema_optimizer.logic.leftovers import with_leftovers
from kinema_optimizer.logic.outcome import Outcome, new_names, nothing
from kinema_optimizer.logic.relaxing import changed

_OF_OTHERS: Final = {"pending-placeable", "priority-inverted"}
"""What is wrong with a plan that leaves pods out which wait already; they are not asked about."""


@dataclass(frozen=True)
class Seating:
    """Where the pods of a node go."""

    outcome: Outcome
    onto: Mapping[str, int]
    """Nodes that are there, and how many pods each takes."""
    boots: Mapping[str, int]
    """Offers by name, and how many new nodes of each there are."""
    price: int
    """Of the new nodes together, micro-USD per hour."""


def seating(given: Compiled, node: Node) -> Seating | None:
    """Where the node's pods that may move find a place by the rules; None where one of them finds none."""
    asked, cluster = given.question, given.question.cluster
    here = [pod.key for pod in cluster.pods_by_node.get(node.name, ()) if pod.key in given.sites.mobility.strategy]
    alone = compiled(replace(asked, cluster=_without(cluster, node, here), forecasts=()))
    stays = build_plan(alone, nothing(alone))
    found = with_leftovers(stays, alone.question.cluster, asked.offers, now=asked.now, options=asked.options)
    outcome = _outcome(given, node, found)
    if outcome.targets.keys() != set(here) or not _obeys(given, outcome):
        return None
    live, sold = {one.name for one in cluster.nodes}, [alike[0] for alike in outcome.boots]
    return Seating(
        outcome=outcome,
        onto=Counter(to for to in outcome.targets.values() if to in live),
        boots=Counter(one.name for one in sold),
        price=sum(one.micro_usd_per_hour for one in sold),
    )


def _without(cluster: Cluster, node: Node, here: list[str]) -> Cluster:
    """The cluster without the node and what goes with it; its pods wait, and nobody else does."""
    gone = [pod.key for pod in cluster.pods if pod.node in (None, node.name) and pod.key not in here]
    waiting = {key: msgspec.structs.replace(pod, node=None) for key in here if (pod := cluster.pod(key)) is not None}
    return changed(changed(cluster, "Node", {node.name: None}), "Pod", {**dict.fromkeys(gone), **waiting})


def _outcome(given: Compiled, node: Node, found: Plan) -> Outcome:
    cluster, offers = given.question.cluster, {one.name: one for one in given.question.offers}
    booted = [one for one in found.nodes if one.action == "boot"]
    names = {one.name: name for one, name in zip(booted, new_names(cluster), strict=False)}
    boots: list[tuple[Offer, ...]] = [(offers[one.offer],) for one in booted]
    return replace(
        nothing(given),
        keep=tuple(one.name != node.name for one in cluster.nodes),
        boots=tuple(boots),
        targets={one.pod: names.get(one.to, one.to) for one in found.placements if one.source is None},
    )


def _obeys(given: Compiled, outcome: Outcome) -> bool:
    asked = given.question
    wrong = check_plan(build_plan(given, outcome), asked.cluster, asked.offers, asked.now, asked.options)
    return all(one.code in _OF_OTHERS for one in wrong)
