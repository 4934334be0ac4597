"""Resource quotas of namespaces: whether one more pod like another is admitted, and one in the place of another.

A surge needs room for one more pod. An eviction needs none beyond that of the pod that leaves, but its replacement has
to be admitted. A rolling update needs a new ReplicaSet as well. The priority class of a pod shows in its priority
alone. Where that leaves a doubt, the pod is taken as counted: Kinema asks for no pod that might be refused.

Source: the admission of quotas and its evaluator of pods, https://kubernetes.io/docs/concepts/policy/resource-quotas.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from kinema_core.events import EMPTY, Amounts, FrozenMap, Pod, QuotaScope, ResourceQuota
from kinema_core.model.cluster import Cluster
from kinema_core.model.derived import derived
from kinema_core.model.quantity import in_words
from kinema_core.model.resources import add, fits, lacking, subtract, times

_STATED: Final = ("requests.cpu", "requests.memory", "limits.cpu", "limits.memory")
"""What every pod has to state that a quota with this amount is about."""
SETS: Final = "count/replicasets.apps"
"""Amount of a quota that is about ReplicaSets. Those that a Deployment keeps without pods count too."""
_UNKNOWN: Final = -1
"""Left of an amount that the quota's controller has not counted yet: no pod is admitted."""


def charge(cluster: Cluster, quota: ResourceQuota, pod: Pod, requests: Amounts | None = None) -> Amounts:
    """Return what one more pod like this takes of the quota, with other requests if given; empty where it counts none.

    An amount of the quota that the pod does not state is 0.
    """
    if not all(_counts(cluster, scope, pod) for scope in quota.scopes):
        return EMPTY
    asked = pod.requests if requests is None else requests
    stated = {"pods": 1, "count/pods": 1}
    stated |= {f"requests.{name}": amount for name, amount in asked.items() if name != "pods"}
    stated |= {f"limits.{name}": amount for name, amount in pod.limits.items()}
    return FrozenMap({name: stated.get(name, 0) for name in quota.hard})


def _counts(cluster: Cluster, scope: QuotaScope, pod: Pod) -> bool:
    """Return whether a pod matches a scope. The pods of sets that stay up have no `activeDeadlineSeconds`."""
    asks = any(pod.requests.get(name) or pod.limits.get(name) for name in ("cpu", "memory"))
    match scope.name:
        case "BestEffort":
            return not asks
        case "NotBestEffort":
            return asks
        case "Terminating":
            return pod.owner is None or pod.owner.kind == "Job"
        case "CrossNamespacePodAffinity":
            terms = (*pod.rules.affinity, *pod.rules.anti_affinity)
            return any(term.namespaces or term.namespace_selector is not None for term in terms)
        case "PriorityClass":
            return _may_be_in(cluster.priority_classes, scope, pod.priority)
        case _:
            return True


def _may_be_in(classes: Mapping[str, int], scope: QuotaScope, priority: int) -> bool:
    """Return whether a pod with this priority may be of a class that the scope is about.

    `classes`: values by name; empty where they are not observed. Only a pod with priority 0 may have no class.
    """
    own = {name for name, value in classes.items() if value == priority}
    match scope.operator:
        case "In":
            return any(classes.get(name, priority) == priority for name in scope.values)
        case "NotIn":
            return priority == 0 or not own or not own.issubset(scope.values)
        case "DoesNotExist":
            return priority == 0
        case _:
            return priority != 0 or bool(own) or not classes


@derived
def quotas_by_namespace(cluster: Cluster) -> Mapping[str, tuple[ResourceQuota, ...]]:
    """Return the quotas of each namespace that has any, by key."""
    found: dict[str, list[ResourceQuota]] = {}
    for quota in cluster.quotas:
        if quota.hard:
            found.setdefault(quota.namespace, []).append(quota)
    return {namespace: tuple(quotas) for namespace, quotas in found.items()}


@derived
def left_by_quota(cluster: Cluster) -> Mapping[str, Amounts]:
    """Return what each quota has left, by `namespace/name`; below 0 where it admits no pod that takes any of it.

    A quota is counted some time after its pods: what the pods of the state take counts where that is more.
    """
    taken: dict[str, dict[str, int]] = {quota.key: {} for quota in cluster.quotas}
    spaces = quotas_by_namespace(cluster)
    for pod in cluster.pods if spaces else ():
        for quota in spaces.get(pod.namespace, ()):
            counted = taken[quota.key]
            for name, amount in charge(cluster, quota, pod).items():
                counted[name] = counted.get(name, 0) + amount
    return {
        quota.key: FrozenMap(
            {
                name: hard - max(quota.used[name], taken[quota.key].get(name, 0)) if name in quota.used else _UNKNOWN
                for name, hard in quota.hard.items()
            }
        )
        for quota in cluster.quotas
    }


def no_return(cluster: Cluster, pod: Pod) -> str | None:
    """Return why a quota would not admit a replacement of the pod once it is gone; None where none is in the way."""
    return next((why for _, why in _against(cluster, pod, copies=0)), None)


def no_copy(cluster: Cluster, pod: Pod) -> str | None:
    """Return why a quota would not admit one more pod like this one; None where none is in the way."""
    return next((why for _, why in _against(cluster, pod, copies=1)), None)


def quotas_against(cluster: Cluster, pod: Pod, *, rolled: bool) -> tuple[str, ...]:
    """Return the quotas that would not admit one more pod like this one, by `namespace/name`.

    Where it is `rolled`, those that would not admit its new ReplicaSet are among them.
    """
    pods, sets = _against(cluster, pod, copies=1), _full_of_sets(cluster, left_by_quota(cluster), pod.namespace)
    return tuple(dict.fromkeys((*(quota.key for quota, _ in pods), *(quota.key for quota in sets if rolled))))


def no_new_set(cluster: Cluster, namespace: str) -> str | None:
    """Return why a quota would not admit a ReplicaSet, as a rolling update makes; None where none is in the way."""
    return _no_set(cluster, left_by_quota(cluster), namespace)


def _no_set(cluster: Cluster, left: Mapping[str, Amounts], namespace: str) -> str | None:
    full = next(_full_of_sets(cluster, left, namespace), None)
    if full is None:
        return None
    others = "; other updates take the rest" if left_by_quota(cluster)[full.key][SETS] > 0 else ""
    return f"ResourceQuota {full.key} has no room for the ReplicaSet of a rolling update ({_share(full, SETS)}{others})"


def _full_of_sets(cluster: Cluster, left: Mapping[str, Amounts], namespace: str) -> Iterator[ResourceQuota]:
    """Yield the quotas of a namespace that admit no ReplicaSet; `left` is what each has left."""
    for quota in quotas_by_namespace(cluster).get(namespace, ()):
        if SETS in quota.hard and left[quota.key][SETS] < 1:
            yield quota


def _against(cluster: Cluster, pod: Pod, copies: int) -> Iterator[tuple[ResourceQuota, str]]:
    for quota in quotas_by_namespace(cluster).get(pod.namespace, ()):
        takes, left = charge(cluster, quota, pod), left_by_quota(cluster)[quota.key]
        unstated = [name for name in _STATED if name in takes and not takes[name]]
        if unstated:
            yield quota, f"ResourceQuota {quota.key} admits no pod that does not state {', '.join(unstated)}"
            continue
        short = [name for name, amount in sorted(takes.items()) if amount and left[name] < amount * copies]
        if short:
            yield quota, f"ResourceQuota {quota.key} has no room for {_in_words(quota, short, copies)}"


def _in_words(quota: ResourceQuota, names: list[str], copies: int) -> str:
    what = "one more of its pods" if copies else "a pod in its place"
    return f"{what} ({', '.join(_share(quota, name) for name in names)})"


def _share(quota: ResourceQuota, name: str) -> str:
    resource = name.rpartition(".")[2]
    used = in_words(resource, quota.used[name]) if name in quota.used else "an unknown number"
    return f"{name}: {used} of {in_words(resource, quota.hard[name])}"


@derived
def wanting(cluster: Cluster) -> Mapping[str, str]:
    """Return, by namespace with a quota, the first workload that lacks pods: it would take any place that becomes free.

    The pods of jobs come and go.
    """
    spaces, found = quotas_by_namespace(cluster), dict[str, str]()
    for one in cluster.workloads if spaces else ():
        if one.namespace in spaces and one.type != "Job" and one.current < one.replicas:
            found.setdefault(one.namespace, one.key)
    return found


@derived
def tight_namespaces(cluster: Cluster) -> frozenset[str]:
    """Return the namespaces where a quota would not admit one more of some pod, or a ReplicaSet."""
    spaces = quotas_by_namespace(cluster)
    full = frozenset(namespace for namespace in spaces if no_new_set(cluster, namespace))
    return full.union(pod.namespace for pod in cluster.pods if pod.namespace in spaces and no_copy(cluster, pod))


class QuotaRoom:
    """What quotas have left, handed out during one decision: what one move takes, the next does not see."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._left = dict(left_by_quota(cluster))

    def fits(self, pod: Pod, requests: Amounts, most: int) -> int:
        """Return how many more pods like `pod`, each with `requests`, all quotas admit, up to `most`."""
        return min((times(takes, self._left[key], most) for key, takes in self._charges(pod, requests)), default=most)

    def take(self, pod: Pod, requests: Amounts, count: int) -> None:
        """Count so many more pods like `pod`."""
        for key, takes in self._charges(pod, requests):
            for _ in range(count):
                self._left[key] = subtract(self._left[key], takes)

    def why_no_set(self, namespace: str) -> str | None:
        """Return why a quota has no room for one more ReplicaSet; None where all have."""
        return _no_set(self._cluster, self._left, namespace)

    def take_set(self, namespace: str) -> None:
        """Count one more ReplicaSet."""
        for quota in quotas_by_namespace(self._cluster).get(namespace, ()):
            if SETS in quota.hard:
                self._left[quota.key] = subtract(self._left[quota.key], FrozenMap({SETS: 1}))

    def grows(self, pod: Pod, requests: Amounts, more: Amounts, count: int) -> bool:
        """Take what `count` pods like `pod` request `more`; return whether there was room, and for one new pod beside.

        `requests` are those of a new pod. Pods that are there are counted already: only what they request more is not.
        """
        charges = [(key, takes) for key, takes in self._charges(pod, requests)]
        grown = {key: self._more(takes, more, count) for key, takes in charges}
        if not all(fits(add(takes, grown[key]), self._left[key]) for key, takes in charges):
            return False
        self._left |= {key: subtract(self._left[key], amounts) for key, amounts in grown.items()}
        return True

    @staticmethod
    def _more(takes: Amounts, more: Amounts, count: int) -> Amounts:
        grown = {name: more.get(name.removeprefix("requests."), 0) * count for name in takes}
        return FrozenMap({name: amount for name, amount in grown.items() if name.startswith("requests.")})

    def why(self, pod: Pod, requests: Amounts) -> str:
        """Return which quota has no room for one more pod like `pod`; empty where all have."""
        short = [(key, lacking(takes, self._left[key])) for key, takes in self._charges(pod, requests)]
        return "; ".join(f"ResourceQuota {key} lacks {', '.join(names)}" for key, names in short if names)

    def _charges(self, pod: Pod, requests: Amounts) -> Iterator[tuple[str, Amounts]]:
        for quota in quotas_by_namespace(self._cluster).get(pod.namespace, ()):
            takes = charge(self._cluster, quota, pod, requests)
            if takes:
                yield quota.key, takes
