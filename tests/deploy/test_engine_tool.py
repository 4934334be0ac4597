"""tools/engine.py: CI leaves out what no machine can do, and fails where a build or a demo does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parents[2] / "tools" / "engine.py"
OUT = "left out: /bin/sh -c exit 3, because"


@pytest.mark.parametrize(
    ("docker", "code", "said"),
    [
        pytest.param("", 0, f"{OUT} no container engine answers", id="no engine"),
        pytest.param("exit 0", 3, "", id="an engine"),
        pytest.param(
            'case "$*" in info|*version) exit 0; esac; exit 1', 0, f"{OUT} no base image can be had", id="no base"
        ),
    ],
)
def test_only_a_lacking_engine_is_left_out(tmp_path: Path, docker: str, code: int, said: str) -> None:
    """Without an engine or a base image the command is left out by name; with both its exit code is the tool's."""
    if docker:
        (tmp_path / "docker").write_text(f"#!/bin/sh\n{docker}\n")
        (tmp_path / "docker").chmod(0o755)
    done = subprocess.run(
        [sys.executable, str(TOOL), "/bin/sh", "-c", "exit 3"],
        env={"PATH": str(tmp_path), "KINEMA_CACHE": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout[: len(said)]) == (code, said), done
