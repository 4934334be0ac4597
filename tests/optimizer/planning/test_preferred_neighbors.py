"""Preferences about other pods in plans of the search: counted as the rules say, and minded where it costs nothing."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace
from tests.optimizer.planning.test_preferences import FILL, ZONE, crowd, plan
from tests.support.builders import cluster, deployed, node, offer, selector

from kinema_core.events import ClusterObject, FrozenMap, Node, PlacementRules, Plan, Pod, PodTerm, Spread
from kinema_core.model.pod_locations import PodLocations, Spot
from kinema_core.model.preferences import is_sociable, unmet
from kinema_optimizer.planning.preferences import PodPreferences

HOST = "kubernetes.io/hostname"
NONE_ON_SALE = (offer("m4", available=0),)
APPS = ("a", "b", "c")


def term(app: str, *, over: str = ZONE, weight: int = 10) -> PodTerm:
    """A preference about the pods of an app."""
    return PodTerm(topology_key=over, selector=selector(app=app), weight=weight)


def evenly(app: str, *, over: str = ZONE, skew: int = 1, **more: object) -> Spread:
    """A spread that may be broken."""
    spread = Spread(topology_key=over, max_skew=skew, selector=selector(app=app), when_unsatisfiable="ScheduleAnyway")
    return replace(spread, **more)


def drawn(chance: random.Random) -> PlacementRules:
    """Rules about any app, its own or another."""

    def terms() -> tuple[PodTerm, ...]:
        return tuple(
            term(chance.choice(APPS), over=chance.choice((ZONE, HOST)), weight=chance.randint(1, 9))
            for _ in range(chance.randint(0, 2))
        )

    spreads = tuple(
        evenly(
            chance.choice(APPS),
            over=chance.choice((ZONE, HOST)),
            skew=chance.randint(1, 2),
            min_domains=chance.choice((1, 3)),
        )
        for _ in range(chance.randint(0, 2))
    )
    return PlacementRules(affinity=terms(), anti_affinity=terms(), spread=spreads)


@pytest.mark.parametrize("seed", range(20))
def test_points_are_what_the_rules_come_to_wherever_a_pod_would_be(seed: int) -> None:
    """For every pod and node, at first and after every move, on nodes in a zone or in none, while another one goes."""
    chance = random.Random(seed)
    nodes = [node(f"n{n}", zone=zone) for n, zone in enumerate("aabbc")]
    nodes.append(replace(node("bare"), labels=FrozenMap()))
    on = [item.name for item in nodes[1:]]
    pods = [deployed(app, chance.choices(on, k=4), rules=drawn(chance)) for app in APPS]
    state = cluster(nodes, *pods)
    spots = {item.name: Spot(item.labels, item.taints) for item in state.nodes if item.name != "n0"}
    gone = {"n0": Spot(node("n0", zone=chance.choice("ad")).labels, ())}
    where = {pod.key: str(pod.node) for pod in state.pods}
    asking = [pod for pod in state.pods if is_sociable(pod.rules)]
    names = [item.name for item in state.nodes]
    company = PodPreferences(PodLocations(state, spots, where, gone), names, asking)
    for _ in range(6):
        for pod in asking:
            told = company.points(pod.key, names.index(where[pod.key]))
            worlds = [(PodLocations(state, spots, {**where, pod.key: to}, gone), pod) for to in on]
            assert [told[names.index(to)] for to in on] == [points(world) for world in worlds]
        moved, to = chance.choice(state.pods), chance.choice(on)
        company.move(moved.key, names.index(where[moved.key]), names.index(to))
        where[moved.key] = to


def points(found: tuple[PodLocations, Pod]) -> int:
    """Weight points that a pod gives up."""
    return sum(one.weight for one in unmet(*found))


def kept(name: str, zone: str = "a") -> Node:
    """A node that stays."""
    stays = {"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"}
    return node(name, annotations=stays, price="0", zone=zone)


def homes(found: Plan, app: str) -> list[str]:
    """Nodes of an app's pods, sorted."""
    return sorted(item.to for item in found.placements if item.pod.startswith(f"shop/{app}-"))


def large(*objects: ClusterObject | tuple[ClusterObject, ...]) -> Plan:
    """The plan where there are too many pods for the exact model of all rules."""
    found = plan(cluster(*crowd(FILL), *objects), NONE_ON_SALE)
    assert "aggregated" in found.solve.method
    return found


@pytest.mark.parametrize("friend", ["n1", "n2", "n3"])
def test_pods_come_to_those_that_they_prefer_to_be_near(friend: str) -> None:
    """Whichever of the open nodes that is."""
    rules = PlacementRules(affinity=(term("db", over=HOST),))
    open_nodes = [kept(name) for name in ("n1", "n2", "n3")]
    found = large(*open_nodes, deployed("db", [friend]), deployed("web", [None, None], rules=rules))
    assert homes(found, "web") == [friend, friend]


def test_pods_keep_away_from_those_that_they_had_rather_not_meet() -> None:
    """Both from other apps and from each other."""
    rules = PlacementRules(anti_affinity=(term("noisy", over=HOST, weight=5), term("web", over=HOST, weight=3)))
    open_nodes = [kept(name) for name in ("n1", "n2", "n3", "n4")]
    found = large(*open_nodes, deployed("noisy", ["n1", "n3"]), deployed("web", [None, None], rules=rules))
    assert homes(found, "web") == ["n2", "n4"]


def test_a_spread_that_may_be_broken_is_kept_where_there_is_room() -> None:
    """Two wait; one zone has two already, the other none."""
    rules = PlacementRules(spread=(evenly("web"),))
    nodes = [kept("n1", zone="a"), kept("n2", zone="a"), kept("n3", zone="b")]
    found = large(*nodes, deployed("web", ["n1", "n2", None, None], rules=rules))
    assert homes(found, "web") == ["n1", "n2", "n3", "n3"]


def test_full_nodes_change_pods_that_are_alike() -> None:
    """Where no room is left, a pod takes the place of one that does not mind where it goes."""
    near = PlacementRules(affinity=(term("db", over=HOST),))
    nodes = [node("n1", cpu=1100, price="0"), node("n2", cpu=1100, price="0"), node("old", price="1")]
    for friend, other in (("n1", "n2"), ("n2", "n1")):
        found = large(
            *nodes,
            deployed("db", [friend], cpu=100),
            deployed("rest", [other], cpu=100),
            deployed("web", ["old"], cpu=1000, rules=near),
            deployed("any", ["old"], cpu=1000),
        )
        assert (homes(found, "web"), homes(found, "any")) == ([friend], [other])
