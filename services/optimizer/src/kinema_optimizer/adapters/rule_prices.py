"""What constraints cost, as far as the time that is left for it allows."""

from __future__ import annotations

from kinema_core.events import Binding, Stop
from kinema_optimizer.adapters.bound import lower_bound
from kinema_optimizer.adapters.solve import SOON, Answer, least_cost
from kinema_optimizer.adapters.stops import PRICING, StepStop, StopRule
from kinema_optimizer.logic.binding import constraint_relaxations, prices_of
from kinema_optimizer.logic.compiled import Compiled, Question, compiled


def rule_prices(problem: Compiled, answer: Answer, stop: StopRule) -> tuple[tuple[Binding, ...], Stop]:
    """What constraints cost: by how much the bound falls without each, as many as the time allows.

    Where the exact model has proven the plan the bound is the least cost, which it knows without each constraint too.
    """
    stop.begin(PRICING)

    def bound(question: Question) -> int | None:
        if answer.least is None:
            return lower_bound(compiled(question).relaxed).value
        step = StepStop(SOON, stop.late)
        found = least_cost(question, step)
        return None if step.given_up else answer.least if found is None else found

    ended = stop.ends(0)
    if ended is not None:
        return (), Stop(reason=ended, phase=PRICING, iteration=0)
    relaxations = constraint_relaxations(problem.question)
    base = answer.least
    if base is None:
        base = lower_bound(problem.relaxed).value if relaxations else 0
    found, looked = prices_of(relaxations, base=base, value=bound, ends=lambda n: stop.ends(n) is not None)
    if looked == len(relaxations):
        return found, Stop(reason="optimal", phase=PRICING, iteration=looked + 1)
    # A replay ends before the one that was begun in vain: before the first of all, 1, it asks as 0.
    again = looked + 1 if looked else 0
    return found, Stop(reason=stop.ends(again) or "time-limit", phase=PRICING, iteration=again)
