"""Check of Prometheus as the source of usage."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from kinema_cli.doctor.checks import Finding
from kinema_cli.output import counted
from kinema_kubernetes.client import PAGE, Client
from kinema_kubernetes.errors import KubernetesError
from kinema_observer.adapters.prometheus import Prometheus
from kinema_observer.errors import PrometheusError
from kinema_observer.logic.prometheus import queries
from kinema_observer.settings import PrometheusSettings

_CHECK: Final = "prometheus"
_LOST: Final = "; without usage, requests are not changed"
_STEP: Final = timedelta(minutes=5)
_DAY: Final = timedelta(days=1)


async def prometheus(api: Client, settings: PrometheusSettings, now: datetime) -> Finding:
    """Check that the server has usage of the cluster's pods, and say how far back."""
    try:
        client = Prometheus(settings)
    except PrometheusError as error:
        return Finding(_CHECK, "warn", f"{error}{_LOST}", "correct the observer's setting `prometheus`")
    try:
        cpu, memory = await client.usage(now - 2 * _STEP, now - _STEP, _STEP)
        days = max(1, round(settings.lookback_seconds / _DAY.total_seconds()))
        past = await client.range(queries(_STEP, settings.matchers)[1], now - days * _DAY, now, _DAY)
    except PrometheusError as error:
        return Finding(
            _CHECK, "warn", f"{error}{_LOST}", "look at the server and at the observer's setting `prometheus`"
        )
    finally:
        await client.close()
    if not cpu or not memory:
        name = "container_memory_working_set_bytes" if cpu else "container_cpu_usage_seconds_total"
        remedy = "let it scrape /metrics/cadvisor or /metrics/resource of the kubelets; check `prometheus.matchers`"
        return Finding(_CHECK, "warn", f"{client.url} has no {name} of any container{_LOST}", remedy)
    running = await _running(api)
    if running and not running & set(memory):
        message = f"{client.url} has usage of {counted(len(memory), 'pod')}, none of which is in this cluster{_LOST}"
        return Finding(_CHECK, "warn", message, "correct `prometheus.matchers` or `prometheus.tenant`")
    oldest = now - (days - min(number for values in past.values() for number in values)) * _DAY if past else now
    return Finding(_CHECK, "ok", f"{client.url} has usage of {counted(len(memory), 'pod')}, back to {oldest:%Y-%m-%d}")


async def _running(api: Client) -> set[str]:
    """Return keys of pods that run, a page of them; none where that is not known."""
    try:
        found = await api.get("/api/v1/pods", limit=str(PAGE), fieldSelector="status.phase=Running")
    except KubernetesError:
        return set()
    return {f"{item['metadata']['namespace']}/{item['metadata']['name']}" for item in found.get("items") or []}
