"""`python -m tests.controlplane build|up|down`: a control plane for a person; see the Makefile."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path

from tests.controlplane.access import RefusedError
from tests.controlplane.build import VERSIONS, BuildError, build
from tests.controlplane.nodes import add_nodes, node
from tests.controlplane.plane import ControlPlane, Options
from tests.controlplane.server import ServerError, kill_left

_ZONES = ("europe-west3-a", "europe-west3-b", "europe-west3-c")  # of Google's price table, as the machine type is
_STATE = "processes.json"


def main() -> None:
    """Run one command."""
    parser = argparse.ArgumentParser(prog="python -m tests.controlplane", description=__doc__)
    parser.add_argument("command", choices=("build", "up", "down"))
    parser.add_argument("--kubernetes", choices=VERSIONS, default=VERSIONS[0], help="minor version")
    parser.add_argument("--folder", type=Path, default=Path("out/cluster"), help="where data and kubeconfig lie")
    parser.add_argument("--nodes", type=int, default=6, help="nodes of 4 cores and 16 GiB to begin with")
    given = parser.parse_args()
    try:
        if given.command == "build":
            build(given.kubernetes)
        elif given.command == "up":
            _up(given.folder, given.kubernetes, given.nodes)
        else:
            _down(given.folder)
    except (BuildError, ServerError, RefusedError, TimeoutError) as error:
        sys.exit(str(error))


def _up(folder: Path, minor: str, nodes: int) -> None:
    if _runs(folder):
        sys.exit(f"a cluster runs already, kubeconfig {(folder / 'kubeconfig').resolve()}: `make cluster-stop` ends it")
    _down(folder)
    plane = ControlPlane(folder, Options(minor=minor, outlive=True))
    plane.start()
    running = {server.name: server.pid for server in plane.servers.values()}
    (folder / _STATE).write_text(json.dumps(running))
    add_nodes(plane.admin, *(node(f"node-{count}", zone=_ZONES[count % len(_ZONES)]) for count in range(nodes)))
    kubeconfig = plane.admin.write_kubeconfig(folder / "kubeconfig")
    print(f"Kubernetes {minor} runs at {plane.url} with {nodes} nodes.")
    print(f"export KUBECONFIG={kubeconfig.resolve()}")
    print(f"kubectl: {plane.programs['kubectl']}")
    print(f"helm: {plane.programs['helm']}")
    print("stop it: make cluster-stop")


def _runs(folder: Path) -> bool:
    state = folder / _STATE
    return state.exists() and all(Path(f"/proc/{pid}").exists() for pid in json.loads(state.read_text()).values())


def _down(folder: Path) -> None:
    state = folder / _STATE
    if state.exists():
        for name, pid in json.loads(state.read_text()).items():
            kill_left(pid, folder / f"{name}.log")
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
