"""The API server's semantics without HTTP: writes, deletion, eviction, scale, pages, paths."""

from typing import Any

import pytest
from tests.sim.builders import a_cluster, a_pod, a_store, an_app, pods_of, with_deployment

from kinema_sim.api.errors import ApiError
from kinema_sim.api.kube import MERGE_PATCH, STRATEGIC_PATCH, KubeApi, Patch
from kinema_sim.api.listing import Lister, Query
from kinema_sim.api.paths import Target, discovery, parse_path
from kinema_sim.api.subresources import evict, read_scale, write_scale
from kinema_sim.cluster import Cluster
from kinema_sim.engine.kinds import CONFIG_MAP, DEPLOYMENT, HPA, NAMESPACE, NODE, PDB, POD, REPLICA_SET
from kinema_sim.engine.objects import Obj, is_terminating, name_of, uid_of
from kinema_sim.scenarios.objects import pdb


def _api() -> KubeApi:
    api = KubeApi(a_store())
    body: Obj = {"metadata": {"name": "c"}, "data": {"a": "1"}}
    api.create(CONFIG_MAP, "shop", body)
    return api


def test_replace_wants_the_current_version() -> None:
    """A body with an outdated resourceVersion is a conflict, one without is not."""
    api = _api()
    first = api.get(CONFIG_MAP, "shop", "c")
    api.replace(CONFIG_MAP, "shop", "c", body={**first, "data": {"a": "2"}})
    with pytest.raises(ApiError) as refused:
        api.replace(CONFIG_MAP, "shop", "c", body={**first, "data": {"a": "3"}})
    assert (refused.value.code, refused.value.reason) == (409, "Conflict")
    body = {"metadata": {"name": "c"}, "data": {"a": "4"}}
    assert api.replace(CONFIG_MAP, "shop", "c", body=body)["data"] == {"a": "4"}


def test_patches_with_a_version_are_conditional() -> None:
    """A patch that carries an outdated resourceVersion is a conflict as well."""
    api = _api()
    version = api.get(CONFIG_MAP, "shop", "c")["metadata"]["resourceVersion"]
    body = {"metadata": {"resourceVersion": version}, "data": {"b": "1"}}
    api.patch(CONFIG_MAP, "shop", "c", patch=Patch(body, MERGE_PATCH))
    with pytest.raises(ApiError) as refused:
        api.patch(CONFIG_MAP, "shop", "c", patch=Patch({**body, "data": {"c": "1"}}, MERGE_PATCH))
    assert refused.value.code == 409


def test_status_and_spec_are_written_apart() -> None:
    """A plain write leaves the status, a status write leaves the spec."""
    api = KubeApi(a_store())
    node: Obj = {"metadata": {"name": "n"}, "spec": {}, "status": {"phase": "old"}}
    api.create(NODE, "", node)
    both = {"spec": {"unschedulable": True}, "status": {"phase": "new"}}
    plain = api.patch(NODE, "", "n", patch=Patch(both, STRATEGIC_PATCH))
    assert (plain["spec"], plain["status"]) == ({"unschedulable": True}, {"phase": "old"})
    part = api.patch(NODE, "", "n", patch=Patch({"spec": {}, "status": {"phase": "new"}}, MERGE_PATCH), part="status")
    assert (part["spec"], part["status"]) == ({"unschedulable": True}, {"phase": "new"})


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"metadata": {"name": "c"}}, 409),
        ({"metadata": {}}, 422),
        ({"metadata": {"name": "d", "namespace": "other"}}, 400),
        ({"kind": "Pod", "metadata": {"name": "d"}}, 400),
    ],
)
def test_bad_creations_are_refused(body: Obj, code: int) -> None:
    """A name that is taken or missing, another namespace and another kind are refused with their own codes."""
    with pytest.raises(ApiError) as refused:
        _api().create(CONFIG_MAP, "shop", body)
    assert refused.value.code == code


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (NODE, {"metadata": {"name": "n"}, "spec": {"taints": [{"key": "k", "effect": "Never"}]}}),
        (POD, {"metadata": {"name": "p"}, "spec": {"containers": []}}),
        (
            DEPLOYMENT,
            {
                "metadata": {"name": "d"},
                "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "c"}}}},
            },
        ),
    ],
)
def test_invalid_objects_are_refused(kind: Any, body: Obj) -> None:
    """What controllers could not work with is invalid, with the field in the details."""
    with pytest.raises(ApiError) as refused:
        KubeApi(a_store()).create(kind, "shop", body)
    assert refused.value.code == 422
    assert refused.value.details is not None
    assert refused.value.details["causes"][0]["field"].startswith("spec")


def test_deletion_checks_the_uid() -> None:
    """A precondition on another uid is a conflict and deletes nothing."""
    api = _api()
    with pytest.raises(ApiError) as refused:
        api.delete(CONFIG_MAP, "shop", "c", options={"preconditions": {"uid": "other"}})
    assert refused.value.code == 409
    uid = uid_of(api.get(CONFIG_MAP, "shop", "c"))
    api.delete(CONFIG_MAP, "shop", "c", options={"preconditions": {"uid": uid}})
    with pytest.raises(ApiError, match="not found"):
        api.get(CONFIG_MAP, "shop", "c")


def test_bound_pods_terminate_and_unbound_ones_go_at_once() -> None:
    """A bound pod is marked first, unless it gets no grace; an unbound one is gone."""
    api = KubeApi(a_store())
    for name, node in (("bound", "n1"), ("forced", "n1"), ("free", "")):
        api.create(POD, "shop", a_pod(name, node=node))
    api.delete(POD, "shop", "bound", options={"gracePeriodSeconds": 5})
    marked = api.get(POD, "shop", "bound")["metadata"]
    assert (marked["deletionTimestamp"], marked["deletionGracePeriodSeconds"]) == ("2026-01-05T08:00:05Z", 5)
    api.delete(POD, "shop", "forced", options={"gracePeriodSeconds": 0})
    api.delete(POD, "shop", "free")
    assert [name_of(pod) for pod in api.store.each(POD)] == ["bound"]


def test_orphans_stay() -> None:
    """Deleting a set with policy Orphan leaves its pods without an owner."""
    cluster = a_cluster()
    with_deployment(cluster, an_app(replicas=2))
    found = cluster.store.each(REPLICA_SET)[0]
    cluster.api.delete(DEPLOYMENT, "shop", "web", options={"propagationPolicy": "Orphan"})
    cluster.api.delete(REPLICA_SET, "shop", name_of(found), options={"propagationPolicy": "Orphan"})
    cluster.run_for(10)
    assert len(pods_of(cluster)) == 2
    assert not any(pod["metadata"]["ownerReferences"] for pod in pods_of(cluster))


def _with_budget(**rule: int | str) -> Cluster:
    cluster = a_cluster()
    app = an_app(replicas=2)
    with_deployment(cluster, app)
    cluster.store.create(PDB, pdb(app, **rule))
    cluster.run_for(1)
    return cluster


def _evict(cluster: Cluster, name: str, **options: Any) -> Obj:
    return evict(cluster.api, "shop", name, body={"deleteOptions": options})


def test_evictions_stop_at_the_budget() -> None:
    """The first eviction passes, the second one at the same moment is told why not, and when."""
    cluster = _with_budget(maxUnavailable=1)
    first, second = (name_of(pod) for pod in pods_of(cluster))
    assert _evict(cluster, first)["status"] == "Success"
    assert is_terminating(cluster.api.get(POD, "shop", first))
    with pytest.raises(ApiError, match="violate"):
        _evict(cluster, second)
    cluster.run_for(0.5)
    with pytest.raises(ApiError) as refused:
        _evict(cluster, second)
    assert refused.value.code == 429
    assert refused.value.details is not None
    cause = refused.value.details["causes"][0]
    assert cause["reason"] == "DisruptionBudget"
    assert cause["message"] == "The disruption budget web needs 1 healthy pods and has 1 currently"
    cluster.run_for(30)
    assert _evict(cluster, second)["status"] == "Success"


def test_a_dry_run_changes_nothing() -> None:
    """A dry run answers as the real eviction would, and leaves pod and budget alone."""
    cluster = _with_budget(maxUnavailable=1)
    before = cluster.store.dump()
    for pod in pods_of(cluster):
        assert _evict(cluster, name_of(pod), dryRun=["All"])["status"] == "Success"
    assert cluster.store.dump() == before


def test_two_budgets_on_one_pod_are_an_error() -> None:
    """The API cannot evict a pod that two budgets select."""
    cluster = _with_budget(maxUnavailable=1)
    second = pdb(an_app(), maxUnavailable=1)
    second["metadata"]["name"] = "other"
    cluster.store.create(PDB, second)
    cluster.run_for(1)
    with pytest.raises(ApiError, match="more than one") as refused:
        _evict(cluster, name_of(pods_of(cluster)[0]))
    assert refused.value.code == 500


def test_a_new_budget_must_be_observed_first() -> None:
    """A budget that its controller has not looked at yet asks to come back in ten seconds."""
    cluster = _with_budget(maxUnavailable=1)
    cluster.store.edit(PDB, ("shop", "web"), lambda draft: draft["spec"].update(maxUnavailable=2))
    with pytest.raises(ApiError) as refused:
        _evict(cluster, name_of(pods_of(cluster)[0]))
    assert refused.value.details is not None
    assert refused.value.details["retryAfterSeconds"] == 10


def test_evicting_another_pod_of_the_name_is_a_conflict() -> None:
    """The uid precondition protects a namesake, and a pod that is gone is not found."""
    cluster = _with_budget(maxUnavailable=1)
    with pytest.raises(ApiError) as other:
        _evict(cluster, name_of(pods_of(cluster)[0]), preconditions={"uid": "x"})
    with pytest.raises(ApiError) as gone:
        _evict(cluster, "absent")
    assert (other.value.code, gone.value.code) == (409, 404)


@pytest.mark.parametrize(("policy", "allowed"), [("AlwaysAllow", True), ("IfHealthyBudget", False), (None, False)])
def test_unready_pods_follow_their_own_policy(policy: str | None, allowed: bool) -> None:
    """With too few healthy pods, an unready pod may go only if the budget always allows that."""
    cluster = _with_budget(minAvailable=2)
    cluster.kubelets.never_ready.add(("shop", "web"))
    if policy is not None:
        cluster.store.edit(PDB, ("shop", "web"), lambda draft: draft["spec"].update(unhealthyPodEvictionPolicy=policy))
    cluster.api.delete(POD, "shop", name_of(pods_of(cluster)[0]))
    cluster.run_for(20)
    unready = next(
        name_of(pod)
        for pod in pods_of(cluster)
        if any(entry["type"] == "Ready" and entry["status"] == "False" for entry in pod["status"]["conditions"])
    )
    if allowed:
        assert _evict(cluster, unready)["status"] == "Success"
    else:
        with pytest.raises(ApiError) as refused:
            _evict(cluster, unready)
        assert refused.value.code == 429


def test_scale_reads_and_writes() -> None:
    """The scale shows spec, status and selector, and a write changes nothing but the replicas."""
    cluster = a_cluster()
    with_deployment(cluster, an_app(replicas=2))
    key = ("shop", "web")
    scale = read_scale(cluster.api, DEPLOYMENT, key)
    assert (scale["spec"], scale["status"]) == ({"replicas": 2}, {"replicas": 2, "selector": "app=web"})
    patch = {"spec": {"replicas": 3}}
    assert write_scale(cluster.api, DEPLOYMENT, key, body=patch, content_type=MERGE_PATCH)["spec"] == {"replicas": 3}
    with pytest.raises(ApiError) as outdated:
        write_scale(cluster.api, DEPLOYMENT, key, body=scale, content_type=None)
    with pytest.raises(ApiError) as negative:
        write_scale(cluster.api, DEPLOYMENT, key, body={"spec": {"replicas": -1}}, content_type=MERGE_PATCH)
    assert (outdated.value.code, negative.value.code) == (409, 422)


def _maps(count: int) -> KubeApi:
    api = KubeApi(a_store())
    for number in range(count):
        api.create(CONFIG_MAP, "shop", {"metadata": {"name": f"c{number}"}, "data": {"v": "old"}})
    return api


def test_all_pages_of_a_list_show_one_moment() -> None:
    """Pages follow each other without loss, and changes between them do not show."""
    api = _maps(5)
    lister, query = Lister(api.store), Query("shop")
    page = lister.page(CONFIG_MAP, query, limit=2)
    version, seen = page["metadata"]["resourceVersion"], [item["metadata"]["name"] for item in page["items"]]
    assert page["metadata"]["remainingItemCount"] == 3
    api.delete(CONFIG_MAP, "shop", "c3")
    api.create(CONFIG_MAP, "shop", {"metadata": {"name": "c9"}})
    while token := page["metadata"].get("continue"):
        page = lister.page(CONFIG_MAP, query, limit=2, token=token)
        assert page["metadata"]["resourceVersion"] == version
        seen += [item["metadata"]["name"] for item in page["items"]]
    assert seen == [f"c{number}" for number in range(5)]


def test_an_expired_token_answers_410_with_one_to_go_on() -> None:
    """The refusal carries a token for the rest as it is now."""
    api = _maps(3)
    lister, query = Lister(api.store), Query("shop")
    token = lister.page(CONFIG_MAP, query, limit=2)["metadata"]["continue"]
    api.create(CONFIG_MAP, "shop", {"metadata": {"name": "c9"}})
    lister.expire()
    with pytest.raises(ApiError) as expired:
        lister.page(CONFIG_MAP, query, limit=2, token=token)
    assert (expired.value.code, expired.value.reason) == (410, "Expired")
    rest = lister.page(CONFIG_MAP, query, token=expired.value.metadata["continue"])
    assert [item["metadata"]["name"] for item in rest["items"]] == ["c2", "c9"]
    with pytest.raises(ApiError) as unreadable:
        lister.page(CONFIG_MAP, query, token="%")
    assert unreadable.value.code == 400


def test_tokens_live_for_five_minutes() -> None:
    """A continue token is expired once five virtual minutes have passed."""
    api = _maps(3)
    lister, query = Lister(api.store), Query("shop")
    token = lister.page(CONFIG_MAP, query, limit=2)["metadata"]["continue"]
    api.store.loop.run_until(api.store.loop.now_ms + 301_000)
    with pytest.raises(ApiError) as expired:
        lister.page(CONFIG_MAP, query, token=token)
    assert expired.value.code == 410


def test_lists_can_be_narrowed() -> None:
    """Namespace, labels and fields narrow a list, and an unreadable selector is refused."""
    api = KubeApi(a_store())
    for name, node in (("a", "n1"), ("b", "n2")):
        api.create(POD, "shop", a_pod(name, node=node, labels={"app": name}))
    lister = Lister(api.store)

    def names(query: Query) -> list[str]:
        return [item["metadata"]["name"] for item in lister.page(POD, query)["items"]]

    assert names(Query()) == ["a", "b"]
    assert names(Query("other")) == []
    assert names(Query(labels="app=b")) == ["b"]
    assert names(Query(fields="spec.nodeName=n1")) == ["a"]
    with pytest.raises(ApiError) as refused:
        names(Query(fields="spec.x=1"))
    assert refused.value.code == 400


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("/api/v1/nodes", Target(NODE, None, "", "")),
        ("/api/v1/nodes/n1/status", Target(NODE, None, "n1", "status")),
        ("/api/v1/pods", Target(POD, None, "", "")),
        ("/api/v1/namespaces/shop/pods/p/eviction", Target(POD, "shop", "p", "eviction")),
        ("/api/v1/namespaces/shop", Target(NAMESPACE, None, "shop", "")),
        ("/api/v1/namespaces/shop/status", Target(NAMESPACE, None, "shop", "status")),
        ("/apis/apps/v1/namespaces/shop/deployments/web/scale", Target(DEPLOYMENT, "shop", "web", "scale")),
        ("/apis/autoscaling/v2/horizontalpodautoscalers", Target(HPA, None, "", "")),
        ("/apis/autoscaling/v1/horizontalpodautoscalers", None),
        ("/apis/autoscaling.k8s.io/v1/verticalpodautoscalers", None),
        ("/api/v1/pods/p", None),
        ("/api/v1/namespaces/shop/nodes/n1", None),
        ("/api/v1", None),
    ],
)
def test_paths(path: str, target: Target | None) -> None:
    """Paths name kind, namespace, object and subresource; whatever is not served names nothing."""
    assert parse_path(path) == target


def test_discovery_names_groups_and_resources() -> None:
    """A client sees which groups exist, and which resources and subresources they have."""
    groups = discovery("/apis")
    assert groups is not None
    names = [group["name"] for group in groups["groups"]]
    assert {"apps", "autoscaling", "policy", "metrics.k8s.io"} <= set(names)
    assert "autoscaling.k8s.io" not in names
    core = discovery("/api/v1")
    assert core is not None
    assert {"pods", "pods/eviction", "nodes"} <= {resource["name"] for resource in core["resources"]}
    assert discovery("/apis/autoscaling.k8s.io/v1") is None
