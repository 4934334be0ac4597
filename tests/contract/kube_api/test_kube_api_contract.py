"""What Kinema relies on in an API server: the same tests for the simulated one and for a real one."""

import asyncio
import json
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

if TYPE_CHECKING:
    from tests.contract.kube_api.conftest import Kube

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"


async def _events(response: aiohttp.ClientResponse, count: int) -> list[Any]:
    """Read some events of a watch."""
    async with asyncio.timeout(30):
        return [json.loads(await response.content.readline()) for _ in range(count)]


async def _watch(kube: "Kube", path: str, **query: str) -> aiohttp.ClientResponse:
    params = {"watch": "true", "timeoutSeconds": "30", **query}
    response = await kube.session.get(path, params=params)
    assert response.status == 200
    return response


async def test_pages_of_a_list_share_one_version(kube: "Kube") -> None:
    """A list in pages gives every object once, all pages at one version, whatever is written between them."""
    for number in range(5):
        await kube.config_map(f"c{number}")
    path, query = f"{kube.core}/configmaps", {"limit": "2"}
    first = await kube.done("GET", path, **query)
    await kube.config_map("c9")
    pages = [first]
    while token := pages[-1]["metadata"].get("continue"):
        pages.append(await kube.done("GET", path, **query, **{"continue": token}))
    assert {page["metadata"]["resourceVersion"] for page in pages} == {first["metadata"]["resourceVersion"]}
    names = [item["metadata"]["name"] for page in pages for item in page["items"]]
    assert [name for name in names if name.startswith("c")] == [f"c{number}" for number in range(5)]


async def test_a_watch_goes_on_where_a_list_ended(kube: "Kube") -> None:
    """From a list's version on, a watch tells every change once and in order."""
    path = f"{kube.core}/configmaps"
    version = (await kube.done("GET", path))["metadata"]["resourceVersion"]
    await kube.config_map("c", a="1")
    response = await _watch(kube, path, resourceVersion=version, fieldSelector="metadata.name=c")
    await kube.done("PATCH", f"{path}/c", {"data": {"a": "2"}}, content_type=MERGE)
    await kube.done("DELETE", f"{path}/c")
    events = await _events(response, 3)
    assert [event["type"] for event in events] == ["ADDED", "MODIFIED", "DELETED"]
    assert [event["object"]["data"]["a"] for event in events] == ["1", "2", "2"]
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert versions == sorted(set(versions))
    response.close()


async def test_a_watch_with_a_selector_sees_objects_come_and_go(kube: "Kube") -> None:
    """An object that begins to match is ADDED, one that no longer matches is DELETED."""
    path = f"{kube.core}/configmaps"
    version = (await kube.done("GET", path))["metadata"]["resourceVersion"]
    response = await _watch(kube, path, resourceVersion=version, labelSelector="watched=yes")
    await kube.config_map("c")
    for label in ("yes", "no"):
        await kube.done("PATCH", f"{path}/c", {"metadata": {"labels": {"watched": label}}}, content_type=MERGE)
    assert [event["type"] for event in await _events(response, 2)] == ["ADDED", "DELETED"]
    response.close()


async def test_a_streaming_list_ends_with_a_marked_bookmark(kube: "Kube") -> None:
    """With initial events, the objects come first and a bookmark with the annotation says that they are complete."""
    await kube.config_map("only")
    response = await _watch(
        kube,
        f"{kube.core}/configmaps",
        sendInitialEvents="true",
        resourceVersionMatch="NotOlderThan",
        allowWatchBookmarks="true",
        fieldSelector="metadata.name=only",
    )
    added, mark = await _events(response, 2)
    assert (added["type"], added["object"]["metadata"]["name"]) == ("ADDED", "only")
    assert mark["type"] == "BOOKMARK"
    assert mark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"] == "true"
    response.close()


async def test_a_watch_ends_when_its_time_is_up(kube: "Kube") -> None:
    """The server ends a watch after timeoutSeconds with a proper end of the stream."""
    response = await _watch(kube, f"{kube.core}/configmaps", resourceVersion="0", timeoutSeconds="1")
    async with asyncio.timeout(20):
        await response.content.read()
    assert response.content.at_eof()


async def test_a_quota_refuses_pods_and_the_workload_says_so(kube: "Kube") -> None:
    """A surge beyond a quota: the Deployment is heard, has no pod more, and complains with the quota's name."""
    await kube.deployment("web", 2)
    await kube.done(
        "POST", f"{kube.core}/resourcequotas", {"metadata": {"name": "tight"}, "spec": {"hard": {"pods": 2}}}
    )
    await kube.until(f"{kube.core}/resourcequotas/tight", lambda found: "used" in (found.get("status") or {}))
    path = f"{kube.apps}/deployments/web"
    scaled = await kube.done("PATCH", f"{path}/scale", {"spec": {"replicas": 3}}, content_type=MERGE)

    def complaints(found: Any) -> list[Any]:
        return [item for item in found["status"].get("conditions", []) if item["type"] == "ReplicaFailure"]

    told = await kube.until(path, lambda found: bool(complaints(found)))
    (complaint,) = complaints(told)
    assert (complaint["status"], complaint["reason"]) == ("True", "FailedCreate")
    assert (
        "is forbidden: exceeded quota: tight, requested: pods=1, used: pods=2, limited: pods=2" in complaint["message"]
    )
    assert told["status"]["observedGeneration"] >= told["metadata"]["generation"] == 2
    assert scaled["spec"]["replicas"] == 3
    assert len(await kube.pods("web")) == 2
    await kube.done("PATCH", f"{path}/scale", {"spec": {"replicas": 2}}, content_type=MERGE)
    await kube.until(path, lambda found: not complaints(found))


async def test_writes_want_the_version_that_was_read(kube: "Kube") -> None:
    """A replacement with an outdated resourceVersion is a conflict."""
    made = await kube.config_map("c", a="1")
    path = f"{kube.core}/configmaps/c"
    await kube.done("PUT", path, {**made, "data": {"a": "2"}})
    status, body = await kube.call("PUT", path, {**made, "data": {"a": "3"}})
    assert (status, body["kind"], body["reason"]) == (409, "Status", "Conflict")


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        (MERGE, {"data": {"a": None, "b": "2"}}),
        (STRATEGIC, {"data": {"a": None, "b": "2"}}),
        (JSON_PATCH, [{"op": "remove", "path": "/data/a"}, {"op": "add", "path": "/data/b", "value": "2"}]),
    ],
    ids=["merge", "strategic", "json"],
)
async def test_patches_change_fields(kube: "Kube", content_type: str, body: Any) -> None:
    """Each patch type removes one field and sets another."""
    await kube.config_map("c", a="1", keep="k")
    patched = await kube.done("PATCH", f"{kube.core}/configmaps/c", body, content_type=content_type)
    assert patched["data"] == {"b": "2", "keep": "k"}


async def test_deletion_with_a_foreign_uid_is_a_conflict(kube: "Kube") -> None:
    """A uid precondition protects a namesake."""
    made = await kube.config_map("c")
    path = f"{kube.core}/configmaps/c"
    status, _ = await kube.call("DELETE", path, {"preconditions": {"uid": "00000000-0000-4000-a000-000000000000"}})
    assert status == 409
    await kube.done("DELETE", path, {"preconditions": {"uid": made["metadata"]["uid"]}})
    status, body = await kube.call("GET", path)
    assert (status, body["reason"]) == (404, "NotFound")


async def test_scaling_down_takes_the_cheap_pods(kube: "Kube") -> None:
    """Pods with the lowest deletion cost go first, through the scale subresource."""
    await kube.deployment("web", 3)
    victim = (await kube.pods("web"))[0]["metadata"]["name"]
    cost = {"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "-1000"}}}
    await kube.done("PATCH", f"{kube.core}/pods/{victim}", cost, content_type=MERGE)
    path = f"{kube.apps}/deployments/web"
    await kube.done("PATCH", f"{path}/scale", {"spec": {"replicas": 2}}, content_type=MERGE)
    await kube.until(path, lambda found: found["status"].get("replicas") == 2)
    left = [pod["metadata"]["name"] for pod in await kube.pods("web") if "deletionTimestamp" not in pod["metadata"]]
    assert len(left) == 2
    assert victim not in left


async def _budget(kube: "Kube", name: str, app: str) -> None:
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": {"app": app}}}
    await kube.done("POST", f"{kube.policy}/poddisruptionbudgets", {"metadata": {"name": name}, "spec": spec})
    path = f"{kube.policy}/poddisruptionbudgets/{name}"
    await kube.until(path, lambda found: found.get("status", {}).get("disruptionsAllowed") == 1)


async def _evict(kube: "Kube", pod: str, **options: Any) -> tuple[int, Any]:
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": kube.namespace},
        "deleteOptions": options,
    }
    return await kube.call("POST", f"{kube.core}/pods/{pod}/eviction", body)


async def test_evictions_ask_the_budget(kube: "Kube") -> None:
    """Accepted, refused with a DisruptionBudget cause, not found: each has its code."""
    await kube.deployment("web", 2)
    await _budget(kube, "web", "web")
    first, second = (pod["metadata"] for pod in await kube.pods("web"))
    assert (await _evict(kube, "absent"))[0] == 404
    assert (await _evict(kube, first["name"], dryRun=["All"]))[0] == 201
    status, body = await _evict(kube, first["name"], preconditions={"uid": first["uid"]})
    assert (status, body["status"]) == (201, "Success")
    status, body = await _evict(kube, second["name"])
    assert (status, body["reason"]) == (429, "TooManyRequests")
    assert body["details"]["causes"][0]["reason"] == "DisruptionBudget"


async def test_an_eviction_of_a_namesake_uses_the_budget_up(kube: "Kube") -> None:
    """Another uid is a conflict and leaves the pod alone, yet for a while its budget allows nothing more."""
    await kube.deployment("web", 2)
    await _budget(kube, "web", "web")
    first, second = (pod["metadata"] for pod in await kube.pods("web"))
    assert (await _evict(kube, first["name"], preconditions={"uid": second["uid"]}))[0] == 409
    status, body = await _evict(kube, first["name"], preconditions={"uid": first["uid"]})
    assert (status, body["details"]["causes"][0]["reason"]) == (429, "DisruptionBudget")
    assert {pod["metadata"]["uid"] for pod in await kube.pods("web")} == {first["uid"], second["uid"]}


async def test_two_budgets_make_an_eviction_impossible(kube: "Kube") -> None:
    """A pod that two budgets select cannot be evicted: 500."""
    await kube.deployment("web", 2)
    await _budget(kube, "one", "web")
    await _budget(kube, "two", "web")
    pod = (await kube.pods("web"))[0]["metadata"]["name"]
    assert (await _evict(kube, pod))[0] == 500


async def test_a_cordon_keeps_new_pods_off(kube: "Kube") -> None:
    """After all nodes but one are cordoned, new pods land on the one that is not."""
    nodes = [node["metadata"]["name"] for node in (await kube.done("GET", "/api/v1/nodes"))["items"]]
    for node in nodes[1:]:
        await kube.done("PATCH", f"/api/v1/nodes/{node}", {"spec": {"unschedulable": True}}, content_type=STRATEGIC)
    await kube.deployment("web", 2)
    assert {pod["spec"]["nodeName"] for pod in await kube.pods("web")} == {nodes[0]}
    for node in nodes[1:]:
        await kube.done("PATCH", f"/api/v1/nodes/{node}", {"spec": {"unschedulable": None}}, content_type=STRATEGIC)


async def test_an_absent_group_is_404(kube: "Kube") -> None:
    """A custom resource whose definition is not installed answers 404 without a `Status`: discovery knows, no error."""
    async with kube.session.get("/apis/autoscaling.k8s.io/v1/verticalpodautoscalers") as response:
        assert (response.status, await response.text()) == (404, "404 page not found\n")


async def test_discovery_and_version(kube: "Kube") -> None:
    """The version is at least 1.21, and the groups that Kinema uses are announced."""
    version = await kube.done("GET", "/version")
    assert int(version["minor"].rstrip("+")) >= 21
    groups = {group["name"] for group in (await kube.done("GET", "/apis"))["groups"]}
    assert {"apps", "autoscaling", "policy", "batch"} <= groups


@pytest.mark.parametrize("kind", ["SelfSubjectAccessReview", "SubjectAccessReview"])
async def test_access_reviews_answer_in_their_status(kube: "Kube", kind: str) -> None:
    """Whoever may do everything is told so, about any verb on any resource or subresource."""
    attributes = {"verb": "create", "group": "", "resource": "pods", "subresource": "eviction", "namespace": ""}
    spec: dict[str, Any] = {"resourceAttributes": attributes}
    if kind == "SubjectAccessReview":
        spec |= {"user": "admin", "groups": ["system:masters"]}
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}
    answer = await kube.done("POST", f"/apis/authorization.k8s.io/v1/{kind.lower()}s", body)
    assert answer["status"]["allowed"] is True
