"""The command answers at once: verbs load what they need only when they are called."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = (
    "matplotlib",
    "jinja2",
    "highspy",
    "numba",
    "llvmlite",
    "numpy",
    "aiohttp",
    "nats",
    "kubernetes",
    "rich",
    "kinema_core",
    "kinema_optimizer",
)


def loaded(statement: str) -> set[str]:
    """Modules that a fresh interpreter has loaded after a statement."""
    script = f"import sys; {statement}; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize("module", ["plan.command", "explain.command", "status.command", "inputs", "output", "main"])
def test_module_of_a_verb_loads_nothing_heavy(module: str) -> None:
    """Importing what registers a verb imports none of the libraries that it will use."""
    assert not set(HEAVY) & loaded(f"import kinema_cli.{module}")


def test_help_loads_nothing_heavy() -> None:
    """Help is printed without any of them."""
    call = "from typer.testing import CliRunner; from kinema_cli.main import app; CliRunner().invoke(app, ['--help'])"
    assert not set(HEAVY) & loaded(call)


@pytest.mark.parametrize(
    "module", ["status.pipeline", "explain.table", "plan.table", "report.from_plan", "plan.progress", "snapshot.file"]
)
def test_what_only_reads_and_prints_loads_no_solver(module: str) -> None:
    """Compiled kernels and solvers are loaded by the planner alone."""
    assert not {"numba", "llvmlite", "highspy"} & loaded(f"import kinema_cli.{module}")
