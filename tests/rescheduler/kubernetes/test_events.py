"""What people find on their nodes, workloads and pending pods."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs
from tests.rescheduler.effect_bench import Bench
from tests.rescheduler.sim_world import sim_world
from tests.support.builders import cluster, deployed, offers, tiny
from tests.support.plans import plan_for

from kinema_core.events import (
    Event,
    ExecutionAborted,
    ExecutionCompleted,
    FrozenMap,
    Offer,
    Plan,
    Resize,
    Step,
    StepFailed,
    StepStarted,
    StepSucceeded,
)
from kinema_core.model.cluster import Cluster
from kinema_core.runtime.envelope import origin
from kinema_rescheduler.kubernetes.events import Background, KubernetesEvents
from kinema_rescheduler.plan.limits import Limits
from kinema_sim.cluster import Cluster as SimCluster
from kinema_sim.engine.kinds import DEPLOYMENT, EVENT
from kinema_sim.scenarios.registry import SCENARIOS

NOW = datetime(2026, 3, 2, 12, 0, 0, 123456, tzinfo=UTC)
WEB = Step(
    id="surge-up/Deployment/shop/web/1",
    kind="surge-up",
    target="Deployment/shop/web",
    uid="u1",
    pods=("p1", "p2"),
    nodes=("n1", "n2"),
    replicas_from=3,
    replicas_to=5,
)


def _event(body: StepSucceeded | StepFailed) -> Any:
    return origin(body, id_="e", cluster="c", iteration="it-7", now=NOW)


def _failed(reason: str, step: str = WEB.id) -> StepFailed:
    return StepFailed(plan="plan-1", step=step, fencing=1, reason=reason, detail="because", retry=True)


async def _report(bench: Bench, *reports: tuple[Any, ...], reporter: str = "test") -> list[Any]:
    """Report events as one process; gives what the API server has then."""
    events = KubernetesEvents(bench.api, reporter)
    for arguments in reports:
        events.report(*arguments)
    assert set(await asyncio.gather(*events._open)) <= {None}
    return bench.world.sim.store.sorted(EVENT)


def _unreachable(bench: Bench) -> None:
    """Let requests go where nothing answers."""
    client = bench.api.client
    client._access = dataclasses.replace(client._access, server="http://127.0.0.1:9")


async def test_a_whole_plan_tells_its_story(tmp_path: Path) -> None:
    """Nodes say that they are given back and deleted, workloads that their pods move; each names iteration and plan."""

    def onto_the_first(cluster: Cluster, offers: tuple[Offer, ...]) -> Plan:
        to = {pod.key: "tiny-1" for pod in cluster.pods}
        return plan_for(cluster, offers, to=to, delete=["tiny-2", "tiny-3"])

    async with sim_world(SCENARIOS["tiny"](0), tmp_path) as world:
        await world.carry_out(onto_the_first)
        told = world.sim.store.sorted(EVENT)
        about = {(item["regarding"]["kind"], item["regarding"]["name"], item["reason"]) for item in told}
        assert {("Node", "tiny-2", "Draining"), ("Node", "tiny-2", "Deleted")} <= about
        assert {("Deployment", "web", "Surging"), ("Deployment", "web", "Surged")} <= about
        assert not [name for _, name, _ in about if name == "tiny-1"], "a node that stays is not written to"
        assert all("iteration it-1, plan plan-1" in item["note"] for item in told)
        assert all(item["type"] == "Normal" for item in told)


@pytest.mark.slow
async def test_a_roll_that_is_taken_back_is_not_told_as_made(tmp_path: Path) -> None:
    """After the warning, what was begun is said to be as before, and nothing says that it was carried out."""

    def resized(cluster: Cluster, offers: tuple[Offer, ...]) -> Plan:
        resizes = {"Deployment/shop/web": {"cpu": 150}}
        return plan_for(cluster, offers, to={pod.key: "tiny-1" for pod in cluster.pods}, resizes=resizes)

    sim = SCENARIOS["tiny"](0)
    async with sim_world(sim, tmp_path) as world:
        sim.kubelets.never_ready.add(("shop", "web"))
        end = await world.carry_out(resized, limits=Limits(roll_seconds=30))
        await asyncio.sleep(0.1)
        told = [item for item in sim.store.sorted(EVENT) if item["regarding"]["name"] == "web"]
    assert isinstance(end, ExecutionCompleted)
    assert end.figures["workloads_skipped"] == 1, "the plan goes on without it"
    notes = {item["reason"]: item["note"].partition(" (iteration")[0] for item in told}
    assert notes.pop("DisruptionBlocked").startswith("roll-stuck: 1 of 3 pods are new; not Ready: shop/web-")
    assert notes == {
        "Rolling": "a rolling update moves its pods; each requests cpu 200m → 150m from now on, "
        "as forecast from its usage",
        "Reverted": "the changes of an unfinished move were reverted; later changes by other clients stay",
        "Rolled": "the rolling update is complete; the owner's update strategy is in force again",
    }


@pytest.mark.parametrize(
    ("owners", "expected"),
    [
        (None, "an unfinished move was reverted: 3 replicas again instead of 4"),
        (5, "5 replicas stay, as another client set them: an unfinished move had set 4 instead of 3"),
    ],
)
async def test_replicas_that_their_owner_sets_are_not_told_as_of_before(
    bench: Bench, owners: int | None, expected: str
) -> None:
    """A surge that is taken back says how many replicas there are now, and whose they are."""
    await bench.perform("surge-up", pods=(bench.uid(bench.pods()[0]),), replicas_from=3, replicas_to=4)
    if owners is not None:
        bench.world.sim.store.edit(DEPLOYMENT, ("shop", "web"), lambda one: one["spec"].update(replicas=owners))
    made = await bench.perform("revert", replicas_from=4, replicas_to=3)
    uid = bench.uid(bench.web())
    step = Step(id="revert/web", kind="revert", target=WEB.target, uid=uid, replicas_from=4, replicas_to=3)
    done = StepSucceeded(plan="plan-1", step=step.id, fencing=1, outcome=made.outcome, figures=made.figures)
    (found,) = await _report(bench, (_event(done), step))
    assert found["note"].partition(" (iteration")[0] == expected


async def test_the_api_servers_form_is_kept(bench: Bench) -> None:
    """Microseconds, a qualified reporter, an instance, notes within the limit, and the namespace of the object."""
    done = StepSucceeded(plan="p" * 2000, step=WEB.id, fencing=1, outcome="done")
    (found,) = await _report(bench, (_event(done), WEB), reporter="x" * 200)
    assert found["metadata"]["namespace"] == "shop"
    assert found["eventTime"] == "2026-03-02T12:00:00.123456Z"
    assert found["reportingController"] == "kinema.io/rescheduler"
    assert (len(found["reportingInstance"]), len(found["note"].encode())) == (128, 1024)
    assert found["regarding"] == {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "namespace": "shop",
        "name": "web",
        "uid": "u1",
    }
    assert "scaled up by 2 pods (3 → 5 replicas) to move as many to n1, n2" in found["note"]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (
            {"cpu": 270, "memory": 230 * 2**20},
            {"cpu": 243, "memory": 217432720},
            "; each requests cpu 270m → 243m, memory 230Mi → 207Mi from now on, as forecast from its usage",
        ),
        (
            {"cpu": 1500, "memory": 217432720},
            {"memory": 217432721},
            "; each requests memory 217432720 → 217432721 from now on, as forecast from its usage",
        ),
        (None, {"cpu": 360}, "; each requests cpu 360m from now on, as forecast from its usage"),
        ({}, {}, ""),
    ],
)
async def test_a_roll_tells_old_and_new_requests(
    bench: Bench, before: dict[str, int] | None, after: dict[str, int], expected: str
) -> None:
    """As people write them, rounded where that hides nothing; old ones only where the plan is known, else none."""
    step = Step(id="roll/Deployment/shop/web", kind="roll", target=WEB.target, uid="u1", requests=FrozenMap(after))
    resize = Resize(workload=WEB.target, requests_before=FrozenMap(before or {}), requests_after=FrozenMap(after))
    plan = replace(plan_for(tiny(), offers()), resizes=(resize,)) if before is not None else None
    done = StepSucceeded(plan="plan-1", step=step.id, fencing=1, outcome="done")
    (found,) = await _report(bench, (_event(done), step, Background(plan)))
    assert found["note"].partition(" (iteration")[0] == f"a rolling update moves its pods{expected}"


@pytest.mark.slow
@pytest.mark.parametrize("crash_at", ["", "rescheduler.evict.effected"])
async def test_an_eviction_names_pod_and_node(tmp_path: Path, crash_at: str) -> None:
    """Also where another process finds the pod gone: who evicted it, it does not say."""
    sim = SCENARIOS["strategies"](0)
    evicted: dict[str, str | None] = {}

    def emptied(cluster: Cluster, offers: tuple[Offer, ...]) -> Plan:
        (victim,) = [pod for pod in cluster.pods if pod.key == "shop/store-0"]
        (other,) = [pod for pod in cluster.pods if pod.key == "shop/store-1"]
        evicted.update(source=victim.node, to=other.node)
        to = {pod.key: str(other.node) for pod in cluster.pods if pod.node == victim.node}
        return plan_for(cluster, offers, to=to, delete=[str(victim.node)])

    async with sim_world(sim, tmp_path) as world:
        await world.carry_out(emptied, crash_at=crash_at)
        told = [item for item in sim.store.sorted(EVENT) if item["reason"] == "Evicted"]
    if crash_at:
        expected = "pod store-0 is gone from node {source}: it left before it was evicted"
    else:
        expected = (
            "pod store-0 was evicted from node {source}, which will be deleted; its successor is to come up on {to}"
        )
    assert [item["note"].partition(" (iteration")[0] for item in told] == [expected.format(**evicted)]


def _crowded() -> tuple[SimCluster, Callable[[Cluster, tuple[Offer, ...]], Plan]]:
    """A cluster too small for its pods, and a plan that boots a node for all of those that wait but the last."""
    sim = SCENARIOS["tiny"](0)
    sim.store.edit(DEPLOYMENT, ("shop", "api"), lambda api: api["spec"].update(replicas=25))
    sim.run_for(30)

    def plan(cluster: Cluster, offers: tuple[Offer, ...]) -> Plan:
        *placed, left = [pod.key for pod in cluster.pods if pod.node is None]
        offer = next(item for item in offers if (item.machine_type, item.zone) == ("e2-standard-4", "europe-west3-a"))
        return plan_for(
            cluster,
            offers,
            to=dict.fromkeys(placed, "kinema-1"),
            boot={"kinema-1": offer.name},
            unplaced={left: "no-room"},
            mode="autoscale",
        )

    return sim, plan


def _of_pods(sim: SimCluster) -> dict[tuple[str, str], set[tuple[str, str]]]:
    """What pods were told (reason and note), with their names and uids."""
    found: dict[tuple[str, str], set[tuple[str, str]]] = {}
    for item in sim.store.sorted(EVENT):
        about = item["regarding"]
        if about["kind"] == "Pod":
            told = item["reason"], item["note"].partition(" (iteration")[0]
            found.setdefault(told, set()).add((about["name"], about["uid"]))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("sold_out", [False, True])
async def test_pods_that_wait_hear_of_the_node_that_is_booted_for_them(tmp_path: Path, *, sold_out: bool) -> None:
    """Each that the plan puts there, and no other; and that it does not come, if it does not."""
    sim, plan = _crowded()
    waiting: set[tuple[str, str]] = set()
    async with sim_world(sim, tmp_path) as world:
        if sold_out:
            sim.cloud.sold_out.update(name for name in sim.cloud.offers if name.startswith("e2-standard-4/"))

        def made(cluster: Cluster, offers: tuple[Offer, ...]) -> Plan:
            found = plan(cluster, offers)
            waiting.update(
                (place.pod.removeprefix("shop/"), place.uid) for place in found.placements if not place.source
            )
            return found

        end = await world.carry_out(made)
        told = _of_pods(sim)
    assert waiting
    assert isinstance(end, ExecutionAborted if sold_out else ExecutionCompleted), world.failures()
    booting = ("WaitingForNode", "node kinema-1 (e2-standard-4 in europe-west3-a) is being booted for it")
    assert told.pop(booting) == waiting
    assert [(reason, note[:48]) for reason, note in told] == (
        [("DisruptionBlocked", "node kinema-1 was not booted for it: stock-out: ")] if sold_out else []
    )
    assert all(pods == waiting for pods in told.values())


def _many() -> tuple[Event, Background]:
    """The intent to boot a node, for which 150 pods wait."""
    before = cluster(deployed("web", [None] * 150))
    to = {pod.key: "kinema-1" for pod in before.pods}
    plan = plan_for(before, offers(), to=to, boot={"kinema-1": "m2/a/on-demand"}, mode="autoscale")
    boot = Step(id="boot/kinema-1", kind="boot", target="kinema-1", offer="m2/a/on-demand")
    intent = StepStarted(plan="plan-1", step=boot, fencing=1, deadline=NOW)
    return origin(intent, id_="e", cluster="c", iteration="it-7", now=NOW), Background(plan, before)


async def test_no_more_than_a_hundred_pods_are_told_of_one_node(bench: Bench) -> None:
    """One after the other, and nothing waits for it."""
    event, background = _many()
    events = KubernetesEvents(bench.api, "many")
    events.report(event, None, background)
    assert (len(events._open), bench.world.sim.store.sorted(EVENT)) == (1, [])
    await asyncio.gather(*events._open)
    (told,) = _of_pods(bench.world.sim).values()
    names = sorted(pod.name for pod in background.cluster.pods) if background.cluster is not None else []
    assert sorted(name for name, _ in told) == names[:100]


async def test_a_server_that_does_not_answer_is_not_asked_for_each_pod(bench: Bench) -> None:
    """The others of the same step are dropped with the first, without an exception."""
    event, background = _many()
    _unreachable(bench)
    with capture_logs() as logs:
        await _report(bench, (event, None, background))
    assert [(line["reason"], line["left"]) for line in logs] == [("many", 50), ("unavailable", 99)]


async def test_nothing_is_told_twice(bench: Bench) -> None:
    """The same failure of a step, met again and again, is one warning; another reason is another one."""
    for reason in ("budget", "budget", "not-ready"):  # by a process each, as after a restart
        found = await _report(bench, (_event(_failed(reason)), WEB))
    assert sorted(item["note"].partition(":")[0] for item in found) == ["budget", "not-ready"]
    assert {item["type"] for item in found} == {"Warning"}


async def test_verdicts_are_told_where_they_count(bench: Bench) -> None:
    """A skipped workload and a kept node carry a warning, with the uid that `kubectl describe` needs; an abort none."""
    steps = ("skip/Deployment/shop/web", "keep/tiny-1", "abort")
    found = await _report(bench, *((_event(_failed("held", step)), None) for step in steps))
    about = [item["regarding"] for item in found]
    assert sorted((item["kind"], item["name"], item["uid"]) for item in about) == [
        ("Deployment", "web", bench.uid(bench.web())),
        ("Node", "tiny-1", "tiny-1"),
    ]
