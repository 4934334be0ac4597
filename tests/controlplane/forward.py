"""A port of loopback on another address of this machine, for containers."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def forwarded(address: str, port: int) -> Iterator[int]:
    """Pass connections to a free port of `address` on to `port` of loopback within the block; yields the free one."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with socket.create_connection(("127.0.0.1", port)) as there:
                back = threading.Thread(target=_pump, args=(there, self.request), daemon=True)
                back.start()
                _pump(self.request, there)
                back.join()

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        block_on_close = False  # a watch stays open for minutes

    with Server((address, 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
