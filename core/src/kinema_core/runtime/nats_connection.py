"""A connection to the broker: how it is made, kept, and how its errors get a name.

The client reports a missing right only to its error callback while the caller runs into a time-out, and goes on trying
a wrong password for ever. Here both become errors of the call that caused them.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Final, TypeVar

import msgspec
import nats.errors
from nats.aio.msg import Msg

from kinema_core.runtime.bus import (
    BusDeniedError,
    BusError,
    BusSetupError,
    BusUnavailableError,
    ConflictError,
)
from kinema_core.runtime.nats_secrets import BrokerClient, SecretError, is_unauthorized, tls_advice
from kinema_core.runtime.settings import RuntimeSettings, SettingsError
from kinema_core.runtime.topology import inbox_prefix

A = TypeVar("A")

REQUEST_SECONDS: Final = 5.0
"""How long one request may take; longer than an election of a new stream leader usually does."""
_RECONNECT_SECONDS: Final = 0.5
_SECRET_SECONDS: Final = 150.0
"""How long a changed secret may take to reach its file: a kubelet looks every minute, and caches as long."""
_OPENSSL: Final = re.compile(r"^\[SSL: \w+\] | \(_ssl\.c:\d+\)$")
"""Parts of an error that only OpenSSL's authors understand."""
_DENIED: Final = "permissions violation"


class NoResponderError(BusUnavailableError):
    """No server listens on the subject: there is no such stream, or it has no leader just now."""


class AmbiguousError(BusUnavailableError):
    """The request was sent and no answer came: it may or may not have taken effect."""


class ApiFault(msgspec.Struct, frozen=True):
    """The error part of a JetStream answer."""

    code: int = 0
    err_code: int = 0
    description: str = ""


class _Answer(msgspec.Struct, frozen=True):
    error: ApiFault | None = None


class Ack(msgspec.Struct, frozen=True):
    """Answer of a stream to a message that it has stored."""

    seq: int = 0
    duplicate: bool = False


_SETUP_CODES: Final = frozenset({10014, 10039, 10059, 10076})
"""Consumer, account, stream, JetStream itself: not there."""
_REFUSAL_CODES: Final = frozenset({10023, 10047, 10052, 10054, 10077, 10097, 10166})
"""Store or stream full, wrong configuration, message or headers too large, expiry of messages turned off."""
_CONFLICT_CODES: Final = frozenset({10071, 10164})
"""Wrong last sequence, and the clustered broker's other number for it."""
NO_MESSAGE: Final = 10037
_IN_FLIGHT: Final = 10158
"""The same message id is being stored just now."""


def fault_error(fault: ApiFault, what: str) -> BusError:
    """Return the bus's name for an error that JetStream answered."""
    text = f"{what}: {fault.description} ({fault.err_code})"
    if fault.err_code in _SETUP_CODES:
        return BusSetupError(f"{text}: run `kinema setup`")
    if fault.err_code in _REFUSAL_CODES:
        return BusSetupError(f"{text}: make room, or change the stream or the broker's limits")
    if fault.err_code in _CONFLICT_CODES:
        return ConflictError(text)
    if fault.err_code == _IN_FLIGHT:
        return AmbiguousError(text)
    return BusUnavailableError(text)


class Connection:
    """One connection to the broker, kept for ever; made by `open_connection`."""

    def __init__(self, name: str) -> None:
        self.client = BrokerClient()
        self._name = name
        self._waiting: list[tuple[str, asyncio.Future[Msg]]] = []
        """Subjects of the requests under way, and how to interrupt each."""
        self._settings: RuntimeSettings | None = None
        self._was_connected = False
        self._refused_since: float | None = None
        self._refused: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._refusal = ""
        self._last_error = ""
        self._closing: asyncio.Task[object] | None = None
        """Who closes it."""
        self._wakened: list[asyncio.Queue[Msg | None]] = []

    # --- life

    async def open(self, settings: RuntimeSettings) -> None:
        """Connect; raises BusDeniedError for wrong credentials, BusUnavailableError when no server answers in time."""
        self._settings = settings
        connecting = asyncio.ensure_future(
            self.client.log_in(
                settings,
                name=self._name,
                inbox_prefix=inbox_prefix(settings.nats_user).encode(),
                max_reconnect_attempts=-1,
                reconnect_time_wait=_RECONNECT_SECONDS,
                connect_timeout=3,
                ping_interval=5,
                max_outstanding_pings=2,
                # Nothing is kept back while disconnected: a command sent minutes later is worse than an error.
                pending_size=0,
                error_cb=self._on_error,
                closed_cb=self._on_closed,
                disconnected_cb=self._on_disconnected,
                reconnected_cb=self._on_reconnected,
            )
        )
        try:
            await asyncio.wait(
                {connecting, self._refused},
                timeout=settings.nats_connect_seconds,
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            if not connecting.done():
                connecting.cancel()
                await asyncio.wait({connecting})
        if self._refused.done():
            await self.close()
            raise BusDeniedError(self._refused_text())
        error = TimeoutError("no answer") if connecting.cancelled() else connecting.exception()
        if isinstance(error, SettingsError | SecretError):
            raise BusDeniedError(str(error)) from error
        if error is not None:
            # The client asserts that it got as far as a socket; with an address that it cannot use it did not.
            with suppress(AssertionError):
                await self.close()
            raise BusUnavailableError(f"{settings.nats_url} cannot be reached: {self._last_error or error}")
        self._was_connected = True

    def _refused_text(self) -> str:
        """Return why the broker and this client do not come together, and what to do."""
        assert self._settings is not None  # nobody else is refused
        settings, user = self._settings, self._settings.nats_user
        where = settings.nats_url
        if advice := tls_advice(self._refusal):
            return f"{where}: {self._refusal}: {advice}"
        secrets = settings.nats_password, settings.nats_password_file, settings.nats_seed_file, settings.nats_creds_file
        advice = "" if any(secrets) else f": set {'' if user else 'nats_user and '}nats_password_file"
        return f"{where} refuses user {user!r}: {self._refusal}{advice}"

    def _may_be_accepted_later(self) -> bool:
        """Return whether a refusal may be a secret that has changed at the broker before it has in its file."""
        if not (self._settings and self._settings.renewable and self._was_connected):
            return False
        now = asyncio.get_running_loop().time()
        self._refused_since = self._refused_since if self._refused_since is not None else now
        return now - self._refused_since < _SECRET_SECONDS

    async def close(self) -> None:
        """Disconnect. `drain` would raise while reconnecting, so nothing is drained."""
        self._closing = asyncio.current_task()
        if not self.client.is_closed:
            await self.client.close()

    @property
    def connected(self) -> bool:
        """Return whether the broker is connected just now."""
        return self.client.is_connected

    @property
    def closed(self) -> bool:
        """Return whether the connection was closed, here or for good by the broker."""
        return self._closing is not None or self.client.is_closed

    @asynccontextmanager
    async def inbox(self) -> AsyncIterator[tuple[str, asyncio.Queue[Msg | None]]]:
        """Open an inbox, and a queue of what arrives there; None arrives after a reconnect or the connection's end."""
        inbox = self.client.new_inbox()
        arrived: asyncio.Queue[Msg | None] = asyncio.Queue()
        subscription = await self.client.subscribe(inbox, cb=arrived.put)
        self._wakened.append(arrived)
        try:
            yield inbox, arrived
        finally:
            self._wakened.remove(arrived)
            if not self.client.is_closed:
                await subscription.unsubscribe()

    def check_refused(self) -> None:
        """Raise BusDeniedError if the broker has refused the credentials since."""
        if self._refused.done():
            raise BusDeniedError(f"the broker refuses the credentials: {self._refused_text()}")

    def check_ended(self) -> None:
        """Raise BusDeniedError if the broker ended the connection for good."""
        self.check_refused()
        if self.client.is_closed and self._closing is None:
            raise BusDeniedError(f"the broker ended the connection for good{self._because()}")

    def check(self) -> None:
        """Raise what stands in the way of a request just now, if anything does."""
        self.check_ended()
        if self.closed:
            raise BusUnavailableError(f"the connection is closed{self._because()}")
        if not self.client.is_connected:
            raise BusUnavailableError(f"not connected to the broker{self._because()}")

    # --- requests

    async def request(
        self,
        subject: str,
        payload: bytes = b"",
        *,
        headers: Mapping[str, str] | None = None,
        seconds: float = REQUEST_SECONDS,
    ) -> Msg:
        """Send a request and wait for its answer.

        Raises:
            BusUnavailableError: not connected. NoResponderError. AmbiguousError: no answer. BusDeniedError.
        """
        self.check()
        sending = asyncio.ensure_future(
            self.client.request(subject, payload, timeout=seconds, headers=dict(headers) if headers else None)
        )
        with self.interruption(subject) as interrupted:
            try:
                await asyncio.wait({sending, interrupted}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                if not sending.done():
                    sending.cancel()
            if not sending.done() or sending.cancelled():
                return interrupted.result()
        return self._answer(sending, subject, seconds)

    @contextmanager
    def interruption(self, subject: str) -> Iterator[asyncio.Future[Msg]]:
        """Yield a future that fails when the broker forbids to publish on the subject, or goes away."""
        interrupted: asyncio.Future[Msg] = asyncio.get_running_loop().create_future()
        self._waiting.append((subject, interrupted))
        try:
            yield interrupted
        finally:
            interrupted.cancel()
            self._waiting.remove((subject, interrupted))

    async def send(self, subject: str, payload: bytes, *, reply: str = "") -> None:
        """Send a message that is not confirmed; raises BusUnavailableError when that is impossible just now."""
        self.check()
        try:
            await self.client.publish(subject, payload, reply=reply)
        except (nats.errors.Error, OSError) as error:
            raise BusUnavailableError(f"{subject}: {error or type(error).__name__}{self._because()}") from error

    def _answer(self, sending: asyncio.Future[Msg], subject: str, seconds: float) -> Msg:
        try:
            return sending.result()
        except nats.errors.NoRespondersError as error:
            raise NoResponderError(f"{subject}: no answer") from error
        except nats.errors.TimeoutError as error:
            message = f"{subject}: no answer within {seconds:g} s{self._because()}"
            if "for subscription" in self._last_error:
                raise BusDeniedError(message) from error
            raise AmbiguousError(message) from error
        except (nats.errors.Error, OSError, asyncio.CancelledError) as error:
            raise AmbiguousError(f"{subject}: {error or type(error).__name__}{self._because()}") from error

    async def api(self, name: str, body: object = None) -> bytes:
        """Call the JetStream API and give its answer as it came, errors included."""
        return (await self.request(f"$JS.API.{name}", msgspec.json.encode(body) if body is not None else b"")).data

    async def info(self, name: str, what: str, kind: type[A], body: object = None) -> A:
        """Call the JetStream API about `what` and decode its answer; raises BusError for an error in it."""
        return _answer(await self.api(name, body), what, kind)

    async def store(self, subject: str, payload: bytes, what: str, headers: Mapping[str, str]) -> Ack:
        """Send a message to a stream and wait until it is stored; raises BusError for an error in the answer."""
        return _answer((await self.request(subject, payload, headers=headers)).data, what, Ack)

    # --- callbacks of the client

    async def _on_error(self, error: Exception) -> None:
        if self._closing not in {None, asyncio.current_task()}:
            # The client's reconnecting may overlook that it is canceled (`wait_for` did before Python 3.12), and would
            # go on for ever: a process could not end.
            raise asyncio.CancelledError
        text = _OPENSSL.sub("", str(error) or type(error).__name__)
        self._last_error = text.removeprefix("nats: ").strip("'")
        refused = isinstance(error, SecretError) or is_unauthorized(text) or bool(tls_advice(text))
        if refused and not self._refused.done() and not self._may_be_accepted_later():
            self._refusal = self._last_error
            self._refused.set_result(None)
            self._wake()
        if _DENIED in text:
            self._deny(text)

    def _deny(self, text: str) -> None:
        for subject, interrupted in self._waiting:
            # The client hands over errors in lower case.
            if f'"{subject.lower()}"' in text:
                _interrupt(interrupted, BusDeniedError(f"{self._name} has no right to publish on {subject}"))

    async def _on_disconnected(self) -> None:
        """Whatever was under way will not be answered any more."""
        for subject, interrupted in self._waiting:
            _interrupt(interrupted, AmbiguousError(f"{subject}: the connection broke before the answer came"))
        self._wake()

    async def _on_reconnected(self) -> None:
        self._refused_since = None
        self._last_error = ""
        self._wake()

    async def _on_closed(self) -> None:
        self._wake()

    def _wake(self) -> None:
        for queue in self._wakened:
            queue.put_nowait(None)

    def _because(self) -> str:
        return f" (last error: {self._last_error})" if self._last_error else ""


def _interrupt(interrupted: asyncio.Future[Msg], error: BusError) -> None:
    if not interrupted.done():
        interrupted.set_exception(error)
        interrupted.exception()  # counts as seen: the waiting side may have got its answer already


def fault_of(data: bytes, what: str) -> ApiFault | None:
    """Return the error that an answer holds; raises BusUnavailableError for bytes that are no answer of JetStream."""
    try:
        return msgspec.json.decode(data, type=_Answer).error
    except msgspec.DecodeError as error:
        raise BusUnavailableError(f"{what}: the answer cannot be read: {error}") from error


def _answer(data: bytes, what: str, kind: type[A]) -> A:
    fault = fault_of(data, what)
    if fault is not None:
        raise fault_error(fault, what)
    return msgspec.json.decode(data, type=kind)
