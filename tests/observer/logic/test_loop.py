"""The observer loop (algorithms 1.1): worked examples, each a small cluster and a short log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

import msgspec
import pytest
from tests.observer import log_events as log
from tests.observer.log_events import START, at, view
from tests.support.builders import (
    cluster,
    deployed,
    deployment,
    mirror,
    node,
    on_every_node,
    pod,
    replica_set,
    stateful_set,
    tiny,
    unreadable,
)

from kinema_core.events import (
    Autoscaler,
    AutoscalerMetric,
    ClusterObject,
    IterationSkipped,
    Mode,
    PlacementRules,
    Pod,
    Workload,
)
from kinema_core.model.cluster import Cluster, all_objects
from kinema_observer.logic.logview import LogView
from kinema_observer.logic.loop import DISRUPTED, Decision, Memory, tick
from kinema_observer.logic.settings import LoopSettings

SETTLED = Memory(stable_since=at(-3600))
DISRUPTED_LABELS = {DISRUPTED: "it-1"}


def decide(
    of: Cluster,
    log_view: LogView | None = None,
    *,
    now: datetime = START,
    memory: Memory = SETTLED,
    blind: tuple[str, ...] = (),
    **settings: float,
) -> Decision:
    """One tick; the cluster has been stable for an hour unless told otherwise."""
    return tick(of, log_view or LogView(), now=now, memory=memory, settings=LoopSettings(**settings), blind=blind)


def refusal(decision: Decision) -> str:
    """The reason why nothing began."""
    assert decision.start is None
    assert decision.skip is not None
    return decision.skip.reason


def figures(decision: Decision) -> Mapping[str, object]:
    """The figures of the reason why nothing began."""
    assert decision.skip is not None
    return decision.skip.figures


def hpa(current: int | None, target: int = 600, name: str = "web") -> Autoscaler:
    """An HPA at `current` per mille of a target of 60 %."""
    metric = AutoscalerMetric(name="cpu", current=current, target=target)
    return Autoscaler(
        name=name, namespace="shop", uid=f"u-{name}", target_kind="Deployment", target_name=name, metrics=(metric,)
    )


def with_pending(*names: str) -> Cluster:
    """A tiny cluster with unschedulable bare pods, which no replica set misses."""
    return cluster(tiny().objects["Node"].values(), [pod(name) for name in names], version=7)


# --- reschedule


def test_a_stable_idle_cluster_is_rescheduled() -> None:
    """No HPA above target, all replicas ready, nothing in flight, held for the settle time: an iteration begins."""
    decision = decide(tiny())
    assert decision.start is not None
    assert (decision.start.mode, decision.start.version, decision.start.reason) == ("reschedule", 1, "stable")
    assert decision.start.figures == {"stable_seconds": 3600.0, "nodes": 2, "pods": 3}
    assert (decision.iteration, decision.skip) == ("it-1", None)


def test_stability_must_have_held_for_the_settle_time() -> None:
    """30 s by default, counted from the first stable tick; any unrest between begins the count anew."""
    first = decide(tiny(), memory=Memory())
    assert refusal(first) == "settling"
    almost = decide(tiny(), now=at(29.9), memory=first.memory)
    assert refusal(almost) == "settling"
    assert figures(almost) == {"stable_seconds": 29.9, "stabilization_window_seconds": 30.0}
    assert decide(tiny(), now=at(30), memory=almost.memory).start is not None
    shaken = decide(cluster(replica_set("web", replicas=2, ready=1)), now=at(20), memory=first.memory)
    assert shaken.memory == Memory()
    again = decide(tiny(), now=at(30), memory=shaken.memory)
    assert refusal(again) == "settling"


def test_a_few_restless_workloads_do_not_stop_the_others() -> None:
    """Up to a fifth of the workloads may crash, roll out or scale; above it nothing begins, and the first is named."""
    calm = [deployed(f"calm-{i}", ["n1"]) for i in range(8)]
    crashing = replica_set("a-crash", replicas=1, ready=0)
    hot = (*deployed("web", ["n1"]), hpa(900))
    rest: tuple[ClusterObject | Iterable[ClusterObject], ...] = (node("n1"), *calm)
    assert decide(cluster(*rest, crashing, hot)).start is not None
    rolling = deployment("api", replicas=4, updated=2)
    decision = decide(cluster(*rest, crashing, hot, rolling))
    assert refusal(decision) == "restless"
    assert figures(decision) == {
        "workload": "Deployment/shop/api",
        "why": "2 of 4 pods are up to date",
        "restless": 3,
        "workloads": 10,
        "most": 0.2,
    }
    assert decide(cluster(*rest, crashing, hot, rolling), max_restless_fraction=0.3).start is not None
    assert refusal(decide(cluster(*rest, crashing), max_restless_fraction=0)) == "restless"


def test_autoscalers_at_their_limit_are_no_unrest() -> None:
    """With all the replicas they may have, nothing is about to change, be it for months; nor at 110% of the target."""
    saturated = msgspec.structs.replace(hpa(900), current=5, max_replicas=5)
    assert decide(cluster(saturated)).start is not None
    assert decide(cluster(hpa(660))).start is not None
    assert decide(cluster(hpa(None))).start is not None
    assert refusal(decide(cluster(hpa(670)))) == "restless"


def test_ready_replicas_without_their_pods_are_not_believed() -> None:
    """Where controllers count more Ready replicas than there are pods, the list was not whole: nothing begins."""
    whole = [*deployed("web", ["n1", "n2"] * 5), node("n1"), node("n2")]
    assert decide(cluster(*whole)).start is not None
    emptied = [item for item in whole if not isinstance(item, Pod)]
    decision = decide(cluster(*emptied))
    assert refusal(decision) == "pods-missing"
    assert figures(decision) == {"ready": 10, "missing": 10}
    nine = cluster(*emptied, *[item for item in whole if isinstance(item, Pod)][1:])
    assert decide(nine).start is not None
    assert refusal(decide(nine, missing_share=0.0)) == "pods-missing"


def test_ready_pods_without_their_nodes_are_not_believed() -> None:
    """Pods run on nodes that the list of nodes lacks: nothing begins, and no node is asked to be deleted."""
    decision = decide(cluster(deployed("web", ["n1", "n2"]), node("n2"), node("n3", labels=DISRUPTED_LABELS)))
    assert refusal(decision) == "nodes-missing"
    assert figures(decision) == {"nodes": 2, "missing": 1}
    assert decision.deletions == ()


@pytest.mark.parametrize("missing", [replica_set("a", replicas=3, ready=2), stateful_set("a", replicas=3, ready=2)])
def test_a_set_without_all_its_replicas_means_unrest(missing: Workload) -> None:
    """Every ReplicaSet and StatefulSet must have as many ready pods as it wants, not more nor fewer."""
    decision = decide(cluster(missing))
    assert refusal(decision) == "restless"
    assert figures(decision)["why"] == f"2 of 3 pods of {missing.key} are Ready"


def test_replicas_for_which_no_place_was_found_stop_no_saving() -> None:
    """Once an autoscale iteration has ended without one: one Deployment that fits nowhere would keep all else dear."""
    short = replica_set("a", replicas=3, ready=2)
    waiting = pod("a-0", owner=short)
    rest = (node("n1"), pod("a-1", node="n1", owner=short), pod("a-2", node="n1", owner=short))
    tried = (0.0, "it-1", log.started("autoscale", 1, "shop/a-0"))
    for of, ends, told in (
        (cluster(short, waiting, *rest), log.none("autoscale"), ""),
        (cluster(short, waiting), log.refused("drift"), "pods-waiting"),  # untimely: it was never tried
        (cluster(short, msgspec.structs.replace(waiting, unschedulable=False)), log.none("autoscale"), "restless"),
        (cluster(short, waiting, replica_set("b", replicas=1, ready=0)), log.none("autoscale"), "restless"),
        (cluster(replica_set("a", replicas=4, ready=2), waiting), log.none("autoscale"), "restless"),
        (cluster(replica_set("a", replicas=1, ready=2), waiting), log.none("autoscale"), "restless"),
    ):
        decision = decide(of, view(tried, (5.0, "it-1", ends)), now=at(20))
        assert (decision.skip.reason if decision.skip else "") == told
        assert (decision.start is None) == bool(told)
    assert refusal(decide(cluster(short, waiting), view(tried), now=at(1))) == "iteration-running"


def test_no_reschedule_while_an_iteration_runs() -> None:
    """From its start until it ends in any of the ways it can."""
    running = (0.0, "it-1", log.started("reschedule"))
    assert refusal(decide(tiny(), view(running), now=at(1))) == "iteration-running"
    ends: list[list[log.Timed]] = [
        [(2.0, "it-1", log.none())],
        [(2.0, "it-1", log.refused())],
        [(1.0, "it-1", log.accepted()), (2.0, "it-1", log.finished())],
        [(1.0, "it-1", log.accepted()), (2.0, "it-1", log.aborted())],
    ]
    for end in ends:
        assert decide(tiny(), view(running, *end), now=at(63)).start is not None, end


def test_a_running_iteration_is_told_before_the_unrest_that_it_causes() -> None:
    """Of several reasons the first in a fixed order is told."""
    running = view((0.0, "it-1", log.started("reschedule")))
    unstable = cluster(replica_set("web", replicas=2, ready=1))
    assert refusal(decide(unstable, running, now=at(1))) == "iteration-running"


def test_between_two_reschedule_iterations_lies_an_interval() -> None:
    """60 s by default from the end of the one; autoscale iterations do not count."""
    ended = view((0.0, "it-1", log.started("reschedule")), (10.0, "it-1", log.none()))
    assert refusal(decide(tiny(), ended, now=at(69.9))) == "reschedule-recent"
    assert decide(tiny(), ended, now=at(70)).start is not None
    scaled = view((0.0, "it-1", log.started("autoscale")), (10.0, "it-1", log.none("autoscale")))
    assert decide(tiny(), scaled, now=at(11)).start is not None


def test_node_operations_in_flight_mean_unrest_until_their_outcome() -> None:
    """A boot or a deletion that was intended and has no outcome; other steps do not count."""

    def stable(*steps: log.Timed) -> bool:
        execution = ((0.0, "it-1", log.started("reschedule")), (1.0, "it-1", log.accepted()))
        return decide(tiny(), view(*execution, *steps), now=at(100), memory=SETTLED).memory == SETTLED

    boot = (2.0, "it-1", log.intended("boot"))
    assert not stable(boot)
    assert not stable((2.0, "it-1", log.intended("delete")))
    assert stable(boot, (3.0, "it-1", log.done()))
    assert not stable(boot, (3.0, "it-1", log.failed(retry=True)))
    assert stable(boot, (3.0, "it-1", log.failed(retry=False)))
    assert stable((2.0, "it-1", log.intended("surge-up")))


def test_an_iteration_that_never_ends_is_given_up_after_its_deadline() -> None:
    """15 min without a decision, an hour on approval, four hours of execution: then a new one may begin."""
    begun = (0.0, "it-1", log.started("reschedule"))
    cases: list[tuple[tuple[log.Timed, ...], float]] = [
        ((), 900.0),
        (((10.0, "it-1", log.held()),), 3610.0),
        (((10.0, "it-1", log.accepted()),), 14410.0),
    ]
    for more, deadline in cases:
        story = view(begun, *more)
        assert refusal(decide(tiny(), story, now=at(deadline - 1))) == "iteration-running"
        assert decide(tiny(), story, now=at(deadline)).start is not None


def test_a_second_iteration_on_one_version_has_an_id_of_its_own() -> None:
    """Ids derive from version and log, so that a crash before publishing leads to the same id again."""
    once = view((0.0, "it-1", log.started("reschedule")), (1.0, "it-1", log.none()))
    assert decide(tiny(), once, now=at(100)).iteration == "it-1-2"
    assert decide(tiny(), once, now=at(100)) == decide(tiny(), once, now=at(100))
    twice = view((0.0, "it-1", log.started("autoscale")), (0.0, "it-1-2", log.started("reschedule", 1)))
    assert decide(tiny(), twice, now=at(20_000)).iteration == "it-1-3"


# --- autoscale


def test_unschedulable_pods_start_an_autoscale_iteration_at_once() -> None:
    """Neither stability nor an interval is waited for."""
    decision = decide(with_pending("b", "a"), memory=Memory())
    assert decision.start is not None
    assert (decision.start.mode, decision.start.reason) == ("autoscale", "unschedulable-pods")
    assert decision.start.pods == ("shop/a", "shop/b")
    assert decision.start.figures == {"unschedulable": 2, "uncovered": 2}
    assert decision.iteration == "it-7"


def test_pods_that_a_running_autoscale_iteration_covers_start_no_other() -> None:
    """Only what is new is the reason for one; a running reschedule iteration covers nobody."""
    covering = view((0.0, "it-6", log.started("autoscale", 6, "shop/a")))
    assert refusal(decide(with_pending("a"), covering, now=at(1))) == "iteration-running"
    decision = decide(with_pending("a", "b"), covering, now=at(1))
    assert decision.start is not None
    assert decision.start.pods == ("shop/b",)
    assert decision.start.figures == {"unschedulable": 2, "uncovered": 1}
    other = view((0.0, "it-6", log.started("reschedule", 6)))
    assert decide(with_pending("a"), other, now=at(1)).start is not None


def test_pods_of_an_ended_autoscale_iteration_wait_before_the_next() -> None:
    """New nodes take a moment to be used, and what cannot be bought now cannot be bought a second later."""
    ended = view((0.0, "it-6", log.started("autoscale", 6, "shop/a")), (5.0, "it-6", log.none("autoscale")))
    soon = decide(with_pending("a"), ended, now=at(64.9), memory=Memory())
    assert refusal(soon) == "settling"
    assert decide(with_pending("a"), ended, now=at(65), memory=Memory()).start is not None


@pytest.mark.parametrize(("rule", "seconds"), [("drift", 30.0), ("executing", 30.0), ("feasible", 60.0)])
def test_an_untimely_autoscale_plan_is_asked_for_again_after_the_settle_time(rule: str, seconds: float) -> None:
    """It brought its pods nothing, and nothing was said against it but that something else had come first."""
    ended = view((0.0, "it-6", log.started("autoscale", 6, "shop/a")), (5.0, "it-6", log.refused(rule)))
    assert decide(with_pending("a"), ended, now=at(4.9 + seconds), memory=Memory()).start is None
    assert decide(with_pending("a"), ended, now=at(5 + seconds), memory=Memory()).start is not None
    slow = decide(with_pending("a"), ended, now=at(65), memory=Memory(), stabilization_window_seconds=600)
    assert slow.start is not None, "never longer than after any other end"


@pytest.mark.parametrize("mode", ["reschedule", "autoscale"])
def test_nothing_is_solved_for_pods_that_wait_while_a_plan_is_carried_out(mode: Mode) -> None:
    """Their plan would be refused for it. They are told to wait, and are next as soon as it has ended."""
    running = ((0.0, "it-5", log.started(mode, 5)), (1.0, "it-5", log.accepted()))
    assert decide(with_pending("a"), view(*running[:1]), now=at(1)).start is not None
    decision = decide(with_pending("a"), view(*running), now=at(64))
    assert refusal(decision) == "iteration-running"
    assert figures(decision)["phase"] == "executing"
    for end in (log.finished(), log.aborted()):
        after = decide(with_pending("a"), view(*running, (64.0, "it-5", end)), now=at(64), memory=Memory())
        assert after.start is not None
        assert after.start.mode == "autoscale"


def test_an_untimely_autoscale_plan_waits_while_another_is_carried_out() -> None:
    """No storm of solves for the hours that an execution may take; after it no time is lost."""
    other = ((0.0, "it-5", log.started("reschedule", 5)), (1.0, "it-5", log.accepted()))
    refused = ((2.0, "it-6", log.started("autoscale", 6, "shop/a")), (5.0, "it-6", log.refused("executing")))
    running = view(*other, *refused)
    assert decide(with_pending("a"), running, now=at(64)).start is None
    over = view(*other, *refused, (40.0, "it-5", log.finished()))
    assert decide(with_pending("a"), over, now=at(40)).start is not None


def test_pods_that_a_new_node_would_not_help_do_not_count() -> None:
    """Not yet tried, on their way to a place, going, gated, or a daemon set's."""
    gated = PlacementRules(gated=True)
    _, running = on_every_node("logger", ["n1"])
    assert isinstance(running, Pod)
    daemon = msgspec.structs.replace(running, node=None, unschedulable=True)
    waiting = cluster(
        pod("fresh", unschedulable=False),
        pod("nominated", nominated="n1"),
        pod("going", terminating=True),
        pod("gated", rules=gated),
        daemon,
    )
    decision = decide(waiting)
    assert decision.start is not None
    assert decision.start.mode == "reschedule"


# --- disrupted nodes


def test_an_empty_disrupted_node_is_asked_to_go() -> None:
    """Daemon set and mirror pods go with their node and do not keep it; the loop goes on besides."""
    nodes = [node("n1"), node("n2", labels=DISRUPTED_LABELS)]
    empty = cluster(nodes, on_every_node("logger", ["n1", "n2"]), mirror("proxy", node="n2"), deployed("web", ["n1"]))
    decision = decide(empty)
    assert [(item.node, item.uid, item.version) for item in decision.deletions] == [("n2", "uid-node-n2", 1)]
    assert decision.start is not None


def test_while_a_disrupted_node_holds_a_workload_nothing_is_rescheduled() -> None:
    """Terminating pods still run and count. Pods that wait get their node nevertheless: the mark may be a leftover."""
    busy = cluster(node("n1"), node("n2", labels=DISRUPTED_LABELS), deployed("web", ["n1", "n2", "n2"]))
    decision = decide(busy)
    assert refusal(decision) == "disrupted-node-occupied"
    assert figures(decision) == {"node": "n2", "pods": 2, "nodes": 1}
    assert decision.deletions == ()
    going = cluster(node("n2", labels=DISRUPTED_LABELS), pod("web-0", node="n2", terminating=True))
    assert refusal(decide(going)) == "disrupted-node-occupied"
    waiting = decide(cluster(list(all_objects(busy)), pod("waits")))
    assert waiting.start is not None
    assert waiting.start.mode == "autoscale"


def test_an_unreadable_pod_keeps_its_disrupted_node() -> None:
    """What could not be read may be a workload."""
    odd = cluster(node("n2", labels=DISRUPTED_LABELS), unreadable("Pod shop/odd", node="n2"))
    decision = decide(odd)
    assert (refusal(decision), decision.deletions) == ("disrupted-node-occupied", ())


def test_a_pod_that_may_run_anywhere_keeps_every_disrupted_node() -> None:
    """Neither its node nor its namespace could be read: the node that is asked to go may be its own."""
    odd = cluster(node("n1"), node("n2", labels=DISRUPTED_LABELS), unreadable("Pod unnamed-1", namespace=""))
    decision = decide(odd)
    assert (refusal(decision), decision.deletions) == ("disrupted-node-occupied", ())


def test_one_empty_disrupted_node_is_asked_for_beside_an_occupied_one() -> None:
    """Each node is judged alone."""
    nodes = [node("n1", labels=DISRUPTED_LABELS), node("n2", labels=DISRUPTED_LABELS)]
    decision = decide(cluster(nodes, deployed("web", ["n1"])))
    assert [item.node for item in decision.deletions] == ["n2"]
    assert refusal(decision) == "disrupted-node-occupied"


def test_a_deletion_is_asked_for_once_and_again_after_a_while() -> None:
    """The log remembers; a node of the same name with another uid is another node."""
    empty = cluster(node("n2", labels=DISRUPTED_LABELS))
    (asked,) = decide(empty).deletions
    remembered = view((0.0, "", asked))
    assert decide(empty, remembered, now=at(599)).deletions == ()
    assert decide(empty, remembered, now=at(600)).deletions == (asked,)
    renewed = cluster(msgspec.structs.replace(node("n2", labels=DISRUPTED_LABELS), uid="uid-other"))
    assert len(decide(renewed, remembered, now=at(1)).deletions) == 1


# --- refusals


def test_a_refusal_is_told_when_its_reason_changes_or_after_five_minutes() -> None:
    """Every refusal is an event, but not at every tick."""
    unstable = cluster(replica_set("web", replicas=2, ready=1))
    told = IterationSkipped(version=1, reason="restless")
    story = view((0.0, "", told))
    assert decide(unstable, story, now=at(299)).skip is None
    assert refusal(decide(unstable, story, now=at(300))) == "restless"
    assert refusal(decide(tiny(), story, now=at(1), memory=Memory())) == "settling"


def test_after_a_start_the_next_refusal_is_told_anew() -> None:
    """What was told before the iteration says nothing about the time after it."""
    told = IterationSkipped(version=1, reason="iteration-running")
    story = view((0.0, "", told), (1.0, "it-1", log.started("reschedule")))
    assert refusal(decide(tiny(), story, now=at(2))) == "iteration-running"


def test_nothing_is_decided_on_a_state_that_may_be_out_of_date() -> None:
    """No start, no deletion; stability begins to count anew."""
    empty = cluster(node("n2", labels=DISRUPTED_LABELS), pod("waits"))
    decision = decide(empty, blind=("Pod: no answer",))
    assert refusal(decision) == "state-unknown"
    assert figures(decision) == {"missing": "Pod: no answer"}
    assert (decision.deletions, decision.memory) == ((), Memory())
