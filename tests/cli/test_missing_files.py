"""A file that is not there is the same failure for every command, however it is named."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.bench import spread, text
from typer.testing import CliRunner

from kinema_cli.main import app

COMMANDS = (
    "plan --catalog {none} --snapshot {state}",
    "plan --catalog {here} --snapshot {none}",
    "plan --catalog {here} --kubeconfig {none}",
    "explain n1 --catalog {none} --snapshot {state}",
    "explain n1 --catalog {here} --snapshot {none}",
    "explain n1 --catalog {here} --kubeconfig {none}",
    "doctor --kubeconfig {none}",
    "doctor --settings {none} --kubeconfig /nowhere",
    "doctor --kubeconfig {here} --provider kwok={none}",
    "up --provider sim=http://127.0.0.1:9 --kubeconfig {none}",
    "up --provider static={none} --kubeconfig {here}",
    "up --provider sim=http://127.0.0.1:9 --kubeconfig {here} --settings {none}",
    "replay {none}",
)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_missing_file_fails(command: str, tmp_path: Path) -> None:
    """Exit code 1 and one line that names it once, with the option that it was given by; 2 is for wrong arguments."""
    here, none, state = tmp_path / "here", tmp_path / "none", tmp_path / "state"
    here.write_text("")
    state.write_bytes(text(spread()))
    words = command.format(here=here, none=none, state=state).split()
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 1, result.output
    option, given = next((words[at - 1], word) for at, word in enumerate(words) if str(none) in word)
    assert result.stderr.startswith(f"error: {given}: " if option == "replay" else f"error: {option} {given}: ")
    assert result.stderr.count(str(none)) == 1
    assert len(result.stderr.strip().splitlines()) == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
def test_output_that_has_no_room_is_one_line() -> None:
    """A full disk behind a redirection is no fault of ours, and no traceback."""
    with Path("/dev/full").open("wb") as full:
        command = [sys.executable, "-c", "from kinema_cli.entry import run; run()", "plan", "--help"]
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False, text=True)
    assert ended.returncode == 1
    assert ended.stderr == "error: the output cannot be written: No space left on device\n"
