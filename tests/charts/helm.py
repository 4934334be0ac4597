"""Helm, and what it renders, for the tests of the charts."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml
from tests.controlplane.plane import ControlPlane

CHARTS: Final = Path(__file__).resolve().parents[2] / "charts"
INSTALLABLE: Final = tuple(sorted(one.name for one in CHARTS.iterdir() if one.name != "kinema-library"))
NAMED: Final = {"cluster": "c1"}
"""What every chart but the umbrella asks for."""
PROVIDED: Final = {**NAMED, "settings": {"provider": {"kind": "delegate"}}, "catalog": "machine_type,vcpus\n"}
"""What the rescheduler's asks for."""
WHOLE: Final = {
    "global": {"kinema": {"cluster": "c1"}},
    "rescheduler": {"settings": {"provider": {"kind": "kwok"}}, "catalog": "machine_type,vcpus\n"},
    "optimizer": {"workers": {"replicas": 2}},
    "enabled": {"nats": True},
}
"""The umbrella with all that it has."""

Values = Mapping[str, Any]


def catalog_of(provider: str) -> str:
    """The least file that a provider takes."""
    return "{}" if provider == "static" else "machine_type,vcpus\n"


def needed(chart: str) -> Values:
    """The least values that a chart can be installed with."""
    found: Mapping[str, Values] = {
        "kinema": WHOLE,
        "kinema-all-in-one": {**NAMED, "catalog": "machine_type,vcpus\n"},
        "kinema-monitoring": {},
        "kinema-rescheduler": PROVIDED,
    }
    return found.get(chart, NAMED)


@dataclass(frozen=True)
class Helm:
    """The command line with values in files of a folder, for one cluster if any."""

    program: Path
    folder: Path
    kubeconfig: Path | None = None

    def run(self, *arguments: str, values: Values | None = None) -> subprocess.CompletedProcess[str]:
        """Run it and return what it printed."""
        process = self.start(*arguments, values=values)
        out, error = process.communicate()
        return subprocess.CompletedProcess(process.args, process.returncode, out, error)

    def start(self, *arguments: str, values: Values | None = None) -> subprocess.Popen[str]:
        """Start it without waiting for its end."""
        command = [str(self.program), *arguments]
        if values is not None:
            file = self.folder / "values.yaml"
            file.write_text(yaml.safe_dump(values))
            command += ["--values", str(file)]
        own = {name: str(self.folder / name) for name in ("HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME")}
        environment = {**os.environ, **own, "KUBECONFIG": str(self.kubeconfig or self.folder / "none")}
        pipe = subprocess.PIPE
        return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment)

    def rendered(self, chart: str, values: Values, *more: str) -> list[dict[str, Any]]:
        """Return the objects that a chart gives, those of hooks included."""
        done = self.run("template", "kinema", str(CHARTS / chart), "--namespace", "kinema", *more, values=values)
        assert done.returncode == 0, done.stderr
        return [one for one in yaml.safe_load_all(done.stdout) if one]


def pods(objects: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Return the pod specs of objects, by kind and name."""
    for one in objects:
        spec = one["spec"] if one["kind"] == "Pod" else one.get("spec", {}).get("template", {}).get("spec")
        if spec and "containers" in spec:
            yield f"{one['kind']}/{one['metadata']['name']}", spec


def named(objects: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    """Return the one object of a kind and name."""
    (found,) = (one for one in objects if (one["kind"], one["metadata"]["name"]) == (kind, name))
    return found


def accepted(control_plane: ControlPlane, objects: list[dict[str, Any]], folder: Path) -> None:
    """Let an API server check objects without keeping them, in a namespace of the restricted pod security standard."""
    labels = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
    control_plane.admin.ensure("/api/v1/namespaces", {"metadata": {"name": "kinema", "labels": labels}})
    file = folder / "objects.yaml"
    file.write_text(yaml.safe_dump_all(objects))
    access = control_plane.admin.write_kubeconfig(folder / "kubeconfig")
    command = ["apply", "--server-side", "--dry-run=server", "--filename", str(file)]
    done = subprocess.run(
        [str(control_plane.programs["kubectl"]), "--kubeconfig", str(access), *command],
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.stderr, done.stderr
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == len(objects)
