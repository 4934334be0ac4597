"""Compiled loops: one cache key over the files of all of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import kinema_optimizer
from kinema_optimizer.columns import compiled
from kinema_optimizer.columns.compiled import FILES

PACKAGE = Path(kinema_optimizer.__file__).parent


def test_every_file_with_kernels_is_in_the_key() -> None:
    """A kernel in a file that the key does not know would be cached as long as that file alone is the same."""
    found = {str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py") if "\n@kernel" in path.read_text()}
    assert found == set(FILES)


@pytest.mark.parametrize(("named", "same"), [("", False), ("generic", True)])
def test_kernels_for_a_named_processor_count_on_every_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str, same: bool
) -> None:
    """What was compiled for the processor that `NUMBA_CPU_NAME` names is found on another machine, else it is not."""
    monkeypatch.setenv("NUMBA_CPU_NAME", named)
    marks = []
    for flags in ("sse2", "sse2 avx512f"):
        cpuinfo = tmp_path / flags
        cpuinfo.write_text(f"flags\t: {flags}\n", encoding="utf-8")
        monkeypatch.setattr(compiled, "_CPUINFO", cpuinfo)
        marks.append(compiled._mark.__wrapped__())
    assert (marks[0] == marks[1]) == same


def test_a_read_only_package_with_compiled_kernels_is_used_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels that came with the package, as in an image, need no directory that can be written to."""
    monkeypatch.setattr(compiled, "_PACKAGE", tmp_path)
    monkeypatch.setattr(compiled, "_is_writable", lambda _directory: False)
    package = tmp_path / "columns" / "__pycache__" / "kernels"
    package.mkdir(parents=True)
    assert compiled.cache_directory.__wrapped__() is None
    (package / compiled._mark()).touch()
    assert compiled.cache_directory.__wrapped__() == package


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
    for factor in (2, 10):  # of two lengths: Python takes byte code as new by its source's second and length
        inner.write_text(f"{head}\n\n@kernel\ndef inner(x):\n    return x * {factor}\n")
        call = [sys.executable, "-c", "from kinema_optimizer.columns.pricing import outer; print(outer(7))"]
        environment = {**os.environ, "PYTHONPATH": str(tmp_path), "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
        ran = subprocess.run(call, env=environment, capture_output=True, text=True, check=True)
        assert ran.stdout == f"{7 * factor}\n"


def test_compiled_code_is_copied_into_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installation has it for all its users, and nothing that was compiled from other sources."""
    kept, package = tmp_path / "cache", tmp_path / "columns" / "__pycache__" / "kernels"
    monkeypatch.setattr(compiled, "_PACKAGE", tmp_path)
    monkeypatch.setattr(compiled, "cache_directory", lambda: kept)
    for name in (Path(compiled._mark()).stem, "kernels-of-others"):
        (kept / name).mkdir(parents=True)
        (kept / name / "code").touch()
    (package / "kernels-of-before").mkdir(parents=True)
    compiled.install_compiled()
    assert [path.name for path in package.iterdir()] == ["kernels-of-before"]  # they are not compiled yet
    compiled.note_compiled()
    compiled.install_compiled()
    found = sorted(str(path.relative_to(package)) for path in package.rglob("*") if path.is_file())
    assert found == sorted([compiled._mark(), f"{Path(compiled._mark()).stem}/code"])
    monkeypatch.undo()
    monkeypatch.setattr(compiled, "_PACKAGE", tmp_path)
    assert compiled.cache_directory.__wrapped__() == package
