"""Which moves wait for which: those of a later wave for the earlier ones that make or take room where they go.

The states on the way were checked wave by wave. A surge for which only its planned node matters finds that node as it
was checked as soon as the earlier moves from it and to it have ended, and the pods that left it are gone, whatever
others have yet to do. One that is tied to other nodes, as by rules between pods, waits until earlier waves have ended.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from functools import cached_property
from operator import itemgetter
from typing import NamedTuple

from kinema_core.events import Pod, PodTerm, Strategy
from kinema_core.model.cluster import Cluster
from kinema_core.model.derived import derived
from kinema_core.model.match import HOSTNAME
from kinema_core.model.neighbors import Scope, enforced, required, selects, spread_scope, term_scope
from kinema_rescheduler.plan.closing import Closing
from kinema_rescheduler.plan.context import ExecutionContext


class PendingMove(NamedTuple):
    """A move that has not begun, or whose pod has not left yet."""

    pod: Pod
    wave: int
    to: str
    """Planned node, or the next stop; empty where the plan names none."""
    strategy: Strategy


class MoveUnderWay(NamedTuple):
    """A move that has begun; its pods may have left already."""

    wave: int
    nodes: frozenset[str]
    """Nodes that pods leave or come to."""


class _Leaving(IntEnum):
    """Which of the pods that are to leave a node may leave by now."""

    ALL = 0
    SOME = 1
    NONE = 2


class MoveOrder:
    """The moves that have not ended, and which of them may begin."""

    def __init__(
        self, ctx: ExecutionContext, pending: Iterable[PendingMove], under_way: Iterable[MoveUnderWay] = ()
    ) -> None:
        """`pending`: those under way, too, as long as their pods are there."""
        pending, under_way = list(pending), list(under_way)
        self._ctx = ctx
        self._by_wave = not ctx.route.straight or any(move.strategy == "rolling" for move in pending)
        """Whether waves are kept to strictly: where pods make stops, and kube-scheduler chooses where some go."""
        self._first: dict[str, int] = {}
        """By node: the first wave in which a pod leaves it or comes to it."""
        self._awaited: dict[str, int] = {}
        """By node: the last wave in which a pod comes to it."""
        self._leaving: dict[str, list[PendingMove]] = {}
        for move in pending:
            self._awaited[move.to] = max(move.wave, self._awaited.get(move.to, move.wave))
            self._leaving.setdefault(move.pod.node or "", []).append(move)
        touched = [(move.wave, (move.pod.node or "", move.to)) for move in pending]
        for wave, nodes in (*touched, *under_way):
            for name in nodes:
                self._first[name] = min(wave, self._first.get(name, wave))
        waves = [wave for wave, _ in (*touched, *under_way)]
        self.wave = min(waves, default=ctx.route.end)
        """The first wave of which a move has not ended."""
        self.mixed = max(waves, default=self.wave) > self.wave
        """Whether moves of later waves are left, too."""

    def may_begin(self, move: PendingMove) -> bool:
        """Return whether all has ended that the move waits for."""
        if move.wave <= self.wave:
            return True
        if self._by_wave or move.strategy != "surge" or not move.to or self._first[move.to] < move.wave:
            return False
        if any(pod.terminating for pod in self._ctx.evictable.get(move.to, ())):
            return False
        return not is_tied(self._ctx.cluster, move.pod)

    def others_wait(self, move: PendingMove) -> bool:
        """Return whether a move of a later wave waits for the room that this one leaves."""
        return self._awaited.get(move.pod.node or "", move.wave) > move.wave

    @cached_property
    def next_to_close(self) -> tuple[Closing, ...]:
        """Return the nodes that have yet to be closed, in order.

        First those that all pods may leave, then those that some may, and last those that none may leave yet.
        """
        return tuple(one for _, one in self._by_turn)

    @cached_property
    def closable(self) -> tuple[Closing, ...]:
        """Return those that may be closed now: that some pod may leave, or that none has to."""
        return tuple(one for leaving, one in self._by_turn if leaving < _Leaving.NONE)

    @cached_property
    def _by_turn(self) -> list[tuple[_Leaving, Closing]]:
        return sorted(((self._leave(one), one) for one in self._ctx.to_close), key=itemgetter(0))

    def _leave(self, one: Closing) -> _Leaving:
        moves = self._leaving.get(one.node, ())
        free = sum(map(self.may_begin, moves))
        if free == len(moves):
            return _Leaving.ALL
        return _Leaving.SOME if free else _Leaving.NONE


def is_tied(cluster: Cluster, pod: Pod) -> bool:
    """Return whether the pod is tied to pods on other nodes, or one of them to it.

    By a volume, which only one node may have, or by a rule between pods; anti-affinity on one node does not count.
    """
    return bool(pod.rules.claims or _reached(cluster, pod)) or any(selects(scope, pod) for scope in _scopes(cluster))


@derived
def _scopes(cluster: Cluster) -> frozenset[Scope]:
    """Return the scopes of all rules that reach pods on other nodes."""
    return frozenset(scope for pod in cluster.pods for scope in _reached(cluster, pod))


def _reached(cluster: Cluster, pod: Pod) -> frozenset[Scope]:
    """Return the scopes of the pod's rules that reach pods on other nodes."""
    rules = pod.rules
    if not (rules.affinity or rules.anti_affinity or rules.spread):  # most pods
        return frozenset()
    terms = (term for term in required(rules.anti_affinity) if not _is_within_node(cluster, term))
    scopes = {term_scope(cluster, pod, term) for term in (*terms, *required(rules.affinity))}
    return frozenset(scopes | {spread_scope(pod, spread) for spread in enforced(rules.spread)})


def _is_within_node(cluster: Cluster, term: PodTerm) -> bool:
    """Return whether the term is about pods on one node only."""
    return term.topology_key == HOSTNAME and _hostnames_differ(cluster)


@derived
def _hostnames_differ(cluster: Cluster) -> bool:
    names = [node.labels[HOSTNAME] for node in cluster.nodes if HOSTNAME in node.labels]
    return len(set(names)) == len(names)
