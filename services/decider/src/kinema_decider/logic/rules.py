"""Rules that decide on a plan, in order: the first rejection is the answer.

The source is algorithm 7 of the thesis (saving, drift); the rest guards what the thesis leaves open. Each rule names
the purposes of the plans that it judges: one that raises requests, or brings room that is missing, need not save, pay
back, keep windows or rest, but it must still be feasible.
A plan is judged in the unit that it was made for: USD per hour, or W where energy was to be made small. Both are
compared in whole millionths and shares as fractions, so that a boundary falls the same way everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, TypeAlias

from kinema_core.events import Figures, FrozenMap, Purpose
from kinema_core.model.catalog import PriceError
from kinema_core.model.checker.check import check_drifted
from kinema_core.model.missing import missing_objects
from kinema_core.model.moves_limit import most_moves
from kinema_core.model.purpose import EVERY, OPTIONAL
from kinema_core.model.resizing import changed_pods
from kinema_decider.logic.decision_input import DecisionInput


@dataclass(frozen=True)
class Rejection:
    """Reason against executing a plan now, the figures behind it, and what would change the answer."""

    rule: str
    reason: str
    would_change: str
    figures: Figures


_REMEDY: Final = {
    "USD/h": "a catalog row or an annotation kinema.io/usd-per-hour for these nodes",
    "W": "watts in the catalog for these machine types",
}

Rule: TypeAlias = Callable[[DecisionInput], Rejection | None]

MICRO: Final = 1_000_000


def share(value: float) -> Fraction:
    """Return a fraction as it was written: 0.1 is exactly one tenth."""
    return Fraction(str(value))


def whole(micro: int | Fraction) -> float:
    """Return millionths of USD, W or Wh in that unit, to six decimals, for people."""
    return round(float(micro) / MICRO, 6)


def _reject(rule: str, reason: str, would_change: str, **figures: float | str) -> Rejection:
    return Rejection(rule=rule, reason=reason, would_change=would_change, figures=FrozenMap(figures))


def nothing_to_do(case: DecisionInput) -> Rejection | None:
    """Reject a plan that is no solution or changes nothing."""
    plan = case.plan
    boots = sum(1 for node in plan.nodes if node.action == "boot")
    deletes = sum(1 for node in plan.nodes if node.action == "delete")
    changes = boots + deletes + changed_pods(plan)
    if plan.status in {"optimal", "feasible"} and changes:
        return None
    return _reject(
        "nothing-to-do",
        f"the plan is {plan.status} and changes {changes} things",
        "a state for which a cheaper cluster can be found",
        status=plan.status,
        boots=boots,
        deletes=deletes,
        moves=plan.moves,
        restarts=plan.restarts,
        resizes=len(plan.resizes),
    )


def paused(case: DecisionInput) -> Rejection | None:
    """Reject every plan while the operator pauses executions."""
    pause = case.memory.paused
    if pause is None:
        return None
    why = f": {pause.reason}" if pause.reason else ""
    return _reject("paused", f"paused by {pause.by}{why}", "kinema resume", by=pause.by)


def executing(case: DecisionInput) -> Rejection | None:
    """Reject a plan while another one is executed."""
    other = case.memory.executing
    if other is None or other == case.id:
        return None
    return _reject("executing", f"plan {other} is being executed", "its end, or kinema abort", executing=other)


def cooldown(case: DecisionInput) -> Rejection | None:
    """Reject a plan too soon after an execution, so that the effect of that shows first.

    The rest doubles with each execution without effect in a row (`Memory.ineffective`): each costs restarts.
    """
    ended, ineffective = case.memory.ended, case.memory.ineffective
    shortest = case.limits.cooldown_seconds
    rest = max(shortest, min(shortest * 2.0 ** min(max(0, ineffective - 1), 30), case.limits.max_cooldown_seconds))
    if ended is None or case.continues:
        return None
    passed = (case.now - ended).total_seconds()
    if passed >= rest:
        return None
    return _reject(
        "cooldown",
        f"the last execution ended {passed:.0f} s ago"
        + (f", {ineffective} in a row were without effect" if ineffective > 1 else ""),
        f"{rest - passed:.0f} s more rest, or a smaller cooldown_seconds",
        passed_seconds=round(passed, 3),
        cooldown_seconds=rest,
    )


def age(case: DecisionInput) -> Rejection | None:
    """Reject a plan that was made on old knowledge; an operator may take longer to approve one."""
    limit = case.limits.approval_seconds if case.approved else case.limits.max_plan_age_seconds
    passed = case.seconds_since_proposal
    if passed <= limit:
        return None
    name = "approval_seconds" if case.approved else "max_plan_age_seconds"
    return _reject(
        "age",
        f"the plan is {passed:.0f} s old",
        f"a new plan, or a larger {name}",
        age_seconds=round(passed, 3),
        limit_seconds=limit,
    )


def priced(case: DecisionInput) -> Rejection | None:
    """Reject a plan that cannot be compared: no live node has a price, or a node to boot is not on sale any more."""
    if case.memory.offers is None:
        return _reject("priced", "no catalog was published yet", "the provider's catalog")
    try:
        live = len(case.prices)
    except PriceError as error:
        return _reject("priced", str(error), _REMEDY[case.unit])
    wanted = {node.offer for node in (*case.plan.nodes, *case.plan.temporary) if node.action == "boot"}
    missing = sorted(wanted - case.offer_prices.keys())
    if not missing:
        return None
    return _reject(
        "priced",
        f"not on sale any more: {', '.join(missing)}",
        "a new plan with the present catalog",
        live_nodes=live,
        missing_offers=len(missing),
    )


def drift(case: DecisionInput) -> Rejection | None:
    """Reject a plan when the cluster is too different from the one that it was made for.

    New pods are no drift for a plan that cannot wait: what it relied on and is gone counts. So does each new node for
    one that brings room: it may hold the waiting pods, and the plan would buy their room a second time.
    """
    found = case.adapted.drift
    changed = found.changed if case.purpose in OPTIONAL else found.lost + found.nodes_appeared
    drifted = Fraction(changed, found.base) if found.base else Fraction(min(changed, 1))
    bought_twice = case.purpose == "room" and found.nodes_appeared > 0
    if not bought_twice and (drifted < share(case.limits.max_drift_fraction) or changed == 0):
        return None
    return _reject(
        "drift",
        f"{changed} pods and nodes came or went since the plan's state of {found.base}",
        "a plan made on the present state",
        drift=round(float(drifted), 6),
        max_drift_fraction=case.limits.max_drift_fraction,
        pods_appeared=found.pods_appeared,
        pods_gone=found.pods_gone,
        nodes_appeared=found.nodes_appeared,
        nodes_gone=found.nodes_gone,
        base=found.base,
    )


def whole_state(case: DecisionInput) -> Rejection | None:
    """Reject a plan on a state that lacks pods or nodes of which other objects speak."""
    found = missing_objects(case.cluster, case.limits.missing_share)
    if found is None:
        return None
    return _reject(
        f"{found.kind}-missing",
        f"the state lacks {found.missing} of {found.expected} {found.kind} that other objects speak of",
        "a state without contradictions, or a larger missing_share",
        missing=found.missing,
        expected=found.expected,
        missing_share=case.limits.missing_share,
    )


def saving(case: DecisionInput) -> Rejection | None:
    """Reject a plan that costs more than (1 − min_savings_fraction) × the present cost (thesis, algorithm 7).

    A plan that only changes requests must not cost more: later plans save what it frees. Nor must the rest of a plan,
    whose saving was enough as a whole.
    """
    least = Fraction(0) if case.only_resizes or case.continues else share(case.limits.min_savings_fraction)
    most = (1 - least) * case.cost_now
    if case.cost_new <= most:
        return None
    unit, per = case.unit, case.figure
    dearer = case.cost_new > case.cost_now
    verdict = "would cost more" if dearer else "saves too little"
    return _reject(
        "saving",
        f"{whole(case.cost_new):.6f} {unit} after the plan against {whole(case.cost_now):.6f} now {verdict}",
        f"a plan of at most {whole(most):.6f} {unit}" + ("" if dearer else ", or a smaller min_savings_fraction"),
        **{f"cost_now_{per}": whole(case.cost_now), f"cost_new_{per}": whole(case.cost_new)},
        min_savings_fraction=case.limits.min_savings_fraction,
    )


def feasible(case: DecisionInput) -> Rejection | None:
    """Reject a plan that breaks a rule on the present state."""
    adapted = case.adapted
    if adapted.stranded:
        return _reject(
            "feasible",
            f"new pods on nodes to be deleted have no place: {', '.join(adapted.stranded[:5])}",
            "a plan made on the present state",
            stranded=len(adapted.stranded),
        )
    violations = check_drifted(adapted.plan, case.cluster, case.offers, case.now, case.options)
    if not violations:
        return None
    shown = "; ".join(f"{item.code} {item.subject}: {item.detail}" for item in violations[:3])
    return _reject(
        "feasible",
        f"on the present state the plan breaks rules: {shown}",
        "a plan made on the present state",
        violations=len(violations),
        first=violations[0].code,
    )


def payback(case: DecisionInput) -> Rejection | None:
    """Reject a plan whose change costs more than it saves while it is expected to last.

    The change costs nodes side by side, temporary nodes, both from their order on, and restarts. A plan that only
    changes requests earns the price of the room that it frees. A plan that takes away room which replicas will need
    again, as the forecast expects them, lasts until then at most, and what it deletes is bought back: boots and their
    time count once more.
    """
    limits, plan = case.limits, case.plan
    cost = case.disruption_cost
    hourly = case.freed if case.only_resizes else case.cost_now - case.cost_new
    life, undone = share(limits.expected_plan_lifetime_seconds), case.undone_in
    times = case.memory.boot_times
    booting = sum((price * times.seconds(offer) for offer, price in case.boots.items()), Fraction(0)) / 3600
    double_run = sum(case.boots.values()) * share(limits.transition_seconds) / 3600 + booting
    if undone is not None and share(undone) < life:
        life = share(undone)
        double_run += max(0, hourly) * (share(limits.transition_seconds) + times.seconds()) / 3600
    else:
        undone = None
    saved = hourly * life / 3600
    restarts = cost * share(limits.restart_watt_hours if case.energy else limits.restart_price_usd) * MICRO
    price = double_run + restarts
    if saved >= price:
        return None
    unit, per = ("Wh", "watt_hours") if case.energy else ("USD", "usd")
    return _reject(
        "payback",
        f"the change costs {whole(price):.6f} {unit} and saves {whole(saved):.6f} {unit} before the next one"
        + ("" if undone is None else f": expected replicas need the room again in {undone:.0f} s"),
        "a larger saving, fewer moves, "
        + ("or a longer expected_plan_lifetime_seconds" if undone is None else "or a later rise of the replicas"),
        **{
            f"saved_{per}": whole(saved),
            f"double_run_{per}": whole(double_run),
            f"restarts_{per}": whole(restarts),
            **({f"booting_{per}": whole(booting)} if times.last else {}),
            **({} if undone is None else {"undone_in_seconds": round(undone, 3)}),
        },
        restarts=plan.moves + plan.restarts + case.stops,
        restart_risk=float(cost),
        expected_plan_lifetime_seconds=limits.expected_plan_lifetime_seconds,
    )


def window(case: DecisionInput) -> Rejection | None:
    """Reject a plan that can wait outside of the operator's windows; the rest of one that began in time is finished."""
    windows = case.limits.windows
    if not windows or case.continues or any(item.contains(case.now) for item in windows):
        return None
    return _reject(
        "window",
        f"{case.now:%a %H:%M} UTC is in none of the {len(windows)} windows",
        "the opening of a window: "
        + ", ".join(f"{item.start:%H:%M}-{item.end:%H:%M} {item.time_zone}" for item in windows),
        windows=len(windows),
    )


def budget(case: DecisionInput) -> Rejection | None:
    """Reject a plan that moves or restarts more than a fraction of the pods, unless an operator approved it."""
    pods = len(case.plan.placements) + len(case.plan.unplaced)
    touched = case.plan.moves + case.plan.restarts
    nodes = (*(one.source for one in case.plan.placements), *(None for _ in case.plan.unplaced))
    most = most_moves(nodes, case.limits.max_moves_fraction)
    if case.approved or case.plan.by or most is None or touched <= most:
        return None
    return _reject(
        "budget",
        f"the plan moves or restarts {touched} of {pods} pods",
        f"a plan of at most {most} moves and restarts, or a larger max_moves_fraction",
        touched=touched,
        pods=pods,
        max_moves_fraction=case.limits.max_moves_fraction,
    )


def approval(case: DecisionInput) -> Rejection | None:
    """Hold a plan that can wait until an operator approves it, unless approval is automatic or it continues one.

    One that an operator proposes waits in any case: the approval comes with it, and only an operator can give it.
    """
    if case.approved or case.continues or (case.limits.approval == "automatic" and not case.plan.by):
        return None
    return _reject(
        "approval",
        "a plan that can wait is executed only on an operator's word",
        f"kinema approve {case.id}, or approval: automatic",
        **{f"saving_{case.figure}": whole(case.cost_now - case.cost_new)},
        moves=case.plan.moves,
        restarts=case.plan.restarts,
    )


MOVING: Final = EVERY - {"room"}
"""Purposes of plans that move or restart running pods of their own accord."""

RULES: Final[tuple[tuple[Rule, frozenset[Purpose]], ...]] = (
    (nothing_to_do, EVERY),  # a plan that changes nothing needs no further thought
    (paused, EVERY),  # the operator's word comes first
    (executing, EVERY),  # a single active plan
    (cooldown, OPTIONAL),  # let the last change show
    (age, EVERY),  # no decision on old knowledge
    (priced, EVERY),  # nothing can be compared without prices
    (drift, EVERY),  # still the cluster that was planned on
    (whole_state, OPTIONAL),  # and all of it
    (saving, frozenset({"saving"})),  # worth it by the hour
    (feasible, EVERY),  # right on the present state
    (payback, frozenset({"saving"})),  # worth it with the cost of the change itself
    (window, OPTIONAL),  # at a time the operator likes
    (budget, MOVING),  # not too much at once
    (approval, OPTIONAL),  # last: an operator only sees what is otherwise good
)
"""Rules in their order, each with the purposes of the plans that it judges."""


def first_rejection(case: DecisionInput) -> Rejection | None:
    """Return the first rejection; None when the plan is to be executed."""
    asked = (rule for rule, purposes in RULES if case.purpose in purposes)
    return next((rejection for rule in asked if (rejection := rule(case)) is not None), None)
