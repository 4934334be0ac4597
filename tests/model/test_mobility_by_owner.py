"""Pods that their controllers decide on are judged once; the answer is the one of judging each alone."""

from __future__ import annotations

import gc
import weakref
from random import Random

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from tests.support.builders import NOW, budget, cluster, deployed, namespace, node, stateful, unreadable

from kinema_core.events import ClusterObject, FrozenMap, PlacementRules, Pod
from kinema_core.model.cluster import Cluster, all_objects, from_objects
from kinema_core.model.mobility import Judge, MobilityOptions, listed, mobility
from kinema_core.model.pod_rules import facts_of, verdict_on
from kinema_core.model.strategy import strategy_of

_OPTIONS = MobilityOptions()
_NOTES: list[dict[str, str]] = [
    {},
    {},
    {},
    {"kinema.io/strategy": "evict"},
    {"kinema.io/strategy": "none"},
    {"kinema.io/do-not-move": "true"},
    {"karpenter.sh/do-not-disrupt": "1h"},
    {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"},
]
_RULES = [
    PlacementRules(),
    PlacementRules(),
    PlacementRules(),
    PlacementRules(claims=("data",)),
    PlacementRules(scheduler="other"),
    PlacementRules(unmodeled=("spec.os",)),
    PlacementRules(gated=True),
]


@st.composite
def _apps(draw: st.DrawFn, index: int) -> list[ClusterObject]:
    """A workload whose pods differ in one thing or another, and sometimes its budget; sometimes without its sets."""
    make = draw(st.sampled_from([deployed, stateful]))
    places = draw(st.lists(st.sampled_from([None, "n1", "n2", "gone"]), min_size=1, max_size=4))
    space = draw(st.sampled_from(["shop", "ending"]))
    name = f"app{index}"
    found: list[ClusterObject] = []
    for item in make(name, places, namespace=space, annotations=draw(st.sampled_from(_NOTES))):
        if not isinstance(item, Pod):
            found += [item] if draw(st.integers(0, 5)) else []
            continue
        odd = {
            "annotations": FrozenMap(draw(st.sampled_from(_NOTES))),
            "rules": draw(st.sampled_from(_RULES)),
            "labels": FrozenMap(draw(st.sampled_from([{}, {"app": name}]))),
            "host_path": not draw(st.integers(0, 9)),
        }
        found.append(msgspec.structs.replace(item, **odd) if not draw(st.integers(0, 2)) else item)
    for number in range(draw(st.integers(0, 2))):
        most = draw(st.sampled_from(["0", "1"]))
        found.append(budget(f"{name}-{number}", namespace=space, selects={"app": name}, max_unavailable=most))
    return found


@st.composite
def _states(draw: st.DrawFn) -> Cluster:
    frozen = draw(st.sampled_from([[], [unreadable("Pod shop/odd", node="n1")], [unreadable("Deployment shop/app0")]]))
    apps = [draw(_apps(index)) for index in range(draw(st.integers(1, 3)))]
    return cluster(node("n1"), node("n2"), namespace("ending", terminating=True), frozen, *apps)


@given(_states())
def test_judging_replicas_together_changes_no_verdict(state: Cluster) -> None:
    """Whatever a rule reads of one pod only keeps it from being judged with the others."""
    found = mobility(state, NOW, _OPTIONS)
    facts = facts_of(state, NOW, _OPTIONS)
    alone = {pod.key: verdict_on(facts, pod) for pod in listed(state)}
    assert {key: (item.code, item.reason) for key, item in found.held.items()} == {
        key: verdict for key, verdict in alone.items() if verdict is not None
    }
    movable = [pod for pod in listed(state) if pod.node is not None and alone[pod.key] is None]
    assert dict(found.strategy) == {pod.key: strategy_of(state, pod) for pod in movable}


@given(_states())
def test_a_node_is_pinned_by_whoever_is_held_on_it(state: Cluster) -> None:
    """The first held pod by name is the reason that is given."""
    found = mobility(state, NOW, _OPTIONS)
    for name in ("n1", "n2"):
        held = sorted(pod.key for pod in state.pods_by_node.get(name, ()) if pod.key in found.held)
        reason = found.deletable[name]
        if not held:
            assert reason is None or "could not be read" in reason
        elif reason is not None and "could not be read" not in reason:
            assert reason.startswith(f"pod {held[0]} ")


@given(_states(), st.randoms(use_true_random=False))
def test_one_by_one_and_in_any_order_the_answers_are_those_of_the_whole(state: Cluster, chance: Random) -> None:
    """Also of pods and nodes that are not there, and of a pod that terminates."""
    gone = [pod for pod in state.pods if not chance.randrange(5)]
    objects = {(type(item).__name__, item.key): item for item in all_objects(state)}
    objects |= {("Pod", pod.key): msgspec.structs.replace(pod, terminating=True) for pod in gone}
    state = from_objects(objects.values())
    found = mobility(from_objects(objects.values()), NOW, _OPTIONS)
    judge = Judge(state, NOW, _OPTIONS)
    asked = [*state.pods_by_key, "shop/none", "n1", "n2", "n3"]
    chance.shuffle(asked)
    for name in asked:
        if "/" not in name:
            assert judge.why_kept(name) == found.deletable.get(name)
            continue
        assert judge.strategy(name) == found.strategy.get(name, "stay")
        assert judge.held(name) == found.held.get(name)
    assert judge.open_nodes == found.open_nodes
    assert judge.all() == found


def test_a_state_is_freed_with_what_was_asked_about_it() -> None:
    """An execution asks about a state a second: none may wait for the collector of cycles."""
    state = cluster(node("n1"), deployed("web", ["n1", "n1"]))
    gc.disable()
    try:
        assert Judge(state, NOW).why_kept("n1") == mobility(state, NOW).deletable["n1"]
        kept = weakref.ref(state)
        del state
        assert kept() is None
    finally:
        gc.enable()
