"""Pods that leave their node together or not at all: those that ask for company there, and that company.

A required affinity whose domains are nodes lets a pod in only where somebody is whom it asks for. Pods can follow such
company: whoever asks for nobody goes first, or to a node where company stays, and the others come in later waves, each
when those are there whom it asks for. So a group goes anywhere like one pod that requests what all of them do.

Where each of them asks for another, as replicas that ask for each other, nobody can go first: kube-scheduler lets the
new copy of the first one in only beside the others, and these are all where it has been. It would let in the first of a
kind anywhere, but only once no other copy exists: all of them would have to be gone before one is back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from kinema_core.events import Held
from kinema_optimizer.logic.between import Between, Census, Near
from kinema_optimizer.logic.ties import UNMARKED, Group, Marks


class Ask(NamedTuple):
    """The company that a bound pod asks for on its node."""

    node: str
    company: tuple[tuple[str, ...], ...]
    """For each affinity term, the keys of the pods there that it counts, perhaps the pod itself among them."""
    homes: frozenset[str]
    """Nodes where company stays for every term."""


def asking(
    between: Between, census: Census, single: Callable[[str], bool], homes: Callable[[Near], frozenset[str]]
) -> Mapping[str, Ask]:
    """Bound pods that need company on their node, by key; the only one of its kind that asks for its kind needs none.

    Args:
        between: the rules.
        census: who is where.
        single: tells for which topology keys domains are nodes.
        homes: nodes with company that stays, for a rule.
    """
    found: dict[str, Ask] = {}
    for near in between.near:
        if not single(near.counted.key):
            continue
        here: dict[str, list[str]] = {}
        for pod in census.pods(near.counted.scope):
            here.setdefault(pod.node or "", []).append(pod.key)
        company = {node: tuple(keys) for node, keys in here.items()}
        for pod in near.carriers:
            if census.known(pod) and not census.first(pod, near.counted):
                node, stays = pod.node or "", homes(near)
                known = found.get(pod.key, Ask(node, (), stays))
                found[pod.key] = Ask(node, (*known.company, company.get(node, ())), known.homes & stays)
    return found


@dataclass(frozen=True)
class Together:
    """Who moves with whom, and who cannot move."""

    groups: tuple[Group, ...]
    stuck: Mapping[str, Held]
    """By key."""


def together(asks: Mapping[str, Ask], able: Callable[[str], bool], marks: Mapping[str, Marks]) -> Together:
    """Groups of pods, each of which has all the company that it needs to go elsewhere.

    Args:
        asks: who asks for company.
        able: whether a pod may move, and by itself, and its node may be deleted.
        marks: their parts in other rules.
    """
    by_node: dict[str, dict[str, Ask]] = {}
    for key in sorted(asks):
        if able(key):
            by_node.setdefault(asks[key].node, {})[key] = asks[key]
    groups: list[Group] = []
    stuck: dict[str, Held] = {}
    for node in sorted(by_node):
        here = by_node[node]
        found = _on_one_node(here, able)
        grouped = {key for one in found for key in one.pods}
        groups += [one for one in found if not _quarrel([marks.get(key, UNMARKED) for key in one.pods])]
        for key, ask in here.items():
            if key not in grouped and not ask.homes - {node}:
                stuck[key] = Held(pod=key, code="affinity-together", reason=_why(ask, here))
    return Together(tuple(groups), stuck)


def _why(ask: Ask, here: Collection[str]) -> str:
    company = sorted({key for keys in ask.company for key in keys})
    if all(key in here for key in company):
        return "its required affinity and that of its company on the node ask for each other: none could go first"
    return "its required affinity asks for company on its node that cannot go elsewhere before it"


def _on_one_node(asks: Mapping[str, Ask], able: Callable[[str], bool]) -> list[Group]:
    """Groups of at least two pods: first of those who need nobody outside, then of those who follow somebody else."""
    company = {key for one in asks.values() for keys in one.company for key in keys}
    joined = {key: [key] for key in sorted(company - asks.keys()) if able(key)}
    _follow(joined, asks)
    away: dict[str, frozenset[str]] = {}
    for key, ask in asks.items():
        if key not in joined and ask.homes - {ask.node}:
            away[key] = ask.homes - {ask.node}
            joined[key] = [key]
    _follow(joined, asks)
    distinct = {id(pods): pods for pods in joined.values() if len(pods) > 1}
    return [Group(tuple(pods), _common(away[key] for key in pods if key in away)) for pods in distinct.values()]


def _follow(joined: dict[str, list[str]], asks: Mapping[str, Ask]) -> None:
    """Add whoever finds all the company that it asks for in groups (by pod) to them, until nobody does any more.

    Of several groups with such company the smallest is joined: it finds room most easily.
    """
    while fresh := [key for key, ask in asks.items() if key not in joined and _met(ask, joined)]:
        for key in fresh:
            merged: list[str] = []
            for keys in asks[key].company:
                if not any(other in merged for other in keys):
                    near = (joined[other] for other in keys if other in joined)
                    smallest = min(near, key=lambda one: (len(one), one))
                    merged += smallest
            merged.append(key)
            joined |= dict.fromkeys(merged, merged)


def _met(ask: Ask, joined: Collection[str]) -> bool:
    return all(any(other in joined for other in keys) for keys in ask.company)


def _common(places: Iterable[frozenset[str]]) -> frozenset[str] | None:
    """What is in all of them; None where there are none."""
    found = list(places)
    return frozenset.intersection(*found) if found else None


def _quarrel(marks: Iterable[Marks]) -> bool:
    """Whether a rule that they break together now would keep them from coming together anew."""
    known = list(marks)
    counted = Counter(rule for one in known for rule in one.counted)
    if any(count > 1 for count in counted.values()):
        return True
    keepers = Counter(rule for one in known for rule in one.keeps_away)
    return any(keepers[rule] > (rule in one.keeps_away) for one in known for rule in one.kept_away)
