"""How a client and a real broker prove to each other who they are: TLS and certificates, keys, files that change."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.support.bus_events import forecast, iteration
from tests.support.certificates import Authority, authority
from tests.support.nats_broker import PASSWORDS, users
from tests.support.nkey_users import Operator, user_key
from tests.support.waiting import until

from kinema_cli.local.nats_server import NatsServer
from kinema_core.runtime.bus import BusDeniedError
from kinema_core.runtime.nats_bus import connect
from kinema_core.runtime.rights import ACCOUNT_BYTES, USERS, accounts
from kinema_core.runtime.serve import retry_until_available
from kinema_core.runtime.settings import RuntimeSettings
from kinema_core.runtime.setup import Layout, SetupReport, inspect, setup

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


async def test_both_sides_show_a_certificate(secured: Secured, caplog: pytest.LogCaptureFixture) -> None:
    """A client whose authority, certificate, key and server name are right connects without a word, also by nats://."""
    admin = {"nats_user": "admin", "nats_password": PASSWORDS["admin"]}
    await setup(secured.settings(**admin), Layout(clusters=("c1",)))
    for url in (secured.settings().nats_url, secured.server.url):
        bus = await connect(secured.settings(nats_url=url))
        assert await bus.head("LOG") == 0
        await bus.close()
    await asyncio.sleep(0.1)  # until the transports are closed
    assert caplog.messages == []


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


CLUSTERS = ("a", "b.c")


class Shared:
    """A broker that two clusters share, each in an account of its own, and how users prove themselves there."""

    def __init__(self, directory: Path, proof: str) -> None:
        self.proof = proof
        self._directory = directory
        self._secrets: dict[str, str] = {}
        self._operator = Operator(CLUSTERS)
        self.server = NatsServer(directory, more=self._config())

    def _config(self) -> dict[str, object]:
        """Make new secrets; return the configuration of the broker that knows them."""
        named = [f"{user}@{cluster}" for cluster in CLUSTERS for user in USERS]
        keys = {name: user_key() for name in named}
        self._secrets = {name: key.seed if self.proof == "seed" else f"p{key.public}" for name, key in keys.items()}
        store = {"store_dir": str(self._directory / "data"), "max_file_store": len(CLUSTERS) * ACCOUNT_BYTES}
        if self.proof == "creds":
            return {**self._operator.config(), "jetstream": store}
        public = {name: key.public for name, key in keys.items()}
        known = accounts(public, CLUSTERS, proof="nkey") if self.proof == "seed" else accounts(self._secrets, CLUSTERS)
        return {"accounts": known, "jetstream": store}

    def renew(self) -> None:
        """Tell the running broker of new secrets; an operator takes back all that its users were given."""
        self._operator.revoke()
        self.server._more = self._config()
        config = self._directory / "nats-server.conf"
        config.write_text(json.dumps(self.server._config()), encoding="utf-8")
        self.server.send_signal(signal.SIGHUP)

    def settings(self, cluster: str, user: str, *, changed: str = "") -> RuntimeSettings:
        """Return settings of a user whose secret lies in a file."""
        file = self._directory / f"{user}@{cluster}"
        text = self._operator.creds(cluster, user) if self.proof == "creds" else self._secrets[f"{user}@{cluster}"]
        file.write_text(changed or text, encoding="utf-8")
        name = f"{user}@{cluster}" if self.proof == "password" else user
        named = RuntimeSettings(cluster=cluster, nats_url=self.server.url, nats_user=name, nats_connect_seconds=20)
        return replace(named, **{f"nats_{self.proof}_file": str(file)})


@pytest.fixture(params=["password", "seed", "creds"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shared]:
    """The broker, by each proof."""
    broker = Shared(tmp_path, request.param)
    broker.server.start()
    try:
        yield broker
    finally:
        broker.server.stop()


async def test_a_cluster_in_its_own_account_is_alone(shared: Shared) -> None:
    """Streams, sequences, leases and doctor's view of one cluster are its own; nothing crosses to the other."""
    for cluster in CLUSTERS:
        await setup(shared.settings(cluster, "admin"), Layout(clusters=(cluster,)))
    one, other = [await connect(shared.settings(cluster, "observer")) for cluster in CLUSTERS]
    try:
        assert await one.publish(iteration(1, "a")) == 1
        assert await one.publish(iteration(2, "a")) == 2
        assert await other.publish(iteration(1, "b.c")) == 1
        assert (await one.head("LOG"), await other.head("LOG")) == (2, 1)
        assert await one.acquire("observer", 5) is not None
        assert await other.acquire("observer", 5) is not None
        with pytest.raises(BusDeniedError, match="no right"):
            await one.publish(iteration(1, "b.c"))
        with pytest.raises(BusDeniedError, match="no right"):
            await one.publish(forecast(1))
    finally:
        await one.close()
        await other.close()
    assert await setup(shared.settings("a", "admin"), Layout(clusters=("a",))) == SetupReport()
    assert (await inspect(shared.settings("b.c", "operator"))).missing == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [("SUAC", "holds no key of a user"), ("", "holds no key of a user"), (user_key().seed, "uthorization")],
    ids=["damaged", "empty", "unknown"],
)
async def test_an_unusable_secret_is_one_error(shared: Shared, text: str, words: str) -> None:
    """It names the setting or the user, at once, and shows nothing of the secret."""
    settings = shared.settings("a", "observer", changed=text or "\n")
    with pytest.raises(BusDeniedError) as caught:
        await connect(settings)
    expected = "uthorization" if shared.proof == "password" else words
    if shared.proof == "creds":
        expected = "nats_creds_file"
    assert expected in str(caught.value)
    if text:
        assert text not in str(caught.value)


async def test_a_renewed_secret_is_read_from_its_file(shared: Shared) -> None:
    """A broker that is told of other secrets ends the connections of the old ones; the service comes back by itself."""
    await setup(shared.settings("a", "admin"), Layout(clusters=("a",)))
    bus = await connect(shared.settings("a", "observer"))
    try:
        assert await bus.publish(iteration(1, "a")) == 1
        shared.renew()
        shared.settings("a", "observer")
        await until(lambda: not bus.connected())
        async with asyncio.timeout(60):
            assert await retry_until_available(lambda: bus.publish(iteration(2, "a"))) == 2
    finally:
        await bus.close()


async def test_a_renewed_certificate_is_read_from_its_file(tmp_path: Path) -> None:
    """Broker and client get certificates of another authority; the next connection uses them."""
    old, new = authority(tmp_path / "old"), authority(tmp_path / "new")
    files = {name: str(tmp_path / name) for name in ("ca", "server", "server.key", "client", "client.key")}

    def write(by: Authority) -> None:
        made = {"ca": by.certificate}
        made["server"], made["server.key"] = by.issue("server", "IP:127.0.0.1")
        made["client"], made["client.key"] = by.issue("client")
        for name, source in made.items():
            Path(files[name]).write_bytes(Path(source).read_bytes())

    write(old)
    tls = {"cert_file": files["server"], "key_file": files["server.key"], "ca_file": files["ca"], "verify": True}
    server = NatsServer(tmp_path / "broker", more={"tls": tls})
    server.start()
    settings = RuntimeSettings(
        cluster="c1",
        nats_url=f"tls://127.0.0.1:{server.port}",
        nats_ca_file=files["ca"],
        nats_cert_file=files["client"],
        nats_key_file=files["client.key"],
    )
    try:
        await setup(settings, Layout(clusters=("c1",)))
        bus = await connect(settings)
        assert await bus.publish(iteration(1)) == 1
        await asyncio.to_thread(server.stop)
        write(new)
        await asyncio.to_thread(server.start)
        async with asyncio.timeout(60):
            assert await retry_until_available(lambda: bus.publish(iteration(2))) == 2
        await bus.close()
    finally:
        server.stop()
