"""One way at least to break each invariant of the events alone."""

from __future__ import annotations

from dataclasses import replace

from tests.history.record import History
from tests.history.spoiling import HOUR, after, ahead_of, changed, first, instead, spoils, without, word


@spoils("ids_are_unique")
def one_event_twice(history: History) -> History:
    """The same outcome is told twice."""
    outcome = first(history, "step-succeeded")
    return after(history, outcome, outcome)


@spoils("everything_has_a_cause")
def nobody_started_it(history: History) -> History:
    """The iteration that the plan answers is not in the log."""
    return without(history, first(history, "iteration-started"))


@spoils("everything_has_a_cause")
def out_of_nothing(history: History) -> History:
    """A step without a cause."""
    intent = first(history, "step-started")
    return instead(history, intent, replace(intent, cause=""))


@spoils("accepted_as_proposed")
def accepted_twice(history: History) -> History:
    """One plan is accepted a second time."""
    verdict = first(history, "plan-accepted")
    return after(history, verdict, replace(verdict, id="again"))


@spoils("accepted_as_proposed")
def held_and_accepted(history: History) -> History:
    """A plan that waits for an operator is accepted without one."""
    verdict = first(history, "plan-accepted")
    return ahead_of(history, verdict, replace(verdict, id="held", kind="plan-approval-requested"))


@spoils("approved_first")
def acts_without_approval(history: History) -> History:
    """The acceptance is missing."""
    return without(history, first(history, "plan-accepted"))


@spoils("not_while_paused")
def accepted_in_a_pause(history: History) -> History:
    """An operator has paused before."""
    return ahead_of(history, first(history, "plan-accepted"), word(history, "execution-paused", by="test"))


@spoils("one_plan_accepted")
def accepted_meanwhile(history: History) -> History:
    """Another plan is accepted before the first one has ended."""
    intent, verdict = first(history, "step-started"), first(history, "plan-accepted")
    return after(history, intent, changed(replace(verdict, id="again"), plan="other"))


@spoils("one_plan_at_a_time")
def two_plans_at_a_time(history: History) -> History:
    """A step of another plan in between."""
    intent = first(history, "step-started", "surge-up")
    return after(history, intent, changed(intent, plan="other"))


@spoils("ends_once")
def never_ends(history: History) -> History:
    """The end is missing."""
    return without(history, first(history, "execution-completed"))


@spoils("ends_once")
def acts_after_the_end(history: History) -> History:
    """A step behind the end."""
    return after(history, first(history, "execution-completed"), first(history, "step-started"))


@spoils("one_outcome_for_each_intent")
def effect_without_intent(history: History) -> History:
    """The intent of an effect is missing."""
    return without(history, first(history, "step-started", "evict"))


@spoils("one_outcome_for_each_intent")
def outcome_unknown(history: History) -> History:
    """The outcome of an effect is missing."""
    return without(history, first(history, "step-succeeded", "evict"))


@spoils("one_outcome_for_each_intent")
def two_outcomes(history: History) -> History:
    """A second outcome, of another kind."""
    outcome = first(history, "step-succeeded", "evict")
    return after(history, outcome, replace(outcome, id="again", kind="step-failed"))


@spoils("tried_in_order")
def tried_again_though_done(history: History) -> History:
    """A second attempt of what was done."""
    outcome = first(history, "step-succeeded", "evict")
    intent = first(history, "step-started", "evict")
    return after(history, outcome, changed(replace(intent, id="again"), attempt=2))


@spoils("fenced")
def earlier_holder_decides(history: History) -> History:
    """A step by a lower lease revision than the one before."""
    intent = first(history, "step-started", "surge-up")
    return instead(history, intent, changed(intent, fencing=0))


@spoils("in_time")
def long_after_its_deadline(history: History) -> History:
    """An outcome hours later than allowed."""
    outcome = first(history, "step-succeeded", "surge-up")
    return instead(history, outcome, replace(outcome, time=outcome.time + 3 * HOUR))


@spoils("ended_in_time")
def goes_on_for_half_a_day(history: History) -> History:
    """The end comes twelve hours after the acceptance."""
    end = first(history, "execution-completed")
    return instead(history, end, replace(end, time=end.time + 12 * HOUR))


@spoils("moved_once")
def evicted_twice(history: History) -> History:
    """Two evictions that were made name one pod."""
    outcome, intent = first(history, "step-succeeded", "evict"), first(history, "step-started", "evict")
    again = changed(replace(intent, id="again"), step_id="evict/again/9")
    return after(history, outcome, again, changed(replace(outcome, id="made"), step="evict/again/9"))


@spoils("only_planned_pods")
def evicts_a_held_pod(history: History) -> History:
    """The victim is one that the plan holds."""
    proposal, intent = first(history, "plan-proposed"), first(history, "step-started", "evict")
    pod = next(one["pod"] for one in proposal.body["placements"] if one["uid"] in intent.body["step"]["pods"])
    return instead(history, proposal, changed(proposal, held=[{"pod": pod, "code": "test", "reason": "test"}]))


@spoils("bought_once")
def boots_what_is_not_planned(history: History) -> History:
    """A node of another name is booted."""
    intent = first(history, "step-started", "boot")
    return instead(history, intent, changed(intent, step_target="other"))


@spoils("bought_once")
def boots_twice(history: History) -> History:
    """The same node is ordered by a second step."""
    intent = first(history, "step-started", "boot")
    return after(history, intent, changed(replace(intent, id="again"), step_id="boot/again"))


@spoils("room_first")
def moves_before_the_nodes_are_there(history: History) -> History:
    """A surge before the boot is done."""
    surge = first(history, "step-started", "surge-up")
    return ahead_of(without(history, surge), first(history, "step-succeeded", "boot"), surge)


@spoils("few_closed")
def counts_too_few_closed(history: History) -> History:
    """The end of the plan says that no node was ever closed."""
    end = first(history, "execution-completed")
    return instead(history, end, changed(end, figures={**end.body["figures"], "nodes_closed_most": 0}))


@spoils("few_closed")
def closes_all_at_once(history: History) -> History:
    """Every pod could go at once, and no node that was closed is gone before the end."""
    proposal, end = first(history, "plan-proposed"), first(history, "execution-completed")
    plan = changed(proposal, steps=[], placements=[])
    quiet = replace(history, state=())
    quiet = instead(quiet, end, changed(end, figures={}))
    return instead(quiet, proposal, plan)


@spoils("closed_first")
def deletes_an_open_node(history: History) -> History:
    """The node that is deleted was never closed."""
    target = first(history, "step-started", "delete").body["step"]["target"]
    closing = next(one for one in history.of("step-succeeded") if one.body["step"] == f"taint/{target}")
    return without(history, closing)


@spoils("nothing_new_after_an_abort")
def goes_on_after_an_abort(history: History) -> History:
    """An operator gives the plan up, and it is carried out all the same."""
    wish = word(history, "abort-requested", by="test")
    aborted = ahead_of(history, first(history, "step-started", "surge-up"), wish)
    return without(aborted, first(history, "execution-completed"))


@spoils("nothing_new_after_an_abort")
def goes_on_after_its_own_verdict(history: History) -> History:
    """The plan gives itself up, and goes on."""
    surge = first(history, "step-started", "surge-up")
    verdict = replace(surge, id="verdict", kind="step-failed", body={"plan": surge.plan, "step": "abort", "fencing": 9})
    return ahead_of(history, surge, verdict)


@spoils("taken_back")
def mark_left(history: History) -> History:
    """A taint on a node that is neither deleted nor untainted, and stays."""
    stays = tuple(changed(one, deletes=[]) if one.kind == "cluster-delta" else one for one in history.state)
    return replace(without(history, first(history, "step-succeeded", "delete")), state=stays)


@spoils("taken_back")
def steering_left(history: History) -> History:
    """A steering that is not taken back."""
    return without(history, first(history, "step-succeeded", "clear-preferred-nodes"))


@spoils("taken_back")
def steered_after_it_was_taken_back(history: History) -> History:
    """A steering that comes after all was taken back."""
    intent = first(history, "step-started", "clear-preferred-nodes")
    return ahead_of(without(history, intent), first(history, "step-started", "prefer-nodes"), intent)


@spoils("taken_back")
def surplus_left(history: History) -> History:
    """A surplus that is not taken away."""
    return without(history, first(history, "step-succeeded", "surge-down"))


@spoils("taken_back")
def template_left(history: History) -> History:
    """A rolled template that is not given back."""
    return without(history, first(history, "step-succeeded", "finalize-rollout"))


@spoils("counted_right")
def counts_one_more(history: History) -> History:
    """The end claims a boot that never was."""
    end = first(history, "execution-completed")
    return instead(history, end, changed(end, figures={**end.body["figures"], "booted": 99}))


@spoils("saves")
def makes_it_dearer(history: History) -> History:
    """The accepted plan costs more than what is there."""
    proposal = first(history, "plan-proposed")
    return instead(history, proposal, changed(proposal, cost={**proposal.body["cost"], "after": 99.0}))


@spoils("state_without_gaps")
def state_with_a_gap(history: History) -> History:
    """One delta is missing."""
    lost = next(one for one in history.state[3:] if one.kind == "cluster-delta")
    return replace(history, state=tuple(one for one in history.state if one is not lost))


@spoils("decided_on_fresh_state")
def decided_on_the_future(history: History) -> History:
    """A step decided on a version that nobody has observed."""
    intent = first(history, "step-started")
    return instead(history, intent, replace(intent, state=10_000))


@spoils("decided_on_fresh_state")
def decided_without_an_observer(history: History) -> History:
    """A step an hour after the last observation."""
    intent = list(history.of("step-started"))[-1]
    return instead(history, intent, replace(intent, time=intent.time + HOUR, state=0))
