"""Settings: read strictly, with errors that name file and path."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kinema_core.runtime.settings import RuntimeSettings, SettingsError, load


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of some service."""

    runtime: RuntimeSettings
    limit: int = 5


def write(directory: Path, content: Any) -> Path:
    """A settings file."""
    path = directory / "settings.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def test_reads_what_is_written(tmp_path: Path) -> None:
    """Given fields hold, the others have their defaults."""
    path = write(tmp_path, {"runtime": {"cluster": "prod.eu", "clock_speed": 10}, "limit": 7})
    settings = load(Settings, path)
    assert (settings.limit, settings.runtime.cluster, settings.runtime.clock_speed) == (7, "prod.eu", 10)
    assert settings.runtime.nats_url == "nats://127.0.0.1:4222"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"runtime": {"cluster": "c"}, "limt": 7}, ["limt"]),
        ({"runtime": {"cluster": "c", "nats_usr": "x"}}, ["nats_usr", "$.runtime"]),
        ({"runtime": {"cluster": "c"}, "limit": "7"}, ["$.limit", "int"]),
        ({"limit": 7}, ["runtime"]),
        ({"runtime": {}}, ["cluster", "$.runtime"]),
        ({"runtime": {"cluster": ""}}, ["cluster is empty", "$.runtime"]),
        ({"runtime": {"cluster": "c", "clock_speed": 0}}, ["clock_speed is 0", "above 0"]),
        ({"runtime": {"cluster": "c", "clock_epoch": "2026-01-01T00:00:00Z"}}, ["clock_started", "both or neither"]),
        ({"runtime": {"cluster": "c", "clock_epoch": "2026-01-01T00:00:00", "clock_started": 1}}, ["time zone"]),
        ({"runtime": {"cluster": "c", "health_port": 70000}}, ["health_port is 70000"]),
        ({"runtime": {"cluster": "c", "log_format": "xml"}}, ["$.runtime.log_format"]),
        ("{", ["truncated"]),
    ],
)
def test_errors_name_file_path_and_key(tmp_path: Path, content: Any, words: list[str]) -> None:
    """Whatever is wrong, one line names the file, where in it, and what."""
    path = write(tmp_path, content)
    with pytest.raises(SettingsError) as caught:
        load(Settings, path)
    text = str(caught.value)
    assert text.startswith(f"{path}: ")
    assert "\n" not in text
    assert all(word in text for word in words), text


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """A settings file that is not there is an error that names it."""
    with pytest.raises(SettingsError, match=r"nowhere\.json: No such file"):
        load(Settings, tmp_path / "nowhere.json")


def test_the_password_comes_from_its_file(tmp_path: Path) -> None:
    """A password file takes the place of the password; one that cannot be read is named."""
    file = tmp_path / "password"
    file.write_text("secret\n", encoding="utf-8")
    assert RuntimeSettings(cluster="c", nats_password="other").password() == "other"
    assert RuntimeSettings(cluster="c", nats_password="other", nats_password_file=str(file)).password() == "secret"
    with pytest.raises(SettingsError, match=r"nats_password_file .*missing"):
        RuntimeSettings(cluster="c", nats_password_file=str(tmp_path / "missing")).password()


def test_the_clock_runs_as_set() -> None:
    """The service's clock starts at the epoch and runs at the speed that the settings give."""
    settings = msgspec.convert(
        {"cluster": "c", "clock_speed": 10, "clock_epoch": "2026-01-01T00:00:00Z", "clock_started": 0.0},
        RuntimeSettings,
    )
    clock = settings.clock()
    assert clock.speed == 10
    # 56 years of real time at ten times the speed.
    assert clock.now().year > 2500
