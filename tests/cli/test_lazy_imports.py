"""The command answers at once: verbs load what they need only when they are called."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("matplotlib", "jinja2", "highspy", "sklearn", "numpy", "aiohttp", "nats", "kubernetes", "kinema_core")


@pytest.mark.parametrize("module", ["plan_command", "status_command", "output"])
def test_module_of_a_verb_loads_nothing_heavy(module: str) -> None:
    """Importing what registers a verb imports none of the libraries that it will use."""
    script = f"import sys, kinema_cli.{module}; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert not set(HEAVY) & set(done.stdout.split())
