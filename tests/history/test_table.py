"""The table of plans by feature tells what the lines of several runs say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.history.table import read, table
from tests.history.verdict import Verdict

ONE = Verdict(1, "finished", (), 0.6, 0.2, 0.2, 5, 0, 9, 20.0, None, took=10.0, third=0.5, steered=4, landed=4)


def test_plans_count_for_each_of_their_features(tmp_path: Path) -> None:
    """What was written is read, and a feature's line has the plans and pods of its own."""
    plans = [replace(ONE, features=("quota", "default")), replace(ONE, landed=3, reached=0.7, features=("default",))]
    file = tmp_path / "plans.jsonl"
    file.write_text("".join(f"{one.line()}\n" for one in plans))
    assert read(file) == plans
    every, default, quota = list(table(read(file)))[2:]
    assert every == "| all | 2 | 8 | 87.5% | 10 s | 38% | 1.00 | 0 | 1 | 100% | 0 |"
    assert default == every.replace("all", "default")
    assert quota == "| quota | 1 | 4 | 100.0% | 10 s | 100% | 1.00 | 0 | 0 | 100% | 0 |"
