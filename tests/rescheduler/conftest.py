"""The rescheduler on a real control plane."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.controlplane.plane import ControlPlane
from tests.rescheduler.plane_world import PlaneWorld, plane_world


@pytest.fixture
def world(control_plane: ControlPlane, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[PlaneWorld]:
    """Three nodes and a namespace named after the test."""
    name = request.node.name.replace("_", "-").partition("[")[0][:50].rstrip("-")
    with plane_world(control_plane.admin, tmp_path, name, "old-1", "old-2", "old-3") as world:
        yield world
