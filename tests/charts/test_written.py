"""What tools/charts.py writes into the charts."""

from __future__ import annotations

from tools import charts


def test_charts_are_up_to_date() -> None:
    """Values, schemas, rights and users are what the code gives: run `python tools/charts.py` after changing it."""
    assert charts.main(["--check"]) == 0


def test_every_value_has_a_meaning() -> None:
    """A value without a word about it cannot be set."""
    for path, text in charts.files():
        if path.name == "README.md":
            assert [line for line in text.splitlines() if line.endswith(("|  |", "| |"))] == [], path
