"""New pods led to their planned nodes, also where kube-scheduler would take another one.

A policy refuses to bind pods named in one ConfigMap to other nodes than those listed there, as long as the ConfigMap
was renewed a moment ago, on the API server's clock. kube-scheduler tries a refused pod again after a second, and looks
first at the node that the pod is nominated for. Nothing is written into a pod's specification. Whatever becomes of this
process, the policy ignores the ConfigMap `LANDING_SECONDS` later.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

import structlog

from kinema_core.events import Step
from kinema_core.runtime.clock import Clock
from kinema_kubernetes.client import FIELD_MANAGER
from kinema_kubernetes.objects import (
    Json,
    finished,
    has_controller_path,
    pod_path,
    pods_path,
    selector_text,
    terminating,
    uid,
    workload_path,
)
from kinema_rescheduler.errors import ConflictError, NotFoundError
from kinema_rescheduler.kubernetes.fenced import FencedClient
from kinema_rescheduler.names import (
    ANYWHERE,
    GENERATED,
    GENERATED_FROM,
    LANDING_NAME,
    LANDING_SECONDS,
    RENEWED,
    STEERING_NAMESPACE,
    landing_key,
)

_CONFIG_MAPS: Final = f"/api/v1/namespaces/{STEERING_NAMESPACE}/configmaps"
_LANDING: Final = f"{_CONFIG_MAPS}/{LANDING_NAME}"
_APART: Final = timedelta(seconds=2)
_RENEW: Final = timedelta(seconds=LANDING_SECONDS / 4)

_LOG = structlog.get_logger()


@dataclass
class Landing:
    """New pods of one move, as far as they were seen."""

    step: Step
    before: frozenset[str]
    """Uids of the workload's pods that had a node when the move began."""
    query: Mapping[str, str] = field(default_factory=dict)
    """What selects the workload's pods in its namespace."""
    names: set[str] = field(default_factory=set)
    """Names of pods that come back under the same name."""
    since: dict[str, datetime] = field(default_factory=dict)
    """When each waiting pod was first nominated, by uid."""
    free: set[str] = field(default_factory=set)
    """Uids of pods that may be bound anywhere: those that the plan does not know, and those that have waited."""
    missed: int = 0
    """Planned places whose pods have waited long enough."""
    over: bool = False


@dataclass(frozen=True)
class Outlook:
    """What to do about a workload's waiting pods."""

    nominate: Sequence[tuple[Json, str]]
    """Waiting pods, each with its planned node."""
    free: Sequence[Json]
    """Waiting pods that are free from now on."""
    missed: int
    """How many of those were led to a planned place and have waited long enough."""
    left: int
    """Planned places that pods may still take."""


def outlook(landing: Landing, pods: Iterable[Json], *, now: datetime, patience: timedelta) -> Outlook:
    """Assign a workload's waiting pods to the planned places that are left, the oldest first.

    A controller or an autoscaler may have asked for more pods than the plan has places. They are as good as the others:
    as many as there are places for are led there, the rest is free at once, and so is each that has been led for as
    long as the `patience`.
    """
    places = Counter(landing.step.nodes)
    bound = [pod for pod in pods if node_of(pod) and uid(pod) not in landing.before and uid(pod) not in landing.free]
    for pod in bound:
        places[node_of(pod)] -= 1
    coming = len(landing.step.nodes) - landing.missed - len(bound)
    left = max(0, min(coming, sum(count for count in places.values() if count > 0)))
    waiting = [pod for pod in pods if not node_of(pod) and uid(pod) not in landing.free]
    waiting.sort(key=lambda pod: (pod["metadata"].get("creationTimestamp") or "", pod["metadata"]["name"]))
    late = {uid(pod) for pod in waiting if now - landing.since.get(uid(pod), now) >= patience}
    led: dict[str, str] = {}
    for pod in sorted(waiting, key=lambda pod: places[nomination(pod)] <= 0):  # stable: those that have a place first
        open_places = [node for node, count in places.items() if count > 0]
        if not open_places or len(led) >= left:
            continue
        led[uid(pod)] = nomination(pod) if places[nomination(pod)] > 0 else open_places[0]
        places[led[uid(pod)]] -= 1
    missed = late & led.keys()
    nominate = [(pod, led[uid(pod)]) for pod in waiting if uid(pod) in led.keys() - late]
    free = [pod for pod in waiting if uid(pod) in late or uid(pod) not in led]
    return Outlook(nominate, free, len(missed), left - len(missed))


def node_of(pod: Json) -> str:
    """Return the node that a pod is bound to."""
    return str(pod["spec"].get("nodeName") or "")


def nomination(pod: Json) -> str:
    """Return the node that a pod is nominated for."""
    return str((pod.get("status") or {}).get("nominatedNodeName") or "")


class LandingKeeper:
    """Leads the new pods of moves under way, look by look. One at a time has effect: the holder of the lease."""

    def __init__(self, api: FencedClient, *, clock: Clock, patience_seconds: float) -> None:
        self._api = api
        self._clock = clock
        self._patience = timedelta(seconds=patience_seconds)
        self._landings: dict[str, Landing] = {}
        self._written: dict[str, str] | None = None
        """What the ConfigMap has; None where that is not known."""
        self._renewed: datetime | None = None
        self._ahead = timedelta()
        """How far the API server's clock is ahead of this one."""

    def forget(self) -> None:
        """Begin again from what the cluster shows: another process may have led in between."""
        self._landings.clear()
        self._written = self._renewed = None

    async def keep(self, steps: Iterable[Step]) -> None:
        """Nominate the pods that wait, free those that are not to, and renew the ConfigMap for the others.

        The ConfigMap is renewed last, with all of this done: where any of it fails, the pods are free soon.

        Raises:
            EffectError: the cluster could not be read or written.
        """
        wanted = {step.id: step for step in steps}
        self._landings = {id_: one for id_, one in self._landings.items() if id_ in wanted}
        if not wanted and self._written == {}:
            return
        entries: dict[str, str] = {}
        for found in await asyncio.gather(*(self._look(step) for step in wanted.values())):
            entries.update(found)
        await self._write(entries)

    async def _look(self, step: Step) -> Mapping[str, str]:
        """Lead one workload's pods; return the ConfigMap's entries for them."""
        known = self._landings.get(step.id)
        if known is not None and known.over:
            return {}
        query = known.query if known is not None else await self._query(step)
        pods = await self._pods(step, query)
        if known is None:
            before = frozenset(uid(pod) for pod in pods if node_of(pod))
            known = self._landings[step.id] = Landing(step, before, query)
        for pod in pods:
            if not _prefix(pod) and (uid(pod) in step.pods or not node_of(pod)):
                known.names.add(pod["metadata"]["name"])
        found = outlook(known, pods, now=self._clock.now(), patience=self._patience)
        await self._lead(known, found)
        known.over = not found.left or any(_reserves(pod) for pod in pods)
        return {} if known.over else _entries(known, pods)

    async def _lead(self, known: Landing, found: Outlook) -> None:
        released = [(pod, "") for pod in found.free if nomination(pod) in known.step.nodes]
        tried = [(pod, node) for pod, node in found.nominate if _was_tried(pod)]
        await asyncio.gather(*(self._nominate(pod, node) for pod, node in (*tried, *released)))
        for pod, _ in tried:
            known.since.setdefault(uid(pod), self._clock.now())
        for pod in found.free:
            _LOG.info("new pod may go anywhere", pod=f"{pod['metadata']['namespace']}/{pod['metadata']['name']}")
        known.free.update(map(uid, found.free))
        known.missed += found.missed

    async def _query(self, step: Step) -> Mapping[str, str]:
        """Return what selects the workload's pods in its namespace; nothing for one that is gone or of unknown kind."""
        if not has_controller_path(step.target):
            return {}
        try:
            return {"labelSelector": selector_text(await self._api.get(workload_path(step.target)))}
        except NotFoundError:
            return {}

    async def _pods(self, step: Step, query: Mapping[str, str]) -> list[Json]:
        """Return the workload's pods that stay."""
        pods = await self._api.items(pods_path(step.target.split("/", 2)[1]), **query)
        if not query:
            pods = [pod for pod in pods if step.uid in _owners(pod)]
        return [pod for pod in pods if not finished(pod) and not terminating(pod)]

    async def _nominate(self, pod: Json, node: str) -> None:
        if nomination(pod) == node:
            return
        as_seen = {"uid": uid(pod), "resourceVersion": pod["metadata"]["resourceVersion"]}
        body = {"metadata": as_seen, "status": {"nominatedNodeName": node or None}}
        with suppress(NotFoundError, ConflictError):  # it is gone or has changed, perhaps bound: the next look shows it
            await self._api.patch(f"{pod_path(pod)}/status", body)

    async def _write(self, entries: Mapping[str, str]) -> None:
        """Write the entries that differ, and renew the ConfigMap while there are any."""
        if self._written is None:
            try:
                self._written = (await self._api.get(_LANDING)).get("data") or {}
            except NotFoundError:
                if not entries:
                    self._written = {}
                    return
                # With an entry: the API server stamps no change of an object that was created without any.
                kind, data = {"apiVersion": "v1", "kind": "ConfigMap"}, {RENEWED: self._clock.now().isoformat()}
                await self._api.create(_CONFIG_MAPS, {**kind, "metadata": {"name": LANDING_NAME}, "data": data})
                self._written = dict(data)
        now, written = self._clock.now(), self._written
        patch: dict[str, str | None] = {key: value for key, value in entries.items() if written.get(key) != value}
        patch |= {key: None for key in written if key not in entries and key != RENEWED}
        if entries and (patch or self._renewed is None or now - self._renewed >= _RENEW):
            patch[RENEWED] = (now + self._ahead).isoformat()
        elif not entries and RENEWED in written:
            patch[RENEWED] = None
        if not patch:
            return
        self._written = None  # if the answer is lost, it is read again
        answer = await self._api.patch(_LANDING, {"data": patch})
        self._written, ahead = answer.get("data") or {}, _stamp(answer, now) - now
        # Where the clocks were further apart than known, the next look renews it again.
        self._renewed = now if abs(ahead - self._ahead) < _APART else None
        self._ahead = ahead


def _entries(landing: Landing, pods: Iterable[Json]) -> Mapping[str, str]:
    """Return the ConfigMap's entries for one workload."""
    step = landing.step
    kind, namespace, name = step.target.split("/", 2)
    nodes = ",".join(dict.fromkeys(step.nodes))
    entries = {landing_key(namespace, "", prefix): nodes for pod in pods if (prefix := _prefix(pod))}
    entries |= {landing_key(namespace, fixed, ""): nodes for fixed in landing.names}
    if kind == "Deployment":  # a rolling update creates the set that names its pods only when they come
        entries[f"{kind}.{namespace}.{name}"] = nodes
    free = (pod for pod in pods if uid(pod) in landing.free and not node_of(pod))
    return entries | {landing_key(namespace, pod["metadata"]["name"], ""): ANYWHERE for pod in free}


def _stamp(written: Json, sent: datetime) -> datetime:
    """Return when the API server took a write of Kinema's, by its own clock to the second; without a stamp, `sent`."""
    entries = written["metadata"].get("managedFields") or []
    times = [entry["time"] for entry in entries if entry.get("manager") == FIELD_MANAGER and "time" in entry]
    return max((datetime.fromisoformat(time) + timedelta(seconds=0.5) for time in times), default=sent)


def _was_tried(pod: Json) -> bool:
    """Return whether kube-scheduler has tried a waiting pod. A nomination during a try is cleared when that fails."""
    conditions = (pod.get("status") or {}).get("conditions") or []
    return any(item.get("type") == "PodScheduled" and item.get("status") == "False" for item in conditions)


def _reserves(pod: Json) -> bool:
    """Return whether kube-scheduler makes something for a pod on the node that it picks, before it binds the pod there.

    A volume that comes with the pod is made in the node's zone. After a refused binding it would keep the pod there.
    """
    volumes = pod["spec"].get("volumes") or []
    return bool(pod["spec"].get("resourceClaims")) or any("ephemeral" in volume for volume in volumes)


def _prefix(pod: Json) -> str:
    """Return the beginning that a pod's name was generated from; empty where it was not.

    Pods of StatefulSets have a `generateName`, too, and are named by their number.
    """
    prefix, name = str(pod["metadata"].get("generateName") or "")[:GENERATED_FROM], pod["metadata"]["name"]
    return prefix if name.startswith(prefix) and len(name) == len(prefix) + GENERATED else ""


def _owners(pod: Json) -> frozenset[str]:
    return frozenset(str(owner.get("uid")) for owner in pod["metadata"].get("ownerReferences") or ())
