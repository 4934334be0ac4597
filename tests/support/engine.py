"""The container engine, where tests run images on one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
SECONDS: Final = 600


def docker(*arguments: str, check: bool = True, environment: Mapping[str, str] | None = None) -> str:
    """Run docker in the clone and return what it prints."""
    command = ["docker", *arguments]
    own = {**os.environ, **(environment or {})}
    done = subprocess.run(command, cwd=ROOT, env=own, capture_output=True, text=True, check=False, timeout=SECONDS)
    assert not check or done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout + done.stderr


def require(images: Iterable[str]) -> None:
    """Skip where no engine answers; where one does, images that are missing fail a test in CI and skip it elsewhere."""
    if shutil.which("docker") is None:
        pytest.skip("no docker on the PATH")
    said = docker("info", check=False)
    if "Cannot connect" in said:
        pytest.skip(f"docker info: {said.strip().splitlines()[-1]}")
    absent = [image for image in sorted(set(images)) if "Error" in docker("image", "inspect", image, check=False)]
    if absent:
        tell = pytest.fail if os.environ.get("KINEMA_REQUIRE_ALL") == "1" else pytest.skip
        tell(f"no image {', '.join(absent)}: run `make containers`")


@contextmanager
def network(name: str) -> Iterator[str]:
    """A network of the engine within the block; yields the address at which its containers reach this machine."""
    # The default network has no address to show in an engine that was started for the first time.
    docker("network", "create", name)
    try:
        yield json.loads(docker("network", "inspect", name))[0]["IPAM"]["Config"][0]["Gateway"]
    finally:
        docker("network", "rm", name)
