"""Creates the streams, consumers, work queue and bucket of leases. Run by a person or a job, never by a service.

Running it again creates what is missing. What differs from the wanted layout is reported as drift; an update changes it
where JetStream allows that and no message is lost by it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, Final, Literal, NamedTuple, TypeVar

import msgspec

from kinema_core.events import PREFIX
from kinema_core.runtime.bus import BusSetupError, BusUnavailableError
from kinema_core.runtime.nats_connection import ApiFault, Connection, fault_error, fault_of
from kinema_core.runtime.settings import RuntimeSettings
from kinema_core.runtime.topology import (
    CONSUMES,
    LEASE_BUCKET,
    STREAMS,
    WORK_STREAM,
    WORKS,
    consumer_name,
    kinds_of,
    subjects,
    work_consumer,
    work_subject,
)

A = TypeVar("A")

_NOT_FOUND: Final = frozenset({10014, 10059})
_NO_ROOM: Final = 10047
_NO_PEERS: Final = frozenset({10005, 10008, 10009})
"""Servers of the broker's cluster do not see each other, just now."""
_TRIES: Final = 40
_LOOKS: Final = 3
"""How often an inspection asks: enough for a new leader, and a broken broker is still reported within seconds."""
_PAUSE_SECONDS: Final = 0.5
_DROPPING: Final = frozenset({"max_bytes", "max_age", "max_msgs_per_subject"})
"""Limits of a stream: a lower one drops messages."""
_MATTERS_OF_SIZE: Final = frozenset(
    {"max_bytes", "max_age", "max_msgs_per_subject", "num_replicas", "duplicate_window", "ack_wait", "max_deliver"}
)
"""Settings that decide how much is kept, how safely and how long; services are right with any value of them."""
_OPEN_TO_OPERATOR: Final = (
    *(f"STREAM.INFO.{name}" for name in STREAMS.values()),
    f"CONSUMER.INFO.{STREAMS['LOG']}.",
)
_SECOND: Final = 1_000_000_000
_DAY: Final = 86_400
_MEBIBYTE: Final = 1024 * 1024
GIBIBYTE: Final = 1024 * _MEBIBYTE


@dataclass(frozen=True)
class Layout:
    """Layout of streams and consumers on the broker.

    The sum of the sizes must fit the broker's `max_file_store`; keep it under 80% of the volume.
    """

    clusters: tuple[str, ...]
    replicas: int = 1
    state_bytes: int = 2048 * _MEBIBYTE
    log_bytes: int = 2048 * _MEBIBYTE
    usage_bytes: int = 1024 * _MEBIBYTE
    usage_days: float = 31.0
    usage_steps: int = 600
    """Steps of usage that are kept one by one: two days of 5 minutes each; a checkpoint holds a day of them."""
    dlq_bytes: int = 64 * _MEBIBYTE
    work_bytes: int = 256 * _MEBIBYTE
    work_seconds: float = 3600.0
    """How long anything stays in the work queue: longer than any solve."""
    work_ack_seconds: float = 30.0
    """After so long without an answer an item is handed to another process."""
    dedup_seconds: float = 120.0
    ack_wait_seconds: float = 10.0
    """A handler that runs longer says so in between."""
    max_deliver: int = 100
    """Services drop an event long before, with a copy in DLQ; this is for one that dies before it can."""


@dataclass(frozen=True)
class SetupReport:
    """Parts that a run of `setup` created, settings that it changed, and differences that remain."""

    created: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    drift: tuple[str, ...] = ()
    unsafe: tuple[str, ...] = ()
    """Those of the differences with which services do wrong."""


class _State(msgspec.Struct, frozen=True):
    """Content of a stream."""

    bytes: int = 0


class _Limits(msgspec.Struct, frozen=True):
    """Limits of an account; -1 is none."""

    max_storage: int = -1


class _Account(msgspec.Struct, frozen=True):
    """Answer about the account of the administrator."""

    limits: _Limits = _Limits()


class _Info(msgspec.Struct, frozen=True):
    """Answer about a stream or a consumer."""

    config: dict[str, Any] = msgspec.field(default_factory=dict)
    state: _State = _State()


@dataclass(frozen=True)
class _Part:
    """A stream, or a consumer of one: its name for people and in the API, and what it is to be."""

    what: str
    name: str
    wanted: Mapping[str, Any]
    stream: str = ""
    """Of a consumer."""

    @property
    def info(self) -> str:
        """The call that asks for it."""
        return f"CONSUMER.INFO.{self.stream}.{self.name}" if self.stream else f"STREAM.INFO.{self.name}"

    def write(self, action: Literal["create", "update"], config: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
        """Return the call that creates or changes it, with its body."""
        if not self.stream:
            return f"STREAM.{action.upper()}.{self.name}", config
        body = {"stream_name": self.stream, "config": config, "action": action}
        return f"CONSUMER.CREATE.{self.stream}.{self.name}", body


@dataclass
class _Builder:
    connection: Connection
    layout: Layout
    update: bool
    created: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    drift: list[str] = field(default_factory=list)
    unsafe: list[str] = field(default_factory=list)

    async def ensure(self, part: _Part) -> None:
        """Create a part unless it is there; compare it with what is wanted if it is."""
        await _patiently(partial(self._ensure, part), _TRIES)

    async def _ensure(self, part: _Part) -> None:
        info = await _look(self.connection, part)
        if info is not None:
            await self._compare(part, info)
            return
        fault = await self._write(part, "create", part.wanted)
        if fault is not None and fault.err_code in _NO_PEERS:
            raise BusUnavailableError(f"{part.what} cannot be created yet: {fault.description} ({fault.err_code})")
        if fault is not None:
            advice = await self._room() if fault.err_code == _NO_ROOM else ""
            raise BusSetupError(f"{part.what} cannot be created: {fault.description} ({fault.err_code}){advice}")
        self.created.append(part.what)

    async def _room(self) -> str:
        """Return what limits the storage, what the streams need, and what to do."""
        most = (await self.connection.info("INFO", "account", _Account)).limits.max_storage
        limit, remedy = f"the account may store {most >> 20} MiB", "that limit (`kinema nats-rights --account-size`)"
        if most < 0:
            limit, remedy = "the server has less room", "the server's max_file_store"
        needed = f"all streams together need {storage_bytes(self.layout) >> 20} MiB"
        return f": {limit}, {needed}; raise {remedy}, or lower --state-size, --log-size or --usage-size"

    async def _compare(self, part: _Part, found: _Info) -> None:
        """Note what differs; an update changes one setting at a time, as each may be refused."""
        have = found.config
        for key, value in part.wanted.items():
            if have.get(key) == value:
                continue
            differs = _differs(part, key, have)
            if not self.update:
                pass
            elif _drops(key, value, have.get(key, -1), found.state.bytes):
                differs += "; not changed, as it would drop messages"
            elif fault := await self._write(part, "update", {**have, key: value}):
                differs += f"; not changed: {fault.description}"
            else:
                self.changed.append(f"{part.what}: {key} from {have.get(key)!r} to {value!r}")
                have = {**have, key: value}
                continue
            self.drift.append(differs)
            self.unsafe += [] if key in _MATTERS_OF_SIZE else [differs]

    async def _write(
        self, part: _Part, action: Literal["create", "update"], config: Mapping[str, Any]
    ) -> ApiFault | None:
        return fault_of(await self.connection.api(*part.write(action, config)), part.what)


async def setup(settings: RuntimeSettings, layout: Layout, *, update: bool = False) -> SetupReport:
    """Create what the layout wants; `settings` name the broker and its admin user.

    With `update`, what is there and differs is changed, unless JetStream refuses or messages would be dropped.

    Raises:
        BusDeniedError: wrong credentials, or not the admin's. BusUnavailableError. BusSetupError: the broker refuses.
    """
    connection = Connection("kinema-setup")
    await connection.open(settings)
    try:
        builder = _Builder(connection, layout, update)
        for part in _parts(layout):
            await builder.ensure(part)
        return SetupReport(tuple(builder.created), tuple(builder.changed), tuple(builder.drift), tuple(builder.unsafe))
    finally:
        await connection.close()


def _drops(key: str, wanted: Any, have: Any, held: int) -> bool:  # noqa: ANN401 - settings are of many types
    """Return whether a setting would drop messages of a stream that holds so many bytes."""
    if key == "max_bytes" and have < 0:  # no bound until now
        return bool(held > wanted)
    return key in _DROPPING and 0 <= wanted < have


def _differs(part: _Part, key: str, have: Mapping[str, Any]) -> str:
    return f"{part.what}: {key} is {have.get(key)!r}, wanted {part.wanted[key]!r}"


class StreamSize(NamedTuple):
    """A stream as an operator has sized it, and how much is in it."""

    name: str
    bytes: int
    max_bytes: int
    replicas: int


class Inspection(NamedTuple):
    """State of a broker as a client sees it."""

    version: str
    """Of the server."""
    missing: tuple[str, ...] = ()
    """Streams and consumers that a cluster's services need and that are not there."""
    unsafe: tuple[str, ...] = ()
    """Differences from what services need to do right."""
    streams: tuple[StreamSize, ...] = ()
    has_peers: bool = False
    """The server is one of a broker cluster."""
    certificate_until: datetime | None = None
    """When the server's certificate expires; None without TLS."""
    own_certificate_until: datetime | None = None
    """When that of the client does; None without one."""


async def inspect(settings: RuntimeSettings) -> Inspection:
    """Return the state of a broker, and what the services of the settings' cluster lack there.

    Looks only at what the operator may ask about: the bucket of leases and the work queue are made along with it.

    Raises:
        BusDeniedError: wrong credentials. BusUnavailableError.
    """
    connection = Connection("kinema-doctor")
    await connection.open(settings)
    try:
        absent: list[str] = []
        unsafe: list[str] = []
        streams: list[StreamSize] = []
        for part in _parts(Layout(clusters=(settings.cluster,))):
            if not any(part.info.startswith(prefix) for prefix in _OPEN_TO_OPERATOR):
                continue
            info = await _patiently(partial(_look, connection, part), _LOOKS)
            if info is None:
                absent.append(part.what)
                continue
            wrong = (key for key, value in part.wanted.items() if info.config.get(key) != value)
            unsafe += [_differs(part, key, info.config) for key in wrong if key not in _MATTERS_OF_SIZE]
            if not part.stream:
                size, copies = info.config.get("max_bytes", -1), info.config.get("num_replicas", 1)
                streams.append(StreamSize(part.name, info.state.bytes, size, copies))
        client = connection.client
        server = client.connected_server_version
        version = f"{server.major}.{server.minor}.{server.patch}"
        until = client.certificate_until(), client.own_certificate_until()
        return Inspection(version, tuple(absent), tuple(unsafe), tuple(streams), client.has_peers, *until)
    finally:
        await connection.close()


async def _look(connection: Connection, part: _Part) -> _Info | None:
    """Return what the broker says about a part, None where it is absent; raises BusError for any other answer."""
    data = await connection.api(part.info)
    fault = fault_of(data, part.what)
    if fault is None:
        return msgspec.json.decode(data, type=_Info)
    if fault.err_code not in _NOT_FOUND:
        raise fault_error(fault, part.what)
    return None


async def _patiently(call: Callable[[], Awaitable[A]], tries: int) -> A:
    """Repeat a call while servers that have just started look for their peers, or a stream has no leader.

    A request that arrives while a leader is elected, as after a change of copies, may stay without an answer.
    """
    for _ in range(tries - 1):
        try:
            return await call()
        except BusUnavailableError:
            await asyncio.sleep(_PAUSE_SECONDS)
    return await call()


def _parts(layout: Layout) -> Iterator[_Part]:
    consumers = {STREAMS["LOG"]: consumer_configs(layout), WORK_STREAM: work_consumer_configs(layout)}
    for config in (*stream_configs(layout), work_config(layout)):
        yield _Part(f"stream {config['name']}", config["name"], config)
    for stream, configs in consumers.items():
        for config in configs:
            yield _Part(f"consumer {config['durable_name']}", config["durable_name"], config, stream)


def storage_bytes(layout: Layout) -> int:
    """Return what the streams of a layout take at most, all copies together."""
    every = [*stream_configs(layout), work_config(layout)]
    return sum(config["max_bytes"] * config["num_replicas"] for config in every)


def stream_configs(layout: Layout) -> list[dict[str, Any]]:
    """Configurations of the streams and of the bucket, as the broker's API takes them."""
    families = {
        "STATE": (["state"], layout.state_bytes),
        "LOG": (["plan", "exec", "control"], layout.log_bytes),
        "USAGE": (["usage"], layout.usage_bytes),
        "DLQ": (["dlq"], layout.dlq_bytes),
    }
    common: dict[str, Any] = {
        "retention": "limits",
        "storage": "file",
        "num_replicas": layout.replicas,
        "allow_direct": True,
    }
    kept = {"max_age": int(layout.usage_days * _DAY * _SECOND), "max_msgs_per_subject": layout.usage_steps}
    streams: list[dict[str, Any]] = [
        {
            **common,
            "name": STREAMS[name],  # type: ignore[index]  # the keys above are the stream names
            "subjects": [f"{PREFIX}.*.{family}.>" for family in of],
            "max_bytes": size,
            "discard": "old",
            "duplicate_window": int(layout.dedup_seconds * _SECOND),
            **(kept if name == "USAGE" else {}),
        }
        for name, (of, size) in families.items()
    ]
    bucket = {
        **common,
        "name": f"KV_{LEASE_BUCKET}",
        "subjects": [f"$KV.{LEASE_BUCKET}.>"],
        "max_bytes": _MEBIBYTE,
        "max_msgs_per_subject": 1,
        "discard": "new",
        "allow_rollup_hdrs": True,
        "deny_delete": True,
        # Expiry of a holder's key without a marker left in its place: the marker would look like a value.
        "allow_msg_ttl": True,
    }
    return [*streams, bucket]


def consumer_configs(layout: Layout) -> list[dict[str, Any]]:
    """Configurations of the durable consumers: one per cluster and service that answers events."""
    return [
        {
            "durable_name": consumer_name(service, cluster),
            "deliver_policy": "all",
            "ack_policy": "explicit",
            "ack_wait": int(layout.ack_wait_seconds * _SECOND),
            "max_deliver": layout.max_deliver,
            # One at a time: events are answered in their order.
            "max_ack_pending": 1,
            "replay_policy": "instant",
            "filter_subjects": subjects(cluster, kinds_of(bodies)),
            "num_replicas": layout.replicas,
        }
        for cluster in layout.clusters
        for service, bodies in CONSUMES.items()
    ]


def work_config(layout: Layout) -> dict[str, Any]:
    """Configuration of the work queue. Items leave it when they are settled or old, blobs when they are old."""
    return {
        "name": WORK_STREAM,
        "subjects": [f"{PREFIX}.*.work.>"],
        "retention": "workqueue",
        "storage": "file",
        "num_replicas": 1,  # it may be lost: that costs the time of the items in it
        "max_bytes": layout.work_bytes,
        "max_age": int(layout.work_seconds * _SECOND),
        "max_msgs_per_subject": -1,
        "discard": "old",
        "allow_msg_ttl": True,
    }


def work_consumer_configs(layout: Layout) -> list[dict[str, Any]]:
    """Configurations of the consumers that all processes of a service take their items from."""
    return [
        {
            "durable_name": work_consumer(cluster, service),
            "deliver_policy": "all",
            "ack_policy": "explicit",
            "ack_wait": int(layout.work_ack_seconds * _SECOND),
            "max_deliver": 3,  # an item that kills the process that takes it must not kill all
            "max_ack_pending": 1024,
            "replay_policy": "instant",
            "filter_subject": work_subject(cluster, service),
            "num_replicas": 1,
        }
        for cluster in layout.clusters
        for service in WORKS
    ]
