"""Requests of a pod, counted as kube-scheduler counts them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final, TypeAlias

import msgspec

from kinema_core.events import EMPTY, Amounts, ContainerRequests, FrozenMap
from kinema_core.model.quantity import LIMIT
from kinema_observer.errors import UnreadableFieldError
from kinema_observer.logic.reading import amounts_of, decoded, fault_of, meaning, one_of
from kinema_observer.logic.wire import NOTHING, ContainerStatus, PodSpec, Resources, Scalar

_RESOURCES: Final = msgspec.json.Decoder(Resources)
_RESTARTS: Final = ("Never", "OnFailure", "Always")
_AMOUNTS: Final = msgspec.json.Decoder(dict[str, Scalar])

Reported: TypeAlias = tuple[tuple[int, str, bytes, bytes], ...]
"""Place and name of a container's status, and its texts of what is allocated and actual."""


def reported_of(statuses: Sequence[ContainerStatus]) -> Reported:
    """Return what the kubelet says of the containers' resources, where it says anything."""
    return tuple(
        [
            (index, item.name, bytes(item.allocated_resources), bytes(item.resources))
            for index, item in enumerate(statuses)
            if item.allocated_resources is not NOTHING or item.resources is not NOTHING
        ]
    )


def resizable_of(spec: PodSpec, statuses: Sequence[ContainerStatus]) -> tuple[str, ...]:
    """Return the resources of which a running pod's requests can change without a restart.

    A kubelet that resizes pods reports what each container has. Requests of the pod as a whole stay as they are.
    """
    known = {item.name for item in statuses if item.resources is not NOTHING}
    if not known or not known.issuperset(item.name for item in spec.containers) or meaning(bytes(spec.resources)):
        return ()
    policies = (policy for item in spec.containers for policy in item.resize_policy or ())
    restarting = {policy.resource_name for policy in policies if policy.restart_policy != "NotRequired"}
    return tuple(name for name in ("cpu", "memory") if name not in restarting)


def requests_of(spec: PodSpec, reported: Reported = ()) -> Amounts:
    """Requests of a whole pod, and `pods: 1`; pods with equal texts share one map.

    Containers and sidecars run together; each other init container runs alone beside the sidecars started before it,
    so the largest of these moments counts. Requests written for the pod as a whole replace the sum; overhead comes on
    top. While a container is being resized, the larger of wanted, allocated and actual requests counts.

    Raises:
        UnreadableFieldError: a quantity cannot be read; its path begins at `spec` or `status`.
    """
    return _counted(
        tuple([(item.name, bytes(item.resources)) for item in spec.containers]),
        tuple([(item.name, bytes(item.resources), item.restart_policy) for item in spec.init_containers or ()]),
        (bytes(spec.resources), bytes(spec.overhead)),
        reported,
    )


def limits_of(spec: PodSpec) -> Amounts:
    """Return the limits of CPU and memory of a whole pod, counted as a quota does: like requests.

    Limits written for the pod as a whole replace the sum; overhead comes on top of what is limited.

    Raises:
        UnreadableFieldError: a quantity cannot be read; its path begins at `spec`.
    """
    running: dict[str, int] = {}
    for index, item in enumerate(spec.containers):
        _add(running, _limits(bytes(item.resources), f"spec.containers[{index}]"))
    peak: dict[str, int] = {}
    sidecars: dict[str, int] = {}
    for index, item in enumerate(spec.init_containers or ()):
        alone = dict(sidecars)
        _add(alone, _limits(bytes(item.resources), f"spec.initContainers[{index}]"))
        if item.restart_policy == "Always":
            _add(running, _limits(bytes(item.resources), f"spec.initContainers[{index}]"))
            sidecars = alone
        _raise(peak, alone)
    _raise(running, peak)
    whole = meaning(bytes(spec.resources))
    if whole:
        running.update(amounts_of(decoded(_RESOURCES, whole, "spec.resources").limits, "spec.resources.limits"))
    overhead = _amounts(meaning(bytes(spec.overhead)), "spec.overhead")
    limited = {name: running[name] + overhead.get(name, 0) for name in ("cpu", "memory") if name in running}
    return _shared(tuple(limited.items()))


def containers_of(spec: PodSpec) -> tuple[ContainerRequests, ...]:
    """Return what each container asks for that asks for anything, and what is written for the pod as a whole.

    Raises:
        UnreadableFieldError: a quantity cannot be read; its path begins at `spec`.
    """
    whole = _whole(meaning(bytes(spec.resources)))
    stated = [ContainerRequests(name="", requests=whole)]
    for path, containers in (("containers", spec.containers), ("initContainers", spec.init_containers or ())):
        for index, item in enumerate(containers):
            amounts = _container(bytes(item.resources), f"spec.{path}[{index}]", None)
            stated.append(ContainerRequests(name=item.name, requests=amounts, init=path == "initContainers"))
    return tuple(one for one in stated if one.requests)


def ceiling_of(spec: PodSpec) -> Amounts:
    """Return how far CPU and memory requests may grow in proportion: a container's must not be above its limit.

    Raises:
        UnreadableFieldError: a quantity cannot be read; its path begins at `spec`.
    """
    found: dict[str, int] = {}
    pairs = [
        (_container(text, path, None), _limits(text, path))
        for index, item in enumerate(spec.containers)
        for text, path in ((bytes(item.resources), f"spec.containers[{index}]"),)
    ]
    for name in ("cpu", "memory"):
        total = sum(requests.get(name, 0) for requests, _ in pairs)
        tops = [
            total * limits[name] // requests[name]
            for requests, limits in pairs
            if name in limits and requests.get(name, 0) > 0
        ]
        if tops:
            found[name] = min(tops)
    return _shared(tuple(sorted(found.items())))


def _limits(text: bytes, path: str) -> Amounts:
    path = f"{path}.resources"
    return amounts_of(decoded(_RESOURCES, text, path).limits, f"{path}.limits") if meaning(text) else EMPTY


def _whole(text: bytes) -> Amounts:
    """Requests written for the pod as a whole. From its limits the API makes them of what the containers ask for."""
    if not text:
        return EMPTY
    return amounts_of(decoded(_RESOURCES, text, "spec.resources").requests, "spec.resources.requests")


@lru_cache(maxsize=32768)
def _counted(
    containers: tuple[tuple[str, bytes], ...],
    inits: tuple[tuple[str, bytes, str | None], ...],
    whole: tuple[bytes, bytes],
    reported: Reported,
) -> Amounts:
    live = _live(reported)
    running: dict[str, int] = {}
    for index, (name, text) in enumerate(containers):
        _add(running, _container(text, f"spec.containers[{index}]", live.get(name)))
    peak: dict[str, int] = {}
    sidecars: dict[str, int] = {}
    for index, (name, text, policy) in enumerate(inits):
        path = f"spec.initContainers[{index}]"
        requests = _container(text, path, live.get(name))
        if one_of(policy, _RESTARTS, f"{path}.restartPolicy") == "Always":
            _add(running, requests)
            _add(sidecars, requests)
            _raise(peak, sidecars)
        else:
            alone = dict(sidecars)
            _add(alone, requests)
            _raise(peak, alone)
    _raise(running, peak)
    pod_level, overhead = whole
    _override(running, meaning(pod_level))
    _add(running, _amounts(meaning(overhead), "spec.overhead"))
    running["pods"] = 1
    for name, amount in running.items():
        if amount > LIMIT:
            raise UnreadableFieldError("spec.containers", f"request more than 2^63 - 1 of {name} together: write less")
    return _shared(tuple(sorted(running.items())))


@lru_cache(maxsize=16384)
def _shared(items: tuple[tuple[str, int], ...]) -> Amounts:
    """One map for all pods that request the same."""
    return FrozenMap(items)


def _add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _raise(floor: dict[str, int], other: Mapping[str, int]) -> None:
    for name, amount in other.items():
        if amount > floor.get(name, 0):
            floor[name] = amount


def _container(text: bytes, path: str, live: Amounts | None) -> Amounts:
    try:
        wanted = _requests(meaning(text))
    except UnreadableFieldError as error:
        raise error.under(f"{path}.resources") from error
    if live is None or live == wanted:
        return wanted
    largest = dict(wanted)
    _raise(largest, live)
    return FrozenMap(largest)


@lru_cache(maxsize=16384)
def _requests(text: bytes) -> Amounts:
    """Requests in a `resources` text; a limit without a request is its request, as the API fills in for pods."""
    if not text:
        return EMPTY
    try:
        found = _RESOURCES.decode(text)
    except msgspec.DecodeError as error:
        raise fault_of(error) from error
    limits, requests = amounts_of(found.limits, "limits"), amounts_of(found.requests, "requests")
    unsaid = {name: amount for name, amount in limits.items() if name not in (found.requests or {})}
    return FrozenMap({**requests, **unsaid}) if unsaid else requests


def _live(reported: Reported) -> Mapping[str, Amounts]:
    """Return what the kubelet has allocated and set, by container; where it reports both, the larger."""
    found: dict[str, Amounts] = {}
    for index, name, allocated, actual in reported:
        try:
            largest = dict(_requests(meaning(actual)))
            _raise(largest, _amounts(meaning(allocated), "allocatedResources"))
        except UnreadableFieldError as error:
            raise error.under(f"status.containerStatuses[{index}]") from error
        found[name] = FrozenMap(largest)
    return found


def _amounts(text: bytes, path: str) -> Amounts:
    return amounts_of(decoded(_AMOUNTS, text, path), path) if text else EMPTY


def _override(running: dict[str, int], text: bytes) -> None:
    """Pod-level resources: cpu, memory and huge pages written for the whole pod replace the containers' sum.

    A pod-level limit alone counts where no container says anything.
    """
    if not text:
        return
    found = decoded(_RESOURCES, text, "spec.resources")
    for name, amount in amounts_of(found.limits, "spec.resources.limits").items():
        if _pod_level(name):
            running.setdefault(name, amount)
    requests = amounts_of(found.requests, "spec.resources.requests")
    running.update({name: amount for name, amount in requests.items() if _pod_level(name)})


def _pod_level(name: str) -> bool:
    return name in ("cpu", "memory") or name.startswith("hugepages-")
