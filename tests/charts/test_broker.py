"""What the charts kinema-nats and kinema-setup state, run by a real nats-server and a real API server."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from tests.charts.helm import NAMED, Helm, named
from tests.controlplane.build import VERSIONS, built
from tests.controlplane.plane import ControlPlane

from kinema_cli.local.nats_server import executable, free_port
from kinema_core.runtime.bus import BusDeniedError
from kinema_core.runtime.nats_bus import connect
from kinema_core.runtime.rights import USERS
from kinema_core.runtime.settings import RuntimeSettings
from kinema_core.runtime.setup import Layout, inspect, setup

pytestmark = [pytest.mark.cluster, pytest.mark.connected]

_READY_TRIES: Final = 200


@dataclass(frozen=True)
class Broker:
    """A nats-server with the configuration of the chart."""

    url: str
    folder: Path

    def settings(self, user: str) -> RuntimeSettings:
        """Settings of a service as its chart writes them."""
        file = str(self.folder / user)
        return RuntimeSettings(cluster="c1", nats_url=self.url, nats_user=user, nats_password_file=file)


@pytest.fixture(scope="module")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Helm without a cluster."""
    return Helm(built(VERSIONS[0])["helm"], tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="module")
def broker(helm: Helm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """The server, with other ports and folder and the passwords of its Secret in the environment."""
    folder, port, monitor = tmp_path_factory.mktemp("nats"), free_port(), free_port()
    config = named(helm.rendered("kinema-nats", NAMED), "ConfigMap", "kinema-nats")["data"]["nats.conf"]
    for found, own in (("4222", f"{port}"), ("0.0.0.0:8222", f"127.0.0.1:{monitor}"), ("/data", f"{folder}")):
        assert config.count(found) == 1
        config = config.replace(found, own)
    (folder / "nats.conf").write_text(config)
    for user in USERS:
        (folder / user).write_text(f"p{user}0x1e5")
    passwords = {f"{user.upper()}_PASSWORD": (folder / user).read_text() for user in USERS}
    command = [executable(), "--config", str(folder / "nats.conf"), "--addr", "127.0.0.1"]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(command, env={**os.environ, **passwords}, stdout=log, stderr=log)
    try:
        for _ in range(_READY_TRIES):
            assert server.poll() is None, (folder / "log").read_text()
            if healthy(f"http://127.0.0.1:{monitor}/healthz"):
                break
            time.sleep(0.05)
        yield Broker(f"nats://127.0.0.1:{port}", folder)
    finally:
        server.kill()
        server.wait()


def healthy(url: str) -> bool:
    """Return whether the readiness probe of the chart succeeds."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def job(helm: Helm, name: str) -> dict[str, Any]:
    """Return the container of a Job of the chart kinema-setup."""
    values = {**NAMED, "streams": {"logSize": "1Gi"}}
    (found,) = (
        one
        for one in helm.rendered("kinema-setup", values)
        if one["kind"] == "Job" and re.fullmatch(f"{name}(-[0-9a-f]{{8}})?", one["metadata"]["name"])
    )
    container: dict[str, Any] = found["spec"]["template"]["spec"]["containers"][0]
    return container


def run(container: dict[str, Any], environment: dict[str, str], *changed: tuple[str, str]) -> str:
    """Run a container's command on this machine, with parts of its arguments changed; it must succeed."""
    program: str = container["command"][0]
    command: list[str] = [*container["command"][1:], *container["args"]]
    for found, own in changed:
        assert any(found in word for word in command)
        command = [word.replace(found, own) for word in command]
    done: subprocess.CompletedProcess[str] = subprocess.run(
        [str(Path(sys.executable).with_name(program)), *command],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


async def test_the_job_prepares_the_charts_broker(helm: Helm, broker: Broker) -> None:
    """With the admin's password in a file, and for the users that the chart states."""
    container = job(helm, "kinema-setup")
    environment = {one["name"]: one["value"] for one in container["env"]}
    assert environment == {"KINEMA_NATS_USER": "admin", "KINEMA_NATS_PASSWORD_FILE": "/etc/kinema/nats/password"}
    environment["KINEMA_NATS_PASSWORD_FILE"] = str(broker.folder / "admin")
    here = ("kinema-nats:4222", broker.url.removeprefix("nats://"))
    assert "created stream KINEMA_LOG" in run(container, environment, here)
    assert "everything exists already" in run(container, environment, here)
    assert "changed stream KINEMA_LOG: max_bytes" in run(container, environment, here, ("1Gi", "2Gi"))
    assert (await inspect(broker.settings("operator"))).missing == ()


@pytest.mark.parametrize("user", [user for user in USERS if user != "admin"])
async def test_every_user_has_its_own_password_and_rights(broker: Broker, user: str) -> None:
    """A service connects with its own, and none of them may change a stream."""
    bus = await connect(broker.settings(user))
    await bus.close()
    with pytest.raises(BusDeniedError):
        await setup(broker.settings(user), Layout(clusters=("c1",)))


def test_the_hooks_rights_suffice_for_the_placement_policy(
    helm: Helm, control_plane: ControlPlane, policies: None, tmp_path: Path
) -> None:
    """The Job installs the policy with the account that the hook makes, and again on every upgrade."""
    admin = control_plane.admin
    (role,) = (one for one in helm.rendered("kinema-setup", NAMED) if one["kind"].endswith("Role"))
    access = admin.account("kinema-hook", "policy", role["rules"])
    kubeconfig = access.write_kubeconfig(tmp_path / "kubeconfig")
    for _ in range(2):
        said = run(job(helm, "kinema-placement-policy"), {"KUBECONFIG": str(kubeconfig)})
        assert "placement policy: installed" in said
    assert admin.answers("/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies/kinema-steering")
