"""Drills on a real control plane: a broker full or lost, lists missing, no observer, clocks that differ, forgers."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from pathlib import Path

import msgspec
import pytest
from tests.controlplane.plane import ControlPlane
from tests.e2e.pipeline_run import CLUSTER
from tests.e2e.small import SPACE
from tests.e2e.struck import PATIENT, Scene, check, struck
from tests.pipeline.test_restore import Loss
from tests.support.forging import FORGERS, acceptance, forge
from tests.support.minors import LATER

from kinema_cli.local.pipeline import SERVICES
from kinema_cli.local.processes import Supervisor
from kinema_cli.local.settings import layered
from kinema_core.events import AbortRequested, ExecutionAborted, Plan
from kinema_core.runtime.bus import Damaged
from kinema_core.runtime.clock import SystemClock
from kinema_core.runtime.envelope import origin
from kinema_core.runtime.nats_connection import Connection
from kinema_core.runtime.setup import Layout, setup
from kinema_core.runtime.topology import STREAMS, kind_in

pytestmark = [pytest.mark.cluster, pytest.mark.faults]

FULL_SECONDS = 5.0
IDLE_SECONDS = 5.0
"""Within which a plan that waits for the end of another one would have begun."""
FORGED = "drill/forged"
NEXT_MINOR = ("-m", "tests.support.next_minor")
LIBRARY = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
"""Shows a process another time; its monotonic clock stays."""
BLIND = layered(PATIENT, {"rescheduler": {"max_state_age_seconds": 10.0, "limits": {"blind_seconds": 10.0}}})
"""The observer counts as away after seconds."""


async def lists_are_missing(scene: Scene) -> bool:
    """The observer lists pods and nodes again, and is answered that there is no such thing."""
    if not scene.did("taint"):
        return False
    if scene.once("refusals"):
        scene.proxy.refuse(r"/api/v1/(pods|nodes)\?(.*&)?watch=", 410, method="GET", count=2)
        scene.proxy.refuse(r"/api/v1/(pods|nodes)\?(?!(.*&)?watch=)", 404, method="GET", count=4)
        scene.proxy.cut(r"/api/v1/(pods|nodes)\?")
    return not scene.proxy.pending


async def test_missing_lists_cost_time_only(own_control_plane: ControlPlane, tmp_path: Path) -> None:
    """404 for pods and for nodes in the middle of a plan is not believed: no node seems empty, and the plan goes on."""
    outcome = await struck(own_control_plane, tmp_path / "run", lists_are_missing)
    check(outcome, alone=True)


async def bound(scene: Scene, *, full: bool) -> None:
    """Let states and log take nothing more, as on a full disk; or have room again."""
    connection = Connection("drill")
    await connection.open(scene.pipeline.runtime("admin"))
    try:
        for name in (STREAMS["STATE"], STREAMS["LOG"]):
            info = msgspec.json.decode(await connection.api(f"STREAM.INFO.{name}"))
            config = scene.notes.setdefault(name, info["config"])
            if full:
                config = {**config, "discard": "new", "max_bytes": info["state"]["bytes"]}
            answer = msgspec.json.decode(await connection.api(f"STREAM.UPDATE.{name}", config))
            assert "error" not in answer, answer
    finally:
        await connection.close()


async def broker_is_full(scene: Scene) -> bool:
    """Nothing can be stored in the middle of a surge; an operator makes room."""
    if not scene.did("surge-up"):
        return False
    await bound(scene, full=True)
    await asyncio.sleep(FULL_SECONDS)
    await bound(scene, full=False)
    return True


async def test_a_full_broker_costs_time_only(own_control_plane: ControlPlane, tmp_path: Path) -> None:
    """Services end with the reason, and go on where the log ends when there is room."""
    outcome = await struck(own_control_plane, tmp_path / "run", broker_is_full)
    check(outcome, alone=True)


async def streams_are_wiped(scene: Scene) -> bool:
    """The broker loses all that it holds in the middle of a plan, and there is no copy."""
    if not scene.did("taint"):
        return False
    pipeline = scene.pipeline
    await pipeline.supervisor.stop()
    await asyncio.to_thread(pipeline.server.stop)
    shutil.rmtree(pipeline.options.directory / "nats" / "data")
    await asyncio.to_thread(pipeline.server.start)
    await setup(pipeline.runtime("admin"), Layout(clusters=(CLUSTER,)))
    for name, replicas in (("web", 4), ("api", 3)):  # as the owner has it: nothing on it names a surge
        await scene.patch(f"/apis/apps/v1/namespaces/{SPACE}/deployments/{name}", {"spec": {"replicas": replicas}})
    pipeline.supervisor = Supervisor(list(pipeline.supervisor.children.values()))
    await pipeline.supervisor.start()
    return True


async def test_a_plan_whose_log_is_lost_leaves_nothing_behind(own_control_plane: ControlPlane, tmp_path: Path) -> None:
    """Its marks are removed by the Kinema with the new log, which then plans and reaches the goal."""
    outcome = await struck(own_control_plane, tmp_path / "run", streams_are_wiped)
    check(outcome)


@pytest.mark.parametrize("later", [False, True], ids=["at-once", "later"])
async def test_a_plan_goes_on_after_its_log_was_restored(
    own_control_plane: ControlPlane, tmp_path: Path, *, later: bool
) -> None:
    """A copy made in the middle of a plan takes the place of all streams, `later` after steps that it does not have.

    These are found done in the cluster; their changes have no intent in the log.
    """
    loss = Loss(tmp_path, later=later)

    async def streams_are_restored(scene: Scene) -> bool:
        return await loss.strike(scene.pipeline, scene.progress)

    outcome = await struck(own_control_plane, tmp_path / "run", streams_are_restored)
    check(outcome, alone=not later)


async def observer_dies_and_a_person_aborts(scene: Scene) -> bool:
    """The observer says nothing any more, and a person wants the plan to end."""
    if "observer" not in scene.notes:
        if not scene.did("surge-up"):
            return False
        process = scene.pipeline.supervisor.children["observer"].process
        assert process is not None
        scene.notes["observer"] = process.pid
        os.kill(process.pid, signal.SIGSTOP)
        body = AbortRequested(by="drill", reason="the observer does not answer")
        await scene.pipeline.bus.publish(
            origin(body, id_="drill/abort", cluster=CLUSTER, iteration="", now=SystemClock().now())
        )
    if not scene.progress.ended:
        return False
    os.kill(scene.notes["observer"], signal.SIGCONT)
    return True


async def test_an_abort_needs_no_observer(own_control_plane: ControlPlane, tmp_path: Path) -> None:
    """The plan ends, all nodes are open and all workloads are as their owners have them; booted nodes are named."""
    case = observer_dies_and_a_person_aborts
    outcome = await struck(own_control_plane, tmp_path / "run", case, settings=BLIND, goal=False)
    [end] = outcome.run.progress.ended.values()
    assert isinstance(end, ExecutionAborted)
    assert end.reason == "operator"
    assert all(left.startswith("boot/") for left in end.leftovers), end.leftovers
    assert outcome.auditor.flaws == []
    assert outcome.leftovers == []
    assert outcome.broken(alone=False) == []


def without_nodes(plan: Plan) -> Plan:
    """The plan, but it deletes every node."""
    nodes = tuple(msgspec.structs.replace(node, action="delete") for node in plan.nodes)
    return msgspec.structs.replace(plan, nodes=nodes, temporary=(), steps=(), by="drill")


async def acceptance_is_forged(scene: Scene) -> bool:
    """In the middle of a plan, all users of the broker but the decider accept another one, which deletes every node."""
    if not scene.did("surge-up"):
        return False
    bus = scene.pipeline.bus
    if scene.once("forged"):
        [*_, (cause, plan)] = scene.progress.accepted.items()
        now = SystemClock().now()
        proposal = origin(without_nodes(plan), id_=FORGED, cluster=CLUSTER, iteration="", now=now, cause=cause)
        await bus.publish(proposal)
        own = [await forge(scene.pipeline.runtime(user), acceptance(proposal, now)) for user in FORGERS]
        scene.notes["own"] = {subject for subjects in own for subject in subjects if kind_in(subject)}
    if not (scene.progress.ended and scene.later(IDLE_SECONDS)):
        return False
    scene.notes["stored"] = {item.subject async for item in bus.read("LOG") if isinstance(item, Damaged)}
    return True


async def test_a_forged_acceptance_begins_nothing(own_control_plane: ControlPlane, tmp_path: Path) -> None:
    """The broker refuses it where acceptances lie, and elsewhere it counts as damaged; the true plan goes on."""
    outcome = await struck(own_control_plane, tmp_path / "run", acceptance_is_forged)
    check(outcome, alone=True)
    assert outcome.notes["stored"] == outcome.notes["own"]
    assert {entry.kind for entry in outcome.run.history.log if entry.plan == FORGED} == {"plan-rejected"}


@pytest.mark.parametrize("first", [("observer", "optimizer"), ("predictor", "decider", "rescheduler")], ids="/".join)
async def test_an_upgrade_costs_time_only(
    own_control_plane: ControlPlane, tmp_path: Path, first: tuple[str, ...]
) -> None:
    """Services of this minor version and of the next one make a plan together; the others follow in its middle."""

    async def services_are_upgraded(scene: Scene) -> bool:
        begun = scene.did("taint")
        for service in SERVICES:
            child = scene.pipeline.supervisor.children[service]
            if (begun or service in first) and scene.once(service):
                _, *rest = child.arguments
                child.arguments = (*NEXT_MINOR, *rest)
                assert child.process is not None
                child.process.terminate()
        return begun

    outcome = await struck(own_control_plane, tmp_path / "run", services_are_upgraded)
    check(outcome, alone=True)
    bodies = [entry.body for entry in outcome.run.history.state]
    seen = [item for body in bodies for item in (*body.get("objects", ()), *body.get("upserts", ()))]
    assert LATER["kind"] in {item.get("of") for item in seen}


@pytest.mark.skipif(not LIBRARY, reason="no libfaketime: apt-get install libfaketime")
@pytest.mark.parametrize("service", ["observer", "decider", "rescheduler"])
@pytest.mark.parametrize("seconds", [90, -90])
async def test_a_clock_that_is_90_seconds_wrong_costs_time_only(
    own_control_plane: ControlPlane, tmp_path: Path, service: str, seconds: int
) -> None:
    """Ages, leases and deadlines that one service writes and another one reads bear wrong clocks."""

    async def clock_is_wrong(scene: Scene) -> bool:
        if scene.once("wrong"):
            child = scene.pipeline.supervisor.children[service]
            faked = {"FAKETIME": f"{seconds:+d}s", "FAKETIME_DONT_FAKE_MONOTONIC": "1", "LD_PRELOAD": str(LIBRARY[0])}
            child.environment = {**child.environment, **faked}
            assert child.process is not None
            child.process.kill()
        return True

    outcome = await struck(own_control_plane, tmp_path / "run", clock_is_wrong)
    # Times of changes cannot be compared with those of a rescheduler whose clock is wrong, nor ages of states at all.
    check(outcome, alone=service != "rescheduler", but={"decided_on_fresh_state"})
