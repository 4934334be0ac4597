"""The event catalog in docs/events.md."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools import event_catalog

from kinema_core.events import BODIES


def test_document_is_up_to_date() -> None:
    """docs/events.md is what the structs give: run `python tools/event_catalog.py` after changing one."""
    assert event_catalog.main(["--check"]) == 0


def test_every_event_is_there_with_its_publisher_and_fields() -> None:
    """Each body has a section with who publishes it and a row for each of its fields on the wire."""
    text = event_catalog.catalog()
    for body in BODIES:
        section = text.split(f"### {body.TYPE}\n", 1)[1].split("\n###", 1)[0].split("\n## ", 1)[0]
        assert "Published by: ." not in section
        for field in body.__struct_encode_fields__:
            assert f"| `{field}` |" in section


def test_links_lead_somewhere() -> None:
    """Each link inside the document has a heading or an anchor."""
    text = event_catalog.catalog()
    targets = {line.removeprefix("### ").lower() for line in text.splitlines() if line.startswith("### ")}
    targets |= {part.split('"')[0] for part in text.split('<a id="')[1:]}
    links = {part.split(")")[0] for part in text.split("](#")[1:]}
    assert links <= targets


def test_check_fails_on_an_old_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A document that differs is reported by the exit code, and left as it is."""
    old = tmp_path / "events.md"
    old.write_text("# Events\n")
    monkeypatch.setattr(event_catalog, "DOC", old)
    assert event_catalog.main(["--check"]) == 1
    assert old.read_text() == "# Events\n"
    assert event_catalog.main([]) == 0
    assert event_catalog.main(["--check"]) == 0
