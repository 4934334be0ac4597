"""Which moves wait for which: those of a later wave for the earlier ones that make or take room where they go.

The states on the way were checked wave by wave. A surge for which only its planned node matters finds that node as it
was checked as soon as the earlier moves from it and to it have ended, whatever others have yet to do. One that is tied
to other nodes, as by rules between pods, waits until the whole earlier wave has ended.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter
from typing import NamedTuple

from kinema_core.events import Pod, PodTerm, Strategy
from kinema_core.model.cluster import Cluster
from kinema_core.model.derived import derived
from kinema_core.model.match import HOSTNAME
from kinema_core.model.neighbors import Scope, enforced, pod_index, required, spread_scope, term_scope
from kinema_rescheduler.plan.closing import Closing
from kinema_rescheduler.plan.context import ExecutionContext

_NONE, _SOME, _ALL = range(3)


class PendingMove(NamedTuple):
    """A move that has not ended."""

    pod: Pod
    """As it is before its move."""
    wave: int
    to: str
    """Planned node, or the next stop; empty for a pod that the plan does not know."""
    strategy: Strategy


class Order:
    """The moves that have not ended, and which of them may begin."""

    def __init__(self, ctx: ExecutionContext, pending: Iterable[PendingMove], *, under_way: Iterable[int] = ()) -> None:
        """`under_way`: waves of moves whose pods may be gone already."""
        self._cluster = ctx.cluster
        pending = list(pending)
        self._by_wave = not ctx.route.straight or any(move.strategy == "rolling" for move in pending)
        """Whether waves are kept to strictly: where pods make stops, and kube-scheduler chooses where some go."""
        self._first: dict[str, int] = {}
        """By node: the first wave in which a pod leaves it or comes to it."""
        self._awaited: dict[str, int] = {}
        """By node: the last wave in which a pod comes to it."""
        self._leaving: dict[str, list[PendingMove]] = {}
        waves = [*under_way]
        for move in pending:
            source = move.pod.node or ""
            waves.append(move.wave)
            for name in (source, move.to):
                self._first[name] = min(move.wave, self._first.get(name, move.wave))
            self._awaited[move.to] = max(move.wave, self._awaited.get(move.to, move.wave))
            self._leaving.setdefault(source, []).append(move)
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
        return move.pod.key not in tied(self._cluster)

    def others_wait(self, move: PendingMove) -> bool:
        """Return whether a move of a later wave waits for the room that this one leaves."""
        return self._awaited.get(move.pod.node or "", move.wave) > move.wave

    def closable(self, closings: Iterable[Closing]) -> list[Closing]:
        """Return those of these nodes that may be closed: first where all pods may leave, then where some may."""
        return [one for hold, one in self._by_hold(closings) if hold < _ALL]

    def next_to_close(self, closings: Iterable[Closing]) -> list[Closing]:
        """Return these nodes as they are to be closed: after those that may be, the ones where no pod may leave yet."""
        return [one for _, one in self._by_hold(closings)]

    def _by_hold(self, closings: Iterable[Closing]) -> list[tuple[int, Closing]]:
        return sorted(((self._hold(one), one) for one in closings), key=itemgetter(0))

    def _hold(self, one: Closing) -> int:
        """Return how many pods that are to leave a node may not yet: none, some or all."""
        moves = self._leaving.get(one.node, ())
        free = sum(map(self.may_begin, moves))
        if free == len(moves):
            return _NONE
        return _SOME if free else _ALL


@derived
def tied(cluster: Cluster) -> frozenset[str]:
    """Return the keys of pods that are tied to pods on other nodes, and of those that others are tied to.

    By a volume, which only one node may have, or by a rule between pods; anti-affinity on one node does not count.
    """
    found: set[str] = set()
    scopes: set[Scope] = set()
    for pod in cluster.pods:
        reached = _reached(cluster, pod)
        if pod.rules.claims or reached:
            found.add(pod.key)
            scopes |= reached
    for scope in scopes:
        found.update(pod.key for pod in pod_index(cluster).select(scope))
    return frozenset(found)


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
