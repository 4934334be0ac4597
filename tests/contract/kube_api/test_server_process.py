"""Programs of the control plane as processes: started again where a kubelet would, and ended whole."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.controlplane.server import Server


def lines(path: Path) -> list[str]:
    """What was written there so far."""
    return path.read_text().split() if path.exists() else []


def server(folder: Path, *, restarts: bool) -> Server:
    """A program that writes its process id down and ends."""
    there = folder / "ids"
    command = ("sh", "-c", f"echo $$ >> {there}; sleep 0.1")
    return Server("brief", command, folder=folder, is_ready=lambda: bool(lines(there)), restarts=restarts)


@pytest.mark.slow
@pytest.mark.parametrize("restarts", [True, False])
def test_what_ends_by_itself_is_started_again_where_it_should(restarts: bool, tmp_path: Path) -> None:
    """One that restarts comes back as another process; none comes back once it was killed."""
    one = server(tmp_path, restarts=restarts)
    one.start()
    end = time.monotonic() + (30 if restarts else 1)
    while len(lines(tmp_path / "ids")) < 2 and time.monotonic() < end:
        time.sleep(0.05)
    one.kill()
    started = lines(tmp_path / "ids")
    assert (len(set(started)) > 1) is restarts
    time.sleep(1)
    assert lines(tmp_path / "ids") == started
