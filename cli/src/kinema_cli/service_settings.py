"""A file with settings of several services, JSON or YAML: `{"decider": {"limits": {"min_saving": 0.05}}}`."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from kinema_cli.inputs import InputError
from kinema_cli.pipeline import SERVICES
from kinema_core.runtime.yaml_files import yaml_fault


def read_service_settings(path: Path, supplied: Mapping[str, Mapping[str, object]]) -> dict[str, dict[str, object]]:
    """The settings by service, each checked as the service itself would.

    Args:
        path: the file.
        supplied: what is set beside, by service; not part of the result.

    Raises:
        InputError: names the file, the service, the place in its settings and what is wrong there.
    """
    try:
        found = msgspec.yaml.decode(path.read_bytes(), type=dict[str, dict[str, Any]])
    except OSError as error:
        raise InputError(f"--settings {path}: {error.strerror}") from error
    except msgspec.MsgspecError as error:
        raise InputError(
            f"--settings {path}: {yaml_fault(error)}: write settings by service, as in `decider: {{…}}`"
        ) from error
    for service, settings in found.items():
        if service not in SERVICES:
            raise InputError(f"--settings {path}: {service!r} is no service: there are {', '.join(SERVICES)}")
        runtime = {"cluster": "checked", **settings.get("runtime", {})}
        try:
            kind = import_module(f"kinema_{service}.settings").Settings
            msgspec.convert({**supplied.get(service, {}), **settings, "runtime": runtime}, kind)
        except (msgspec.ValidationError, TypeError) as error:
            raise InputError(f"--settings {path}: {service}: {error}") from error
    return found
