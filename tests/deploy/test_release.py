"""The version in every file, the plugin for kubectl, and what docs/release.md promises."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import tarfile
from hashlib import sha256
from pathlib import Path
from zipfile import ZipFile

import pytest
import yaml
from tests.controlplane.build import VERSIONS
from tools import release

ROOT = release.ROOT


def test_every_file_states_the_version_of_pyproject() -> None:
    """Packages, charts, images and Compose have one version: run `python tools/release.py` after changing it."""
    assert release.main(["--check"]) == 0


def test_a_new_version_replaces_every_old_one() -> None:
    """No package, chart or image keeps the old version; packages need each other in the new one."""
    written = dict(release.files("98.7.6"))
    for path in (*ROOT.glob("charts/*/Chart.yaml"), *ROOT.glob("*/pyproject.toml"), *ROOT.glob("services/*/*.toml")):
        assert f'"{release.VERSION}"' not in written[path]
        assert not re.search(rf"[=:] ?{re.escape(release.VERSION)}", written[path]), path
        assert not re.search(r'"kinema-[a-z]+"[,\]]', written[path]), path
    assert "ARG VERSION=98.7.6\n" in written[ROOT / "Dockerfile"]
    assert "KINEMA_VERSION=98.7.6\n" in written[ROOT / ".env"]
    assert 'appVersion: "2.' in written[ROOT / "charts/kinema-nats/Chart.yaml"]


@pytest.fixture
def released(tmp_path: Path) -> Path:
    """Return a folder with a packed plugin."""
    (tmp_path / "constraints.txt").write_text("msgspec==0.22.0\n")
    (tmp_path / f"kinema_cli-{release.VERSION}-py3-none-any.whl").write_bytes(b"wheel")
    release.pack_plugin(tmp_path)
    return tmp_path


def test_the_manifest_names_the_archive_with_its_checksum(released: Path) -> None:
    """Krew refuses an archive whose checksum differs; equal inputs give equal archives."""
    archive = released / f"kubectl-kinema-{release.VERSION}.zip"
    digest = sha256(archive.read_bytes()).hexdigest()
    manifest = yaml.safe_load((released / "kinema.yaml").read_text())
    assert manifest["spec"]["version"] == f"v{release.VERSION}"
    assert {one["sha256"] for one in manifest["spec"]["platforms"]} == {digest}
    assert {one["uri"].rpartition("/")[2] for one in manifest["spec"]["platforms"]} == {archive.name}
    release.pack_plugin(released)
    assert sha256(archive.read_bytes()).hexdigest() == digest


def test_krew_takes_the_manifest(released: Path) -> None:
    """The rules of krew's own validation, which cannot be built here: names, texts, platforms, and what is packed."""
    (path,) = released.glob("*.yaml")
    manifest = yaml.safe_load(path.read_text())
    spec = manifest["spec"]
    assert (manifest["apiVersion"], manifest["kind"]) == ("krew.googlecontainertools.github.com/v1alpha2", "Plugin")
    assert manifest["metadata"]["name"] == path.stem
    assert re.fullmatch(r"v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?", spec["version"])
    assert 0 < len(spec["shortDescription"]) <= 70
    assert max(map(len, [*spec["description"].splitlines(), *spec["caveats"].splitlines()])) <= 80
    selectors = [tuple(sorted(one["selector"]["matchLabels"].items())) for one in spec["platforms"]]
    assert len(set(selectors)) == len(selectors)
    assert {name for one in selectors for name, _ in one} == {"arch", "os"}
    for one in spec["platforms"]:
        assert set(one) == {"selector", "uri", "sha256", "bin"}
        assert re.fullmatch("[a-f0-9]{64}", one["sha256"])
        with ZipFile(released / one["uri"].rpartition("/")[2]) as packed:
            assert {one["bin"], "LICENSE"} <= set(packed.namelist())


def test_equal_charts_are_equal_archives(tmp_path: Path) -> None:
    """A packed chart depends neither on when nor in which order Helm packed its files, and Helm still reads it."""
    archives = []
    for order in ((0, 1), (1, 0)):
        archive = tmp_path / "kinema-1.2.3.tgz"
        files = (("kinema/Chart.yaml", b"name: kinema\n"), ("kinema/charts/a/values.yaml", b"a: 1\n"))
        with tarfile.open(archive, "w:gz") as packed:
            for place in order:
                entry = tarfile.TarInfo(files[place][0])
                entry.size, entry.mtime = len(files[place][1]), 1_000_000 + place + order[0]
                packed.addfile(entry, io.BytesIO(files[place][1]))
        release.pack_charts(tmp_path)
        archives.append(archive.read_bytes())
    assert archives[0] == archives[1]
    with tarfile.open(tmp_path / "kinema-1.2.3.tgz") as packed:
        assert packed.getnames() == ["kinema/Chart.yaml", "kinema/charts/a/values.yaml"]


def test_the_launcher_runs_the_packed_wheels(released: Path, tmp_path: Path) -> None:
    """Through krew's link, it calls `uvx` with the wheels and constraints beside it; without `uvx` it reports that."""
    store, programs = tmp_path / "store", tmp_path / "bin"
    programs.mkdir()
    with ZipFile(released / f"kubectl-kinema-{release.VERSION}.zip") as packed:
        packed.extractall(store)
        modes = {entry.filename: entry.external_attr >> 16 & 0o777 for entry in packed.infolist()}
    assert {name for name, mode in modes.items() if mode == 0o755} == {"kubectl-kinema"}
    (store / "kubectl-kinema").chmod(0o755)
    link = tmp_path / "kubectl-kinema"
    link.symlink_to(store / "kubectl-kinema")
    for name in ("sh", "dirname", "readlink"):
        (programs / name).symlink_to(str(shutil.which(name)))

    def launch() -> subprocess.CompletedProcess[str]:
        command = [str(link), "plan", "--out", "a b"]
        return subprocess.run(command, capture_output=True, text=True, check=False, env={"PATH": str(programs)})

    assert launch().returncode == 1
    assert launch().stderr.startswith("error: kubectl kinema needs uvx")
    (programs / "uvx").write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
    (programs / "uvx").chmod(0o755)
    assert launch().stdout.splitlines() == [
        *("--find-links", str(store)),
        *("--constraints", str(store / "constraints.txt")),
        *("--from", f"kinema-cli=={release.VERSION}"),
        *("kubectl-kinema", "plan", "--out", "a b"),
    ]


def test_the_policy_names_the_supported_versions_of_kubernetes() -> None:
    """The charts, the tests and docs/release.md state the same versions of Kubernetes."""
    policy = (ROOT / "docs/release.md").read_text(encoding="utf-8")
    charts = [yaml.safe_load(path.read_text()) for path in ROOT.glob("charts/*/Chart.yaml")]
    (least,) = {chart["kubeVersion"] for chart in charts}
    (row,) = (line for line in policy.splitlines() if line.startswith("| Kubernetes |"))
    assert f"{least.removeprefix('>=').removesuffix('.0-0')} or newer" in row
    assert all(minor in row for minor in VERSIONS)
