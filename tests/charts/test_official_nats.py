"""The values of docs/broker.md for the official NATS chart, rendered by Helm and run by three real nats-servers.

`KINEMA_NATS_CHART` names a copy of that chart: a folder, or an archive as `helm pull nats --repo
https://nats-io.github.io/k8s/helm/charts/` gives it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import pytest
import yaml
from tests.charts.helm import CHARTS, Helm, named
from tests.charts.test_broker import healthy
from tests.controlplane.build import VERSIONS, built
from tests.support.certificates import Authority, authority

from kinema_cli.local.nats_server import executable, free_port
from kinema_core.runtime.bus import BusDeniedError
from kinema_core.runtime.nats_bus import connect
from kinema_core.runtime.rights import USERS, authorization_text
from kinema_core.runtime.settings import RuntimeSettings
from kinema_core.runtime.setup import Layout, inspect, setup

CHART: Final = os.environ.get("KINEMA_NATS_CHART", "")
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.connected,
    pytest.mark.skipif(not CHART, reason="KINEMA_NATS_CHART does not name a copy of the official NATS chart"),
]

_SERVERS: Final = 3
_READY_TRIES: Final = 400


def values() -> dict[str, Any]:
    """Return the values of the page, with the rights of `kinema nats-rights` and every password in them."""
    page = (CHARTS.parent / "docs" / "broker.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```yaml\n(config:.*?)```", page, flags=re.DOTALL)
    found: dict[str, Any] = yaml.safe_load(block.replace("{…}", "{}"))
    rights = re.sub(r"(\$[A-Z]+_PASSWORD)", r'"<< \1 >>"', authorization_text(["c1"], "password"))
    found["config"]["merge"]["authorization"] = json.loads(rights)
    one = found["container"]["env"]["OBSERVER_PASSWORD"]["valueFrom"]["secretKeyRef"]
    for user in USERS:
        reference = {"secretKeyRef": {**one, "key": user}}
        found["container"]["env"][f"{user.upper()}_PASSWORD"] = {"valueFrom": reference}
    return found


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What the chart gives."""
    helm = Helm(built(VERSIONS[0])["helm"], tmp_path_factory.mktemp("helm"))
    done = helm.run("template", "nats", CHART, "--namespace", "nats", values=values())
    assert done.returncode == 0, done.stderr
    return [one for one in yaml.safe_load_all(done.stdout) if one]


@dataclass(frozen=True)
class Cluster:
    """Three servers with the configuration of the chart."""

    port: int
    authority: Authority

    def settings(self, user: str) -> RuntimeSettings:
        """Settings of a client with a certificate and a password."""
        certificate, key = self.authority.issue(user)
        password = self.authority.directory / f"{user}.password"
        password.write_text(f"p{user}0x1e5")
        return RuntimeSettings(
            cluster="c1",
            nats_url=f"tls://127.0.0.1:{self.port}",
            nats_user=user,
            nats_password_file=str(password),
            nats_ca_file=self.authority.certificate,
            nats_cert_file=certificate,
            nats_key_file=key,
        )


@pytest.fixture(scope="module")
def servers(objects: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The servers, with other addresses and folders than those of pods."""
    folder = tmp_path_factory.mktemp("nats")
    issuer = authority(folder / "authority")
    certificate, key = issuer.issue("server", "IP:127.0.0.1")
    config = named(objects, "ConfigMap", "nats-config")["data"]["nats.conf"]
    changes = {"/etc/nats-ca-cert/ca.crt": issuer.certificate}
    for where in ("nats", "cluster"):
        changes |= {f"/etc/nats-certs/{where}/tls.crt": certificate, f"/etc/nats-certs/{where}/tls.key": key}
    routes = [free_port() for _ in range(_SERVERS)]
    changes |= {f"nats-{at}.nats-headless:6222": f"127.0.0.1:{port}" for at, port in enumerate(routes)}
    passwords = {f"{user.upper()}_PASSWORD": f"p{user}0x1e5" for user in USERS}
    ports, monitors = [free_port() for _ in routes], [free_port() for _ in routes]
    with ExitStack() as running:
        for at in range(_SERVERS):
            own = changes | {
                '"port": 6222': f'"port": {routes[at]}',
                '"port": 4222': f'"port": {ports[at]}',
                '"http_port": 8222': f'"http": "127.0.0.1:{monitors[at]}"',
                '"/data"': f'"{folder}/data{at}"',
                "/var/run/nats/nats.pid": f"{folder}/pid{at}",
            }
            text = config
            for found, changed in own.items():
                assert found in text, found
                text = text.replace(found, changed)
            file = folder / f"nats{at}.conf"
            file.write_text(text, encoding="utf-8")
            log = running.enter_context((folder / f"log{at}").open("wb"))
            environment = {**os.environ, **passwords, "SERVER_NAME": f"nats-{at}"}
            command = [executable(), "--config", str(file), "--addr", "127.0.0.1"]
            server = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
            running.callback(server.wait)
            running.callback(server.kill)
        for at, monitor in enumerate(monitors):
            for _ in range(_READY_TRIES):
                if healthy(f"http://127.0.0.1:{monitor}/healthz"):
                    break
                time.sleep(0.05)
            else:
                pytest.fail((folder / f"log{at}").read_text())
        yield Cluster(ports[0], issuer)


def test_no_plan_moves_the_broker(objects: list[dict[str, Any]]) -> None:
    """Kinema needs its broker for every plan: the pods of all three servers stay where they are."""
    wanted = named(objects, "StatefulSet", "nats")["spec"]
    assert wanted["replicas"] == _SERVERS
    assert wanted["template"]["metadata"]["annotations"]["kinema.io/do-not-move"] == "true"


def test_every_password_is_a_variable_of_the_servers(objects: list[dict[str, Any]]) -> None:
    """The configuration reads them from the environment, which takes them from the Secret."""
    containers = named(objects, "StatefulSet", "nats")["spec"]["template"]["spec"]["containers"]
    (server,) = (one for one in containers if one["name"] == "nats")
    given = {one["name"]: one.get("valueFrom") for one in server["env"]}
    for user in USERS:
        reference = given[f"{user.upper()}_PASSWORD"]["secretKeyRef"]
        assert reference == {"name": "kinema-nats", "key": user}


async def test_streams_have_three_copies_and_users_their_rights(servers: Cluster) -> None:
    """Setup prepares the three servers over TLS; a service connects with its certificate, and may change no stream."""
    layout = Layout(clusters=("c1",), replicas=_SERVERS)
    await setup(servers.settings("admin"), layout)
    found = await inspect(servers.settings("operator"))
    assert (found.missing, found.unsafe, found.has_peers) == ((), (), True)
    assert {one.replicas for one in found.streams} == {_SERVERS}
    for user in USERS:
        bus = await connect(servers.settings(user))
        await bus.close()
    with pytest.raises(BusDeniedError):
        await setup(servers.settings("observer"), layout)


async def test_a_client_without_a_certificate_is_refused(servers: Cluster) -> None:
    """The password alone does not do."""
    settings = servers.settings("operator")
    with pytest.raises(BusDeniedError):
        await connect(msgspec.structs.replace(settings, nats_cert_file="", nats_key_file=""))
