"""`kinema nats-rights`, read by a real nats-server."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from tests.support.nkey_users import user_key
from typer.testing import CliRunner

from kinema_cli.local.nats_server import executable
from kinema_cli.main import app
from kinema_core.runtime.rights import USERS

TWO = ("nats-rights", "--cluster-name", "prod", "--cluster-name", "eu.test")


@pytest.mark.connected
@pytest.mark.parametrize("options", [(), ("--accounts",), ("--auth", "nkey"), ("--accounts", "--auth", "nkey")])
def test_the_server_reads_what_is_printed(tmp_path: Path, options: tuple[str, ...]) -> None:
    """Every user's secret is a variable of its own; with accounts a service has one in each."""
    done = CliRunner().invoke(app, [*TWO, *options])
    assert done.exit_code == 0, done.output
    variables = re.findall(r"\$([A-Z0-9_]+_(?:PASSWORD|NKEY))", done.stdout)
    assert len(variables) == len(set(variables)) == len(USERS) * (2 if "--accounts" in options else 1)
    assert ("EU_TEST" in "".join(variables)) == ("--accounts" in options)
    config = tmp_path / "nats.conf"
    config.write_text(done.stdout, encoding="utf-8")
    keys = {name: user_key().public for name in variables}
    checked = subprocess.run(
        [executable(), "-t", "-c", str(config)], env={**os.environ, **keys}, capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stderr


def test_tokens_are_made_by_nsc() -> None:
    """With --auth jwt it prints the commands that make accounts, their limits, and users with their rights."""
    lines = CliRunner().invoke(app, [*TWO, "--auth", "jwt", "--account-size", "15Gi"]).stdout.splitlines()
    assert len(lines) == 2 * (2 + len(USERS))
    assert lines[1].startswith("nsc edit account --name kinema-prod --js-disk-storage 16106127360 --js-streams ")
    assert [
        line
        for line in lines
        if "add user --account kinema-eu.test --name admin --allow-pub '$JS.API.>,$JS.SNAPSHOT.>'" in line
    ]


def test_a_size_that_is_none_is_refused() -> None:
    """With exit code 2 and the option's name."""
    done = CliRunner().invoke(app, [*TWO, "--account-size", "much"])
    assert done.exit_code == 2
    assert "--account-size is 'much'" in done.stderr
