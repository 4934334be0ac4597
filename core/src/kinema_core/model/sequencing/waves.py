"""The way from the cluster as it is to a plan, in waves that are safe whatever the order of moves within them.

Wave 0 boots the plan's nodes and deletes empty ones. From then on every pod goes where the plan wants it
in the first wave in which

- its node holds all pods that are there at the wave's beginning and all that come in it, so that no move of a
  wave waits for another one; a pod that is evicted is counted like one that is not, since others may come or go first,
- rules between pods let it: kube-scheduler would take the new copy in every order of the wave's moves, and pods that
  stay keep the company that they require, unless they have none before or after the plan either; who is evicted and
  comes back to the domain has not left it,
- it can have its host ports and volumes: the old copy has to have released them,
- the disruption budgets bear one more workload that has a pod away.

A workload that is rolled goes in one wave, with all old and all new copies counted; where its pods run on with other
requests, what they request more is counted. A node is deleted in the first wave after the last pod has left it. Where
all pods wait, some make a stop: on a node with free room, else on a temporary node, the cheapest that holds one of
those who wait, booted one wave before.

Where that happens, a second attempt lets those who would wait in the end make way from the beginning; the better one
is taken. Where few pods move and neither finds a way, all sequences of single moves are searched (`_in_sequence`). When
all moves go into free room, this takes one wave, and time O(n log n) in pods.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import msgspec

from kinema_core.events import Offer, Plan, PlanNode, PlanStep
from kinema_core.model.cluster import Cluster
from kinema_core.model.mobility import MobilityOptions, mobility
from kinema_core.model.sequencing.budgets import Budgets
from kinema_core.model.sequencing.capacity import Capacity
from kinema_core.model.sequencing.movers import Mover, emptied, movers_of
from kinema_core.model.sequencing.staging import IntermediateStops
from kinema_core.model.sequencing.wave_builder import WaveBuilder

_DEFAULTS: Final = MobilityOptions()
_KNOT: Final = 8
"""Most pods that move for which all sequences of their moves are searched, where waves find no way."""
_MOST_SEQUENCES: Final = 400
_RANK: Final = {"boot": 0, "delete": 1, "move": 2}


@dataclass(frozen=True)
class Transition:
    """The steps of a plan and the nodes that it needs for a while."""

    steps: tuple[PlanStep, ...]
    """Sorted by wave, action, node and pod."""
    temporary: tuple[PlanNode, ...]
    """Each is booted in the wave before its first pod comes, and deleted in the wave after its last one has left."""
    stuck: tuple[str, ...] = ()
    """Keys of pods for which no way was found, sorted; steps and temporary nodes are empty then."""
    obstacles: Mapping[str, str] = field(default_factory=dict)
    """By these keys: the kind of what is against the move in the end; empty where none is known."""

    @property
    def waves(self) -> int:
        """Return how many waves there are."""
        return self.steps[-1].wave + 1 if self.steps else 0


def order_transition(
    plan: Plan,
    cluster: Cluster,
    offers: Iterable[Offer],
    *,
    now: datetime,
    options: MobilityOptions = _DEFAULTS,
    over: Callable[[], bool] = lambda: False,
) -> Transition:
    """Waves for a plan that is valid for exactly this cluster; see the module for what they keep.

    Args:
        plan: nodes and placements; steps that it already has are not looked at.
        cluster: the state that it was made for.
        offers: machines on sale, for temporary nodes.
        now: the cluster's time; which nodes take pods depends on it.
        options: as the plan was made with.
        over: whether the time is over, asked in every wave; then every pod that is not in place is stuck.
    """
    sold, facts = tuple(offers), mobility(cluster, now, options)
    movers = movers_of(plan, cluster, options)
    left = emptied(plan, cluster, movers)
    unplaced = frozenset(item.pod for item in plan.unplaced)

    def begun() -> WaveBuilder:
        capacity = Capacity(plan, cluster, sold, facts, options)
        return WaveBuilder(cluster, movers, capacity, emptied=left, budgets=Budgets(cluster, unplaced))

    def finished(builder: WaveBuilder) -> Transition:
        steps = [*builder.steps, *_boots(plan, builder.capacity, builder.steps)]
        steps += _deletes(left, movers, builder.steps)
        steps.sort(key=lambda step: (step.wave, _RANK[step.action], step.node, step.pod))
        return Transition(tuple(steps), tuple(builder.capacity.temporary))

    def attempt(hopeless: Collection[str]) -> tuple[Transition, tuple[str, ...]]:
        builder = begun()
        stalled, left_over = _run(builder, IntermediateStops(builder, movers, hopeless), over)
        if left_over:
            return Transition((), (), stuck=tuple(left_over), obstacles=left_over), stalled
        return finished(builder), stalled

    found, stalled = attempt(())
    if found.stuck and len(movers) <= _KNOT and not over():
        untied = _in_sequence(begun, over)
        return found if untied is None else finished(untied)
    if found.stuck or not stalled or over():
        return found
    # Pods that were left when none could go on would have been left anyway: let them make way from the beginning.
    sooner, _ = attempt(frozenset(stalled))
    return min(found, sooner, key=_effort)


def _run(
    builder: WaveBuilder, stops: IntermediateStops, over: Callable[[], bool]
) -> tuple[tuple[str, ...], Mapping[str, str]]:
    """Move until all pods are in place or none can.

    Return the pods that waited when none could for the first time, and those that wait in the end, each with the kind
    of what is against its move; with none where the time was over.
    """
    stalled: tuple[str, ...] = ()
    while not builder.over and not over():
        moved = builder.go()
        if moved:
            stops.foresee()
        elif not builder.roll() and not builder.clearing:
            stalled = stalled or _waiting(builder)
            if not stops.take():
                return stalled, builder.obstacles()
        builder.end_wave()
    return stalled, dict.fromkeys(_waiting(builder), "")


def _in_sequence(begun: Callable[[], WaveBuilder], over: Callable[[], bool]) -> WaveBuilder | None:
    """Return a builder in which all pods have moved, one in each wave and straight; None where no sequence is found.

    All sequences are searched: which pods have moved says what is allowed next, however they came to be moved.
    """
    known, branches = set[frozenset[str]](), [tuple[str, ...]()]
    for _ in range(_MOST_SEQUENCES):
        if not branches or over():
            break
        sequence = branches.pop()
        builder = begun()
        if builder.rolls or not all(builder.go_alone(key) for key in sequence) or frozenset(sequence) in known:
            continue
        if builder.over:
            return builder
        known.add(frozenset(sequence))
        branches += [(*sequence, key) for key in reversed(_waiting(builder))]
    return None


def _effort(transition: Transition) -> tuple[bool, int, int, int]:
    """Return what is avoided: no order at all, nodes to rent, pods to disturb, and time."""
    return bool(transition.stuck), len(transition.temporary), len(transition.steps), transition.waves


def with_steps(plan: Plan, transition: Transition) -> Plan:
    """Return the plan with its steps."""
    return msgspec.structs.replace(plan, steps=transition.steps, temporary=transition.temporary)


def _waiting(builder: WaveBuilder) -> tuple[str, ...]:
    groups = (*builder.waiting.values(), *builder.rolls.values())
    return tuple(sorted(mover.key for movers in groups for mover in movers))


def _boots(plan: Plan, capacity: Capacity, moves: list[PlanStep]) -> list[PlanStep]:
    """Boots and the deletions of temporary nodes."""
    steps = [PlanStep(wave=0, action="boot", node=node.name) for node in plan.nodes if node.action == "boot"]
    rented = {node.name for node in capacity.temporary}
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    where: dict[str, str] = {}
    for step in moves:
        left = where.get(step.pod, "")
        if left in rented:
            last[left] = step.wave
        if step.node in rented:
            first.setdefault(step.node, step.wave)
        where[step.pod] = step.node
    for name, wave in first.items():
        steps.append(PlanStep(wave=wave - 1, action="boot", node=name))
        steps.append(PlanStep(wave=last[name] + 1, action="delete", node=name))
    return steps


def _deletes(emptied: Iterable[str], movers: Iterable[Mover], moves: Iterable[PlanStep]) -> Iterator[PlanStep]:
    """Nodes go in the wave after their last pod has."""
    left: dict[str, int] = {}
    for step in moves:
        left.setdefault(step.pod, step.wave)  # a stop is never on a node that goes: the first move is what empties it
    last: dict[str, int] = {}
    for mover in movers:
        last[mover.source or ""] = max(last.get(mover.source or "", 0), left[mover.key] + 1)
    for name in emptied:
        yield PlanStep(wave=last.get(name, 0), action="delete", node=name)
