"""The rules by which a pod may not move, each with a code and a reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeAlias

from kinema_core.events import NO_RULES, Labels, Namespace, Node, Pod
from kinema_core.model.budgets import blocking_budgets, budgets_by_pod
from kinema_core.model.cluster import Cluster
from kinema_core.model.daemons import is_resident
from kinema_core.model.derived import derived
from kinema_core.model.disruption_cost import disruption_cost_doubt
from kinema_core.model.health import standings
from kinema_core.model.neighbors import required
from kinema_core.model.quarantine import Quarantine, quarantine_of
from kinema_core.model.resource_quotas import no_copy, no_new_set, no_return, tight_namespaces, wanting
from kinema_core.model.restless import Restless, restless_workloads
from kinema_core.model.strategy import (
    CHOICES,
    KNOWN_CONTROLLERS,
    annotations_of,
    chain_of,
    chosen_strategy,
    evades_budgets,
    no_second_copy,
    strategy_of,
)
from kinema_core.model.templates import template_doubt
from kinema_core.model.vocabulary import (
    DO_NOT_DISRUPT,
    DO_NOT_MOVE,
    HELD,
    PREFER_NO_EVICTION,
    SAFE_TO_EVICT,
    STRATEGY,
    forbids,
    is_true,
    protection,
)
from kinema_core.model.volumes import volume_doubt

_SCHEDULER: Final = "default-scheduler"
_SETS: Final = ("ReplicaSet", "ReplicationController", "StatefulSet")


@dataclass(frozen=True)
class MobilityOptions:
    """Permissions of the operator beyond the defaults."""

    move_jobs: bool = False
    allow_spot: bool = False
    autoscale_moves: bool = False
    """An autoscale plan may move running pods to make room for pending ones; nodes it only adds."""
    redundancy: bool = False
    """A plan leaves the pods of a workload on two nodes at least, and in as many zones as now."""
    waiting: frozenset[str] | None = None
    """Pending pods that stay so, by key: then evictions are held against the pods that are healthy now. None: they are
    not, as by an execution, which asks the API for each of them and has pods that are away by its own doing."""
    scope: tuple[Labels, ...] = ()
    """Nodes that are Kinema's: those that have all labels of any of these; empty: every node."""
    spot_share: float | None = None
    """Most of a workload's pods that may be on spot capacity, as a share; None: any number. An annotation is first."""
    spot_pool_share: float | None = None
    """The same for one spot pool: a machine type in a zone."""
    hold_restless: bool = True
    """Workloads that are not at rest stay, and those that a quota lets no second pod of run. An execution does not ask:
    its own moves are no rest, and take room of quotas."""
    resize_in_place: bool = True
    """Requests change while pods run where kubelets can do that, so that no second copies need room."""


@dataclass(frozen=True)
class Facts:
    """Input of the rules besides the pod itself."""

    cluster: Cluster
    now: datetime
    options: MobilityOptions
    quarantine: Quarantine
    spaces: Mapping[str, Namespace]
    """Namespaces by name."""
    owned: Mapping[str, int]
    """Pods per uid of their owner, for owners that are not in the state."""
    spent: Mapping[str, str]
    """Disruption budgets that bear no eviction as their pods are, by `namespace/name`, and why."""
    restless: Mapping[str, Restless]
    """Workloads that are not at rest, by key."""


def in_scope(labels: Labels, options: MobilityOptions) -> bool:
    """Return whether a node with these labels is Kinema's to delete, to fill and to boot."""
    scope = options.scope
    return not scope or any(wanted.items() <= labels.items() for wanted in scope)


def outside(node: Node, options: MobilityOptions) -> str | None:
    """Return why a node is not Kinema's; None where it is."""
    if in_scope(node.labels, options):
        return None
    wanted = " or ".join(",".join(f"{key}={value}" for key, value in sorted(one.items())) for one in options.scope)
    return f"node {node.name} is out of scope: it has no labels {wanted}"


@derived
def listed(cluster: Cluster) -> tuple[Pod, ...]:
    """Return the pods that a plan has to list, by key: neither going with their node nor terminating."""
    return tuple(listed_by_key(cluster).values())


@derived
def listed_by_key(cluster: Cluster) -> Mapping[str, Pod]:
    """Return the same pods, by key and in that order."""
    return {
        key: pod for key, pod in cluster.pods_by_key.items() if not pod.terminating and not is_resident(cluster, pod)
    }


def facts_of(cluster: Cluster, now: datetime, options: MobilityOptions) -> Facts:
    """Return what the rules need, gathered once."""
    owned: dict[str, int] = {}
    for pod in listed(cluster):
        if pod.owner is not None:
            owned[pod.owner.uid] = owned.get(pod.owner.uid, 0) + 1
    return Facts(
        cluster=cluster,
        now=now,
        options=options,
        quarantine=quarantine_of(cluster),
        spaces={space.name: space for space in cluster.namespaces},
        owned=owned,
        spent=_spent(cluster, options.waiting),
        restless=restless_workloads(cluster) if options.hold_restless else {},
    )


def _spent(cluster: Cluster, waiting: frozenset[str] | None) -> Mapping[str, str]:
    if waiting is None:
        return {}
    return {key: found.why for key, found in standings(cluster, waiting).items() if not found.bears}


# --- pods: each rule gives a code and a reason, or None

Verdict: TypeAlias = tuple[str, str]
"""A rule's code and its reason in this case."""

Rule: TypeAlias = Callable[[Facts, Pod], Verdict | None]


def verdict_on(facts: Facts, pod: Pod) -> Verdict | None:
    """Return the first rule that holds the pod: a bound one where it is, a pending one from being placed."""
    rules = _PLACEMENT_RULES if pod.node is None else _RULES
    return next((found for rule in rules if (found := rule(facts, pod)) is not None), None)


def judged_by_owner(facts: Facts, key: str, pod: Pod) -> bool:
    """Return whether no rule depends on anything in the bound pod that its owner's other pods might not have.

    All such pods of one owner get the same verdict, so that thousands of replicas are judged once. What a rule reads
    of a pod (its budgets and node included) has to be ruled out here.
    """
    rules = pod.rules
    budgets = budgets_by_pod(facts.cluster).get(key, ())
    return (
        pod.owner is not None
        and not (pod.annotations or pod.host_path)
        and not (rules.affinity or rules.anti_affinity or rules.spread or rules.claims or rules.host_ports)
        and not (rules.unmodeled or rules.gated or rules.scheduler != _SCHEDULER)
        and not (facts.quarantine.nodes or facts.options.scope)
        and facts.cluster.node(pod.node or "") is not None
        and (not budgets or (len(budgets) == 1 and budgets[0].key not in blocking_budgets(facts.cluster)))
        and not any(budget.key in facts.spent for budget in budgets)
        and pod.namespace not in tight_namespaces(facts.cluster)
        and template_doubt(facts.cluster, pod) is None
    )


def judged_alike(facts: Facts, judged: tuple[str, Pod], other: tuple[str, Pod]) -> bool:
    """Return whether the second of two pods of one owner, each with its key, is `judged_by_owner` as the first is.

    All that is asked there is the same of both: what their budgets are, what they state, and that their node is known.
    """
    (first_key, first), (key, pod) = judged, other
    budgets = budgets_by_pod(facts.cluster)
    return (
        pod.annotations == first.annotations
        and pod.host_path == first.host_path
        and pod.rules == first.rules
        and pod.requests == first.requests
        and pod.containers == first.containers
        and pod.labels == first.labels
        and facts.cluster.node(pod.node or "") is not None
        and budgets.get(key) == budgets.get(first_key)
    )


def _unreadable(facts: Facts, pod: Pod) -> Verdict | None:
    what = facts.quarantine
    if pod.node is not None and pod.node in what.nodes:
        return "quarantined-node", f"node {pod.node} is frozen: {what.nodes[pod.node]} could not be read"
    if pod.namespace in what.namespaces:
        return "frozen-namespace", f"namespace {pod.namespace}: {what.namespaces[pod.namespace]} could not be read"
    for key in chain_of(facts.cluster, pod).keys:
        if key in what.controllers:
            return "quarantined-controller", f"its controller {what.controllers[key]} could not be read"
    return None


def _placeless(facts: Facts, pod: Pod) -> Verdict | None:
    if facts.cluster.node(pod.node or "") is None:
        return "unknown-node", f"its node {pod.node} is not in the cluster's state"
    space = facts.spaces.get(pod.namespace)
    if space is not None and space.terminating:
        return "namespace-terminating", f"namespace {pod.namespace} is being deleted"
    return None


def _controller(facts: Facts, pod: Pod) -> Verdict | None:
    if pod.owner is None:
        return "bare-pod", "no controller would replace it"
    chosen = chosen_strategy(facts.cluster, pod)
    if pod.owner.kind not in KNOWN_CONTROLLERS and chosen != "evict":
        return (
            "unknown-controller",
            f"Kinema does not know how a {pod.owner.kind} replaces pods: {STRATEGY}: evict allows",
        )
    if pod.owner.kind == "Job" and not facts.options.move_jobs:
        return "job", "a job's pod would lose its work"
    return None


def _strategy_rule(facts: Facts, pod: Pod) -> Verdict | None:
    chosen = chosen_strategy(facts.cluster, pod)
    if chosen == "none":
        return "strategy-none", f"{STRATEGY} is none"
    if chosen is not None and chosen not in CHOICES:
        return "strategy-unknown", f"{STRATEGY} is {chosen!r}: write one of {', '.join(CHOICES)}"
    if chosen == "rolling" and strategy_of(facts.cluster, pod) == "rolling":
        recreated = next((one for one in chain_of(facts.cluster, pod).workloads if one.recreates), None)
        if recreated is not None:
            why = f"{STRATEGY} is rolling, and {recreated.key} ends all its pods before it makes new ones (Recreate)"
            return "strategy-recreate", why
    return None


def _risk(facts: Facts, pod: Pod) -> Verdict | None:
    doubt = disruption_cost_doubt(facts.cluster, pod)
    return None if doubt is None else ("invalid-disruption-cost", doubt)


def _replicas(facts: Facts, pod: Pod) -> int:
    """Desired replicas of the pod's set; where the state lacks the set, its pods are counted."""
    chain = chain_of(facts.cluster, pod)
    if chain.workloads and chain.workloads[0].key == chain.keys[0]:
        return chain.workloads[0].replicas
    return facts.owned.get(pod.owner.uid if pod.owner else "", 1)


def _single(facts: Facts, pod: Pod) -> Verdict | None:
    kind = chain_of(facts.cluster, pod).top_kind
    if kind == "Deployment" and not pod.rules.claims:
        return _alone(facts, pod)
    if kind not in (*_SETS, "Deployment") or _replicas(facts, pod) > 1:
        return None
    chosen = chosen_strategy(facts.cluster, pod)
    # To choose a surge is no leave to be away, where there can be no surge.
    unmet = chosen == "surge" if kind == "StatefulSet" else bool(pod.rules.claims) and chosen in ("surge", "rolling")
    if chosen is None or unmet:
        return "single-replica", f"the only replica of a {kind} would be away: {STRATEGY}: evict allows"
    return None


def _alone(facts: Facts, pod: Pod) -> Verdict | None:
    """Hold a pod whose surge would run a second copy where the owner excludes one."""
    owner = no_second_copy(facts.cluster, pod)
    if owner is None or chosen_strategy(facts.cluster, pod) == "evict":
        return None
    why = "Recreate" if owner.recreates else f"maxSurge {owner.max_surge}"
    return "single-replica", (
        f"{owner.key} wants one replica and lets no second copy run ({why}): "
        f"{STRATEGY}: evict (it may be away for a moment) or surge (a second copy may run) allows"
    )


def _annotated(facts: Facts, pod: Pod) -> Verdict | None:
    protected = protection(pod.annotations.get(DO_NOT_DISRUPT), start=pod.started, now=facts.now)
    if protected is not None:
        return "do-not-disrupt", protected
    above, space = chain_of(facts.cluster, pod).workloads, facts.spaces.get(pod.namespace)
    marks = (
        forbids(pod.annotations, DO_NOT_MOVE),
        *(forbids(one.annotations, DO_NOT_MOVE, of=one.key) for one in above),
        forbids(space.labels, DO_NOT_MOVE, of=f"namespace {space.name}") if space else None,
    )
    fixed = next(filter(None, marks), None)
    if fixed is not None:
        return "do-not-move", fixed
    unsafe = forbids(pod.annotations, SAFE_TO_EVICT, when="false")
    if unsafe is not None:
        return "safe-to-evict", unsafe
    if PREFER_NO_EVICTION in pod.annotations:
        return "prefer-no-eviction", f"{PREFER_NO_EVICTION} is set"
    return None


def _annotated_as_held(facts: Facts, pod: Pod) -> Verdict | None:
    said = next((given[HELD] for given in annotations_of(facts.cluster, pod) if HELD in given), None)
    if said is None:
        return None
    code, _, reason = said.partition(": ")
    return code, reason


def _host_path(facts: Facts, pod: Pod) -> Verdict | None:
    if pod.host_path and not is_true(pod.annotations, SAFE_TO_EVICT):
        return "host-path", f"it uses a directory of its node: {SAFE_TO_EVICT}: true allows"
    return None


def _budgeted(facts: Facts, pod: Pod) -> Verdict | None:
    budgets = budgets_by_pod(facts.cluster).get(pod.key, ())
    if not budgets or evades_budgets(facts.cluster, pod):
        return None
    if len(budgets) > 1:
        names = ", ".join(budget.key for budget in budgets)
        return "two-budgets", f"more than one disruption budget selects it ({names}): no eviction can succeed"
    key = budgets[0].key
    reason = blocking_budgets(facts.cluster).get(key)
    if reason is not None:
        return "pdb-never", f"disruption budget {key} never allows it: {reason}"
    if key in facts.spent and strategy_of(facts.cluster, pod) == "evict":
        return "pdb-unhealthy", f"disruption budget {key} does not allow it now: {facts.spent[key]}"
    return None


def _unmodeled(facts: Facts, pod: Pod) -> Verdict | None:
    rules = pod.rules
    if rules == NO_RULES:  # most pods: spares them the words below
        return None
    blind = not facts.cluster.namespaces and any(term.namespace_selector for term in required(rules.affinity))
    found = (
        ("namespaces", "namespaces by label, and the state has none of them", blind),
        ("scheduler", f"scheduler {rules.scheduler}, which Kinema does not model", rules.scheduler != _SCHEDULER),
        ("field", f"{', '.join(rules.unmodeled)}, which this version does not model", bool(rules.unmodeled)),
    )
    for code, what, present in found:
        if present:
            return f"unmodeled-{code}", f"its placement depends on {what}"
    return None


def _volumes(facts: Facts, pod: Pod) -> Verdict | None:
    return volume_doubt(facts.cluster, pod) if pod.rules.claims else None


def _templated(facts: Facts, pod: Pod) -> Verdict | None:
    doubt = template_doubt(facts.cluster, pod)
    return None if doubt is None else ("template-differs", doubt)


def _quota(facts: Facts, pod: Pod) -> Verdict | None:
    if pod.namespace not in tight_namespaces(facts.cluster):
        return None
    way = strategy_of(facts.cluster, pod)
    evicted = way == "evict"
    if not evicted and not facts.options.hold_restless:
        return None
    no_set = no_new_set(facts.cluster, pod.namespace) if way == "rolling" else None
    never, full = no_set or no_return(facts.cluster, pod), no_copy(facts.cluster, pod)
    if never is not None or full is None:
        return None if never is None else ("quota", never)
    if not evicted:
        return "quota", f"{full}: {STRATEGY}: evict, or a disruption budget that lets it be away, allows"
    other = wanting(facts.cluster).get(pod.namespace) if facts.options.hold_restless else None
    return None if other is None else ("quota", f"{full}, and {other} waits for one")


def _restless(facts: Facts, pod: Pod) -> Verdict | None:
    if not facts.restless:
        return None
    found = next((facts.restless[key] for key in chain_of(facts.cluster, pod).keys if key in facts.restless), None)
    return None if found is None else ("restless", f"its workload is not at rest: {found.detail}")


def _gated(facts: Facts, pod: Pod) -> Verdict | None:
    return ("gated", "a scheduling gate holds it back") if pod.rules.gated else None


def _out_of_scope(facts: Facts, pod: Pod) -> Verdict | None:
    node = facts.cluster.node(pod.node or "")
    why = None if node is None else outside(node, facts.options)
    return None if why is None else ("out-of-scope", why)


_PLACEMENT_RULES: Final[tuple[Rule, ...]] = (_gated, _unmodeled, _volumes)
"""For pending pods: to place one disturbs no other."""

_RULES: Final[tuple[Rule, ...]] = (
    _unreadable,
    _placeless,
    _out_of_scope,
    _annotated,
    _strategy_rule,
    _risk,
    _controller,
    _annotated_as_held,
    _host_path,
    _single,
    _budgeted,
    _unmodeled,
    _volumes,
    _templated,
    _quota,
    _restless,
)
