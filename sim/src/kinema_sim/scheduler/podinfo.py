"""Pod as the scheduler reads it, once."""

from collections.abc import Mapping
from dataclasses import dataclass

from kinema_sim.engine.objects import Key, Obj, controller_ref, key_of, labels_of, uid_of
from kinema_sim.engine.quantity import resource
from kinema_sim.engine.selectors import matches

Amounts = dict[str, int]
"""Resource name → amount; CPU in millicores, others in units."""

_DEFAULT_CPU_M = 100
_DEFAULT_MEMORY = 200 * 1024**2


@dataclass(frozen=True, eq=False)
class PodInfo:
    """A pod as the scheduler sees it.

    Attributes:
        key: namespace and name.
        uid: uid of the pod.
        labels: labels of the pod.
        owner: uid of its controller, empty for a bare pod.
        owner_kind: kind of its controller.
        priority: higher goes first.
        requests: what it asks for, as the fit filter counts it.
        weighed: CPU and memory as the scores weigh them (a container that asks for nothing counts a little).
        node_selector: labels that the node must have.
        required: node selector terms of which one must match; None when there is no such rule.
        preferred: weighted node selector terms.
        tolerations: tolerations.
        ports: (address, protocol, port) of host ports.
        affinity: required terms of pod affinity.
        anti_affinity: required terms of pod anti-affinity.
        liked: (weight, term) of preferred pod affinity, negative weights for anti-affinity.
        spread: topology spread constraints.
        terminating: whether it is on its way out.
    """

    key: Key
    uid: str
    labels: Mapping[str, str]
    owner: str
    owner_kind: str
    priority: int
    requests: Amounts
    weighed: tuple[int, int]
    node_selector: Mapping[str, str]
    required: tuple[Obj, ...] | None
    preferred: tuple[Obj, ...]
    tolerations: tuple[Obj, ...]
    ports: frozenset[tuple[str, str, int]]
    affinity: tuple[Obj, ...]
    anti_affinity: tuple[Obj, ...]
    liked: tuple[tuple[int, Obj], ...]
    spread: tuple[Obj, ...]
    terminating: bool

    @property
    def namespace(self) -> str:
        """The pod's namespace."""
        return self.key[0]


def amounts(listed: Mapping[str, str] | None) -> Amounts:
    """Read a map of resource quantities."""
    return {name: resource(name, text) for name, text in (listed or {}).items()}


def _requests_of(container: Obj) -> Amounts:
    return amounts((container.get("resources") or {}).get("requests"))


def _add(into: Amounts, more: Mapping[str, int]) -> None:
    for name, amount in more.items():
        into[name] = into.get(name, 0) + amount


def pod_requests(pod: Obj) -> Amounts:
    """Add up what a pod asks for: containers and sidecars, or the largest init step, and the overhead."""
    spec = pod["spec"]
    total: Amounts = {}
    for container in spec.get("containers") or ():
        _add(total, _requests_of(container))
    sidecars: Amounts = {}
    peak: Amounts = {}
    for container in spec.get("initContainers") or ():
        step = dict(sidecars)
        _add(step, _requests_of(container))
        if container.get("restartPolicy") == "Always":
            sidecars = step
        for name, amount in step.items():
            peak[name] = max(peak.get(name, 0), amount)
    _add(total, sidecars)
    for name, amount in peak.items():
        total[name] = max(total.get(name, 0), amount)
    total.update(amounts((spec.get("resources") or {}).get("requests")))
    _add(total, amounts(spec.get("overhead")))
    return total


def _weighed(pod: Obj) -> tuple[int, int]:
    cpu = memory = 0
    for container in pod["spec"].get("containers") or ():
        requests = _requests_of(container)
        cpu += requests.get("cpu", _DEFAULT_CPU_M)
        memory += requests.get("memory", _DEFAULT_MEMORY)
    return cpu, memory


def _ports(pod: Obj) -> frozenset[tuple[str, str, int]]:
    return frozenset(
        (port.get("hostIP") or "0.0.0.0", port.get("protocol") or "TCP", int(port["hostPort"]))  # noqa: S104  # the wildcard that the API means, nothing binds to it
        for container in pod["spec"].get("containers") or ()
        for port in container.get("ports") or ()
        if port.get("hostPort")
    )


def _liked(affinity: Obj) -> tuple[tuple[int, Obj], ...]:
    field = "preferredDuringSchedulingIgnoredDuringExecution"
    return tuple(
        (sign * int(entry["weight"]), entry["podAffinityTerm"])
        for part, sign in (("podAffinity", 1), ("podAntiAffinity", -1))
        for entry in (affinity.get(part) or {}).get(field) or ()
    )


def read_pod(pod: Obj) -> PodInfo:
    """Read a pod for scheduling.

    Raises:
        ValueError: a quantity cannot be read.
    """
    spec = pod["spec"]
    affinity: Obj = spec.get("affinity") or {}
    node_affinity: Obj = affinity.get("nodeAffinity") or {}
    needed = "requiredDuringSchedulingIgnoredDuringExecution"
    required = node_affinity.get(needed)
    owner = controller_ref(pod) or {}
    return PodInfo(
        key=key_of(pod),
        uid=uid_of(pod),
        labels=labels_of(pod),
        owner=owner.get("uid", ""),
        owner_kind=owner.get("kind", ""),
        priority=int(spec.get("priority") or 0),
        requests=pod_requests(pod),
        weighed=_weighed(pod),
        node_selector=spec.get("nodeSelector") or {},
        required=None if required is None else tuple(required.get("nodeSelectorTerms") or ()),
        preferred=tuple(node_affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ()),
        tolerations=tuple(spec.get("tolerations") or ()),
        ports=_ports(pod),
        affinity=tuple((affinity.get("podAffinity") or {}).get(needed) or ()),
        anti_affinity=tuple((affinity.get("podAntiAffinity") or {}).get(needed) or ()),
        liked=_liked(affinity),
        spread=tuple(spec.get("topologySpreadConstraints") or ()),
        terminating="deletionTimestamp" in pod["metadata"],
    )


def namespace_matches(term: Obj, own: str, namespace: str, *, labels: Mapping[str, Mapping[str, str]]) -> bool:
    """Return whether a pod affinity term of a pod in `own` looks at a namespace; `labels` are those of namespaces."""
    listed = term.get("namespaces") or ()
    selector = term.get("namespaceSelector")
    if not listed and selector is None:
        return namespace == own
    return namespace in listed or (selector is not None and matches(selector, labels.get(namespace, {})))
