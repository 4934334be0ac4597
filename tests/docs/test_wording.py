"""Texts for users and developers are plain English: the patterns that docs/style.md bans do not come back."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BANNED = re.compile(
    r"\b(tell|tells|telling|told|nobody|somebody|whom|shall|anew|meanwhile|of late|in vain|of ours|is ours"
    r"|have a say|has a say|said so|lets? go of|gave up|given up|gives up|carried out|carries out|carry out)\b",
    re.IGNORECASE,
)
MARKS = re.compile(r"—|\d %|[A-Za-z`)]!(?=\s|$)")
"""Em dashes, a blank before a percent sign, exclamation marks at the end of a sentence."""
BRITISH = re.compile(
    r"\b(behaviour|cancelled|colour|favour|honour|labelled|maximis|minimis|modelled|neighbour|normalis|optimis|organis"
    r"|recognis|serialis|summaris|utilis)(?!tic)\w*",
    re.IGNORECASE,
)
CODE = sorted(
    path
    for folder in ("core", "kubernetes", "services", "sim", "cli")
    for path in (ROOT / folder).rglob("*.py")
    if "src" in path.parts
)
STYLE = ROOT / "docs/style.md"  # lists the patterns
PAGES = sorted({*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("services/*/README.md")} - {STYLE})


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and text of what a reader sees: docstrings, messages, help; of a page every line outside of code."""
    if path.suffix == ".py":
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.lineno, node.value
        return
    fenced = False
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        fenced ^= line.startswith("```")
        if not fenced:
            yield number, re.sub(r"`[^`]*`", "", line)


@pytest.mark.parametrize("path", [*CODE, *PAGES], ids=lambda path: str(path.relative_to(ROOT)))
def test_no_banned_pattern(path: Path) -> None:
    """Docstrings, messages, help and pages use none of the words that docs/style.md replaces."""
    found = [
        (line, match.group(0))
        for line, text in texts(path)
        for pattern in (BANNED, MARKS, BRITISH)
        for match in pattern.finditer(text)
    ]
    assert not found, f"{path.relative_to(ROOT)}: {found}; docs/style.md says what to write instead"
