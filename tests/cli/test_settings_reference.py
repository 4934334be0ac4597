"""The settings reference in docs/settings.md."""

from __future__ import annotations

import re

from tools import settings_reference

from kinema_core.model.schedule import Schedule
from kinema_decider.logic.limits import Limits

ROW = re.compile(r"^\| `(?P<name>[^`]+)` \| .* \|(?: (?P<meaning>[^|]*) \||\|)$", re.MULTILINE)


def test_document_is_up_to_date() -> None:
    """docs/settings.md is what the structs give: run `python tools/settings_reference.py` after changing one."""
    assert settings_reference.main(["--check"]) == 0


def test_every_setting_has_its_line_and_a_meaning() -> None:
    """Of each service, nested ones included; a setting without a word about it cannot be set."""
    text = settings_reference.reference()
    decider = text.split("\n## decider\n", 1)[1].split("\n## ", 1)[0]
    named = {".".join(found["name"].split(".")[:2]) for found in ROW.finditer(decider)}
    assert {"runtime", *(f"limits.{name}" for name in Limits.__struct_fields__), *Schedule.__struct_fields__} == named
    assert [found["name"] for found in ROW.finditer(text) if not (found["meaning"] or "").strip()] == []


def test_units_and_defaults() -> None:
    """The unit follows from the name, the default is written as JSON, what has none is required, and a range shows."""
    text = settings_reference.reference()
    assert "| `solver.memory_limit_mib` | whole number (1 or more) | MiB | `4096` |" in text
    assert "| `limits.spot.max_share` | number (0 to 1) or null | | `null` |" in text
    assert '| `limits.approval` | `"automatic"` or `"required"` | | `"required"` |' in text
    assert "| `cluster` | text | | required |" in text
