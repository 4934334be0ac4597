"""Which solver a problem gets: exact where that can end in time, the search where not.

- a few dozen pods: the exact model, which knows every rule between pods (`adapters.exact`); where it proves nothing
  soon, the search, and then the exact model again for less than what that found;
- what branch and bound still ends on, without rules that keep pods apart: the class-aggregated model
  (`adapters.aggregated`);
- everything else: the search with its certified bound (`adapters.search`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from kinema_core.events import Stop
from kinema_core.model.risk import ORDINARY, restart_risk
from kinema_optimizer.aggregated.greedy import starts
from kinema_optimizer.aggregated.layout import columns_of
from kinema_optimizer.aggregated.problem import DenseSolution, cost, moves
from kinema_optimizer.aggregated.solve import MAX_COLUMNS, SLACK, solve_aggregated
from kinema_optimizer.columns.compiled import is_loaded
from kinema_optimizer.exact.build import exact_instance, relocation
from kinema_optimizer.exact.cuts import forbid_moves, hold_spreads_in_transit
from kinema_optimizer.exact.model import ExactInstance
from kinema_optimizer.exact.solve import Below, ExactResult, solve_below, solve_exact
from kinema_optimizer.planning.naming import Outcome, nothing, of_names, of_packing, of_solution
from kinema_optimizer.planning.preferences import points_given_up, preferred
from kinema_optimizer.problem.compile import Compiled, compiled
from kinema_optimizer.problem.instance import losses
from kinema_optimizer.problem.progress import Progress, Report
from kinema_optimizer.problem.question import Question
from kinema_optimizer.request.headroom import NAMESPACE
from kinema_optimizer.search import kernels
from kinema_optimizer.search.search import SearchOptions, search, start_as_is
from kinema_optimizer.solvers.stopping import BEGIN, KERNELS, LOAD, StopRule

SOON: Final = 2000
"""Callbacks of the solver after which a least cost is not waited for any longer."""
SEARCHED: Final = 0.3
"""Part of the time for the search where the exact model goes on from what it found."""
SEARCH: Final = "assignment bound, column generation, neighbourhood search"
UNSEARCHED: Final = "none: the time was over"
_DENSE: Final = 12_000
"""Nodes and machines times classes up to which the dense form is made."""


@dataclass(frozen=True)
class Answer:
    """What a solver decided, and what is known about it."""

    outcome: Outcome
    lower_bound: int
    """Micro-USD per hour that no plan costs less than."""
    proven: bool
    """Nothing costs less than the least cost found."""
    method: str
    stops: tuple[Stop, ...]
    shuffles: bool = False
    """Pods change places whatever that takes: perhaps no order of the moves is possible, and none can be taken out."""
    least: int | None = None
    """Micro-USD per hour of the cheapest plan, where the exact model has proven it."""
    exact: tuple[ExactInstance, ExactResult] | None = None
    """What the exact model was asked and said, where the answer is its."""
    settled: bool = False
    """No better answer to the wish exists: none within its limit, with moves at their price."""
    searched: Answer | None = None
    """The answer to the same whose moves can be taken out, where there is one too and it leaves nobody out."""

    @property
    def ruled(self) -> bool:
        """Whether it is the exact model's, and pods have rules about each other."""
        return self.exact is not None and bool(self.exact[0].near or self.exact[0].apart or self.exact[0].even)


def left_out(problem: Compiled, stop: StopRule) -> int | None:
    """Pending pods of the cluster that a first plan leaves without a place; None when even replaced pods find none.

    Placeholders for room that is wished for do not count. Without compiled kernels no pod of a large cluster does.
    """
    if is_dense(problem):
        given = starts(problem.problem)
        if not given:
            return None
        classes, without = problem.classes, given[0].unplaced
    elif not stop.waits(KERNELS, kernels.ready):
        return 0
    else:
        state = start_as_is(problem.packing)
        if losses(problem.packing, state.unplaced)[0]:
            return None
        classes, without = problem.grouped.classes, tuple(state.unplaced.tolist())
    waiting = [mover for one, n in zip(classes, without, strict=True) if n for mover in one.pending[-n:]]
    waiting += [mover for _, mover in problem.homeless]
    return sum(mover.pod.namespace != NAMESPACE for mover in waiting)


def solved(problem: Compiled, wish: SearchOptions, stop: StopRule, report: Report) -> Answer:
    """The best answer that the time allows; one that changes nothing is always found.

    Of equally good answers one whose moves can be taken out one by one is taken: they may have no order. The search
    uses the time that exact models leave without a proof.
    """
    if stop.noted(BEGIN)(BEGIN if is_loaded() else LOAD):
        return unsearched(problem)
    vain: list[Stop] = []
    exact = _exactly(problem, stop, vain, report)
    answers = [] if exact is None else [exact]
    # The aggregated model has room for old copies beside new ones, the exact one has not: its answer may have no order.
    ruled = exact is not None and exact.ruled and not problem.resizes
    free = is_dense(problem) and not problem.problem.conflicts and not ruled
    if free and wish.max_moves is None and wish.move_price is None:
        given = starts(problem.problem)
        if columns_of(problem.problem, cost(problem.problem, given[0])) <= MAX_COLUMNS:
            answers.append(_aggregated(problem, given, stop, report))
    if not any(_suffices(problem, one, wish) for one in answers):
        answers += _searched(problem, exact, answers, wish=wish, stop=stop, report=report)
    idle = any(not one.outcome.boots and _places_all(problem, one.outcome) for one in answers)
    relocated = None if idle else _relocated(problem, stop, report)
    answers += [] if relocated is None else [relocated]
    best = _best(answers, [_rank(problem, one.outcome, wish) for one in answers], wish)
    best = joint_bound(problem, best, answers)
    # What is proven of plans that only add says nothing of those that move; no plan of this mode deletes a node.
    moves = problem.question.mode == "autoscale" and problem.question.options.autoscale_moves
    return replace(
        best,
        lower_bound=sum(problem.sites.prices.values()) if moves else best.lower_bound,
        proven=not moves and best.proven,
        least=None if moves or exact is None or exact.exact is None or not exact.proven else exact.exact[1].least,
        stops=(*vain, *(stop for one in answers for stop in one.stops)),
        searched=_fallback(problem, answers),
    )


def _places_all(problem: Compiled, outcome: Outcome) -> bool:
    """Whether an outcome leaves out no pod but those that no node or offer can hold."""
    return len(outcome.lost) <= len(problem.homeless)


def joint_bound(problem: Compiled, best: Answer, answers: Sequence[Answer]) -> Answer:
    """Return the best answer with what the others prove of plans that leave out no more pods than it does.

    An answer's bound holds for plans that leave out no more pods of any class than that answer: one of an answer that
    places a pod says nothing of plans without the pod, which may cost less.
    """
    classes = {mover.pod.key: c for c, members in enumerate(problem.draft.members) for mover in members}
    lost = [Counter(classes[mover.pod.key] for mover in one.outcome.lost) for one in (best, *answers)]
    valid = [one for one, pods in zip(answers, lost[1:], strict=True) if lost[0] <= pods]
    return replace(best, lower_bound=max(one.lower_bound for one in valid), proven=any(one.proven for one in valid))


def _fallback(problem: Compiled, answers: Sequence[Answer]) -> Answer | None:
    """The cheapest that has room for old copies beside new ones; of the search, where nobody gets another size."""
    known = [one for one in answers if one.method == SEARCH or (problem.resizes and not one.shuffles)]
    placing = [one for one in known if _places_all(problem, one.outcome)]
    return min(placing, key=lambda one: node_cost(problem, one.outcome), default=None)


def _searched(
    problem: Compiled,
    exact: Answer | None,
    known: Sequence[Answer],
    *,
    wish: SearchOptions,
    stop: StopRule,
    report: Report,
) -> list[Answer]:
    """The answer of the search, and what the exact model finds for less, or its word that nothing is.

    With both ends known its model is much smaller: dear machines and most copies of the cheap ones are not in it.
    """
    if exact is None or exact.exact is None or wish.max_moves is not None:
        return [plainly(problem, wish, stop, report)]
    with stop.part(SEARCHED):
        found = plainly(problem, wish, stop, report)
    costs = [node_cost(problem, one.outcome) for one in (*known, found) if _places_all(problem, one.outcome)]
    bound = max(one.lower_bound for one in (*known, found))
    tiny = exact.exact[0]
    if not costs or bound >= min(costs) or len(tiny.homeless) < len(problem.homeless):
        return [found]
    below = _below(problem, tiny, min(costs), bound=bound, stop=stop, report=report)
    if below.result is not None:
        return [found, replace(_named(problem, tiny, below.result), lower_bound=below.lower_bound)]
    proven = below.lower_bound >= min(costs)
    return [replace(found, lower_bound=below.lower_bound, proven=proven, stops=found.stops + below.stops)]


def _relocated(problem: Compiled, stop: StopRule, report: Report) -> Answer | None:
    """In an autoscale iteration that may move running pods, the answer in which some do."""
    question = problem.question
    if question.mode != "autoscale" or not question.options.autoscale_moves:
        return None
    tiny = relocation(question, problem.sites)
    found = None if tiny is None else solve_exact(tiny, stop, most_moves=question.max_moves, report=report)
    return None if tiny is None or found is None else _named(problem, tiny, found)


def _best(answers: Sequence[Answer], ranks: Sequence[tuple[int, int, int, int, int]], wish: SearchOptions) -> Answer:
    """The first by rank; where moves have no price, costs within 1/SLACK of the least count as equal."""
    least = min(ranks)[2]
    most = least + least // SLACK if wish.move_price is None else least

    def order(index: int) -> tuple[int, int, int, int, int, bool]:
        excess, lost, paid, moved, points = ranks[index]
        return excess, lost, max(paid, most), moved, points, answers[index].shuffles

    return answers[min(range(len(answers)), key=order)]


def _suffices(problem: Compiled, answer: Answer, wish: SearchOptions) -> bool:
    """Whether nothing better is to be had: it is proven and within the wish."""
    proven = answer.settled if answer.exact is not None else answer.proven and wish.move_price is None
    return proven and not _rank(problem, answer.outcome, wish)[0]


def unsearched(problem: Compiled) -> Answer:
    """Return the answer that moves no pod, for a solve without the time or the kernels for a search."""
    return Answer(nothing(problem), lower_bound=0, proven=False, method=UNSEARCHED, stops=())


def plainly(problem: Compiled, wish: SearchOptions, stop: StopRule, report: Report) -> Answer:
    """Return the answer of the search; where its moves have no order, fewer of them have."""
    if not stop.waits(KERNELS, kernels.ready):
        return unsearched(problem)
    found = search(problem.packing, problem.relaxed, wish, stop, report)
    # Where machines are few, some pods that are to be replaced may have got none: the dense form's first plan has them.
    sound = not (is_dense(problem) and losses(problem.packing, found.packing.unplaced)[0])
    outcome = of_packing(problem, found.packing) if sound else of_solution(problem, starts(problem.problem)[0])
    return Answer(
        outcome=preferred(problem, outcome),
        lower_bound=found.bound.value,
        proven=sound and found.bound.value >= found.least,
        method=SEARCH,
        stops=found.stops,
    )


def _rank(problem: Compiled, outcome: Outcome, wish: SearchOptions) -> tuple[int, int, int, int, int]:
    """Moves above the limit, pods left out, cost with moves and preferences priced, moves, points given up."""
    cluster, paid = problem.question.cluster, node_cost(problem, outcome)
    pods = cluster.pods_by_key
    moving = [key for key, to in outcome.targets.items() if pods[key].node not in {None, to}]
    moves = len(moving)
    excess = 0 if wish.max_moves is None else max(0, moves - wish.max_moves)
    points = points_given_up(problem, outcome) if problem.question.point_price else 0
    paid += problem.question.point_price * points
    if wish.move_price:
        paid += wish.move_price * sum(restart_risk(cluster, pods[key]) for key in moving) // ORDINARY
    return excess, len(outcome.lost), paid, moves, points


def node_cost(problem: Compiled, outcome: Outcome) -> int:
    """Micro-USD per hour of the nodes that are kept or booted."""
    nodes, prices = problem.question.cluster.nodes, problem.sites.prices
    kept = sum(prices[node.name] for node, keep in zip(nodes, outcome.keep, strict=True) if keep)
    return kept + sum(alike[0].micro_usd_per_hour for alike in outcome.boots)


def is_dense(problem: Compiled) -> bool:
    """Whether it is small enough for the exact models."""
    sites = len(problem.question.cluster.nodes) + len(problem.offers)
    return sites * len(problem.classes) <= _DENSE


def _exactly(problem: Compiled, stop: StopRule, vain: list[Stop], report: Report) -> Answer | None:
    """The answer of the exact model, where it is small enough; `vain` as for `solve_exact`.

    It counts on old copies having left, and a rolling update has to find room for the new ones before. Where pods get
    another size the order of moves tells whether it does, and there are answers that are sure of it to fall back on.
    Workloads that only move by one are left to the other models.
    """
    if problem.updates:
        return None
    tiny = exact_instance(problem.question, problem.sites)
    found = (
        None
        if tiny is None
        else _exact(problem, tiny, stop, vain, hurried=problem.question.max_moves is None, report=report)
    )
    return None if tiny is None or found is None else _named(problem, tiny, found)


def _exact(
    problem: Compiled, tiny: ExactInstance, stop: StopRule, vain: list[Stop], *, hurried: bool, report: Report
) -> ExactResult | None:
    question = problem.question
    return solve_exact(
        tiny,
        stop,
        least_moves=question.mode == "reschedule",
        most_moves=question.max_moves,
        hurried=hurried,
        vain=vain,
        report=report,
    )


def least_cost(question: Question, stop: StopRule) -> int | None:
    """Micro-USD per hour of the cheapest plan by the exact model; None where it is too large, or not proven in time."""
    problem = compiled(replace(question, point_price=0, move_price=None))  # of nodes alone, whatever else is priced
    if problem.updates:
        return None
    tiny = exact_instance(problem.question, problem.sites)
    found = None if tiny is None else solve_exact(tiny, stop, least_moves=False)
    return found.least if found is not None and found.proven else None


def _named(problem: Compiled, tiny: ExactInstance, found: ExactResult) -> Answer:
    """Return the exact result as an answer."""
    return Answer(
        outcome=of_names(problem, found),
        lower_bound=found.lower_bound,
        proven=found.proven,
        method=found.method,
        stops=found.stops,
        shuffles=True,
        exact=(tiny, found),
        settled=found.settled,
    )


def without_moves_of(
    problem: Compiled, answer: Answer, stuck: Sequence[str], *, wish: SearchOptions, stop: StopRule, report: Report
) -> Answer:
    """The next best answer to one of the exact model's; that of the search, where it knows none for less.

    First one in which spreads over nodes hold on the way, where such pods are stuck; then none of these pods goes where
    it was to go. What the first answer proves holds for every plan; what is proven with moves taken out does not.
    """
    assert answer.exact is not None, "only the exact model lets pods change places"
    tiny, found = answer.exact
    stricter = hold_spreads_in_transit(tiny, stuck)
    fewer = stricter or forbid_moves(tiny, stuck, assignment=found.assignment, boots=found.boots)
    again, searched, stops = None, answer.searched, answer.stops
    if searched is None:
        vain: list[Stop] = []
        again = _exact(problem, fewer, stop, vain, hurried=wish.max_moves is None, report=report)
        stops += tuple(vain) if again is None else again.stops
        if again is None or not (again.proven or wish.max_moves is not None):
            with stop.part(SEARCHED):
                other = plainly(problem, wish, stop, report)
            stops += other.stops
            searched = other if again is None or _places_all(problem, other.outcome) else None
    if searched is not None:
        paid = node_cost(problem, searched.outcome)
        below = _below(problem, fewer, paid, bound=answer.lower_bound, stop=stop, report=report)
        again, stops = below.result, stops + below.stops
    if again is None:
        assert searched is not None
        return replace(searched, lower_bound=answer.lower_bound, proven=False, stops=stops)
    return replace(
        _named(problem, fewer, again),
        lower_bound=answer.lower_bound,
        proven=False,
        settled=False,
        stops=stops,
        searched=searched,
    )


def _below(problem: Compiled, tiny: ExactInstance, cost: int, *, bound: int, stop: StopRule, report: Report) -> Below:
    """Return what the exact model finds for less than the cost of a plan that is known."""
    reschedules = problem.question.mode == "reschedule"
    return solve_below(tiny, stop, cost=cost, bound=bound, least_moves=reschedules, report=report)


def _aggregated(problem: Compiled, given: tuple[DenseSolution, ...], stop: StopRule, report: Report) -> Answer:
    dense = problem.problem
    lost = sum(given[0].unplaced)
    report(Progress("start", cost(dense, given[0]), 0, moves(dense, given[0]), lambda: given[0], unplaced=lost))
    reschedules = problem.question.mode == "reschedule"
    found = solve_aggregated(dense, problem.unbound, given, stop, least_moves=reschedules)
    best = found.solution
    paid, lost = cost(dense, best), sum(best.unplaced)
    report(Progress("end", paid, found.lower_bound, moves(dense, best), lambda: best, found.stops, lost))
    outcome = preferred(problem, of_solution(problem, best))
    return Answer(outcome, found.lower_bound, found.proven, found.method, found.stops)
