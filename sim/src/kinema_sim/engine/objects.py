"""Reading helpers for Kubernetes-shaped JSON.

Objects in the store are shared and never changed in place: a caller that wants another value clones first.
"""

from typing import Any

Obj = dict[str, Any]
"""A Kubernetes object or a part of one: JSON as it is on the wire, whose shape the kind decides."""

Key = tuple[str, str]
"""Namespace (empty for cluster-scoped kinds) and name."""


def clone(value: Obj) -> Obj:
    """Copy a JSON object deeply."""
    return {key: clone_any(item) for key, item in value.items()}


def clone_any(value: Any) -> Any:  # noqa: ANN401  # any JSON value goes in, the same kind of value comes out
    """Copy any JSON value deeply."""
    if isinstance(value, dict):
        return {key: clone_any(item) for key, item in value.items()}
    if isinstance(value, list):
        return [clone_any(item) for item in value]
    return value


def name_of(obj: Obj) -> str:
    """Give the object's name."""
    return str(obj["metadata"]["name"])


def namespace_of(obj: Obj) -> str:
    """Give the object's namespace, empty for cluster-scoped objects."""
    return str(obj["metadata"].get("namespace", ""))


def key_of(obj: Obj) -> Key:
    """Give the object's key in its kind."""
    return namespace_of(obj), name_of(obj)


def uid_of(obj: Obj) -> str:
    """Give the object's uid."""
    return str(obj["metadata"]["uid"])


def labels_of(obj: Obj) -> dict[str, str]:
    """Give the object's labels; the dict belongs to the object."""
    return obj["metadata"].get("labels") or {}


def annotations_of(obj: Obj) -> dict[str, str]:
    """Give the object's annotations; the dict belongs to the object."""
    return obj["metadata"].get("annotations") or {}


def controller_ref(obj: Obj) -> Obj | None:
    """Give the owner reference that controls the object."""
    for ref in obj["metadata"].get("ownerReferences") or ():
        if ref.get("controller"):
            return dict(ref)
    return None


def owner_reference(owner: Obj) -> Obj:
    """Write the reference by which a controller owns what it creates."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": name_of(owner),
        "uid": uid_of(owner),
        "controller": True,
        "blockOwnerDeletion": True,
    }


def condition(obj: Obj, kind: str) -> Obj | None:
    """Give a condition of the object's status by its type."""
    for entry in obj.get("status", {}).get("conditions") or ():
        if entry.get("type") == kind:
            return dict(entry)
    return None


def set_condition(obj: Obj, entry: Obj, now: str) -> None:
    """Put a condition into a cloned object; its transition time moves only when its status does."""
    conditions: list[Obj] = obj.setdefault("status", {}).setdefault("conditions", [])
    fresh = {**entry, "lastTransitionTime": now}
    for index, old in enumerate(conditions):
        if old["type"] == entry["type"]:
            if old.get("status") == entry["status"]:
                fresh["lastTransitionTime"] = old.get("lastTransitionTime", now)
            conditions[index] = fresh
            return
    conditions.append(fresh)


def drop_condition(obj: Obj, kind: str) -> None:
    """Take a condition out of a cloned object, if it is there."""
    status: Obj = obj.get("status") or {}
    left = [entry for entry in status.get("conditions") or () if entry["type"] != kind]
    if left:
        status["conditions"] = left
    else:
        status.pop("conditions", None)


def is_true(obj: Obj, kind: str) -> bool:
    """Return whether the object's condition is there and True."""
    conditions = obj.get("status", {}).get("conditions") or ()
    return any(entry.get("type") == kind and entry.get("status") == "True" for entry in conditions)


def is_terminating(obj: Obj) -> bool:
    """Return whether the object is being deleted."""
    return "deletionTimestamp" in obj["metadata"]


def phase_of(pod: Obj) -> str:
    """Give the pod's phase."""
    return str(pod.get("status", {}).get("phase", "Pending"))


def is_finished(pod: Obj) -> bool:
    """Return whether the pod has ended for good."""
    return phase_of(pod) in ("Succeeded", "Failed")


def is_running(pod: Obj) -> bool:
    """Return whether the containers of a pod run: none of them waits to be restarted."""
    statuses = pod.get("status", {}).get("containerStatuses") or ()
    return phase_of(pod) == "Running" and not any("waiting" in (one.get("state") or {}) for one in statuses)


def is_active(pod: Obj) -> bool:
    """Return whether controllers count the pod: neither finished nor terminating."""
    return not is_finished(pod) and not is_terminating(pod)


def is_ready(pod: Obj) -> bool:
    """Return whether the pod answers requests."""
    return is_true(pod, "Ready")


def node_of(pod: Obj) -> str:
    """Give the pod's node, empty while it has none."""
    return str(pod.get("spec", {}).get("nodeName") or "")
