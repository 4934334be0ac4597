"""Getting into a control plane: requests, accounts with rights of their own, kubeconfig files."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import time
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

_REQUEST_SECONDS: Final = 60.0
_PATIENCE_SECONDS: Final = 120.0
_POLL_SECONDS: Final = 0.1
_TOKEN_SECONDS: Final = 24 * 3600
_GROUP: Final = "rbac.authorization.k8s.io"


class _Socket(ssl.SSLSocket):
    """Closes itself where a server that dies resets the connection before TLS begins.

    CPython calls `recv` while it makes the socket. When that fails, it raises the error and never closes the socket.
    """

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        """Receive."""
        try:
            return super().recv(buflen, flags)
        except ConnectionError:
            self.close()
            raise


class RefusedError(Exception):
    """The API server answered with an error: `status` is its HTTP code, `body` the Status object."""

    def __init__(self, request: str, status: int, body: Any) -> None:
        message = body.get("message") if isinstance(body, dict) else body
        super().__init__(f"{request}: {status} {message}")
        self.status = status
        self.body = body


@dataclass(frozen=True)
class Access:
    """An API server's address with one token. Its methods block; asynchronous code has clients of its own."""

    url: str
    token: str
    authority: Path
    """The certificate that vouches for the server."""

    def request(self, method: str, path: str, body: Any = None, *, content_type: str = "application/json") -> Any:
        """Send one request and give the answer's body.

        Raises:
            RefusedError: any answer but a success. OSError: no answer.
        """
        with closing(self._connection()) as connection:
            return self._asked(connection, method, path, body, content_type)

    def each(self, paths: Iterable[str]) -> Iterator[Any]:
        """Read paths one after the other by one connection: to make it takes most of a request's time; as `request`."""
        with closing(self._connection()) as connection:
            for path in paths:
                yield self._asked(connection, "GET", path)

    def ensure(self, path: str, body: Any) -> None:
        """Create an object unless there is one of its name; raises RefusedError."""
        try:
            self.request("POST", path, body)
        except RefusedError as error:
            if error.status != 409:
                raise

    def apply(self, path: str, kind: Mapping[str, str], **content: Any) -> Any:
        """Create or change one object by server-side apply; `kind` holds apiVersion and kind. Raises RefusedError."""
        body = {**kind, **content, "metadata": {"name": path.rsplit("/", 1)[1], **content.get("metadata", {})}}
        query = "?fieldManager=tests&force=true"
        return self.request("PATCH", path + query, body, content_type="application/apply-patch+yaml")

    def until(self, path: str, wanted: Callable[[Any], bool]) -> Any:
        """Read a path again and again until the answer is as wanted.

        Raises:
            TimeoutError: it was not in two minutes.
        """
        end = time.monotonic() + _PATIENCE_SECONDS
        with closing(self._connection()) as connection:
            while not wanted(answer := self._read(path, connection)):
                if time.monotonic() > end:
                    raise TimeoutError(f"{path} did not become what it should within {_PATIENCE_SECONDS:g} s: {answer}")
                time.sleep(_POLL_SECONDS)
        return answer

    def remove_namespace(self, name: str) -> None:
        """Delete a namespace, if it is there, with all that is in it, and wait until it is gone.

        Its pods go at once: where one is left at the controller's first look, after five seconds, the next looks come
        five seconds later, ten, twenty, forty.

        Raises:
            RefusedError: as `request`. TimeoutError: as `until`.
        """
        path = f"/api/v1/namespaces/{name}"
        with closing(self._connection()) as connection:
            if self._read(path, connection).get("code") == 404:
                return
        self.request("DELETE", path)
        self.request("DELETE", f"{path}/pods", {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0})
        self.until(path, lambda found: found.get("code") == 404)

    def answers(self, path: str) -> bool:
        """Whether a path answers with success."""
        try:
            self.request("GET", path)
        except (RefusedError, OSError):
            return False
        return True

    def tls(self) -> ssl.SSLContext:
        """Trust for this server alone."""
        context = ssl.create_default_context(cafile=str(self.authority))
        context.sslsocket_class = _Socket
        return context

    def write_kubeconfig(self, path: Path, *, name: str = "kinema-cluster") -> Path:
        """Write a kubeconfig (JSON, which is YAML) whose only context is `name`; give its path."""
        authority = base64.b64encode(self.authority.read_bytes()).decode()
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": name,
            "clusters": [{"name": name, "cluster": {"server": self.url, "certificate-authority-data": authority}}],
            "users": [{"name": name, "user": {"token": self.token}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.write_text(json.dumps(content, indent=2) + "\n")
        return path

    def account(
        self, namespace: str, name: str, rules: Sequence[Mapping[str, Sequence[str]]], *, in_namespace: str = ""
    ) -> Access:
        """Make a service account that may do what `rules` say and nothing else; give its access.

        Args:
            namespace: of the account; made if need be.
            name: of the account, and of its role and binding.
            rules: as in a Role or ClusterRole.
            in_namespace: where the rules hold; empty: in the whole cluster.
        """
        self.ensure("/api/v1/namespaces", {"metadata": {"name": namespace}})
        self.ensure(f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": name}})
        kind = "Role" if in_namespace else "ClusterRole"
        where = f"/apis/{_GROUP}/v1/namespaces/{in_namespace}/" if in_namespace else f"/apis/{_GROUP}/v1/"
        full = f"{namespace}-{name}"
        self.apply(f"{where}{kind.lower()}s/{full}", {"apiVersion": f"{_GROUP}/v1", "kind": kind}, rules=rules)
        reference = {"apiGroup": _GROUP, "kind": kind, "name": full}
        subject = {"kind": "ServiceAccount", "namespace": namespace, "name": name}
        body = {"apiVersion": f"{_GROUP}/v1", "kind": f"{kind}Binding"}
        self.apply(f"{where}{kind.lower()}bindings/{full}", body, roleRef=reference, subjects=[subject])
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        answer = self.request("POST", path, {"spec": {"expirationSeconds": _TOKEN_SECONDS}})
        return Access(self.url, answer["status"]["token"], self.authority)

    def _connection(self) -> http.client.HTTPSConnection:
        """Return a connection that is made with its first request, and again after it was closed."""
        address = urllib.parse.urlsplit(self.url)
        assert address.hostname is not None
        return http.client.HTTPSConnection(address.hostname, address.port, timeout=_REQUEST_SECONDS, context=self.tls())

    def _asked(
        self, connection: http.client.HTTPSConnection, method: str, path: str, body: Any = None, content_type: str = ""
    ) -> Any:
        """Send one request by a connection, which is closed where that fails; raises as `request`."""
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": content_type or "application/json"}
        try:
            connection.request(method, path, None if body is None else json.dumps(body).encode(), headers)
            answer = connection.getresponse()
            found = _decoded(answer.read())
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            if isinstance(error, OSError):
                raise
            raise ConnectionError(f"{method} {path}: cut off: {error!r}") from error  # it died within its answer
        if answer.status >= 400:
            raise RefusedError(f"{method} {path}", answer.status, found)
        return found

    def _read(self, path: str, connection: http.client.HTTPSConnection) -> Any:
        try:
            return self._asked(connection, "GET", path)
        except RefusedError as error:
            return error.body
        except OSError:
            return {}


def _decoded(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return body.decode(errors="replace")
