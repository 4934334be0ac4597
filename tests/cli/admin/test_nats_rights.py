"""`kinema nats-rights`, read by a real nats-server."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from tests.support.nkey_users import user_key
from typer.testing import CliRunner, Result

from kinema_cli.local.nats_server import NatsServer, executable
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


@pytest.mark.connected
def test_an_account_has_room_for_what_setup_makes(tmp_path: Path) -> None:
    """With the defaults of both commands; where an account has too little, limit and options are named."""

    def setup_in_account(*options: str) -> Result:
        printed = CliRunner().invoke(app, [*TWO, "--accounts", *options]).stdout.removeprefix("accounts: ")
        accounts = json.loads(re.sub(r"\$([A-Z0-9_]+_PASSWORD)", r'"\1"', printed))
        store = {"store_dir": str(tmp_path / "-".join(("data", *options))), "max_file_store": 12 << 30}
        server = NatsServer(tmp_path, more={"accounts": accounts, "jetstream": store})
        server.start()
        url = server.url.replace("//", "//admin%40prod:ADMIN_PROD_PASSWORD@")
        try:
            return CliRunner().invoke(app, ["setup", "--nats", url, "--cluster-name", "prod"])
        finally:
            server.stop()

    made = setup_in_account()
    assert made.exit_code == 0, made.output
    limits = CliRunner().invoke(app, [*TWO, "--auth", "jwt"]).stdout.splitlines()[1]
    assert f"--js-disk-storage {6 << 30} " in limits
    small = setup_in_account("--account-size", "5Gi")
    assert small.exit_code == 1
    assert small.stderr == (
        "error: stream KINEMA_DLQ cannot be created: insufficient storage resources available (10047): the account may "
        "store 5120 MiB, all streams together need 5441 MiB; raise that limit (`kinema nats-rights --account-size`), "
        "or lower --state-size, --log-size or --usage-size\n"
    )


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
