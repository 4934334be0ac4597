"""The state of affairs between two waves, and how one wave of moves changes it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from kinema_core.events import Amounts, PlanStep
from kinema_core.model.cluster import Cluster
from kinema_core.model.rolling import why_stuck
from kinema_core.model.sequencing.budgets import Budgets
from kinema_core.model.sequencing.capacity import Capacity, NodeSpec
from kinema_core.model.sequencing.exclusive import ExclusiveResources
from kinema_core.model.sequencing.movers import Mover
from kinema_core.model.sequencing.rules import PodRules, Refusal

ROOM: Final = "room"
BUDGETS: Final = "disruption budgets"
ROLLOUT: Final = "rolling updates"


class WaveBuilder:
    """Pods that wait for nodes, pods on nodes, and the moves that were begun so far.

    Room within a wave is counted cautiously: a pod that leaves keeps its room until the wave has ended.
    """

    def __init__(
        self, cluster: Cluster, movers: list[Mover], capacity: Capacity, *, emptied: Mapping[str, int], budgets: Budgets
    ) -> None:
        """`emptied`: how many pods have to leave each node that is deleted as soon as they have."""
        self.capacity = capacity
        self._cluster = cluster
        self.wave = 1
        self.steps: list[PlanStep] = []
        self.where: dict[str, str | None] = {mover.key: mover.source for mover in movers}
        self.waiting: dict[str, list[Mover]] = {}
        """By the node that they are planned for; a pod that helps others by leaving comes first."""
        self.rolls: dict[str, list[Mover]] = {}
        """By workload: all of its pods, which are replaced together."""
        self._left = dict(emptied)
        self._begun: list[tuple[Mover, str]] = []
        self._moving: set[str] = set()
        self.refusal: Refusal | None = None
        """The rule that was against the move that was tried last; None when there was another reason, or none."""
        self.obstacle = ""
        """Kind of what was against that move."""
        self._refused: dict[str, Refusal] = {}
        """By pod: the rule that was against going where the plan wants it."""
        self._watched: set[str] = set()
        """Nodes that a pod waits for because of a rule, and not for room."""
        self._rules = PodRules(cluster, movers, list(capacity.specs.values()))
        for _ in (0, 1):  # no pod is on these: they are gone when the first pod moves
            self._delete_empty()
        self._shared = ExclusiveResources(cluster, movers)
        self._floors = budgets
        for mover in movers:
            books, key = (self.rolls, mover.workload) if mover.strategy == "rolling" else (self.waiting, mover.to)
            books.setdefault(key, []).append(mover)
        self._sort()
        self._fresh = set(self.waiting)
        """Nodes that have got room since a pod asked for it."""

    def _sort(self) -> None:
        """Begin, where not all fit at once, with pods that make room there, then those that empty a node to delete."""
        narrow = {to for to, movers in self.waiting.items() if not self._holds_all(to, movers)}
        for to in narrow:
            self.waiting[to].sort(key=lambda mover: (mover.source not in narrow, self._rank(mover), mover.key))

    def _rank(self, mover: Mover) -> int:
        if mover.source is None:
            return 2
        return 1 if mover.source in self.capacity.specs else 0

    def _holds_all(self, to: str, movers: Iterable[Mover]) -> bool:
        wanted: dict[str, int] = {}
        for mover in movers:
            for resource, amount in mover.takes.items():
                wanted[resource] = wanted.get(resource, 0) + amount
        return self.capacity.fits(to, Amounts(wanted))

    @property
    def over(self) -> bool:
        """Return whether no pod waits any more."""
        return not self.waiting and not self.rolls

    def obstacles(self) -> dict[str, str]:
        """Return the pods that wait, by key, each with the kind of what is against its move; no wave comes after."""
        found = {mover.key: ROLLOUT for movers in self.rolls.values() for mover in movers}
        for mover in (mover for movers in self.waiting.values() for mover in movers):
            self.obstacle = ""
            self.try_move(mover, mover.to)
            found[mover.key] = self.obstacle
        return dict(sorted(found.items()))

    def leavers(self) -> dict[str, list[Mover]]:
        """Return pods that wait and move by themselves, by the node that they are on now; by key."""
        found: dict[str, list[Mover]] = {}
        for movers in self.waiting.values():
            for mover in movers:
                if mover.steered:
                    found.setdefault(self.where[mover.key] or "", []).append(mover)
        return {name: sorted(found[name], key=lambda mover: mover.key) for name in sorted(found)}

    @property
    def thinning(self) -> set[str]:
        """Return the nodes that a pod leaves in this wave."""
        return {self.where[mover.key] or "" for mover, _ in self._begun}

    # --- one wave

    def try_move(self, mover: Mover, to: str) -> bool:
        """Let the pod go to the node in this wave, if there is room and no rule is against it; one move in a wave."""
        source = self.where[mover.key]
        self.refusal = None
        if mover.key in self._moving:
            return False
        if not self.capacity.fits(to, mover.takes):
            self.obstacle = ROOM
            return False
        if not self._floors.bears(mover):
            self.obstacle = BUDGETS
            return False
        begun = self._rules.begun
        if not self._rules.begin(mover, source, to):
            self.refusal, self.obstacle = self._rules.refusal(), self._rules.broken
            return False
        if not self._shared.begin(mover, source, to):
            self.obstacle = self._shared.taken
            self._rules.rewind(begun)
            return False
        self._floors.begin(mover)
        self.capacity.take(to, mover.takes)
        self._begun.append((mover, to))
        self._moving.add(mover.key)
        return True

    def go(self) -> bool:
        """Move every pod that can go where the plan wants it; return whether one could.

        Who made a stop because a rule was against all goes after those who can come now because it is away.
        """
        asked = sorted(self._fresh | self._watched)
        gone: set[str] = set()
        for at_stop in (False, True):
            for to in asked:
                those = (m for m in self.waiting.get(to, ()) if (self.where[m.key] != m.source) == at_stop)
                gone.update(mover.key for mover in those if self._goes(mover))
        for to in asked:
            left = [mover for mover in self.waiting.get(to, ()) if mover.key not in gone]
            if any(self.capacity.fits(to, mover.takes) for mover in left):
                self._watched.add(to)
            else:
                self._watched.discard(to)
            if left:
                self.waiting[to] = left
            else:
                self.waiting.pop(to, None)
        self._fresh.clear()
        return bool(self._begun)

    def go_alone(self, key: str) -> bool:
        """Move this pod alone in the wave, which ends then, and in the next ones delete what it leaves empty."""
        mover = next(mover for movers in self.waiting.values() for mover in movers if mover.key == key)
        if not self.try_move(mover, mover.to):
            return False
        self.waiting[mover.to].remove(mover)
        if not self.waiting[mover.to]:
            del self.waiting[mover.to]
        self.end_wave()
        while self.clearing:
            self.end_wave()
        return True

    def _goes(self, mover: Mover) -> bool:
        """Let the pod go to its place; who is kept off by a rule is asked again when that counts something else."""
        before = self._refused.get(mover.key)
        if before is not None and self._rules.stands(before):
            return False
        if self.try_move(mover, mover.to):
            return True
        if self.refusal is not None:
            self._refused[mover.key] = self.refusal
        return False

    def roll(self) -> bool:
        """Replace whole workloads, those that can be; True when one could."""
        for workload in sorted(self.rolls):
            begun, rules, shared = len(self._begun), self._rules.begun, self._shared.begun
            movers = self.rolls[workload]
            if not self._gets_through(movers):
                continue
            if all(self.try_move(mover, mover.to) for mover in movers):
                del self.rolls[workload]
                continue
            for mover, to in self._begun[begun:]:
                self.capacity.give(to, mover.takes)
                self._moving.discard(mover.key)
            del self._begun[begun:]
            self._rules.rewind(rules)
            self._shared.rewind(shared)
        return bool(self._begun)

    def _gets_through(self, movers: list[Mover]) -> bool:
        """Return whether rules among the workload's own pods let all of it be rolled, whatever kube-scheduler does.

        New requests cannot be taken out of a plan: the rescheduler asks the same, and leaves them alone then.
        """
        pod, requests = movers[0].pod, movers[0].requests
        if requests != pod.requests:
            return True

        def room(name: str) -> int:
            return self.capacity.times(name, requests, len(movers)) if self.capacity.admits(name, pod) else 0

        copies = [mover.pod for mover in movers]
        return why_stuck(self._cluster, copies, tuple(self.capacity.specs.values()), room) is None

    def end_wave(self) -> None:
        """Old copies are gone, and what they held is free."""
        for mover, to in self._begun:
            source = self.where[mover.key]
            if source is not None:
                self.capacity.give(source, mover.leaves if source == mover.source else mover.takes)
                self._fresh.add(source)
            if source in self._left:
                self._left[source] -= 1
            self.where[mover.key] = to
            self.steps.append(PlanStep(wave=self.wave, action="move", node=to, pod=mover.key))
        self._begun.clear()
        self._moving.clear()
        for books in (self._rules, self._shared, self._floors):
            books.settle()
        self._delete_empty()
        self.wave += 1

    def _delete_empty(self) -> None:
        gone = [name for name, pods in self._left.items() if not pods]
        for name in gone:
            del self._left[name]
        self._rules.vanish(gone)

    @property
    def clearing(self) -> bool:
        """Return whether a node is being deleted that is an empty domain as long as it is there."""
        return self._rules.clearing

    def welcome(self, spec: NodeSpec) -> bool:
        """Add a node for a while, if it can be now.

        Where it changes what a rule counts, it is booted in a wave without moves.
        """
        if not self._rules.add(spec):
            return True
        if self._begun:
            self._rules.drop(spec)
            return False
        self.wave += 1
        return True

    def dismiss(self, spec: NodeSpec) -> None:
        """Remove the node that was added last."""
        self._rules.drop(spec)
