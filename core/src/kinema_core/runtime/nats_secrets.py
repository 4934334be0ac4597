"""A client that proves itself to the broker and the broker to itself, by passwords, keys, tokens and certificates.

All of these lie in files that change while a service runs: a Secret is renewed, a certificate expires. They are read at
each attempt to connect; a file that is being replaced just then counts as it was before, or fails that attempt.
"""

from __future__ import annotations

import logging
import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import nats.errors
from nats.aio.client import Client

from kinema_core.runtime.settings import RuntimeSettings, SettingsError

_TLS_ADVICE: Final = (
    (r"(hostname|ip address) mismatch", "set nats_server_name to a name in the broker's certificate"),
    (r"failed: certificate has expired", "renew the broker's certificate"),
    (r"certificate verify failed", "set nats_ca_file to the authority that signed the broker's certificate"),
    (r"alert certificate required", "set nats_cert_file: the broker asks for a client's certificate"),
    (r"alert certificate expired", "renew the certificate in nats_cert_file"),
    (r"alert (unknown ca|bad certificate)", "set nats_cert_file to a certificate whose authority the broker trusts"),
    (r"offers no tls", "turn TLS on at the broker, or leave out tls:// and the settings of certificates"),
)
"""Failures of TLS, by what their texts have in common, and what to do."""


_PEM: Final = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
_VALIDITY: Final = re.compile(rb"(?:\x17\r\d{12}Z|\x18\x0f\d{14}Z)(?:\x17\r|\x18\x0f\d\d)(\d{12})Z")
"""The two times next to each other in a certificate: since when and until when it is valid."""


class SecretError(OSError):
    """A secret cannot be used for this attempt to connect; the text names its setting and what to do."""


def _concerns_users(record: logging.LogRecord) -> bool:
    """Leave out what asyncio warns of each time that a connection of nats-py with TLS ends: nothing is wrong then."""
    return not record.getMessage().startswith("returning true from eof_received()")


def is_unauthorized(error: str) -> bool:
    """Return whether the broker does not accept the user."""
    return any(sign in error.lower() for sign in ("authorization violation", "authentication"))


def tls_advice(error: str) -> str:
    """Return what to do about a failed connection if TLS is the reason, else nothing."""
    return next((advice for sign, advice in _TLS_ADVICE if re.search(sign, error.replace("_", " "), re.IGNORECASE)), "")


class BrokerClient(Client):
    """A client that reads its secrets at each attempt to connect, and sends none in clear text where TLS is wanted."""

    def __init__(self) -> None:
        super().__init__()
        logging.getLogger("asyncio").addFilter(_concerns_users)
        self._runtime = RuntimeSettings(cluster="none")
        self._secret = ""
        self._context: ssl.SSLContext | None = None

    async def log_in(self, settings: RuntimeSettings, **options: Any) -> None:  # noqa: ANN401 - as `connect` takes them
        """Connect as the settings say.

        Raises:
            SettingsError, SecretError: a file cannot be used; the text names its setting.
        """
        self._runtime = settings
        self._secret = settings.password()
        self._context = _context(settings) if settings.encrypted else None
        if settings.nats_seed_file:
            with self._key_in_use():
                _check_seed(Path(settings.nats_seed_file))
        await self.connect(
            servers=[url.strip() for url in settings.nats_url.split(",")],
            user=settings.nats_user or None,
            password=self._password if self._secret else None,
            nkeys_seed=settings.nats_seed_file or None,
            user_credentials=settings.nats_creds_file or None,
            tls_hostname=settings.nats_server_name or None,
            **options,
        )

    @property
    def ssl_context(self) -> ssl.SSLContext:
        """How TLS is spoken."""
        try:
            self._context = _context(self._runtime)
        except SettingsError as error:
            if self._context is None:
                raise SecretError(str(error)) from error
        return self._context

    @property
    def has_peers(self) -> bool:
        """Return whether the server belongs to a broker cluster."""
        return bool(self._server_info.get("cluster"))

    def certificate_until(self) -> datetime | None:
        """Return when the server's certificate expires, None without TLS."""
        writer = getattr(self._transport, "_io_writer", None)
        shown = writer.get_extra_info("peercert") if writer is not None else None
        return datetime.fromtimestamp(ssl.cert_time_to_seconds(shown["notAfter"]), UTC) if shown else None

    def own_certificate_until(self) -> datetime | None:
        """Return when the client's certificate expires, None without one."""
        file = self._runtime.file("nats_cert_file")
        found = _PEM.search(Path(file).read_text(encoding="utf-8")) if file is not None else None
        validity = _VALIDITY.search(ssl.PEM_cert_to_DER_cert(found[0])) if found is not None else None
        return datetime.strptime(f"{validity[1].decode()}Z", "%y%m%d%H%M%S%z") if validity is not None else None

    def _password(self) -> str:
        with suppress(SettingsError):
            self._secret = self._runtime.password()
        return self._secret

    async def _process_err(self, err_msg: str) -> None:
        """Connect again when the broker ends the connection of a user whose secret has changed."""
        if self._runtime.renewable and self.is_connected and is_unauthorized(err_msg):
            await self._process_op_err(nats.errors.AuthorizationError())
        else:
            await super()._process_err(err_msg)

    def _connect_command(self) -> bytes:
        """Return what is said first; raises SecretError."""
        if self._runtime.encrypted and not self._server_info.get("tls_required"):
            raise SecretError("the broker offers no TLS")
        with self._key_in_use():
            if self._runtime.nats_seed_file:
                self._setup_nkeys_seed_connect()  # the user's name is its public key: another seed, another name
            return super()._connect_command()

    @contextmanager
    def _key_in_use(self) -> Iterator[None]:
        """Raise SecretError for whatever the library raises about a key; one of its own would end its reconnecting."""
        key = "nats_creds_file" if self._runtime.nats_creds_file else "nats_seed_file"
        try:
            self._runtime.file(key)
            yield
        except SettingsError as error:
            raise SecretError(str(error)) from error
        except Exception as error:  # the library raises many types for a bad key
            raise SecretError(f"{key} {getattr(self._runtime, key)}: holds no key of a user: {error}") from error


def _check_seed(file: Path) -> None:
    """Raise whatever the library raises about the seed in a file."""
    import nkeys  # noqa: PLC0415 - few brokers ask for it

    nkeys.from_seed(bytearray(file.read_bytes().strip())).wipe()


def _context(settings: RuntimeSettings) -> ssl.SSLContext:
    """Return how TLS is spoken; raises SettingsError."""
    authority, certificate = settings.file("nats_ca_file"), settings.file("nats_cert_file")
    key = settings.file("nats_key_file")
    try:
        context = ssl.create_default_context(cafile=authority)
    except OSError as error:
        raise SettingsError(f"nats_ca_file {authority}: holds no certificate in PEM") from error
    try:
        if certificate is not None:
            context.load_cert_chain(certificate, key, password="")  # nobody is there to type a pass phrase
    except OSError as error:
        said = f"nats_cert_file {certificate}: holds no certificate and key in PEM that belong together"
        raise SettingsError(said) from error
    return context
