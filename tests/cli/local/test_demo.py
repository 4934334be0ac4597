"""The directory of `kinema demo`."""

from __future__ import annotations

from pathlib import Path

import pytest

from kinema_cli.local.demo import DemoOptions, run_demo
from kinema_cli.local.directory import clear_own, exclusive_lock


@pytest.mark.parametrize("used", [False, True], ids=["foreign", "in use"])
def test_a_directory_of_others_is_not_cleared(used: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A demo deletes only what a Kinema made that has ended, and changes nothing in other directories."""
    if used:
        clear_own(tmp_path)
    (tmp_path / "kept").mkdir()
    before = sorted(tmp_path.iterdir())
    if used:
        with exclusive_lock(tmp_path):
            assert run_demo(DemoOptions(out=tmp_path)) == 1
    else:
        assert run_demo(DemoOptions(out=tmp_path)) == 1
    assert {*before} <= {*tmp_path.iterdir()}
    assert used or sorted(tmp_path.iterdir()) == before
    assert ("is in use" if used else "was not made by Kinema") in capsys.readouterr().err


def test_a_directory_of_its_own_is_cleared_but_for_the_lock(tmp_path: Path) -> None:
    """Files, directories and links of an earlier run go; what a link points to stays, and so does a lock."""
    out, outside = tmp_path / "out", tmp_path / "outside"
    clear_own(out)
    outside.mkdir()
    (out / "logs").mkdir()
    (out / "logs" / "a.log").touch()
    (out / "link").symlink_to(outside)
    with exclusive_lock(out):
        clear_own(out)
        assert sorted(item.name for item in out.iterdir()) == [".kinema", ".kinema-lock"]
    assert outside.is_dir()
