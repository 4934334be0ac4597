"""Rolling updates are begun only where they get through whatever kube-scheduler and the controller do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace
from tests.support.builders import NOW, cluster, deployed, node, offers, selector
from tests.support.plans import plan_for

from kinema_core.events import FrozenMap, PlacementRules, PodTerm, Spread
from kinema_core.model.rolling import why_stuck
from kinema_core.model.sequencing.waves import order_transition

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
MINE = selector(app="web")


def spread(**more: Any) -> PlacementRules:
    """Rules of a workload whose pods are spread over zones."""
    given = {"topology_key": ZONE, "max_skew": 1, "when_unsatisfiable": "DoNotSchedule", "selector": MINE, **more}
    return PlacementRules(spread=(Spread(**given),))


APART = PlacementRules(anti_affinity=(PodTerm(topology_key=HOST, selector=MINE),))
BOTH = PlacementRules(spread=spread().spread, anti_affinity=APART.anti_affinity)


def stuck(rules: PlacementRules, on: Sequence[str], room: dict[str, int], *, leaving: Sequence[str] = ()) -> bool:
    """Whether an update of pods on these nodes may stop half way; nodes are named zone and number (a1)."""
    names = sorted({*on, *room, *leaving})
    live = cluster([node(name, zone=name[0]) for name in names], deployed("web", on, rules=rules))
    places = [one for one in live.nodes if one.name not in leaving]
    return why_stuck(live, live.pods, places, lambda name: room.get(name, 0)) is not None


@pytest.mark.parametrize(
    ("on", "room", "leaving", "expected"),
    [
        (["a1", "b1"], {"a1": 1, "b1": 1, "c1": 0}, [], True),  # two are in a and b: the next one must go to c
        (["a1", "b1"], {"a1": 0, "b1": 0, "c1": 1}, [], False),
        (["a1", "c9"], {"a1": 1, "b1": 0, "c1": 1}, ["c9"], True),  # a's old pod may stay longest
        (["a1", "c9"], {"a1": 0, "b1": 1, "c1": 1}, ["c9"], False),
        (["a1", "b1", "c1"], {"a1": 1, "b1": 1, "c1": 1}, [], False),
        (["a1", "b1", "c1"], {"a1": 1, "b1": 0, "c1": 0}, [], False),  # who must go to b comes after its pod has gone
        (["a1", "b1", "c1"], {"a1": 0, "b1": 0, "c1": 0}, [], True),
        (["a9", "b9", "c9"], {"a1": 1, "b1": 1, "c1": 1}, ["a9", "b9", "c9"], False),
    ],
)
def test_a_spread_needs_room_where_it_may_be_emptiest(
    on: list[str], room: dict[str, int], leaving: list[str], *, expected: bool
) -> None:
    """Each domain that may be the emptiest one on the way has room for one more."""
    assert stuck(spread(), on, room, leaving=leaving) is expected


def test_a_wide_skew_asks_for_nothing() -> None:
    """Where all pods might share a zone, a full zone stops nobody; with too few zones it still might."""
    assert not stuck(spread(max_skew=3), ["a1", "b1"], {"a1": 1, "b1": 1, "c1": 0})
    assert stuck(spread(min_domains=4), ["a1", "b1", "c1"], {"a1": 1, "b1": 1, "c1": 1})


@pytest.mark.parametrize(
    ("on", "room", "leaving", "expected"),
    [
        (["a1"], {"a1": 5}, [], True),
        (["a1"], {"a1": 0, "a2": 1}, [], False),
        (["a1", "a2", "a3"], {"a4": 1}, [], False),  # each that comes frees the place of one that goes
        (["a1", "a2", "a9"], {"a3": 1}, ["a9"], True),  # the one that leaves its node frees none
        (["a1", "a2", "a9"], {"a3": 1, "a4": 1}, ["a9"], False),
        (["a8", "a9"], {"a3": 1, "a4": 1}, ["a8", "a9"], False),
    ],
)
def test_pods_that_keep_apart_need_a_free_place(
    on: list[str], room: dict[str, int], leaving: list[str], *, expected: bool
) -> None:
    """One node without a pod of theirs, and one more for each whose node goes."""
    assert stuck(APART, on, room, leaving=leaving) is expected


@pytest.mark.parametrize(
    ("room", "expected"),
    [({"b1": 1}, True), ({"b1": 2}, False), ({"b1": 1, "b2": 1}, False), ({"a1": 9, "b1": 1}, True)],
)
def test_nodes_without_the_label_keep_nobody_apart(*, room: dict[str, int], expected: bool) -> None:
    """One of two nodes leaves and no other has a hostname: as many pods may go there as there is room for."""
    live = cluster([node(name) for name in ("a1", "a9")], deployed("web", ["a1", "a9"], rules=APART))
    bare = [replace(node(name), labels=FrozenMap({ZONE: "b"})) for name in ("b1", "b2")]
    found = why_stuck(live, live.pods, [live.nodes[0], *bare], lambda name: room.get(name, 0))
    assert (found is not None) is expected


def test_new_pods_that_count_only_each_other_need_more_room_in_a_zone() -> None:
    """Told apart by their template's hash, they fill all zones evenly from nothing, whoever of the old is there."""
    nine = [f"{zone}1" for zone in "abc"] * 3
    hashed = spread(match_label_keys=("pod-template-hash",))
    assert not stuck(spread(), nine, {"a1": 1, "b1": 1, "c1": 1})
    assert stuck(hashed, nine, {"a1": 1, "b1": 1, "c1": 1})
    assert not stuck(hashed, nine, {"a1": 2, "b1": 2, "c1": 2})
    assert not stuck(hashed, ["a1", "b1", "c1"], {"a1": 1, "b1": 1, "c1": 1})
    assert stuck(hashed, ["a1", "b1", "c1"], {"a1": 1, "b1": 1, "c1": 0})
    assert not stuck(hashed, ["a1", "b1"], {"a1": 1, "b1": 1, "c1": 0})


@pytest.mark.parametrize(
    ("on", "room", "expected"),
    [
        (["a1", "a2", "a3"], {"a1": 1, "a2": 1, "a3": 1}, False),  # beside an old one of another hash
        (["a1", "a2", "a3"], {"a4": 1}, False),
        (["a1", "a2", "a3"], {"a1": 1}, True),  # its own old one may leave first, and frees no place more
        (["a1", "a2", "a3"], {"a1": 1, "a4": 1}, False),
    ],
)
def test_pods_that_keep_apart_by_their_hash_may_share_with_old_ones(
    on: list[str], room: dict[str, int], *, expected: bool
) -> None:
    """Such a node takes one now, and none more when the old one has gone."""
    term = PodTerm(topology_key=HOST, selector=MINE, match_label_keys=("pod-template-hash",))
    assert stuck(PlacementRules(anti_affinity=(term,)), on, room) is expected


def test_an_old_pod_keeps_others_out_of_its_zone_until_it_is_gone() -> None:
    """Also where its node leaves; then the zone is free, if another node of it has room."""
    zones = PlacementRules(anti_affinity=(PodTerm(topology_key=ZONE, selector=MINE),))
    assert stuck(zones, ["a9"], {"a1": 1}, leaving=["a9"])
    assert not stuck(zones, ["a9"], {"b1": 1}, leaving=["a9"])
    assert not stuck(zones, ["a9", "b9"], {"a1": 1, "c1": 1}, leaving=["a9"])


def test_a_zone_whose_nodes_all_leave_counts_for_those_who_count_every_node() -> None:
    """Nobody can come to it: a spread that ignores affinity finds it emptiest for as long as it is there."""
    assert not stuck(spread(), ["a1", "c9"], {"a1": 1, "b1": 1}, leaving=["c9"])
    assert stuck(spread(node_affinity_policy="Ignore"), ["a1", "c9"], {"a1": 1, "b1": 1}, leaving=["c9"])


def test_both_rules_together() -> None:
    """Room in a zone is on nodes that none of their own is on, and one pod's on each."""
    assert stuck(BOTH, ["a1", "b1"], {"a1": 9, "b1": 9})
    assert not stuck(BOTH, ["a1", "b1"], {"a2": 9})
    assert stuck(BOTH, ["a1", "b1", "c9", "d9"], {"a1": 9, "a2": 9, "b2": 9, "c1": 0, "d1": 9}, leaving=["c9", "d9"])


def test_without_such_rules_room_is_all_that_counts() -> None:
    """One more than those who leave, up to all of them; a wish stops nobody."""
    wish = spread(when_unsatisfiable="ScheduleAnyway")
    assert not stuck(wish, ["a1", "b1"], {"a1": 1, "c1": 0})
    assert stuck(PlacementRules(), ["a1", "b1"], {"a1": 0})
    assert stuck(PlacementRules(), ["a1", "a9"], {"a1": 1}, leaving=["a9"])
    assert not stuck(PlacementRules(), ["a1", "a9"], {"a1": 2}, leaving=["a9"])
    assert not stuck(PlacementRules(), ["a9"], {"a1": 1}, leaving=["a9"])


@pytest.mark.parametrize("full", [True, False])
def test_a_plan_rolls_nobody_who_might_stop_half_way(*, full: bool) -> None:
    """An order is found only where the zone that may have to take the next pod has room for it."""
    on = cluster(
        [
            node(name, zone=name[0], cpu=1000 if name == "b1" else 4000, price="0.1")
            for name in ("a1", "b1", "c1", "c9")
        ],
        deployed("web", ["a1", "c9"], cpu=500, annotations={"kinema.io/strategy": "rolling"}, rules=spread()),
        deployed("full", ["b1"], cpu=900 if full else 100),
    )
    plan = plan_for(on, offers(), to={"shop/web-0": "a1", "shop/web-1": "c1"}, delete=["c9"])
    found = order_transition(plan, on, offers(), now=NOW)
    assert found.stuck == (("shop/web-0", "shop/web-1") if full else ())
