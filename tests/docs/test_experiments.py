"""Scenario files of the experiments: each can be read, and the page names it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kinema_sim.simulate.scenario import read_scenario

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "experiments"
FILES = sorted(FOLDER.glob("*.yaml"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_scenario_of_the_experiments_is_read(file: Path) -> None:
    """Its name is that of its file."""
    assert read_scenario(file).scenario.name == file.stem


def test_there_are_experiments() -> None:
    """A pattern that finds no file would pass."""
    assert len(FILES) >= 10
