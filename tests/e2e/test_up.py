"""A person installs nothing but `kinema up`: until the word is given, the cluster stays as it was."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.controlplane.access import Access, RefusedError
from tests.controlplane.plane import ControlPlane
from tests.e2e.pipeline_run import catalog
from tests.e2e.small import small_cluster

from kinema_observer.adapters.source import RESOURCES

pytestmark = [pytest.mark.cluster, pytest.mark.faults]

KINEMA = str(Path(sys.executable).with_name("kinema"))
SECONDS = 300.0
"""Real seconds within which a plan must be there: with its defaults Kinema waits for a calm cluster first."""
WAITING = 20.0
"""Seconds for which the plan then waits."""


def everything(access: Access) -> Mapping[str, Any]:
    """All objects of the kinds that Kinema reads, by kind and name, without what their controllers say of them."""
    found: dict[str, Any] = {}
    for resource in RESOURCES:
        with suppress(RefusedError):  # a kind that this cluster does not have
            for item in access.request("GET", resource.path)["items"]:
                metadata = item["metadata"]
                for key in ("resourceVersion", "managedFields"):
                    metadata.pop(key, None)
                name = f"{resource.kind} {metadata.get('namespace', '')}/{metadata['name']}"
                found[name] = {key: value for key, value in item.items() if key != "status"}
    return found


@contextmanager
def up(folder: Path, plane: ControlPlane) -> Iterator[Callable[..., Any]]:
    """Run `kinema up` within the block; gives what other commands print as JSON."""
    environment = {**os.environ, "KUBECONFIG": str(plane.admin.write_kubeconfig(folder / "kubeconfig"))}
    out = folder / "kinema"
    with (folder / "up.log").open("wb") as log:
        process = subprocess.Popen(
            [KINEMA, "up", "--provider", f"kwok={catalog(folder)}", "--out", str(out)],
            env=environment,
            stdout=log,
            stderr=log,
        )

        def said(*command: str) -> Any:
            assert process.poll() is None, (folder / "up.log").read_text()
            told = ["sh", "-c", '. "$0" && exec "$@"', str(out / "operator.env"), KINEMA, *command, "-o", "json"]
            done = subprocess.run(told, env=environment, capture_output=True, check=False)
            return json.loads(done.stdout) if done.returncode == 0 else {}

        try:
            yield said
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)


def test_kinema_up_alone_changes_nothing(own_control_plane: ControlPlane, tmp_path: Path) -> None:
    """Every setting is its default: a plan is shown, nothing of it is done, and what is added is Kinema's own."""
    access = own_control_plane.admin
    with small_cluster(access):
        before = everything(access)
        with up(tmp_path, own_control_plane) as said:
            deadline = time.monotonic() + SECONDS
            while (plan := said("status").get("plan") or {}).get("phase") != "AwaitingApproval":
                assert time.monotonic() < deadline, plan
                time.sleep(2)
            time.sleep(WAITING)
            after = everything(access)
            assert said("status")["plan"]["phase"] == "AwaitingApproval"
        assert plan["usd_per_hour_after"] < plan["usd_per_hour_before"]
        assert {name: after.get(name) for name in before} == before
        assert all("kinema" in name for name in after.keys() - before.keys())
