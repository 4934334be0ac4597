"""Address and credentials of an API server: of a kubeconfig, or of the pod's service account."""

from __future__ import annotations

import asyncio
import base64
import binascii
import os
import ssl
import tempfile
from dataclasses import dataclass
from datetime import datetime
from math import inf
from pathlib import Path
from typing import Any, Final

import msgspec

from kinema_core.runtime.clock import SystemClock
from kinema_kubernetes.errors import SetupError
from kinema_kubernetes.kubeconfig import ClusterEntry, Located, Plugin, UserEntry, entries_of

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_TOKEN_SECONDS: Final = 60.0
"""How long the content of a token file is used: the kubelet writes another one well before it ends."""
_PLUGIN_SECONDS: Final = 60.0
_STDERR: Final = 300
"""Characters of a plugin's complaint that are reported."""


@dataclass(frozen=True)
class Access:
    """Address and credentials of a connection."""

    server: str
    """The API server's address, without a slash at its end."""
    tls: ssl.SSLContext
    server_name: str | None = None
    """Name in the server's certificate where that is not the address."""
    proxy: str | None = None
    authorization: str = ""
    """Value of the header; empty: none is sent."""
    lifetime: float = inf
    """Seconds until it must be read again."""


class _Credential(msgspec.Struct, rename="camel"):
    token: str = ""
    expiration_timestamp: datetime | None = None
    client_certificate_data: str = ""
    client_key_data: str = ""


class _ExecCredential(msgspec.Struct):
    status: _Credential


def is_in_pod() -> bool:
    """Return whether this process has the account of a pod."""
    return bool(os.environ.get("KUBERNETES_SERVICE_HOST")) and (SERVICE_ACCOUNT / "token").exists()


async def load(kubeconfig: str, context: str) -> Access:
    """Read address and credentials: of a kubeconfig's context, or of the pod's service account without a kubeconfig.

    Raises:
        SetupError: they cannot be used.
    """
    if not kubeconfig:
        return await asyncio.to_thread(_of_service_account)
    subject = f"kubeconfig {kubeconfig}"
    name, cluster, user = await asyncio.to_thread(entries_of, kubeconfig, context)
    try:
        plugin = user.entry.exec
        credential = await _run(plugin, user.directory, cluster) if plugin is not None else None
        return await asyncio.to_thread(_of_entries, cluster, user, credential)
    except (OSError, ValueError) as error:  # of files, certificates and base64
        raise SetupError(subject, f"context {name!r}: {error}") from error


def _of_service_account() -> Access:
    subject = "service account of this pod"
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        hint = "outside a cluster, set `kubeconfig` in the settings"
        raise SetupError(subject, f"KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set ({hint})")
    try:
        return Access(
            server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
            tls=_trust(ClusterEntry(certificate_authority="ca.crt"), SERVICE_ACCOUNT),
            authorization=_bearer(SERVICE_ACCOUNT / "token"),
            lifetime=_TOKEN_SECONDS,
        )
    except (OSError, ValueError) as error:
        raise SetupError(subject, str(error)) from error


def _of_entries(cluster: Located[ClusterEntry], user: Located[UserEntry], credential: _Credential | None) -> Access:
    entry, own = cluster.entry, user.entry
    if own.auth_provider:
        raise ValueError(f"auth-provider {own.auth_provider.get('name')!r} is no longer supported: use `exec`")
    tls = _trust(entry, cluster.directory)
    authorization, lifetime = "", inf
    if credential is not None:
        authorization, lifetime = _of_plugin(credential, tls)
    elif own.token_file:
        authorization, lifetime = _bearer(user.path(own.token_file)), _TOKEN_SECONDS
    elif own.token:
        authorization = f"Bearer {own.token}"
    elif own.username:
        authorization = "Basic " + base64.b64encode(f"{own.username}:{own.password}".encode()).decode()
    if own.client_certificate or own.client_certificate_data:
        certificate = _content(user, own.client_certificate, own.client_certificate_data)
        _identify(tls, certificate, _content(user, own.client_key, own.client_key_data))
    return Access(
        server=entry.server.rstrip("/"),
        tls=tls,
        server_name=entry.tls_server_name or None,
        proxy=entry.proxy_url or None,
        authorization=authorization,
        lifetime=lifetime,
    )


def _of_plugin(credential: _Credential, tls: ssl.SSLContext) -> tuple[str, float]:
    """Return the header's value and its lifetime; a client certificate goes into `tls`."""
    if not credential.token and not credential.client_certificate_data:
        raise ValueError("its credential plugin gives neither a token nor a client certificate")
    if credential.client_certificate_data:
        _identify(tls, credential.client_certificate_data.encode(), credential.client_key_data.encode())
    ends = credential.expiration_timestamp
    left = (ends - SystemClock().now()).total_seconds() if ends is not None else inf
    return f"Bearer {credential.token}" if credential.token else "", max(0.0, left)


def _trust(entry: ClusterEntry, directory: Path) -> ssl.SSLContext:
    """Return the TLS settings of a cluster: its certificate authority, or the machine's."""
    data = _decoded(entry.certificate_authority_data).decode() if entry.certificate_authority_data else None
    file = str(directory / entry.certificate_authority) if entry.certificate_authority and data is None else None
    try:
        tls = ssl.create_default_context(cafile=file, cadata=data)
    except (OSError, ValueError) as error:
        raise ValueError(f"certificate authority {file or 'of the cluster'}: {error}") from error
    # Certificates of many clusters lack extensions that Python 3.13 demands; kubectl does not ask for them.
    tls.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if entry.insecure_skip_tls_verify:
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
    return tls


def _identify(tls: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Use a client certificate. OpenSSL reads it from a file only: a temporary one that no other user may read."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(certificate + b"\n" + key)
        file.flush()
        try:
            tls.load_cert_chain(file.name)
        except OSError as error:
            raise ValueError(f"client certificate: {error}") from error


def _content(user: Located[UserEntry], file: str, data: str) -> bytes:
    return _decoded(data) if data else user.path(file).read_bytes()


def _decoded(data: str) -> bytes:
    try:
        return base64.b64decode("".join(data.split()), validate=True)
    except binascii.Error as error:
        raise ValueError(f"a certificate is no base64: {error}") from error


def _bearer(file: Path) -> str:
    return f"Bearer {file.read_text().strip()}"


async def _run(plugin: Plugin, directory: Path, cluster: Located[ClusterEntry]) -> _Credential:
    """Run a credential plugin; raises ValueError where it gives none."""
    if plugin.interactive_mode == "Always":
        raise ValueError(f"credential plugin {plugin.command} asks for input: it cannot be used here")
    spec: dict[str, Any] = {"interactive": False}
    if plugin.provide_cluster_info:
        spec["cluster"] = _cluster_info(cluster)
    information = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}
    own = {item.name: item.value for item in plugin.env or ()}
    beside = os.sep in plugin.command
    try:
        process = await asyncio.create_subprocess_exec(
            str(directory / plugin.command) if beside else plugin.command,
            *(plugin.args or ()),
            env={**os.environ, **own, "KUBERNETES_EXEC_INFO": msgspec.json.encode(information).decode()},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        hint = f" ({plugin.install_hint.strip()})" if plugin.install_hint else ""
        raise ValueError(f"credential plugin {plugin.command}: {error.strerror}{hint}") from error
    try:
        async with asyncio.timeout(_PLUGIN_SECONDS):
            output, complaint = await process.communicate()
    except TimeoutError as error:
        raise ValueError(f"credential plugin {plugin.command} did not end in {_PLUGIN_SECONDS:g} s") from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        why = complaint.decode(errors="replace").strip()[-_STDERR:]
        raise ValueError(f"credential plugin {plugin.command} ended with {process.returncode}: {why}")
    try:
        return msgspec.json.decode(output, type=_ExecCredential).status
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"credential plugin {plugin.command}: its output is no ExecCredential: {error}") from error


def _cluster_info(cluster: Located[ClusterEntry]) -> dict[str, Any]:
    entry = cluster.entry
    data = entry.certificate_authority_data
    if entry.certificate_authority and not data:
        data = base64.b64encode(cluster.path(entry.certificate_authority).read_bytes()).decode()
    return {
        "server": entry.server,
        "tls-server-name": entry.tls_server_name,
        "insecure-skip-tls-verify": entry.insecure_skip_tls_verify,
        "certificate-authority-data": data,
        "proxy-url": entry.proxy_url,
    }
