"""The way to a control plane, where that dies."""

from __future__ import annotations

import gc
import socket
import struct
from pathlib import Path

import pytest
from tests.controlplane.access import Access
from tests.support.certificates import authority


def test_a_connection_that_is_reset_before_tls_begins_leaves_no_socket_open(tmp_path: Path) -> None:
    """As when the API server is killed right after it has accepted."""
    access = Access("https://127.0.0.1", "token", Path(authority(tmp_path / "ca").certificate))
    with socket.create_server(("127.0.0.1", 0)) as server:
        plain = socket.create_connection(server.getsockname())
        accepted, _ = server.accept()
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # closing resets
        accepted.close()
        with plain, pytest.raises(ConnectionResetError):
            access.tls().wrap_socket(plain, server_hostname="localhost")
    gc.collect()  # here at the latest Python warns of what was left open
