"""The demo in containers on a real engine: `make containers` builds the images before."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SERVICES = ("observer", "predictor", "optimizer", "decider", "rescheduler")
SECONDS = 600

pytestmark = [pytest.mark.slow, pytest.mark.containers]


def docker(*arguments: str, check: bool = True) -> str:
    """Run docker in the clone; gives what it prints."""
    command = ["docker", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=SECONDS)
    assert not check or done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout + done.stderr


def compose(*arguments: str, check: bool = True) -> str:
    """Run docker compose on a project of this test."""
    return docker(
        "compose", "--project-name", f"kinema-test-{os.getpid()}", "--profile", "demo", *arguments, check=check
    )


@pytest.fixture
def engine() -> Iterator[None]:
    """A project that is taken down with its volumes; skips where images cannot be run."""
    if shutil.which("docker") is None:
        pytest.skip("no docker on the PATH")
    for need in (("info",), ("compose", "version")):
        said = docker(*need, check=False)
        if "Cannot connect" in said or "not a docker command" in said:
            pytest.skip(f"docker {' '.join(need)}: {said.strip().splitlines()[-1]}")
    images = docker("compose", "--profile", "demo", "config", "--images").split()
    absent = [image for image in images if "Error" in docker("image", "inspect", image, check=False)]
    if absent:
        pytest.skip(f"no image {', '.join(sorted(set(absent)))}: run `make containers`")
    yield
    compose("down", "--volumes")


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize(
    ("before", "within"),
    [
        pytest.param((), ("rescheduler", "nats"), id="two"),
        pytest.param(
            ("predictor", "optimizer", "decider"),
            ("rescheduler", "nats", "observer", "rescheduler", "nats"),
            id="each",
            marks=pytest.mark.long,
        ),
    ],
)
def test_the_demo_ends_well_although_containers_are_killed(before: Sequence[str], within: Sequence[str]) -> None:
    """Services and the broker are killed, some before the plan, others while it is carried out."""
    compose("up", "--no-build", "--detach")
    for service in SERVICES:
        (found,) = json.loads(docker("inspect", *compose("ps", "--quiet", service).split()))
        assert found["Config"]["User"] == "65532:65532"
        assert found["HostConfig"]["ReadonlyRootfs"]
    for service in before:
        _kill(service)
    deadline = time.monotonic() + SECONDS
    while "step-started" not in compose("logs", "rescheduler"):
        assert time.monotonic() < deadline, compose("ps", "--all")
        time.sleep(0.5)
    for service in within:
        _kill(service)
    (demo,) = compose("ps", "--all", "--quiet", "demo").split()
    assert docker("wait", demo).strip() == "0", compose("logs", "demo")
    assert "no workload fell below its floor" in compose("logs", "demo")


def _kill(service: str) -> None:
    compose("kill", "--signal", "SIGKILL", service)
    compose("start", service)
