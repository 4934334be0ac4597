"""Kubernetes Events about an execution, on nodes, workloads and pending pods: what is done about them and why.

`KubernetesEvents` writes them; `log_event` writes one line per event to the service's own log. Each Event is named
after its content, so that a restart or another attempt repeats none. An Event that cannot be written is only logged: it
is for people, and the streams have everything.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC
from functools import cached_property
from hashlib import sha256
from typing import Final, Literal, TypeAlias
from urllib.parse import quote

import structlog
from msgspec.structs import replace

from kinema_core.events import (
    EMPTY,
    Event,
    ExecutionAborted,
    Figures,
    Placement,
    Plan,
    Step,
    StepFailed,
    StepKind,
    StepStarted,
    StepSucceeded,
)
from kinema_core.model.cluster import Cluster
from kinema_core.model.quantity import in_words, rounded_in_words
from kinema_kubernetes.objects import Json, uid, workload_path
from kinema_rescheduler.errors import ConflictError, EffectError, PermanentError, TransientError
from kinema_rescheduler.kubernetes.fenced import FencedClient
from kinema_rescheduler.names import NODE, is_verdict


@dataclass(frozen=True)
class Background:
    """Context of an event for people: names, and what was before."""

    plan: Plan | None = None
    """The plan that is being executed."""
    cluster: Cluster | None = None
    """The state on which the step was begun."""

    @cached_property
    def waiting(self) -> Mapping[str, tuple[Placement, ...]]:
        """Pending pods by the node that the plan puts them on, by key."""
        pods = self.cluster.pods_by_uid if self.cluster is not None else {}
        found: dict[str, list[Placement]] = {}
        for place in self.plan.placements if self.plan is not None else ():
            if place.source is None and place.uid in pods and pods[place.uid].node is None:
                found.setdefault(place.to, []).append(place)
        return {node: tuple(sorted(places, key=lambda place: place.pod)) for node, places in found.items()}


Report: TypeAlias = Callable[[Event, Step | None, Background], None]
"""Reports an event of the rescheduler, and the step whose outcome it is, to people."""


def report_nothing(event: Event, step: Step | None, background: Background) -> None:
    """Report nothing."""


def log_event(event: Event) -> None:
    """Log an event of an execution."""
    body = event.body
    about: dict[str, str | int] = {"event_id": event.id, "kind": event.type, "state": event.state}
    match body:
        case StepStarted():
            about |= {"step": body.step.id, "attempt": body.attempt}
        case StepSucceeded():
            about |= {"step": body.step, "outcome": body.outcome}
        case StepFailed():
            about |= {"step": body.step, "reason": body.reason, "detail": body.detail}
        case ExecutionAborted():
            about |= {"reason": body.reason, "detail": body.detail}
        case _:
            pass
    _LOG.info("execution", **about)


REPORTER: Final = "kinema.io/rescheduler"
_NODE_NAMESPACE: Final = "default"
"""Events of objects without a namespace live here."""
_NOTE: Final = 1024
"""Bytes that the API server takes, not characters."""
_MOST_OPEN: Final = 100
"""Reports under way at the same time: a server that answers slowly must not fill the process's memory."""
_MOST_OBJECTS: Final = 100
"""Objects that get an Event of one step: of more pods that wait for one node, the first ones by name."""
_GROUPS: Final = {"ReplicationController": "v1"}
_NONE: Final = Background()
_LOG = structlog.get_logger()


@dataclass(frozen=True)
class _Text:
    """Text of an Event."""

    reason: str
    action: str
    note: str
    type: Literal["Normal", "Warning"] = "Normal"
    code: str = ""
    """A failure's reason: a step that fails again for the same reason writes no second Event."""


def _plural(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


@dataclass(frozen=True)
class _Done:
    """A step that was made, or found made."""

    step: Step
    outcome: str
    figures: Figures
    background: Background


def _up(done: _Done) -> _Text:
    step = done.step
    where = f" to {', '.join(step.nodes)}" if step.nodes else ""
    more = _plural(len(step.pods), "pod")
    note = f"scaled up by {more} ({step.replicas_from} → {step.replicas_to} replicas) to move as many{where}"
    return _Text("Surging", "ScaleUp", note)


def _down(done: _Done) -> _Text:
    step = done.step
    gone = _plural(step.replicas_from - step.replicas_to, "pod")
    replicas = f"{step.replicas_from} → {step.replicas_to} replicas"
    return _Text("Surged", "ScaleDown", f"the new pods are Ready: scaled down by {gone} on leaving nodes ({replicas})")


def _evict(done: _Done) -> _Text:
    pod, node = _victim(done)
    who, where = f"pod {pod}" if pod else "a pod", f"node {node}" if node else "its node"
    if done.outcome != "done":  # by a process that died then, or by another client: the journal cannot show which
        return _Text("Evicted", "Evict", f"{who} is gone from {where}: it left before it was evicted")
    leaves = ", which will be deleted" if _given_back(done.background.plan, node) else ""
    to = f"; its successor is to come up on {', '.join(done.step.nodes)}" if done.step.nodes else ""
    return _Text("Evicted", "Evict", f"{who} was evicted from {where}{leaves}{to}")


def _victim(done: _Done) -> tuple[str, str]:
    """Names of the evicted pod and its node; empty where unknown.

    The state that a takeover begins with may lack a pod that is gone, the plan one that came after it.
    """
    cluster, plan, uids = done.background.cluster, done.background.plan, done.step.pods
    for uid_ in uids:
        pod = cluster.pods_by_uid.get(uid_) if cluster is not None else None
        if pod is not None:
            return pod.name, pod.node or ""
    places = (place for place in plan.placements if place.uid in uids) if plan is not None else ()
    place = next(iter(places), None)
    return (place.pod.rpartition("/")[2], place.source or "") if place is not None else ("", "")


def _given_back(plan: Plan | None, node: str) -> bool:
    if plan is None:
        return False
    return any(one.name == node and one.action == "delete" for one in plan.nodes) or node in {
        one.name for one in plan.temporary
    }


def _roll(done: _Done) -> _Text:
    asked = _asked(done)
    note = f"; each requests {asked} from now on, as forecast from its usage" if asked else ""
    return _Text("Rolling", "Roll", "a rolling update moves its pods" + note)


def _resize(done: _Done) -> _Text:
    return _Text(
        "Resized", "Resize", f"each pod requests {_asked(done)} now, as forecast from its usage; none restarted"
    )


def _asked(done: _Done) -> str:
    """Return old and new requests of a step; empty where it changes none."""
    step, plan = done.step, done.background.plan
    resizes = plan.resizes if plan is not None else ()
    before = next((one.requests_before for one in resizes if one.workload == step.target), EMPTY)
    return ", ".join(_change(name, before.get(name), amount) for name, amount in sorted(step.requests.items()))


def _change(name: str, before: int | None, after: int) -> str:
    """Old and new amount, rounded unless that hides the change."""
    words = rounded_in_words
    if before is None:
        return f"{name} {words(name, after)}"
    if words(name, before) == words(name, after):
        words = in_words
    return f"{name} {words(name, before)} → {words(name, after)}"


def _restore(done: _Done) -> _Text:
    """Describe what was reverted. Replicas that others set since then stay, and so do their changes of a template."""
    step, now = done.step, done.figures.get("replicas")
    if step.replicas_from == step.replicas_to or now is None:
        note = "the changes of an unfinished move were reverted; later changes by other clients stay"
    elif now == step.replicas_to:
        note = f"an unfinished move was reverted: {now} replicas again instead of {step.replicas_from}"
    else:
        asked = f"an unfinished move had set {step.replicas_from} instead of {step.replicas_to}"
        note = f"{now} replicas stay, as another client set them: {asked}"
    return _Text("Reverted", "Restore", note)


_DONE: Final[Mapping[StepKind, Callable[[_Done], _Text]]] = {
    "boot": lambda done: _Text("Booted", "Boot", f"was booted as {done.step.offer}"),
    "taint": lambda _: _Text("Draining", "Mark", "will be drained and deleted"),
    "surge-up": _up,
    "surge-down": _down,
    "evict": _evict,
    "resize": _resize,
    "roll": _roll,
    # It ends the way back to the old template, too; the Event before it says what came of the update.
    "finalize-rollout": lambda _: _Text(
        "Rolled", "Roll", "the rolling update is complete; the owner's update strategy is in force again"
    ),
    "revert": _restore,
    "untaint": lambda _: _Text("Untainted", "Unmark", "is open to new pods again"),
    "delete": lambda _: _Text("Deleted", "Delete", "is empty and was deleted"),
}
"""Steps that people care about, once they are done."""


class KubernetesEvents:
    """Writer of Kubernetes Events about one execution after the other."""

    def __init__(self, api: FencedClient, instance: str) -> None:
        """`instance` names the process that reports."""
        self._api = api
        self._instance = instance[:128]
        self._open: set[asyncio.Task[None]] = set()

    def report(self, event: Event, step: Step | None, background: Background = _NONE) -> None:
        """Begin to write what an event means for a node or workload, and for pods that wait for it."""
        found = _meant(event, step, background)
        objects = [_written(event, about, what, self._instance) for about, what in found[:_MOST_OBJECTS]]
        if not objects:
            return
        about = objects[0]["regarding"]["name"]
        if len(found) > len(objects):
            detail = f"only the first {_MOST_OBJECTS} objects get an Event"
            _LOG.warning(
                "no Kubernetes Event", about=about, reason="many", detail=detail, left=len(found) - len(objects)
            )
        if len(self._open) >= _MOST_OPEN:
            _LOG.warning("no Kubernetes Event", about=about, reason="busy", detail="too many are under way")
            return
        task = asyncio.create_task(self._write_all(objects))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def close(self) -> None:
        """Cancel what is still under way."""
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _write_all(self, objects: list[Json]) -> None:
        """One after the other: pods by the hundred are no reason to press the server."""
        for count, written in enumerate(objects, start=1):
            try:
                await self._write(written)
            except EffectError as error:
                about, left = written["regarding"]["name"], len(objects) - count
                _LOG.warning("no Kubernetes Event", about=about, reason=error.reason, detail=error.detail, left=left)
                if isinstance(error, TransientError):
                    return  # it would be the same with the others

    async def _write(self, written: Json) -> None:
        namespace = quote(written["metadata"]["namespace"], safe="")
        await self._identify(written["regarding"])
        with suppress(ConflictError):  # the same Event exists
            await self._api.create(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events", written)

    async def _identify(self, about: Json) -> None:
        """Add the uid of a workload that a verdict names: `kubectl describe` shows no Events without it."""
        if "uid" not in about:
            with suppress(PermanentError):  # gone since, or of a kind that the rescheduler must not read
                found = await self._api.get(workload_path(f"{about['kind']}/{about['namespace']}/{about['name']}"))
                about["uid"] = uid(found)


def _meant(event: Event, step: Step | None, background: Background) -> list[tuple[Json, _Text]]:
    """Return what to say and of which object; a step's own comes before the pods that wait for it."""
    match event.body:
        case StepStarted(step=begun) if begun.kind == "boot":
            return _waiting(begun, background, _booting(begun, background.plan))
        case StepSucceeded(outcome=outcome, figures=figures) if step is not None and outcome != "void":
            describe = _DONE.get(step.kind)
            step = replace(step, target=str(figures.get(NODE, step.target)))  # a machine with a name of its own
            return _about(step, describe(_Done(step, outcome, figures, background))) if describe is not None else []
        case StepFailed(step=step_id) as failed:
            about = _judged(step_id) if is_verdict(step_id) else step
            return _failed(about, failed, background) if about is not None else []
        case _:
            return []


def _failed(about: Step, failed: StepFailed, background: Background) -> list[tuple[Json, _Text]]:
    why = f"{failed.reason}: {failed.detail}"
    warning = _Text("DisruptionBlocked", "GiveUp", why, "Warning", failed.reason)
    found = _about(about, warning)
    if about.kind == "boot" and not failed.retry:  # the pods that wait for it have an Event that it comes
        note = f"node {about.target} was not booted for it: {why}"
        found += _waiting(about, background, dataclasses.replace(warning, note=note))
    return found


def _about(step: Step, text: _Text) -> list[tuple[Json, _Text]]:
    reference = _reference(step)
    return [(reference, text)] if reference is not None else []


def _waiting(step: Step, background: Background, text: _Text) -> list[tuple[Json, _Text]]:
    """Return the same for each pending pod that the plan puts on the step's node."""
    places = background.waiting.get(step.target, ())
    return [(_pod(place.pod, place.uid), text) for place in places]


def _pod(key: str, pod_uid: str) -> Json:
    namespace, _, name = key.partition("/")
    return {"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": name, "uid": pod_uid}


def _booting(step: Step, plan: Plan | None) -> _Text:
    nodes = plan.nodes if plan is not None else ()
    machine = next((f" ({one.machine_type} in {one.zone})" for one in nodes if one.name == step.target), "")
    return _Text("WaitingForNode", "Boot", f"node {step.target}{machine} is being booted for it")


def _judged(step_id: str) -> Step | None:
    """Return what a verdict is about, as a step: a workload that is skipped, a node that is kept or no use."""
    word, _, target = step_id.partition("/")
    kinds: Mapping[str, StepKind] = {"skip": "revert", "keep": "untaint", "unfit": "boot"}
    return Step(id=step_id, kind=kinds[word], target=target) if word in kinds else None


def _reference(step: Step) -> Json | None:
    """Return the object that a step is about."""
    if step.kind in {"boot", "taint", "untaint", "delete"}:
        # As kubelets do it, a node without a known uid is named by its name: `kubectl describe node` looks for both.
        return {"apiVersion": "v1", "kind": "Node", "name": step.target, "uid": step.uid or step.target}
    parts = step.target.split("/")
    if len(parts) != 3:
        return None
    kind, namespace, name = parts
    reference = {"apiVersion": _GROUPS.get(kind, "apps/v1"), "kind": kind, "namespace": namespace, "name": name}
    return {**reference, "uid": step.uid} if step.uid else reference


def _written(event: Event, about: Json, text: _Text, instance: str) -> Json:
    body = event.body
    step = body.step.id if isinstance(body, StepStarted) else getattr(body, "step", "")
    digest = sha256(f"{event.cause}/{step}/{text.reason}/{text.code}".encode()).hexdigest()[:16]
    note = f"{text.note} (iteration {event.iteration}, plan {getattr(body, 'plan', '')})"
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {
            "name": f"{about['name'][:200]}.{digest}",
            "namespace": about.get("namespace", _NODE_NAMESPACE),
        },
        "eventTime": event.time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "reportingController": REPORTER,
        "reportingInstance": instance,
        "action": text.action,
        "reason": text.reason,
        "regarding": about,
        "note": note.encode()[:_NOTE].decode(errors="ignore"),
        "type": text.type,
    }
