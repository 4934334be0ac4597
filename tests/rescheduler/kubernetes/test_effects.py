"""Single effects through the real adapters, and what they make of an API server or a cloud in trouble."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.rescheduler.effect_bench import WEB, Bench, settled_for

from kinema_cli.admin.setup import Steering, steer
from kinema_core.events import Step, StepKind
from kinema_core.model.catalog import offers_from
from kinema_kubernetes.errors import error_of
from kinema_kubernetes.objects import selector_text, workload_path
from kinema_rescheduler.errors import EffectError, NotFoundError, PermanentError, TransientError, effect_error
from kinema_rescheduler.kubernetes.cluster import Order
from kinema_rescheduler.kubernetes.fenced import connect
from kinema_rescheduler.kubernetes.writer import KubernetesWriter
from kinema_rescheduler.names import CHEAPEST, DELETION_COST, DISRUPTED, PLAN
from kinema_rescheduler.providers.sim import SimProvider
from kinema_sim.engine.kinds import CONFIG_MAP, HPA, PDB, POD


async def test_marks_come_and_go(bench: Bench) -> None:
    """A node to go gets label, taint and annotation; unmarking takes exactly these, a cordon and strangers stay."""
    uid = bench.uid(bench.node())
    await bench.api.patch(
        "/api/v1/nodes/tiny-1", {"spec": {"unschedulable": True, "taints": [{"key": "a", "effect": "NoSchedule"}]}}
    )
    before = bench.node()["spec"]
    made = await bench.perform("taint", "tiny-1", "taint/tiny-1", uid=uid)
    assert (made.outcome, made.figures) == ("done", {"cordoned": 1})
    marked = bench.node()
    assert marked["metadata"]["labels"][DISRUPTED] == "it-1"
    assert marked["metadata"]["annotations"][PLAN] == "plan-1"
    assert {taint["key"] for taint in marked["spec"]["taints"]} == {"a", DISRUPTED}
    assert (await bench.perform("taint", "tiny-1", "taint/tiny-1", uid=uid)).outcome == "adopted"
    assert (await bench.perform("untaint", "tiny-1", uid=uid)).outcome == "done"
    assert (await bench.perform("untaint", "tiny-1", uid=uid)).outcome == "adopted"
    cleared = bench.node()
    assert cleared["spec"] == before
    assert DISRUPTED not in cleared["metadata"]["labels"]
    assert PLAN not in cleared["metadata"].get("annotations", {})


async def test_another_node_of_that_name_is_not_touched(bench: Bench) -> None:
    """A node with another uid, or none, makes the step void."""
    assert (await bench.perform("taint", "tiny-1", "taint/tiny-1", uid="other")).outcome == "void"
    assert (await bench.perform("taint", "gone", "taint/gone", uid="other")).outcome == "void"
    assert DISRUPTED not in bench.node()["metadata"]["labels"]


async def test_steering_is_one_entry_in_one_config_map(bench: Bench) -> None:
    """Steering makes the ConfigMap where it is missing and changes only its own entry; all are taken away together."""
    assert (await bench.perform("clear-preferred-nodes", "", uid="")).outcome == "void"
    await bench.perform("prefer-nodes", uid="d-1", nodes=("n1", "n2"))
    await bench.perform("prefer-nodes", "StatefulSet/shop/db", uid="s-2", nodes=("n3",))
    assert (await bench.perform("prefer-nodes", "StatefulSet/shop/db", uid="s-2", nodes=("n3",))).outcome == "adopted"
    found = bench.world.sim.store.get(CONFIG_MAP, "kube-system", "kinema-steering")
    assert found is not None
    assert sorted(found["data"].values()) == ["n1,n2", "n3"]
    assert (await bench.perform("clear-preferred-nodes", "", uid="")).outcome == "done"
    found = bench.world.sim.store.get(CONFIG_MAP, "kube-system", "kinema-steering")
    assert found is not None
    assert not found.get("data")
    assert (await bench.perform("clear-preferred-nodes", "", uid="")).outcome == "adopted"


async def test_steering_can_be_switched_off(bench: Bench) -> None:
    """With the setting off nobody says where new pods shall go, and moves go on without."""
    step = Step(id="prefer-nodes/w/1", kind="prefer-nodes", target=WEB, uid="rs-1", nodes=("n1",))
    writer = KubernetesWriter(bench.api, steering=False)
    assert (await writer.perform(Order(step=step, plan="plan-1", iteration="it-1"))).outcome == "void"
    assert bench.world.sim.store.get(CONFIG_MAP, "kube-system", "kinema-steering") is None


async def test_a_server_without_admission_policies_is_told_of(bench: Bench) -> None:
    """Where Kubernetes has no such policies, setup says so and changes nothing."""
    told = await steer(Steering(bench.world.kubeconfig, on=True))
    assert "no admission policies" in told
    assert await steer(Steering(bench.world.kubeconfig, on=False)) == "placement policy: absent"


async def test_surge_up_is_refused_when_replicas_are_not_as_planned(bench: Bench) -> None:
    """Replicas that somebody changed since make the surge a `changed` failure without any effect."""
    victim = bench.uid(bench.pods()[0])
    fields: dict[str, Any] = {"pods": (victim,), "replicas_from": 5, "replicas_to": 6}
    with pytest.raises(PermanentError, match=r"^changed: "):
        await bench.perform("surge-up", **fields)
    assert DELETION_COST not in str(bench.pods())
    with pytest.raises(PermanentError, match="another object"):
        await bench.perform("surge-up", **{**fields, "uid": "other"})


async def test_surge_down_waits_for_ready_pods(bench: Bench) -> None:
    """The surplus is not given back while too few pods beside the victims are Ready."""
    bench.world.sim.kubelets.never_ready.add(("shop", "web"))
    victim = bench.uid(bench.pods()[0])
    await bench.perform("surge-up", pods=(victim,), replicas_from=3, replicas_to=4)
    marked = [pod for pod in bench.pods() if pod["metadata"].get("annotations", {}).get(DELETION_COST) == CHEAPEST]
    assert [bench.uid(pod) for pod in marked] == [victim]
    with pytest.raises(TransientError, match=r"^not-ready: "):
        await bench.perform("surge-down", pods=(victim,), replicas_from=4, replicas_to=3)
    assert bench.web()["spec"]["replicas"] == 4


async def test_a_pod_that_leaves_need_not_be_ready(bench: Bench) -> None:
    """Its containers died when the others were Ready; with a second pod that is not, none leaves."""
    victim, other, _ = bench.pods()
    fields: dict[str, Any] = {"pods": (bench.uid(victim),), "replicas_from": 4, "replicas_to": 3}
    await bench.perform("surge-up", pods=(bench.uid(victim),), replicas_from=3, replicas_to=4)
    await settled_for(bench, 60)
    bench.world.sim.kubelets.kill(victim, "Error")
    bench.world.sim.kubelets.never_ready.add(("shop", "web"))
    await settled_for(bench, 1)
    assert bench.web()["status"]["availableReplicas"] == 3
    bench.world.sim.kubelets.kill(other, "Error")
    await settled_for(bench, 1)
    with pytest.raises(TransientError, match="2 of 3 staying pods"):
        await bench.perform("surge-down", **fields)
    bench.world.sim.kubelets.release()
    await settled_for(bench, 60)
    bench.world.sim.kubelets.kill(victim, "Error")
    await settled_for(bench, 1)
    assert (await bench.perform("surge-down", **fields)).outcome == "done"


@pytest.mark.slow
async def test_successor_of_a_vanished_victim_leaves_in_its_place(bench: Bench) -> None:
    """A pod that should leave and is gone costs no other pod its place: the newest one goes."""
    gone, victim, staying = bench.pods()
    leaving = (bench.uid(gone), bench.uid(victim))
    await bench.perform("surge-up", pods=leaving, replicas_from=3, replicas_to=5)
    await settled_for(bench, 60)
    surged = {bench.uid(pod) for pod in bench.pods()} - {*leaving}
    bench.world.sim.api.delete(POD, "shop", gone["metadata"]["name"])
    await settled_for(bench, 60)
    fields: dict[str, Any] = {"pods": (leaving[1],), "replicas_from": 5, "replicas_to": 3}
    with pytest.raises(TransientError, match="leave instead"):
        await bench.perform("surge-down", **fields)
    assert (await bench.perform("surge-down", **fields)).outcome == "done"
    await settled_for(bench, 60)
    assert {bench.uid(pod) for pod in bench.pods()} == surged
    assert bench.uid(staying) in surged


@pytest.mark.slow
async def test_surge_down_waits_as_long_as_the_controller_does(bench: Bench) -> None:
    """With `minReadySeconds` a new pod counts once it has been Ready for so long, and not before."""
    await bench.api.patch(workload_path(WEB), {"spec": {"minReadySeconds": 30}})
    await settled_for(bench, 60)
    victim = bench.uid(bench.pods()[0])
    await bench.perform("surge-up", pods=(victim,), replicas_from=3, replicas_to=4)
    while bench.web()["status"]["readyReplicas"] < 4:
        await settled_for(bench, 1)
    assert bench.web()["status"]["availableReplicas"] == 3
    with pytest.raises(TransientError, match="3 of 4 for as long as it asks"):
        await bench.perform("surge-down", pods=(victim,), replicas_from=4, replicas_to=3)
    await settled_for(bench, 40)
    made = await bench.perform("surge-down", pods=(victim,), replicas_from=4, replicas_to=3)
    assert made.outcome == "done"


async def test_a_deletion_cost_that_somebody_else_set_stays(bench: Bench) -> None:
    """Taken back is only the cost that is still ours: what an owner wrote or removed meanwhile is the owner's."""
    ours, theirs, bare = (bench.uid(pod) for pod in bench.pods())
    path = "/api/v1/namespaces/shop/pods/"
    names = {bench.uid(pod): pod["metadata"]["name"] for pod in bench.pods()}
    for uid in (ours, theirs, bare):
        await bench.api.patch(path + names[uid], {"metadata": {"annotations": {DELETION_COST: "5"}}})
    await bench.perform("surge-up", pods=(ours, theirs, bare), replicas_from=3, replicas_to=6)
    await bench.api.patch(path + names[theirs], {"metadata": {"annotations": {DELETION_COST: "100"}}})
    await bench.api.patch(path + names[bare], {"metadata": {"annotations": {DELETION_COST: None}}})
    await bench.perform("revert")
    left = {bench.uid(pod): pod["metadata"].get("annotations", {}) for pod in bench.pods()}
    assert [left[uid].get(DELETION_COST) for uid in (ours, theirs, bare)] == ["5", "100", None]
    assert "kinema.io/" not in str([left[uid] for uid in (ours, theirs, bare)])


@pytest.mark.parametrize("others", [[{"manager": "helm", "operation": "Apply"}], []])
async def test_what_is_given_back_is_not_ours_any_more(bench: Bench, others: list[dict[str, str]]) -> None:
    """After a surge no field of the Deployment counts as ours: who applies another value meets no conflict."""
    entries = [{"manager": "kinema", "operation": "Update", "subresource": "scale"}, *others]
    await bench.api.patch("/apis/apps/v1/namespaces/shop/deployments/web", {"metadata": {"managedFields": entries}})
    await bench.perform("revert")
    assert bench.web()["metadata"]["managedFields"] == (others or [{}])


async def test_lost_reply_of_a_scale_is_no_second_surge(bench: Bench) -> None:
    """A scale that was done, but whose reply was lost, is found made by the next try."""
    await bench.fault(type="lose-reply", method="PATCH", path="/scale", count=1)
    victim = bench.uid(bench.pods()[0])
    fields: dict[str, Any] = {"pods": (victim,), "replicas_from": 3, "replicas_to": 4}
    with pytest.raises(TransientError, match=r"^unavailable: "):
        await bench.perform("surge-up", **fields)
    assert (await bench.perform("surge-up", **fields)).outcome == "adopted"
    assert bench.web()["spec"]["replicas"] == 4


async def test_a_scale_of_the_owners_is_no_surge_of_ours(bench: Bench) -> None:
    """Who scales to the very number of our surge before it has begun keeps that: taken for ours, it would be undone."""
    victim = bench.uid(bench.pods()[0])
    await bench.api.patch("/apis/apps/v1/namespaces/shop/deployments/web/scale", {"spec": {"replicas": 4}})
    with pytest.raises(PermanentError, match="another client scaled") as caught:
        await bench.perform("surge-up", pods=(victim,), replicas_from=3, replicas_to=4)
    assert caught.value.reason == "changed"
    assert bench.web()["spec"]["replicas"] == 4
    assert DELETION_COST not in str(bench.pods())


async def test_conflicts_are_read_again(bench: Bench) -> None:
    """Somebody who writes the node in between costs another look, not the step."""
    await bench.fault(type="api", method="PATCH", path="/nodes/tiny-1", status=409, count=2)
    made = await bench.perform("taint", "tiny-1", "taint/tiny-1", uid=bench.uid(bench.node()))
    assert (made.outcome, made.figures) == ("done", {"cordoned": 0})


@pytest.mark.parametrize(
    ("status", "error", "reason"),
    [
        (403, PermanentError, "denied"),
        (410, TransientError, "unavailable"),
        (429, TransientError, "throttled"),
        (500, TransientError, "unavailable"),
    ],
)
async def test_answers_of_the_server_become_our_errors(
    bench: Bench, status: int, error: type[EffectError], reason: str
) -> None:
    """A missing right is final; overload, outages and lists that the server forgot half-way pass."""
    await bench.fault(type="api", method="GET", path="/nodes/tiny-1", status=status, count=9)
    with pytest.raises(error, match=rf"^{reason}: "):
        await bench.perform("taint", "tiny-1", "taint/tiny-1", uid="x")


@pytest.mark.parametrize(
    ("status", "said", "reason"),
    [
        (403, 'admission webhook "policy.example.com" denied the request: no more than 3', "refused"),
        (400, 'admission webhook "policy.example.com" denied the request without explanation', "refused"),
        (422, "ValidatingAdmissionPolicy 'most' with binding 'all' denied request: no more than 3", "refused"),
        (403, 'deployments.apps "web" is forbidden: User "me" cannot patch resource "deployments/scale"', "denied"),
        (422, 'Deployment.apps "web" is invalid: spec.replicas: Invalid value', "refused"),
    ],
)
def test_what_an_admission_rule_forbids_is_no_missing_right(status: int, said: str, reason: str) -> None:
    """Whichever status a webhook or policy chose, its word is told from that of roles and of validation."""
    error = effect_error(error_of("PATCH /scale", status, msgspec.json.encode({"message": said}), {}))
    assert isinstance(error, PermanentError)
    assert error.reason == reason
    assert said in error.detail


@pytest.mark.parametrize("told", [{}, {"message": "404 page not found"}, {"kind": "Status", "reason": "Unknown"}])
def test_a_404_means_gone_only_with_a_status_that_says_so(told: dict[str, str]) -> None:
    """A proxy or load balancer in front answers so, too: nothing is known of the object, and it is asked for again."""
    error = effect_error(error_of("GET /api/v1/nodes/n", 404, msgspec.json.encode(told), {}))
    assert isinstance(error, TransientError)
    assert error.reason == "unavailable"
    gone = error_of("GET /api/v1/nodes/n", 404, b'{"kind": "Status", "reason": "NotFound"}', {})
    assert isinstance(effect_error(gone), NotFoundError)


@pytest.mark.parametrize("kind", ["untaint", "revert"])
async def test_a_404_of_a_load_balancer_takes_nothing_back_by_itself(bench: Bench, kind: StepKind) -> None:
    """Taking a taint off or a surge back is not done because whatever stands in front answers 404."""
    await bench.fault(type="api", method="GET", path="/(nodes|deployments)/", status=404, count=9)
    target, uid = ("tiny-1", bench.uid(bench.node())) if kind == "untaint" else (WEB, bench.uid(bench.web()))
    with pytest.raises(TransientError, match=r"^unavailable: "):
        await bench.perform(kind, target, uid=uid)


async def test_unreachable_server_is_a_passing_error(bench: Bench) -> None:
    """No connection is no refusal."""
    api = await connect(str(bench.world.kubeconfig), timeout_seconds=0.5)
    api.client._access = replace(api.client._access, server="http://127.0.0.1:9")
    with pytest.raises(TransientError, match=r"^unavailable: "):
        await api.get("/version")
    await api.close()


async def test_eviction_asks_the_budget_and_means_one_pod(bench: Bench) -> None:
    """A budget's refusal passes; a pod that is gone is done with; another pod of its name is not evicted."""
    victim = bench.uid(bench.pods()[0])
    made = await bench.perform("evict", pods=(victim,))
    assert made.outcome == "done"
    with pytest.raises(TransientError) as caught:
        await bench.perform("evict", pods=(bench.uid(bench.pods()[-1]),))
    assert caught.value.reason in {"budget", "not-ready"}
    assert (await bench.perform("evict", pods=("not-there",))).outcome == "adopted"


async def test_conflict_is_no_eviction_while_the_pod_is_there(bench: Bench) -> None:
    """A conflict that is not about the pod's identity passes: the pod is still there and will be asked for again."""
    fields: dict[str, Any] = {"pods": (bench.uid(bench.pods()[0]),)}
    await bench.fault(type="api", method="POST", path="/eviction", status=409, count=1)
    with pytest.raises(TransientError, match=r"^conflict: "):
        await bench.perform("evict", **fields)
    assert (await bench.perform("evict", **fields)).outcome == "done"


async def test_two_budgets_on_a_pod_are_final(bench: Bench) -> None:
    """The API server refuses pods under two budgets for ever: trying again is no use."""
    first = bench.world.sim.store.sorted(PDB, "shop")[0]
    second = msgspec.json.decode(msgspec.json.encode(first))
    second["metadata"] = {"name": "second", "namespace": "shop"}
    bench.world.sim.store.create(PDB, second)
    with pytest.raises(PermanentError, match=r"^budget: "):
        await bench.perform("evict", pods=(bench.uid(bench.pods()[0]),))


async def test_node_with_pods_is_not_deleted(bench: Bench) -> None:
    """A node must be the one that was meant, carry our marks and be empty; gone it is fine."""
    busy = next(pod["spec"]["nodeName"] for pod in bench.pods())
    uid = bench.uid(bench.node(busy))
    order = Order(step=Step(id="d", kind="delete", target=busy, uid=uid), plan="plan-1", iteration="it-1")
    with pytest.raises(PermanentError, match=r"^changed: "):
        await bench.writer.check_deletable(order)
    await bench.perform("taint", busy, f"taint/{busy}", uid=uid)
    with pytest.raises(TransientError, match=r"^not-empty: "):
        await bench.writer.check_deletable(order)
    other = Order(step=Step(id="d", kind="delete", target=busy, uid="before"), plan="plan-1", iteration="it-1")
    with pytest.raises(PermanentError, match="another node") as refused:
        await bench.writer.check_deletable(other)
    assert refused.value.reason == "changed"
    unseen = Order(step=Step(id="d", kind="delete", target=busy), plan="plan-1", iteration="it-1")
    with pytest.raises(TransientError, match=r"^not-ready: "):
        await bench.writer.check_deletable(unseen)
    gone = Order(step=Step(id="d", kind="delete", target="gone", uid="x"), plan="plan-1", iteration="it-1")
    assert await bench.writer.check_deletable(gone) is False


def scaler(bench: Bench) -> None:
    """Make an autoscaler of web that wants two or three pods."""
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    spec = {"scaleTargetRef": target, "minReplicas": 2, "maxReplicas": 3, "metrics": []}
    bench.world.sim.store.create(HPA, {"metadata": {"name": "web", "namespace": "shop"}, "spec": spec})


async def test_autoscaler_is_held_for_the_surge_only(bench: Bench) -> None:
    """A surge raises the autoscaler's limits, also its most; the end of the surge gives its own limits back."""
    scaler(bench)

    def limits() -> tuple[int, int]:
        found = bench.world.sim.store.get(HPA, "shop", "web")
        assert found is not None
        return found["spec"]["minReplicas"], found["spec"]["maxReplicas"]

    victim = bench.uid(bench.pods()[0])
    await bench.perform("surge-up", pods=(victim,), replicas_from=3, replicas_to=4)
    assert limits() == (4, 4)
    await bench.perform("revert", replicas_from=4, replicas_to=3)
    assert limits() == (2, 3)
    found = bench.world.sim.store.get(HPA, "shop", "web")
    assert found is not None
    assert "kinema" not in str(found["metadata"].get("annotations"))
    assert bench.web()["spec"]["replicas"] == 3


@pytest.mark.slow
async def test_the_controller_sees_deletion_costs_before_it_chooses_by_them(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When a surge is taken back, its new pods have the least deletion cost for a while before the replicas fall."""
    victim = bench.uid(bench.pods()[0])
    before = {bench.uid(pod) for pod in bench.pods()}
    await bench.perform("surge-up", pods=(victim,), replicas_from=3, replicas_to=4)
    await settled_for(bench, 60)
    [surplus] = {bench.uid(pod) for pod in bench.pods()} - before
    pauses: list[tuple[int, set[str]]] = []

    async def pause(_: float) -> None:
        marks = {bench.uid(pod): pod["metadata"].get("annotations") or {} for pod in bench.pods()}
        cheap = {key for key, annotations in marks.items() if annotations.get(DELETION_COST) == CHEAPEST}
        pauses.append((bench.web()["spec"]["replicas"], cheap))

    monkeypatch.setattr(bench.api, "pause", pause)
    await bench.perform("revert", pods=(surplus,), replicas_from=4, replicas_to=3)
    assert pauses[0] == (4, {surplus})


@pytest.mark.parametrize(
    ("theirs", "expected"),
    [({"maxReplicas": 9}, (2, 9)), ({"minReplicas": 3}, (3, 3)), ({"minReplicas": 5, "maxReplicas": 7}, (5, 7))],
)
async def test_limits_that_somebody_else_set_stay(
    bench: Bench, theirs: dict[str, int], expected: tuple[int, int]
) -> None:
    """What an operator sets on an autoscaler during a surge stays; only the limit that is still ours goes back."""
    scaler(bench)
    victim = bench.uid(bench.pods()[0])
    await bench.perform("surge-up", pods=(victim,), replicas_from=3, replicas_to=4)
    path = "/apis/autoscaling/v2/namespaces/shop/horizontalpodautoscalers/web"
    await bench.api.patch(path, {"spec": theirs})
    await bench.perform("revert", replicas_from=4, replicas_to=3)
    found = bench.world.sim.store.get(HPA, "shop", "web")
    assert found is not None
    assert (found["spec"]["minReplicas"], found["spec"]["maxReplicas"]) == expected
    assert "kinema" not in str(found["metadata"].get("annotations"))


async def test_provider_sells_boots_and_deletes(bench: Bench) -> None:
    """Offers come with prices and their date; the same operation twice is one machine; unknown names are refused."""
    catalog = await bench.provider.catalog()
    offers = offers_from(catalog.rows, bench.world.cluster())
    assert catalog.priced is not None
    assert len({offer.name for offer in offers}) == len(offers) > 0
    offer = next(item for item in offers if item.machine_type == "e2-standard-2")
    first = await bench.provider.boot("k1", offer, "op-1")
    again = await bench.provider.boot("k1", offer, "op-1")
    other = await bench.provider.boot("k1", offer, "op-2")
    assert (first.state, again.state, other.state) == ("running", "running", "running")
    assert (await bench.provider.nodes()).count("k1") == 1
    with pytest.raises(PermanentError, match=r"^not-found: "):
        await bench.provider.delete("nobody", "op-3")
    assert (await bench.provider.delete("k1", "op-4")).node == "k1"


@pytest.mark.parametrize(
    ("fault", "reason"),
    [({"type": "cloud-permission"}, "permission"), ({"type": "cloud-quota", "vcpus": 1}, "quota")],
)
async def test_refusals_of_the_cloud_are_classified(bench: Bench, fault: dict[str, Any], reason: str) -> None:
    """Permission and quota are final, with the cloud's own words."""
    offers = offers_from((await bench.provider.catalog()).rows, bench.world.cluster())
    await bench.fault(**fault)
    with pytest.raises(PermanentError) as caught:
        await bench.provider.boot("k1", offers[0], "op-1")
    assert caught.value.reason == reason
    assert caught.value.detail


async def test_cloud_out_of_reach_passes() -> None:
    """No connection to the cloud is no refusal."""
    provider = SimProvider("http://127.0.0.1:9", timeout_seconds=0.5)
    with pytest.raises(TransientError, match=r"^unavailable: "):
        await provider.catalog()
    await provider.close()


async def test_unusable_kubeconfig_is_one_clear_error(tmp_path: Path) -> None:
    """A missing or damaged kubeconfig is named, in one line."""
    damaged = tmp_path / "damaged"
    damaged.write_text("clusters: {")
    with pytest.raises(PermanentError, match=r"^[^\n]*damaged: line 2, column 1: [^\n]*$"):
        await connect(str(damaged))
    with pytest.raises(PermanentError, match="nowhere"):
        await connect(str(tmp_path / "nowhere"))
    with pytest.raises(PermanentError, match="service account"):
        await connect("")


def test_selectors_are_written_as_queries() -> None:
    """Labels and every kind of expression; a replication controller's plain map too."""
    expressions = [
        {"key": "tier", "operator": "In", "values": ["a", "b"]},
        {"key": "x", "operator": "NotIn", "values": ["c"]},
        {"key": "y", "operator": "Exists"},
        {"key": "z", "operator": "DoesNotExist"},
    ]
    workload = {"spec": {"selector": {"matchLabels": {"app": "web"}, "matchExpressions": expressions}}}
    assert selector_text(workload) == "app=web,tier in (a,b),x notin (c),y,!z"
    assert selector_text({"spec": {"selector": {"b": "2", "a": "1"}}}) == "a=1,b=2"
