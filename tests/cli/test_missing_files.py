"""A file that is not there is the same failure for every command, however it is named."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from kinema_cli.main import app

COMMANDS = (
    "plan --catalog {here} --snapshot {none}",
    "plan --catalog {here} --kubeconfig {none}",
    "explain n1 --catalog {here} --snapshot {none}",
    "explain n1 --catalog {here} --kubeconfig {none}",
    "doctor --kubeconfig {none}",
    "doctor --kubeconfig {here} --provider kwok={none}",
    "up --provider sim=http://127.0.0.1:9 --kubeconfig {none}",
    "up --provider static={none} --kubeconfig {here}",
    "up --provider sim=http://127.0.0.1:9 --kubeconfig {here} --settings {none}",
    "replay {none}",
)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_missing_file_fails(command: str, tmp_path: Path) -> None:
    """Exit code 1, as for a file that cannot be read, and one line that names it; 2 is for wrong arguments."""
    here, none = tmp_path / "here", tmp_path / "none"
    here.write_text("")
    result = CliRunner().invoke(app, command.format(here=here, none=none).split())
    assert result.exit_code == 1, result.output
    assert str(none) in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
