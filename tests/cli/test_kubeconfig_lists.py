"""`KUBECONFIG=a:b`: several files are one kubeconfig, with the meaning that `kubectl` gives them."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.rescheduler.sim_world import sim_world
from typer.testing import CliRunner

from kinema_cli.local.up import UpOptions, _is_well, _pipeline_options
from kinema_cli.main import app
from kinema_cli.snapshot.live import live_snapshot
from kinema_kubernetes.client import connect
from kinema_kubernetes.errors import SetupError
from kinema_kubernetes.kubeconfig import current_context
from kinema_sim.scenarios.registry import SCENARIOS


def write(path: Path, name: str, *, server: str = "http://127.0.0.1:9", current: str = "", **more: object) -> str:
    """A kubeconfig with one cluster, user and context of a name; `more` stands in the cluster."""
    content = {
        "clusters": [{"name": name, "cluster": {"server": server, **more}}],
        "users": [{"name": name, "user": {"token": "none"}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        **({"current-context": current} if current else {}),
    }
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content))
    return str(path)


@pytest.fixture
async def files(tmp_path: Path) -> AsyncIterator[str]:
    """A cluster's file among others: the second that is there, named as current by the first and not by the last."""
    async with sim_world(SCENARIOS["tiny"](0), tmp_path) as world:
        mine = json.loads(world.kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
        first = write(tmp_path / "first" / "config", "other", current="here")
        second = write(tmp_path / "second" / "config", "here", server=mine)
        last = write(tmp_path / "last" / "config", "here", current="other")
        yield os.pathsep.join([str(tmp_path / "none"), "", first, second, last])


async def test_a_live_plan_takes_the_first_current_context(files: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the first of several clusters, users and contexts of a name; files that are not there are passed over."""
    monkeypatch.setenv("KUBECONFIG", files)
    assert len((await asyncio.to_thread(live_snapshot, "")).cluster.nodes) == 3


async def test_the_doctor_takes_a_list(files: str) -> None:
    """From the environment, as `kubectl` does, and as an option."""
    for words, environment in (([], {"KUBECONFIG": files}), (["--kubeconfig", files], {})):
        said = await asyncio.to_thread(CliRunner().invoke, app, ["doctor", "-o", "json", *words], env=environment)
        assert said.exit_code == 0, said.output
        assert json.loads(said.stdout)["findings"][0]["level"] == "ok"


async def test_up_takes_a_list(files: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its services get the files by their whole paths, those that are there, and the context that they mean."""
    (tmp_path / "prices.csv").write_text("machine_type,vcpus,memory_gib,usd_per_hour\ne2-standard-2,2,8,0.09\n")
    provider = f"delegate={tmp_path / 'prices.csv'}"
    asked = UpOptions(kubeconfig=Path(files), provider=provider, cluster="c1", out=tmp_path / "up")
    options = _pipeline_options(asked)
    assert str(options.kubeconfig).split(os.pathsep) == files.split(os.pathsep)[2:]
    assert options.context == "here"
    assert await _is_well(options), capsys.readouterr().err


async def test_setup_takes_a_list(files: str) -> None:
    """The policy goes where all else goes."""
    said = await asyncio.to_thread(CliRunner().invoke, app, ["setup", "--kubeconfig", files])
    assert said.stdout.startswith("placement policy: this Kubernetes has no admission policies"), said.output


def test_relative_files_and_links_keep_their_meaning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service may run elsewhere; what lies beside a link to a kubeconfig does not lie beside the kubeconfig."""
    write(tmp_path / "a" / "config", "a", current="a")
    (tmp_path / "link").symlink_to(tmp_path / "a" / "config")
    monkeypatch.chdir(tmp_path)
    asked = UpOptions(
        kubeconfig=Path("link:a/config"), provider="sim=http://127.0.0.1:9", cluster="c1", out=tmp_path / "up"
    )
    assert str(_pipeline_options(asked).kubeconfig) == f"{tmp_path / 'link'}:{tmp_path / 'a' / 'config'}"


@pytest.mark.parametrize(
    ("second", "said"),
    [
        ("contexts: {", "{b}: line 2, column 1: did not find expected node content"),
        ("", "{b}: this is no kubeconfig: it has no clusters, users and contexts"),
    ],
)
async def test_what_is_wrong_with_one_file_names_it(second: str, said: str, tmp_path: Path) -> None:
    """A service that is told no context does not take one that `kubectl` would not take."""
    a, b = write(tmp_path / "a" / "config", "a", current="a"), tmp_path / "b"
    b.write_text(second)
    with pytest.raises(SetupError) as caught:
        await connect(f"{a}:{b}", context="")
    assert str(caught.value) == f"kubeconfig {a}:{b}: {said.format(b=b)}"


def test_no_context_but_the_first_that_is_named_is_current(tmp_path: Path) -> None:
    """Files that name none, or cannot be read, are passed over."""
    a, b = tmp_path / "a", tmp_path / "b"
    a.write_text("{")
    b.write_text("current-context: ''")
    c, d = (write(tmp_path / "sub" / name, name, current=name) for name in ("c", "d"))
    assert current_context(Path(f"{a}:{b}:{c}:{d}")) == "c"
