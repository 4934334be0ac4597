"""A real Kubernetes control plane on loopback, with nodes and pods that KWOK pretends to run.

For tests: the fixture `control_plane` (one per session, marker `cluster`), or `running` where a test needs one of its
own. For a person: `make cluster`. The programs must have been built (`make controlplane`).

`control_plane.admin` may do anything; `control_plane.admin.account(...)` makes a service account with exactly the
rights that it is given; `write_kubeconfig` of either leads the services in. Each server of `control_plane.servers` can
be killed, paused and started again. Nodes come from `tests.controlplane.nodes`.
"""

from __future__ import annotations

import json
import secrets
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from tests.controlplane.access import Access
from tests.controlplane.build import VERSIONS, Programs, built
from tests.controlplane.flags import PORTS, PROGRAMS, Layout, flags
from tests.controlplane.forward import forwarded
from tests.controlplane.server import Server

from kinema_cli.local.nats_server import free_port

_USERS: Final = {
    "admin": ("admin", "system:masters"),
    "kwok": ("kwok", "system:masters"),
    "metrics": ("metrics-server", "system:masters"),
    "controllers": ("system:kube-controller-manager", ""),
    "scheduler": ("system:kube-scheduler", ""),
}
"""Users known from the start, each with its group. All others are service accounts."""


@dataclass(frozen=True)
class Options:
    """What a control plane may be wished to do otherwise."""

    minor: str = VERSIONS[0]
    kubelets: int = 4
    """How much KWOK does side by side; a thousand nodes want more than its four."""
    instant_pods: bool = False
    """Pods start and end at once instead of after the seconds that a kubelet takes."""
    node_silence_seconds: int = 20
    """After which time a node that falls silent is NotReady; a real cluster waits 50 s."""
    flags: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """More flags, by program name."""
    scheduling: Mapping[str, Any] | None = None
    """Fields of kube-scheduler's configuration (KubeSchedulerConfiguration); None: it runs without one."""
    only: Sequence[str] = PROGRAMS
    """The programs to run; etcd and the API server at least."""
    outlive: bool = False
    """Whether it goes on when the process that started it ends."""
    addresses: Sequence[str] = ()
    """Addresses of this machine at which the API server is reached, too: see `ControlPlane.reached_at`."""


DEFAULTS: Final = Options()


class ControlPlane:
    """etcd, API server, controller manager, scheduler, KWOK and metrics server.

    Args:
        folder: for data, certificates, tokens and logs; must be empty.
        options: see there.

    Raises:
        BuildError: the programs are not built.
    """

    def __init__(self, folder: Path, options: Options = DEFAULTS) -> None:
        self.folder = folder.resolve()
        self.options = options
        self.programs = built(options.minor)
        self._layout = Layout(self.folder, {name: free_port() for name in PORTS})
        self._tokens = {name: secrets.token_urlsafe(16) for name in _USERS}
        self.servers: dict[str, Server] = {server.name: server for server in self._all_servers()}

    @property
    def url(self) -> str:
        """Address of the API server."""
        return self._layout.url("api")

    @property
    def admin(self) -> Access:
        """Access with all rights."""
        return self._access("admin")

    def start(self) -> None:
        """Start all programs and wait until they serve, a few seconds on an idle machine. Raises ServerError."""
        self.folder.mkdir(parents=True, exist_ok=True)
        subprocess.run([self.programs["certificates"], self.folder, *self.options.addresses], check=True)
        self._write_tokens()
        for name in _USERS:
            self._access(name).write_kubeconfig(self.folder / f"{name}.kubeconfig")
        (self.folder / "kwok.yaml").write_text(_kwok(self.programs, self.options))
        if self.options.scheduling is not None:
            self._layout.scheduling.write_text(_scheduling(self._layout, self.options.scheduling))
        try:
            etcd, api, *others = self.servers.values()
            etcd.start()
            api.start()
            for server in others:
                server.launch()
            for server in others:
                server.wait_ready()
            if "metrics-server" in self.servers:
                self._serve_metrics()
            if "kube-controller-manager" in self.servers:
                # Pods need this account, which is yet to be made.
                self.admin.until("/api/v1/namespaces/default/serviceaccounts/default", _exists)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End all programs at once; the data stay, for whoever wants to look at them."""
        for server in reversed(self.servers.values()):
            server.kill()

    @contextmanager
    def reached_at(self, address: str) -> Iterator[Access]:
        """Let the API server be reached at one of `Options.addresses` within the block, as by containers.

        It serves loopback alone: whoever can reach that address reaches it through this process.
        """
        with forwarded(address, self._layout.ports["api"]) as port:
            yield replace(self.admin, url=f"https://{address}:{port}")

    def define(self, *folders: Path) -> None:
        """Create the CustomResourceDefinitions in folders, and wait until all are served; raises CalledProcessError."""
        own = (f"--kubeconfig={self.folder / 'admin.kubeconfig'}", f"--cache-dir={self.folder / 'kubectl'}")
        for arguments in (
            *(("apply", "--server-side", f"--filename={folder}") for folder in folders),
            ("wait", "--for=condition=Established", "--all", "crd"),
        ):
            subprocess.run([self.programs["kubectl"], *own, *arguments], check=True, stdout=subprocess.DEVNULL)

    @property
    def etcd(self) -> str:
        """Address of etcd: requests need no credentials."""
        return self._layout.url("etcd", "http")

    def compact(self) -> None:
        """Make etcd forget all versions but the current one, so that older watches and pages are gone (410)."""
        head = self._ask_etcd("kv/range", {"key": "AA=="})["header"]["revision"]
        self._ask_etcd("kv/compaction", {"revision": head, "physical": True})

    def _ask_etcd(self, path: str, body: Mapping[str, Any]) -> Any:
        with urllib.request.urlopen(f"{self.etcd}/v3/{path}", data=json.dumps(body).encode(), timeout=60) as answer:
            return json.loads(answer.read())

    def _access(self, user: str) -> Access:
        return Access(self.url, self._tokens[user], self.folder / "ca.crt")

    def _write_tokens(self) -> None:
        lines = [f'{self._tokens[key]},{user},{key},"{group}"' for key, (user, group) in _USERS.items()]
        path = self.folder / "tokens.csv"
        path.touch(mode=0o600)
        path.write_text("\n".join(lines) + "\n")

    def _all_servers(self) -> Iterator[Server]:
        told = flags(self._layout, node_silence_seconds=self.options.node_silence_seconds)
        if self.options.scheduling is not None:
            told["kube-scheduler"].append(f"--config={self._layout.scheduling}")
        for name, health in self._layout.health().items():
            if name not in self.options.only:
                continue
            yield Server(
                name,
                [str(self.programs[name]), *told[name], *self.options.flags.get(name, ())],
                folder=self.folder,
                is_ready=partial(is_healthy, health, self._access("admin")),
                outlive=self.options.outlive,
                restarts=name == "kube-scheduler",
            )

    def _serve_metrics(self) -> None:
        """Let the API server pass on requests for `metrics.k8s.io`."""
        spec = {"type": "ExternalName", "externalName": "localhost"}
        name = {"name": "metrics-server", "namespace": "kube-system"}
        self.admin.apply(
            "/api/v1/namespaces/kube-system/services/metrics-server", {"apiVersion": "v1", "kind": "Service"}, spec=spec
        )
        self.admin.apply(
            "/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.metrics.k8s.io",
            {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService"},
            spec={
                "group": "metrics.k8s.io",
                "version": "v1beta1",
                "groupPriorityMinimum": 100,
                "versionPriority": 100,
                "insecureSkipTLSVerify": True,
                "service": {**name, "port": self._layout.ports["metrics"]},
            },
        )


@contextmanager
def running(folder: Path, options: Options = DEFAULTS) -> Iterator[ControlPlane]:
    """A control plane of one's own, ended with the block.

    Raises:
        BuildError: the programs are not built. ServerError: one does not start.
    """
    plane = ControlPlane(folder, options)
    plane.start()
    try:
        yield plane
    finally:
        plane.stop()


def _exists(found: Any) -> bool:
    return isinstance(found, dict) and found.get("kind") not in (None, "Status")


def is_healthy(url: str, access: Access) -> bool:
    """Whether a program answers at an address with success."""
    context = access.tls() if url.startswith("https:") else None
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {access.token}"})
    try:
        with urllib.request.urlopen(request, timeout=5, context=context) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _scheduling(layout: Layout, fields: Mapping[str, Any]) -> str:
    """Return a configuration of kube-scheduler; its file replaces the flag that names the kubeconfig."""
    whole = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": f"{layout.folder}/scheduler.kubeconfig"},
        "leaderElection": {"leaderElect": False},
        **fields,
    }
    return json.dumps(whole)


def _kwok(programs: Programs, options: Options) -> str:
    """KWOK's own description of what a kubelet does, after which times, and of the usage it reports."""
    pods = sorted(programs["pods-fast" if options.instant_pods else "pods"].glob("pod-*.yaml"))
    others = ("node.yaml", "heartbeat.yaml", "usage.yaml", "metrics.yaml")
    parts = ("podPlayStageParallelism", "nodePlayStageParallelism", "nodeLeaseParallelism")
    own = {
        "apiVersion": "config.kwok.x-k8s.io/v1alpha1",
        "kind": "KwokConfiguration",
        "options": dict.fromkeys(parts, options.kubelets),
    }
    texts = (file.read_text() for file in (*(programs[name] for name in others), *pods))
    return "\n---\n".join((json.dumps(own), *texts))
