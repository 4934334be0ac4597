"""The subresources of the simulated API: eviction, which asks the disruption budgets, scale, and resize."""

from kinema_sim.api.errors import ApiError, about, conflict, invalid, not_found
from kinema_sim.api.kube import KubeApi, Patch, patched
from kinema_sim.engine.kinds import PDB, POD, Kind
from kinema_sim.engine.objects import (
    Key,
    Obj,
    clone,
    is_finished,
    is_ready,
    is_terminating,
    key_of,
    labels_of,
    name_of,
    namespace_of,
    phase_of,
    set_condition,
    uid_of,
)
from kinema_sim.engine.selectors import matches
from kinema_sim.engine.store import Store

_TWO_BUDGETS = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
_NO_ROOM = "Cannot evict pod as it would violate the pod's disruption budget."


def budgets_of(store: Store, pod: Obj) -> list[Obj]:
    """Give the disruption budgets that select a pod, by name."""
    namespace = namespace_of(pod)
    return [
        budget for budget in store.sorted(PDB, namespace) if matches(budget["spec"].get("selector"), labels_of(pod))
    ]


def evict(api: KubeApi, namespace: str, name: str, *, body: Obj) -> Obj:
    """Evict a pod as its budgets allow; gives a Status of success.

    Raises:
        ApiError: 404 gone, 409 another uid, 429 the budget does not allow it now, 500 two budgets select the pod.
    """
    pod = api.get(POD, namespace, name)
    options: Obj = body.get("deleteOptions") or {}
    dry_run = bool(options.get("dryRun") or body.get("dryRun"))
    if not _bypasses(pod):
        _ask_budget(api.store, pod, dry_run=dry_run)
    # The precondition is the deletion's, and comes after the budget: a namesake's uid uses the budget up all the same.
    wanted = (options.get("preconditions") or {}).get("uid")
    if wanted and wanted != uid_of(pod):
        text = f"Precondition failed: UID in precondition: {wanted}, UID in object meta: {uid_of(pod)}"
        raise conflict(POD, name, text)
    if not dry_run:
        now = api.store.loop.now
        disrupted = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting",
        }
        marked = api.store.edit(POD, key_of(pod), lambda draft: set_condition(draft, disrupted, now))
        api.delete_pod(marked or pod, grace=options.get("gracePeriodSeconds"))
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def _bypasses(pod: Obj) -> bool:
    """Return whether a pod serves no requests, so that no budget counts it."""
    return is_finished(pod) or phase_of(pod) == "Pending" or is_terminating(pod)


def _ask_budget(store: Store, pod: Obj, *, dry_run: bool) -> None:
    budgets = budgets_of(store, pod)
    if len(budgets) > 1:
        raise ApiError(500, _TWO_BUDGETS)
    if not budgets:
        return
    budget = budgets[0]
    status: Obj = budget.get("status") or {}
    if not is_ready(pod) and _frees_unready(budget, status):
        return
    if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 1):
        text = f"The disruption budget {name_of(budget)} is still being processed by the server."
        raise _refusal(pod, text, retry_after=10)
    if status.get("disruptionsAllowed", 0) <= 0:
        need, have = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
        text = f"The disruption budget {name_of(budget)} needs {need} healthy pods and has {have} currently"
        raise _refusal(pod, text, retry_after=0)
    if not dry_run:
        now = store.loop.now

        def take_one(draft: Obj) -> None:
            draft["status"]["disruptionsAllowed"] -= 1
            draft["status"].setdefault("disruptedPods", {})[name_of(pod)] = now

        store.edit(PDB, key_of(budget), take_one)


def _frees_unready(budget: Obj, status: Obj) -> bool:
    if budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    desired, current = int(status.get("desiredHealthy", 0)), int(status.get("currentHealthy", 0))
    return 0 < desired <= current


def _refusal(pod: Obj, text: str, *, retry_after: int) -> ApiError:
    details = {**about(POD, name_of(pod)), "causes": [{"reason": "DisruptionBudget", "message": text}]}
    if retry_after:
        details["retryAfterSeconds"] = retry_after
    return ApiError(429, _NO_ROOM, details=details)


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


def resize(api: KubeApi, namespace: str, name: str, *, patch: Patch) -> Obj:
    """Let a pod's containers ask for other resources; its kubelet decides when they have them.

    Raises:
        ApiError: 404 when there is no such pod, 422 when the patch changes anything else.
    """
    current = api.get(POD, namespace, name)
    draft = patched(current, patch.body, content_type=patch.content_type)
    if _without_sizes(draft) != _without_sizes(current):
        raise invalid(POD, name, field="spec", why="Forbidden: only cpu and memory resources are mutable")

    def set_resources(pod: Obj) -> None:
        pod["spec"]["containers"] = draft["spec"]["containers"]

    return api.store.edit(POD, key_of(current), set_resources) or current


def _without_sizes(pod: Obj) -> Obj:
    """Return a pod's spec without requests and limits of CPU and memory of its containers."""
    spec = clone(pod)["spec"]
    for container in spec["containers"]:
        for part in ("requests", "limits"):
            for resource in ("cpu", "memory"):
                (container.get("resources") or {}).get(part, {}).pop(resource, None)
    return dict(spec)
