"""The umbrella chart, installed by Helm into a real control plane, with pods that run: until a plan is carried out.

The engine runs their images with the settings, Secrets, tokens and limits of their pods as the API server has them. The
workloads that are moved are pretended by KWOK.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pytest
from tests.charts.helm import CHARTS
from tests.charts.installed import (
    CLUSTER,
    IMAGES,
    LOOK_SECONDS,
    SERVICES,
    SPACE,
    Installed,
    engine_node,
    operator_bus,
    writable,
)
from tests.charts.kubelet import NODE, PINNED
from tests.e2e.auditor import Auditor
from tests.e2e.pipeline_run import SECONDS, SETTINGS, Run, catalog, cost
from tests.e2e.small import OLD_NODES
from tests.history.checker import violations
from tests.history.record import recorded
from tests.support.engine import docker

from kinema_cli.local.demo import Progress
from kinema_cli.replay.recording import record_to
from kinema_core.events import ExecutionCompleted, ForecastMade, PlanApprovalRequested
from kinema_core.runtime.bus import Stored

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.containers, pytest.mark.cluster]

RESULT: Final = Path("out/pods/result.json")
"""Figures of the last run, for people."""
CONTAINERS: Final = (*SERVICES, "nats")
WORKERS: Final = 2
"""That share the optimizer's search; one is killed."""


def values(folder: Path) -> dict[str, Any]:
    """Values of the umbrella: images of this machine, and plans that wait for approval."""
    parts: dict[str, Any] = {name: {**PINNED, "image": IMAGES} for name in (*SERVICES, "setup")}
    parts["nats"] = {**PINNED, "image": {**IMAGES, "repository": "kinema-nats"}}
    for service in ("observer", "optimizer"):
        parts[service]["settings"] = SETTINGS[service]
    parts["optimizer"]["workers"] = {"replicas": WORKERS}
    parts["decider"]["settings"] = {"limits": {"approval": "required", "cooldown_seconds": 5.0}}
    parts["rescheduler"]["settings"] = {"provider": {"kind": "kwok", "boot_seconds": 3.0}}
    parts["rescheduler"]["catalog"] = catalog(folder).read_text()
    return {"global": {"kinema": {"cluster": CLUSTER, "image": IMAGES}}, "enabled": {"nats": True}, **parts}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """A release of all that the umbrella has."""
    folder = tmp_path_factory.mktemp("pods")
    with engine_node(folder) as made:
        made.did("install", "kinema", str(CHARTS / "kinema"), "--wait", "--timeout=5m", values=values(folder))
        yield made


@dataclass(frozen=True)
class Outcome:
    """One plan, approved and carried out."""

    run: Run
    auditor: Auditor
    nodes: tuple[set[str], set[str]]
    """Names of all nodes, before and after."""
    usd_per_hour: tuple[float, float]
    leftovers: list[str]
    restarts: dict[str, int]
    """Of each container before: services end, and are started again, until the broker is prepared."""
    killed: str
    """The container of the worker that was killed."""


@pytest.fixture(scope="module")
def outcome(installed: Installed, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """The run that the tests of this module look at."""
    folder = tmp_path_factory.mktemp("outcome")
    began = time.monotonic()
    restarts = {name: installed.container(name).restarts for name in CONTAINERS}
    auditor = Auditor(installed.admin)
    with auditor.watching():
        progress, recording, killed = asyncio.run(carried_out(installed, auditor, folder))
        found = Outcome(
            run=Run(progress, True, time.monotonic() - began, recording),
            auditor=auditor,
            nodes=(set(auditor.before["Node"]), set(auditor.now["Node"])),
            usd_per_hour=(
                cost(auditor.before["Node"].values(), folder),
                cost(auditor.now["Node"].values(), folder),
            ),
            leftovers=[left for left in auditor.leftovers() if NODE not in left],
            restarts=restarts,
            killed=killed,
        )
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    RESULT.write_text(json.dumps(figures(installed, found), indent=2) + "\n")
    return found


async def carried_out(installed: Installed, auditor: Auditor, folder: Path) -> tuple[Progress, Path, str]:
    """Approve the first plan that saves, and follow it until nothing is left to do.

    A worker is killed while the plan is looked for. Returns the recording, too, and that worker's container.
    """
    progress, position = Progress(), 0
    killed, waiting = "", True
    deadline = time.monotonic() + SECONDS
    async with operator_bus(installed) as bus:
        while not progress.settled:
            installed.kubelet.check()
            assert time.monotonic() < deadline, f"waiting {progress.waiting}; {progress.failed[-3:]}"
            await asyncio.sleep(LOOK_SECONDS)
            async for item in bus.read("LOG", start=position + 1):
                position = item.sequence
                if not isinstance(item, Stored):
                    continue
                progress.fold(item.event)
                if isinstance(item.event.body, ForecastMade) and not killed:
                    killed = installed.kubelet.of("optimizer-worker")[0].engine_name
                    auditor.taken[f"Deployment {SPACE}/kinema-optimizer-worker"] += 1
                    docker("kill", killed)
                if isinstance(item.event.body, PlanApprovalRequested) and waiting:
                    waiting = False
                    await asyncio.to_thread(installed.operator, "approve", item.event.body.plan)
        await record_to(bus, cluster=CLUSTER, out=folder / "recording.jsonl.zst")
    return progress, folder / "recording.jsonl.zst", killed


def figures(installed: Installed, outcome: Outcome) -> dict[str, Any]:
    """For people: what it came to, and what the containers took."""
    pods = {name: installed.container(name) for name in CONTAINERS}
    stats = ("stats", "--no-stream", "--format={{.MemUsage}}")
    return {
        "seconds": round(outcome.run.seconds, 1),
        "nodes": [*map(len, outcome.nodes)],
        "usd_per_hour": [*outcome.usd_per_hour],
        "changes_audited": outcome.auditor.changes,
        "containers": {
            name: {
                "seconds_until_ready": round(one.ready_seconds, 1),
                "processor_seconds_until_ready": round(one.ready_processor_seconds, 2),
                "restarts": one.restarts,
                "memory": docker(*stats, one.engine_name).strip(),
                "writable": writable(one.engine_name),
            }
            for name, one in pods.items()
        },
    }


def test_one_plan_is_carried_out_with_the_rights_of_the_accounts(outcome: Outcome) -> None:
    """The plan that was approved is finished; the nodes that it deletes are gone, the others and what it boots stay."""
    (plan,) = outcome.run.progress.accepted.values()
    assert {type(end) for end in outcome.run.progress.ended.values()} == {ExecutionCompleted}
    deleted = {node.name for node in plan.nodes if node.action == "delete"}
    booted = {node.name for node in plan.nodes if node.action == "boot"}
    (before, after), (dear, cheap) = outcome.nodes, outcome.usd_per_hour
    assert after == (before - deleted) | booted
    assert len(after) < len(before) == OLD_NODES + 1
    assert cheap < dear


def test_nobody_was_hurt(outcome: Outcome) -> None:
    """No workload below its floor, no invariant broken, nothing left behind, and the events decide the same again."""
    auditor = outcome.auditor
    assert auditor.flaws == []
    assert outcome.leftovers == []
    history = replace(outcome.run.history, before=auditor.before, changes=tuple(auditor.history))
    assert violations(history) == ()
    assert outcome.run.replayed() == ""


@pytest.mark.parametrize("name", CONTAINERS)
def test_a_container_writes_only_where_its_pod_says(installed: Installed, outcome: Outcome, name: str) -> None:
    """As user 65532, on a root that it cannot write to, without rights, and not started again for the plan."""
    one = installed.container(name)
    (state,) = json.loads(docker("inspect", one.engine_name))
    assert (one.restarts, one.is_ready, state["State"]["Running"]) == (outcome.restarts[name], True, True)
    assert docker("exec", one.engine_name, "id", "-u").strip() == "65532"
    assert state["HostConfig"]["ReadonlyRootfs"]
    assert state["HostConfig"]["CapDrop"] == ["ALL"]
    assert sorted(writable(one.engine_name)) == sorted(one.container.writable)
    changed = {line.split(maxsplit=1)[1] for line in docker("diff", one.engine_name).splitlines()}
    mounts = [Path(path.replace("/var/run/", "/run/")) for path in one.container.mounts]  # a link in the image
    assert changed <= {str(path) for mount in mounts for path in (mount, *mount.parents)}


def test_workers_are_ready_also_after_one_was_killed(installed: Installed, outcome: Outcome) -> None:
    """The one that was killed while a plan was looked for has a new container; the plan is that of a replay alone."""
    path = f"/apis/apps/v1/namespaces/{SPACE}/deployments/kinema-optimizer-worker"
    installed.admin.until(path, lambda found: found["status"].get("readyReplicas") == WORKERS)
    assert outcome.killed not in {one.engine_name for one in installed.kubelet.of("optimizer-worker")}


@pytest.mark.usefixtures("outcome")
def test_helm_test_succeeds_for_every_chart(installed: Installed) -> None:
    """Each chart's test runs in a container, and Helm says that all have succeeded."""
    told = installed.did("test", "kinema")
    assert told.count("Phase:          Succeeded") == len(SERVICES) + 1, told


@pytest.mark.usefixtures("outcome")
def test_each_service_runs_alone_on_a_broker_that_is_there(installed: Installed, tmp_path: Path) -> None:
    """Those of the umbrella end when they are told to; each one installed by itself becomes ready, as its test says."""
    given = values(tmp_path)
    enabled = {"nats": True, **dict.fromkeys(SERVICES, False)}
    installed.kubelet.ended.clear()
    installed.did("upgrade", "kinema", str(CHARTS / "kinema"), "--wait", values={**given, "enabled": enabled})
    path = f"/api/v1/namespaces/{SPACE}/pods"
    installed.admin.until(path, lambda found: {one["metadata"]["name"] for one in found["items"]} == {"kinema-nats-0"})
    ended = {one.pod.app.removeprefix("kinema-"): one.end for one in installed.kubelet.ended}
    stopped = (*SERVICES, "optimizer-worker")
    assert {name: ended[name] for name in stopped} == dict.fromkeys(stopped, 0)
    for service in SERVICES:
        name = f"kinema-{service}"
        own = {"cluster": CLUSTER, "nats": {"url": f"nats://kinema-nats.{SPACE}.svc:4222"}}
        installed.did("install", name, str(CHARTS / name), "--wait", "--timeout=5m", values={**given[service], **own})
        assert "Phase:          Succeeded" in installed.did("test", name)


async def test_a_second_installation_goes_on_with_the_streams(
    installed: Installed, outcome: Outcome, tmp_path: Path
) -> None:
    """The broker's passwords and volume stay when all is uninstalled: what was said is there, and more follows."""
    for release in ("kinema", *(f"kinema-{service}" for service in SERVICES)):
        installed.did("uninstall", release, "--wait")
    installed.admin.until(f"/api/v1/namespaces/{SPACE}/pods", lambda found: not found["items"])
    installed.did("install", "kinema", str(CHARTS / "kinema"), "--wait", "--timeout=5m", values=values(tmp_path))
    async with operator_bus(installed) as bus:
        await record_to(bus, cluster=CLUSTER, out=tmp_path / "recording.jsonl.zst")
    before, after = outcome.run.history.log, recorded(tmp_path / "recording.jsonl.zst").log
    assert [entry.id for entry in after[: len(before)]] == [entry.id for entry in before]
    assert len(after) > len(before)
