"""What each program of the control plane is told, and where it says that it is well."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

FAKE_NODE: Final = "kwok.x-k8s.io/node"
"""Annotation of the nodes that KWOK runs, with the value "fake"; a node without it never becomes Ready."""
PROGRAMS: Final = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kwok",
    "metrics-server",
)
"""In the order in which to start them."""
PORTS: Final = ("etcd", "peers", "api", "controllers", "scheduler", "kwok", "metrics")


@dataclass(frozen=True)
class Layout:
    """Where things lie: files in `folder`, servers on loopback at `ports`."""

    folder: Path
    ports: Mapping[str, int]

    @property
    def scheduling(self) -> Path:
        """File of kube-scheduler's configuration, where there is one."""
        return self.folder / "scheduler.yaml"

    def url(self, name: str, scheme: str = "https") -> str:
        """Address of a server."""
        return f"{scheme}://127.0.0.1:{self.ports[name]}"

    def health(self) -> dict[str, str]:
        """Where each program answers when it is ready, in the order of `PROGRAMS`."""
        answers = (
            f"{self.url('etcd', 'http')}/health",
            f"{self.url('api')}/readyz",
            f"{self.url('controllers')}/healthz",
            f"{self.url('scheduler')}/healthz",
            f"{self.url('kwok', 'http')}/healthz",
            # It is ready only when there are nodes to read; until then it is well enough.
            f"{self.url('metrics')}/livez",
        )
        return dict(zip(PROGRAMS, answers, strict=True))


def flags(layout: Layout, *, node_silence_seconds: int) -> dict[str, list[str]]:
    """The flags of all programs."""
    return {
        "etcd": _etcd(layout),
        "kube-apiserver": _api_server(layout),
        "kube-controller-manager": _controllers(layout, node_silence_seconds),
        "kube-scheduler": [_kubeconfig(layout, "scheduler"), "--leader-elect=false", *_serving(layout, "scheduler")],
        "kwok": _kwok(layout),
        "metrics-server": _metrics(layout),
    }


def _kubeconfig(layout: Layout, user: str) -> str:
    return f"--kubeconfig={layout.folder}/{user}.kubeconfig"


def _serving(layout: Layout, port: str) -> list[str]:
    return [
        "--bind-address=127.0.0.1",
        f"--secure-port={layout.ports[port]}",
        f"--tls-cert-file={layout.folder}/server.crt",
        f"--tls-private-key-file={layout.folder}/server.key",
    ]


def _etcd(layout: Layout) -> list[str]:
    clients, peers = layout.url("etcd", "http"), layout.url("peers", "http")
    return [
        f"--data-dir={layout.folder}/etcd",
        f"--listen-client-urls={clients}",
        f"--advertise-client-urls={clients}",
        f"--listen-peer-urls={peers}",
        f"--initial-advertise-peer-urls={peers}",
        f"--initial-cluster=default={peers}",
        # Should the machine lose power, the test is lost anyway.
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


def _api_server(layout: Layout) -> list[str]:
    folder = layout.folder
    return [
        f"--etcd-servers={layout.url('etcd', 'http')}",
        *_serving(layout, "api"),
        # Nobody connects to the advertised address (RFC 5737); without one the server looks for a network card.
        "--advertise-address=192.0.2.1",
        "--endpoint-reconciler-type=none",
        "--service-cluster-ip-range=10.96.0.0/16",
        "--authorization-mode=RBAC",
        f"--token-auth-file={folder}/tokens.csv",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={folder}/accounts.key",
        f"--service-account-signing-key-file={folder}/accounts.key",
        f"--proxy-client-cert-file={folder}/proxy.crt",
        f"--proxy-client-key-file={folder}/proxy.key",
        f"--requestheader-client-ca-file={folder}/ca.crt",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
    ]


def _controllers(layout: Layout, node_silence_seconds: int) -> list[str]:
    return [
        _kubeconfig(layout, "controllers"),
        "--leader-elect=false",
        *_serving(layout, "controllers"),
        f"--service-account-private-key-file={layout.folder}/accounts.key",
        f"--root-ca-file={layout.folder}/ca.crt",
        "--use-service-account-credentials=true",
        "--controllers=*,-nodeipam,-cloud-node-lifecycle-controller",
        f"--node-monitor-grace-period={node_silence_seconds}s",
    ]


def _kwok(layout: Layout) -> list[str]:
    port = layout.ports["kwok"]
    return [
        _kubeconfig(layout, "kwok"),
        f"--config={layout.folder}/kwok.yaml",
        f"--manage-nodes-with-annotation-selector={FAKE_NODE}=fake",
        # Without leases every node is NotReady after the silence that is allowed.
        "--node-lease-duration-seconds=40",
        "--node-ip=127.0.0.1",
        f"--node-port={port}",
        f"--server-address=127.0.0.1:{port}",
        f"--tls-cert-file={layout.folder}/server.crt",
        f"--tls-private-key-file={layout.folder}/server.key",
    ]


def _metrics(layout: Layout) -> list[str]:
    folder = layout.folder
    return [
        _kubeconfig(layout, "metrics"),
        f"--authentication-kubeconfig={folder}/metrics.kubeconfig",
        f"--authorization-kubeconfig={folder}/metrics.kubeconfig",
        *_serving(layout, "metrics"),
        "--metric-resolution=10s",
        "--kubelet-request-timeout=5s",
        "--kubelet-use-node-status-port",
        "--kubelet-preferred-address-types=InternalIP",
        f"--kubelet-certificate-authority={folder}/ca.crt",
    ]
