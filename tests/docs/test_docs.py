"""The documents: links inside the repository lead to something, and what the README promises exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kinema_core.model.strategy import CHOICES
from kinema_core.model.vocabulary import (
    DELETION_COST,
    DISRUPTION_COST,
    DO_NOT_DISRUPT,
    DO_NOT_MOVE,
    PREFER_NO_EVICTION,
    PRICE,
    SAFE_TO_EVICT,
    SCALE_DOWN_DISABLED,
    SPOT,
    SPOT_MAX_SHARE,
    SPOT_MAX_SHARE_PER_POOL,
    STEERING,
    STRATEGY,
)
from kinema_observer.adapters.source import RESOURCES
from kinema_predictor.logic.forecast import MAX_STEP, MODE, RISK

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def anchors(path: Path) -> set[str]:
    """The anchors of a document's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    made = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return made | set(re.findall(r'<a id="([^"]+)"', path.read_text(encoding="utf-8")))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(document: Path) -> None:
    """A relative link names a file of the repository, and a heading in it where it names one."""
    for link in re.findall(r"\]\(([^)\s]+)\)", document.read_text(encoding="utf-8")):
        if link.startswith(("http://", "https://")):
            continue
        name, _, heading = link.partition("#")
        target = (document.parent / name).resolve() if name else document
        assert target.exists(), link
        if heading and target.suffix == ".md" and document.name != "events.md":
            assert heading in anchors(target), link


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_command_holds_a_password(document: Path) -> None:
    """Other users of a machine see the arguments of a command: a user stands in an address, its password in a file."""
    assert not re.findall(r"(?:nats|tls)://[^\s/@`]+:[^\s/@`]*@", document.read_text(encoding="utf-8"))


def test_every_annotation_that_controls_moves_is_listed() -> None:
    """One table lists what owners may write on pods, workloads and nodes, with each strategy."""
    text = (ROOT / "docs/annotations.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `([a-z.-]+/[a-z-]+)` \| (.+) \|$", text, flags=re.MULTILINE))
    assert rows.keys() == {
        MAX_STEP,
        MODE,
        RISK,
        DELETION_COST,
        DO_NOT_DISRUPT,
        DO_NOT_MOVE,
        PREFER_NO_EVICTION,
        PRICE,
        DISRUPTION_COST,
        SAFE_TO_EVICT,
        SCALE_DOWN_DISABLED,
        SPOT,
        SPOT_MAX_SHARE,
        SPOT_MAX_SHARE_PER_POOL,
        STEERING,
        STRATEGY,
    }
    assert all(f"`{way}`" in rows[STRATEGY] for way in CHOICES)


def test_readme_is_short_and_names_its_verbs_truly() -> None:
    """At most 100 lines; every `make` verb in it is one of the Makefile."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    verbs = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    assert len(text.splitlines()) <= 100
    assert set(re.findall(r"^make ([a-z]+)", text, flags=re.MULTILINE)) <= verbs


def test_every_decision_is_listed_and_has_its_parts() -> None:
    """Each ADR has context, options, decision and what it does not decide, and stands in the list."""
    listed = (ROOT / "docs/adr/README.md").read_text(encoding="utf-8")
    decisions = sorted((ROOT / "docs/adr").glob("0*.md"))
    assert decisions
    for path in decisions:
        assert path.name in listed
        assert {"context", "options", "decision", "not-decided-here"} <= anchors(path)


def test_readme_takes_every_kind_that_a_snapshot_is_read_for() -> None:
    """A kind that the command leaves out is missing in every plan made from its file; kubectl fails on absent ones."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (taken,) = re.findall(r"^kubectl get (\S+) -A -o json", text, flags=re.MULTILINE)
    read = {resource.path.rpartition("/")[2] for resource in RESOURCES}
    assert set(taken.split(",")) == read - {"verticalpodautoscalers"}
