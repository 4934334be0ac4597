"""Each rule of the decider, at its boundary."""

from __future__ import annotations

from datetime import time, timedelta
from typing import get_args

import msgspec
import pytest
from msgspec.structs import replace
from tests.decider.cases import PLAN_ID, PROPOSED, Court, event, halved, refusal
from tests.support.builders import NOW, amounts, cluster, deployed, full, node, offer, offers
from tests.support.plans import plan_for

from kinema_core.events import (
    CatalogPublished,
    ExecutionAborted,
    ExecutionCompleted,
    ExecutionPaused,
    ExecutionResumed,
    FrozenMap,
    Node,
    Plan,
    PlanAccepted,
    PlanApprovalRequested,
    PlanApproved,
    PlanRejected,
    PlanStep,
    Pod,
    Purpose,
    Resize,
)
from kinema_core.model.cluster import Cluster, all_objects, from_objects
from kinema_core.model.purpose import purpose_of
from kinema_core.model.schedule import Schedule
from kinema_core.model.spot_share import SpotShare
from kinema_core.runtime.stage import Moment
from kinema_decider.logic.decision_input import DecisionInput
from kinema_decider.logic.limits import Limits
from kinema_decider.logic.memory import Memory
from kinema_decider.logic.rules import RULES


async def test_good_plan_is_accepted_with_its_figures() -> None:
    """A plan that no rule objects to is accepted, with cost before and after on the state of now."""
    before, plan = halved()
    body = await Court().judge(plan, before)
    assert isinstance(body, PlanAccepted)
    assert body.plan == PLAN_ID
    assert body.version == 7
    assert body.figures["cost_now_usd_per_hour"] == 0.34
    assert body.figures["cost_new_usd_per_hour"] == 0.17


def test_rules_come_in_this_order() -> None:
    """The order is part of the answer: the operator's word before money, approval last."""
    names = [rule.__name__ for rule, _ in RULES]
    assert names[:3] == ["nothing_to_do", "paused", "executing"]
    assert names.index("drift") < names.index("saving") < names.index("feasible") < names.index("payback")
    assert names[-1] == "approval"


async def test_saving_plan_is_refused_on_a_state_that_contradicts_itself() -> None:
    """Where controllers count Ready replicas whose pods are not in the state, no plan that saves is executed."""
    whole = [node("n1"), node("n2"), node("n3"), node("n4"), *deployed("web", ["n1", "n2", "n3", "n4"], cpu=500)]
    emptied = cluster(*[item for item in whole if not isinstance(item, Pod)], version=7)
    plan = plan_for(emptied, offers(), delete=["n1", "n2", "n3", "n4"])
    found = await refusal(Court(), plan, emptied)
    assert found.rule == "pods-missing"
    assert found.figures == {"missing": 4, "expected": 4, "missing_share": 0.1}
    assert isinstance(await Court(missing_share=1.0).judge(plan, emptied), PlanAccepted)
    homeless = cluster(*[item for item in whole if not isinstance(item, Node)], node("n4"), version=7)
    assert (await refusal(Court(), plan_for(homeless, offers(), delete=["n4"]), homeless)).rule == "nodes-missing"


async def test_plan_that_changes_nothing_is_refused() -> None:
    """Nothing-better, infeasible and empty plans have nothing to be carried out."""
    before, _ = halved()
    plan = plan_for(before, offers(), status="nothing-better")
    assert (await refusal(Court(), plan, before)).rule == "nothing-to-do"
    assert (await refusal(Court(), replace(plan, status="feasible"), before)).rule == "nothing-to-do"


async def test_pause_refuses_until_resumed() -> None:
    """While paused every plan is refused; resuming ends that."""
    before, plan = halved()
    court = Court()
    court.tell(ExecutionPaused(by="ann", reason="holiday"), "pause-1")
    refused = await refusal(court, plan, before)
    assert refused.rule == "paused"
    assert "holiday" in refused.reason
    court.tell(ExecutionResumed(by="ann"), "resume-1")
    assert isinstance(await court.judge(plan, before, id_="it-2/optimizer/0"), PlanAccepted)


async def test_only_one_plan_is_carried_out() -> None:
    """A second plan is refused while the first runs, also when the first was accepted a moment ago."""
    before, plan = halved()
    court = Court(cooldown_seconds=0)
    assert isinstance(await court.judge(plan, before), PlanAccepted)
    second = await court.judge(plan, before, id_="it-2/optimizer/0")
    assert isinstance(second, PlanRejected)
    assert second.rule == "executing"
    court.tell(ExecutionCompleted(plan=PLAN_ID, fencing=1), "end-1")
    assert isinstance(await court.judge(plan, before, id_="it-3/optimizer/0"), PlanAccepted)


@pytest.mark.parametrize(("passed", "accepted"), [(59.9, False), (60.0, True)])
async def test_cooldown_ends_after_its_seconds(passed: float, accepted: bool) -> None:
    """An execution's end is followed by a rest of exactly cooldown_seconds, whether it finished or aborted."""
    before, plan = halved()
    court = Court(cooldown_seconds=60)
    court.tell(PlanAccepted(plan="old", version=1), "accept-old")
    court.tell(ExecutionAborted(plan="old", fencing=1, reason="deadline", detail=""), "end-1")
    body = await court.judge(plan, before, after=passed)
    assert isinstance(body, PlanAccepted) is accepted
    if isinstance(body, PlanRejected):
        assert body.rule == "cooldown"


@pytest.mark.parametrize(("vain", "rest"), [(0, 60), (1, 60), (2, 120), (3, 240), (4, 300), (50, 300)])
async def test_the_rest_grows_with_executions_in_vain(vain: int, rest: int) -> None:
    """What met an obstacle that no state tells of will meet it again: it is tried ever more rarely, up to a limit."""
    before, plan = halved()
    for passed, accepted in ((rest - 0.1, False), (rest, True)):
        court = Court(cooldown_seconds=60, max_cooldown_seconds=300)
        skipped = ExecutionCompleted(plan="old", fencing=1, figures=FrozenMap(workloads_skipped=1))
        done = ExecutionCompleted(plan="old", fencing=1)
        for number, end in enumerate([skipped, done, *[skipped] * vain]):
            court.tell(PlanAccepted(plan="old", version=1), f"accept-{number}")
            court.tell(end, f"end-{number}")
        assert isinstance(await court.judge(plan, before, after=passed), PlanAccepted) is accepted


async def test_end_of_something_else_starts_no_cooldown() -> None:
    """A single node's deletion, which nobody accepted, is no execution to rest from."""
    before, plan = halved()
    court = Court()
    court.tell(ExecutionCompleted(plan="a-node", fencing=1), "end-1")
    assert isinstance(await court.judge(plan, before), PlanAccepted)


@pytest.mark.parametrize(("delegated", "accepted"), [(False, False), (True, True)])
async def test_a_candidate_of_cluster_autoscaler_goes_only_where_it_deletes_for_us(
    delegated: bool, accepted: bool
) -> None:
    """It marks each node that a plan empties: beside it such a node is off-limits, with it that is as planned."""
    before, plan = halved()
    marked = node("n2", taints=["DeletionCandidateOfClusterAutoscaler=1:PreferNoSchedule"])
    now = from_objects([item if item.key != "n2" else marked for item in all_objects(before)], 8)
    court = Court()
    court.tell(CatalogPublished(source="test", priced=None, offers=offers(), delegated=delegated), "catalog-2")
    body = await court.judge(plan, now)
    assert isinstance(body, PlanAccepted) is accepted, body


async def test_without_prices_nothing_is_compared() -> None:
    """No catalog, a live node without price, or an offer that is not on sale any more refuse the plan."""
    before, plan = halved()
    court = Court()
    court.tell(CatalogPublished(source="test", priced=None, offers=(offer("m9"),)), "catalog-2")
    refused = await refusal(court, plan, before)
    assert refused.rule == "priced"
    assert "n1" in refused.reason
    before = cluster(node("n1", price="0.2"), node("n2", price="0.2"), deployed("web", ["n1", "n2"], cpu=500))
    plan = plan_for(
        before,
        offers(),
        to={"shop/web-0": "k1", "shop/web-1": "k1"},
        boot={"k1": "m2/a/on-demand"},
        delete=["n1", "n2"],
    )
    refused = await refusal(court, plan, before)
    assert refused.rule == "priced"
    assert "m2/a/on-demand" in refused.reason


@pytest.mark.parametrize(("price", "accepted"), [("0.09", True), ("0.090001", False)])
async def test_saving_is_measured_exactly_against_the_cost_of_now(price: str, accepted: bool) -> None:
    """New cost ≤ (1 − 0.10) × 0.10 USD/h: 0.09 saves enough, one micro-USD more does not (thesis, algorithm 7)."""
    keep = node("n1", price=price)
    rest = f"{0.1 - float(price):.6f}"
    before = cluster(keep, node("n2", price=rest), deployed("web", ["n1", "n2"], cpu=500))
    plan = plan_for(before, offers(), to={"shop/web-1": "n1"}, delete=["n2"])
    body = await Court(min_savings_fraction=0.10).judge(plan, before)
    assert isinstance(body, PlanAccepted) is accepted, body
    if isinstance(body, PlanRejected):
        assert body.rule == "saving"
        assert "0.090000" in body.would_change


async def test_saving_is_measured_on_the_state_of_now() -> None:
    """A plan that promised to halve the cost is refused when the node it would delete is gone already."""
    before, plan = halved()
    now = from_objects([item for item in all_objects(before) if item.key not in {"n2", "shop/web-1"}], 8)
    refused = await refusal(Court(max_drift_fraction=1.0, missing_share=1.0), plan, now)
    assert refused.rule == "saving"
    assert refused.figures["cost_now_usd_per_hour"] == refused.figures["cost_new_usd_per_hour"] == 0.17


async def test_a_plan_that_is_dearer_by_now_is_not_said_to_save() -> None:
    """Where the cluster of now costs less than the plan, the refusal says so: no `min_savings_fraction` would help."""
    before = cluster(node("n1", price="0.10"), node("n2", price="0.05"), deployed("web", ["n1", "n2"], cpu=500))
    plan = plan_for(before, offers(), to={"shop/web-1": "n1"}, boot={"new": "m4/a/on-demand"}, delete=["n2"])
    refused = await refusal(Court(max_drift_fraction=1.0), plan, before)
    assert refused.rule == "saving"
    assert refused.reason.endswith("USD/h after the plan against 0.150000 now would cost more")
    assert "min_savings_fraction" not in refused.would_change


async def test_plan_that_does_not_fit_any_more_is_refused() -> None:
    """New pods on a kept node may take the room that the plan needs: then it is refused."""
    before, plan = halved()
    now = from_objects([*all_objects(before), *deployed("greedy", ["n1"], cpu=3400)], 8)
    refused = await refusal(Court(max_drift_fraction=1.0), plan, now)
    assert refused.rule == "feasible"


async def test_new_pod_takes_the_place_of_a_vanished_one_of_its_owner() -> None:
    """A pod that was replaced since the plan was made is moved in its place; a stranger has none, and refuses it."""
    before, plan = halved()
    gone = [item for item in all_objects(before) if item.key != "shop/web-1"]
    old = before.pod("shop/web-1")
    assert old is not None
    heir = replace(old, name="web-rs-9", uid="uid-new")
    same_owner = replace(
        plan, placements=tuple(replace(p, pod=p.pod.replace("web-", "web-rs-")) for p in plan.placements)
    )
    body = await Court(max_drift_fraction=1.0).judge(same_owner, from_objects([*gone, heir], 8))
    assert isinstance(body, PlanAccepted), body
    stranger = replace(old, name="other-9", uid="uid-other")
    refused = await refusal(Court(max_drift_fraction=1.0), plan, from_objects([*gone, stranger], 8))
    assert refused.rule == "feasible"
    assert "shop/other-9" in refused.reason


def swapped() -> tuple[Cluster, Plan]:
    """One m4 node (0.17) is replaced by an m2 (0.085) for its one pod."""
    before = cluster(node("n1"), node("n2"), deployed("web", ["n1", "n2"], cpu=500))
    to = {"shop/web-0": "k1", "shop/web-1": "k1"}
    return before, plan_for(before, offers(), to=to, boot={"k1": "m2/a/on-demand"}, delete=["n1", "n2"])


@pytest.mark.parametrize(("life", "accepted"), [(100, True), (99, False)])
async def test_change_must_pay_back_while_it_lasts(life: int, accepted: bool) -> None:
    """Saving 0.255 USD/h: 300 s of a 0.085 node side by side are earned after exactly 100 s."""
    before, plan = swapped()
    court = Court(expected_plan_lifetime_seconds=life, transition_seconds=300, restart_price_usd=0.0)
    body = await court.judge(plan, before)
    assert isinstance(body, PlanAccepted) is accepted, body
    if isinstance(body, PlanRejected):
        assert body.rule == "payback"


@pytest.mark.parametrize(("price", "accepted"), [(4250, True), (4251, False)])
async def test_lower_requests_pay_back_by_the_room_that_they_free(price: int, accepted: bool) -> None:
    """A resize alone saves no node: it is worth the share of the nodes' price that it frees, 1/8 of 0.068 USD/h."""
    before = cluster(
        node("n1", price="0.068", cpu=4000, memory=4096), deployed("web", ["n1"] * 2, cpu=1000, memory=512)
    )
    web = "Deployment/shop/web"
    lower = Resize(workload=web, requests_before=amounts(1000, 512, pods=1), requests_after=amounts(500, 512, pods=1))
    still = plan_for(before, offers())
    rolled = [replace(one, strategy="rolling", requests=lower.requests_after) for one in still.placements]
    steps = tuple(PlanStep(wave=1, action="move", node="n1", pod=one.pod) for one in rolled)
    plan = replace(still, status="feasible", placements=tuple(rolled), restarts=2, resizes=(lower,), steps=steps)
    body = await Court(restart_price_usd=price / 1e6, expected_plan_lifetime_seconds=3600).judge(plan, before)
    assert isinstance(body, PlanAccepted) is accepted, body
    if isinstance(body, PlanRejected):
        assert body.rule == "payback"


def resizing(resizable: tuple[str, ...]) -> tuple[Cluster, Plan]:
    """Twenty pods get half their CPU where they are."""
    before = cluster(
        node("n1", price="0.068", cpu=16_000), deployed("web", ["n1"] * 20, cpu=400, memory=64, resizable=resizable)
    )
    plan = plan_for(before, offers(), resizes={"Deployment/shop/web": {"cpu": 200}})
    steps = tuple(PlanStep(wave=1, action="move", node="n1", pod=one.pod) for one in plan.placements)
    return before, replace(plan, status="feasible", steps=steps)


async def test_pods_that_run_on_with_other_requests_are_no_disruption() -> None:
    """Where nothing may restart and a restart is dear, requests fall; where kubelets do not resize, they stay."""
    strict = {"max_moves_fraction": 0.0, "restart_price_usd": 1.0}
    before, plan = resizing(("cpu",))
    assert plan.restarts == 0
    assert isinstance(await Court(**strict).judge(plan, before), PlanAccepted)
    assert (await refusal(Court(**strict, resize_in_place=False), plan, before)).rule == "payback"
    before, plan = resizing(())
    assert plan.restarts == 20
    assert (await refusal(Court(max_moves_fraction=0.0, restart_price_usd=0.0), plan, before)).rule == "budget"


@pytest.mark.parametrize(("names", "only"), [((), True), (("web",), True), (("web", "api"), False)])
def test_pods_that_restart_for_new_requests_may_change_their_node(names: tuple[str, ...], only: bool) -> None:
    """Such a plan changes requests and nothing else; one that moves another pod has to save."""
    pods = deployed("web", ["n1"] * 2, cpu=1000), deployed("api", ["n2"], cpu=3000)
    before = cluster(node("n1", price="0.068"), node("n2", price="0.068"), *pods)
    after = amounts(900, 128, pods=1)
    lower = Resize(workload="Deployment/shop/web", requests_before=amounts(1000, 128, pods=1), requests_after=after)
    still = plan_for(before, offers())
    moving = tuple(
        replace(one, to="n1" if one.to == "n2" else "n2") if one.pod.split("/")[1].startswith(names) else one
        for one in still.placements
    )
    plan = replace(still, placements=moving, resizes=(lower,))
    case = DecisionInput(
        id="p", plan=plan, proposed=NOW, approved=False, memory=Memory(), cluster=before, now=NOW, limits=Limits()
    )
    assert case.only_resizes is only


@pytest.mark.parametrize(("life", "accepted"), [(200, True), (199, False)])
async def test_temporary_nodes_have_to_pay_back_too(life: int, accepted: bool) -> None:
    """With a second 0.085 node on the way, the same saving needs twice the time."""
    before, plan = swapped()
    booted = next(item for item in plan.nodes if item.action == "boot")
    plan = msgspec.structs.replace(plan, temporary=(msgspec.structs.replace(booted, name="way"),))
    court = Court(expected_plan_lifetime_seconds=life, transition_seconds=300, restart_price_usd=0.0)
    body = await court.judge(plan, before)
    assert isinstance(body, PlanAccepted) is accepted, body


async def test_stops_are_restarts() -> None:
    """A pod that moves twice is restarted twice."""
    before, plan = swapped()
    steps = [PlanStep(wave=wave, action="move", node="k1", pod=pod) for wave, pod in ((1, "a"), (2, "a"), (2, "b"))]
    plan = msgspec.structs.replace(plan, steps=tuple(steps))
    refused = await refusal(Court(restart_price_usd=0.2), plan, before)
    assert refused.figures["restarts"] == 3


async def test_restarts_have_a_price() -> None:
    """Two moves at 0.1 USD each are more than an hour of the saving."""
    before, plan = swapped()
    refused = await refusal(Court(restart_price_usd=0.2), plan, before)
    assert refused.rule == "payback"
    assert refused.figures["restarts_usd"] == 0.4


@pytest.mark.parametrize(
    ("start", "end", "accepted"), [("11:00", "13:00", True), ("12:00", "12:01", True), ("13:00", "12:00", False)]
)
async def test_plans_keep_the_operators_windows(start: str, end: str, accepted: bool) -> None:
    """At noon a window from 11 to 13 is open; one from 13 to noon the next day has just closed."""
    before, plan = halved()
    window = Schedule(start=time.fromisoformat(start), end=time.fromisoformat(end))
    body = await Court(windows=(window,)).judge(plan, before, after=0)
    assert isinstance(body, PlanAccepted) is accepted, body
    if isinstance(body, PlanRejected):
        assert body.rule == "window"


def test_window_past_midnight_belongs_to_the_day_it_opens() -> None:
    """22:00 to 02:00 on Mondays is open at 01:00 on Tuesday and closed at 01:00 on Monday."""
    window = Schedule(days=("mon",), start=time(22), end=time(2))
    monday = PROPOSED.replace(hour=1)
    assert monday.weekday() == 0
    assert not window.contains(monday)
    assert window.contains(monday + timedelta(days=1))
    assert window.contains(monday.replace(hour=22))
    assert not window.contains(monday.replace(hour=21))


@pytest.mark.parametrize(("most", "accepted"), [(0.5, True), (0.49, False), (1.0, True)])
async def test_budget_limits_the_share_of_moved_pods(most: float, accepted: bool) -> None:
    """20 of 40 pods move: exactly half is within a budget of 0.5."""
    before, plan = _halved_often()
    body = await Court(max_moves_fraction=most, restart_price_usd=0.0).judge(plan, before)
    assert isinstance(body, PlanAccepted) is accepted, body
    if isinstance(body, PlanRejected):
        assert body.rule == "budget"


def _halved_often() -> tuple[Cluster, Plan]:
    """Twenty small pods on each of two nodes become forty on one."""
    before = cluster(node("n1"), node("n2"), *deployed("web", ["n1"] * 20 + ["n2"] * 20, cpu=50), version=7)
    return before, plan_for(before, offers(), to={f"shop/web-{n}": "n1" for n in range(20, 40)}, delete=["n2"])


async def test_budget_lets_the_only_node_of_a_cluster_be_replaced() -> None:
    """Twenty pods share a node: no part of them would let it go, so that all of them may move, unless none may."""
    before = cluster(node("n1"), *deployed("web", ["n1"] * 20, cpu=50), version=7)
    to = {f"shop/web-{n}": "new" for n in range(20)}
    plan = plan_for(before, offers(), to=to, boot={"new": offers()[0].name}, delete=["n1"])
    assert isinstance(await Court(restart_price_usd=0.0).judge(plan, before), PlanAccepted)
    assert (await refusal(Court(restart_price_usd=0.0, max_moves_fraction=0.0), plan, before)).rule == "budget"


async def test_budget_of_a_small_cluster_lets_it_empty_a_node() -> None:
    """Ten pods may move however small a share is set, as long as any may; the default share is a quarter."""
    before, plan = halved()
    assert isinstance(await Court().judge(plan, before), PlanAccepted)
    assert isinstance(await Court(max_moves_fraction=0.01).judge(plan, before), PlanAccepted)
    assert (await refusal(Court(max_moves_fraction=0.0), plan, before)).rule == "budget"
    before, plan = _halved_often()
    refused = await refusal(Court(restart_price_usd=0.0), plan, before)
    assert (refused.rule, refused.figures["touched"], refused.figures["pods"]) == ("budget", 20, 40)


async def test_operator_may_approve_more_than_the_budget() -> None:
    """The share limits what Kinema does by itself; a plan that an operator approved was shown to the operator."""
    before, plan = _halved_often()
    strict = Court(approval="required", restart_price_usd=0.0)
    strict.tell(plan, PLAN_ID)
    strict.tell(PlanApprovalRequested(plan=PLAN_ID, version=7, rule="approval", reason="", would_change=""), "held")
    wish = event(PlanApproved(plan=PLAN_ID, by="ann"), "approve-1")
    assert isinstance(await strict.answer_to(wish, before, PROPOSED), PlanAccepted)


async def test_by_default_what_can_wait_waits_for_an_operator() -> None:
    """Nothing that only saves happens without a word; room for pending pods comes at once."""
    assert Limits().approval == "required"
    before, plan = halved()
    court = Court(**{name: getattr(Limits(), name) for name in ("approval", "max_moves_fraction")})
    held = await court.judge(plan, before)
    assert isinstance(held, PlanApprovalRequested)
    assert f"kinema approve {PLAN_ID}" in held.would_change
    crowded = full()
    room = plan_for(crowded, offers(), to={"shop/batch-0": "k1"}, boot={"k1": "m2/a/on-demand"}, mode="autoscale")
    assert isinstance(await court.judge(room, crowded, id_="it-2/optimizer/0"), PlanAccepted)


async def test_approval_holds_a_plan_until_it_is_approved() -> None:
    """Held, approved long after the plan's own age limit, then accepted."""
    before, plan = halved()
    court = Court(approval="required", max_plan_age_seconds=60, approval_seconds=1000)
    held = await court.judge(plan, before)
    assert isinstance(held, PlanApprovalRequested)
    assert PLAN_ID in held.would_change
    wish = event(PlanApproved(plan=PLAN_ID, by="ann"), "approve-1", PROPOSED + timedelta(seconds=900))
    body = await court.answer_to(wish, before, wish.time)
    assert isinstance(body, PlanAccepted)
    assert body.plan == PLAN_ID


async def test_approved_plan_is_judged_again() -> None:
    """Approval does not overrule the other rules, nor does it last for ever."""
    before, plan = halved()
    court = Court(approval="required", approval_seconds=1000)
    await court.judge(plan, before)
    wish = event(PlanApproved(plan=PLAN_ID, by="ann"), "approve-1")
    court.tell(ExecutionPaused(by="bob"), "pause-1")
    body = await court.answer_to(wish, before, PROPOSED + timedelta(seconds=10))
    assert isinstance(body, PlanRejected)
    assert body.rule == "paused"
    late = Court(approval="required", approval_seconds=1000)
    await late.judge(plan, before)
    body = await late.answer_to(wish, before, PROPOSED + timedelta(seconds=1001))
    assert isinstance(body, PlanRejected)
    assert body.rule == "age"


async def test_approving_what_is_not_held_is_refused_or_ignored() -> None:
    """An unknown id is refused by name; a plan that was accepted already is left alone."""
    before, plan = halved()
    court = Court()
    wish = event(PlanApproved(plan="nothing", by="ann"), "approve-1")
    body = await court.answer_to(wish, before, PROPOSED)
    assert isinstance(body, PlanRejected)
    assert body.rule == "not-held"
    await court.judge(plan, before)
    again = event(PlanApproved(plan=PLAN_ID, by="ann"), "approve-2")
    assert await court.decider.handle(again, before, Moment(now=PROPOSED)) == ()


async def test_autoscale_needs_only_to_be_feasible() -> None:
    """A plan that brings room costs more, comes in a cooldown, outside windows and without approval: accepted."""
    before = full()
    plan = plan_for(before, offers(), to={"shop/batch-0": "k1"}, boot={"k1": "m2/a/on-demand"}, mode="autoscale")
    closed = Schedule(start=time(3), end=time(4))
    court = Court(approval="required", windows=(closed,), cooldown_seconds=10_000)
    court.tell(PlanAccepted(plan="old", version=1), "accept-old")
    court.tell(ExecutionCompleted(plan="old", fencing=1), "end-1")
    assert isinstance(await court.judge(plan, before), PlanAccepted)


@pytest.mark.parametrize("purpose", ["safety", "room"])
async def test_plan_that_serves_workloads_need_not_save(purpose: Purpose) -> None:
    """A plan for safety or room may cost more, in a cooldown, outside windows and without approval; one to save not."""
    before, _ = halved()
    plan = replace(plan_for(before, offers(), boot={"k1": "m4/a/on-demand"}), purpose=purpose)
    closed = Schedule(start=time(3), end=time(4))
    court = Court(approval="required", windows=(closed,), cooldown_seconds=10_000)
    court.tell(PlanAccepted(plan="old", version=1), "accept-old")
    court.tell(ExecutionCompleted(plan="old", fencing=1), "end-1")
    assert (await refusal(court, replace(plan, purpose="saving"), before)).rule == "cooldown"
    assert isinstance(await court.judge(plan, before, id_="it-2/optimizer/0"), PlanAccepted)
    assert (await refusal(Court(), replace(plan, purpose="saving"), before)).rule == "saving"


@pytest.mark.parametrize("purpose", ["balance", "policy"])
async def test_plan_that_balances_or_follows_a_policy_can_wait(purpose: Purpose) -> None:
    """It need not save, but it waits for approval, windows and rest as one that saves does."""
    before, _ = halved()
    plan = replace(plan_for(before, offers(), boot={"k1": "m4/a/on-demand"}), purpose=purpose)
    assert isinstance(await Court().judge(plan, before), PlanAccepted)
    assert isinstance(await Court(approval="required").judge(plan, before), PlanApprovalRequested)
    assert (await refusal(Court(windows=(Schedule(start=time(3), end=time(4)),)), plan, before)).rule == "window"


def test_every_purpose_is_judged_on_the_present_state() -> None:
    """No purpose excuses a plan that is stale, infeasible, or proposed while Kinema is paused."""
    for purpose in get_args(Purpose):
        judged = {rule.__name__ for rule, purposes in RULES if purpose in purposes}
        assert judged >= {"nothing_to_do", "paused", "executing", "age", "priced", "drift", "feasible"}


def test_plans_of_before_have_the_purpose_of_their_mode() -> None:
    """An event without a purpose reads as room where it is autoscale, else as saving."""
    before, plan = halved()
    assert purpose_of(replace(plan, purpose=None)) == "saving"
    assert purpose_of(replace(plan, purpose=None, mode="autoscale")) == "room"
    assert purpose_of(replace(plan, purpose="balance", mode="autoscale")) == "balance"
    assert before.version == plan.base_version


def test_limits_out_of_range_are_refused_by_name() -> None:
    """A limit that cannot be meant is refused with its name and what to give."""
    with pytest.raises(ValueError, match=r"limits\.min_savings_fraction is 10"):
        Limits(min_savings_fraction=10)
    with pytest.raises(ValueError, match=r"limits\.cooldown_seconds is -1"):
        Limits(cooldown_seconds=-1)


async def test_risky_restarts_cost_more() -> None:
    """A pod that counts as forty ordinary ones is not moved for a saving that would pay for one."""
    limits = {"restart_price_usd": 0.0001, "expected_plan_lifetime_seconds": 60.0}
    before, plan = halved()
    assert isinstance(await Court(**limits).judge(plan, before), PlanAccepted)
    risky = {"kinema.io/disruption-cost": "40"}
    before = cluster(node("n1"), node("n2"), deployed("web", ["n1", "n2"], cpu=500, annotations=risky))
    refused = await refusal(Court(**limits), plan, before)
    assert (refused.rule, refused.figures["restart_risk"], refused.figures["restarts"]) == ("payback", 40.0, 1)
    assert refused.figures["restarts_usd"] == 0.004


async def test_spot_shares_are_the_deciders_too() -> None:
    """A plan that brings more of a workload to spot capacity than the limits allow is refused."""
    spot = node("n2", spot=True, price="0.07")
    before = cluster(node("n1"), spot, *deployed("web", ["n1", "n2"], cpu=100), version=7)
    plan = plan_for(before, offers(), to={"shop/web-0": "n2"}, delete=["n1"])
    refused = await refusal(Court(allow_spot=True, spot=SpotShare(max_share=0.5)), plan, before)
    assert (refused.rule, refused.figures["first"]) == ("feasible", "spot-share")
    assert isinstance(await Court(allow_spot=True, spot=SpotShare(max_share=1.0)).judge(plan, before), PlanAccepted)
