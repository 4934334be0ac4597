"""Settings that every service has, and how settings are read.

A settings file is JSON. A variable of the environment overrides a setting in it: `KINEMA__RUNTIME__NATS_URL` is
`runtime.nats_url`. Unknown names are refused, and an error names the file or the variable and what was expected.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Final, Literal, TypeAlias, TypeVar, get_origin

import msgspec

from kinema_core.ranges import NotNegative, Positive, alternatives, between, check_ranges
from kinema_core.runtime.clock import SystemClock

T = TypeVar("T")
LeaseSeconds: TypeAlias = Annotated[float, between(3)]
"""Life of a lease: leases count whole seconds, and their holders renew them several times in it."""

OVERRIDE: Final = "KINEMA__"
"""Beginning of the variables that override settings; `__` separates the names on the way to one."""
NATS_FILES: Final = (
    "nats_password_file",
    "nats_seed_file",
    "nats_creds_file",
    "nats_ca_file",
    "nats_cert_file",
    "nats_key_file",
)
"""Settings that name a file with a secret for the broker, or a certificate."""
_PLACE: Final = re.compile(r" - at `\$\.?([^`]*)`$")
_UNKNOWN: Final = re.compile(r"^Object contains unknown field `[^`]*`(?: - at `\$(?P<place>[^`]*)`)?$")
_UNKNOWN_KIND: Final = re.compile(r"^Invalid value '.*' - at `\$(?P<place>[^`]*)\.[a-z]+`$")
_MISSING: Final = re.compile(r"^Object missing required field `(?P<name>[^`]*)`(?: - at `\$(?P<place>[^`]*)`)?$")


class SettingsError(Exception):
    """The settings cannot be used; the text names file, path and what to do."""


class RuntimeSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings that every service needs."""

    cluster: str
    """Name of the cluster whose pipeline this is."""
    nats_url: str = "nats://127.0.0.1:4222"
    """One address, or several of one broker cluster separated by commas: `tls://host:4222`. It holds no user."""
    nats_user: str = ""
    """User at the broker: as a rule the service's name."""
    nats_password: str = ""
    """Its password; better in a file."""
    nats_password_file: str = ""
    """File that holds the password; takes the place of `nats_password`. It is read at each attempt to connect."""
    nats_seed_file: str = ""
    """File with the seed (`SU…`) of an NKEY user; read like the password's file."""
    nats_creds_file: str = ""
    """File with JWT and seed of a user, as `nsc` writes it (`.creds`); read like the password's file."""
    nats_ca_file: str = ""
    """File in PEM with the authorities that may have signed the broker's certificate; empty: those of the system."""
    nats_cert_file: str = ""
    """File in PEM with the client's certificate, for a broker that asks for one; read like the password's file."""
    nats_key_file: str = ""
    """File in PEM with the certificate's private key; empty: it stands in `nats_cert_file`."""
    nats_server_name: str = ""
    """Name that the broker's certificate has; empty: the host in the address."""
    nats_connect_seconds: NotNegative = 30.0
    """Real seconds to wait for the broker at start."""
    health_host: str = "127.0.0.1"
    """Address on which probes and metrics are served; `0.0.0.0` in a pod, so that the kubelet can ask."""
    health_port: Annotated[int, between(0, 65535)] = 8080
    """Port of probes and metrics; 0 takes any free one."""
    traces_url: str = ""
    """Address to which spans are sent by OTLP over HTTP, such as `http://collector:4318/v1/traces`; empty: none are
    made. It needs the extra `traces` of kinema-core."""
    log_format: Literal["auto", "json", "console"] = "auto"
    """`auto`: for people on a terminal, else JSON."""
    clock_speed: Positive = 1.0
    """Seconds of the cluster's clock in a real second; other than 1 only beside a simulated cluster."""
    clock_epoch: datetime | None = None
    """Cluster time at `clock_started` (Unix seconds); both or neither."""
    clock_started: float | None = None
    """When the cluster's clock showed `clock_epoch`; both or neither."""

    def __post_init__(self) -> None:
        """Refuse what no type can."""
        check_ranges(self)
        if not self.cluster:
            raise ValueError("cluster is empty: give the cluster a name")
        if (self.clock_epoch is None) != (self.clock_started is None):
            raise ValueError("clock_epoch and clock_started belong together: set both or neither")
        if self.clock_epoch is not None and self.clock_epoch.tzinfo is None:
            raise ValueError("clock_epoch names no time zone: write it in UTC, with a Z")
        if "@" in self.nats_url:  # addresses stand in logs and errors
            raise ValueError("nats_url holds a user or a password: set nats_user and nats_password_file")
        if self.nats_seed_file and self.nats_creds_file:
            raise ValueError("nats_seed_file and nats_creds_file are both set: use one")
        if self.nats_key_file and not self.nats_cert_file:
            raise ValueError("nats_key_file is set without nats_cert_file: set both")

    def __repr__(self) -> str:
        """Return the settings as text without the password, which must not get into a traceback or a log."""
        fields = {**msgspec.structs.asdict(self), "nats_password": "…" if self.nats_password else ""}
        return f"RuntimeSettings({', '.join(f'{name}={value!r}' for name, value in fields.items())})"

    @property
    def encrypted(self) -> bool:
        """Return whether the broker must speak TLS."""
        urls = self.nats_url.split(",")
        return any(url.strip().startswith("tls:") for url in urls) or any(
            (self.nats_ca_file, self.nats_cert_file, self.nats_server_name)
        )

    @property
    def renewable(self) -> bool:
        """Return whether a secret lies in a file, where it may change."""
        return any(getattr(self, name) for name in NATS_FILES)

    def password(self) -> str:
        """Return the password for the broker; raises SettingsError when its file cannot be read."""
        file = self.file("nats_password_file")
        return self.nats_password if file is None else Path(file).read_text(encoding="utf-8").strip()

    def file(self, setting: str) -> str | None:
        """Return the file that a setting names, None without one; raises SettingsError when it cannot be read."""
        path: str = getattr(self, setting)
        if not path:
            return None
        try:
            with Path(path).open("rb"):
                return path
        except OSError as error:
            raise SettingsError(f"{setting} {path}: {error.strerror}") from error

    def clock(self) -> SystemClock:
        """Return the clock that the service lives by."""
        return SystemClock(speed=self.clock_speed, epoch=self.clock_epoch, started=self.clock_started)


def overrides(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that override settings; an outer value comes before those inside it."""
    found = [name for name in environment if name.startswith(OVERRIDE)]
    return {name: environment[name] for name in sorted(found, key=lambda name: (name.count("__"), name))}


def load(kind: type[T], path: str | Path = "", environment: Mapping[str, str] | None = None) -> T:
    """Return settings from a JSON file, from variables of the environment, or from a file that variables override.

    Raises:
        SettingsError: the text names the file or the variable, the place in the settings, and what was expected there.
    """
    values: dict[str, Any] = _read(path) if path else {}
    variables = overrides(environment or {})
    for name, text in variables.items():
        try:
            _override(values, kind, _names(name), text)
        except ValueError as error:
            raise SettingsError(f"{name}: {error}") from error
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        guilty = next((name for name in variables if _concerns(str(error), _names(name))), "")
        raise SettingsError(
            f"{guilty or path or 'environment'}: {error}{known_names(kind, str(error), values)}"
        ) from error


def known_names(kind: Any, fault: str, given: object) -> str:  # noqa: ANN401 - any type
    """Return which settings, or kinds, there are where msgspec's message names an unknown one of what was given.

    So also where it names a missing value that may be of several kinds. Empty for other messages.
    """
    found = _UNKNOWN.search(fault) or _UNKNOWN_KIND.search(fault) or _MISSING.search(fault)
    if found is None:
        return ""
    for name in re.findall(r"[a-z_]+", found["place"] or ""):
        kind = _fields(kind, given).get(name)
        given = given.get(name) if isinstance(given, Mapping) else None
    if found.re is _MISSING:
        kinds = _kinds(kind, found["name"]) or _kinds(_fields(kind, given).get(found["name"]))
        return f"; name its kind: {', '.join(kinds)}" if kinds else ""
    known: Iterable[str] = _kinds(kind) if found.re is _UNKNOWN_KIND else _fields(kind, given)
    names = ", ".join(known)
    return f"; there are {names}" if names else ""


def _read(path: str | Path) -> dict[str, Any]:
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=dict[str, Any])
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise SettingsError(f"{path}: {error}") from error


def _names(variable: str) -> list[str]:
    return variable.removeprefix(OVERRIDE).lower().split("__")


def _override(values: dict[str, Any], kind: Any, names: list[str], text: str) -> None:  # noqa: ANN401 - any type
    """Set the value that the names lead to, each a setting of the kind that the name before it has.

    Raises:
        ValueError: there is no such setting, or the text is not a value for it.
    """
    name, rest = names[0], names[1:]
    fields = _fields(kind)
    if name not in fields:
        known = f"there are {', '.join(fields)}" if fields else "it holds no settings by name: give it a value as JSON"
        raise ValueError(f"there is no setting {name!r}; {known}")
    if rest:
        inner = values.get(name)
        values[name] = inner = dict(inner) if isinstance(inner, dict) else {}
        _override(inner, fields[name], rest, text)
        return
    values[name] = _value(fields[name], text)


def _fields(kind: Any, given: object = None) -> dict[str, Any]:  # noqa: ANN401 - any type
    """Return the settings inside a value of this type: of a struct, or of any of those that it may be.

    Of those, only the one whose kind the given value names, if it names one.
    """
    found: dict[str, Any] = {}
    for one in alternatives(kind):
        if isinstance(one, type) and issubclass(one, msgspec.Struct):
            tag = one.__struct_config__
            if tag.tag_field is not None:
                if isinstance(given, Mapping) and given.get(tag.tag_field, tag.tag) != tag.tag:
                    continue
                found[tag.tag_field] = str
            found.update({field.encode_name: field.type for field in msgspec.structs.fields(one)})
    return found


def _kinds(kind: Any, field: str = "") -> list[str]:  # noqa: ANN401 - any type
    """Return the kinds that a value of this type may be of; with a field, only where that field names them."""
    structs = [one for one in alternatives(kind) if isinstance(one, type) and issubclass(one, msgspec.Struct)]
    tags = [one.__struct_config__ for one in structs]
    return [str(one.tag) for one in tags if one.tag is not None and field in ("", one.tag_field)]


def _value(kind: Any, text: str) -> Any:  # noqa: ANN401 - any type
    """Return the value that a text stands for: the text itself where the type has text, else what it is as JSON."""
    kinds = alternatives(kind)
    is_null = text == "null" and NoneType in kinds
    if not is_null and any(one in {str, datetime} or get_origin(one) is Literal for one in kinds):
        return text
    try:
        return msgspec.json.decode(text.encode())
    except msgspec.DecodeError:
        raise ValueError(f"{text!r} is no JSON: write a number, true, false, null, a list or an object") from None


def _concerns(fault: str, names: list[str]) -> bool:
    """Return whether a fault that was found in the whole is about the setting that these names lead to."""
    place = _PLACE.search(fault)
    where = re.findall(r"[a-z_]+", place[1]) if place is not None else []
    if where[: len(names)] == names:
        return True
    # A check of several settings together tells the object that they are in, and names them in its text.
    return names[: len(where)] == where and re.search(rf"\b{re.escape(names[-1])}\b", fault) is not None
