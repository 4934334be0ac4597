"""What must hold between the events and what the API server told: no effect without an intent, none twice."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Final

from tests.e2e.auditor import controller_of
from tests.e2e.follower import Change, Objects
from tests.history.changes import by_target, modified, scaled_by
from tests.history.record import JSON, Entry, History

_ENDING: Final = {"evict", "surge-up", "surge-down", "revert"}
"""Steps that end pods which they name; an autoscaler may end those of a surge before their time."""
_TAKEN_ALONG: Final = timedelta(seconds=2)
"""How soon after a pod is gone its heir of the same name is taken along by KWOK."""
_UNITS: Final = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "k": 10**3, "M": 10**6, "G": 10**9}


def nodes_explained(history: History) -> Iterator[str]:
    """Each node that comes or goes was ordered before, by its planned name or that of its machine; none comes twice."""
    ordered = _first_intents(history, {"boot": "boot", "delete": "delete"})
    named = {str(name) for entry in history.of("step-succeeded") if (name := entry.body.get("figures", {}).get("node"))}
    came: set[str] = set()
    for change in history.changes:
        if change.kind != "Node" or change.type == "MODIFIED":
            continue
        what = "boot" if change.type == "ADDED" else "delete"
        since = ordered[what].get(change.key)
        if change.key not in named and (since is None or since > change.at):
            yield f"node {change.key}: {what} without an intent"
        if change.type == "ADDED" and change.key in came:
            yield f"node {change.key} came twice"
        came |= {change.key} if change.type == "ADDED" else set()


def pods_explained(history: History) -> Iterator[str]:
    """Each pod that was there and is ended was named before, by its uid, its rolled workload or its deleted node."""
    steps = by_target(history)
    named: defaultdict[str, list[datetime]] = defaultdict(list)
    for entry in history.intents:
        if entry.body["step"]["kind"] in _ENDING:
            for uid in entry.body["step"]["pods"]:
                named[uid].append(entry.time)
    for uid, pod, at in _endings(history):
        workload = controller_of(history.before, pod).replace(" ", "/", 1)
        if workload in history.others or _preempted(pod):
            continue
        whole = steps.get(("roll", workload), []) + steps.get(("delete", pod["spec"].get("nodeName", "")), [])
        if not any(time <= at for time in (*named.get(uid, ()), *whole)):
            yield f"pod {pod['metadata']['namespace']}/{pod['metadata']['name']} ended, and no step names it"


def moved_as_often_as_planned(history: History) -> Iterator[str]:
    """Of no workload are more pods ended than the plans that were carried out move, or that were taken back.

    A pod that came up on a node that was to go, and was still open, moves on when that is closed; so does one that
    waited when the plan was made and took room on a temporary node.
    """
    carried = {entry.plan for entry in history.intents} & history.plans.keys()
    came, late = _came(history)
    there = {pod["metadata"]["uid"]: pod for pod in history.before["Pod"].values()}
    keys = {uid: controller_of(history.before, pod) for uid, pod in {**came, **there}.items()}
    bound = {uid for uid, pod in there.items() if pod["spec"].get("nodeName")}
    allowed = Counter(keys[uid] for uid in late - bound)
    for plan in carried:
        places = {item["pod"]: item for item in history.plans[plan]["placements"]}
        for pod in _moves(history.plans[plan]):
            place = places.get(pod)
            if place is not None and place["from"] is not None and place["strategy"] != "rolling":
                allowed[keys.get(place["uid"], "")] += 1
    allowed.update(_rolled_back(history))
    for entry in history.intents:
        step = entry.body["step"]
        workload = step["target"].replace("/", " ", 1)
        if step["kind"] == "surge-up" and _fell_through(history, entry):
            allowed[workload] += len(step["pods"])
        if step["kind"] in {"roll", "revert"}:
            allowed[workload] += step["replicas_to"]
    ended = Counter(workload for workload, _ in _all_endings(history) if workload)
    for workload, count in sorted(ended.items()):
        if count > allowed[workload] and workload.replace(" ", "/", 1) not in history.others:
            yield f"{workload}: {count} pods ended, {allowed[workload]} were to move"


def _moves(plan: JSON) -> Iterator[str]:
    """Pods that a plan moves, one for each time; a policy's plan states no steps, and each of its moves is one."""
    steps = plan.get("steps", ())
    yield from (step["pod"] for step in steps if step["action"] == "move")
    if not steps:
        yield from (item["pod"] for item in plan["placements"] if item["from"] != item["to"])


def _came(history: History) -> tuple[dict[str, JSON], set[str]]:
    """Pods that were bound to a node, by uid, and those of them whose node was closed after that."""
    closed = {
        entry.body["step"]["target"]: entry.time  # the last time: a node may be opened and closed again
        for entry in history.intents
        if entry.body["step"]["kind"] == "taint"
    }
    came: dict[str, JSON] = {}
    late: set[str] = set()
    for change in history.changes:
        if change.kind == "Pod" and change.item["metadata"]["uid"] not in came and change.item["spec"].get("nodeName"):
            came[change.item["metadata"]["uid"]] = change.item
            if change.at < closed.get(change.item["spec"]["nodeName"], change.at):
                late.add(change.item["metadata"]["uid"])
    return came, late


def _rolled_back(history: History) -> dict[str, int]:
    """By workload, pods that may go again because the rolling update by which they came is taken back."""
    rolled: Counter[tuple[str, str]] = Counter()
    found: Counter[str] = Counter()
    for entry in history.intents:
        step = entry.body["step"]
        target = step["target"].replace("/", " ", 1)
        if step["kind"] == "roll":
            rolled[entry.plan, target] = step["replicas_to"]
        if step["kind"] == "revert":
            found[target] += rolled.pop((entry.plan, target), 0)
    return found


def _fell_through(history: History, entry: Entry) -> bool:
    """Whether a surge was taken back, or its workload moved anew (an autoscaler took its surplus, say)."""
    step = entry.body["step"]
    return (entry.plan, step["id"].replace("surge-up/", "surge-down/", 1)) not in history.done


def scales_explained(history: History) -> Iterator[str]:
    """Each change of a workload's replicas is a step's, unless an autoscaler sets them; no step makes it twice."""
    wanted: defaultdict[str, list[tuple[datetime, int, int]]] = defaultdict(list)
    for entry in history.intents:
        step = entry.body["step"]
        if step["kind"] in {"surge-up", "surge-down", "revert"} and entry.body.get("attempt", 1) == 1:
            wanted[step["target"]].append((entry.time, step["replicas_from"], step["replicas_to"]))
    scaled = {scaled_by(item) for item in history.before["HorizontalPodAutoscaler"].values()} | history.others
    for change, before in modified(history, "Deployment", "StatefulSet"):
        target = f"{change.kind}/{change.key}"
        now, then = change.item["spec"].get("replicas", 1), before["spec"].get("replicas", 1)
        if now == then or target in scaled:
            continue
        found = next((one for one in wanted[target] if one[0] <= change.at and one[2] == now), None)
        if found is None:
            yield f"{target}: {then} → {now} replicas without an intent, or twice for one"
        else:
            wanted[target].remove(found)


def templates_explained(history: History) -> Iterator[str]:
    """A template changes only while its workload is rolled, or given back."""
    since = by_target(history)
    for change, before in modified(history, "Deployment", "StatefulSet"):
        target = f"{change.kind}/{change.key}"
        begun = [*since.get(("roll", target), ()), *since.get(("revert", target), ())]
        if target in history.others:
            continue
        if change.item["spec"]["template"] != before["spec"]["template"] and not any(at <= change.at for at in begun):
            yield f"{target}: its template changes without an intent"


def never_overfull(history: History) -> Iterator[str]:
    """At no moment is more asked for on a node than it has."""
    pods = dict(history.before["Pod"])
    nodes = dict(history.before["Node"])
    for change in history.changes:
        held = {"Pod": pods, "Node": nodes}.get(change.kind)
        if held is None:
            continue
        if change.type == "DELETED":
            held.pop(change.key, None)
            continue
        held[change.key] = change.item
        name = change.item["spec"].get("nodeName") if change.kind == "Pod" else None
        node = nodes.get(name or "")
        if node is None or change.type != "MODIFIED":
            continue
        for resource in ("cpu", "memory"):
            asked = sum(_asks(pod, resource) for pod in pods.values() if pod["spec"].get("nodeName") == name)
            if asked > amount(node["status"]["allocatable"][resource]):
                yield f"node {name}: {asked} of {resource} asked for"


def room_for_the_evicted(history: History) -> Iterator[str]:
    """When a pod is evicted, an open node other than its own has room for it."""
    steps = [entry.body["step"] for entry in history.intents]
    evicted = {uid for step in steps if step["kind"] == "evict" for uid in step["pods"]}
    objects: Objects = {kind: dict(items) for kind, items in history.before.items()}
    for change in history.changes:
        held = objects.setdefault(change.kind, {})
        before = held.get(change.key)
        if change.type == "DELETED":
            held.pop(change.key, None)
        else:
            held[change.key] = change.item
        if change.kind != "Pod" or change.item["metadata"]["uid"] not in evicted or not _begins_to_end(change, before):
            continue
        if not any(_has_room(objects, name, change.item) for name in objects["Node"]):
            yield f"pod {change.key} was evicted, and nowhere is room for another of it"


# --- reading changes


def _first_intents(history: History, kinds: Mapping[str, str]) -> dict[str, dict[str, datetime]]:
    """When each target was first named by steps of these kinds."""
    found: dict[str, dict[str, datetime]] = {name: {} for name in kinds}
    for entry in history.intents:
        if entry.body["step"]["kind"] in kinds:
            found[entry.body["step"]["kind"]].setdefault(entry.body["step"]["target"], entry.time)
    return found


def _begins_to_end(change: Change, before: JSON | None) -> bool:
    """Whether a pod is being ended from this change on, or gone at once."""
    if before is None or "deletionTimestamp" in before["metadata"]:
        return False
    return change.type == "DELETED" or "deletionTimestamp" in change.item["metadata"]


def _endings(history: History) -> Iterator[tuple[str, JSON, datetime]]:
    """Pods that were there at the beginning and began to end: uid, the pod, when."""
    at_first = {pod["metadata"]["uid"]: pod for pod in history.before["Pod"].values()}
    for change, pod in _ends(history):
        uid = pod["metadata"]["uid"]
        if uid in at_first:
            yield uid, pod, change.at


def _all_endings(history: History) -> Iterator[tuple[str, datetime]]:
    """Workload and moment of every pod that ran and began to end, new ones included.

    KWOK ends pods by name, and so takes the next one of a StatefulSet, too. Such a one is not counted: it has no node
    yet, or goes right after its elder, and without the mark that an eviction leaves.
    """
    sets = {**history.before["ReplicaSet"]}
    for change in history.changes:
        if change.kind == "ReplicaSet":
            sets[change.key] = change.item
    objects = {**history.before, "ReplicaSet": sets}
    gone: dict[str, list[datetime]] = {}
    for change in history.changes:
        if change.kind == "Pod" and change.type == "DELETED":
            gone.setdefault(change.key, []).append(change.at)
    for change, pod in _ends(history):
        owner = controller_of(objects, pod)
        late = not any(at < change.at <= at + _TAKEN_ALONG for at in gone.get(change.key, ()))
        if pod["spec"].get("nodeName") and (late or _evicted(pod) or not owner.startswith("StatefulSet ")):
            yield owner, change.at


def _preempted(pod: JSON) -> bool:
    """Whether the scheduler ended it for a more important pod."""
    return any(one.get("reason") == "PreemptionByScheduler" for one in pod["status"].get("conditions", ()))


def _evicted(pod: JSON) -> bool:
    """Whether it was ended by the Eviction API."""
    return any(one["type"] == "DisruptionTarget" for one in pod["status"].get("conditions", ()))


def _ends(history: History) -> Iterator[tuple[Change, JSON]]:
    held = dict(history.before["Pod"])
    for change in history.changes:
        if change.kind != "Pod":
            continue
        before = held.pop(change.key, None)
        if change.type != "DELETED":
            held[change.key] = change.item
        if before is not None and _begins_to_end(change, before):
            yield change, before


def _has_room(objects: Objects, name: str, pod: JSON) -> bool:
    node = objects["Node"][name]
    closed = any(taint["effect"] != "PreferNoSchedule" for taint in node["spec"].get("taints") or ())
    if closed or node["spec"].get("unschedulable") or name == pod["spec"].get("nodeName"):
        return False
    others = [one for one in objects["Pod"].values() if one["spec"].get("nodeName") == name]
    return all(
        sum(_asks(one, resource) for one in others) + _asks(pod, resource)
        <= amount(node["status"]["allocatable"][resource])
        for resource in ("cpu", "memory")
    )


def _asks(pod: JSON, resource: str) -> int:
    """What a pod takes on its node: none once it has ended. Pods here have plain containers only."""
    if pod.get("status", {}).get("phase") in {"Succeeded", "Failed"}:
        return 0
    return sum(
        amount((one.get("resources") or {}).get("requests", {}).get(resource, "0")) for one in pod["spec"]["containers"]
    )


def amount(text: str) -> int:
    """A quantity in thousandths."""
    if text.endswith("m"):
        return int(text[:-1])
    for unit, factor in _UNITS.items():
        if text.endswith(unit):
            return int(text.removesuffix(unit)) * factor * 1000
    return int(text) * 1000


INVARIANTS: Final = (
    nodes_explained,
    pods_explained,
    moved_as_often_as_planned,
    scales_explained,
    templates_explained,
    never_overfull,
    room_for_the_evicted,
)
