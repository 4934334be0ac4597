"""`kinema up` stays with the cluster on which it began, whatever becomes of the kubeconfig."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.rescheduler.sim_world import sim_world
from typer.testing import CliRunner

from kinema_cli.local.pipeline import LocalPipeline, PipelineOptions
from kinema_cli.local.up import UpOptions, _claim, _is_well, _pipeline_options, _steered, _undo
from kinema_cli.main import app
from kinema_core.runtime.settings import load
from kinema_kubernetes.claim import PATH
from kinema_kubernetes.client import connect
from kinema_kubernetes.kubeconfig import current_context
from kinema_observer.settings import Settings as ObserverSettings
from kinema_rescheduler.settings import Settings as ReschedulerSettings
from kinema_sim.scenarios.registry import SCENARIOS


@pytest.mark.parametrize(("named", "context"), [("", "staging"), ("production", "production")])
def test_services_are_bound_to_the_context_of_the_start(named: str, context: str, tmp_path: Path) -> None:
    """A service that is started again after `kubectl config use-context` must not act on that other cluster."""
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text("current-context: staging\ncontexts: [{name: staging}, {name: production}]\n")
    provider = {"kind": "sim", "url": "http://127.0.0.1:9"}
    options = PipelineOptions(directory=tmp_path, cluster="c1", kubeconfig=kubeconfig, context=named, provider=provider)
    pipeline = LocalPipeline(options)
    for service in ("observer", "rescheduler"):
        pipeline._write_settings(service)
    assert load(ObserverSettings, tmp_path / "settings/observer.json").context == context
    assert load(ReschedulerSettings, tmp_path / "settings/rescheduler.json").context == context


@pytest.fixture
async def two_contexts(tmp_path: Path) -> AsyncIterator[Path]:
    """A kubeconfig with a simulated cluster, `here`; its current context is another one, where nobody listens."""
    async with sim_world(SCENARIOS["tiny"](0), tmp_path) as world:
        content = json.loads(world.kubeconfig.read_text())
        (mine,) = content["contexts"]
        content["clusters"].append({"name": "away", "cluster": {"server": "http://127.0.0.1:9"}})
        content["contexts"] = [
            {**mine, "name": "here"},
            {"name": "away", "context": {**mine["context"], "cluster": "away"}},
        ]
        kubeconfig = tmp_path / "two"
        kubeconfig.write_text(json.dumps({**content, "current-context": "away"}))
        yield kubeconfig


async def test_all_that_up_does_with_the_cluster_is_done_in_the_named_context(
    two_contexts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The look before the start, the claim, the policy, and the command that takes it out again."""
    provider = f"kwok={tmp_path / 'prices.csv'}"
    (tmp_path / "prices.csv").write_text(
        "machine_type,vcpus,memory_gib,usd_per_hour,available\ne2-standard-2,2,8,0.09,5\n"
    )
    asked = UpOptions(kubeconfig=two_contexts, context="here", provider=provider, cluster="c1", out=tmp_path / "up")
    options = _pipeline_options(asked)
    assert await _is_well(options), capsys.readouterr().err
    await _claim(options, "me")
    api = await connect(str(two_contexts), context="here")
    assert (await api.get(PATH))["spec"]["holderIdentity"] == "me"
    await api.close()
    assert (await _steered(options)).startswith("placement policy: this Kubernetes has no admission policies")
    assert _undo(options) == f"kinema setup --kubeconfig {two_contexts} --context here --no-placement-policy"


def test_the_current_context_is_named_from_the_start_on(tmp_path: Path) -> None:
    """Nothing that happens later asks the file again which one that is."""
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text("current-context: staging\ncontexts: [{name: staging}]\n")
    asked = UpOptions(kubeconfig=kubeconfig, provider="sim=http://127.0.0.1:9", cluster="c1", out=tmp_path / "up")
    assert _pipeline_options(asked).context == "staging"


def test_a_context_that_is_not_there_is_told_with_those_that_are(two_contexts: Path, tmp_path: Path) -> None:
    """Before anything is started, as `kinema doctor` tells it."""
    words = ["up", "--provider", "sim=http://127.0.0.1:9", "--kubeconfig", str(two_contexts), "--context", "nope"]
    said = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "up")])
    assert said.exit_code == 1
    assert said.stderr.startswith(
        f"error: kubernetes: kubeconfig {two_contexts}: no context 'nope' in it; there are: here"
    )


async def test_setup_steers_in_the_named_context(two_contexts: Path) -> None:
    """Installing and removing: both reach the named cluster though the current context leads elsewhere."""
    words = ["setup", "--kubeconfig", str(two_contexts), "--context", "here"]
    on = await asyncio.to_thread(CliRunner().invoke, app, words)
    assert on.stdout.startswith("placement policy: this Kubernetes has no admission policies"), on.stderr
    off = await asyncio.to_thread(CliRunner().invoke, app, [*words, "--no-placement-policy"])
    assert off.stdout == "placement policy: absent\nLease kube-system/kinema: absent\n"


@pytest.mark.parametrize("content", [None, "{", "- 1", "contexts: []", "current-context:"])
def test_a_file_without_a_current_context_pins_nothing(tmp_path: Path, content: str | None) -> None:
    """What is wrong with it is told by whoever connects."""
    kubeconfig = tmp_path / "kubeconfig"
    if content is not None:
        kubeconfig.write_text(content)
    assert current_context(kubeconfig) == ""
