"""Rolling updates: the template is patched, what it was before is kept on the workload until the update is over.

How it ends is in `kubernetes_unroll`.

The end of a rolling update: the template is as its owner wrote it again, and no pod restarts for that.

A template that changes is rolled out. So the Deployment is paused, its template and that of the ReplicaSet with the new
pods are given back together, the empty ReplicaSet that had this template before goes (the controller would take the
elder one), and the Deployment goes on: it finds all its pods to be of its template. New requests stay.

The controller copies a Deployment's annotations onto its ReplicaSets and takes none off. As long as it works with the
Deployment from before the end, it may put our mark there again: the end is done only when the controller has seen it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec

from kinema_core.events import Amounts, FrozenMap
from kinema_core.model.match import HOSTNAME
from kinema_core.model.quantity import parse_amount
from kinema_rescheduler.errors import FinalError, PassingError
from kinema_rescheduler.kubernetes.client import (
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
from kinema_rescheduler.kubernetes.cluster import Made, Order
from kinema_rescheduler.names import DISRUPTED, OPTIMIZED, ROLLED, ROLLED_BY

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_AWAY: Final[Json] = {"key": DISRUPTED, "operator": "DoesNotExist"}
_STAYING: Final[Json] = {"matchExpressions": [{"key": OPTIMIZED, "operator": "Exists"}]}
_TOWARDS: Final[Json] = {"weight": 1, "preference": _STAYING}
"""The least weight: kube-scheduler measures each node by the best one that has room, and that is a planned one as long
as one has. Then the others count next to nothing, and among themselves as much as planned ones would."""
_NO_SURGE: Final = (0, "0", "0%")
BOUNDS_BEFORE: Final = "kinema.io/rolling-update-before"
"""Label of a Deployment under our rolling update: the bounds of its updates before, as long as ours are in force.

`kubectl rollout undo` puts the annotations of an older ReplicaSet in the place of the Deployment's, and leaves labels.
"""
_BOUNDS: Final = re.compile(r"maxSurge-([0-9]+)(pct)?\.maxUnavailable-([0-9]+)(pct)?")
_BY_DEFAULT: Final = "25%"


class Before(msgspec.Struct, frozen=True):
    """What a workload was before our rolling update."""

    plan: str
    affinity: Json | None
    strategy: Json | None
    requests: dict[str, dict[str, str]]
    rolled: dict[str, dict[str, str]] | None = None
    """The requests that we wrote, by container; None in what an older version noted."""
    paused: bool = False
    """The update is over, and the Deployment paused by us until its template is given back."""


async def roll(api: KubernetesApi, order: Order) -> Made:
    """Patch the template: off the nodes that go, towards those that stay, with new requests, never one pod below."""
    path = workload_path(order.step.target)
    if not order.step.target.startswith("Deployment/"):
        raise FinalError("held", f"{order.step.target}: only a Deployment can be rolled")
    workload, changed = await api.modify(path, lambda now: _rolled(now, order), content_type=STRATEGIC)
    return Made("done" if changed else "adopted", FrozenMap(generation=generation(workload)))


def _rolled(workload: Json, order: Order) -> Json | None:
    step = order.step
    if step.uid and uid(workload) != step.uid:
        raise FinalError("gone", f"{step.target} is another object of that name by now")
    left = before_of(workload)
    if left is not None and left.plan == order.plan:
        return None
    spec = workload["spec"]
    strategy = spec.get("strategy") or {}
    if strategy.get("type") == "Recreate":
        raise FinalError("held", f"{step.target} cannot run two generations side by side (strategy Recreate)")
    template, bounds = spec["template"]["spec"], bounds_before(workload)
    containers = _containers(template["containers"], step.requests)
    before = Before(
        plan=order.plan,
        affinity=left.affinity if left is not None else _owners_affinity(template.get("affinity")),
        strategy={"type": "RollingUpdate", "rollingUpdate": bounds},
        requests={
            container["name"]: dict((container.get("resources") or {}).get("requests") or {})
            for container in template["containers"]
        },
        rolled={container["name"]: container["resources"]["requests"] for container in containers},
    )
    rolling = {"maxUnavailable": 0, "maxSurge": 1 if bounds["maxSurge"] in _NO_SURGE else bounds["maxSurge"]}
    return {
        "metadata": {
            "annotations": {ROLLED: msgspec.json.encode(before).decode()},
            "labels": {BOUNDS_BEFORE: _as_label(bounds)},
        },
        "spec": {
            "strategy": {"type": "RollingUpdate", "rollingUpdate": rolling},
            "template": {
                # The plan's id makes the template another one also where affinity and requests are as wanted already.
                "metadata": {"annotations": {ROLLED_BY: order.plan}},
                "spec": {
                    "affinity": {"nodeAffinity": _node_affinity(template.get("affinity") or {}, step.nodes)},
                    "containers": containers,
                },
            },
        },
    }


def _node_affinity(affinity: Json, nodes: tuple[str, ...]) -> Json:
    """The node affinity with our rules, once, beside what it holds: to `nodes` above all, else to any that stays."""
    node = (_owners_affinity(affinity) or {}).get("nodeAffinity") or {}
    terms = (node.get(_REQUIRED) or {}).get("nodeSelectorTerms") or [{}]
    required = [{**term, "matchExpressions": [*(term.get("matchExpressions") or []), _AWAY]} for term in terms]
    planned = [{"key": HOSTNAME, "operator": "In", "values": list(nodes)}, _AWAY]  # ours by the label in it
    towards = [_TOWARDS, {"weight": 100, "preference": {"matchExpressions": planned}}] if nodes else [_TOWARDS]
    return {_REQUIRED: {"nodeSelectorTerms": required}, _PREFERRED: [*(node.get(_PREFERRED) or []), *towards]}


def _owners_affinity(affinity: Json | None) -> Json | None:
    """An affinity without rules of ours: a rollback to a template of ours may have made them the Deployment's."""
    node = (affinity or {}).get("nodeAffinity") or {}
    terms = (node.get(_REQUIRED) or {}).get("nodeSelectorTerms") or []
    preferred = node.get(_PREFERRED) or []
    kept = [item for item in preferred if not _towards_ours(item.get("preference") or {})]
    required = [_without_ours(term) for term in terms]
    if affinity is None or (kept, required) == (preferred, terms):
        return affinity
    theirs: Json = {_PREFERRED: kept} if kept else {}
    if required and all(required):  # terms are alternatives: beside one that asks for nothing, none asks for anything
        theirs[_REQUIRED] = {"nodeSelectorTerms": required}
    others = {key: value for key, value in affinity.items() if key != "nodeAffinity"}
    return {**others, **({"nodeAffinity": theirs} if theirs else {})} or None


def _without_ours(term: Json) -> Json:
    if _AWAY not in (term.get("matchExpressions") or []):
        return term
    expressions = [item for item in term["matchExpressions"] if item != _AWAY]
    kept = {key: value for key, value in term.items() if key != "matchExpressions"}
    return {**kept, **({"matchExpressions": expressions} if expressions else {})}


def _towards_ours(preference: Json) -> bool:
    expressions = preference.get("matchExpressions") or []
    planned = len(expressions) == 2 and expressions[0].get("key") == HOSTNAME and expressions[1] == _AWAY
    return planned or preference == _STAYING


def _containers(containers: list[Json], wanted: Amounts) -> list[Json]:
    """New requests of each container, so that they add up to what was wanted per pod (no more than its limit each)."""
    patches: dict[str, dict[str, str]] = {container["name"]: {} for container in containers}
    for resource in sorted(wanted):
        current = {item["name"]: _requested(item, resource) for item in containers}
        for name, amount in _shared(current, wanted[resource]).items():
            container = next(item for item in containers if item["name"] == name)
            patches[name][resource] = _written(resource, min(amount, _limit(container, resource)))
    return [{"name": name, "resources": {"requests": requests}} for name, requests in patches.items() if requests]


def _shared(current: dict[str, int], wanted: int) -> dict[str, int]:
    """Share out an amount in the proportion of now; the first container takes what rounding leaves."""
    total = sum(current.values())
    first = next(iter(current))
    shares = {name: wanted * amount // total if total else 0 for name, amount in current.items()}
    shares[first] += wanted - sum(shares.values())
    return shares


def _requested(container: Json, resource: str) -> int:
    text = ((container.get("resources") or {}).get("requests") or {}).get(resource)
    return parse_amount(resource, str(text)) if text is not None else 0


def _limit(container: Json, resource: str) -> int:
    text = ((container.get("resources") or {}).get("limits") or {}).get(resource)
    return parse_amount(resource, str(text)) if text is not None else 2**62


def _written(resource: str, amount: int) -> str:
    return f"{amount}m" if resource == "cpu" else str(amount)


def before_of(workload: Json) -> Before | None:
    """What a workload was before our rolling update; None where none of ours goes on."""
    text = annotations_of(workload).get(ROLLED)
    return msgspec.json.decode(text, type=Before) if text else None


def bounds_before(workload: Json) -> Json:
    """`maxSurge` and `maxUnavailable` as the owner wants them: those of now unless they are ours."""
    now = (workload["spec"].get("strategy") or {}).get("rollingUpdate") or {}
    noted = _BOUNDS.fullmatch(labels_of(workload).get(BOUNDS_BEFORE, ""))
    if now.get("maxUnavailable") == 0 and noted is not None:
        surge, of_surge, unavailable, of_unavailable = noted.groups()
        return {"maxSurge": _bound(surge, of_surge), "maxUnavailable": _bound(unavailable, of_unavailable)}
    before = before_of(workload)
    if now.get("maxUnavailable") == 0 and before is not None:
        return _whole((before.strategy or {}).get("rollingUpdate") or {})
    return _whole(now)


def _whole(bounds: Mapping[str, Any]) -> Json:
    return {key: bounds.get(key, _BY_DEFAULT) for key in ("maxSurge", "maxUnavailable")}


def _bound(number: str, percent: str | None) -> int | str:
    return f"{number}%" if percent else int(number)


def _as_label(bounds: Json) -> str:
    return ".".join(f"{key}-{str(bounds[key]).replace('%', 'pct')}" for key in ("maxSurge", "maxUnavailable"))


async def restore_template(api: KubernetesApi, order: Order) -> bool:
    """Put the template back as it was before our update of this plan; whether anything is left for the update's end.

    Our strategy stays until `roll-finish`: the way back is a rolling update too, and no pod may be missing in it.
    """
    if not order.step.target.startswith("Deployment/"):
        return False

    def change(workload: Json) -> Json | None:
        before = before_of(workload)
        marks = (workload["spec"]["template"].get("metadata") or {}).get("annotations") or {}
        if before is None or before.plan != order.plan or marks.get(ROLLED_BY) != order.plan:
            return None
        template = workload["spec"]["template"]
        spec = {"affinity": old_affinity(template, before), "containers": _old_requests(template, before)}
        return {"spec": {"template": {"metadata": {"annotations": {ROLLED_BY: None}}, "spec": spec}}}

    workload, _ = await api.modify(workload_path(order.step.target), change, content_type=STRATEGIC)
    left = before_of(workload)
    return BOUNDS_BEFORE in labels_of(workload) or (left is not None and left.plan == order.plan)


def _old_requests(template: Json, before: Before) -> list[Json]:
    """The requests of before, as a patch of each container: of those that are still ours, none that its owner wrote."""
    if before.rolled is None:
        back: dict[str, dict[str, str | None]] = {name: {**requests} for name, requests in before.requests.items()}
    else:
        now = {container["name"]: container for container in template["spec"]["containers"]}
        back = {
            name: {
                resource: before.requests.get(name, {}).get(resource)
                for resource, text in ours.items()
                if _requested(now[name], resource) == parse_amount(resource, text)
            }
            for name, ours in before.rolled.items()
            if name in now
        }
    return [{"name": name, "resources": {"requests": requests}} for name, requests in back.items() if requests]


def old_affinity(template: Json, before: Before) -> Json | None:
    """The affinity of before, as a patch of the template's: what we added goes, what others added since stays."""
    now = template["spec"].get("affinity") or {}
    if not before.affinity and not now.keys() - {"nodeAffinity"}:
        return None
    node = (before.affinity or {}).get("nodeAffinity")
    return {"nodeAffinity": node and {key: node.get(key) for key in (_REQUIRED, _PREFERRED)}}


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
