"""Write the version of pyproject.toml into every file that states it, and pack charts and the plugin for kubectl.

    python tools/release.py                  write the version
    python tools/release.py --check          exit 1 when a file states another one
    python tools/release.py pack FOLDER      pack FOLDER's charts again, so that equal charts are equal bytes; pack its
                                             wheels with a launcher, and write the manifest for krew

docs/release.md describes a release.
"""

from __future__ import annotations

import gzip
import io
import re
import sys
import tarfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Final
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

import yaml

# As a script this file finds its neighbors, in a test it is part of a package.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.event_catalog import write_or_check

ROOT: Final = Path(__file__).resolve().parent.parent
VERSION: Final[str] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
_HOME: Final = "https://github.com/kinema/kinema"
_PACKAGE: Final = (r'^(version = )".*"', r'\1"{}"'), (r'"(kinema-[a-z]+)(==[^"]+)?"(?=[,\]])', r'"\1=={}"')
_STATED: Final[Mapping[str, Sequence[tuple[str, str]]]] = {
    "*/pyproject.toml": _PACKAGE,
    "services/*/pyproject.toml": _PACKAGE,
    "charts/*/Chart.yaml": ((r"\b(version|appVersion): [0-9][^\s,]*", r"\1: {}"),),
    "Dockerfile": ((r"^(ARG VERSION=).*", r"\g<1>{}"),),
    ".env": ((r"^(KINEMA_VERSION=).*", r"\g<1>{}"),),
}
"""Patterns that match where a file states the version, each with what takes its place. Packages of Kinema need each
other in their own version, because Python modules are not public."""
_PLATFORMS: Final = (("linux", "amd64"), ("linux", "arm64"), ("darwin", "arm64"))
"""Platforms that have a wheel of every dependency."""
_LAUNCHER: Final = """\
#!/bin/sh
# kubectl kinema: runs the wheels beside this file, with the dependencies that the release was tested with.
here=$(dirname "$(readlink -f "$0")")
if ! command -v uvx >/dev/null; then
  echo "error: kubectl kinema needs uvx, which is not on the PATH" >&2
  echo "hint: https://docs.astral.sh/uv/getting-started/installation" >&2
  exit 1
fi
exec uvx --find-links "$here" --constraints "$here/constraints.txt" --from kinema-cli=={} kubectl-kinema "$@"
"""


def files(version: str) -> Iterator[tuple[Path, str]]:
    """Return every file that states the version, with its content for this version."""
    for names, rules in _STATED.items():
        for path in sorted(ROOT.glob(names)):
            text = path.read_text(encoding="utf-8")
            for pattern, replacement in rules:
                text = re.sub(pattern, replacement.format(version), text, flags=re.MULTILINE)
            yield path, text


def pack_charts(folder: Path) -> None:
    """Pack Helm's archives again, equal charts to equal bytes: Helm keeps times, and the order of parts varies."""
    for archive in folder.glob("*.tgz"):
        with tarfile.open(archive) as packed:
            content = {one.name: file.read() for one in packed if (file := packed.extractfile(one))}
        plain = io.BytesIO()
        with tarfile.open(fileobj=plain, mode="w") as packed:
            for name, data in sorted(content.items()):
                entry = tarfile.TarInfo(name)  # dated 1970
                entry.size = len(data)
                packed.addfile(entry, io.BytesIO(data))
        archive.write_bytes(gzip.compress(plain.getvalue(), mtime=0))


def pack_plugin(folder: Path) -> None:
    """Pack wheels, constraints, license and launcher, equal inputs to equal bytes; write the manifest for krew."""
    archive = folder / f"kubectl-kinema-{VERSION}.zip"
    with ZipFile(archive, "w") as packed:
        for path in (ROOT / "LICENSE", folder / "constraints.txt", *sorted(folder.glob("*.whl"))):
            packed.writestr(_entry(path.name, 0o644), path.read_bytes())
        packed.writestr(_entry("kubectl-kinema", 0o755), _LAUNCHER.format(VERSION))
    text = yaml.safe_dump(_manifest(archive), sort_keys=False, width=120)
    (folder / "kinema.yaml").write_text(text, encoding="utf-8")


def _entry(name: str, mode: int) -> ZipInfo:
    entry = ZipInfo(name)  # dated 1980
    entry.compress_type = ZIP_DEFLATED
    entry.create_system = 3  # Unix: the mode counts
    entry.external_attr = (0o100000 | mode) << 16
    return entry


def _manifest(archive: Path) -> object:
    packed = {
        "uri": f"{_HOME}/releases/download/v{VERSION}/{archive.name}",
        "sha256": sha256(archive.read_bytes()).hexdigest(),
        "bin": "kubectl-kinema",
    }
    return {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "kinema"},
        "spec": {
            "version": f"v{VERSION}",
            "homepage": _HOME,
            "shortDescription": "Find the cheapest set of nodes",
            "description": "Finds the cheapest set of nodes for a cluster's workloads,\nand the moves to it.\n",
            "caveats": "Needs uv (https://docs.astral.sh/uv).\nThe first call downloads the dependencies.\n",
            "platforms": [
                {"selector": {"matchLabels": {"os": system, "arch": processor}}, **packed}
                for system, processor in _PLATFORMS
            ],
        },
    }


def main(arguments: Sequence[str]) -> int:
    """Write the version or check it, or pack charts and plugin."""
    if arguments[:1] == ["pack"]:
        pack_charts(Path(arguments[1]))
        pack_plugin(Path(arguments[1]))
        return 0
    return max(write_or_check(path, text, arguments, "release.py") for path, text in files(VERSION))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
