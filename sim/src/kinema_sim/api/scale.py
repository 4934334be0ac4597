"""The scale subresource of Deployments, ReplicaSets and StatefulSets."""

from kinema_sim.api.errors import ApiError, conflict, invalid, not_found
from kinema_sim.api.kube import KubeApi, patched
from kinema_sim.engine.kinds import Kind
from kinema_sim.engine.objects import Key, Obj, name_of, namespace_of


def scale_of(obj: Obj) -> Obj:
    """Show an object with replicas as an autoscaling/v1 Scale."""
    metadata = obj["metadata"]
    labels = (obj["spec"].get("selector") or {}).get("matchLabels") or {}
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {
            "name": name_of(obj),
            "namespace": namespace_of(obj),
            "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"],
            "creationTimestamp": metadata["creationTimestamp"],
        },
        "spec": {"replicas": obj["spec"].get("replicas", 1)},
        "status": {
            "replicas": (obj.get("status") or {}).get("replicas", 0),
            "selector": ",".join(f"{key}={value}" for key, value in sorted(labels.items())),
        },
    }


def read_scale(api: KubeApi, kind: Kind, key: Key) -> Obj:
    """Give the scale of an object.

    Raises:
        ApiError: 404 when there is no such object.
    """
    return scale_of(api.get(kind, *key))


def write_scale(api: KubeApi, kind: Kind, key: Key, *, body: object, content_type: str | None) -> Obj:
    """Set the replicas of an object by a whole Scale (`content_type` None) or a patch of one.

    Raises:
        ApiError: 404, 409 on an outdated resourceVersion, 422 when replicas is no natural number.
    """
    current = api.store.find(kind, key)
    if current is None:
        raise not_found(kind, key[1])
    scale = scale_of(current)
    wanted = patched(scale, body, content_type=content_type) if content_type else body
    if not isinstance(wanted, dict):
        raise ApiError(400, "the body is no Scale object")
    version = (wanted.get("metadata") or {}).get("resourceVersion")
    if version and version != current["metadata"]["resourceVersion"]:
        raise conflict(kind, key[1], "the object has been modified; please apply your changes to the latest version")
    replicas = (wanted.get("spec") or {}).get("replicas", 0)
    if isinstance(replicas, bool) or not isinstance(replicas, int) or replicas < 0:
        raise invalid(kind, key[1], field="spec.replicas", why="must be an integer greater than or equal to 0")

    def set_replicas(draft: Obj) -> None:
        draft["spec"]["replicas"] = replicas

    return scale_of(api.store.edit(kind, key, set_replicas) or current)
