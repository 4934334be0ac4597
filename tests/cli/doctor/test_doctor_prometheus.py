"""`kinema doctor --settings`: the real Prometheus as the source of usage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from tests.support.prometheus import Series, container, serving, write_past

from kinema_cli.doctor.checks import Finding
from kinema_cli.doctor.examine import Subject, examine
from kinema_cli.local.settings import prometheus_setting, read_service_settings
from kinema_core.runtime.clock import SystemClock
from kinema_observer.settings import PrometheusSettings
from kinema_sim.engine.kinds import POD
from kinema_sim.front.server import Server, write_kubeconfig
from kinema_sim.scenarios.registry import SCENARIOS

pytestmark = pytest.mark.prometheus

DAYS = 3


def samples(now: datetime) -> Iterator[tuple[datetime, float, float]]:
    """Three days of a container, a sample each four minutes, the last one a minute ago."""
    for number in range(DAYS * 360, -1, -1):
        at = now - timedelta(minutes=1 + 4 * number)
        yield at, at.timestamp() / 10, 1e8


async def usage(tmp_path: Path, settings: PrometheusSettings) -> Finding:
    """What the doctor finds about Prometheus beside the tiny simulated cluster."""
    server = Server(SCENARIOS["tiny"](0), speed=1.0)
    address = await server.start()
    write_kubeconfig(tmp_path / "kubeconfig", url=address.url, token="none")
    try:
        found = await examine(replace(Subject(kubeconfig=str(tmp_path / "kubeconfig")), prometheus=settings))
    finally:
        await server.stop()
    assert not any(finding.check == "metrics-server" for finding in found)
    (finding,) = (finding for finding in found if finding.check == "prometheus")
    return finding


async def test_usage_of_prometheus(tmp_path: Path) -> None:
    """How many pods and how far back; else what is missing: no such series, another cluster's pods, no server."""
    now = SystemClock().now()
    first = SCENARIOS["tiny"](0).store.sorted(POD)[0]["metadata"]
    pod = {**container(first["name"]), "namespace": first["namespace"]}
    write_past(tmp_path, [Series(pod, samples(now)), Series(container("elsewhere", cluster="b"), samples(now))])
    with serving(tmp_path) as (url, _):
        known = await usage(tmp_path, PrometheusSettings(url=url))
        assert known.level == "ok"
        assert f"has usage of 2 pods, back to {now - timedelta(days=DAYS):%Y-%m-%d}" in known.message
        none = await usage(tmp_path, PrometheusSettings(url=url, matchers={"cluster": "c"}))
        assert none.level == "warn"
        assert "no container_cpu_usage_seconds_total of any container" in none.message
        other = await usage(tmp_path, PrometheusSettings(url=url, matchers={"cluster": "b"}))
        assert other.level == "warn"
        assert "usage of 1 pod, none of which is in this cluster" in other.message
        assert "prometheus.matchers" in other.remediation
    away = await usage(tmp_path, PrometheusSettings(url="http://127.0.0.1:9"))
    assert away.level == "warn"
    assert "cannot be reached" in away.message
    lost = await usage(tmp_path, PrometheusSettings(url=url, ca_file="/nowhere"))
    assert "prometheus.ca_file /nowhere" in lost.message


def test_the_server_is_that_of_the_settings(tmp_path: Path) -> None:
    """Only where usage comes from Prometheus."""
    file = tmp_path / "kinema.yaml"
    file.write_text("observer:\n  usage_source: prometheus\n  prometheus: {url: 'http://prometheus:9090'}\n")
    assert prometheus_setting(read_service_settings(file, {})) == PrometheusSettings(url="http://prometheus:9090")
    file.write_text("observer:\n  prometheus: {url: 'http://prometheus:9090'}\n")
    assert prometheus_setting(read_service_settings(file, {})) is None
