"""Processes that are killed at a fault point."""

from __future__ import annotations

from pathlib import Path
from typing import Final

FAULT: Final = "KINEMA_FAULT"


def armed(fault: str) -> dict[str, str]:
    """Environment variables of a Python process that dies at a fault point (see `sitecustomize.py`); none for ""."""
    return {FAULT: fault, "PYTHONPATH": str(Path(__file__).parent)} if fault else {}
