"""Settings: read strictly, with errors that name file and path."""

from __future__ import annotations

import json
import math
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest

from kinema_core.ranges import Share, between, check_ranges
from kinema_core.runtime.settings import RuntimeSettings, SettingsError, load


class Red(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="red"):
    """One thing that a setting may be."""

    url: str


class Blue(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="blue"):
    """Another one."""

    depth: float | None = 1.0


class Ranged(msgspec.Struct, frozen=True, kw_only=True):
    """Settings with ranges."""

    share: Share | None = None
    risk: Annotated[float, between(0, 0.5, above=True)] = 0.1
    attempts: Annotated[int, between(1)] = 1

    def __post_init__(self) -> None:
        """Refuse what no type can."""
        check_ranges(self, "limits.")


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of some service."""

    runtime: RuntimeSettings
    limit: int = 5
    color: Red | Blue = Blue()
    names: tuple[str, ...] = ()
    fraction: str | float = "0"


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
        ({"runtime": {"cluster": "c"}, "limt": 7}, ["limt", "there are runtime, limit, color"]),
        ({"runtime": {"cluster": "c", "nats_usr": "x"}}, ["nats_usr", "$.runtime", "nats_user"]),
        ({"runtime": {"cluster": "c"}, "limit": "7"}, ["$.limit", "int"]),
        ({"limit": 7}, ["runtime"]),
        ({"runtime": {}}, ["cluster", "$.runtime"]),
        ({"runtime": {"cluster": "c", "nats_seed_file": "a", "nats_creds_file": "b"}}, ["both set", "$.runtime"]),
        ({"runtime": {"cluster": "c", "nats_url": "nats://u:p@h"}}, ["nats_url holds a user", "nats_password_file"]),
        ({"runtime": {"cluster": "c", "nats_key_file": "a"}}, ["without nats_cert_file", "$.runtime"]),
        ({"runtime": {"cluster": ""}}, ["cluster is empty", "$.runtime"]),
        ({"runtime": {"cluster": "c", "clock_speed": 0}}, ["clock_speed is 0", "more than 0"]),
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


def test_variables_override_the_file(tmp_path: Path) -> None:
    """A variable takes the place of one setting, text as it stands, all else as JSON; the others stay."""
    path = write(tmp_path, {"runtime": {"cluster": "c", "nats_user": "u"}, "limit": 7, "color": {"kind": "blue"}})
    settings = load(
        Settings,
        path,
        {
            "KINEMA__RUNTIME__NATS_URL": "nats://broker:4222",
            "KINEMA__RUNTIME__NATS_PASSWORD": "123",
            "KINEMA__RUNTIME__HEALTH_PORT": "81",
            "KINEMA__RUNTIME__LOG_FORMAT": "json",
            "KINEMA__RUNTIME__CLOCK_EPOCH": "2026-01-01T00:00:00Z",
            "KINEMA__RUNTIME__CLOCK_STARTED": "1.5",
            "KINEMA__COLOR__DEPTH": "null",
            "KINEMA__NAMES": '["a", "b"]',
            "KINEMA__FRACTION": "0.10",
            "KINEMA_SETTINGS": "elsewhere",
        },
    )
    runtime = settings.runtime
    assert (runtime.cluster, runtime.nats_user, runtime.nats_url) == ("c", "u", "nats://broker:4222")
    assert (runtime.nats_password, runtime.health_port, runtime.log_format) == ("123", 81, "json")
    assert (runtime.clock_started, runtime.clock_epoch) == (1.5, datetime(2026, 1, 1, tzinfo=UTC))
    assert (settings.limit, settings.color, settings.names, settings.fraction) == (
        7,
        Blue(depth=None),
        ("a", "b"),
        "0.10",
    )


def test_variables_need_no_file() -> None:
    """A kind and what belongs to it come from variables alone, an inner one after the value that it changes."""
    environment = {
        "KINEMA__RUNTIME__CLUSTER": "c",
        "KINEMA__COLOR__URL": "http://b",
        "KINEMA__COLOR": '{"kind": "red", "url": "http://a"}',
    }
    assert load(Settings, environment=environment).color == Red(url="http://b")


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("KINEMA__RUNTIM__NATS_URL", "x", ["no setting 'runtim'", "runtime, limit, color"]),
        ("KINEMA__RUNTIME__NATS_USR", "x", ["no setting 'nats_usr'", "nats_user"]),
        ("KINEMA__LIMIT__TOO", "x", ["no setting 'too'", "JSON"]),
        ("KINEMA__LIMIT", "many", ["'many' is no JSON"]),
        ("KINEMA__LIMIT", "1.5", ["$.limit", "int"]),
        ("KINEMA__RUNTIME__LOG_FORMAT", "xml", ["$.runtime.log_format"]),
        ("KINEMA__RUNTIME__HEALTH_PORT", "70000", ["health_port is 70000"]),
        ("KINEMA__NAMES", "[1]", ["$.names[0]"]),
        ("KINEMA__COLOR__KIND", "green", ["$.color.kind", "green"]),
        ("KINEMA__", "x", ["no setting ''"]),
    ],
)
def test_errors_name_the_variable(tmp_path: Path, variable: str, value: str, words: list[str]) -> None:
    """Whatever a variable has wrong, one line names it, where it leads, and what was expected."""
    path = write(tmp_path, {"runtime": {"cluster": "c"}})
    with pytest.raises(SettingsError) as caught:
        load(Settings, path, {variable: value, "KINEMA__FRACTION": "0.5"})
    text = str(caught.value)
    assert text.startswith(f"{variable}: ")
    assert "\n" not in text
    assert all(word in text for word in words), text


def test_a_fault_of_the_file_names_the_file_beside_variables(tmp_path: Path) -> None:
    """A variable that is right takes no blame for the file."""
    path = write(tmp_path, {"runtime": {"cluster": "c", "clock_speed": 0}})
    with pytest.raises(SettingsError) as caught:
        load(Settings, path, {"KINEMA__RUNTIME__NATS_USER": "clock"})
    assert str(caught.value).startswith(f"{path}: clock_speed is 0")


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


def test_no_text_of_the_settings_shows_a_secret() -> None:
    """Neither their own, as in a traceback, nor an error about an address that holds one."""
    assert "hidden" not in repr(RuntimeSettings(cluster="c", nats_password="hidden"))
    with pytest.raises(ValueError, match="set nats_user and nats_password_file") as caught:
        RuntimeSettings(cluster="c", nats_url="nats://u:hidden@h")
    assert "hidden" not in str(caught.value)


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


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"share": 3}, "limits.share is 3: use 0 to 1"),
        ({"share": math.nan}, "limits.share is nan: use 0 to 1"),
        ({"risk": 0}, "limits.risk is 0: use more than 0 and at most 0.5"),
        ({"risk": 0.6}, "limits.risk is 0.6: use more than 0 and at most 0.5"),
        ({"attempts": 0}, "limits.attempts is 0: use 1 or more"),
        ({"attempts": math.inf}, "limits.attempts is inf: use 1 or more"),
    ],
)
def test_a_range_is_kept_by_what_python_makes(given: dict[str, Any], said: str) -> None:
    """Name, value and range are in the error; the ends that belong to a range, and null, are within."""
    with pytest.raises(ValueError, match=f"^{re.escape(said)}$"):
        Ranged(**given)
    Ranged(share=1, risk=0.5, attempts=1)
    Ranged(share=0)


def test_a_range_is_in_the_schema() -> None:
    """The charts refuse then what the service would."""
    parts = msgspec.json.schema(Ranged)["$defs"]["Ranged"]["properties"]
    assert parts["share"]["anyOf"][0] == {"type": "number", "minimum": 0, "maximum": 1}
    assert (parts["risk"]["exclusiveMinimum"], parts["risk"]["maximum"]) == (0, 0.5)
    assert (parts["attempts"]["minimum"], "maximum" in parts["attempts"]) == (1, False)
