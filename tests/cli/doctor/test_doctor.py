"""`kinema doctor`: what it finds, how it says it, and what its exit code is."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp import web
from tests.support.builders import cluster, node

from kinema_cli.doctor import checks
from kinema_cli.doctor import command as doctor_command
from kinema_cli.doctor import examine as run
from kinema_cli.doctor.checks import Finding
from kinema_cli.doctor.examine import Subject, examine
from kinema_cli.doctor.prices import prices
from kinema_cli.output import Format
from kinema_core.events import Node, Taint
from kinema_core.runtime.clock import SystemClock
from kinema_observer.adapters.metrics import MetricsApi
from kinema_sim.engine.kinds import NODE, PDB, POD
from kinema_sim.front import kube
from kinema_sim.front.server import Server, write_kubeconfig
from kinema_sim.scenarios.registry import SCENARIOS

HEADER = "machine_type,vcpus,memory_gib,usd_per_hour\n"


@dataclass
class World:
    """The tiny simulated cluster and a price list, and what was asked about rights there."""

    server: Server
    url: str
    subject: Subject
    catalog: Path
    sim: Any

    async def findings(self, **changes: Any) -> dict[str, Finding]:
        """What the doctor finds, by check; of several the worst."""
        order = ("ok", "warn", "fail")
        found: dict[str, Finding] = {}
        for finding in await examine(replace(self.subject, **changes)):
            before = found.get(finding.check)
            if before is None or order.index(finding.level) > order.index(before.level):
                found[finding.check] = finding
        return found

    async def fault(self, **fields: Any) -> None:
        """Have the server misbehave."""
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{self.url}/sim/v1/faults", json=fields) as response,
        ):
            assert response.status < 300, await response.text()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """A cluster where all is well."""
    sim = SCENARIOS["tiny"](0)
    server = Server(sim, speed=1.0)
    address = await server.start()
    write_kubeconfig(tmp_path / "kubeconfig", url=address.url, token="none")
    catalog = tmp_path / "prices.csv"
    catalog.write_text(HEADER + "e2-standard-2,2,8,0.09\ne2-standard-4,4,16,0.17\n")
    subject = Subject(kubeconfig=str(tmp_path / "kubeconfig"), provider={"kind": "delegate", "catalog": str(catalog)})
    yield World(server, address.url, subject, catalog, sim)
    await server.stop()


def levels(found: dict[str, Finding]) -> dict[str, str]:
    """What is not well."""
    return {check: finding.level for check, finding in found.items() if finding.level != "ok"}


async def test_where_all_is_well(world: World) -> None:
    """Version, clock, rights, sources, provider, prices and autoscalers each get a line without advice."""
    found = await world.findings()
    assert levels(found) == {}
    assert list(found) == [
        "kubernetes",
        "clock",
        "rights of observer",
        "rights of rescheduler",
        "metrics-server",
        "recommendations",
        "placement policy",
        "provider",
        "prices",
        "price date",
        "other autoscalers",
    ]
    assert all(finding.remediation == "" for finding in found.values())
    assert found["prices"].message == "known for each of 3 nodes (1 machine type)"
    assert found["metrics-server"].message.startswith("metrics.k8s.io has usage of 5 pods")


async def test_a_cluster_without_any_disruption_budget(world: World) -> None:
    """One warning with what to do; a cluster with a budget gets none, see above."""
    for budget in world.sim.store.sorted(PDB):
        world.sim.store.remove(PDB, (budget["metadata"]["namespace"], budget["metadata"]["name"]))
    found = await world.findings()
    assert levels(found) == {"disruption budgets": "warn"}
    assert found["disruption budgets"].message.startswith("the cluster has no PodDisruptionBudget: ")


def deny(monkeypatch: pytest.MonkeyPatch, denied: Callable[[dict[str, Any]], bool]) -> list[dict[str, Any]]:
    """Let the server deny some rights; collects what it is asked."""
    asked: list[dict[str, Any]] = []

    async def review(_: object, request: web.Request) -> web.Response:
        question = await request.json()
        asked.append(question)
        allowed = not denied(question["spec"]["resourceAttributes"])
        return web.json_response({**question, "status": {"allowed": allowed}}, status=201)

    monkeypatch.setattr(kube.KubeFront, "_review", review)
    return asked


@pytest.fixture
def denying(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """A server that lets nobody evict, patch autoscalers or watch pods."""
    lost = [("create", "eviction"), ("patch", "horizontalpodautoscalers"), ("watch", "pods")]
    return deny(monkeypatch, lambda asked: (asked["verb"], asked["subresource"] or asked["resource"]) in lost)


async def test_missing_rights_are_named(denying: list[dict[str, Any]], world: World) -> None:
    """A right without which nothing works fails, one that can be done without warns with what is lost; both say how."""
    said = [item for item in await examine(world.subject) if item.check.startswith("rights") and item.level != "ok"]
    assert [(item.check, item.level) for item in said] == [
        ("rights of observer", "fail"),
        ("rights of rescheduler", "fail"),
        ("rights of rescheduler", "warn"),
    ]
    assert "missing right to watch pods" in said[0].message
    assert "missing right to create pods/eviction" in said[1].message
    assert "patch horizontalpodautoscalers.autoscaling; without: autoscalers may take a surge back" in said[2].message
    assert said[1].remediation == "kinema rbac --provider delegate | kubectl apply -f -"
    assert {item["kind"] for item in denying} == {"SelfSubjectAccessReview"}


async def test_rights_of_accounts(denying: list[dict[str, Any]], world: World) -> None:
    """With a namespace, the services' own accounts there are asked about, each about its own rights only."""
    found = await world.findings(accounts="ops")
    assert found["rights of observer"].remediation == "kinema rbac --provider delegate -n ops | kubectl apply -f -"
    assert {item["kind"] for item in denying} == {"SubjectAccessReview"}
    users = {(item["spec"]["user"], item["spec"]["resourceAttributes"]["verb"]) for item in denying}
    assert ("system:serviceaccount:ops:kinema-rescheduler", "patch") in users
    assert ("system:serviceaccount:ops:kinema-observer", "patch") not in users


async def test_advice_where_no_provider_is_named(denying: list[dict[str, Any]], world: World) -> None:
    """Rights are those that `kinema rbac` gives without one, as the advice says; that prices are passed over too."""
    found = await world.findings(provider=None)
    assert found["rights of observer"].remediation == "kinema rbac | kubectl apply -f -"
    assert {item["spec"]["resourceAttributes"]["resource"] for item in denying} >= {"nodes", "pods"}
    assert "prices" not in found
    assert (found["provider"].level, "--provider" in found["provider"].remediation) == ("ok", True)


@pytest.mark.parametrize(("runs", "level"), [(True, "warn"), (False, "ok")])
async def test_metrics_of_no_pod(runs: bool, level: str, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A metrics API without a figure is in trouble where pods run, and only there."""

    async def nothing(_: object) -> None:
        return None

    monkeypatch.setattr(MetricsApi, "read", nothing)
    if not runs:
        for item in world.sim.store.sorted(POD):
            world.sim.store.replace(POD, {**item, "status": {**item["status"], "phase": "Pending"}})
    assert (await world.findings())["metrics-server"].level == level


@pytest.mark.parametrize(("seconds", "level"), [(-600.0, "warn"), (0.0, "ok"), (3.0, "ok"), (9.0, "warn")])
async def test_clocks_apart(seconds: float, level: str, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than five seconds between this machine and the API server are told, in either direction."""

    class Shifted(SystemClock):
        def now(self) -> Any:
            return super().now() + timedelta(seconds=seconds)

    monkeypatch.setattr(checks, "SystemClock", Shifted)
    assert (await world.findings())["clock"].level == level


@pytest.mark.parametrize(
    ("minor", "level"), [("22", "fail"), ("23+", "warn"), ("34", "ok"), ("36", "ok"), ("37", "warn"), ("", "warn")]
)
async def test_versions(minor: str, level: str, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too old fails, untested warns, also where the provider adds a sign to the number."""
    monkeypatch.setitem(kube._VERSION, "minor", minor)
    assert (await world.findings())["kubernetes"].level == level


@pytest.mark.parametrize("status", [403, 404, 503])
async def test_without_usage(status: int, world: World) -> None:
    """Whatever keeps the metrics API from answering, Kinema works without it, and that is said."""
    await world.fault(type="api", method="GET", path="/apis/metrics.k8s.io/", status=status, count=99)
    found = (await world.findings())["metrics-server"]
    assert found.level == "warn"
    assert "requests are not changed" in found.message


async def test_server_out_of_reach(world: World, tmp_path: Path) -> None:
    """No connection, wrong credentials or a context that does not exist is one finding, and no further question."""
    write_kubeconfig(tmp_path / "other", url="http://127.0.0.1:9", token="none")
    away = await examine(replace(world.subject, kubeconfig=str(tmp_path / "other")))
    nowhere = await examine(replace(world.subject, context="elsewhere"))
    await world.fault(type="api", method="GET", path="/version", status=401, count=99)
    unknown = await examine(world.subject)
    for found in (away, nowhere, unknown):
        assert [(item.check, item.level) for item in found] == [("kubernetes", "fail")]
        assert found[0].remediation


async def test_a_provider_with_prices_of_its_own(world: World) -> None:
    """The simulated cloud is asked for its price list; one that does not answer fails with what to correct."""
    found = await world.findings(provider={"kind": "sim", "url": world.url})
    assert {found[check].level for check in ("provider", "prices")} == {"ok"}
    assert found["price date"].level == "ok", "a simulated cloud's prices do not grow old"
    away = await world.findings(provider={"kind": "sim", "url": "http://127.0.0.1:9"})
    assert levels(away) == {"provider": "fail"}


def add_context(path: Path, *, current: str) -> str:
    """Give a kubeconfig a second context, of a server that does not answer; the name of the first one."""
    content = msgspec.yaml.decode(path.read_bytes())
    named = str(content.pop("current-context"))
    (mine,) = content["contexts"]
    content["clusters"].append({"name": "elsewhere", "cluster": {"server": "http://127.0.0.1:9"}})
    content["contexts"].append({"name": "elsewhere", "context": {**mine["context"], "cluster": "elsewhere"}})
    path.write_bytes(msgspec.yaml.encode({**content, **({"current-context": current} if current else {})}))
    return named


@pytest.mark.parametrize("current", ["elsewhere", ""])
async def test_the_named_context_is_asked_about_everything(current: str, world: World) -> None:
    """Whatever the kubeconfig's current context is, or if it has none, the provider looks at the named cluster."""
    named = add_context(Path(world.subject.kubeconfig), current=current)
    world.catalog.write_text("machine_type,vcpus,memory_gib,usd_per_hour,available\ne2-standard-2,2,8,0.09,5\n")
    provider = {"kind": "kwok", "catalog": str(world.catalog)}
    assert levels(await world.findings(context=named, provider=provider)) == {}


async def test_machines_without_a_price(world: World) -> None:
    """Every machine type that runs must be in the price list; what is missing is named."""
    world.catalog.write_text(HEADER + "n1-standard-1,1,4,0.05\n")
    found = (await world.findings())["prices"]
    assert found.level == "fail"
    assert "tiny-1" in found.message
    assert found.remediation.startswith("add the offers to prices.csv, or annotate the nodes with")


async def test_a_price_that_cannot_be_read_is_no_gap_of_the_price_list(world: World) -> None:
    """The annotation counts before the list, so that only it can be mended."""
    wrong = node("n1", machine="e2-standard-2", annotations={"kinema.io/usd-per-hour": "a lot"})
    other = node("n2", price="0.09")
    provider: dict[str, object] = {"kind": "delegate", "catalog": str(world.catalog)}
    found = await prices(provider, world.subject.kubeconfig, cluster(wrong, other))
    (finding,) = (one for one in found if one.check == "prices")
    assert finding.level == "warn"
    assert finding.remediation == "correct the annotation kinema.io/usd-per-hour of n1"


async def test_price_lists_that_are_old_or_damaged(world: World) -> None:
    """Prices of more than a month ago are called old; a list that cannot be read fails with line and column."""
    seconds = world.catalog.stat().st_mtime - 40 * 86400
    os.utime(world.catalog, (seconds, seconds))
    assert "40 days ago" in (await world.findings())["price date"].message
    world.catalog.write_text(HEADER + "e2-standard-2,two,8,0.09\n")
    found = (await world.findings())["provider"]
    assert found.level == "fail"
    assert "vcpus" in found.message


@pytest.mark.parametrize(
    ("node", "who"),
    [
        (Node(name="n", uid="u", labels={"karpenter.sh/nodepool": "default"}), "Karpenter"),  # type: ignore[arg-type]  # a plain map does
        (Node(name="n", uid="u", taints=(Taint(key="karpenter.sh/disrupted", effect="NoSchedule"),)), "Karpenter"),
        (
            Node(name="n", uid="u", taints=(Taint(key="DeletionCandidateOfClusterAutoscaler", effect="NoSchedule"),)),
            "Cluster Autoscaler",
        ),
    ],
)
def test_neighbors(node: Node, who: str) -> None:
    """Another autoscaler's marks are told, unless it is the one that boots and deletes for us."""
    from kinema_cli.doctor.prices import other_autoscalers  # noqa: PLC0415 - the name is a check's here

    (beside,) = other_autoscalers([node], "kwok")
    (with_us,) = other_autoscalers([node], "delegate")
    assert (beside.level, with_us.level) == ("warn", "ok")
    assert who in beside.message
    assert "delegate" in beside.remediation


async def test_cluster_without_nodes(world: World) -> None:
    """There is nothing to plan on."""
    async with aiohttp.ClientSession(world.url) as session:
        for item in world.sim.store.sorted(NODE):
            await session.delete(f"/api/v1/nodes/{item['metadata']['name']}")
    assert levels(await world.findings())["nodes"] == "fail"


@pytest.mark.parametrize(("level", "code"), [("ok", 0), ("warn", 0), ("fail", 1)])
def test_exit_code_and_json(level: str, code: int, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """Only what would not work makes the exit code 1; JSON holds every finding with what to do."""

    async def found(_: Subject) -> tuple[Finding, ...]:
        return (Finding("clock", "ok", "fine"), Finding("prices", level, "some", "more"))  # type: ignore[arg-type]  # one of the three

    monkeypatch.setattr(run, "examine", found)
    assert doctor_command.run_doctor(Subject(kubeconfig="k"), Format.JSON) == code
    told = json.loads(capsys.readouterr().out)["findings"]
    assert told[1] == {"check": "prices", "level": level, "message": "some", "remediation": "more"}
    assert doctor_command.run_doctor(Subject(kubeconfig="k"), Format.TABLE) == code
    assert "some → more" in capsys.readouterr().out
