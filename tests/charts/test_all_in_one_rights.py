"""`kinema up` with the account that the chart of all in one makes, on a real API server."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from tests.charts.helm import NAMED, Helm, named
from tests.controlplane.access import Access, RefusedError
from tests.controlplane.nodes import node, nodes_for_a_while
from tests.controlplane.plane import ControlPlane
from tests.controlplane.proxy import FaultyProxy
from tests.e2e.pipeline_run import catalog
from tests.e2e.shop import ZONES
from tests.e2e.small import MACHINE

from kinema_observer.adapters.source import RESOURCES

pytestmark = [pytest.mark.cluster, pytest.mark.connected]

CHART: Final = "kinema-all-in-one"
SPACE: Final = "kinema"
"""The namespace for which `Helm.rendered` renders."""
KINEMA: Final = str(Path(sys.executable).with_name("kinema"))
SECONDS: Final = 240.0
"""Within which everything has started, on a busy machine too."""
FORBIDDEN: Final = 403
_RIGHTS: Final = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
_GUARD: Final = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")


def account(plane: ControlPlane, objects: list[dict[str, Any]], folder: Path) -> Access:
    """The access of the pod: its account with the rendered rights, under the rendered guard."""
    admin = plane.admin
    admin.ensure("/api/v1/namespaces", {"metadata": {"name": SPACE}})
    file = folder / "rights.yaml"
    file.write_text(yaml.safe_dump_all([one for one in objects if one["kind"] in (*_RIGHTS, *_GUARD)]))
    access = str(admin.write_kubeconfig(folder / "admin"))
    kubectl = [str(plane.programs["kubectl"]), "--kubeconfig", access]
    subprocess.run([*kubectl, "apply", "--server-side", "--filename", str(file)], check=True, capture_output=True)
    path = f"/api/v1/namespaces/{SPACE}/serviceaccounts/{CHART}/token"
    token = admin.request("POST", path, {"spec": {"expirationSeconds": 3600}})["status"]["token"]
    return replace(admin, token=token)


async def until_started(
    command: tuple[str, ...], proxy: FaultyProxy, kinds: set[str], probe: tuple[str, ...], log: Path
) -> None:
    """Run the command until every kind is watched, the Lease is renewed and the probe succeeds, and end it.

    Raises:
        AssertionError: it ended before.
    """
    proxy.answered.clear()
    with log.open("wb") as file:
        process = await asyncio.create_subprocess_exec(*command, stdout=file, stderr=file)

    def begun() -> bool:
        watched = {path.partition("?")[0] for _, path, _ in proxy.answered if "watch=" in path}
        renewed = any(method in {"PUT", "PATCH"} and "/leases/" in path for method, path, _ in proxy.answered)
        return watched >= kinds and renewed

    try:
        async with asyncio.timeout(SECONDS):
            while process.returncode is None:
                await asyncio.sleep(0.5)
                if begun() and await (await asyncio.create_subprocess_exec(*probe)).wait() == 0:
                    break
    finally:
        is_running = process.returncode is None
        if is_running:
            process.send_signal(signal.SIGINT)
        await process.wait()
    assert is_running, f"{[one for one in proxy.answered if one[2] == FORBIDDEN]}; see {log}"


async def test_up_asks_for_nothing_that_its_account_may_not(control_plane: ControlPlane, tmp_path: Path) -> None:
    """From the doctor's checks until the startup probe succeeds, and while it ends: no 403, nor at the next start.

    What Kinema never does is refused by the guard, although the rights allow it.
    """
    admin, out = control_plane.admin, tmp_path / "up"
    prices = catalog(tmp_path)
    values = {**NAMED, "provider": "kwok", "catalog": prices.read_text()}
    objects = Helm(control_plane.programs["helm"], tmp_path).rendered(CHART, values)
    settings = tmp_path / "settings.json"
    settings.write_text(named(objects, "ConfigMap", CHART)["data"]["settings.json"])
    kinds = {one.path for one in RESOURCES if admin.answers(one.path)}
    probe = ("sh", "-c", f". {out}/operator.env && {KINEMA} status > {tmp_path}/status 2>&1")
    async with FaultyProxy(admin).running() as proxy:
        mine = account(control_plane, objects, tmp_path)
        access = proxy.through(mine)
        where = ("--kubeconfig", str(access.write_kubeconfig(tmp_path / "kubeconfig")), "--out", str(out))
        what = ("--cluster-name", "c1", "--provider", f"kwok={prices}", "--settings", str(settings))
        with nodes_for_a_while(admin, node("all-in-one-0", zone=ZONES[0], machine=MACHINE)):
            for start in ("first", "second"):  # the second one finds the state of the first in its streams
                await until_started((KINEMA, "up", *where, *what), proxy, kinds, probe, tmp_path / f"{start}.log")
                assert [one for one in proxy.answered if one[2] == FORBIDDEN] == []
    with pytest.raises(RefusedError, match="do not belong to Kinema"):
        mine.request("POST", "/api/v1/namespaces/kube-system/configmaps", {"metadata": {"name": "aws-auth"}})
