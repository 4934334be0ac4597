"""How a client and a real broker prove to each other who they are: TLS and certificates, keys, files that change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.support.certificates import Authority, authority
from tests.support.nats_broker import PASSWORDS, users

from kinema_cli.local.nats_server import NatsServer
from kinema_core.runtime.bus import BusDeniedError
from kinema_core.runtime.nats_bus import connect
from kinema_core.runtime.settings import RuntimeSettings
from kinema_core.runtime.setup import Layout, setup

pytestmark = pytest.mark.connected


@dataclass
class Secured:
    """A broker that speaks TLS only, and asks for a client's certificate."""

    server: NatsServer
    ca: Authority
    certificate: tuple[str, str]

    def settings(self, **changed: Any) -> RuntimeSettings:
        """Return settings of the observer, less or other than they should be."""
        certificate, key = self.certificate
        good = RuntimeSettings(
            cluster="c1",
            nats_url=f"tls://127.0.0.1:{self.server.port}",
            nats_user="observer",
            nats_password=PASSWORDS["observer"],
            nats_ca_file=self.ca.certificate,
            nats_cert_file=certificate,
            nats_key_file=key,
            nats_server_name="broker.test",
        )
        return replace(good, **changed)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """The broker; its certificate has the name broker.test and no other."""
    directory = tmp_path_factory.mktemp("tls")
    ca = authority(directory / "ca")
    certificate, key = ca.issue("server", "DNS:broker.test")
    tls = {"cert_file": certificate, "key_file": key, "ca_file": ca.certificate, "verify": True, "timeout": 5}
    server = NatsServer(directory / "broker", authorization=users(("c1",)), more={"tls": tls})
    server.start()
    try:
        yield Secured(server, ca, ca.issue("client"))
    finally:
        server.stop()


async def test_both_sides_show_a_certificate(secured: Secured) -> None:
    """A client whose authority, certificate, key and server name are right connects, also by nats://."""
    admin = {"nats_user": "admin", "nats_password": PASSWORDS["admin"]}
    await setup(secured.settings(**admin), Layout(clusters=("c1",)))
    for url in (secured.settings().nats_url, secured.server.url):
        bus = await connect(secured.settings(nats_url=url))
        assert await bus.head("LOG") == 0
        await bus.close()


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("authority", ["unable to get local issuer certificate", "set nats_ca_file"]),
        ("system", ["certificate verify failed", "set nats_ca_file"]),
        ("server name", ["broker.other", "set nats_server_name"]),
        ("no certificate", ["certificate required", "set nats_cert_file"]),
        ("expired", ["certificate expired", "renew the certificate in nats_cert_file"]),
        ("foreign", ["set nats_cert_file to a certificate whose authority the broker trusts"]),
        ("missing", ["nats_cert_file /nowhere: No such file"]),
        ("other key", ["nats_cert_file", "belong together"]),
        ("no authority", ["nats_ca_file", "holds no certificate"]),
    ],
)
async def test_what_is_wrong_with_tls_is_one_error(
    secured: Secured, tmp_path: Path, wrong: str, words: list[str]
) -> None:
    """Each names the setting and what to do, at once, with no secret in it."""
    other = authority(tmp_path / "other")
    expired, its_key = secured.ca.issue("expired", days=-1)
    foreign, foreign_key = other.issue("foreign")
    changed: dict[str, dict[str, str]] = {
        "authority": {"nats_ca_file": other.certificate},
        "system": {"nats_ca_file": ""},
        "server name": {"nats_server_name": "broker.other"},
        "no certificate": {"nats_cert_file": "", "nats_key_file": ""},
        "expired": {"nats_cert_file": expired, "nats_key_file": its_key},
        "foreign": {"nats_cert_file": foreign, "nats_key_file": foreign_key},
        "missing": {"nats_cert_file": "/nowhere"},
        "other key": {"nats_key_file": its_key},
        "no authority": {"nats_ca_file": its_key},
    }
    with pytest.raises(BusDeniedError) as caught:
        await connect(secured.settings(**changed[wrong]))
    for word in (*words, "nats_"):
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)
    assert PASSWORDS["observer"] not in str(caught.value)


@pytest.mark.parametrize("changed", [{}, {"nats_server_name": ""}, {"nats_ca_file": ""}])
async def test_no_secret_goes_to_a_broker_without_tls(
    tmp_path: Path, secured: Secured, changed: dict[str, str]
) -> None:
    """Where TLS is asked for, by the address or by a certificate's setting, a broker that offers none is refused."""
    server = NatsServer(tmp_path, authorization=users(("c1",)))
    server.start()
    try:
        with pytest.raises(BusDeniedError, match="offers no TLS: turn TLS on at the broker"):
            await connect(secured.settings(nats_url=server.url, **changed))
        with pytest.raises(BusDeniedError, match="offers no TLS"):
            await connect(RuntimeSettings(cluster="c1", nats_url=server.url.replace("nats:", "tls:")))
    finally:
        server.stop()
