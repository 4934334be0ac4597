"""Settings that every service has, and how settings are read.

A settings file is JSON. Unknown keys are refused, and an error names the file, the path in it and what was expected.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from kinema_core.runtime.clock import SystemClock

T = TypeVar("T")


class SettingsError(Exception):
    """The settings cannot be used; the text names file, path and what to do."""


class RuntimeSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings that every service needs."""

    cluster: str
    """Name of the cluster whose pipeline this is."""
    nats_url: str = "nats://127.0.0.1:4222"
    """One address, or several of one broker cluster separated by commas."""
    nats_user: str = ""
    """User at the broker: as a rule the service's name."""
    nats_password: str = ""
    """Its password; better in a file."""
    nats_password_file: str = ""
    """File that holds the password; takes the place of `nats_password`."""
    nats_connect_seconds: float = 30.0
    """Real seconds to wait for the broker at start."""
    health_host: str = "127.0.0.1"
    """Address on which probes and metrics are served; `0.0.0.0` in a pod, so that the kubelet can ask."""
    health_port: int = 8080
    """Port of probes and metrics; 0 takes any free one."""
    log_format: Literal["auto", "json", "console"] = "auto"
    """`auto`: for people on a terminal, else JSON."""
    clock_speed: float = 1.0
    """Seconds of the cluster's clock in a real second; other than 1 only beside a simulated cluster."""
    clock_epoch: datetime | None = None
    """Cluster time at `clock_started` (Unix seconds); both or neither."""
    clock_started: float | None = None
    """When the cluster's clock showed `clock_epoch`; both or neither."""

    def __post_init__(self) -> None:
        """Refuse what no type can."""
        if not self.cluster:
            message = "cluster is empty: give the cluster a name"
            raise ValueError(message)
        if self.clock_speed <= 0:
            message = f"clock_speed is {self.clock_speed}: it must be above 0"
            raise ValueError(message)
        if (self.clock_epoch is None) != (self.clock_started is None):
            message = "clock_epoch and clock_started belong together: set both or neither"
            raise ValueError(message)
        if self.clock_epoch is not None and self.clock_epoch.tzinfo is None:
            message = "clock_epoch names no time zone: write it in UTC, with a Z"
            raise ValueError(message)
        if not 0 <= self.health_port < 65536:
            message = f"health_port is {self.health_port}: use 0 to 65535"
            raise ValueError(message)

    def password(self) -> str:
        """The password for the broker; raises SettingsError when its file cannot be read."""
        if not self.nats_password_file:
            return self.nats_password
        try:
            return Path(self.nats_password_file).read_text(encoding="utf-8").strip()
        except OSError as error:
            message = f"nats_password_file {self.nats_password_file}: {error.strerror}"
            raise SettingsError(message) from error

    def clock(self) -> SystemClock:
        """The clock that the service lives by."""
        return SystemClock(speed=self.clock_speed, epoch=self.clock_epoch, started=self.clock_started)


def load(kind: type[T], path: str | Path) -> T:
    """Read settings of a kind from a JSON file; raises SettingsError naming the file and the path in it."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        message = f"{path}: {error.strerror}"
        raise SettingsError(message) from error
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.DecodeError as error:
        message = f"{path}: {error}"
        raise SettingsError(message) from error
