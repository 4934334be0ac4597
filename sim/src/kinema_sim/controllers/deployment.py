"""Deployments: one ReplicaSet per version of the template, and the rolling update from one to the next."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import msgspec

from kinema_sim.controllers.base import REPLICA_FAILURE, Controller, Priority
from kinema_sim.engine.clock import digest
from kinema_sim.engine.kinds import DEPLOYMENT, REPLICA_SET
from kinema_sim.engine.objects import (
    Key,
    Obj,
    annotations_of,
    clone,
    condition,
    drop_condition,
    key_of,
    name_of,
    namespace_of,
    owner_reference,
    set_condition,
    uid_of,
)

_REVISION = "deployment.kubernetes.io/revision"
_DESIRED = "deployment.kubernetes.io/desired-replicas"
_MAXIMUM = "deployment.kubernetes.io/max-replicas"
_HASH = "pod-template-hash"
_HASH_ALPHABET = "bcdf456789ghjklmnpqrstvwxz2"
_NOT_COPIED = (_REVISION, _DESIRED, _MAXIMUM, "kubectl.kubernetes.io/last-applied-configuration")


@dataclass(frozen=True)
class SetState:
    """A ReplicaSet of a Deployment, for arithmetic.

    Attributes:
        name: name of the set.
        replicas: what it asks for.
        available: how many of its pods are available.
    """

    name: str
    replicas: int
    available: int


@dataclass(frozen=True)
class Bounds:
    """Bounds of a rolling update.

    Attributes:
        replicas: what the Deployment asks for.
        max_surge: how many pods more may exist.
        max_unavailable: how many pods fewer may be available.
    """

    replicas: int
    max_surge: int
    max_unavailable: int


def scaled(value: int | str | None, total: int, *, up: bool) -> int:
    """Resolve a number or a percentage of a total; `up` says which way a fraction goes.

    Raises:
        ValueError: neither a number nor a percentage.
    """
    if value is None:
        return 0
    if isinstance(value, int):
        return value
    if not value.endswith("%"):
        raise ValueError(f"{value!r} is neither a number nor a percentage")
    share = Fraction(int(value[:-1]) * total, 100)
    return -(-share.numerator // share.denominator) if up else int(share)


def bounds(replicas: int, *, surge: int | str | None, unavailable: int | str | None) -> Bounds:
    """Resolve maxSurge (rounded up) and maxUnavailable (rounded down); both 0 means one may be missing."""
    max_surge = scaled(surge, replicas, up=True)
    max_unavailable = min(scaled(unavailable, replicas, up=False), replicas)
    if max_surge == 0 and max_unavailable == 0:
        max_unavailable = 1
    return Bounds(replicas, max_surge, max_unavailable)


def grow_new(new: SetState, old: Sequence[SetState], limits: Bounds) -> int:
    """Give the size that the new set may have now."""
    if new.replicas >= limits.replicas:
        return limits.replicas
    total = new.replicas + sum(each.replicas for each in old)
    room = limits.replicas + limits.max_surge - total
    return new.replicas + max(0, min(room, limits.replicas - new.replicas))


def shrink_old(new: SetState, old: Sequence[SetState], limits: Bounds) -> dict[str, int]:
    """Give the sizes that the old sets (oldest first) may have now: first the unavailable go, then the rest."""
    sizes = {each.name: each.replicas for each in old}
    total = new.replicas + sum(sizes.values())
    least = limits.replicas - limits.max_unavailable
    removable = total - least - (new.replicas - new.available)
    if removable <= 0:
        return sizes
    for each in old:
        unhealthy = min(removable, max(0, each.replicas - each.available))
        sizes[each.name] -= unhealthy
        removable -= unhealthy
    spare = new.available + sum(min(each.available, sizes[each.name]) for each in old) - least
    for each in old:
        cut = min(spare, sizes[each.name])
        if cut > 0:
            sizes[each.name] -= cut
            spare -= cut
    return sizes


def share_out(sets: Sequence[SetState], limits: Bounds, *, before: int) -> dict[str, int]:
    """Spread a new number of replicas over the sets of a rollout in proportion to their sizes.

    Args:
        sets: sets that have replicas, newest first.
        limits: what the Deployment asks for now.
        before: replicas and surge together as the sets last knew them.
    """
    sizes = {each.name: each.replicas for each in sets}
    allowed = limits.replicas + limits.max_surge if limits.replicas else 0
    left = allowed - sum(sizes.values())
    ordered = sorted(sets, key=lambda each: -each.replicas)
    growing = left > 0
    for each in ordered:
        if left == 0:
            break
        wanted = _rounded(Fraction(each.replicas * allowed, before or 1)) - each.replicas
        step = max(0, min(wanted, left)) if growing else min(0, max(wanted, left))
        sizes[each.name] += step
        left -= step
    if left and ordered:
        first = ordered[0].name
        sizes[first] = max(0, sizes[first] + left)
    return sizes


def _rounded(value: Fraction) -> int:
    return int(value + Fraction(1, 2))


def template_hash(template: Obj) -> str:
    """Give the short name of a pod template: equal templates have equal names."""
    number = digest("template", msgspec.json.encode(template, order="sorted").decode())
    letters = []
    for _ in range(10):
        number, index = divmod(number, len(_HASH_ALPHABET))
        letters.append(_HASH_ALPHABET[index])
    return "".join(letters)


def _is_of(replica_set: Obj, deployment: Obj) -> bool:
    """Return whether a ReplicaSet has a Deployment's template: by content, not by name, as the real controller."""
    ours, theirs = replica_set["spec"]["template"], deployment["spec"]["template"]
    return bool(ours["spec"] == theirs["spec"]) and _metadata(ours) == _metadata(theirs)


def _metadata(template: Obj) -> Obj:
    """Return a template's metadata but for the hash, and for empty maps."""
    metadata = template.get("metadata") or {}
    labels = {key: value for key, value in (metadata.get("labels") or {}).items() if key != _HASH}
    return {key: value for key, value in {**metadata, "labels": labels}.items() if value}


def _copied(deployment: Obj) -> dict[str, str]:
    """Return the annotations that the ReplicaSet of a Deployment's template gets, too."""
    return {key: value for key, value in annotations_of(deployment).items() if key not in _NOT_COPIED}


class DeploymentController(Controller):
    """Creates ReplicaSets and moves replicas between them."""

    kind = DEPLOYMENT
    child = REPLICA_SET
    priority = Priority.WORKLOAD

    def sync(self, key: Key, found: Obj) -> None:
        """Take one step of the rollout, or just follow the number of replicas."""
        sets = sorted(self.store.owned(REPLICA_SET, uid_of(found)), key=_age)
        new = next((each for each in sets if _is_of(each, found)), None)
        old = [each for each in sets if each is not new]
        if not found["spec"].get("paused") or new is not None:
            new = self._ensure_new(found, new, old=old)
            self._move(found, new, old)
            self._clean(found, old)
        self._report(key)

    def _limits(self, found: Obj) -> Bounds:
        strategy: Obj = found["spec"].get("strategy") or {}
        rolling: Obj = strategy.get("rollingUpdate") or {}
        return bounds(
            int(found["spec"]["replicas"]), surge=rolling.get("maxSurge"), unavailable=rolling.get("maxUnavailable")
        )

    def _ensure_new(self, found: Obj, new: Obj | None, *, old: list[Obj]) -> Obj:
        latest = max((int(annotations_of(each).get(_REVISION, "0")) for each in old), default=0)
        if new is None:
            new = self.store.create(REPLICA_SET, self._draft(found, str(latest + 1)))
        elif int(annotations_of(new).get(_REVISION, "0")) <= latest:
            new = self._annotate(new, {_REVISION: str(latest + 1)})
        if not _copied(found).items() <= annotations_of(new).items():
            new = self._annotate(new, _copied(found))
        wait = found["spec"].get("minReadySeconds")
        if new["spec"].get("minReadySeconds") != wait:
            new = self.store.edit(REPLICA_SET, key_of(new), lambda draft: _wait(draft, wait)) or new
        revision = annotations_of(new)[_REVISION]
        if annotations_of(found).get(_REVISION) != revision:

            def number(draft: Obj) -> None:
                draft["metadata"].setdefault("annotations", {})[_REVISION] = revision

            self.store.edit(DEPLOYMENT, key_of(found), number)
        return new

    def _draft(self, found: Obj, revision: str) -> Obj:
        name, template = template_hash(found["spec"]["template"]), clone(found["spec"]["template"])
        template.setdefault("metadata", {}).setdefault("labels", {})[_HASH] = name
        selector = clone(found["spec"]["selector"])
        selector.setdefault("matchLabels", {})[_HASH] = name
        spec: Obj = {"replicas": 0, "selector": selector, "template": template}
        return {
            "metadata": {
                "name": f"{name_of(found)}-{name}",
                "namespace": namespace_of(found),
                "labels": dict(template["metadata"]["labels"]),
                "annotations": {**_copied(found), _REVISION: revision},
                "ownerReferences": [owner_reference(found)],
            },
            "spec": spec,
        }

    def _move(self, found: Obj, new: Obj, old: list[Obj]) -> None:
        limits = self._limits(found)
        active = [each for each in (*old, new) if each["spec"]["replicas"]]
        if len(active) <= 1 and (not active or active[0] is new):
            self._resize(new, limits.replicas, limits)
        elif found["spec"].get("paused") or self._was_rescaled(active, limits):
            if len(active) == 1:  # it alone has the pods, be its template the newest or not
                self._resize(active[0], limits.replicas, limits)
                return
            before = max(int(annotations_of(each).get(_MAXIMUM, "0")) for each in active)
            sizes = share_out([_state(each) for each in reversed(active)], limits, before=before)
            for each in active:
                self._resize(each, sizes[name_of(each)], limits)
        elif (found["spec"].get("strategy") or {}).get("type") == "Recreate":
            self._recreate(new, old, limits)
        else:
            size = grow_new(_state(new), [_state(each) for each in old], limits)
            if size != new["spec"]["replicas"]:
                self._resize(new, size, limits)
                return
            sizes = shrink_old(_state(new), [_state(each) for each in old if each["spec"]["replicas"]], limits)
            for each in old:
                self._resize(each, sizes.get(name_of(each), 0), limits)

    def _was_rescaled(self, active: list[Obj], limits: Bounds) -> bool:
        noted = [annotations_of(each).get(_DESIRED) for each in active]
        return any(value is not None and value != str(limits.replicas) for value in noted)

    def _recreate(self, new: Obj, old: list[Obj], limits: Bounds) -> None:
        for each in old:
            self._resize(each, 0, limits)
        if all((each.get("status") or {}).get("replicas", 0) == 0 for each in old):
            self._resize(new, limits.replicas, limits)

    def _resize(self, target: Obj, size: int, limits: Bounds) -> None:
        noted = {_DESIRED: str(limits.replicas), _MAXIMUM: str(limits.replicas + limits.max_surge)}

        def change(draft: Obj) -> None:
            draft["spec"]["replicas"] = size
            if size:
                draft["metadata"].setdefault("annotations", {}).update(noted)

        self.store.edit(REPLICA_SET, key_of(target), change)

    def _annotate(self, target: Obj, values: dict[str, str]) -> Obj:
        def change(draft: Obj) -> None:
            draft["metadata"].setdefault("annotations", {}).update(values)

        return self.store.edit(REPLICA_SET, key_of(target), change) or target

    def _clean(self, found: Obj, old: list[Obj]) -> None:
        empty = [each for each in old if not each["spec"]["replicas"] and not _counts(each)["replicas"]]
        for each in empty[: max(0, len(empty) - int(found["spec"].get("revisionHistoryLimit", 10)))]:
            self.store.remove(REPLICA_SET, key_of(each))

    def _report(self, key: Key) -> None:
        found = self.store.find(DEPLOYMENT, key)
        if found is None:
            return
        sets = self.store.owned(REPLICA_SET, uid_of(found))
        newest = next((each for each in sorted(sets, key=_age) if _is_of(each, found)), None)
        updated = _counts(newest)["replicas"] if newest is not None else 0
        total, ready, available = (
            sum(_counts(each)[field] for each in sets) for field in ("replicas", "readyReplicas", "availableReplicas")
        )
        failure = next((entry for each in sets if (entry := condition(each, REPLICA_FAILURE)) is not None), None)
        wanted, limits = int(found["spec"]["replicas"]), self._limits(found)
        complete = updated == wanted == total == available
        enough = available >= wanted - limits.max_unavailable
        now = self.store.loop.now

        def change(draft: Obj) -> None:
            status = draft["status"]
            for field, value in (
                ("replicas", total),
                ("updatedReplicas", updated),
                ("readyReplicas", ready),
                ("availableReplicas", available),
                ("unavailableReplicas", max(0, max(wanted, total) - available)),
            ):
                status.pop(field, None)
                if value:
                    status[field] = value
            status["observedGeneration"] = draft["metadata"].get("generation", 1)
            reason = "NewReplicaSetAvailable" if complete else "ReplicaSetUpdated"
            set_condition(draft, {"type": "Progressing", "status": "True", "reason": reason}, now)
            word, why = ("True", "MinimumReplicasAvailable") if enough else ("False", "MinimumReplicasUnavailable")
            set_condition(draft, {"type": "Available", "status": word, "reason": why}, now)
            if failure is not None:
                set_condition(draft, failure, now)
            else:
                drop_condition(draft, REPLICA_FAILURE)

        self.store.edit_status(DEPLOYMENT, key, change)


def _wait(draft: Obj, seconds: int | None) -> None:
    draft["spec"].pop("minReadySeconds", None)
    if seconds is not None:
        draft["spec"]["minReadySeconds"] = seconds


def _age(obj: Obj) -> tuple[str, str]:
    return obj["metadata"]["creationTimestamp"], name_of(obj)


def _counts(each: Obj) -> dict[str, int]:
    status: Obj = each.get("status") or {}
    return {field: int(status.get(field, 0)) for field in ("replicas", "readyReplicas", "availableReplicas")}


def _state(each: Obj) -> SetState:
    return SetState(name_of(each), int(each["spec"]["replicas"]), _counts(each)["availableReplicas"])
