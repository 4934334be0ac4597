"""A TCP proxy before a broker that can lose answers, cut connections, and let nobody in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field


@dataclass
class Proxy:
    """Passes bytes on, as long as it is not told otherwise."""

    target: int
    port: int = 0
    deaf: bool = False
    """Answers of the broker are lost."""
    closed: bool = False
    """New connections are closed at once."""
    lost: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when an answer was lost."""
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)

    @property
    def url(self) -> str:
        """Where clients connect to."""
        return f"nats://127.0.0.1:{self.port}"

    def cut(self) -> None:
        """Break all connections."""
        for writer in list(self._writers):
            writer.close()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One client."""
        if self.closed:
            writer.close()
            return
        there, back = await asyncio.open_connection("127.0.0.1", self.target)
        self._writers |= {writer, back}
        try:
            await asyncio.gather(self._pump(reader, back), self._pump(there, writer, answers=True))
        finally:
            for end in (writer, back):
                end.close()
                self._writers.discard(end)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool = False) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                if answers and self.deaf:
                    self.lost.set()
                    continue
                writer.write(data)
                await writer.drain()
        writer.close()


@asynccontextmanager
async def proxied(target: int) -> AsyncIterator[Proxy]:
    """A proxy before a loopback port."""
    proxy = Proxy(target)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        proxy.cut()
        await server.wait_closed()
        await asyncio.sleep(0.05)
