"""Snapshots through a real pipe: another process reads them, as behind `cat cluster.json.zst |`."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from tests.cli.bench import CATALOG, spread, text

PACKED: dict[str, Callable[[bytes], bytes]] = {
    "plain": bytes,
    "gzip": gzip.compress,
    "zstd": zstandard.ZstdCompressor().compress,
}


def piped(given: bytes, directory: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    """The command with these words, a catalog, and the snapshot on a pipe."""
    catalog = directory / "catalog.csv"
    catalog.write_text(CATALOG)
    command = [sys.executable, "-c", "from kinema_cli.entry import run; run()", *words]
    return subprocess.run(
        [*command, "--snapshot", "-", "--catalog", str(catalog), "-o", "json"],
        input=given,
        capture_output=True,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("form", PACKED)
@pytest.mark.parametrize("words", [("plan",), ("explain", "n0")])
def test_a_snapshot_comes_through_a_pipe(form: str, words: tuple[str, ...], tmp_path: Path) -> None:
    """Packed or not, it is read to its end, and nothing closes standard input twice."""
    ended = piped(PACKED[form](text(spread())), tmp_path, *words)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("form", PACKED)
def test_a_pipe_that_ends_early_is_one_line(form: str, tmp_path: Path) -> None:
    """What was cut off is told as such, without a traceback."""
    whole = PACKED[form](text(spread()))
    ended = piped(whole[: len(whole) // 2], tmp_path, "explain", "n0")
    assert (ended.returncode, ended.stdout) == (1, b"")
    (said,) = ended.stderr.decode().splitlines()
    assert said.startswith("error: --snapshot -: ")
    assert "cut off" in said
