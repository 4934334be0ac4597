"""Compiled loops: one cache key over the files of all of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import kinema_optimizer
from kinema_optimizer.columns.compiled import FILES

PACKAGE = Path(kinema_optimizer.__file__).parent


def test_every_file_with_kernels_is_in_the_key() -> None:
    """A kernel in a file that the key does not know would be cached as long as that file alone is the same."""
    found = {str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py") if "\n@kernel" in path.read_text()}
    assert found == set(FILES)


@pytest.mark.slow
def test_an_edit_of_one_file_reaches_the_kernels_of_others(tmp_path: Path) -> None:
    """A function that is compiled into a kernel of another file is new there after an edit of its own file."""
    package = tmp_path / "kinema_optimizer"
    for name in ("__init__.py", "columns/__init__.py", "columns/compiled.py", *FILES):
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text((PACKAGE / name).read_text() if name.endswith("compiled.py") else "")
    head = "from kinema_optimizer.columns.compiled import kernel\n"
    inner, outer = package / "columns/knapsack.py", package / "columns/pricing.py"
    outer.write_text(
        f"{head}from kinema_optimizer.columns.knapsack import inner\n\n\n@kernel\ndef outer(x):\n    return inner(x)\n"
    )
    for factor in (2, 3):
        inner.write_text(f"{head}\n\n@kernel\ndef inner(x):\n    return x * {factor}\n")
        call = [sys.executable, "-c", "from kinema_optimizer.columns.pricing import outer; print(outer(7))"]
        environment = {**os.environ, "PYTHONPATH": str(tmp_path), "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
        ran = subprocess.run(call, env=environment, capture_output=True, text=True, check=True)
        assert ran.stdout == f"{7 * factor}\n"
