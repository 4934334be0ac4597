"""All checks in their order; those that need a failed one are left out."""

from __future__ import annotations

import asyncio
import re
import urllib.request
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final

import msgspec

from kinema_cli.admin.rbac import DEFAULT, rules_by_service
from kinema_cli.admin.setup import setup_call
from kinema_cli.agreement import REMEDY, disagreement
from kinema_cli.broker import on_bus
from kinema_cli.doctor.checks import Finding, budgets, metrics, reachable, recommendations, rights, shortened, steering
from kinema_cli.doctor.prices import other_autoscalers, prices
from kinema_cli.doctor.prometheus import prometheus
from kinema_cli.inputs import as_variables
from kinema_cli.leftovers import leftovers
from kinema_cli.output import counted
from kinema_cli.snapshot.live import objects_of
from kinema_cli.status.pipeline import read_status
from kinema_core.events import ServiceStarted
from kinema_core.model.cluster import Cluster, from_objects
from kinema_core.runtime.bus import Bus, BusDeniedError, BusError, Stored
from kinema_core.runtime.clock import SystemClock
from kinema_core.runtime.nats_rights import missing_rights
from kinema_core.runtime.settings import RuntimeSettings
from kinema_core.runtime.setup import Inspection, inspect
from kinema_kubernetes.client import Client, connect
from kinema_kubernetes.errors import KubernetesError
from kinema_observer.adapters.source import RESOURCES
from kinema_observer.errors import UnreadableListError
from kinema_observer.settings import PrometheusSettings

OLDEST_BROKER: Final = (2, 11)
"""The first nats-server with expiry of single messages."""
SILENT: Final = 900.0
"""Age of the state in seconds after which the rescheduler stops acting."""
EXPIRES_SOON: Final = 14
"""Days of a certificate's life that ought to be left."""
_USERS: Final = "name the user of each service in --settings, or one with all their rights in --nats (docs/broker.md)"
RENEW: Final = "renew it: an expired one is refused"
_NODES: Final = next(item for item in RESOURCES if item.kind == "Node")


class _Disk(msgspec.Struct):
    sync_interval: int = 0
    """Nanoseconds."""
    sync_always: bool = False


class _JetStream(msgspec.Struct):
    config: _Disk


async def broker(
    settings: RuntimeSettings, monitor: str = "", runtimes: Mapping[str, RuntimeSettings] = MappingProxyType({})
) -> list[Finding]:
    """Check the broker with the operator's or the administrator's credentials, and its disk by its monitoring port.

    With `runtimes`, also whether the user of each service has its rights.
    """
    where = settings.nats_url
    disk = [await asyncio.to_thread(_disk, monitor)] if monitor else []
    try:
        found = await inspect(settings)
    except BusDeniedError as error:
        hint = "name the operator in --nats, and the file of its password in KINEMA_NATS_PASSWORD_FILE"
        return [Finding("broker", "fail", _about(where, error), hint)]
    except BusError as error:
        return [Finding("broker", "fail", _about(where, error), "start nats-server with JetStream, or correct --nats")]
    now = settings.clock().now()
    disk += _certificate("the broker's certificate", found.certificate_until, now)
    disk += _certificate("the client's certificate", found.own_certificate_until, now)
    is_server = f"{where} is nats-server {found.version}"
    if _numbers(found.version) < OLDEST_BROKER:
        return [Finding("broker", "fail", is_server, "use nats-server 2.11 or newer"), *disk]
    setup = f"kinema setup --nats nats://admin@… --cluster-name {settings.cluster}"
    if found.missing:
        return [Finding("broker", "fail", f"{where} lacks {shortened(', '.join(found.missing))}", setup), *disk]
    wrong = [Finding("streams", "fail", what, f"{setup} --update") for what in found.unsafe]
    message = f"{is_server} with all streams and consumers"
    sizes, agreement = _sizes(found, f"{setup} --update"), await on_bus(settings, _agreement)
    lacking = await _lacking(runtimes)
    return [Finding("broker", "ok", message), *disk, *wrong, sizes, await _state(settings), *agreement, *lacking]


async def _lacking(runtimes: Mapping[str, RuntimeSettings]) -> list[Finding]:
    """Check that the user with which each service connects has its rights; one finding for each user that has not."""
    missing: dict[str, list[str]] = {}
    try:
        for service, settings in runtimes.items():
            if found := await missing_rights(settings, service):
                missing.setdefault(settings.nats_user, []).append(f"{service} needs {found[0]}")
    except BusError as error:
        return [Finding("broker rights", "fail", as_variables(str(error)), _USERS)]
    said = (f"user {user!r} lacks rights of services: {'; '.join(each)}" for user, each in missing.items())
    return [Finding("broker rights", "fail", message, _USERS) for message in said]


def _certificate(what: str, until: datetime | None, now: datetime) -> list[Finding]:
    """Check that a certificate does not expire soon; nothing without one."""
    if until is None:
        return []
    left = (until - now).days
    said = f"{what} expires in {counted(left, 'day')}"
    return [Finding("broker TLS", "warn" if left < EXPIRES_SOON else "ok", said, RENEW if left < EXPIRES_SOON else "")]


def _sizes(found: Inspection, remedy: str) -> Finding:
    """Check that streams are bounded, and copied where there are servers for copies."""
    said = "; ".join(f"{one.name} {one.bytes >> 20} of {one.max_bytes >> 20} MiB" for one in found.streams)
    if unbounded := [one.name for one in found.streams if one.max_bytes <= 0]:
        return Finding("streams", "warn", f"{', '.join(unbounded)} may fill the disk: no max_bytes", remedy)
    if found.has_peers and (alone := [one.name for one in found.streams if one.replicas == 1]):
        return Finding(
            "streams", "warn", f"{', '.join(alone)}: one copy on a broker of several servers", f"{remedy} --replicas 3"
        )
    return Finding("streams", "ok", f"{said}; copies of each: {min(one.replicas for one in found.streams)}")


def _numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a version such as `2.12.0-RC.1`, less what follows them."""
    return tuple(map(int, re.findall(r"\d+", version.partition("-")[0])))


def _disk(monitor: str) -> Finding:
    """Check that the broker writes to disk before it acknowledges; `monitor` is its HTTP monitoring address."""
    try:
        with urllib.request.urlopen(f"{monitor.rstrip('/')}/jsz?config=1", timeout=5) as answer:  # noqa: S310 - as named
            config = msgspec.json.decode(answer.read(), type=_JetStream).config
    except (OSError, ValueError) as error:
        return Finding("broker disk", "fail", f"{monitor}: {error}", "name the monitoring address, as http://host:8222")
    if config.sync_always:
        return Finding("broker disk", "ok", "sync_interval is always")
    said = f"sync_interval is {config.sync_interval / 1e9:g} s: a power failure loses acknowledged events"
    return Finding("broker disk", "warn", said, "set jetstream.sync_interval to always")


def _about(where: str, error: BusError) -> str:
    """Return the error with the broker's address, which some errors name themselves."""
    return as_variables(str(error) if where in str(error) else f"{where}: {error}")


async def _state(settings: RuntimeSettings) -> Finding:
    remedy = "start the observer, or look at its /readyz"
    now = settings.clock().now()
    state = (await on_bus(settings, lambda bus: read_status(bus, cluster=settings.cluster, now=now))).state
    if state is None:
        return Finding("state", "warn", f"no events of cluster {settings.cluster} yet", remedy)
    message = f"version {state.version}, {state.age_seconds:.0f} s old"
    return Finding(
        "state", "warn" if state.age_seconds > SILENT else "ok", message, remedy if state.age_seconds > SILENT else ""
    )


async def _agreement(bus: Bus) -> list[Finding]:
    """Compare the settings with which the services started last; nothing where they agree."""
    settings: dict[str, dict[str, Any]] = {}
    async for item in bus.read("LOG", kinds=("service-started",)):
        if isinstance(item, Stored) and isinstance(item.event.body, ServiceStarted):
            settings[item.event.body.service] = msgspec.json.decode(item.event.body.settings)
    differs = disagreement(settings)
    return [Finding("settings", "warn", differs, REMEDY)] if differs else []


@dataclass(frozen=True, kw_only=True)
class Subject:
    """Subject of the checks."""

    kubeconfig: str
    context: str = ""
    provider: dict[str, object] | None = None
    """The rescheduler's setting; without one, prices are not checked, and rights are those of `kinema rbac`."""
    accounts: str = ""
    """Namespace of the service accounts whose rights are checked; empty: the user's own rights."""
    nats: RuntimeSettings | None = None
    runtimes: Mapping[str, RuntimeSettings] = field(default_factory=dict)
    """How each service connects to that broker, where they are about to be started; else its users are not checked."""
    nats_monitor: str = ""
    """HTTP monitoring address of the broker; empty: its disk is not checked."""
    prometheus: PrometheusSettings | None = None
    """Where usage comes from; None: from the metrics API."""
    steering: bool = True
    """Check the admission policy; not where it is about to be installed, or not wanted."""


async def examine(subject: Subject) -> tuple[Finding, ...]:
    """Return every finding in the order of the checks; changes nothing."""
    checks: list[Awaitable[list[Finding]]] = [_cluster(subject)]
    if subject.nats is not None:
        checks.append(broker(subject.nats, subject.nats_monitor, subject.runtimes))
    return tuple(finding for found in await asyncio.gather(*checks) for finding in found)


async def _cluster(subject: Subject) -> list[Finding]:
    try:
        api = await connect(subject.kubeconfig, context=subject.context)
    except KubernetesError as error:
        return [Finding("kubernetes", "fail", str(error), "correct --kubeconfig or --context")]
    try:
        return await _in_reach(api, subject)
    except (KubernetesError, msgspec.DecodeError) as error:
        message = f"{api.server}: {error}"
        return [Finding("kubernetes", "fail", message, "check address and credentials with `kubectl version`")]
    finally:
        await api.close()


async def _in_reach(api: Client, subject: Subject) -> list[Finding]:
    found = await reachable(api)
    kind = str(subject.provider["kind"]) if subject.provider is not None else ""
    found += await rights(api, rules_by_service(kind or DEFAULT), accounts=subject.accounts, provider=kind)
    if subject.prometheus is None:
        found.append(await metrics(api))
    else:
        found.append(await prometheus(api, subject.prometheus, SystemClock().now()))
    found.append(await recommendations(api))
    found += await budgets(api)
    if subject.steering:
        found.append(await steering(api, setup_call(subject.kubeconfig, subject.context)))
    try:
        cluster = from_objects(await objects_of(api, _NODES))
    except (KubernetesError, UnreadableListError) as error:
        return [*found, Finding("nodes", "fail", f"they cannot be listed: {error}", "see the rights above")]
    return found + await _nodes(cluster, subject, kind) + await leftovers(api, cluster.nodes)


async def _nodes(cluster: Cluster, subject: Subject, kind: str) -> list[Finding]:
    if not cluster.nodes:
        return [Finding("nodes", "fail", "the cluster has none", "add a node")]
    found = []
    if cluster.quarantined:
        first = cluster.quarantined[0]
        message = f"{counted(len(cluster.quarantined), 'node')} cannot be read and stay: {first.object}, {first.path}"
        found.append(Finding("nodes", "warn", message, first.reason))
    if subject.provider is not None:
        found += await prices(subject.provider, subject.kubeconfig, cluster, context=subject.context)
    else:
        remedy = "name the node provider with --provider"
        found.append(Finding("provider", "ok", "not named; neither it nor prices are checked", remedy))
    return found + other_autoscalers(cluster.nodes, kind)
