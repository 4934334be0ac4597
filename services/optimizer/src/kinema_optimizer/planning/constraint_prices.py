"""Price of each constraint: the question is solved again without it, as far as the time allows.

The price is the difference of two least costs, or of two bounds. Only one constraint is lifted at a time, so prices of
several do not add up. A pod that two constraints hold stays held without one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeAlias

import msgspec

from kinema_core.events import ConstraintCost, Held, Offer, PlacementRules, Stop
from kinema_core.model.budgets import blocking_budgets, budgets_by_pod
from kinema_core.model.catalog import node_prices
from kinema_core.model.cluster import Cluster
from kinema_core.model.mobility import Mobility, mobility
from kinema_core.model.resource_quotas import quotas_against
from kinema_core.model.spot_share import limits_spot
from kinema_core.model.stock import draws
from kinema_core.model.strategy import strategy_of
from kinema_core.model.vocabulary import (
    DISRUPTION_COST,
    DO_NOT_DISRUPT,
    DO_NOT_MOVE,
    PREFER_NO_EVICTION,
    SAFE_TO_EVICT,
    SCALE_DOWN_DISABLED,
    SPOT_MAX_SHARE,
    SPOT_MAX_SHARE_PER_POOL,
    STRATEGY,
)
from kinema_optimizer.bounds.certificate import lower_bound
from kinema_optimizer.bounds.pattern_lp import pattern_bound
from kinema_optimizer.planning import relaxed_cluster
from kinema_optimizer.planning.portfolio import SOON, is_dense, least_cost
from kinema_optimizer.problem.compile import Compiled, compiled
from kinema_optimizer.problem.question import Question
from kinema_optimizer.problem.rules.redundancy import is_kept
from kinema_optimizer.request.headroom import AHEAD, FLOOR, NAMESPACE, ROOM, USABLE
from kinema_optimizer.request.objective import MICRO
from kinema_optimizer.request.quotas import NAMESPACED
from kinema_optimizer.search import kernels
from kinema_optimizer.solvers.stopping import KERNELS, PRICING, StepStop, StopRule

SINGLES: Final = 12
"""Single budgets, nodes and offers that are priced: those whose nodes cost most."""
_PATTERN_ROUNDS: Final = 40
_NODE_KEYS: Final = (SCALE_DOWN_DISABLED, DO_NOT_DISRUPT)
_Change: TypeAlias = Callable[[Cluster, Collection[str]], Cluster]
"""Takes a constraint away from a cluster; the keys are those of the pods that it holds."""


def _unannotated(key: str) -> tuple[str, _Change]:
    return f"annotation {key}", lambda cluster, _: relaxed_cluster.without_annotation(cluster, key)


def _unbudgeted(cluster: Cluster, _: Collection[str]) -> Cluster:
    return relaxed_cluster.without_budgets(cluster, [budget.key for budget in cluster.budgets])


def _without_quotas(cluster: Cluster, _: Collection[str]) -> Cluster:
    return relaxed_cluster.without_quotas(cluster, [quota.key for quota in cluster.quotas])


_BY_BUDGETS: Final = frozenset({"pdb-never", "pdb-unhealthy", "two-budgets"})
_BUDGETS: Final = "pdb *", _unbudgeted
_UNREAD: Final = "objects that could not be read", relaxed_cluster.without_quarantine
_HOLDING: Final[Mapping[str, tuple[str, _Change]]] = {
    "do-not-disrupt": _unannotated(DO_NOT_DISRUPT),
    "do-not-move": _unannotated(DO_NOT_MOVE),
    "safe-to-evict": _unannotated(SAFE_TO_EVICT),
    "prefer-no-eviction": _unannotated(PREFER_NO_EVICTION),
    "strategy-none": _unannotated(STRATEGY),
    "strategy-unknown": _unannotated(STRATEGY),
    "strategy-recreate": _unannotated(STRATEGY),
    "invalid-disruption-cost": _unannotated(DISRUPTION_COST),
    "bare-pod": ("pods without a controller", relaxed_cluster.replaceable),
    "unknown-controller": ("controllers that Kinema does not know", relaxed_cluster.replaceable),
    "single-replica": ("single replicas", relaxed_cluster.replaceable),
    "host-path": ("host paths", relaxed_cluster.without_host_paths),
    "template-differs": ("templates that differ from pods", relaxed_cluster.without_templates),
    "quota": ("ResourceQuota *", _without_quotas),
    "refused": ("moves that were refused", relaxed_cluster.released),
    "quarantined-node": _UNREAD,
    "quarantined-controller": _UNREAD,
    "frozen-namespace": _UNREAD,
    **dict.fromkeys(_BY_BUDGETS, _BUDGETS),
}
"""Code of a held pod → the class of constraints that holds it, and the cluster without that class."""
_JOBS: Final = "pods of jobs"
SPOT_SHARES: Final = "spot shares"
REDUNDANCY: Final = "redundancy"
"""Constraint that keeps workloads on two nodes, and in their zones."""
_BY_RULES: Final = {
    "job": _JOBS,
    "unmodeled-field": "rules that are not modeled",
    "unmodeled-namespaces": "pod affinity",
    "unmodeled-scheduler": "rules that are not modeled",
    "volume-shared": "volumes",
    "volume-unknown": "volumes",
}
"""Code of a held pod → the class of constraints on placement, or the setting, that holds it and is priced as such."""
UNPRICED: Final = {
    "foreign-node": "another autoscaler deletes the node",
    "gated": "the pod is pending: without its gate the cluster costs more",
    "namespace-terminating": "the pod ends with its namespace",
    "out-of-scope": "the settings leave its node to others",
    "restless": "the workload can move once it is at rest",
    "unknown-node": "the node has no price",
}
"""Code of a held pod → why lifting what holds it has no price."""
_PLACEHOLDERS: Final = {
    AHEAD: "replicas that are expected",
    FLOOR: "minimum nodes",
    ROOM: "headroom",
    USABLE: "usable resources",
}
_PARTS: Final[Mapping[str, Callable[[PlacementRules], PlacementRules]]] = {
    "host ports": relaxed_cluster.no_host_ports,
    "node selectors and node affinity": relaxed_cluster.no_node_rules,
    "pod affinity": relaxed_cluster.no_affinity,
    "pod anti-affinity": relaxed_cluster.no_anti_affinity,
    "rules that are not modeled": relaxed_cluster.no_unmodeled,
    "topology spread": relaxed_cluster.no_spread,
    "volumes": relaxed_cluster.no_volumes,
}


@dataclass(frozen=True)
class Relaxation:
    """A constraint and the question without it."""

    name: str
    make: Callable[[], Question]
    """Costs time and memory in the size of the cluster: call it for one relaxation after the other."""


def class_of(code: str) -> str:
    """Return the class of constraints that holds a pod, as prices name it; the code itself where that is no class."""
    return _HOLDING[code][0] if code in _HOLDING else _BY_RULES.get(code, code)


def constraint_relaxations(question: Question, *, singles: int = SINGLES) -> tuple[Relaxation, ...]:
    """Every class of constraints that this cluster has, then the single ones whose nodes cost most; each by name.

    Raises:
        PriceError: no live node has a price.
    """
    facts = mobility(question.cluster, question.now, question.options)
    classes = [*_held(question, facts), *_rules(question), *_limits(question)]
    alone = _Singles(question, facts).dearest(singles)
    return (*sorted(classes, key=_name), *sorted(alone, key=_name))


def prices_of(
    relaxations: Sequence[Relaxation],
    *,
    base: int,
    value: Callable[[Question], int | None],
    ends: Callable[[int], bool],
) -> tuple[tuple[ConstraintCost, ...], int]:
    """Return what constraints cost, the dearest first, and how many were looked at.

    Args:
        relaxations: in the order in which they are looked at.
        base: what `value` gives for the question with all constraints, micro-USD per hour.
        value: a cost or a bound, of one kind for all; None where the time is over in the middle of it.
        ends: whether to stop before the relaxation of that number; the first, 1, is looked at in any case.
    """
    found: list[tuple[int, str]] = []
    looked = 0
    for number, one in enumerate(relaxations, start=1):
        if number > 1 and ends(number):
            break
        worth = value(one.make())
        if worth is None:
            break
        looked = number
        if base > worth:
            found.append((worth - base, one.name))
    bindings = (ConstraintCost(constraint=name, usd_per_hour=round(-saved / MICRO, 6)) for saved, name in sorted(found))
    return tuple(bindings), looked


def _name(relaxation: Relaxation) -> str:
    return relaxation.name


def _on(question: Question, change: Callable[[Cluster], Cluster]) -> Callable[[], Question]:
    return lambda: replace(question, cluster=change(question.cluster))


def _held(question: Question, facts: Mobility) -> Iterator[Relaxation]:
    """Rules by which pods or nodes may not move or go."""
    by_class: dict[str, tuple[_Change, list[str]]] = {}
    for held in facts.held.values():
        if held.code not in _BY_RULES and held.code not in UNPRICED:
            name, change = _HOLDING.get(held.code, (held.code, relaxed_cluster.released))
            by_class.setdefault(name, (change, []))[1].append(held.pod)
    for name, (change, keys) in by_class.items():
        yield Relaxation(name, _on(question, partial(_changed, change=change, keys=keys)))
    if any(held.code == "job" for held in facts.held.values()):
        options = replace(question.options, move_jobs=True)
        yield Relaxation(_JOBS, lambda: replace(question, options=options))
    nodes = [node.name for node in question.cluster.nodes if any(key in node.annotations for key in _NODE_KEYS)]
    if nodes:
        bare = partial(relaxed_cluster.without_node_annotations, keys=_NODE_KEYS, names=frozenset(nodes))
        yield Relaxation("node annotations", _on(question, bare))


def _changed(cluster: Cluster, *, change: _Change, keys: Collection[str]) -> Cluster:
    return change(cluster, keys)


def _rules(question: Question) -> Iterator[Relaxation]:
    """Rules about where pods may be."""
    cluster = question.cluster
    distinct = {id(pod.rules): pod.rules for pod in relaxed_cluster.own_pods(cluster)}.values()
    for name, without in _PARTS.items():
        if any(without(rules) is not rules for rules in distinct):
            yield Relaxation(name, _on(question, partial(relaxed_cluster.with_rules, without=without)))
    taints = [taint for node in cluster.nodes for taint in node.taints if taint.effect != "PreferNoSchedule"]
    if taints or any(offer.taints for offer in question.offers):
        yield Relaxation(
            "taints", _on(question, partial(relaxed_cluster.with_rules, without=relaxed_cluster.no_taints))
        )


def _limits(question: Question) -> Iterator[Relaxation]:
    """Limits of what is on sale and of how full nodes may be, and room that is kept free."""
    if any(not draw.stock.startswith(NAMESPACED) for offer in question.offers for draw in draws(offer)):
        yield Relaxation("limit *", lambda: replace(question, offers=_unlimited(question.offers)))
    if question.percent < 100:
        yield Relaxation(f"ceiling {question.percent}%", lambda: replace(question, percent=100))
    if not question.options.allow_spot and any(offer.capacity_type == "spot" for offer in question.offers):
        options = replace(question.options, allow_spot=True)
        yield Relaxation("spot only where it is asked for", lambda: replace(question, options=options))
    if limits_spot(question.cluster, question.options):
        yield Relaxation(SPOT_SHARES, lambda: _sharing(question))
    if is_kept(question):
        loose = replace(question.options, redundancy=False)
        yield Relaxation(REDUNDANCY, lambda: replace(question, options=loose))
    for kind, name in _PLACEHOLDERS.items():
        added = [pod.key for pod in question.cluster.pods if pod.namespace == NAMESPACE and pod.name.startswith(kind)]
        if added:
            yield Relaxation(name, _on(question, partial(_without_pods, keys=added)))


def _sharing(question: Question) -> Question:
    """Return the question without limits on the share of a workload's pods on spot capacity."""
    cluster = question.cluster
    for key in (SPOT_MAX_SHARE, SPOT_MAX_SHARE_PER_POOL):
        cluster = relaxed_cluster.without_annotation(cluster, key)
    return replace(question, cluster=cluster, options=replace(question.options, spot_share=None, spot_pool_share=None))


def _without_pods(cluster: Cluster, keys: Sequence[str]) -> Cluster:
    gone: dict[str, None] = dict.fromkeys(keys)
    return relaxed_cluster.changed(cluster, "Pod", gone)


def _unlimited(offers: Iterable[Offer], only: str | None = None) -> tuple[Offer, ...]:
    """Return the offers without limits, or without one: that of an offer, of a pool or of a quota."""
    return tuple(_without_limit(offer, only) for offer in offers)


def _without_limit(offer: Offer, only: str | None) -> Offer:
    if only in (None, offer.pool or offer.name):
        offer = msgspec.structs.replace(offer, available=None, pool="")
    return msgspec.structs.replace(offer, quotas=tuple(one for one in offer.quotas if only not in (None, one.name)))


class _Singles:
    """Single budgets, nodes and limits, each with what the nodes cost that it keeps."""

    def __init__(self, question: Question, facts: Mobility) -> None:
        self._question = question
        self._facts = facts
        self._prices = node_prices(question.cluster, question.offers)

    def dearest(self, most: int) -> Sequence[Relaxation]:
        """Return those that may cost most."""
        found = [*self._budgets(), *self._quotas(), *self._nodes(), *self._offers()]
        found.sort(key=lambda one: (-one[0], one[1].name))
        return [relaxation for _, relaxation in found[:most]]

    def _budgets(self) -> Iterator[tuple[int, Relaxation]]:
        cluster = self._question.cluster
        nodes: dict[str, set[str]] = {}
        for held in self._facts.held.values():
            if held.code in _BY_BUDGETS:
                for budget in budgets_by_pod(cluster).get(held.pod, ()):
                    if held.code != "pdb-never" or budget.key in blocking_budgets(cluster):
                        nodes.setdefault(budget.key, set()).add(self._node_of(held))
        for key in sorted(nodes):
            change = partial(relaxed_cluster.without_budgets, keys=(key,))
            price = sum(self._prices.get(name, 0) for name in nodes[key])
            yield price, Relaxation(f"pdb {key}", _on(self._question, change))

    def _quotas(self) -> Iterator[tuple[int, Relaxation]]:
        """Quotas of namespaces, by the nodes that their pods keep and those that they leave no room for."""
        cluster, nodes = self._question.cluster, dict[str, set[str]]()
        limits = {
            one.name for offer in self._question.offers for one in offer.quotas if one.name.startswith(NAMESPACED)
        }
        for name in limits:
            nodes.setdefault(name.removeprefix(NAMESPACED).partition(":")[0], set())
        for held in self._facts.held.values():
            pod = cluster.pod(held.pod) if held.code == "quota" else None
            if pod is None:
                continue
            for key in quotas_against(cluster, pod, rolled=strategy_of(cluster, pod) == "rolling"):
                nodes.setdefault(key, set()).add(self._node_of(held))
        for key in sorted(nodes):
            price = sum(self._prices.get(name, 0) for name in nodes[key])
            mine = [name for name in sorted(limits) if name.startswith(f"{NAMESPACED}{key}:")]
            yield price, Relaxation(f"{NAMESPACED}{key}", partial(self._without_quota, key, mine))

    def _without_quota(self, key: str, limits: Sequence[str]) -> Question:
        offers = tuple(self._question.offers)
        for name in limits:
            offers = _unlimited(offers, name)
        cluster = relaxed_cluster.without_quotas(self._question.cluster, (key,))
        return replace(self._question, cluster=cluster, offers=offers)

    def _node_of(self, held: Held) -> str:
        pod = self._question.cluster.pod(held.pod)
        return "" if pod is None else pod.node or ""

    def _nodes(self) -> Iterator[tuple[int, Relaxation]]:
        for node in self._question.cluster.nodes:
            if any(key in node.annotations for key in _NODE_KEYS) and self._facts.deletable[node.name] is not None:
                change = partial(relaxed_cluster.without_node_annotations, keys=_NODE_KEYS, names=(node.name,))
                yield self._prices[node.name], Relaxation(f"node {node.name}", _on(self._question, change))

    def _offers(self) -> Iterator[tuple[int, Relaxation]]:
        offers = self._question.offers
        prices: dict[str, int] = {}
        for offer in offers:
            for draw in draws(offer):
                prices[draw.stock] = max(offer.micro_usd_per_hour, prices.get(draw.stock, 0))
        for name, price in sorted(prices.items()):
            if name.startswith(NAMESPACED):
                continue  # priced with the pods that its quota holds
            yield price, Relaxation(f"limit {name}", self._unlimited(name))

    def _unlimited(self, name: str) -> Callable[[], Question]:
        question = self._question
        return lambda: replace(question, offers=_unlimited(question.offers, name))


def _bound_of(problem: Compiled) -> int:
    """Return the bound of a problem, by patterns where it is small: shares of room know no limit of pods on a node.

    Their rounds are counted, so that a replay has the same.
    """
    rough = lower_bound(problem.relaxed)
    if not is_dense(problem):
        return rough.value
    return pattern_bound(problem.relaxed, rough, (), lambda n: "work-limit" if n >= _PATTERN_ROUNDS else None)[0].value


def price_constraints(problem: Compiled, least: int | None, stop: StopRule) -> tuple[tuple[ConstraintCost, ...], Stop]:
    """Return what constraints cost: by how much the bound falls without each, as many as the time allows.

    Where the exact model has proven the `least` cost (micro-USD per hour), the bound is that cost with and without each
    constraint.
    """
    known = least is not None or stop.waits(KERNELS, kernels.ready)
    stop.begin(PRICING)

    def bound(question: Question) -> int | None:
        if least is None:
            return _bound_of(compiled(question))
        step = StepStop(SOON, stop.late)
        found = least_cost(question, step)
        return None if step.given_up else least if found is None else found

    ended = stop.ends(0, PRICING)
    if ended is not None or not known:
        return (), Stop(reason=ended or "time-limit", phase=PRICING, iteration=0)
    relaxations = constraint_relaxations(problem.question)
    base = least
    if base is None:
        base = _bound_of(problem) if relaxations else 0
    found, looked = prices_of(relaxations, base=base, value=bound, ends=lambda n: stop.ends(n, PRICING) is not None)
    if looked == len(relaxations):
        return found, Stop(reason="optimal", phase=PRICING, iteration=looked + 1)
    # A replay ends before the one that was begun in vain: before the first of all, 1, it asks as 0.
    again = looked + 1 if looked else 0
    return found, Stop(reason=stop.ends(again) or "time-limit", phase=PRICING, iteration=again)
