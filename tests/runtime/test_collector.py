"""Programs import what they consist of without the collector and without rich."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

import pytest

PROGRAMS = (
    "kinema_observer.__main__",
    "kinema_predictor.__main__",
    "kinema_optimizer.__main__",
    "kinema_optimizer.process.solver",
    "kinema_optimizer.process.worker",
    "kinema_decider.__main__",
    "kinema_rescheduler.__main__",
    "kinema_sim.__main__",
)
SHOWN: Final = "import gc, sys; print(gc.get_freeze_count() > 10_000, 'rich' in sys.modules, gc.isenabled())"


def shown(code: str) -> str:
    """What a fresh interpreter prints."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_is_imported_without_looking_for_garbage(program: str) -> None:
    """What was imported is looked at neither then nor later, and a library that only draws is left out."""
    assert shown(f"import {program}\n{SHOWN}") == "True False True\n"


BLOCK: Final = "from kinema_core.runtime.collector import quick_imports\nwith quick_imports():\n    import "


def test_what_was_there_before_stays() -> None:
    """Where rich was imported already, and the collector is off, both stay so."""
    assert shown(f"import rich, gc\ngc.disable()\n{BLOCK}rich\n{SHOWN}") == "False True False\n"


def test_an_import_that_fails_leaves_everything_as_it_was() -> None:
    """The collector is on again, and rich can be imported."""
    failing = (
        "\n    ".join(("try:", *f"{BLOCK}no_such_module".split("\n"))) + "\nexcept ModuleNotFoundError: import rich"
    )
    assert shown(f"{failing}\n{SHOWN}").split()[1:] == ["True", "True"]
