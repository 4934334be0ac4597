"""One way at least to break each invariant of the events and the cluster together."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

from tests.e2e.follower import Change
from tests.history.record import History
from tests.history.spoiling import HOUR, changed, first, instead, spoils, without

SECOND: Final = timedelta(seconds=1)


def only(history: History, kind: str, type_: str) -> Change:
    """The first change of a kind and type."""
    return next(one for one in history.changes if (one.kind, one.type) == (kind, type_))


def with_change(history: History, *more: Change) -> History:
    """More changes at the end."""
    return replace(history, changes=(*history.changes, *more))


def edited(change: Change, edit: Callable[[Any], Any], **fields: Any) -> Change:
    """A change whose object was edited."""
    item = deepcopy(change.item)
    edit(item)
    return replace(change, item=item, **fields)


@spoils("nodes_explained")
def node_without_an_order(history: History) -> History:
    """A node comes that nobody ordered."""
    came = only(history, "Node", "ADDED")
    return with_change(history, edited(came, lambda node: node["metadata"].update(name="other")))


@spoils("nodes_explained")
def node_before_its_order(history: History) -> History:
    """A node is gone an hour before that was intended."""
    gone = only(history, "Node", "DELETED")
    early = replace(gone, at=gone.at - HOUR)
    return replace(history, changes=tuple(early if one is gone else one for one in history.changes))


@spoils("nodes_explained")
def node_bought_twice(history: History) -> History:
    """The same node comes again."""
    return with_change(history, only(history, "Node", "ADDED"))


@spoils("pods_explained")
def another_pod_ends(history: History) -> History:
    """The eviction names another pod than the one that ended."""
    intent = first(history, "step-started", "evict")
    return instead(history, intent, changed(intent, step_pods=["other"]))


@spoils("moved_as_often_as_planned")
def replacement_moves_again(history: History) -> History:
    """The pod that replaced an evicted one ends, too."""
    workload = first(history, "step-started", "evict").body["step"]["target"].rpartition("/")[2]
    came = [
        one for one in history.changes if one.kind == "Pod" and f"/{workload}-" in one.key and one.type != "DELETED"
    ]
    return with_change(history, replace(came[-1], type="DELETED"))


@spoils("moved_as_often_as_planned")
def evicted_again_at_once(history: History) -> History:
    """The heir of an evicted pod is evicted within two seconds: its mark tells it from one that KWOK takes along."""
    (uid,) = first(history, "step-started", "evict").body["step"]["pods"]
    began, *_, last = (
        one
        for one in history.changes
        if "deletionTimestamp" in one.item["metadata"] and one.item["metadata"]["uid"] == uid
    )
    # The elder stops at once; its last state bears the mark of its eviction, and the heir's gets it in the same way.
    gone = replace(last, at=began.at)
    came = edited(gone, as_heir, type="ADDED", at=began.at + SECOND)
    marked = replace(came, type="MODIFIED", item={**came.item, "status": gone.item["status"]})
    ended = replace(marked, type="DELETED")
    told = [more for one in history.changes for more in ((gone, came, marked, ended) if one is last else (one,))]
    return replace(history, changes=tuple(told))


def as_heir(pod: Any) -> None:
    """Make of a pod that is gone the one that comes in its place."""
    pod["metadata"]["uid"] += "-heir"
    pod["metadata"].pop("deletionTimestamp", None)
    pod["status"]["conditions"] = []


@spoils("scales_explained")
def scaled_without_a_step(history: History) -> History:
    """Replicas change once more than steps say."""
    target = first(history, "step-started", "surge-up").body["step"]["target"].partition("/")[2]
    last = [one for one in history.changes if one.kind == "Deployment" and one.key == target][-1]
    return with_change(history, edited(last, lambda item: item["spec"].update(replicas=77)))


@spoils("templates_explained")
def template_changed_without_a_step(history: History) -> History:
    """A StatefulSet's template changes, and no step rolls it."""
    target = first(history, "step-started", "evict").body["step"]["target"].partition("/")[2]
    last = [one for one in history.changes if one.kind == "StatefulSet" and one.key == target][-1]
    return with_change(history, edited(last, lambda item: item["spec"]["template"]["spec"].update(hostNetwork=True)))


@spoils("marks_explained")
def marked_without_a_step(history: History) -> History:
    """The intent to close a node is missing."""
    closing = next(one for one in history.intents if one.body["step"]["id"].startswith("taint/"))
    return without(history, closing)


@spoils("costs_explained")
def cost_without_a_surge(history: History) -> History:
    """A pod that stays gets the least deletion cost."""
    pod = [one for one in history.changes if one.kind == "Pod" and one.type == "MODIFIED"][-1]
    marks = {"kinema.io/pod-deletion-cost-before": "", "controller.kubernetes.io/pod-deletion-cost": "-2147483647"}
    return with_change(history, edited(pod, lambda item: item["metadata"].update(annotations=marks)))


@spoils("limits_explained")
def limits_changed_without_a_surge(history: History) -> History:
    """The floor of an autoscaler is raised, and no step is about its workload."""
    spec = {"scaleTargetRef": {"kind": "Deployment", "name": "other"}, "minReplicas": 1, "maxReplicas": 3}
    item = {"metadata": {"namespace": "shop", "name": "other", "uid": "h"}, "spec": spec}
    raised = Change(history.changes[-1].at, "MODIFIED", "HorizontalPodAutoscaler", deepcopy(item))
    raised.item["spec"]["minReplicas"] = 2
    before = {**history.before, "HorizontalPodAutoscaler": {"shop/other": item}}
    return with_change(replace(history, before=before), raised)


@spoils("steering_explained")
def steered_without_a_step(history: History) -> History:
    """One controller more is steered than steps say."""
    last = [one for one in history.changes if one.kind == "ConfigMap"][-1]
    return with_change(history, edited(last, lambda item: item.update(data={"uid-of-nobody": "n"})))


@spoils("written_in_turn")
def earlier_holder_writes(history: History) -> History:
    """An object carries a lower token than before."""
    marked = [one for one in history.changes if "kinema.io/fencing" in (one.item["metadata"].get("annotations") or {})]
    stale = edited(marked[-1], lambda item: item["metadata"]["annotations"].update({"kinema.io/fencing": "0"}))
    return with_change(history, stale)


@spoils("never_overfull")
def pod_too_large(history: History) -> History:
    """A pod on a node asks for more than the node has."""
    pods = [one for one in history.changes if one.kind == "Pod" and one.type == "MODIFIED"]
    living = set(history.before["Node"]) - {
        one.key for one in history.changes if (one.kind, one.type) == ("Node", "DELETED")
    }
    came = {one.key for one in history.changes if (one.kind, one.type) == ("Node", "ADDED")}
    last = [one for one in pods if one.item["spec"].get("nodeName") in living | came][-1]
    more = {"requests": {"cpu": "900"}}
    return with_change(history, edited(last, lambda pod: pod["spec"]["containers"][0].update(resources=more)))


@spoils("room_for_the_evicted")
def evicted_without_room(history: History) -> History:
    """All nodes but the evicted pod's own are closed by somebody meanwhile."""
    nodes = {
        name: {**node, "spec": {**node["spec"], "unschedulable": True}} for name, node in history.before["Node"].items()
    }
    still = tuple(one for one in history.changes if one.kind != "Node")
    return replace(history, before={**history.before, "Node": nodes}, changes=still)


def said_before(history: History, kind: str, uid: str, edit: Callable[[Any], Any]) -> History:
    """An object was changed an hour before anything began."""
    item = deepcopy(next(one for one in history.before[kind].values() if one["metadata"]["uid"] == uid))
    edit(item)
    said = Change(history.log[0].time - HOUR, "MODIFIED", kind, item)
    return replace(history, changes=(said, *history.changes))


@spoils("owners_have_the_last_word")
def owner_is_not_heard(history: History) -> History:
    """A pod was marked as untouchable long before it is evicted."""
    uid = first(history, "step-started", "evict").body["step"]["pods"][0]
    mark = {"karpenter.sh/do-not-disrupt": "true"}
    return said_before(history, "Pod", uid, lambda pod: pod["metadata"].update(annotations=mark))


@spoils("owners_have_the_last_word")
def descheduler_is_not_heard(history: History) -> History:
    """The same by the mark of the descheduler."""
    uid = first(history, "step-started", "evict").body["step"]["pods"][0]
    mark = {"descheduler.alpha.kubernetes.io/prefer-no-eviction": "true"}
    return said_before(history, "Pod", uid, lambda pod: pod["metadata"].update(annotations=mark))


@spoils("owners_have_the_last_word")
def other_autoscaler_is_not_heard(history: History) -> History:
    """A node is closed and deleted that another autoscaler has long begun to delete."""
    uid = first(history, "step-started", "delete").body["step"]["uid"]
    taint = {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}
    return said_before(history, "Node", uid, lambda node: node["spec"].update(taints=[taint]))


def single(deployment: Any) -> None:
    """Make of a Deployment one that wants a single pod, and no second one beside it."""
    deployment["spec"].update(replicas=1, strategy={"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0}})
    deployment["metadata"].get("annotations", {}).pop("kinema.io/strategy", None)


def singled(history: History, key: str) -> History:
    """A Deployment was such a one from the beginning."""
    before = deepcopy(history.before["Deployment"])
    single(before[key])
    mine = [one for one in history.changes if (one.kind, one.key) == ("Deployment", key)]
    changes = tuple(edited(one, single) if one in mine else one for one in history.changes)
    return replace(history, before={**history.before, "Deployment": before}, changes=changes)


@spoils("no_second_copy_asked_for")
def surged_against_the_owner(history: History) -> History:
    """A Deployment is surged that wants a single pod and excludes a second one."""
    return singled(history, first(history, "step-started", "surge-up").body["step"]["target"].partition("/")[2])


@spoils("no_second_copy_asked_for")
def rolled_against_the_owner(history: History) -> History:
    """One is rolled."""
    return singled(history, first(history, "step-started", "roll").body["step"]["target"].partition("/")[2])


@spoils("no_second_copy_ready")
def two_copies_at_once(history: History) -> History:
    """New pods of it are Ready before the old ones end."""
    return surged_against_the_owner(history)
