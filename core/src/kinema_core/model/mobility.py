"""Mobility of pods and nodes: what must not move and why, and by which strategy the rest moves.

The rules are those of people's annotations, of disruption budgets, of controllers that could not replace a pod, and of
whatever restricts placement in a way that is not modeled. Whatever could not be read is taken as forbidding.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from itertools import chain
from types import MappingProxyType
from typing import Final, TypeAlias

from kinema_core.events import Held, Node, Owner, Pod, Strategy
from kinema_core.model.cluster import Cluster
from kinema_core.model.daemons import is_resident
from kinema_core.model.derived import derived
from kinema_core.model.foreign import foreign_deletion
from kinema_core.model.pod_rules import (
    Facts,
    MobilityOptions,
    Verdict,
    facts_of,
    in_scope,
    judged_alike,
    judged_by_owner,
    listed,
    listed_by_key,
    outside,
    verdict_on,
)
from kinema_core.model.spot_share import may_be_spot
from kinema_core.model.strategy import asks_for_spot, strategy_of
from kinema_core.model.vocabulary import (
    CONTROL_PLANE,
    DO_NOT_DISRUPT,
    SCALE_DOWN_DISABLED,
    end_of_protection,
    forbids,
    protection,
)

__all__ = [
    "Judge",
    "Mobility",
    "MobilityOptions",
    "holding",
    "in_scope",
    "is_resident",
    "keeping",
    "listed",
    "listed_by_key",
    "mobility",
    "next_end_of_protection",
    "spot_allowed",
]

_DEFAULTS: Final = MobilityOptions()


@dataclass(frozen=True)
class Mobility:
    """Pods that may move and nodes that may go, by pod key and node name.

    `held`: bound pods that may not move, and pending pods that may not be placed because their rules are not
    modeled. `deletable`: every node, with the reason why it may not be deleted or None. `open_nodes`: nodes that may
    take pods. `strategy`: how each movable bound pod moves. Pods that go with their node and terminating ones appear
    nowhere.
    """

    held: Mapping[str, Held]
    deletable: Mapping[str, str | None]
    open_nodes: frozenset[str]
    strategy: Mapping[str, Strategy]


def mobility(cluster: Cluster, now: datetime, options: MobilityOptions = _DEFAULTS) -> Mobility:
    """Return what may move in this cluster at the time `now`; near-linear in pods, nodes and budgets.

    Asked again for the same cluster and options, it answers from memory for as long as no protection ends.
    """
    return Judge(cluster, now, options).all()


_Answer: TypeAlias = tuple[Verdict | None, Strategy]
"""What a pod's own rules say, and how it would move."""


@dataclass
class _Answers:
    """Answers of a judge, kept with the cluster. None refers to it: a cycle would keep every state in memory."""

    ended: int
    """How many protections had ended: all that the time decides."""
    judged: dict[str, _Answer] = field(default_factory=dict)
    """By key of the pod."""
    by_owner: dict[tuple[str, Owner], tuple[tuple[str, Pod], _Answer]] = field(default_factory=dict)
    """By namespace and owner: the first pod of it that was judged by its owner alone, with its key."""
    all: Mobility | None = None


@derived
def _known(_: Cluster) -> dict[MobilityOptions, _Answers]:
    """Holds the last answers by options."""
    return {}


@derived
def _ends_of_protections(cluster: Cluster) -> tuple[datetime, ...]:
    """Return when protections of pods and nodes end that last for a while, the first one first."""
    pods = ((pod.annotations.get(DO_NOT_DISRUPT), pod.started) for pod in cluster.pods)
    nodes = ((node.annotations.get(DO_NOT_DISRUPT), node.created) for node in cluster.nodes)
    found = (end_of_protection(value, start=start) for value, start in chain(pods, nodes) if value is not None)
    return tuple(sorted(end for end in found if end is not None))


def next_end_of_protection(cluster: Cluster, now: datetime) -> datetime | None:
    """Return when the next protection ends, and more may move although nothing else has changed; None: none ends."""
    ends = _ends_of_protections(cluster)
    return next(iter(ends[bisect_right(ends, now) :]), None)


class Judge:
    """What may move in a cluster, asked pod by pod and node by node: only what is asked is worked out.

    A second judge of the same cluster and options has the answers of the first, for as long as no protection ends.
    """

    def __init__(self, cluster: Cluster, now: datetime, options: MobilityOptions = _DEFAULTS) -> None:
        """See `mobility`."""
        self._cluster, self._now, self._options = cluster, now, options
        known, ended = _known(cluster), bisect_right(_ends_of_protections(cluster), now)
        if options not in known or known[options].ended != ended:
            known[options] = _Answers(ended)
        self._answers = known[options]

    @cached_property
    def _facts(self) -> Facts:
        return facts_of(self._cluster, self._now, self._options)

    @cached_property
    def open_nodes(self) -> frozenset[str]:
        """Nodes that may take pods."""
        return frozenset(node.name for node in self._cluster.nodes if _open(self._facts, node))

    def held(self, key: str) -> Held | None:
        """Return why a pod may not move, or may not be placed; None where it may, and for one that no plan lists."""
        pod = listed_by_key(self._cluster).get(key)
        return None if pod is None else _held(key, self._judge(key, pod)[0])

    def strategy(self, key: str) -> Strategy:
        """Return how a pod moves: `stay` where it may not, or has no node to leave."""
        pod = listed_by_key(self._cluster).get(key)
        if pod is None or pod.node is None:
            return "stay"
        verdict, way = self._judge(key, pod)
        return way if verdict is None else "stay"

    def why_kept(self, name: str) -> str | None:
        """Return why a node may not be deleted; None where it may, and for one that is not there."""
        node = self._cluster.node(name)
        if node is None:
            return None
        here = (self.held(pod.key) for pod in self._cluster.pods_by_node.get(name, ()))
        return _kept(self._facts, node) or next((_pinning(one) for one in here if one is not None), None)

    def all(self) -> Mobility:
        """Return the answers about all pods and nodes."""
        answers, cluster = self._answers, self._cluster
        if answers.all is None:
            held: dict[str, Held] = {}
            strategy: dict[str, Strategy] = {}
            for key, pod in listed_by_key(cluster).items():
                verdict, way = self._judge(key, pod)
                holds = _held(key, verdict)
                if holds is not None:
                    held[key] = holds
                elif pod.node is not None:
                    strategy[key] = way
            pins = _pins(cluster, held)
            deletable = {node.name: _kept(self._facts, node) or pins.get(node.name) for node in cluster.nodes}
            answers.all = Mobility(
                held=MappingProxyType(held),
                deletable=MappingProxyType(deletable),
                open_nodes=self.open_nodes,
                strategy=MappingProxyType(strategy),
            )
        return answers.all

    def _judge(self, key: str, pod: Pod) -> _Answer:
        """Return the answer about a listed pod."""
        found = self._answers.judged.get(key)
        if found is None:
            found = self._answers.judged[key] = self._judge_anew(key, pod)
        return found

    def _judge_anew(self, key: str, pod: Pod) -> _Answer:
        facts, by_owner, owner = self._facts, self._answers.by_owner, pod.owner
        first = None if owner is None else by_owner.get((pod.namespace, owner))
        # Most pods are like the first one of their owner: to compare takes less than to ask whether rules concern them.
        alike = first is not None and judged_alike(facts, first[0], (key, pod))
        shared = alike or judged_by_owner(facts, key, pod)
        if first is not None and shared:
            return first[1]
        found = verdict_on(facts, pod), strategy_of(facts.cluster, pod)
        if owner is not None and shared:
            by_owner[pod.namespace, owner] = (key, pod), found
        return found


def _held(key: str, verdict: Verdict | None) -> Held | None:
    return None if verdict is None else Held(pod=key, code=verdict[0], reason=verdict[1])


def holding(facts: Mobility, cluster: Cluster, more: Mapping[str, Held]) -> Mobility:
    """Return the same with `more` bound pods held, by key, and so with their nodes."""
    return replace(
        keeping(facts, _pins(cluster, more)),
        held=MappingProxyType({**facts.held, **more}),
        strategy=MappingProxyType({key: way for key, way in facts.strategy.items() if key not in more}),
    )


def keeping(facts: Mobility, nodes: Mapping[str, str]) -> Mobility:
    """Return the same with nodes that may not be deleted, by name and why."""
    deletable = {name: why or nodes.get(name) for name, why in facts.deletable.items()}
    return replace(facts, deletable=MappingProxyType(deletable)) if nodes else facts


def spot_allowed(
    cluster: Cluster,
    pod: Pod,
    *,
    taint_keys: frozenset[str] = frozenset(),
    options: MobilityOptions = _DEFAULTS,
) -> bool:
    """Return whether the pod may go to spot capacity where it is not yet; `taint_keys`: of the offer's own taints."""
    wanted = options.allow_spot or asks_for_spot(cluster, pod, taint_keys)
    return wanted and may_be_spot(cluster, pod, options)


def _pins(cluster: Cluster, held: Mapping[str, Held]) -> dict[str, str]:
    """Per node with held pods, which of them keeps it, and why."""
    pins: dict[str, str] = {}
    for key, item in held.items():
        node = cluster.pods_by_key[key].node
        if node is not None and node not in pins:
            pins[node] = _pinning(item)
    return pins


def _pinning(held: Held) -> str:
    return f"pod {held.pod} may not move: {held.code}"


def _kept(facts: Facts, node: Node) -> str | None:
    """Return the rule of the node's own by which it may not be deleted."""
    foreign_scope = outside(node, facts.options)
    if foreign_scope is not None:
        return foreign_scope
    if node.name in facts.quarantine.nodes:
        return f"{facts.quarantine.nodes[node.name]} could not be read"
    disabled = forbids(node.annotations, SCALE_DOWN_DISABLED)
    if disabled is not None:
        return disabled
    protected = protection(node.annotations.get(DO_NOT_DISRUPT), start=node.created, now=facts.now)
    if protected is not None:
        return protected
    if any(role in node.labels for role in CONTROL_PLANE):
        return "it is a control-plane node"
    foreign = foreign_deletion(node)
    return None if foreign is None else f"another autoscaler is about to delete it: taint {foreign}"


def _open(facts: Facts, node: Node) -> bool:
    """Return whether the node may take pods: in scope, Ready, not cordoned, all on it known, deleted by no other."""
    return (
        node.ready
        and not node.unschedulable
        and node.name not in facts.quarantine.nodes
        and in_scope(node.labels, facts.options)
        and foreign_deletion(node) is None
    )
