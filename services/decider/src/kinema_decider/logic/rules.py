"""The rules that decide on a plan, in order: the first that objects is the answer.

The source is algorithm 7 of the thesis (saving, drift); the rest guards what the thesis leaves open. An autoscale plan
brings room for pods that wait: it need not save, pay back, keep windows or rest, but it must still be feasible.
A plan is judged in the unit that it was made for: USD per hour, or W where energy was to be made small. Both are
compared in whole millionths and shares as fractions, so that a boundary falls the same way everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, TypeAlias

from kinema_core.events import Figures, FrozenMap
from kinema_core.model.catalog import PriceError
from kinema_core.model.checker.check import check_drifted
from kinema_core.model.mobility import MobilityOptions
from kinema_decider.logic.case import Case


@dataclass(frozen=True)
class Objection:
    """Why a plan is not carried out now, the figures behind it, and what would change the answer."""

    rule: str
    reason: str
    would_change: str
    figures: Figures


_REMEDY: Final = {
    "USD/h": "a catalog row or an annotation kinema.io/usd-per-hour for these nodes",
    "W": "watts in the catalog for these machine types",
}

Rule: TypeAlias = Callable[[Case], Objection | None]

MICRO: Final = 1_000_000


def share(value: float) -> Fraction:
    """A share as it was written: 0.1 is exactly one tenth."""
    return Fraction(str(value))


def whole(micro: int | Fraction) -> float:
    """Millionths of USD, W or Wh as such with six decimals, for people."""
    return round(float(micro) / MICRO, 6)


def _object(rule: str, reason: str, would_change: str, **figures: float | str) -> Objection:
    return Objection(rule=rule, reason=reason, would_change=would_change, figures=FrozenMap(figures))


def nothing_to_do(case: Case) -> Objection | None:
    """The plan is a solution and changes something."""
    plan = case.plan
    boots = sum(1 for node in plan.nodes if node.action == "boot")
    deletes = sum(1 for node in plan.nodes if node.action == "delete")
    changes = boots + deletes + plan.moves + plan.restarts
    if plan.status in {"optimal", "feasible"} and changes:
        return None
    return _object(
        "nothing-to-do",
        f"the plan is {plan.status} and changes {changes} things",
        "a state for which a cheaper cluster can be found",
        status=plan.status,
        boots=boots,
        deletes=deletes,
        moves=plan.moves,
        restarts=plan.restarts,
    )


def paused(case: Case) -> Objection | None:
    """The operator has not stopped everything."""
    pause = case.memory.paused
    if pause is None:
        return None
    why = f": {pause.reason}" if pause.reason else ""
    return _object("paused", f"paused by {pause.by}{why}", "kinema resume", by=pause.by)


def executing(case: Case) -> Objection | None:
    """Only one plan at a time is carried out."""
    other = case.memory.executing
    if other is None or other == case.id:
        return None
    return _object("executing", f"plan {other} is being carried out", "its end, or kinema abort", executing=other)


def cooldown(case: Case) -> Objection | None:
    """The cluster rests after each execution, so that its effect shows before the next one.

    Longer and longer after executions in vain: they cost machines and restarts for nothing. Which are, memory says.
    """
    ended, vain = case.memory.ended, case.memory.vain
    shortest = case.limits.cooldown_seconds
    rest = max(shortest, min(shortest * 2.0 ** min(max(0, vain - 1), 30), case.limits.max_cooldown_seconds))
    if ended is None or not case.saves:
        return None
    passed = (case.now - ended).total_seconds()
    if passed >= rest:
        return None
    return _object(
        "cooldown",
        f"the last execution ended {passed:.0f} s ago" + (f", {vain} in a row were in vain" if vain > 1 else ""),
        f"{rest - passed:.0f} s more rest, or a smaller cooldown_seconds",
        passed_seconds=round(passed, 3),
        cooldown_seconds=rest,
    )


def age(case: Case) -> Objection | None:
    """A plan is not carried out on old knowledge; an operator may take longer to approve."""
    limit = case.limits.approval_seconds if case.approved else case.limits.max_plan_age_seconds
    passed = case.seconds_since_proposal
    if passed <= limit:
        return None
    name = "approval_seconds" if case.approved else "max_plan_age_seconds"
    return _object(
        "age",
        f"the plan is {passed:.0f} s old",
        f"a plan made anew, or a larger {name}",
        age_seconds=round(passed, 3),
        limit_seconds=limit,
    )


def priced(case: Case) -> Objection | None:
    """What the rules below compare is known: a price for every live node, every node to boot still on sale."""
    if case.memory.offers is None:
        return _object("priced", "no catalog was published yet", "the provider's catalog")
    try:
        live = len(case.prices)
    except PriceError as error:
        return _object("priced", str(error), _REMEDY[case.unit])
    wanted = {node.offer for node in (*case.plan.nodes, *case.plan.temporary) if node.action == "boot"}
    missing = sorted(wanted - case.offer_prices.keys())
    if not missing:
        return None
    return _object(
        "priced",
        f"not on sale any more: {', '.join(missing)}",
        "a plan made anew with the present catalog",
        live_nodes=live,
        missing_offers=len(missing),
    )


def drift(case: Case) -> Objection | None:
    """The cluster is still nearly the one that was planned on.

    Pods that come while others wait for an autoscale plan are no drift for it: what it relied on and is gone counts. So
    does each node that came: it may hold those who wait, and the plan would buy their room a second time.
    """
    found = case.adapted.drift
    changed = found.changed if case.saves else found.lost + found.nodes_appeared
    drifted = Fraction(changed, found.base) if found.base else Fraction(min(changed, 1))
    bought_twice = not case.saves and found.nodes_appeared > 0
    if not bought_twice and (drifted < share(case.limits.max_drift_fraction) or changed == 0):
        return None
    return _object(
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


def saving(case: Case) -> Objection | None:
    """The new cost is at most (1 − min_savings_fraction) × the cost of now (thesis, algorithm 7).

    A plan that only changes requests must not cost more: later plans save what it frees.
    """
    if not case.saves:
        return None
    least = Fraction(0) if case.only_resizes else share(case.limits.min_savings_fraction)
    most = (1 - least) * case.cost_now
    if case.cost_new <= most:
        return None
    unit, per = case.unit, case.figure
    dearer = case.cost_new > case.cost_now
    verdict = "would cost more" if dearer else "saves too little"
    return _object(
        "saving",
        f"{whole(case.cost_new):.6f} {unit} after the plan against {whole(case.cost_now):.6f} now {verdict}",
        f"a plan of at most {whole(most):.6f} {unit}" + ("" if dearer else ", or a smaller min_savings_fraction"),
        **{f"cost_now_{per}": whole(case.cost_now), f"cost_new_{per}": whole(case.cost_new)},
        min_savings_fraction=case.limits.min_savings_fraction,
    )


def feasible(case: Case) -> Objection | None:
    """The plan, carried over to the state of now, breaks no rule there."""
    adapted = case.adapted
    if adapted.stranded:
        return _object(
            "feasible",
            f"new pods on nodes to be deleted have no place: {', '.join(adapted.stranded[:5])}",
            "a plan made on the present state",
            stranded=len(adapted.stranded),
        )
    options = MobilityOptions(move_jobs=case.limits.move_jobs, allow_spot=case.limits.allow_spot)
    violations = check_drifted(adapted.plan, case.cluster, case.memory.offers or (), case.now, options)
    if not violations:
        return None
    shown = "; ".join(f"{item.code} {item.subject}: {item.detail}" for item in violations[:3])
    return _object(
        "feasible",
        f"on the present state the plan breaks rules: {shown}",
        "a plan made on the present state",
        violations=len(violations),
        first=violations[0].code,
    )


def payback(case: Case) -> Objection | None:
    """What the change costs comes back while the plan is expected to last.

    Nodes side by side, temporary nodes, restarts. A plan that only changes requests earns the price of the room that it
    frees.
    """
    if not case.saves:
        return None
    limits, plan = case.limits, case.plan
    risk = case.restart_risk
    hourly = case.freed if case.only_resizes else case.cost_now - case.cost_new
    saved = hourly * share(limits.expected_plan_lifetime_seconds) / 3600
    double_run = (case.booted + case.rented) * share(limits.transition_seconds) / 3600
    restarts = risk * share(limits.restart_watt_hours if case.energy else limits.restart_price_usd) * MICRO
    price = double_run + restarts
    if saved >= price:
        return None
    unit, per = ("Wh", "watt_hours") if case.energy else ("USD", "usd")
    return _object(
        "payback",
        f"the change costs {whole(price):.6f} {unit} and saves {whole(saved):.6f} {unit} before the next one",
        "a larger saving, fewer moves, or a longer expected_plan_lifetime_seconds",
        **{
            f"saved_{per}": whole(saved),
            f"double_run_{per}": whole(double_run),
            f"restarts_{per}": whole(restarts),
        },
        restarts=plan.moves + plan.restarts + case.stops,
        restart_risk=float(risk),
        expected_plan_lifetime_seconds=limits.expected_plan_lifetime_seconds,
    )


def window(case: Case) -> Objection | None:
    """Changes that can wait keep to the operator's windows."""
    windows = case.limits.windows
    if not case.saves or not windows or any(item.contains(case.now) for item in windows):
        return None
    return _object(
        "window",
        f"{case.now:%a %H:%M} UTC is in none of the {len(windows)} windows",
        "the opening of a window: " + ", ".join(f"{item.start:%H:%M}-{item.end:%H:%M}" for item in windows),
        windows=len(windows),
    )


def budget(case: Case) -> Objection | None:
    """One plan touches at most a share of the pods."""
    pods = len(case.plan.placements)
    touched = case.plan.moves + case.plan.restarts
    if not case.saves or touched <= share(case.limits.max_moves_fraction) * pods:
        return None
    return _object(
        "budget",
        f"the plan moves or restarts {touched} of {pods} pods",
        f"fewer moves (at most {case.limits.max_moves_fraction:.0%}), or a larger max_moves_fraction",
        touched=touched,
        pods=pods,
        max_moves_fraction=case.limits.max_moves_fraction,
    )


def approval(case: Case) -> Objection | None:
    """Where an operator wants to see every change, it waits for approval."""
    if case.approved or case.limits.approval == "auto" or not case.saves:
        return None
    return _object(
        "approval",
        "every change waits for an operator",
        f"kinema approve {case.id}",
        **{f"saving_{case.figure}": whole(case.cost_now - case.cost_new)},
        moves=case.plan.moves,
        restarts=case.plan.restarts,
    )


RULES: tuple[Rule, ...] = (
    nothing_to_do,  # a plan that changes nothing needs no further thought
    paused,  # the operator's word comes first
    executing,  # a single active plan
    cooldown,  # let the last change show
    age,  # no decision on old knowledge
    priced,  # nothing can be compared without prices
    drift,  # still the cluster that was planned on
    saving,  # worth it by the hour
    feasible,  # right on the present state
    payback,  # worth it with the cost of the change itself
    window,  # at a time the operator likes
    budget,  # not too much at once
    approval,  # last: an operator only sees what is otherwise good
)


def first_objection(case: Case) -> Objection | None:
    """The first rule that objects; None when the plan shall be carried out."""
    for rule in RULES:
        objection = rule(case)
        if objection is not None:
            return objection
    return None
