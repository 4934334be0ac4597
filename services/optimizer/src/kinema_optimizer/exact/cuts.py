"""An exact instance without moves for which no order was found.

The exact model looks at the state after a plan. On the way there a pod that surges has two copies, and a rule may keep
the new one from where it should go while the old one is still there. Where such pods have a topology spread over
nodes, these spreads are asked to hold with all copies there, old and new: then new ones can come in turn, wherever
there are fewest. What has no order even so, or for another reason, is taken out move by move. The problem is solved
again each time; what was a lower bound remains one, as there are only fewer plans.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from kinema_optimizer.exact.model import (
    ExactAffinity,
    ExactAntiAffinity,
    ExactClass,
    ExactInstance,
    ExactPreference,
    ExactSpread,
    PodCount,
)


def hold_spreads_in_transit(problem: ExactInstance, stuck: Iterable[str]) -> ExactInstance | None:
    """The problem in which spreads over nodes hold on the way; None where they do already, or no stuck pod has one."""
    spread = frozenset[int]().union(*(rule.owners for rule in problem.spreads if rule.doubles))
    waiting = {key for kind in spread for key in problem.kinds[kind].pods}
    return None if problem.doubled or waiting.isdisjoint(stuck) else replace(problem, doubled=True)


def forbid_moves(
    problem: ExactInstance,
    stuck: Iterable[str],
    *,
    assignment: Mapping[str, str | None],
    boots: Mapping[str, tuple[str, ...]],
) -> ExactInstance:
    """The problem in which none of these pods, nor one like it on the same node, may go where it was sent.

    Args:
        problem: what was solved.
        stuck: keys of the pods.
        assignment: where the solution sent every pod: a live node's or a new node's name.
        boots: the offers of every new node.
    """
    for key in sorted(stuck):
        to = assignment.get(key)
        index = next((number for number, kind in enumerate(problem.kinds) if key in kind.pods), None)
        if to is not None and index is not None:
            problem = _without(problem, index, key, to=to, offers=boots.get(to, ()))
    return problem


def _without(problem: ExactInstance, index: int, key: str, *, to: str, offers: tuple[str, ...]) -> ExactInstance:
    kind = problem.kinds[index]
    machines = frozenset(m for m, machine in enumerate(problem.machines) if machine.offers == offers)
    nodes = frozenset(e for e, place in enumerate(problem.places) if place.name == to)
    like = [pod for pod in kind.pods if _home(kind, pod) == _home(kind, key)]
    fewer = replace(_part(kind, like), nodes=kind.nodes - nodes, machines=kind.machines - machines)
    rest = [pod for pod in kind.pods if pod not in like]
    if not rest:
        return replace(problem, kinds=(*problem.kinds[:index], fewer, *problem.kinds[index + 1 :]))
    twin = len(problem.kinds)
    return replace(
        problem,
        kinds=(*problem.kinds[:index], _part(kind, rest), *problem.kinds[index + 1 :], fewer),
        affinities=tuple(_split_affinity(rule, index, twin) for rule in problem.affinities),
        anti_affinities=tuple(_split_anti_affinity(rule, index, twin) for rule in problem.anti_affinities),
        spreads=tuple(_split_topology_spread(rule, index, twin) for rule in problem.spreads),
        preferences=tuple(_preference(rule, index, twin) for rule in problem.preferences),
    )


def _home(kind: ExactClass, pod: str) -> int | None:
    return kind.homes[kind.pods.index(pod)] if kind.homes else None


def _part(kind: ExactClass, pods: list[str]) -> ExactClass:
    """Some pods of a kind."""
    homes = tuple(kind.homes[kind.pods.index(pod)] for pod in pods) if kind.homes else ()
    return replace(kind, pods=tuple(pods), homes=homes)


def _census(census: PodCount, index: int, twin: int) -> PodCount:
    return replace(census, kinds=_joined(census.kinds, index, twin))


def _joined(kinds: frozenset[int], index: int, twin: int) -> frozenset[int]:
    return kinds | {twin} if index in kinds else kinds


def _split_affinity(rule: ExactAffinity, index: int, twin: int) -> ExactAffinity:
    more = tuple((twin, homes) for kind, homes in rule.owners if kind == index)
    return replace(rule, census=_census(rule.census, index, twin), owners=(*rule.owners, *more))


def _split_anti_affinity(rule: ExactAntiAffinity, index: int, twin: int) -> ExactAntiAffinity:
    return replace(rule, census=_census(rule.census, index, twin), owners=_joined(rule.owners, index, twin))


def _split_topology_spread(rule: ExactSpread, index: int, twin: int) -> ExactSpread:
    return replace(rule, census=_census(rule.census, index, twin), owners=_joined(rule.owners, index, twin))


def _preference(rule: ExactPreference, index: int, twin: int) -> ExactPreference:
    return replace(rule, census=_census(rule.census, index, twin), owners=_joined(rule.owners, index, twin))
