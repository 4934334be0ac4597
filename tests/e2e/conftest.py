"""A control plane for e2e tests alone: they count every node and every change in it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.controlplane.plane import ControlPlane, Options, running


@pytest.fixture(scope="module")
def own_control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane that nothing else uses. It waits for silent nodes as long as a real one."""
    with running(tmp_path_factory.mktemp("controlplane"), Options(node_silence_seconds=50)) as plane:
        yield plane
