"""The history checker finds nothing in a run that went well, and each thing that could be wrong with one."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest
import tests.history.spoiled_clusters
import tests.history.spoiled_logs  # noqa: F401 - these two fill the register
from tests.history.checker import OF_CLUSTER, OF_LOG, violations
from tests.history.random_clusters import random_cluster
from tests.history.record import History
from tests.history.simulated import carried_out
from tests.history.spoiled_clusters import cost_without_a_surge, replacement_moves_again
from tests.history.spoiling import SPOILED, Spoil, after, ahead_of, changed, first, without, word

SEED: Final = 2
"""A cluster with every kind of step in its plan: boot, surge, evict, roll, delete."""


@pytest.fixture(scope="module")
def good() -> History:
    """A run that went well."""
    history = carried_out(random_cluster(SEED)).history
    assert history is not None
    return history


def test_a_good_run_has_no_violation(good: History) -> None:
    """Everything that happened in a run without harm is allowed; and enough happened to say so."""
    assert violations(good) == ()
    kinds = {entry.body["step"]["kind"] for entry in good.intents}
    assert {
        "boot",
        "taint",
        "prefer-nodes",
        "surge-up",
        "surge-down",
        "evict",
        "roll",
        "finalize-rollout",
        "delete",
    } <= kinds


def test_every_invariant_can_be_broken() -> None:
    """A check that cannot fail is none."""
    assert SPOILED.keys() == OF_LOG.keys() | OF_CLUSTER.keys()


@pytest.mark.parametrize(
    ("invariant", "spoil"),
    [pytest.param(name, spoil, id=f"{name}-{spoil.__name__}") for name, many in SPOILED.items() for spoil in many],
)
def test_a_spoiled_history_is_refused(invariant: str, spoil: Spoil, good: History) -> None:
    """The violated invariant is named."""
    assert invariant in {one.invariant for one in violations(spoil(good))}


@pytest.mark.parametrize("kind", ["plan-approved", "execution-paused", "execution-resumed"])
def test_a_persons_word_needs_no_cause(good: History, kind: str) -> None:
    """An operator speaks first."""
    told = ahead_of(good, first(good, "plan-proposed"), word(good, kind, by="test", plan="p"))
    assert "everything_has_a_cause" not in {one.invariant for one in violations(told)}


def test_a_mark_may_go_with_its_node(good: History) -> None:
    """A node that is gone from the cluster has no mark that could be left."""
    vanished = without(good, first(good, "step-succeeded", "delete"))
    assert "taken_back" not in {one.invariant for one in violations(vanished)}


def test_a_pod_moves_on_from_a_node_that_closes_again(good: History) -> None:
    """It came between two closings: the plan that opened the node was continued."""
    moved = replacement_moves_again(good)
    heir, taint = moved.changes[-1], first(good, "step-started", "taint")
    node = heir.item["spec"]["nodeName"]
    closings = [replace(changed(taint, step_target=node), time=at) for at in (good.log[0].time, heir.at)]
    assert "moved_as_often_as_planned" in {one.invariant for one in violations(moved)}
    told = after(moved, taint, *closings)
    assert "moved_as_often_as_planned" not in {one.invariant for one in violations(told)}
    pods = {one.item["metadata"]["uid"]: one.item for one in told.changes if one.kind == "Pod"}
    for spec, moves_on in ({"nodeName": ""}, True), ({}, False):  # those that waited at first, and those that ran
        there = {uid: {**pod, "spec": {**pod["spec"], **spec}} for uid, pod in pods.items()}
        history = replace(told, before={**told.before, "Pod": there})
        assert ("moved_as_often_as_planned" not in {one.invariant for one in violations(history)}) is moves_on


def test_a_pod_that_leaves_in_the_place_of_another_is_named_by_the_attempt(good: History) -> None:
    """Its owner restarted the pods in the middle of a surge: those that were named are gone."""
    marked = cost_without_a_surge(good)
    name = marked.changes[-1].item["metadata"]["name"]
    surge = first(marked, "step-started", "surge-down")
    failed = {
        "plan": surge.plan,
        "fencing": surge.body["fencing"],
        "step": surge.body["step"]["id"],
        "reason": "not-ready",
        "detail": f"victims in {surge.body['step']['target']} are gone: {name} leave instead",
        "retry": True,
    }
    told = after(marked, surge, replace(surge, kind="step-failed", body=failed))
    assert "costs_explained" not in {one.invariant for one in violations(told)}
