"""Where address and credentials come from: certificates, tokens, files, plugins, service accounts."""

from __future__ import annotations

import base64
import json
import os
import shutil
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from kinema_kubernetes import credentials
from kinema_kubernetes.client import connect
from kinema_kubernetes.credentials import load
from kinema_kubernetes.errors import SetupError, UnavailableError

PLUGIN = """
import json, os, sys
asked = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
status = json.load(open(sys.argv[1]))
known = asked["spec"]
status.setdefault("token", f"{os.environ['PREFIX']}-{known['interactive']}-{known['cluster']['server']}")
print(json.dumps({"kind": "ExecCredential", "apiVersion": asked["apiVersion"], "status": status}))
"""


def kubeconfig(path: Path, *, server: str = "https://127.0.0.1:9", user: Any = None, **cluster: Any) -> str:
    """A kubeconfig with one context."""
    content = {
        "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "u", "user": user or {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
    return str(path)


def plugin(directory: Path, **status: Any) -> dict[str, Any]:
    """A user whose plugin answers with this status."""
    (directory / "plugin.py").write_text(PLUGIN)
    (directory / "status.json").write_text(json.dumps(status))
    return {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": sys.executable,
            "args": [str(directory / "plugin.py"), str(directory / "status.json")],
            "env": [{"name": "PREFIX", "value": "t"}],
            "provideClusterInfo": True,
        }
    }


@pytest.mark.parametrize(
    ("user", "header"),
    [
        ({}, ""),
        ({"token": "abc"}, "Bearer abc"),
        ({"tokenFile": "token", "token": "abc"}, "Bearer from-file"),
        ({"username": "me", "password": "s"}, "Basic " + base64.b64encode(b"me:s").decode()),
    ],
)
async def test_each_way_to_log_in_gives_its_header(user: Any, header: str, tmp_path: Path) -> None:
    """A token, the content of a token file (which counts before it), user and password, or nothing."""
    (tmp_path / "token").write_text("from-file\n")
    access = await load(kubeconfig(tmp_path / "config", user=user), "")
    assert access.authorization == header
    assert access.server == "https://127.0.0.1:9"


async def test_a_plugin_gives_a_token_until_it_ends(tmp_path: Path) -> None:
    """It gets its own variables and what it wants to know of the cluster; its token is used while it is valid."""
    user = plugin(tmp_path, expirationTimestamp="2020-01-01T00:00:00Z")
    access = await load(kubeconfig(tmp_path / "config", user=user), "")
    assert access.authorization == "Bearer t-False-https://127.0.0.1:9"
    assert access.lifetime == 0
    lasting = plugin(tmp_path, token="abc")
    assert (await load(kubeconfig(tmp_path / "config", user=lasting), "")).lifetime == float("inf")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"command": "no-such-plugin", "installHint": "install it"}, "no-such-plugin: No such file.*install it"),
        ({"args": ["-c", "raise SystemExit('no session')"]}, "ended with 1: no session"),
        ({"args": ["-c", "print('hello')"]}, "its output is no ExecCredential"),
        ({"args": ["-c", "print('{\"status\": {}}')"]}, "neither a token nor a client certificate"),
        ({"interactiveMode": "Always"}, "asks for input"),
    ],
)
async def test_a_plugin_that_fails_says_why(changed: Any, said: str, tmp_path: Path) -> None:
    """One line that names the plugin; where it can be had, if it says so."""
    user = plugin(tmp_path)
    user["exec"] |= changed
    with pytest.raises(SetupError, match=said):
        await load(kubeconfig(tmp_path / "config", user=user), "")


async def test_a_removed_kind_of_login_is_named(tmp_path: Path) -> None:
    """`auth-provider` went with Kubernetes 1.26."""
    with pytest.raises(SetupError, match="auth-provider 'gcp' is no longer supported"):
        await load(kubeconfig(tmp_path / "config", user={"auth-provider": {"name": "gcp"}}), "")


async def test_a_token_that_has_ended_is_not_sent(tmp_path: Path) -> None:
    """The plugin runs again before the request, not after a refusal."""
    tokens: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        tokens.append(request.headers["Authorization"])
        return web.json_response({})

    async with serving(answer) as url:
        user = plugin(tmp_path, token="t0", expirationTimestamp="2020-01-01T00:00:00Z")
        client = await connect(kubeconfig(tmp_path / "config", server=url, user=user))
        plugin(tmp_path, token="t1")
        for _ in range(2):
            await client.get("/version")
        await client.close()
    assert tokens == ["Bearer t1", "Bearer t1"]


async def test_a_service_account_is_read_from_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Address by environment, also an IPv6 one; the token is read again every minute."""
    authority, _ = _certificate(tmp_path, "ca")
    shutil.copy(authority, tmp_path / "ca.crt")
    (tmp_path / "token").write_text("abc\n")
    monkeypatch.setattr(credentials, "SERVICE_ACCOUNT", tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    access = await load("", "")
    assert (access.server, access.authorization) == ("https://[fd00::1]:443", "Bearer abc")
    assert access.lifetime == 60
    (tmp_path / "token").unlink()
    with pytest.raises(SetupError, match=r"service account of this pod: .*token"):
        await load("", "")


@pytest.mark.slow
@pytest.mark.parametrize("inline", [True, False])
@pytest.mark.parametrize("by", ["kubeconfig", "plugin"])
async def test_a_client_certificate_identifies(inline: bool, by: str, tmp_path: Path) -> None:
    """In the file or beside it, of the user or of a plugin; a server of another authority is not talked to."""
    authority, key = _certificate(tmp_path, "127.0.0.1")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority))
    tls.load_cert_chain(authority, key)
    tls.verify_mode = ssl.CERT_REQUIRED

    async def answer(request: web.Request) -> web.Response:
        assert request.transport is not None
        peer = request.transport.get_extra_info("peercert")
        return web.json_response({"name": peer["subject"][0][0][1]})

    trust = _entry("certificate-authority", authority, inline=inline)
    if by == "plugin":
        user = plugin(tmp_path, token="", clientCertificateData=authority.read_text(), clientKeyData=key.read_text())
    else:
        user = {**_entry("client-certificate", authority, inline=inline), **_entry("client-key", key, inline=inline)}
    async with serving(answer, tls) as url:
        client = await connect(kubeconfig(tmp_path / "config", server=url, user=user, **trust))
        assert await client.get("/version") == {"name": "127.0.0.1"}
        await client.close()
        stranger = await connect(kubeconfig(tmp_path / "config", server=url, user=user))
        with pytest.raises(UnavailableError, match="certificate verify failed"):
            await stranger.get("/version")
        await stranger.close()


async def test_certificates_lie_beside_the_file_that_names_them(tmp_path: Path) -> None:
    """Whichever place its file has in a list, and whatever is in the file of the user's cluster."""
    clusters = kubeconfig(tmp_path / "one" / "config", **{"certificate-authority": "ca.pem"})
    users, first = tmp_path / "two" / "config", tmp_path / "one" / "config"
    certificate, key = _certificate(tmp_path, "me")
    named = {"client-certificate": "me.pem", "client-key": "me.key"}
    kubeconfig(users, user=named)
    users.write_text(json.dumps({"users": [{"name": "w", "user": named}]}))
    content = json.loads(first.read_text())
    content["contexts"][0]["context"]["user"] = "w"
    first.write_text(json.dumps(content))
    shutil.copy(certificate, tmp_path / "one" / "ca.pem")
    shutil.copy(certificate, tmp_path / "two" / "me.pem")
    shutil.copy(key, tmp_path / "two" / "me.key")
    access = await load(os.pathsep.join([clusters, str(users)]), "")
    assert len(access.tls.get_ca_certs()) == 1
    (tmp_path / "two" / "me.key").unlink()
    with pytest.raises(SetupError, match=r"two/me\.key"):
        await load(os.pathsep.join([clusters, str(users)]), "")


@asynccontextmanager
async def serving(answer: Any, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """A server that answers every path so; its address."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    yield f"{'https' if tls else 'http'}://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


def _entry(key: str, file: Path, *, inline: bool) -> dict[str, str]:
    return {f"{key}-data": base64.b64encode(file.read_bytes()).decode()} if inline else {key: file.name}


def _certificate(directory: Path, name: str) -> tuple[Path, Path]:
    """A self-signed certificate and its key."""
    certificate, key = directory / f"{name}.pem", directory / f"{name}.key"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}"]
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-out", str(certificate), "-keyout", str(key)]
    subprocess.run([*command, *names], check=True, capture_output=True)
    return certificate, key
