"""The command line over files."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.bench import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """Three m4 nodes with one small pod each, of which one m2 would suffice, and a catalog of both."""
    return Bench(tmp_path)
