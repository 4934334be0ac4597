"""Operations of the API server on the objects of a kind: read, write, delete."""

from collections.abc import Callable
from dataclasses import dataclass

from kinema_sim.api.errors import ApiError, about, conflict, invalid, not_found
from kinema_sim.api.patches import json_patch, merge_patch, strategic_merge
from kinema_sim.engine.clock import stamp
from kinema_sim.engine.kinds import DAEMON_SET, DEPLOYMENT, JOB, NODE, POD, REPLICA_SET, STATEFUL_SET, Kind
from kinema_sim.engine.objects import Obj, clone, is_finished, is_terminating, key_of, name_of, node_of, uid_of
from kinema_sim.engine.selectors import matches
from kinema_sim.engine.store import Store

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"

_FROM_SERVER = ("uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds")
_WITH_PODS = (DEPLOYMENT, REPLICA_SET, STATEFUL_SET, DAEMON_SET)
_TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


@dataclass(frozen=True)
class Patch:
    """A patch as it came in.

    Attributes:
        body: decoded JSON.
        content_type: one of the three patch types.
    """

    body: object
    content_type: str


class KubeApi:
    """The API server's verbs over a store, without HTTP.

    Every method raises ApiError with the code, reason and details that the real server answers.
    """

    def __init__(self, store: Store) -> None:
        self.store = store

    def get(self, kind: Kind, namespace: str, name: str) -> Obj:
        """Read one object."""
        found = self.store.get(kind, namespace, name)
        if found is None:
            raise not_found(kind, name)
        return found

    def create(self, kind: Kind, namespace: str, body: Obj, *, dry_run: bool = False) -> Obj:
        """Create an object in a namespace."""
        draft = clone(body)
        metadata = draft.setdefault("metadata", {})
        self._check_kind(kind, draft)
        if kind.namespaced:
            if metadata.setdefault("namespace", namespace) != namespace:
                raise ApiError(400, "the namespace of the object does not match the namespace on the request")
        else:
            metadata.pop("namespace", None)
        name = metadata.get("name")
        if not name and not metadata.get("generateName"):
            raise invalid(kind, "", field="metadata.name", why="Required value: name or generateName is required")
        if name and self.store.get(kind, namespace, name) is not None:
            raise ApiError(
                409, f'{kind.qualified} "{name}" already exists', reason="AlreadyExists", details=about(kind, name)
            )
        if kind.has_status and kind is not NODE:
            draft.pop("status", None)
        validate(kind, draft)
        for field in ("resourceVersion", *_FROM_SERVER):
            metadata.pop(field, None)
        return draft if dry_run else self.store.create(kind, draft)

    def replace(self, kind: Kind, namespace: str, name: str, *, body: Obj, part: str = "") -> Obj:
        """Replace an object, or its status part; a resourceVersion in the body must be the current one."""
        current = self.get(kind, namespace, name)
        draft = clone(body)
        self._check_kind(kind, draft)
        if draft.get("metadata", {}).get("name") != name:
            raise ApiError(400, "the name of the object does not match the name on the URL")
        return self._write(kind, current, draft, part=part)

    def patch(self, kind: Kind, namespace: str, name: str, *, patch: Patch, part: str = "") -> Obj:
        """Patch an object, or its status part, with one of the three patch types."""
        current = self.get(kind, namespace, name)
        draft = patched(current, patch.body, content_type=patch.content_type)
        if draft["metadata"].get("name") != name:
            raise invalid(kind, name, field="metadata.name", why="field is immutable")
        return self._write(kind, current, draft, part=part)

    def delete(
        self, kind: Kind, namespace: str, name: str, *, options: Obj | None = None, dry_run: bool = False
    ) -> Obj:
        """Delete an object; a bound pod terminates first, within its grace period."""
        current = self.get(kind, namespace, name)
        options = options or {}
        _check_preconditions(kind, current, options.get("preconditions") or {})
        if dry_run:
            return current
        if kind is POD:
            return self.delete_pod(current, grace=options.get("gracePeriodSeconds"))
        policy = options.get("propagationPolicy")
        if policy == "Orphan" or (policy is None and options.get("orphanDependents")):
            self._orphan(uid_of(current))
        self.store.remove(kind, key_of(current))
        return current

    def delete_pod(self, pod: Obj, *, grace: int | None = None) -> Obj:
        """Begin a pod's termination; unbound and finished pods, and those without grace or finalizers, go at once."""
        seconds = pod["spec"].get("terminationGracePeriodSeconds", 30) if grace is None else grace
        held = pod["metadata"].get("finalizers") and node_of(pod)
        if not held and (seconds <= 0 or not node_of(pod) or is_finished(pod)):
            return self.store.remove(POD, key_of(pod)) or pod
        if is_terminating(pod):
            return pod
        deadline = stamp(self.store.loop.now_ms + seconds * 1000)

        def mark(draft: Obj) -> None:
            draft["metadata"]["deletionTimestamp"] = deadline
            draft["metadata"]["deletionGracePeriodSeconds"] = seconds

        return self.store.edit(POD, key_of(pod), mark) or pod

    def _orphan(self, owner_uid: str) -> None:
        for kind in (REPLICA_SET, POD, JOB):
            for child in self.store.owned(kind, owner_uid):

                def release(draft: Obj) -> None:
                    refs = draft["metadata"]["ownerReferences"]
                    draft["metadata"]["ownerReferences"] = [ref for ref in refs if ref["uid"] != owner_uid]

                self.store.edit(kind, key_of(child), release)

    def _write(self, kind: Kind, current: Obj, draft: Obj, *, part: str) -> Obj:
        name = name_of(current)
        metadata = draft.setdefault("metadata", {})
        version = metadata.get("resourceVersion")
        if version and version != current["metadata"]["resourceVersion"]:
            why = "the object has been modified; please apply your changes to the latest version and try again"
            raise conflict(kind, name, why)
        if metadata.get("uid", uid_of(current)) != uid_of(current):
            why = f"Precondition failed: UID in precondition: {metadata['uid']}, UID in object meta: {uid_of(current)}"
            raise conflict(kind, name, why)
        if part == "status":
            return self.store.replace(kind, {**clone(current), "status": draft.get("status") or {}})
        for field in ("resourceVersion", "name", "namespace", *_FROM_SERVER):
            metadata.pop(field, None)
            if field in current["metadata"]:
                metadata[field] = current["metadata"][field]
        draft["apiVersion"], draft["kind"] = kind.api_version, kind.name
        if kind.has_status:
            draft.pop("status", None)
            if "status" in current:
                draft["status"] = clone(current)["status"]
        validate(kind, draft)
        return self.store.replace(kind, draft)

    def _check_kind(self, kind: Kind, draft: Obj) -> None:
        given = draft.setdefault("kind", kind.name), draft.setdefault("apiVersion", kind.api_version)
        if given != (kind.name, kind.api_version):
            raise ApiError(400, f"the body is {given[1]} {given[0]}, the path is {kind.api_version} {kind.name}")


def patched(current: Obj, body: object, *, content_type: str) -> Obj:
    """Apply a patch of a content type to an object.

    Raises:
        ApiError: 415 when the type is not known, 400 or 422 when the patch does not fit.
    """
    if content_type == JSON_PATCH:
        if not isinstance(body, list):
            raise ApiError(400, "a JSON patch is a list of operations")
        return json_patch(current, body)
    merges: dict[str, Callable[[Obj, Obj], Obj]] = {MERGE_PATCH: merge_patch, STRATEGIC_PATCH: strategic_merge}
    if content_type not in merges:
        raise ApiError(415, f"the patch type {content_type} is not supported")
    return merges[content_type](current, _as_object(body))


def _as_object(body: object) -> Obj:
    if not isinstance(body, dict):
        raise ApiError(400, "the body is no JSON object")
    return body


def _check_preconditions(kind: Kind, current: Obj, preconditions: Obj) -> None:
    for field, label in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        wanted = preconditions.get(field)
        have = current["metadata"][field]
        if wanted and wanted != have:
            text = f"Precondition failed: {label} in precondition: {wanted}, {label} in object meta: {have}"
            raise conflict(kind, name_of(current), text)


def validate(kind: Kind, obj: Obj) -> None:
    """Refuse what would make the controllers stumble.

    Raises:
        ApiError: 422 that names the field.
    """
    name = str(obj["metadata"].get("name", ""))
    spec = obj.get("spec") or {}
    if kind is NODE:
        for index, taint in enumerate(spec.get("taints") or ()):
            if not taint.get("key") or taint.get("effect") not in _TAINT_EFFECTS:
                why = f"Unsupported value: {taint.get('effect')!r}, a taint has a key and an effect {_TAINT_EFFECTS}"
                raise invalid(kind, name, field=f"spec.taints[{index}]", why=why)
    if kind.scale and (not isinstance(spec.get("replicas", 1), int) or spec.get("replicas", 1) < 0):
        raise invalid(kind, name, field="spec.replicas", why="must be an integer greater than or equal to 0")
    if kind in _WITH_PODS:
        labels = (spec.get("template") or {}).get("metadata", {}).get("labels") or {}
        if not spec.get("selector") or not matches(spec["selector"], labels):
            why = "`selector` does not match template `labels`"
            raise invalid(kind, name, field="spec.template.metadata.labels", why=why)
    if kind is POD and not spec.get("containers"):
        raise invalid(kind, name, field="spec.containers", why="Required value")
