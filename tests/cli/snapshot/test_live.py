"""Reading a live cluster once, for `kinema plan --context`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kinema_cli.inputs import InputError, input_warnings, snapshot_of
from kinema_cli.main import app
from kinema_cli.snapshot.file import SnapshotError
from kinema_cli.snapshot.live import live_snapshot
from kinema_kubernetes import watch
from kinema_sim.cluster import Cluster as SimulatedCluster
from kinema_sim.engine.kinds import PDB
from kinema_sim.front.server import Server, write_kubeconfig
from kinema_sim.scenarios.registry import SCENARIOS


@pytest.fixture
async def simulated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SimulatedCluster]:
    """The simulated cluster `tiny` behind its HTTP front, and a kubeconfig for it."""
    cluster = SCENARIOS["tiny"](0)
    server = Server(cluster, speed=1.0, token="")
    address = await server.start()
    write_kubeconfig(tmp_path / "kubeconfig", url=address.url, token="none")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    yield cluster
    await server.stop()


async def test_all_kinds_are_listed_in_pages(simulated: SimulatedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes, pods and their controllers are read whole, also when a page holds only two objects."""
    monkeypatch.setattr(watch, "PAGE", 2)
    found = (await asyncio.to_thread(live_snapshot, "kinema-sim")).cluster
    assert [node.name for node in found.nodes] == ["tiny-1", "tiny-2", "tiny-3"]
    assert len(found.pods_by_workload["Deployment/shop/web"]) == 3
    assert found.quarantined == ()


async def test_a_cluster_without_any_disruption_budget(simulated: SimulatedCluster) -> None:
    """A plan for it has one warning; one for a cluster with a budget has none."""
    assert [*input_warnings(await asyncio.to_thread(live_snapshot, "kinema-sim"))] == []
    for budget in simulated.store.sorted(PDB):
        simulated.store.remove(PDB, (budget["metadata"]["namespace"], budget["metadata"]["name"]))
    (warning,) = input_warnings(await asyncio.to_thread(live_snapshot, "kinema-sim"))
    assert warning.startswith("the cluster has no PodDisruptionBudget: ")


@pytest.mark.usefixtures("simulated")
@pytest.mark.parametrize("context", ["", "kinema-sim"])
async def test_the_kubeconfig_may_be_named(context: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes the place of `KUBECONFIG`; without a context its current one is meant."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "another"))
    found = await asyncio.to_thread(snapshot_of, None, context, tmp_path / "kubeconfig")
    assert (len(found.cluster.nodes), found.live) == (3, True)


@pytest.mark.parametrize("arguments", [["plan"], ["explain", "n1"]])
def test_a_kubeconfig_beside_a_snapshot_is_a_wrong_argument(arguments: list[str]) -> None:
    """For both verbs that read a cluster: which one is meant?"""
    beside = ["--catalog", "prices.csv", "--kubeconfig", "config", "--snapshot", "file.json"]
    said = CliRunner().invoke(app, [*arguments, *beside])
    assert said.exit_code == 2
    assert "give one cluster" in said.stderr


NAMELESS = '{"current-context": "c", "clusters": [], "contexts": [{"name": "c", "context": {"cluster": "k"}}]}'


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "this is no kubeconfig: it has no clusters, users and contexts"),
        ("clusters: {", "line 2, column 1: did not find expected node content"),
        ("contexts: [{name: one}, {name: two}]", "it names no current-context; there are: one, two"),
        ("contexts: 3", "Expected `array | null`, got `int` - at `$.contexts`"),
        (NAMELESS, "context 'c': there is no cluster 'k' with a server"),
    ],
)
def test_what_a_kubeconfig_lacks_is_one_line(content: str, said: str, tmp_path: Path) -> None:
    """It names the option and the file once, and begins with them."""
    path = tmp_path / "kubeconfig"
    path.write_text(content)
    with pytest.raises(InputError) as caught:
        snapshot_of(None, "", path)
    assert str(caught.value) == f"--kubeconfig {path}: {said}"


@pytest.mark.parametrize("verb", [["plan"], ["explain", "n1"]])
@pytest.mark.parametrize("named", ["none", "none:nor-this"])
def test_context_without_a_kubeconfig_is_one_line_that_says_what_to_do(
    verb: list[str], named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever `KUBECONFIG` lists of files, none is there: nor does the client's own warning come through."""
    files = ":".join(str(tmp_path / one) for one in named.split(":"))
    monkeypatch.setenv("KUBECONFIG", files)
    said = CliRunner().invoke(app, [*verb, "--catalog", "prices.csv", "--context", "nope"])
    assert (said.exit_code, caplog.text) == (1, "")
    remedy = "name a kubeconfig with --kubeconfig, or a file with --snapshot"
    assert said.stderr.splitlines() == [f"error: {files}: no such file; {remedy}"]


@pytest.mark.usefixtures("simulated")
async def test_unknown_context_is_one_clear_line() -> None:
    """The context is named, and nothing is asked of any server."""
    with pytest.raises(SnapshotError, match="'nope'"):
        await asyncio.to_thread(live_snapshot, "nope")
