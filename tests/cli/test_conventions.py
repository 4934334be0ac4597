"""What users of kubectl expect of every command: help, names, prefixes, narrow and piped output."""

from __future__ import annotations

import json
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.cli.bench import Bench, controllers, node, pod, spread, text
from typer.main import get_command
from typer.testing import CliRunner

from kinema_cli import broker
from kinema_cli.inputs import cluster_name
from kinema_cli.local.pipeline import LocalPipeline
from kinema_cli.local.up import UpOptions, _pipeline_options, _write_environment
from kinema_cli.main import _GROUPS, app
from kinema_cli.output import hourly, monthly, percent, show, table, unit_price
from kinema_core.runtime.nats_bus import connect
from kinema_core.runtime.settings import RuntimeSettings

COMMANDS: dict[str, Any] = get_command(app).commands  # type: ignore[attr-defined]  # the group's


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_has_a_short_help_examples_and_plain_metavars(name: str) -> None:
    """The overview shows whole lines; no option shows a type of Python."""
    assert 0 < len(COMMANDS[name].short_help) <= 50
    shown = CliRunner().invoke(app, [name, "-h"])
    assert shown.exit_code == 0
    assert f"Examples:\n    kinema {name}" in shown.stdout
    assert not re.search(r"<(str|path|int|float|list)", shown.stdout)


def test_every_command_is_in_one_group() -> None:
    """A command outside of the groups would be missing from the help."""
    assert sorted(name for names in _GROUPS.values() for name in names) == sorted(COMMANDS)


def test_a_plugin_of_kubectl_calls_itself_so(tmp_path: Path) -> None:
    """Krew asks for it: `kubectl kinema`."""
    link = tmp_path / "kubectl-kinema"
    link.write_text("from kinema_cli.entry import run\nrun()\n")
    shown = subprocess.run([sys.executable, str(link), "plan", "-h"], capture_output=True, text=True, check=True)
    assert shown.stdout.startswith("Usage: kubectl kinema plan ")


@pytest.mark.slow
def test_an_unreachable_broker_is_an_error_and_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    """In words, without the numbers of the operating system."""
    monkeypatch.setattr(broker, "connect", lambda settings: connect(replace(settings, nats_connect_seconds=0.2)))
    found = CliRunner().invoke(app, ["status", "--nats", "nats://op:secret@127.0.0.1:9", "--cluster-name", "c1"])
    assert found.exit_code == 1
    assert found.stderr.splitlines() == [
        "error: nats://127.0.0.1:9 cannot be reached: connection refused",
        "hint: is the broker running? start it with `kinema up`, or set KINEMA_NATS to its address",
    ]


@pytest.mark.slow
def test_a_command_that_waits_for_the_broker_shows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a moment, on standard error, with the address and the longest wait; a quick failure needs no such line."""
    monkeypatch.setattr(broker, "_QUIET_SECONDS", 0.0)
    monkeypatch.setattr(broker, "connect", lambda settings: connect(replace(settings, nats_connect_seconds=0.2)))
    found = CliRunner().invoke(app, ["status", "--nats", "nats://op:secret@127.0.0.1:9", "--cluster-name", "c1"])
    assert found.stderr.splitlines()[0] == "waiting up to 5 s for the broker at nats://127.0.0.1:9"


def test_wrong_options_are_an_error_and_a_hint() -> None:
    """Like every other error, on one line with its prefix, and exit code 2."""
    wrong = CliRunner().invoke(app, ["plan", "--catalogue", "x"])
    assert wrong.exit_code == 2
    assert wrong.stderr.splitlines()[0].startswith("error: no such option: --catalogue")
    assert wrong.stderr.splitlines()[-1].startswith("hint: see `")


@pytest.mark.parametrize(
    ("option", "value", "remedy"),
    [
        ("--max-utilization", "0", "give at least 1"),
        ("--max-utilization", "101", "give at most 100"),
        ("--seed", "x", "give a whole number"),
        ("--time-limit", "x", "give a number"),
        ("--objective", "cheap", "choose from 'cost', 'least-cost', 'energy'"),
    ],
)
def test_a_value_of_the_wrong_kind_is_named_with_what_to_give(option: str, value: str, remedy: str) -> None:
    """Option and value, in our words and not in those of a library."""
    wrong = CliRunner().invoke(app, ["plan", option, value])
    assert (wrong.exit_code, wrong.stderr.splitlines()[0]) == (2, f"error: '{option}' is '{value}': {remedy}")


@pytest.mark.parametrize(
    ("columns", "lines"),
    [("", ["name   amount", "lemon       1"]), ("9", ["name   a", "       m", "       o"])],
)
def test_a_pipe_gets_plain_columns_of_the_asked_width(
    columns: str, lines: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No boxes and no trailing blanks; `COLUMNS` folds, nothing else does."""
    monkeypatch.setenv("COLUMNS", columns)
    show(table("", ["name", "amount"], [["lemon", "1"]], numbers=["amount"]))
    found = capsys.readouterr().out.splitlines()
    if columns:
        assert all(len(line) <= int(columns) for line in found)
    else:
        assert found == lines


def test_money_and_shares_have_one_notation() -> None:
    """Dollars with their period, two decimals, and no blank before a percent sign."""
    assert [hourly(0.71), hourly(-0.001), unit_price(0.0335), unit_price(0.25)] == [
        "$0.71/h",
        "$0.00/h",
        "$0.0335/h",
        "$0.25/h",
    ]
    assert [monthly(0.71), monthly(0.001), monthly(-1.5)] == ["$518/month", "$0.73/month", "-$1,095/month"]
    assert [percent(0.8), percent(0.001), percent(0.056, 1)] == ["80%", "0.1%", "5.6%"]


def test_json_has_the_warnings_and_what_the_plan_was_made_from(bench: Bench) -> None:
    """Nothing in it changes from run to run but the measured seconds."""
    first, second = (json.loads(bench.run("-o", "json", "--work", "100").stdout) for _ in range(2))
    assert first["warnings"] == [
        "the snapshot contains no poddisruptionbudgets, namespaces; if your cluster has them, this plan ignores their "
        "rules"
    ]
    assert first["metadata"]["options"]["work"] == 100
    assert first["metadata"]["versions"]["kinema"]
    assert all(isinstance(value, int) or value % 1 for value in first["figures"].values())
    assert {**first, "solve": None} == {**second, "solve": None}


def test_the_report_shows_the_warnings(bench: Bench) -> None:
    """Who reads only the report learns of them too."""
    path = bench.directory / "plan.html"
    bench.run("--html", str(path))
    assert "the snapshot contains no poddisruptionbudgets" in path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["node/n1"], "machine"),
        (["po/web-0", "-n", "shop"], "shop/web-0"),
        (["deploy/web", "-n", "shop"], "Deployment/shop/web"),
        (["deployment/web"], "Deployment/web"),
    ],
)
def test_explain_takes_types_and_namespaces_as_kubectl_does(bench: Bench, words: list[str], shown: str) -> None:
    """A workload is explained by its pods."""
    bench.snapshot.write_bytes(text([*spread(), pod("other", "n1")]))
    result = bench.explain(*words)
    assert result.exit_code == 0, result.stderr
    assert shown in result.stdout


def test_explain_suggests_workloads(bench: Bench) -> None:
    """Exit 3 with names that are near."""
    result = bench.explain("deploy/wbe")
    assert (result.exit_code, result.stderr) == (3, "error: no Deployment is named 'wbe'; similar names: web\n")


def test_explain_suggests_workloads_for_a_bare_name(bench: Bench) -> None:
    """Without a type a name is that of a node or pod; a workload of the name is offered."""
    result = bench.explain("web", "-n", "shop")
    assert result.exit_code == 3
    assert "similar names: Deployment/shop/web" in result.stderr


def test_explain_claims_nothing_about_a_plan(bench: Bench) -> None:
    """Whether a movable pod moves is decided by a plan."""
    bench.snapshot.write_bytes(text([node("n0"), node("n1"), *controllers(2), pod("web-0", "n0"), pod("web-1", "n1")]))
    assert "whether it moves is decided by a plan" in " ".join(bench.explain("shop/web-0").stdout.split())


def test_explain_asks_the_broker_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """KINEMA_NATS holds for plans in `explain` as for all commands of a pipeline."""
    asked: list[RuntimeSettings] = []

    async def connect(settings: RuntimeSettings) -> None:
        asked.append(settings)
        raise OSError

    monkeypatch.setattr("kinema_cli.broker.connect", connect)
    monkeypatch.setenv("KINEMA_NATS", "nats://broker.example:4333")
    CliRunner().invoke(app, ["explain", "it-83", "--cluster-name", "prod"])
    assert [(one.nats_url, one.cluster) for one in asked] == [("nats://broker.example:4333", "prod")]


def test_the_name_in_events_is_the_contexts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the characters of a subject; a given name is kept, and without a kubeconfig it is `local`."""
    kubeconfig = tmp_path / "kubeconfig"
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    assert cluster_name("") == "local"
    kubeconfig.write_text("current-context: arn:aws:eks:eu-1:1:cluster/shop\ncontexts: []\n")
    assert cluster_name("") == "arn-aws-eks-eu-1-1-cluster-shop"
    assert cluster_name("mine") == "mine"


def test_the_operators_password_is_in_a_file_of_the_user_alone(tmp_path: Path) -> None:
    """The screen shows a command that reads it."""
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text("current-context: c\ncontexts: [{name: c}]\n")
    options = UpOptions(
        kubeconfig=kubeconfig, provider="sim=http://127.0.0.1:9", cluster="c1", out=tmp_path, nats="nats://u:pw@host"
    )
    path = _write_environment(LocalPipeline(_pipeline_options(options)))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_text().splitlines() == [
        "export KINEMA_NATS=nats://u:pw@host",
        "export KINEMA_CLUSTER=c1",
    ]
