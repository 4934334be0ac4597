"""An admission webhook on loopback that rewrites the specification of new pods, as those of service meshes do."""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from tests.controlplane.plane import ControlPlane

JSON = dict[str, Any]
_NAME: Final = "tests-pods"
_CONFIGURATIONS: Final = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"


@contextmanager
def rewriting(plane: ControlPlane, rewrite: Callable[[JSON], None]) -> Iterator[None]:
    """Rewrite every new pod in place within the block; its certificate is the API server's own.

    Raises:
        RefusedError: the API server takes no such webhook.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:  # the name that the base class asks for
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            answer = json.dumps(_reviewed(asked, rewrite)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(plane.folder / "server.crt", plane.folder / "server.key")
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            plane.admin.request("POST", _CONFIGURATIONS, _configuration(plane, server.server_address[1]))
            yield
        finally:
            plane.admin.request("DELETE", f"{_CONFIGURATIONS}/{_NAME}")
            server.shutdown()
            thread.join()


def _reviewed(asked: JSON, rewrite: Callable[[JSON], None]) -> JSON:
    """Return the answer to an AdmissionReview."""
    request = asked["request"]
    pod = request["object"]
    pod["metadata"].setdefault("namespace", request["namespace"])
    rewrite(pod)
    patch = json.dumps([{"op": "replace", "path": "/spec", "value": pod["spec"]}]).encode()
    response = {
        "uid": request["uid"],
        "allowed": True,
        "patchType": "JSONPatch",
        "patch": base64.b64encode(patch).decode(),
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}


def _configuration(plane: ControlPlane, port: int) -> JSON:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    authority = base64.b64encode(plane.admin.authority.read_bytes()).decode()
    webhook = {
        "name": "pods.tests.kinema.io",
        "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": f"https://127.0.0.1:{port}/", "caBundle": authority},
        "rules": [rule],
        "sideEffects": "None",
        "failurePolicy": "Fail",
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": _NAME},
        "webhooks": [webhook],
    }
