"""Run a command where images can be built and containers run: `python tools/engine.py make containers`.

Uses the engine that answers. Where none does, root on Debian installs one, which keeps its files in Kinema's cache and
ends with the command. Compose and buildx are built from Go modules where Docker lacks them. Where no registry of images
answers, the command finds a base image of Debian's packages in BASE. Where there can be no engine, says why and ends
well: the command is left out.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

# As a script this file finds its neighbors.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.controlplane.build import BuildError, build_module, cache_folder, plugins

_ROOT: Final = Path(__file__).resolve().parent.parent
_PACKAGES: Final = ("docker.io", "docker-cli", "iptables", "debootstrap")
_BASE: Final = "kinema-base:bookworm"
_SECONDS: Final = 60.0


class LeftOutError(Exception):
    """No engine can be had; the text says why."""


def run(*command: str, seconds: float = 900) -> str:
    """Run a command that prepares; gives what it prints.

    Raises:
        LeftOutError: it fails.
    """
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LeftOutError(f"{' '.join(command)}: {error}") from error
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}").splitlines()[-1]
        raise LeftOutError(f"{' '.join(command)}: {last}")
    return done.stdout


def works(*command: str, seconds: float = 120) -> bool:
    """Return whether a command succeeds."""
    try:
        run(*command, seconds=seconds)
    except LeftOutError:
        return False
    return True


def install(lack: str) -> None:
    """Install Debian's packages of an engine and of a base image."""
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise LeftOutError(f"{lack}, and only root on Debian can install what is needed")
    os.environ["DEBIAN_FRONTEND"] = "noninteractive"
    run("apt-get", "update", "-q")
    known = [name for name in _PACKAGES if run("apt-cache", "madison", name)]  # each release has its own
    run("apt-get", "install", "-qy", "--no-install-recommends", *known)


@contextmanager
def engine() -> Iterator[None]:
    """Set DOCKER_HOST to an engine of our own while none answers."""
    if works("docker", "info"):
        yield
        return
    if not (shutil.which("dockerd") and shutil.which("iptables")):
        install("no container engine answers")
    if works("docker", "info"):  # the package has started it
        yield
        return
    home = cache_folder().parent / "engine"
    home.mkdir(parents=True, exist_ok=True)
    socket, log = f"unix://{home}/docker.sock", home / "dockerd.log"
    command = ["dockerd", "--host", socket, "--data-root", str(home / "data")]
    command += ["--exec-root", str(home / "run"), "--pidfile", str(home / "docker.pid")]
    with log.open("w") as output:
        daemon = subprocess.Popen(command, stdout=output, stderr=output)
    os.environ["DOCKER_HOST"] = socket
    try:
        deadline = time.monotonic() + _SECONDS
        while not works("docker", "info"):
            if daemon.poll() is not None or time.monotonic() > deadline:
                raise LeftOutError(f"dockerd does not start: {log.read_text().strip().splitlines()[-1]}")
            time.sleep(0.5)
        yield
    finally:
        daemon.terminate()
        daemon.wait()


def extend() -> None:
    """Give Docker the plugins that it lacks."""
    lacking = [module for module in plugins() if not works("docker", *(module.folder, "version"))]
    if not lacking:
        return
    own = cache_folder().parent / "docker"
    (own / "cli-plugins").mkdir(parents=True, exist_ok=True)
    for module in plugins():
        try:
            made = build_module(module)
        except BuildError as error:
            raise LeftOutError(f"docker {module.folder} cannot be built: {error}") from error
        for name in module.programs:
            link = own / "cli-plugins" / name
            link.unlink(missing_ok=True)
            link.symlink_to(made / name)
    os.environ["DOCKER_CONFIG"] = str(own)


def choose_base() -> None:
    """Set BASE to an image that is here, where the default one cannot be pulled."""
    given = os.environ.get("BASE") or _default_base()
    if not (works("docker", "image", "inspect", given) or works("docker", "pull", "--quiet", given)):
        if not works("docker", "image", "inspect", _BASE):
            if not shutil.which("debootstrap"):
                install("no base image can be had")
            run(str(_ROOT / "tools" / "debian_base.sh"), _BASE)
        print(f"{given} cannot be pulled: images are built on {_BASE}, made of Debian's packages", flush=True)
        os.environ["BASE"] = _BASE


def _default_base() -> str:
    dockerfile = (_ROOT / "Dockerfile").read_text(encoding="utf-8")
    return next(line.removeprefix("ARG BASE=") for line in dockerfile.splitlines() if line.startswith("ARG BASE="))


def main(command: Sequence[str]) -> int:
    """Run the command, or say that it is left out; returns its exit code, 2 where there is none to run."""
    if not command or shutil.which(command[0]) is None:
        print(f"usage: python tools/engine.py COMMAND [ARGUMENT ...]\n\n{__doc__}")
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # ends an engine of our own
    try:
        with engine():
            extend()
            choose_base()
            return subprocess.run(command, check=False).returncode
    except LeftOutError as error:
        print(f"left out: {' '.join(command)}, because {error}")
        return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
