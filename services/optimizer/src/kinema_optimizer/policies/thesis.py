"""The thesis as a policy: its literal model, and rolling updates for every workload that moves.

Source: the Kinema thesis, equations 5.1 to 5.7 and section 5.3.5. A reschedule iteration may put every pod anywhere; an
autoscale iteration leaves the second term of the objective out and only adds nodes for pending pods. The model knows no
rules between pods: a plan that breaks one is refused where every plan is checked.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from types import MappingProxyType

import msgspec

from kinema_core.events import FrozenMap, Mode, Solve, Workload
from kinema_core.model.cluster import Cluster
from kinema_core.model.vocabulary import STRATEGY
from kinema_optimizer.exact.thesis_model import Filled, LiteralResult, solve_literal
from kinema_optimizer.planning.task import with_unplaceable
from kinema_optimizer.policies.policy import Outcome, Tick
from kinema_optimizer.policies.proposal import Step, proposal
from kinema_optimizer.policies.world import NOWHERE, World
from kinema_optimizer.problem.compile import Compiled, compiled
from kinema_optimizer.problem.question import Question
from kinema_optimizer.solvers.stopping import ClockStop

_SECONDS = 10.0
"""Time limit of a solve, where the tick sets none."""


@dataclass(frozen=True)
class Thesis:
    """Its settings."""

    name: str = "thesis"
    period_seconds: float = 60.0

    def tick(self, tick: Tick) -> Outcome:
        """Return the model's optimum, or nothing where it has found none in time."""
        stop = tick.stop or ClockStop(_SECONDS)
        cluster = rolling(tick.cluster)
        world = World(cluster, tick.offers, tick.now, tick.options)
        adding = bool(world.waiting())
        mode: Mode = "autoscale" if adding else "reschedule"
        question = Question(cluster, tick.offers, tick.now, mode, options=tick.options)
        problem = compiled(with_unplaceable(question))
        found = solve_literal(problem.problem if adding else problem.unbound, stop, size_term=not adding)
        recorded = stop.recorded
        solve = Solve(
            seconds=0.0 if recorded is None else recorded.seconds,
            first_feasible_seconds=None,
            method=f"policy {self.name}",
            seed=0,
            stops=(found.stop,),
        )
        # The model does not care whether a node is the one that is there or its like: what saves nothing is left.
        better = found.cost is not None and (adding or found.cost < world.cost)
        steps = _applied(world, problem, found) if better else []
        return Outcome(proposal(world, steps, name=self.name, solve=solve))


def rolling(cluster: Cluster) -> Cluster:
    """Return the cluster with every Deployment asking for rolling updates."""
    workloads = {
        workload.key: msgspec.structs.replace(
            workload, annotations=FrozenMap({**workload.annotations, STRATEGY: "rolling"})
        )
        if workload.type == "Deployment"
        else workload
        for workload in cluster.workloads
    }
    return replace(cluster, objects=MappingProxyType({**cluster.objects, Workload.__name__: workloads}))


def _applied(world: World, problem: Compiled, found: LiteralResult) -> list[Step]:
    """Put the world into the state of the solution; pods of one class stay where they are as far as that is in it."""
    cluster = world.cluster
    kept = {one.existing for one in found.filled}
    names = {one.existing: cluster.nodes[one.existing].name for one in found.filled if one.existing is not None}
    bought = {
        number: world.buy(_offer(world, problem, one), "thesis")
        for number, one in enumerate(found.filled)
        if one.machine is not None
    }
    where = {site.name: index for index, site in enumerate(world.sites)}
    moves: dict[str, int] = {}
    for c, members in enumerate(problem.classes):
        movers = [*members.pending, *members.rolled, *members.updated, *members.stays]
        here: dict[str, list[str]] = defaultdict(list)
        for mover in movers:
            here[mover.pod.node or ""].append(mover.pod.key)
        seats: list[int] = []
        for number, one in enumerate(found.filled):
            name = names.get(one.existing, "") if one.existing is not None else ""
            left = one.counts[c]
            while name and left and here[name]:
                moves[here[name].pop(0)] = where[name]
                left -= 1
            seats += [where[name] if name else bought[number]] * left
        rest = sorted(key for keys in here.values() for key in keys)
        moves |= dict(zip(rest, seats, strict=False))
    moved = [key for key, index in sorted(moves.items()) if world.where[key] != index]
    running = sum(world.where[key] != NOWHERE for key in moved)
    for key in moved:
        world.place(key, moves[key])
    gone = [where[node.name] for e, node in enumerate(cluster.nodes) if e not in kept]
    gone = [index for index in gone if not world.sites[index].pods]
    for index in gone:
        world.remove(index)
    if not moved and not gone and not bought:
        return []
    come = tuple(world.sites[index].name for index in bought.values())
    return [Step("reschedule", tuple(world.sites[index].name for index in gone), come, evictions=running)]


def _offer(world: World, problem: Compiled, one: Filled) -> int:
    """Return the index of the offer that the machine stands for: the first of those that are alike."""
    assert one.machine is not None
    alike = {offer.name for offer in problem.offers[one.machine]}
    return next(index for index, offer in enumerate(world.offers) if offer.name in alike and world.left(index) != 0)
