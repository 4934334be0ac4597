"""Preferences in a plan of the search: what they decide where the cost leaves a choice, and what they cost.

`preferred` chooses seats by them, `points_given_up` counts what pods lose, and `PodPreferences` follows preferences
about other pods at each node while seats change.

The search decides how many pods of a class go where, at the least cost. Its classes know nothing of preferences, so
that only pods with preferences cost any time. Which pod of a class takes which seat, and which pod takes room that is
left over, costs nothing: preferences about nodes and other pods decide that. Those about nodes also choose among equal
offers for a new node; and a node that was to be deleted stays when that spares its pods more than it costs. No node is
bought for a preference: the search would have to know of preferences from the beginning.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final, NamedTuple

import numpy as np

from kinema_core.events import Offer, PlacementRules, Pod
from kinema_core.model.catalog import new_node_labels
from kinema_core.model.match import parse_taints
from kinema_core.model.neighbors import Scope, domain, pod_index, selects, term_scope
from kinema_core.model.pod_locations import Group, PodLocations, Spot, group_of
from kinema_core.model.preferences import UNWEIGHTED, unmet
from kinema_optimizer.planning.plan import Outcome, new_names, node_cost, without_moves
from kinema_optimizer.planning.redundancy import Seats, arranged
from kinema_optimizer.problem.arrays import Flags, Ints
from kinema_optimizer.problem.compile import Compiled
from kinema_optimizer.problem.pods import Mover
from kinema_optimizer.problem.rules.reduced import NO_DEMAND, UNTAGGED
from kinema_optimizer.problem.rules.redundancy import is_kept


@dataclass
class _Tally:
    """Pods in a scope per domain of a topology."""

    places: Ints
    """(N,): number of each node's domain; the last domain stands for none."""
    counts: Ints
    """(D + 1,): pods per domain; of the last one 0."""


class _Wish(NamedTuple):
    """A preference: near the pods of a tally, away from them, or no more of them than elsewhere."""

    tally: _Tally
    counted: bool
    """The pod itself is one of them."""
    weight: int
    near: bool = False
    skew: int | None = None
    """Of a spread: how many more there may be than where there are fewest."""
    level: Ints | None = None
    """Of a spread: the domains of which the fewest is taken; none where an empty one counts."""


class PodPreferences:
    """Pods in the scope of preferences about other pods, counted per domain."""

    def __init__(self, world: PodLocations, names: Sequence[str], pods: Iterable[Pod]) -> None:
        """`names` are the nodes in the order of all arrays; those that `world` does not know are in no domain."""
        self._world = world
        self._names = names
        self._places: dict[str, tuple[Ints, dict[str, int]]] = {}
        self._tallies: dict[tuple[Scope, str], _Tally] = {}
        self._counted: dict[str, list[_Tally]] = defaultdict(list)
        self._wishes = {pod.key: self._wishes_of(pod) for pod in pods}

    def points(self, key: str, at: int) -> Ints:
        """(N,): weight points that a pod which is at a node now would give up at each, with all others as they are."""
        found = np.zeros(len(self._names), dtype=np.int64)
        for wish in self._wishes.get(key, ()):
            tally = wish.tally
            others = tally.counts.copy()
            others[tally.places[at]] -= int(wish.counted)
            others[-1] = 0
            found += wish.weight * _unmet(wish, others)[tally.places]
        return found

    def move(self, key: str, at: int, to: int) -> None:
        """Move a pod to another node."""
        for tally in self._counted.get(key, ()):
            tally.counts[tally.places[at]] -= 1
            tally.counts[tally.places[to]] += 1
            tally.counts[-1] = 0

    def _wishes_of(self, pod: Pod) -> tuple[_Wish, ...]:
        found = []
        cluster = self._world.cluster
        for terms, near in ((pod.rules.affinity, True), (pod.rules.anti_affinity, False)):
            for term in terms:
                if term.weight:
                    scope = term_scope(cluster, pod, term)
                    tally = self._tally(scope, term.topology_key)
                    found.append(_Wish(tally, selects(scope, pod), term.weight, near))
        for spread in pod.rules.spread:
            if spread.when_unsatisfiable == "ScheduleAnyway":
                group = group_of(pod, spread)
                tally, level = self._tally(group.scope, spread.topology_key), self._level(group)
                counted = selects(group.scope, pod)
                found.append(_Wish(tally, counted, UNWEIGHTED, skew=group.max_skew, level=level))
        return tuple(found)

    def _level(self, group: Group) -> Ints | None:
        domains = self._world.domains(group.eligible)
        if not domains or len(domains) < group.min_domains or self._world.loses(group.eligible):
            return None
        numbers = self._numbered(group.eligible.topology_key)[1]
        return np.array(sorted(numbers[name] for name in domains), dtype=np.int64)

    def _tally(self, scope: Scope, topology_key: str) -> _Tally:
        if (scope, topology_key) not in self._tallies:
            places, numbers = self._numbered(topology_key)
            counts = np.zeros(len(numbers) + 1, dtype=np.int64)
            for name, pods in self._world.counts(scope, topology_key).items():
                counts[numbers[name]] = pods
            tally = self._tallies[scope, topology_key] = _Tally(places, counts)
            for pod in pod_index(self._world.cluster).select(scope):
                self._counted[pod.key].append(tally)
        return self._tallies[scope, topology_key]

    def _numbered(self, topology_key: str) -> tuple[Ints, dict[str, int]]:
        """(N,) number of each node's domain, and the numbers by name."""
        if topology_key not in self._places:
            spots = [self._world.nodes.get(name) for name in self._names]
            named = [domain(spot.labels, topology_key) if spot is not None else None for spot in spots]
            numbers = {name: n for n, name in enumerate(dict.fromkeys(name for name in named if name is not None))}
            places = [len(numbers) if name is None else numbers[name] for name in named]
            self._places[topology_key] = np.array(places, dtype=np.int64), numbers
        return self._places[topology_key]


def _unmet(wish: _Wish, others: Ints) -> Flags:
    """(D + 1,): in which domains the preference would not hold, by the other pods in each."""
    if wish.skew is None:
        found: Flags = (others > 0) != wish.near
        return found
    fewest = 0 if wish.level is None else int(others[wish.level].min())
    found = others + int(wish.counted) - fewest > wish.skew
    found[-1] = True
    return found


_TRIED: Final = 32
"""Places that are searched for a pod to change places with."""
_WEIGHED: Final = 200_000
"""Pods that are asked what they would give up if nodes were kept, all tries together."""
_ASKED: Final = 10_000
"""Pods that are asked for what they prefer: a bound on the time that takes beside the search."""


def preferred(problem: Compiled, outcome: Outcome) -> Outcome:
    """Return the outcome with preferences applied. Room that pods are to leave is given to no pod here.

    Redundancy comes first: preferences take from no workload what it has of it. A pod that required rules between pods
    concern, or that a rolling update replaces, is left where it goes.
    """
    outcome = arranged(problem, outcome)
    if problem.resizes or problem.updates or not (problem.with_node_preferences or problem.with_pod_preferences):
        return outcome
    outcome = _kept(problem, outcome)
    outcome = replace(outcome, boots=_chosen(problem, outcome))
    asking = outcome.targets.keys() & {**problem.with_node_preferences, **problem.with_pod_preferences}.keys()
    seats = _Seats(problem, outcome)
    for key in sorted(asking)[:_ASKED]:
        seats.improve(key)
    better = replace(outcome, targets=seats.targets)
    # A pod that moves follows its own preferences only: others may lose more by it.
    if problem.with_pod_preferences and points_given_up(problem, better) > points_given_up(problem, outcome):
        return outcome
    return better


def points_given_up(problem: Compiled, outcome: Outcome) -> int:
    """Weight points of all preferences that do not hold after the outcome, for pods that could go somewhere."""
    asking = [mover.pod for mover in _movers(problem) if problem.node_preferences.asks(mover.pod)]
    if not asking:
        return 0
    after = _after(problem, outcome)
    return sum(one.weight for pod in asking for one in unmet(after, pod))


def _after(problem: Compiled, outcome: Outcome) -> PodLocations:
    """Return the locations of all pods after the outcome."""
    cluster = problem.question.cluster
    live = [(node.name, Spot(node.labels, node.taints)) for node in cluster.nodes]
    nodes = {name: spot for (name, spot), keep in zip(live, outcome.keep, strict=True) if keep}
    gone = {name: spot for (name, spot), keep in zip(live, outcome.keep, strict=True) if not keep}
    for name, alike in zip(new_names(cluster), outcome.boots, strict=False):
        nodes[name] = Spot(new_node_labels(alike[0], name), parse_taints(alike[0].taints))
    pods = cluster.pods_by_key.items()
    where = {key: pod.node for key, pod in pods if pod.node in nodes and not pod.terminating}
    return PodLocations(cluster, nodes, {**where, **outcome.targets}, gone)


def _movers(problem: Compiled) -> Iterator[Mover]:
    return (mover for members in problem.draft.members for mover in members)


def _points(problem: Compiled, pod: Pod) -> Ints:
    found = problem.node_preferences.points(pod)
    assert found is not None, "the pod prefers something"
    return found


def _nodes(problem: Compiled) -> Mapping[str, int]:
    return {node.name: e for e, node in enumerate(problem.question.cluster.nodes)}


def _sites(problem: Compiled, outcome: Outcome) -> dict[str, int]:
    """Number of the site of every node that may be there, new ones by the first of their offers."""
    offers = {offer.name: i for i, offer in enumerate(problem.question.offers)}
    nodes = _nodes(problem)
    names = islice(new_names(problem.question.cluster), len(outcome.boots))
    booted = {name: len(nodes) + offers[alike[0].name] for name, alike in zip(names, outcome.boots, strict=True)}
    return {**nodes, **booted}


def _chosen(problem: Compiled, outcome: Outcome) -> tuple[tuple[Offer, ...], ...]:
    """Per new node, of the offers that are alike those that its pods like best."""
    names = list(islice(new_names(problem.question.cluster), len(outcome.boots)))
    rated = {name: np.zeros(len(problem.question.offers), dtype=np.int64) for name in names}
    first = len(problem.question.cluster.nodes)
    for key, to in outcome.targets.items():
        if to in rated and key in problem.with_node_preferences:
            rated[to] += _points(problem, problem.with_node_preferences[key][1])[first:]
    index = {offer.name: i for i, offer in enumerate(problem.question.offers)}
    found = []
    for name, alike in zip(names, outcome.boots, strict=True):
        least = min(int(rated[name][index[offer.name]]) for offer in alike)
        found.append(tuple(offer for offer in alike if rated[name][index[offer.name]] == least))
    return tuple(found)


def _kept(problem: Compiled, outcome: Outcome) -> Outcome:
    """Return the outcome without the deletion of nodes that cost less than what pods give up for it.

    Where preferences about nodes alone are worth that, it is certain; with those about other pods it is tried.
    """
    sure, maybe = _nodes_worth_keeping(problem, outcome)
    if sure:
        outcome = without_moves(problem, outcome, _leaving(problem, outcome, sure))
    paid = _paid(problem, outcome) if maybe else 0
    for name in maybe[
        : max(1, _WEIGHED // max(1, len(problem.with_node_preferences) + len(problem.with_pod_preferences)))
    ]:
        other = without_moves(problem, outcome, _leaving(problem, outcome, (name,)))
        instead = _paid(problem, other)
        if instead < paid and len(other.lost) <= len(outcome.lost):
            outcome, paid = other, instead
    return outcome


def _leaving(problem: Compiled, outcome: Outcome, nodes: Collection[str]) -> frozenset[str]:
    """Keys of the pods that leave these nodes."""
    pods = problem.question.cluster.pods_by_key
    return frozenset(key for key in outcome.targets if pods[key].node in nodes)


def _nodes_worth_keeping(problem: Compiled, outcome: Outcome) -> tuple[list[str], list[str]]:
    """Deleted nodes that cost less than their pods give up by leaving them, and others that may, the best first.

    Preferences about other pods count twice: each of the pods may be one that another's preference is about.
    """
    sites, nodes = _sites(problem, outcome), _nodes(problem)
    gone = {name for name, keep in zip(nodes, outcome.keep, strict=True) if not keep}
    price, prices = problem.question.point_price, problem.sites.prices
    sure: Counter[str] = Counter()
    most: Counter[str] = Counter()
    asking = problem.with_node_preferences.keys() | problem.with_pod_preferences.keys()
    for key in outcome.targets.keys() & asking if gone and price else ():
        pod = problem.question.cluster.pods_by_key[key]
        if pod.node not in gone:
            continue
        if key in problem.with_node_preferences:
            liked = _points(problem, pod)
            sure[pod.node] += price * int(liked[sites[outcome.targets[key]]] - liked[nodes[pod.node]])
        most[pod.node] += 2 * price * _weight(pod.rules)
    certain = sorted(name for name, given in sure.items() if given > prices[name])
    worth = {name: sure[name] + given - prices[name] for name, given in most.items() if given}
    maybe = [name for name, more in worth.items() if more > 0 and name not in certain]
    return certain, sorted(maybe, key=lambda name: (-worth[name], name))


def _weight(rules: PlacementRules) -> int:
    """Points of all preferences about other pods."""
    anyway = sum(one.when_unsatisfiable == "ScheduleAnyway" for one in rules.spread)
    return sum(term.weight for term in (*rules.affinity, *rules.anti_affinity)) + UNWEIGHTED * anyway


def _paid(problem: Compiled, outcome: Outcome) -> int:
    """Micro-USD per hour: nodes, and preferences that do not hold at their price."""
    return node_cost(problem, outcome) + problem.question.point_price * points_given_up(problem, outcome)


@dataclass
class _Seats:
    """Seats of those who arrive somewhere, and the room that is left."""

    problem: Compiled
    outcome: Outcome
    targets: dict[str, str] = field(init=False)
    _names: list[str] = field(init=False)
    _numbers: dict[str, int] = field(init=False)
    _sites: Ints = field(init=False)
    _open: Flags = field(init=False)
    _rooms: Ints = field(init=False)
    _arrivals: Counter[str] = field(init=False)
    _seated: dict[tuple[int, int], list[str]] = field(default_factory=dict)
    _admits: dict[int, Flags] = field(default_factory=dict)
    _company: PodPreferences = field(init=False)
    _redundancy: Seats = field(init=False)

    def __post_init__(self) -> None:
        """Count the room that newcomers leave."""
        problem, outcome = self.problem, self.outcome
        self.targets = dict(outcome.targets)
        sites = _sites(problem, outcome)
        self._names = list(sites)
        self._numbers = {name: i for i, name in enumerate(self._names)}
        self._sites = np.array(list(sites.values()), dtype=np.int64)
        self._open = np.array([*outcome.keep, *[True] * len(outcome.boots)], dtype=bool)
        draft = problem.draft
        rooms = np.concatenate([draft.node_room, draft.offer_room])[self._sites]
        self._arrivals = Counter(self.targets.values())
        for c, key in self._arriving():
            at = self._numbers[self.targets[key]]
            rooms[at] -= draft.requests[c]
            self._seated.setdefault((c, at), []).append(key)
        self._rooms = rooms
        with_pod_preferences = [pod for key, (_, pod) in problem.with_pod_preferences.items() if key in self.targets]
        self._redundancy = Seats.of(problem, outcome)
        self._company = PodPreferences(_after(problem, outcome), self._names, with_pod_preferences)

    def _arriving(self) -> Iterator[tuple[int, str]]:
        for c, members in enumerate(self.problem.draft.members):
            yield from ((c, mover.pod.key) for mover in members if mover.pod.key in self.targets)

    def improve(self, key: str) -> None:
        """Move the pod where it violates least, if there is room, or a pod to change places with."""
        c, at = self._class(key), self._numbers[self.targets[key]]
        liked = self._points_at(key, at)
        wanted = (liked < liked[at]) & self._open
        if not wanted.any() or not self._unconcerned(key):
            return
        wanted &= self._admitting(c)
        request = self.problem.draft.requests[c]
        roomy = wanted & ((request == 0) | (request <= self._rooms)).all(axis=1)
        free = np.flatnonzero(roomy)[np.argsort(liked[roomy], kind="stable")].tolist() if self._may_leave(at) else []
        best = next((to for to in free if self._keeps({key: to})), None)
        if best is not None:
            self._seat(c, key, best)
            return
        places = np.flatnonzero(wanted)
        for to in places[np.argsort(liked[places], kind="stable")][:_TRIED].tolist():
            other = next((one for one in self._seated.get((c, to), ()) if self._gains(key, one, at, to)), None)
            if other is not None:
                self._seat(c, key, to)
                self._seat(c, other, at)
                return

    def _may_leave(self, at: int) -> bool:
        """Return whether a pod may leave: a node that is booted keeps one."""
        return at < len(self.outcome.keep) or self._arrivals[self._names[at]] > 1

    def _gains(self, key: str, other: str, at: int, to: int) -> bool:
        """Return whether the two together give up less in each other's places."""
        if not self._unconcerned(other) or not self._keeps({key: to, other: at}):
            return False
        mine, theirs = self._points_at(key, at), self._points_at(other, to)
        return bool(mine[to] + theirs[at] < mine[at] + theirs[to])

    def _keeps(self, moved: Mapping[str, int]) -> bool:
        """Return whether the workloads of these pods are redundant once they are on these nodes."""
        if not is_kept(self.problem.question):
            return True
        places = {key: self._names[at] for key, at in moved.items()}
        return all(self._redundancy.keeps(self._redundancy.workload_of(key), places) for key in moved)

    def _class(self, key: str) -> int:
        return (self.problem.with_node_preferences.get(key) or self.problem.with_pod_preferences[key])[0]

    def _points_at(self, key: str, at: int) -> Ints:
        """(N,): weight points that the pod at a node violates there, and would at each other."""
        found = self._company.points(key, at)
        if key in self.problem.with_node_preferences:
            found += _points(self.problem, self.problem.with_node_preferences[key][1])[self._sites]
        return found

    def _unconcerned(self, key: str) -> bool:
        ties = self.problem.sites.ties
        return ties.needs.get(key, NO_DEMAND) == NO_DEMAND and ties.marks.get(key, UNTAGGED) == UNTAGGED

    def _admitting(self, c: int) -> Flags:
        if c not in self._admits:
            draft = self.problem.draft
            found = draft.admits[draft.kinds[c]].copy()
            for site, banned in draft.banned.items():
                found[site] &= not banned[c]
            self._admits[c] = found[self._sites]
        return self._admits[c]

    def _seat(self, c: int, key: str, to: int) -> None:
        at, request = self._numbers[self.targets[key]], self.problem.draft.requests[c]
        self._seated[c, at].remove(key)
        self._seated.setdefault((c, to), []).append(key)
        self._rooms[at] += request
        self._rooms[to] -= request
        self._arrivals[self._names[at]] -= 1
        self._arrivals[self._names[to]] += 1
        self.targets[key] = self._redundancy.places[key] = self._names[to]
        self._company.move(key, at, to)
