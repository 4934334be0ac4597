"""The end of a rolling update: the template is as its owner wrote it again, and no pod restarts for that.

A template that changes is rolled out. So the Deployment is paused, its template and that of the ReplicaSet with the new
pods are given back together, the empty ReplicaSet that had this template before goes (the controller would take the
elder one), and the Deployment goes on: it finds all its pods to be of its template. New requests stay.

The controller copies a Deployment's annotations onto its ReplicaSets and takes none off. As long as it works with the
Deployment from before the end, it may put our mark there again: the end is done only when the controller has seen it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import msgspec

from kinema_core.events import FrozenMap
from kinema_rescheduler.adapters.cluster import Made, Order
from kinema_rescheduler.adapters.kubernetes_api import (
    STRATEGIC,
    ConflictError,
    Json,
    KubernetesApi,
    NotFoundError,
    annotations_of,
    generation,
    labels_of,
    selector_text,
    uid,
    workload_path,
)
from kinema_rescheduler.adapters.kubernetes_roll import BOUNDS_BEFORE, Before, before_of, bounds_before, old_affinity
from kinema_rescheduler.errors import PassingError
from kinema_rescheduler.logic.names import ROLLED, ROLLED_BY

_HASH: Final = "pod-template-hash"
_LOOKS: Final = 40
_PAUSE: Final = 0.25
"""Real seconds between two looks whether the controller has seen the end."""
_CALM: Final = 4
"""Looks in a row that find no mark, where no new generation shows what the controller has seen."""


async def roll_finish(api: KubernetesApi, order: Order) -> Made:
    """Give template and strategy back."""
    path = workload_path(order.step.target)
    try:
        workload, _ = await api.modify(path, _paused, content_type=STRATEGIC)
    except NotFoundError:
        return Made("void")
    before = before_of(workload)
    if before is not None and before.paused:
        await _hand_over(api, order, workload, before)
    read = 0

    def resumed(now: Json) -> Json | None:
        nonlocal read
        read = generation(now)
        return _resumed(now)

    workload, changed = await api.modify(path, resumed, content_type=STRATEGIC)
    await api.disown(path)
    await _forgotten(api, order, workload, calm=1 if generation(workload) > read else _CALM)
    return Made("done" if changed else "adopted", FrozenMap(generation=generation(workload)))


async def _forgotten(api: KubernetesApi, order: Order, ended: Json, *, calm: int) -> None:
    """Take our mark off the ReplicaSets until it can come no more: the controller has seen the Deployment that `ended`.

    With the marks go empty sets of rolls that were taken back: `kubectl rollout undo` would make a template with our
    rules the owner's.

    A new generation that is observed shows that at once. To take off an annotation alone makes none, and a try before
    this one may have made it: then the mark must stay away for `calm` looks.
    """
    still = 0
    for _ in range(_LOOKS):
        try:
            workload = await api.get(workload_path(order.step.target))
        except NotFoundError:
            return  # its ReplicaSets go with it
        seen = _observed(workload) >= generation(ended) or uid(workload) != uid(ended)
        sets = await _sets(api, order, ended)
        marked = [item for item in sets if ROLLED in annotations_of(item)]
        for replica_set in marked:
            with suppress(NotFoundError):
                await api.patch(_path(replica_set), {"metadata": {"annotations": {ROLLED: None}}})
        vain = [] if marked else [item for item in sets if seen and _in_vain(item, workload)]
        for replica_set in vain:
            with suppress(NotFoundError, ConflictError):  # a conflict: somebody may be about to use it
                await api.delete(_path(replica_set), uid(replica_set), version=_version(replica_set))
        still = still + 1 if seen and not marked and not vain else 0
        if still == calm:
            return
        await api.pause(_PAUSE)
    raise PassingError("not-ready", f"{order.step.target}: its controller has not seen the end of its rolling update")


def _in_vain(replica_set: Json, workload: Json) -> bool:
    """Whether an empty set is left with a template of ours that is not its Deployment's."""
    template = replica_set["spec"]["template"]
    empty = not replica_set["spec"].get("replicas") and not (replica_set.get("status") or {}).get("replicas")
    return empty and bool(_mark(template)) and _plain(template) != _plain(workload["spec"]["template"])


def _version(item: Json) -> str:
    return str(item["metadata"]["resourceVersion"])


def _observed(workload: Json) -> int:
    """The newest generation that its controller has worked with."""
    return int((workload.get("status") or {}).get("observedGeneration") or 0)


def _paused(workload: Json) -> Json | None:
    """Pause and give the template back in one write; nothing where the template is not ours any more."""
    before = before_of(workload)
    template = workload["spec"]["template"]
    if before is None or before.paused or _mark(template) != before.plan:
        return None
    noted = msgspec.json.encode(msgspec.structs.replace(before, paused=True)).decode()
    return {
        "metadata": {"annotations": {ROLLED: noted}},
        "spec": {"paused": True, "template": _given_back(template, before)},
    }


def _resumed(workload: Json) -> Json | None:
    before = before_of(workload)
    if before is None and BOUNDS_BEFORE not in labels_of(workload):
        return None
    paused = {"paused": None} if before is not None and before.paused else {}
    strategy = workload["spec"].get("strategy") or {}
    ours = (strategy.get("rollingUpdate") or {}).get("maxUnavailable") == 0  # else somebody has changed it since
    bounds = {"strategy": {"rollingUpdate": bounds_before(workload)}} if ours else {}
    return {
        "metadata": {"annotations": {ROLLED: None}, "labels": {BOUNDS_BEFORE: None}},
        "spec": {**bounds, **paused},
    }


async def _hand_over(api: KubernetesApi, order: Order, workload: Json, before: Before) -> None:
    """Make the ReplicaSet with the new pods that of the owner's template."""

    def change(replica_set: Json) -> Json | None:
        template = replica_set["spec"]["template"]
        return {"spec": {"template": _given_back(template, before)}} if _mark(template) == before.plan else None

    sets = await _sets(api, order, workload)
    for index, replica_set in enumerate(sets):
        if change(replica_set) is not None:
            sets[index], _ = await api.modify(_path(replica_set), change, content_type=STRATEGIC)
    wanted = _plain(workload["spec"]["template"])
    same = [item for item in sets if _plain(item["spec"]["template"]) == wanted]
    in_use = [item for item in same if item["spec"].get("replicas")]
    for replica_set in same if in_use else ():
        if not replica_set["spec"].get("replicas") and not (replica_set.get("status") or {}).get("replicas"):
            await api.delete(_path(replica_set), uid(replica_set))


def _given_back(template: Json, before: Before) -> Json:
    """The patch that takes our rules and our mark out of a template."""
    return {
        "metadata": {"annotations": {ROLLED_BY: None}},
        "spec": {"affinity": old_affinity(template, before)},
    }


def _mark(template: Json) -> str:
    """The plan that has marked a template, if any."""
    return str(((template.get("metadata") or {}).get("annotations") or {}).get(ROLLED_BY, ""))


def _plain(template: Json) -> Json:
    """A template without what makes those of ReplicaSets different, and without empty maps."""
    metadata = template.get("metadata") or {}
    labels = {key: value for key, value in (metadata.get("labels") or {}).items() if key != _HASH}
    annotations = metadata.get("annotations") or {}
    return {"labels": labels, "annotations": annotations, "spec": template["spec"]}


async def _sets(api: KubernetesApi, order: Order, workload: Json) -> list[Json]:
    """The ReplicaSets of a Deployment."""
    namespace = order.step.target.split("/")[1]
    path = workload_path(f"ReplicaSet/{namespace}/-").removesuffix("/-")
    found = await api.items(path, labelSelector=selector_text(workload))
    return [
        item
        for item in found
        if any(owner.get("uid") == uid(workload) for owner in item["metadata"].get("ownerReferences") or [])
    ]


def _path(replica_set: Json) -> str:
    metadata = replica_set["metadata"]
    return workload_path(f"ReplicaSet/{metadata['namespace']}/{metadata['name']}")
