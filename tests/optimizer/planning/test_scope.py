"""Opt-in scope: nodes without the labels that make them Kinema's stay with their pods, and none like them is bought."""

from __future__ import annotations

from typing import Any

import pytest
from tests.optimizer.planned import planned
from tests.support.builders import NOW, deployed, node, offer
from tests.support.planning import unguarded

from kinema_core.events import FrozenMap
from kinema_core.model.checker.check import check_drifted, check_plan
from kinema_core.model.cluster import Cluster, from_objects
from kinema_core.model.mobility import MobilityOptions, mobility
from kinema_decider.logic.limits import Limits

MINE = {"pool": "mine"}
SCOPE = ({"pool": "mine"}, {"team": "shop", "stage": "test"})


def cluster() -> Cluster:
    """Four nodes with a small pod each; one is in the pool, one of the team's stage, one of another stage."""
    kinds: list[dict[str, str]] = [MINE, {"team": "shop", "stage": "test"}, {"team": "shop", "stage": "live"}, {}]
    objects: list[Any] = [node(f"n{i}", labels=labels) for i, labels in enumerate(kinds)]
    for i in range(4):
        objects += deployed(f"p{i}", [f"n{i}"], cpu=500, annotations={"kinema.io/strategy": "surge"})
    return from_objects(objects)


OFFERS = (offer("m2", cpu=2000, memory=8192, price=1_000), offer("m4", labels=MINE))


def test_only_nodes_in_scope_are_emptied_and_filled() -> None:
    """Of the two nodes in scope one goes; its pod joins the other one, and the much cheaper machine is not bought."""
    state = cluster()
    plan = planned(state, OFFERS, settings=unguarded(scope=SCOPE, move_price_usd=0.0))
    actions = {one.name: one.action for one in plan.nodes}
    assert sorted(actions) == ["n0", "n1", "n2", "n3"]
    assert (actions["n2"], actions["n3"]) == ("keep", "keep")
    assert sorted((actions["n0"], actions["n1"])) == ["delete", "keep"]
    assert {one.to for one in plan.placements if one.source != one.to} <= {"n0", "n1"}
    assert {(one.pod, one.code) for one in plan.held} == {("shop/p2-0", "out-of-scope"), ("shop/p3-0", "out-of-scope")}


def test_without_a_scope_every_node_is_kinemas() -> None:
    """The same cluster goes onto the cheapest machine."""
    plan = planned(cluster(), OFFERS, settings=unguarded(move_price_usd=0.0))
    assert {one.action for one in plan.nodes if one.name.startswith("n")} == {"delete"}


def test_new_nodes_have_labels_of_the_scope() -> None:
    """A pod that waits gets a machine whose labels are in scope, at a higher price."""
    state = from_objects([*cluster().nodes, *deployed("big", [None], cpu=3900)])
    crowded = from_objects([*state.pods, *state.nodes, *deployed("fill", ["n0", "n1"], cpu=3900)])
    plan = planned(crowded, OFFERS, settings=unguarded(scope=SCOPE), mode="autoscale")
    assert [one.machine_type for one in plan.nodes if one.action == "boot"] == ["m4"]


@pytest.mark.parametrize("scope", [(), SCOPE])
def test_the_checker_and_the_decider_hold_plans_to_the_scope(scope: tuple[dict[str, str], ...]) -> None:
    """A plan made without a scope is refused where there is one: deleted nodes, moved pods and boots are named."""
    state = cluster()
    plan = planned(state, OFFERS, settings=unguarded(move_price_usd=0.0))
    options = MobilityOptions(scope=tuple(map(FrozenMap, scope)))
    codes = {one.code for one in check_plan(plan, state, OFFERS, NOW, options)}
    later = {one.code for one in check_drifted(plan, state, OFFERS, NOW, options)}
    wanted = {"node-undeletable", "boot-scope"} if scope else set()
    assert wanted <= codes
    assert wanted <= later
    assert bool(later) == bool(scope)
    assert Limits(scope=scope).scope == scope


def test_the_reason_names_the_labels() -> None:
    """Why a node stays says which labels would make it Kinema's."""
    facts = mobility(cluster(), NOW, MobilityOptions(scope=tuple(map(FrozenMap, SCOPE))))
    assert facts.deletable["n3"] == "node n3 is out of scope: it has no labels pool=mine or stage=test,team=shop"
    assert facts.open_nodes == {"n0", "n1"}
