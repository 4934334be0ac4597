"""A real broker for tests: one server or three, users, streams, and a user who may do anything."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from nats.aio.client import Client

from kinema_cli.local.nats_server import NatsServer, free_port
from kinema_core.runtime.nats_bus import NatsBus, connect
from kinema_core.runtime.rights import USERS, authorization
from kinema_core.runtime.settings import RuntimeSettings
from kinema_core.runtime.setup import Layout, setup

PASSWORDS = {user: f"{user}-secret" for user in USERS}
ROGUE = {"user": "rogue", "password": "rogue-secret"}


def users(clusters: tuple[str, ...]) -> dict[str, object]:
    """The services' users, and one who may do anything."""
    block = authorization(PASSWORDS, clusters)
    listed = block["users"]
    assert isinstance(listed, list)
    return {"users": [*listed, ROGUE]}


class NatsCluster:
    """Several nats-servers on loopback that hold their streams together."""

    def __init__(self, directory: Path, *, size: int = 3, authorization: Mapping[str, object] | None = None) -> None:
        ports = tuple(free_port() for _ in range(size))
        self.servers: Sequence[NatsServer] = [
            NatsServer(
                directory / f"n{index}",
                authorization=authorization,
                more={
                    "server_name": f"n{index}",
                    "cluster": {
                        "name": "kinema",
                        "listen": f"127.0.0.1:{port}",
                        "routes": [f"nats://127.0.0.1:{other}" for other in ports],
                    },
                },
            )
            for index, port in enumerate(ports)
        ]

    @property
    def url(self) -> str:
        """Addresses of all members, separated by commas."""
        return ",".join(server.url for server in self.servers)

    def start(self) -> None:
        """Start all members and wait until all are ready."""
        for server in self.servers:
            server.launch()
        for server in self.servers:
            server.wait_ready()

    def stop(self) -> None:
        """Stop all members."""
        for server in self.servers:
            server.stop()


@dataclass
class Broker:
    """A running broker and the connections that a test has made to it."""

    server: NatsServer | NatsCluster
    cluster: str
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    def settings(self, user: str) -> RuntimeSettings:
        """Settings of a service that runs as `user`."""
        return RuntimeSettings(
            cluster=self.cluster,
            nats_url=self.server.url,
            nats_user=user,
            nats_password=PASSWORDS.get(user, f"{user}-secret"),
            nats_connect_seconds=60,
            health_port=0,
        )

    async def bus(self, user: str = "rogue") -> NatsBus:
        """A new connection, closed at the end of the test."""
        bus = await connect(self.settings(user))
        self.stack.push_async_callback(bus.close)
        return bus

    async def raw(self) -> Client:
        """A bare client of the user who may do anything."""
        client = Client()
        await client.connect(servers=self.server.url.split(","), user="rogue", password="rogue-secret")
        self.stack.push_async_callback(client.close)
        return client

    async def send(self, subject: str, data: bytes, headers: Mapping[str, str] | None = None) -> None:
        """Store a message as somebody might send it, sound or not."""
        client = await self.raw()
        answer = await client.request(subject, data, timeout=60, headers=dict(headers) if headers else None)
        assert b'"seq"' in answer.data, answer.data


@asynccontextmanager
async def running(
    directory: Path, *, cluster: str = "c1", servers: int = 1, layout: Layout | None = None
) -> AsyncIterator[Broker]:
    """A broker with streams and consumers for one cluster, stopped at the end."""
    block = users((cluster,))
    server: NatsServer | NatsCluster = (
        NatsServer(directory, authorization=block)
        if servers == 1
        else NatsCluster(directory, size=servers, authorization=block)
    )
    broker = Broker(server, cluster)
    server.start()
    try:
        wanted = layout or Layout(clusters=(cluster,), ack_wait_seconds=1)
        await setup(broker.settings("admin"), replace(wanted, clusters=(cluster,), replicas=servers))
        async with broker.stack:
            yield broker
    finally:
        server.stop()
