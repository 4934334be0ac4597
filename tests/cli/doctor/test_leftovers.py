"""What a plan leaves on nodes when its Kinema ends, is removed, or is looked for: named, with what to do about it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.rescheduler.sim_world import SimWorld, sim_world
from tests.support.builders import NOW
from typer.testing import CliRunner

from kinema_cli.leftovers import NodeMarkers, format_moves, leftovers, moving
from kinema_cli.local.pipeline import LocalPipeline, PipelineOptions
from kinema_cli.local.up import _last_words
from kinema_cli.main import app
from kinema_cli.snapshot.live import objects_of
from kinema_cli.status.execution import Steps
from kinema_core.events import ExecutionCompleted, PlanAccepted, Step, StepStarted, StepSucceeded
from kinema_core.model.cluster import from_objects
from kinema_kubernetes.claim import PATH as LEASE
from kinema_kubernetes.claim import ClusterClaim
from kinema_kubernetes.client import connect
from kinema_kubernetes.objects import node_path, workload_path
from kinema_observer.adapters.source import RESOURCES
from kinema_rescheduler.names import DISRUPTED, PLAN, ROLLED
from kinema_sim.scenarios.registry import SCENARIOS

NODES = next(resource for resource in RESOURCES if resource.kind == "Node")


@dataclass
class HalfDone:
    """A cluster in which a plan has closed a node and labeled another one."""

    world: SimWorld
    kubeconfig: Path
    closed: str
    labeled: str


@pytest.fixture
async def half_done(tmp_path: Path) -> AsyncIterator[HalfDone]:
    """The smallest simulated cluster, with the marks of plan p-7."""
    async with sim_world(SCENARIOS["tiny"](0), tmp_path) as world:
        api = await connect(str(world.kubeconfig))
        first, second = sorted(node["metadata"]["name"] for node in await api.items("/api/v1/nodes"))[:2]
        taint = {"key": DISRUPTED, "value": "it-1", "effect": "NoSchedule"}
        going = {"labels": {DISRUPTED: "it-1"}, "annotations": {PLAN: "p-7"}}
        await api.patch(node_path(first), {"metadata": going, "spec": {"taints": [taint]}})
        await api.patch(node_path(second), {"metadata": {"annotations": {PLAN: "p-7"}}})
        await api.close()
        yield HalfDone(world, world.kubeconfig, first, second)


def ended(half_done: HalfDone, tmp_path: Path) -> LocalPipeline:
    """A pipeline whose services have ended, on the world's streams."""
    provider = {"kind": "sim", "url": half_done.world.url}
    options = PipelineOptions(
        directory=tmp_path / "up", cluster="sim", kubeconfig=half_done.kubeconfig, provider=provider
    )
    pipeline = LocalPipeline(options)
    pipeline._bus = half_done.world.bus
    return pipeline


async def test_up_that_ends_in_the_middle_of_a_plan_says_so(half_done: HalfDone, tmp_path: Path) -> None:
    """Which plan, which node stays closed, that the same command goes on, and how to give it up instead."""
    pipeline = ended(half_done, tmp_path)
    await half_done.world.publish(PlanAccepted(plan="p-7", version=1), "a1")
    said = await _last_words(pipeline, steers=True)
    assert said.startswith(f"ended in the middle of plan p-7: node {half_done.closed} stays tainted against new pods")
    assert f"`kinema up` with the same --out {tmp_path / 'up'} continues it" in said
    assert "`kinema abort`" in said
    assert "--no-placement-policy" not in said


async def test_up_that_ends_in_the_middle_of_moves_names_their_workloads(half_done: HalfDone, tmp_path: Path) -> None:
    """A surplus and a half rolled Deployment, as the cluster has them now; what has ended is not named."""
    api = await connect(str(half_done.kubeconfig))
    every = sorted(await api.items("/apis/apps/v1/deployments"), key=lambda one: str(one["metadata"]["name"]))
    names = [f"Deployment/{one['metadata']['namespace']}/{one['metadata']['name']}" for one in every]
    replicas = [int(one["spec"]["replicas"]) for one in every]
    await api.patch(workload_path(names[1]), {"metadata": {"annotations": {ROLLED: "{}"}}})
    await api.close()
    roll = Step(id=f"roll/{names[1]}/1", kind="roll", target=names[1])
    await half_done.world.publish(PlanAccepted(plan="p-7", version=1), "a1")
    for number, step in enumerate((surge_up(names[0], replicas[0]), surge_up(names[1], 9), roll)):
        await half_done.world.publish(begun(step), f"s{number}")
    said = await _last_words(ended(half_done, tmp_path), steers=True)
    surplus = f"{names[0]} has 1 replica too many ({replicas[0]}, its owner wants {replicas[0] - 1})"
    assert f"stays tainted against new pods ({DISRUPTED}:NoSchedule)" in said
    assert f"; {surplus}; {names[1]} is half rolled. `kinema up` with the same" in said
    gone = Step(id=f"finalize-rollout/{names[1]}/1", kind="finalize-rollout", target=names[1])
    await half_done.world.publish(begun(gone), "s3")
    await half_done.world.publish(StepSucceeded(plan="p-7", step=gone.id, fencing=1, outcome="done"), "d3")
    assert f"; {surplus}. `kinema up`" in await _last_words(ended(half_done, tmp_path), steers=True)


def surge_up(workload: str, replicas: int) -> Step:
    """A surge by one to so many replicas."""
    unit = f"surge-up/{workload}/1"
    return Step(id=unit, kind="surge-up", target=workload, replicas_from=replicas - 1, replicas_to=replicas)


def begun(step: Step) -> StepStarted:
    """The step is about to be tried."""
    return StepStarted(plan="p-7", step=step, fencing=1, deadline=NOW)


@pytest.mark.parametrize(
    ("settled", "goes_on"),
    [
        ({}, True),
        ({"surge-up/W/1": "done"}, True),
        ({"surge-up/W/1": "void"}, False),
        ({"surge-up/W/1": "done", "surge-down/W/1": "done"}, False),
        ({"surge-up/W/1": "done", "revert/W": "done"}, False),
    ],
)
def test_a_move_goes_on_until_its_end_or_its_way_back_was_made(settled: dict[str, str], goes_on: bool) -> None:
    """One whose outcome is unknown may have begun; an earlier one of the same workload says nothing."""
    made = {key: StepSucceeded(plan="p-7", step=key, fencing=1, outcome=outcome) for key, outcome in settled.items()}
    step = surge_up("W", 3)
    assert moving(Steps({step.id: step}, made, NOW)) == ((step,) if goes_on else ())


def test_many_workloads_are_counted() -> None:
    """Ten can be read."""
    assert format_moves([f"w{n}" for n in range(12)]).endswith("; w9; 2 more workloads in the middle of a move")


async def test_up_that_ends_after_a_plan_names_only_what_is_left(half_done: HalfDone, tmp_path: Path) -> None:
    """A plan that has ended is not half done; nodes that still carry marks are named all the same."""
    pipeline = ended(half_done, tmp_path)
    await half_done.world.publish(PlanAccepted(plan="p-7", version=1), "a1")
    await half_done.world.publish(ExecutionCompleted(plan="p-7", fencing=1), "f1")
    said = await _last_words(pipeline, steers=True)
    assert said.startswith(f"ended; node {half_done.closed} stays tainted")
    api = await connect(str(half_done.kubeconfig))
    clean = {"labels": {DISRUPTED: None}, "annotations": {PLAN: None}}
    for name in (half_done.closed, half_done.labeled):
        await api.patch(node_path(name), {"metadata": clean, "spec": {"taints": []}})
    await api.close()
    said = await _last_words(pipeline, steers=True)
    assert said.startswith("ended; the placement policy stays installed and has no effect without a running plan")
    assert "restarts, which managed clusters do not allow" in said
    assert await _last_words(pipeline, steers=False) == "ended"


async def test_who_takes_kinema_out_is_told_of_nodes_that_stay_marked(half_done: HalfDone) -> None:
    """The policy stays, and exit 4 says which nodes are not as before, with the command that makes them so."""
    command = ["setup", "--kubeconfig", str(half_done.kubeconfig), "--no-placement-policy"]
    off = await asyncio.to_thread(CliRunner().invoke, app, command)
    assert off.exit_code == 4
    assert off.stdout == "Lease kube-system/kinema: absent\nplacement policy: not removed\n"
    (said,) = off.stderr.splitlines()
    assert said.startswith(
        f"error: node {half_done.closed} stays tainted against new pods (kinema.io/disrupted:NoSchedule); "
        f"node {half_done.labeled} carries labels or annotations of a plan (kinema.io/…): start that Kinema again"
    )
    assert f"`kubectl taint nodes {half_done.closed} kinema.io/disrupted:NoSchedule- && kubectl label nodes" in said


async def test_the_doctor_tells_marks_that_nobody_will_take_off(half_done: HalfDone) -> None:
    """A warning while nobody holds the Lease, all well while somebody does, and no word where no node is marked."""
    api = await connect(str(half_done.kubeconfig), context="")
    nodes = from_objects(await objects_of(api, NODES)).nodes
    (alone,) = await leftovers(api, nodes)
    assert (alone.level, alone.message.partition(" (")[0]) == (
        "warn",
        f"node {half_done.closed} stays tainted against new pods",
    )
    assert "a plan is incomplete" in alone.message
    writing = await connect(str(half_done.kubeconfig))
    claim = ClusterClaim(writing, "me", process="it")
    await claim.take()
    (held,) = await leftovers(api, nodes)
    await writing.patch(LEASE, {"spec": {"renewTime": "2020-01-01T00:00:00.000000Z"}})
    (dead,) = await leftovers(api, nodes)
    await claim.release()
    (free,) = await leftovers(api, nodes)
    assert (held.level, dead.level, free.level) == ("ok", "warn", "warn")
    others = [node for node in nodes if node.name not in {half_done.closed, half_done.labeled}]
    assert await leftovers(api, others) == []
    await writing.close()
    await api.close()


def test_many_nodes_are_counted_and_all_of_them_cleaned() -> None:
    """Ten names can be read; the command has every one."""
    marks = NodeMarkers(tuple(f"n{number:02}" for number in range(12)), ())
    assert "n09 and 2 more stay tainted" in marks.text
    assert "n11" in marks.by_hand
