"""Planning task: the cluster restated and compiled, and its plan checked and read back.

`with_unplaceable` notes pending pods that nothing can hold: disruption budgets wait for them, and no pod is evicted
until then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain

import msgspec

from kinema_core.events import FrozenMap, Mode, Offer, Plan, Pod, Seats, WorkloadForecast
from kinema_core.model.budgets import budgets_by_pod, covered
from kinema_core.model.catalog import node_prices
from kinema_core.model.checker.check import check_plan
from kinema_core.model.cluster import Cluster
from kinema_core.model.daemons import room_left
from kinema_core.model.mobility import in_scope, listed_by_key, mobility
from kinema_core.model.moves_limit import most_moves
from kinema_core.model.preferences import violated_preferences
from kinema_core.model.redundancy import redundancy_loss
from kinema_core.model.resizing import all_resizable
from kinema_core.model.resources import fits, shift
from kinema_core.model.strategy import strategy_of
from kinema_optimizer.errors import UnsoundPlanError
from kinema_optimizer.planning.ordering import exceeds
from kinema_optimizer.planning.plan import with_bound
from kinema_optimizer.planning.portfolio import count_unplaced
from kinema_optimizer.problem.compile import Compiled, compiled
from kinema_optimizer.problem.question import Question
from kinema_optimizer.request.balance import balanced
from kinema_optimizer.request.growth import NO_GROWTH, Growth
from kinema_optimizer.request.headroom import without_placeholders_in
from kinema_optimizer.request.objective import MICRO, Objective, affordable, raised, served_purpose
from kinema_optimizer.request.quotas import with_namespace_quotas, within_quotas, without_idle_quotas
from kinema_optimizer.request.restate import Frame, framed
from kinema_optimizer.request.spare_room import SpareRoom, room_to_leave
from kinema_optimizer.search.neighborhood import TaskPool
from kinema_optimizer.search.search import SearchOptions
from kinema_optimizer.settings import PlanningSettings
from kinema_optimizer.solvers.stopping import StopRule


@dataclass(frozen=True)
class Request:
    """Question to the planner; new requests of workloads are given to `task`."""

    cluster: Cluster
    offers: tuple[Offer, ...]
    now: datetime
    settings: PlanningSettings
    mode: Mode
    stop: StopRule
    ahead: tuple[Pod, ...] = ()
    """Placeholders for replicas that are expected soon."""

    def _on_sale(self) -> tuple[Offer, ...]:
        """Return the offers, with none available of those whose nodes would not be Kinema's; they still have prices."""
        options = self.settings.mobility
        return tuple(
            one if in_scope(one.labels, options) else msgspec.structs.replace(one, available=0) for one in self.offers
        )

    def task(self, forecasts: tuple[WorkloadForecast, ...]) -> Task:
        """Return the request with as many of these new requests as one plan may make, restated and compiled."""
        frame, question, objective = self.question(forecasts)
        return Task(frame, *_solvable(question, objective, self.stop))

    def whole(self, forecasts: tuple[WorkloadForecast, ...]) -> Task:
        """Return the same where pods with new requests stay: those that are resized in place restart not.

        Whether second copies of the others have room is left to the caller.
        """
        frame, question, objective = self.question(forecasts, stay=True)
        return Task(frame, compiled(question), objective)

    def question(
        self, forecasts: tuple[WorkloadForecast, ...], *, limited: bool = True, stay: bool = False
    ) -> tuple[Frame, Question, Objective]:
        """Return the request with these new requests, restated.

        Args:
            forecasts: the new requests.
            limited: with as many as one plan may make.
            stay: pods that can be resized where they are stay there, and count as no restarts.
        """
        settings, resizable = self.settings, self.resizable(forecasts) if stay else frozenset[str]()
        forecasts = within_quotas(forecasts, self.cluster, resizable)
        objective = replace(settings.objective(self.now), expected=len(self.ahead))
        most = self._most_moves() if limited else None
        if most is not None:
            forecasts, left = affordable(forecasts, self.cluster, most, resizable=self.resizable(forecasts), stay=stay)
            objective = replace(
                objective, max_moves=min(left, most if objective.max_moves is None else objective.max_moves)
            )
        cluster = balanced(self.cluster) if settings.balance else self.cluster
        frame = framed(
            cluster,
            self._on_sale(),
            objective,
            limits=settings.limits,
            usable=settings.usable,
            left=(*self._room_to_leave(cluster, objective, forecasts), *self.ahead),
            growth=self._growth(),
        )
        question = Question(
            frame.cluster,
            _limited(frame, forecasts),
            self.now,
            self.mode,
            forecasts,
            objective.percent,
            settings.mobility,
            round(settings.preference_price_usd * MICRO),
            move_price=objective.move_price,
            max_moves=objective.max_moves,
        )
        question = with_unplaceable(question)
        if objective.max_moves == 0 and not forecasts:  # new requests may have to move pods in any case
            movable = frozenset(mobility(frame.cluster, self.now, question.options).strategy)
            question = replace(question, unmoved=movable, still=True)
        return frame, question, objective

    def resizable(self, forecasts: Iterable[WorkloadForecast]) -> frozenset[str]:
        """Return the workloads whose pods can all get their new requests while they run."""
        return frozenset(
            one.workload
            for one in forecasts
            if self.settings.resize_in_place
            and all_resizable(self.cluster, one.workload, one.requests_before, one.requests_after)
        )

    def _growth(self) -> Growth:
        """Return the growth that a plan for pending pods is to expect; one that saves expects none."""
        settings = self.settings
        return Growth(settings.expected_use_fraction, settings.allow_spot) if self.mode == "autoscale" else NO_GROWTH

    def _room_to_leave(
        self, cluster: Cluster, objective: Objective, forecasts: tuple[WorkloadForecast, ...]
    ) -> tuple[Pod, ...]:
        """Return placeholders for it: none where pods come or grow that may use it, or the operator says what room."""
        settings = self.settings
        if self.mode != "reschedule" or objective.headroom or settings.usable is not None or raised(forecasts):
            return ()
        fraction = settings.max_headroom_fraction
        asked = SpareRoom(settings.headroom, objective.percent, fraction, settings.mobility)
        return room_to_leave(cluster, self.now, asked)

    def _most_moves(self) -> int | None:
        """Return how many pods the plan may move or restart by the settings' fraction; None: as many as could move.

        Plans for pending pods have no such limit: they move pods only where that is cheaper than a node.
        """
        if self.mode != "reschedule":
            return None
        nodes = (pod.node for pod in listed_by_key(self.cluster).values())
        most = most_moves(nodes, self.settings.max_moves_fraction)
        movable = len(mobility(self.cluster, self.now, self.settings.mobility).strategy)
        return None if most is None or movable <= most else most

    def search_options(self, task: Task, task_pool: TaskPool | None) -> SearchOptions:
        """Return what the search is to minimize, and with what."""
        settings = self.settings
        return SearchOptions(
            move_price=task.objective.move_price,
            max_moves=None if task.problem.question.still else task.objective.max_moves,
            knee=not task.objective.least_cost,
            seed=settings.seed,
            workers=settings.workers,
            task_pool=task_pool,
        )


@dataclass(frozen=True)
class Task:
    """The cluster as the solvers see it, compiled."""

    frame: Frame
    problem: Compiled
    objective: Objective

    def finish(self, plan: Plan, *, lower_bound: int, optimal: bool) -> Plan:
        """Return the plan with bound and status, checked, in terms of the cluster as it is.

        Raises:
            UnsoundPlanError: the checker refuses the plan.
        """
        plan = with_bound(plan, lower_bound=lower_bound, optimal=optimal, objective=self.objective.text)
        asked = with_seated(self.problem.question, plan)
        if asked is not self.problem.question:
            held = mobility(asked.cluster, asked.now, asked.options).held
            plan = msgspec.structs.replace(plan, held=tuple(held[one.pod] for one in plan.held if one.pod in held))
        violations = check_plan(plan, asked.cluster, self.frame.offers, asked.now, asked.options, ordered=True)
        violations += exceeds(self.problem, plan)
        if violations:
            raise UnsoundPlanError(plan, violations)
        offers = {offer.name: offer for offer in asked.offers}
        violated = violated_preferences(plan, asked.cluster, offers, asked.point_price)
        loss = redundancy_loss(plan, asked.cluster)
        plan = msgspec.structs.replace(
            plan,
            violated_preferences=violated,
            redundancy_loss=loss,
            purpose=served_purpose(plan),
            seats=seats_of(plan, asked.cluster),
        )
        return self.frame.read(plan)


def seats_of(plan: Plan, cluster: Cluster) -> tuple[Seats, ...]:
    """Return where the pods of each workload are that a plan moves or places any of: nodes, each with their number."""
    places = {one.pod: one.to for one in plan.placements}
    moving = (cluster.pods_by_key[one.pod] for one in plan.placements if one.strategy != "stay")
    workloads = {key for pod in moving if (key := cluster.controller_key_of(pod)) is not None}
    pods = {one: [pod.key for pod in cluster.pods_by_workload[one] if pod.key in places] for one in sorted(workloads)}
    return tuple(
        Seats(workload=one, pods=FrozenMap(Counter(places[key] for key in keys))) for one, keys in pods.items()
    )


def _limited(frame: Frame, forecasts: tuple[WorkloadForecast, ...]) -> tuple[Offer, ...]:
    """Return what is on sale, with the quotas that a plan may reach."""
    offers = with_namespace_quotas(frame.offers, frame.cluster)
    if not any(offer.quotas for offer in offers):
        return frame.offers
    cluster, resized = frame.cluster, {one.workload for one in forecasts}
    growing = {pod.key for workload in resized for pod in cluster.pods_by_workload.get(workload, ())}
    waiting = {key for key, pod in listed_by_key(cluster).items() if pod.node is None}
    live = sum(node_prices(cluster, frame.offers).values())
    return without_idle_quotas(offers, live=live, places=len(growing | waiting))


def _solvable(question: Question, objective: Objective, stop: StopRule) -> tuple[Compiled, Objective]:
    """Return the problem, and the objective that it is solved for.

    A ceiling is lifted while a pending pod waits that could be placed without it. Forecasts are dropped where machines
    are limited and larger pods find no place; without them, keeping everything is a solution.
    """
    found = _with_places(question, stop)
    if objective.percent < 100 and count_unplaced(found, stop):
        own = replace(question, cluster=without_placeholders_in(question.cluster))  # headroom lifts no ceiling
        freed = replace(own, percent=100)
        if (count_unplaced(_with_places(own, stop), stop) or 0) > len(_with_places(freed, stop).homeless):
            return _with_places(replace(question, percent=100), stop), replace(objective, percent=100)
    return found, objective


def _with_places(question: Question, stop: StopRule) -> Compiled:
    """Return the problem; where a pod that forecasts replace finds no place, without those that raise requests.

    Where it finds none even then, with those for whose new copies there is room beside all that is there, or with none.
    """
    found = compiled(question)
    larger = {one.workload for one in raised(question.forecasts)}
    falling = tuple(one for one in question.forecasts if one.workload not in larger)
    for fewer in _fewer(question, falling):
        if not found.question.forecasts or count_unplaced(found, stop) is not None:
            break
        if len(fewer) < len(found.question.forecasts):
            found = compiled(replace(question, forecasts=fewer))
    return found


def _fewer(question: Question, falling: tuple[WorkloadForecast, ...]) -> Iterator[tuple[WorkloadForecast, ...]]:
    """Yield ever fewer forecasts; places are sought only where all that lower requests are too many."""
    yield falling
    beside = places_beside(question, falling)
    yield tuple(one for one in falling if one.workload in beside)
    yield ()


def places_beside(question: Question, forecasts: Iterable[WorkloadForecast]) -> Mapping[str, Mapping[str, str]]:
    """Return where the new copies of pods have room on live nodes, all at once, by workload and pod key.

    A copy goes to its pod's own node where it fits, else to another one. Of workloads that lack room for some there is
    none; earlier ones come first. Rules are left to the caller.
    """
    cluster, found = question.cluster, dict[str, dict[str, str]]()
    open_nodes = mobility(cluster, question.now, question.options).open_nodes
    free = {name: dict(room) for name, room in room_left(cluster).items() if name in open_nodes}
    for one in forecasts:
        pods = [pod for pod in cluster.pods_by_workload.get(one.workload, ()) if pod.node is not None]
        copies = {pod.key: FrozenMap({**pod.requests, **one.requests_after}) for pod in pods}
        places: dict[str, str] = {}
        for pod in pods:
            names = chain((pod.node,) if pod.node in free else (), free)
            place = next((name for name in names if fits(copies[pod.key], free[name])), None)
            if place is None:
                break
            shift(free[place], copies[pod.key], -1)
            places[pod.key] = place
        if len(places) == len(pods):
            found[one.workload] = places
            continue
        for key, place in places.items():
            shift(free[place], copies[key], 1)
    return found


def with_unplaceable(question: Question) -> Question:
    """Return the question with these pods in its options: evictions then count the pods that are healthy.

    Those that get no place only because others do are not known yet: the order of moves looks after them.
    """
    asked = replace(question, options=replace(question.options, waiting=frozenset()))
    concerned = _concerned(asked)
    if not concerned:
        return asked
    problem = compiled(asked)
    homeless = {pod.key for _, mover in problem.homeless for pod in (mover.pod, *mover.others)}
    waiting = concerned & (homeless | problem.sites.mobility.held.keys())
    return replace(asked, options=replace(asked.options, waiting=frozenset(waiting)))


def with_seated(question: Question, plan: Plan) -> Question:
    """Return the question without those pods in its options for which the plan has a place after all."""
    waiting = question.options.waiting or frozenset()
    left = waiting - {one.pod for one in plan.placements if one.source is None}
    return question if left == waiting else replace(question, options=replace(question.options, waiting=left))


def _concerned(question: Question) -> set[str]:
    """Return the pending pods under a budget that covers pods which could be evicted; there are few, or none."""
    cluster = question.cluster
    if question.mode == "autoscale" and not question.options.autoscale_moves:
        return set()
    budgets = budgets_by_pod(cluster)
    pending = [key for key, pod in listed_by_key(cluster).items() if pod.node is None and key in budgets]
    evicting = {
        budget.key: any(
            pod.node is not None and strategy_of(cluster, pod) == "evict" for pod in covered(cluster, budget)
        )
        for budget in {budget.key: budget for key in pending for budget in budgets[key]}.values()
    }
    return {key for key in pending if any(evicting[budget.key] for budget in budgets[key])}
