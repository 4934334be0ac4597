"""A real Prometheus with a past that a test writes."""

from __future__ import annotations

import ssl
import subprocess
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from tests.controlplane.server import Server

from kinema_cli.local.nats_server import free_port

CPU: Final = "container_cpu_usage_seconds"
MEMORY: Final = "container_memory_working_set_bytes"


@dataclass(frozen=True)
class Series:
    """Samples of one container: CPU seconds used so far, and bytes, by time."""

    labels: Mapping[str, str]
    samples: Iterable[tuple[datetime, float, float]]


def container(pod: str, name: str = "main", **labels: str) -> dict[str, str]:
    """Return the labels that cAdvisor gives a container in the namespace `shop`."""
    return {"namespace": "shop", "pod": pod, "container": name, "image": "app:1", **labels}


def write_past(folder: Path, series: Iterable[Series]) -> None:
    """Write blocks of samples into the folder of a server that does not run."""
    known = [(_labels(one.labels), list(one.samples)) for one in series]
    lines = [f"# TYPE {CPU} counter"]
    lines += [f"{CPU}_total{labels} {cpu} {at.timestamp()}" for labels, rows in known for at, cpu, _ in rows]
    lines.append(f"# TYPE {MEMORY} gauge")
    lines += [f"{MEMORY}{labels} {memory} {at.timestamp()}" for labels, rows in known for at, _, memory in rows]
    folder.mkdir(parents=True, exist_ok=True)
    text = folder / "past.om"
    text.write_text("\n".join([*lines, "# EOF\n"]))
    command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(text), str(folder / "data")]
    subprocess.run(command, check=True, capture_output=True)


def _labels(labels: Mapping[str, str]) -> str:
    return "{" + ",".join(f'{name}="{value}"' for name, value in labels.items()) + "}"


@contextmanager
def serving(folder: Path, *flags: str, config: str = "", authority: str = "") -> Iterator[tuple[str, Server]]:
    """Run a server on the data of a folder; gives its address, of https with an authority, and its process."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "prometheus.yml").write_text(config)
    address = f"127.0.0.1:{free_port()}"
    command = (
        "prometheus",
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        "--storage.tsdb.retention.time=100y",
        f"--web.listen-address={address}",
        *flags,
    )
    url = f"https://{address}" if authority else f"http://{address}"
    tls = ssl.create_default_context(cafile=authority) if authority else None
    with Server("prometheus", command, folder=folder, is_ready=lambda: _answers(f"{url}/-/ready", tls)) as server:
        yield url, server


def _answers(url: str, tls: ssl.SSLContext | None) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2, context=tls):
            return True
    except OSError:
        return False
