"""The chart of all in one pod, installed by Helm into a real control plane, with its pod running.

One plan is approved and executed by it; then its release becomes the split layout, which goes on with its streams.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from tests.charts.helm import CHARTS
from tests.charts.installed import CLUSTER, IMAGES, LOOK_SECONDS, SPACE, Installed, engine_node, operator_bus, writable
from tests.charts.kubelet import NODE, PINNED
from tests.charts.test_pods import values
from tests.e2e.auditor import Auditor
from tests.e2e.pipeline_run import SECONDS, SETTINGS, Run, catalog
from tests.history.checker import violations
from tests.history.record import History, recorded
from tests.support.engine import docker

from kinema_cli.local.demo import Progress
from kinema_cli.replay.recording import record_to
from kinema_cli.status.plans import COMPLETED, HELD

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.containers, pytest.mark.cluster]

NAME = "all-in-one"


@dataclass(frozen=True)
class Outcome:
    """One plan, approved and executed."""

    recording: Path
    history: History
    auditor: Auditor
    plan: dict[str, Any]
    """As `kinema plans` prints it."""
    leftovers: list[str]


def in_pod(installed: Installed, command: str) -> str:
    """Run a command of the operator in the pod, as the chart's notes do."""
    container = installed.container(NAME).engine_name
    return docker("exec", container, "sh", "-ec", f". /state/operator.env && {command}")


def until_completed(installed: Installed) -> dict[str, Any]:
    """Approve the plan that waits, and return it when it is completed."""
    approved = ""
    deadline = time.monotonic() + SECONDS
    while True:
        installed.kubelet.check()
        # Before the first proposal the command ends with an error.
        said = in_pod(installed, """kinema plans -o json || echo '{"plans": []}'""")
        plans = json.JSONDecoder().raw_decode(said)[0]["plans"]
        assert time.monotonic() < deadline, plans
        for plan in plans:
            if plan["phase"] == HELD and not approved:
                approved = plan["id"]
                in_pod(installed, f"kinema approve {plan['short_id']}")
            if plan["phase"] == COMPLETED and plan["id"] == approved:
                return dict(plan)
        time.sleep(LOOK_SECONDS)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """A release of the umbrella with its file for all in one."""
    folder = tmp_path_factory.mktemp("all-in-one")
    decider = {"limits": {"approval": "required", "cooldown_seconds": 5.0}}
    one = {
        **PINNED,
        "image": IMAGES,
        "provider": "kwok",
        "catalog": catalog(folder).read_text(),
        "settings": {**{name: SETTINGS[name] for name in ("observer", "optimizer")}, "decider": decider},
    }
    given = {"global": {"kinema": {"cluster": CLUSTER, "image": IMAGES}}, "allInOne": one}
    mode = ("--values", str(CHARTS / "kinema" / "all-in-one.yaml"))
    with engine_node(folder) as made:
        made.did("install", "kinema", str(CHARTS / "kinema"), *mode, "--wait", "--timeout=8m", values=given)
        yield made


@pytest.fixture(scope="module")
def outcome(installed: Installed, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """The run that the tests of this module look at."""
    recording = tmp_path_factory.mktemp("outcome") / "recording.jsonl.zst"
    auditor = Auditor(installed.admin)
    with auditor.watching():
        plan = until_completed(installed)
        leftovers = [left for left in auditor.leftovers() if NODE not in left]
    in_pod(installed, "kinema record --out /tmp/recording.jsonl.zst")
    docker("cp", f"{installed.container(NAME).engine_name}:/tmp/recording.jsonl.zst", str(recording))
    history = replace(recorded(recording), before=auditor.before, changes=tuple(auditor.history))
    return Outcome(recording, history, auditor, plan, leftovers)


def test_one_pod_executes_the_plan_that_was_approved(outcome: Outcome) -> None:
    """The cluster is cheaper, no workload fell below its floor, nothing is left, and a replay decides the same."""
    assert outcome.plan["usd_per_hour_after"] < outcome.plan["usd_per_hour_before"]
    assert len(outcome.auditor.now["Node"]) < len(outcome.auditor.before["Node"])
    assert outcome.auditor.flaws == []
    assert outcome.leftovers == []
    assert violations(outcome.history) == ()
    assert Run(Progress(), True, 0.0, outcome.recording).replayed() == ""


@pytest.mark.usefixtures("outcome")
def test_the_container_writes_only_where_its_pod_says(installed: Installed) -> None:
    """As user 65532, on a root that it cannot write to, without rights, and never started again."""
    one = installed.container(NAME)
    (state,) = json.loads(docker("inspect", one.engine_name))
    assert (one.restarts, one.is_ready, state["State"]["Running"]) == (0, True, True)
    assert docker("exec", one.engine_name, "id", "-u").strip() == "65532"
    assert state["HostConfig"]["ReadonlyRootfs"]
    assert state["HostConfig"]["CapDrop"] == ["ALL"]
    assert sorted(writable(one.engine_name)) == sorted(one.container.writable)


def test_the_split_layout_goes_on_with_the_streams(installed: Installed, outcome: Outcome, tmp_path: Path) -> None:
    """After the upgrade that docs/install.md describes, every event of the one pod is there, and more follow."""
    installed.admin.request(
        "PATCH",
        f"/apis/apps/v1/namespaces/{SPACE}/deployments/kinema-all-in-one/scale",
        {"spec": {"replicas": 0}},
        content_type="application/merge-patch+json",
    )
    installed.admin.until(f"/api/v1/namespaces/{SPACE}/pods", lambda found: not found["items"])
    installed.did("upgrade", "kinema", str(CHARTS / "kinema"), "--wait", "--timeout=8m", values=values(tmp_path))
    out = tmp_path / "recording.jsonl.zst"

    async def record() -> None:
        async with operator_bus(installed) as bus:
            await record_to(bus, cluster=CLUSTER, out=out)

    asyncio.run(record())
    before, after = outcome.history.log, recorded(out).log
    assert [entry.id for entry in after[: len(before)]] == [entry.id for entry in before]
    assert len(after) > len(before)
